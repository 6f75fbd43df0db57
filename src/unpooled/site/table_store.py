"""The copy on disk: made once, opened by the site's officer, approved, and then answered from.

::

    FOLDER/summary/table.csv      the copy itself, one row per group: what the site answers from
    FOLDER/summary/about.json     names, levels, date, settings, digest
    FOLDER/summary/approved.json  who approved which digest, and when
    FOLDER/renewal/            a renewed copy that nobody approved yet: the old one is answered from
    FOLDER/summary-DATE-N/        earlier copies
    FOLDER/registry.sqlite     who was ever shown with whom, where persons have ids (``registry``)
    FOLDER/erasures.json       that persons were erased, not who (``erasures``)
"""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from unpooled.data.summary_table import SummaryTable, described, from_csv, to_csv
from unpooled.data.table import Table
from unpooled.errors import InputError, LedgerError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.people import People
from unpooled.privacy.microaggregation.renew import first_groups, without_erased
from unpooled.privacy.microaggregation.summarize import FirstSummary, Progress, make_first_summary
from unpooled.site import people_register
from unpooled.site.erasures import ERASURES as ERASURES
from unpooled.site.erasures import Erasures
from unpooled.site.log import entries
from unpooled.site.people_register import Registry, check_age
from unpooled.storage.account import account
from unpooled.storage.atomic_files import sync_folder, write_atomically
from unpooled.typing import FloatArray

TABLE, ABOUT, APPROVED, PAGE = "table.csv", "about.json", "approved.json", "page.html"
SECOND_TABLE = "a second unrelated table without a bound"  # the officer types this to make a second copy


def _digest(copy: SummaryTable, settings: Any) -> str:
    return sha256(f"{copy.digest} {json.dumps(settings, sort_keys=True)}".encode()).hexdigest()


