"""The copy on disk: made once, opened by the site's officer, approved, and then answered from.

::

    FOLDER/copy/table.csv      the copy itself, one row per group: what the site answers from
    FOLDER/copy/about.json     names, levels, date, settings, digest
    FOLDER/copy/approved.json  who approved which digest, and when
"""

import contextlib
import getpass
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from unpooled.core.arrays import FloatArray
from unpooled.core.disk import write_atomically
from unpooled.data.copy import Copy, described, from_csv, to_csv
from unpooled.data.table import Table
from unpooled.errors import BadInput, LedgerError
from unpooled.privacy.copy import CopySettings, make_copy
from unpooled.privacy.copy.make import Progress
from unpooled.site.log import entries

TABLE, ABOUT, APPROVED = "table.csv", "about.json", "approved.json"
FURTHER = "a further release without a bound"  # the officer types this to make a second copy


def _digest(copy: Copy, settings: Any) -> str:
    return sha256(f"{copy.digest} {json.dumps(settings, sort_keys=True)}".encode()).hexdigest()


@dataclass(frozen=True)
class CopyFolder:
    """The place of a site's copy: ``folder`` is the site's own folder."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "copy"

    @property
    def exists(self) -> bool:
        return (self.path / ABOUT).exists()

    def make(
        self,
        table: Table | FloatArray,
        settings: CopySettings,
        *,
        further: str = "",
        progress: Progress | None = None,
    ) -> Copy:
        """Make the copy and write it, whole or not at all. There is one copy, unless ``further`` says so.

        Two copies of the same persons can be compared: who changed groups can be told apart.
        """
        self.check_may_make(further)
        copy = make_copy(table, settings, progress=progress)
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".copy.*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        building = Path(tempfile.mkdtemp(dir=self.folder, prefix=".copy."))
        try:
            about = {**described(copy), "settings": asdict(settings)}
            about = {"version": 1, "digest": _digest(copy, about["settings"]), **about}
            write_atomically(building / TABLE, to_csv(copy).encode())
            write_atomically(building / ABOUT, (json.dumps(about, indent=1) + "\n").encode())
            self.check_may_make(further)
            if self.exists:
                os.rename(self.path, self._archived())
            os.rename(building, self.path)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        return copy

    def check_may_make(self, further: str = "") -> None:
        """Raise BadInput if there is a copy, or was one, unless ``further`` says that another is wanted."""
        if further == FURTHER or not (earlier := self._earlier()):
            return
        raise BadInput(
            f"{self.folder}: {earlier}. Who has seen both could compare them; to make one all the same, say "
            f'--further "{FURTHER}"'
        )

    def _earlier(self) -> str:
        """The copy that there is, or that the folder or its log tells of; "" if there was none."""
        if self.exists:
            return f"there is a copy already, of {self.about()['made']}"
        if any(self.folder.glob(f"copy-*/{ABOUT}")):
            return "there was a copy, which is kept beside"
        log = self.folder / "log.jsonl"
        if log.exists() and any(entry is None or entry.get("copy") for _, entry in entries(log)):
            return "the log tells of a copy that was answered from"
        return ""

    def _archived(self) -> Path:
        """Where an earlier copy goes: it was released, so it is kept."""
        made = str(self.about()["made"])
        for number in range(1, 10_000):
            path = self.folder / f"copy-{made}-{number}"
            if not path.exists():
                return path
        raise BadInput(f"{self.folder}: too many copies of {made}")

    def about(self) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads((self.path / ABOUT).read_text(encoding="utf-8"))
            version = values["version"]
        except FileNotFoundError:
            raise BadInput(f"{self.folder}: there is no copy; unpooled copy make writes one") from None
        except (ValueError, KeyError, TypeError):
            raise LedgerError(f"{self.path / ABOUT}: not the description of a copy, or damaged") from None
        if version != 1:
            raise LedgerError(f"{self.path / ABOUT}: of version {version}, this program reads version 1")
        return values

    def read(self) -> Copy:
        """The copy; LedgerError if its files were changed since it was made."""
        about = self.about()
        try:
            copy = from_csv((self.path / TABLE).read_text(encoding="utf-8"), about)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"{self.path}: the copy cannot be read: {error}") from error
        if _digest(copy, about.get("settings")) != about["digest"]:
            raise LedgerError(f"{self.path}: the copy was changed since it was made")
        return copy

    @property
    def digest(self) -> str:
        """The digest of the copy and of the settings that it was made with."""
        return str(self.about()["digest"])

    def settings(self) -> CopySettings:
        """The settings that the copy was made with."""
        given = self.about()["settings"].items()
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given}
        return CopySettings(**values)

    def approve(self, by: str = "") -> str:
        """Note that the copy of this digest may be answered from; returns the digest."""
        self.read()
        digest, name = self.digest, by
        if not name:
            with contextlib.suppress(OSError, KeyError):
                name = getpass.getuser()
        note = {"digest": digest, "by": name, "utc": datetime.now(UTC).isoformat(timespec="seconds")}
        write_atomically(self.path / APPROVED, (json.dumps(note, indent=1) + "\n").encode())
        return digest

    @property
    def approved(self) -> str:
        """When this very copy was approved; "" if it was not."""
        try:
            note = json.loads((self.path / APPROVED).read_text(encoding="utf-8"))
            return str(note["utc"]) if note["digest"] == self.about()["digest"] else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""