@dataclass(frozen=True)
class SummaryFolder:
    """The place of a site's copy: ``folder`` is the site's own folder."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "summary"

    @property
    def exists(self) -> bool:
        self.recover()
        return (self.path / ABOUT).exists()

    def missing_files(self) -> list[Path]:
        """Return the files without which a copy that was made cannot be answered from."""
        self.recover()
        found = [file for file in (self.path / ABOUT, self.path / TABLE) if not file.exists()]
        if not found and self.registered and not (self.folder / people_register.FILE).exists():
            found.append(self.folder / people_register.FILE)
        return found

    @property
    def renewal(self) -> Path:
        """The place of a renewed copy that waits for its approval."""
        return self.folder / "renewal"

    def make(
        self,
        table: Table | FloatArray,
        settings: SummarySettings,
        *,
        second_table: str = "",
        progress: Progress | None = None,
        reading: dict[str, Any] | None = None,
    ) -> SummaryTable:
        """Make the copy and write it, whole or not at all. There is one copy, unless ``second_table`` says so.

        Two copies of the same persons can be compared: who changed groups can be told apart. ``reading``
        says how the table was read, for renewals.
        """
        self.check_may_make(second_table)
        table = self._without_erased(table, settings)
        first = make_first_summary(table, settings, progress=progress)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.build(first.summary, settings, registered=_has_ids(table, settings)) as building:
            self.check_may_make(second_table)
            self._register(table, first, settings, reading or {})
            shutil.rmtree(self.renewal, ignore_errors=True)  # it renews the copy that is replaced
            if self.exists:
                os.rename(self.path, self._archived())
            os.rename(building, self.path)
        return first.summary

    @contextlib.contextmanager
    def build(self, copy: SummaryTable, settings: SummarySettings, *, registered: bool) -> Iterator[Path]:
        """The files of a copy in a folder of their own, to be put in its place; gone if that fails."""
        for left in self.folder.glob(".summary.*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        building = Path(tempfile.mkdtemp(dir=self.folder, prefix=".summary."))
        try:
            about = {**described(copy), "settings": asdict(settings)}
            about = {
                "version": 1,
                "digest": _digest(copy, about["settings"]),
                **about,
                "registry": registered,
            }
            write_atomically(building / TABLE, to_csv(copy).encode())
            write_atomically(building / ABOUT, (json.dumps(about, indent=1) + "\n").encode())
            yield building
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise

    def _without_erased(self, table: Table | FloatArray, settings: SummarySettings) -> Table | FloatArray:
        """The rows of all persons who were not erased; InputError if they cannot be told from the others."""
        if not (self.folder / people_register.FILE).exists():
            check_age(self.folder, None)
            return table
        with Registry.open(self.folder) as people:
            check_age(self.folder, people)
            if not (erased := people.erased()):
                return table
            why = "the copy has no column that names persons"
            if settings.person and isinstance(table, Table):
                shown = people.disclosed()
                there = len(shown & {people.person(one) for one in People(table, settings).ids})
                if 2 * there >= len(shown):
                    return without_erased(table, settings, erased, people.digest)
                why = f"of {len(shown)} persons who are shown, {there} are in column {settings.person}"
        raise InputError(
            f"{self.folder}: {_many(len(erased))} erased here, and {why}: who was erased would not be "
            "recognised, and shown again. Name the column that the copy was made with, by --person; or make "
            "the copy in a folder of its own, from a file without them"
        )

    def _register(
        self,
        table: Table | FloatArray,
        first: FirstSummary,
        settings: SummarySettings,
        reading: dict[str, Any],
    ) -> None:
        """Tell the registry of the groups of a first copy; without ids of persons there is none."""
        if not _has_ids(table, settings):
            return
        assert isinstance(table, Table)
        with Registry.open(self.folder, new=True) as people:
            groups = first_groups(table, first, people.digest)
            digest = _digest(first.summary, asdict(settings))
            people.propose_first(digest, first.scales, groups, reading)

    def check_may_make(self, second_table: str = "") -> None:
        """Raise InputError if there is a copy, or was one, unless ``second_table`` says that another is wanted."""
        if second_table == SECOND_TABLE or not (earlier := self._earlier()):
            return
        raise InputError(
            f"{self.folder}: {earlier}. Who has seen both could compare them; to make one all the same, say "
            f'--second-table "{SECOND_TABLE}"'
        )

    def _earlier(self) -> str:
        """The copy that there is, or that the folder or its log tells of; "" if there was none."""
        if self.exists:
            return f"there is a copy already, of {self.about()['made']}"
        if any(self.folder.glob(f"summary-*/{ABOUT}")):
            return "there was a copy, which is kept beside"
        if (self.folder / people_register.FILE).exists():
            with Registry.open(self.folder) as people:
                if people.current:
                    return "the registry tells of a copy that was approved"
        log = self.folder / "log.jsonl"
        if log.exists() and any(entry is None or entry.get("summary") for _, entry in entries(log)):
            return "the log tells of a copy that was answered from"
        return ""

    def _archived(self) -> Path:
        """Where an earlier copy goes: it was released, so it is kept."""
        made = str(self._said(self.path)["made"])
        for number in range(1, 10_000):
            path = self.folder / f"summary-{made}-{number}"
            if not path.exists():
                return path
        raise InputError(f"{self.folder}: too many copies of {made}")

    def about(self) -> dict[str, Any]:
        self.recover()
        return self._said(self.path)

    def _said(self, path: Path) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads((path / ABOUT).read_text(encoding="utf-8"))
            version = values["version"]
        except FileNotFoundError:
            raise InputError(f"{self.folder}: there is no copy; unpooled site summarize writes one") from None
        except (ValueError, KeyError, TypeError):
            raise LedgerError(f"{path / ABOUT}: not the description of a copy, or damaged") from None
        if version != 1:
            raise LedgerError(f"{path / ABOUT}: of version {version}, this program reads version 1")
        return values

    def read(self, *, renewed: bool = False) -> SummaryTable:
        """The copy, or its renewal; LedgerError if its files were changed since it was made."""
        path = self.renewal if renewed else self.path
        about = self._said(path) if renewed else self.about()
        try:
            copy = from_csv((path / TABLE).read_text(encoding="utf-8"), about)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"{path}: the copy cannot be read: {error}") from error
        if _digest(copy, about.get("settings")) != about["digest"]:
            raise LedgerError(f"{path}: the copy was changed since it was made")
        return copy

    @property
    def digest(self) -> str:
        """The digest of the copy and of the settings that it was made with."""
        return str(self.about()["digest"])

    def settings(self) -> SummarySettings:
        """The settings that the copy was made with."""
        try:
            given = self.about()["settings"].items()
            values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given}
            return SummarySettings(**values)
        except (KeyError, AttributeError, TypeError) as error:
            raise LedgerError(
                f"{self.path / ABOUT}: not the description of a copy, or damaged: {error}"
            ) from error

    @property
    def pending(self) -> bool:
        """True if there is a renewal that nobody approved yet."""
        self.recover()
        return (self.renewal / ABOUT).exists()

    @property
    def renewal_digest(self) -> str:
        """The digest of the renewal that waits."""
        return str(self._said(self.renewal)["digest"])

    def approve(self, by: str = "", *, digest: str = "") -> str:
        """Note that the copy, or its renewal if one waits, may be answered from; returns its digest.

        ``digest``: what the officer has read; InputError if another table is pending by now.
        """
        renewed, name = self.pending, by or account()
        self.read(renewed=renewed)
        self.check_age()
        path = self.renewal if renewed else self.path
        pending = str(self._said(path)["digest"])
        if digest and digest != pending:
            raise InputError(
                f"{self.folder}: the summary table changed while it was reviewed. Review it again, then approve it."
            )
        digest = pending
        note = {"digest": digest, "by": name, "utc": datetime.now(UTC).isoformat(timespec="seconds")}
        text = (json.dumps(note, indent=1) + "\n").encode()
        if renewed:
            write_atomically(path / APPROVED, text)
            self.adopt_proposal(name, digest)
            self.recover()
        else:
            self.adopt_proposal(name, digest)
            write_atomically(path / APPROVED, text)
        return digest

    @property
    def registered(self) -> bool:
        """True if persons of the copy are in a registry."""
        return bool(self.about().get("registry")) or (
            bool(self.settings().person) and (self.folder / people_register.FILE).exists()
        )

    def adopt_proposal(self, by: str, digest: str = "") -> None:
        """Let the registry take over what was proposed for a copy, before it is answered from."""
        self.check_age()
        if self.registered:
            with Registry.open(self.folder) as people:
                people.adopt(digest or self.digest, by)

    def check_age(self) -> None:
        """Raise LedgerError if the registry is lost, or older than the log or an erasure."""
        if self.registered:
            with Registry.open(self.folder) as people:
                check_age(self.folder, people)

    def check_registry(self, people: Registry) -> None:
        """Raise LedgerError unless the registry is the newest and names this very copy to answer from."""
        if people.current != self.digest:
            raise LedgerError(
                f"{self.folder}: the copy is not the one that the registry names: one of them was lost, or "
                "is an older one; nothing is answered"
            )
        check_age(self.folder, people)

    def check_nobody_erased(self, shown: str) -> None:
        """Raise LedgerError if somebody was erased here: ``shown`` does not tell persons apart."""
        self.recover()
        erased, told = set[str](), Erasures(self.folder).read()
        if (self.folder / people_register.FILE).exists():
            with Registry.open(self.folder) as people:
                erased = people.erased()
        if erased or told:
            raise LedgerError(
                f"{self.folder}: {_many(len(erased) or len(told))} erased here, and {shown} would show them "
                "again; it needs a folder of its own, with a file without them"
            )

    def recover(self) -> tuple[Path, ...]:
        """Finish what a process that was killed had begun; the folders of tables that were deleted for it.

        An approved renewal takes the place of the copy. Tables of earlier copies go, unless it is known that
        nobody who was erased is in them.
        """
        erasures = Erasures(self.folder)
        if not (self.renewal / ABOUT).exists() and not erasures.unfinished:
            return ()
        with Registry.open(self.folder) as people, people.transaction():
            self._recover_renewal(people)
            if not erasures.unfinished:
                return ()
            emptied: tuple[Path, ...] = ()
            if people.erased():
                allowed = people.without_erased()
                emptied = self.empty_tables(lambda about: str(about["digest"]) not in allowed)
            erasures.finish(people.erasures())
            return emptied

    def _recover_renewal(self, people: Registry) -> None:
        if not (self.renewal / ABOUT).exists():
            return
        digest = str(self._said(self.renewal)["digest"])
        if digest != people.current:
            if not people.proposed(digest):  # of a process that was killed
                shutil.rmtree(self.renewal, ignore_errors=True)
            return
        if (self.path / ABOUT).exists():
            os.rename(self.path, self._archived())
        os.rename(self.renewal, self.path)

    def empty_tables(self, chosen: Callable[[dict[str, Any]], bool]) -> tuple[Path, ...]:
        """Delete the tables of some earlier copies; date, settings, digest and approval stay as evidence."""
        done = []
        for place in sorted(about.parent for about in self.folder.glob(f"summary-*/{ABOUT}")):
            if (place / TABLE).exists() and chosen(self._said(place)):
                for name in (TABLE, PAGE):
                    (place / name).unlink(missing_ok=True)
                sync_folder(place)
                done.append(place)
        return tuple(done)

    @property
    def approved(self) -> str:
        """When this very copy was approved; "" if it was not."""
        try:
            note = json.loads((self.path / APPROVED).read_text(encoding="utf-8"))
            return str(note["utc"]) if note["digest"] == self.about()["digest"] else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""


class ReadOnlySummaryFolder(SummaryFolder):
    """The same for whoever only looks: an approved renewal is left for the site to put in its place."""

    def recover(self) -> tuple[Path, ...]:
        return ()


def _many(people: int) -> str:
    return "1 person was" if people == 1 else f"{people} persons were"


def _has_ids(table: Table | FloatArray, settings: SummarySettings) -> bool:
    return bool(settings.person) and isinstance(table, Table)
