"""The summary table on disk: made once, reviewed and approved by the site's officer, and then answered from.

::

    FOLDER/summary/table.csv      the summary table, one row per group: what the site answers from
    FOLDER/summary/about.json     format, names, categories, date, settings, digest
    FOLDER/summary/approved.json  who approved which digest, and when
    FOLDER/renewal/               a pending update; until it is approved, the site answers from summary/
    FOLDER/summary-DATE-N/        earlier tables
    FOLDER/registry.sqlite        the groups of each person, where people have ids (``people_register``)
    FOLDER/erasures.json          that people were erased, not who (``erasures``)
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
from unpooled.site.folder_consistency import check_folder_format, check_registry
from unpooled.site.log import entries
from unpooled.site.people_register import Registry
from unpooled.storage.account import account
from unpooled.storage.atomic_files import sync_folder, write_atomically
from unpooled.storage.file_format import FORMAT, format_error
from unpooled.typing import FloatArray

TABLE, ABOUT, APPROVED, PAGE = "table.csv", "about.json", "approved.json", "page.html"
SUMMARY = "summary"  # the subfolder of the table in use
SECOND_TABLE = "a second unrelated table without a bound"  # the officer types this to make a second table


def _digest(table: SummaryTable, settings: object) -> str:
    return sha256(f"{table.digest} {json.dumps(settings, sort_keys=True)}".encode()).hexdigest()


@dataclass(frozen=True)
class SummaryFolder:
    """The summary table in a site's folder; LedgerError if the folder has an earlier format."""

    folder: Path

    def __post_init__(self) -> None:
        check_folder_format(self.folder)

    @property
    def path(self) -> Path:
        return self.folder / SUMMARY

    @property
    def exists(self) -> bool:
        self.recover()
        return (self.path / ABOUT).exists()

    def missing_files(self) -> list[Path]:
        """Return the missing files that the site needs to answer from its summary table."""
        self.recover()
        missing = [file for file in (self.path / ABOUT, self.path / TABLE) if not file.exists()]
        if not missing and self.registered and not (self.folder / people_register.FILE).exists():
            missing.append(self.folder / people_register.FILE)
        return missing

    @property
    def renewal(self) -> Path:
        """The folder of a pending update."""
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
        """Make the summary table and write it, whole or not at all.

        A site has one summary table, unless ``second_table`` is the sentence that allows a second one: two
        tables of the same people can be compared, which singles out people who changed groups. A table that
        nobody approved is replaced. ``reading`` describes how the data were read, for updates. Every first
        table of a site is made here, so every site declares its people and its sensitive columns.
        """
        settings.check_people_declared()
        settings.check_sensitive_declared()
        self.check_may_make(second_table)
        table = self._without_erased(table, settings)
        first = make_first_summary(table, settings, progress=progress)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.build(first.summary, settings, registered=_has_ids(table, settings)) as building:
            self.check_may_make(second_table)
            self._register(table, first, settings, reading or {})
            shutil.rmtree(self.renewal, ignore_errors=True)  # it updates the table that is replaced
            replaced = self.folder / ".summary.replaced"
            if self.replaceable:
                shutil.rmtree(replaced, ignore_errors=True)
                os.rename(self.path, replaced)
            elif self.exists:
                os.rename(self.path, self._archived())
            os.rename(building, self.path)
            shutil.rmtree(replaced, ignore_errors=True)
        return first.summary

    @contextlib.contextmanager
    def build(self, summary: SummaryTable, settings: SummarySettings, *, registered: bool) -> Iterator[Path]:
        """The files of a summary table in a folder of their own, to be put in place; gone if that fails."""
        for left in self.folder.glob(".summary.*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        building = Path(tempfile.mkdtemp(dir=self.folder, prefix=".summary."))
        try:
            about = {**described(summary), "settings": asdict(settings)}
            about = {
                "format": FORMAT,
                "digest": _digest(summary, about["settings"]),
                **about,
                "registry": registered,
            }
            write_atomically(building / TABLE, to_csv(summary).encode())
            write_atomically(building / ABOUT, (json.dumps(about, indent=1) + "\n").encode())
            yield building
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise

    def _without_erased(self, table: Table | FloatArray, settings: SummarySettings) -> Table | FloatArray:
        """The rows of all people who were not erased; InputError if the table does not tell who they are."""
        if not (self.folder / people_register.FILE).exists():
            check_registry(self.folder, None)
            return table
        with Registry.open(self.folder) as people:
            check_registry(self.folder, people)
            if not (erased := people.erased()):
                return table
            why = "the summary table has no person column"
            if settings.person and isinstance(table, Table):
                disclosed = people.disclosed()
                present = len(disclosed & {people.person(one) for one in People(table, settings).ids})
                if 2 * present >= len(disclosed):
                    return without_erased(table, settings, erased, people.digest)
                why = f"{present} of {len(disclosed)} disclosed people are in column {settings.person}"
        raise InputError(
            f"{self.folder}: {_many(len(erased))} erased here, and {why}. They would not be recognised, and "
            "would be disclosed again. Use --person with the column that the summary table was made with, "
            "and a file that has the same ids."
        )

    def _register(
        self,
        table: Table | FloatArray,
        first: FirstSummary,
        settings: SummarySettings,
        reading: dict[str, Any],
    ) -> None:
        """Propose the groups of a first summary table to the registry; without ids there is no registry."""
        if not _has_ids(table, settings):
            return
        assert isinstance(table, Table)
        with Registry.open(self.folder, new=True) as people:
            groups = first_groups(table, first, people.digest)
            digest = _digest(first.summary, asdict(settings))
            people.propose_first(digest, first.scales, groups, reading)

    def check_may_make(self, second_table: str = "") -> None:
        """Raise InputError if there is or was a summary table, unless ``second_table`` allows another.

        A table that can be replaced is not in the way.
        """
        if second_table == SECOND_TABLE or self.replaceable or not (earlier := self._earlier()):
            return
        raise InputError(
            f"{self.folder}: {earlier}. Someone who sees both could compare them. To make a second table "
            f'nevertheless, use --second-table "{SECOND_TABLE}".'
        )

    @property
    def replaceable(self) -> bool:
        """True if there is a summary table that nobody approved, and no other was ever answered from."""
        return self.exists and not self.approved and not self._released()

    def _earlier(self) -> str:
        """The summary table that there is, or that the folder or its log mentions; "" if there was none."""
        if self.exists:
            return f"there is a summary table already, of {self.about()['made']}"
        return self._released()

    def _released(self) -> str:
        """The released summary table that the folder or its log mentions; "" if there was none."""
        if any(self.folder.glob(f"summary-*/{ABOUT}")):
            return "there was a summary table, which is kept in the folder"
        if (self.folder / people_register.FILE).exists():
            with Registry.open(self.folder) as people:
                if people.current:
                    return "the registry names a summary table that was approved"
        log = self.folder / "log.jsonl"
        if log.exists() and any(entry is None or entry.get("summary") for _, entry in entries(log)):
            return "the log names a summary table that the site answered from"
        return ""

    def _archived(self) -> Path:
        """The new place of an earlier table: it was released, so it is kept."""
        made = str(self._description(self.path)["made"])
        for number in range(1, 10_000):
            path = self.folder / f"summary-{made}-{number}"
            if not path.exists():
                return path
        raise InputError(f"{self.folder}: too many summary tables of {made}")

    def about(self) -> dict[str, Any]:
        self.recover()
        return self._description(self.path)

    def _description(self, path: Path) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads((path / ABOUT).read_text(encoding="utf-8"))
            wrong = format_error(values.get("format"))
        except FileNotFoundError:
            raise InputError(
                f"{self.folder}: there is no summary table. Make one with unpooled site summarize."
            ) from None
        except (ValueError, AttributeError):
            raise LedgerError(f"{path / ABOUT}: not the description of a summary table, or damaged") from None
        if wrong:
            raise LedgerError(f"{path / ABOUT}: the summary table has {wrong}")
        return values

    def read(self, *, renewed: bool = False) -> SummaryTable:
        """The summary table, or its pending update; LedgerError if another program changed its files."""
        path = self.renewal if renewed else self.path
        about = self._description(path) if renewed else self.about()
        try:
            summary = from_csv((path / TABLE).read_text(encoding="utf-8"), about)
            digest = about["digest"]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"{path}: the summary table cannot be read: {error}") from error
        if _digest(summary, about.get("settings")) != digest:
            raise LedgerError(f"{path}: another program changed the summary table since it was made")
        return summary

    @property
    def digest(self) -> str:
        """The digest of the summary table and of the settings that it was made with."""
        return str(self.about()["digest"])

    def settings(self) -> SummarySettings:
        """The settings that the summary table was made with."""
        try:
            items = self.about()["settings"].items()
            values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in items}
            return SummarySettings(**values)
        except (KeyError, AttributeError, TypeError, InputError) as error:
            raise LedgerError(
                f"{self.path / ABOUT}: not the description of a summary table, or damaged: {error}"
            ) from error

    @property
    def pending(self) -> bool:
        """True if there is an update that nobody approved yet."""
        self.recover()
        return (self.renewal / ABOUT).exists()

    @property
    def renewal_digest(self) -> str:
        """The digest of the pending update."""
        return str(self._description(self.renewal)["digest"])

    def approve(self, by: str = "", *, digest: str = "") -> str:
        """Approve the summary table, or its update if one is pending; returns the digest that was approved.

        ``digest`` is what the officer reviewed; InputError if another table is pending by now. A table that
        is approved keeps its first approval.
        """
        renewed, name = self.pending, by or account()
        self.read(renewed=renewed)
        self.check_registry()
        path = self.renewal if renewed else self.path
        pending = str(self._description(path)["digest"])
        if digest and digest != pending:
            raise InputError(
                f"{self.folder}: the summary table changed while it was reviewed. Review it again, then "
                "approve it."
            )
        digest = pending
        if not renewed and self.approved:
            return digest
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
        """True if the people of the summary table are in a registry."""
        return bool(self.about().get("registry")) or (
            bool(self.settings().person) and (self.folder / people_register.FILE).exists()
        )

    def adopt_proposal(self, by: str, digest: str = "") -> None:
        """Let the registry take over the groups of a summary table, before the site answers from it."""
        self.check_registry()
        if self.registered:
            with Registry.open(self.folder) as people:
                people.adopt(digest or self.digest, by)

    def check_registry(self) -> None:
        """Raise LedgerError if the registry is lost, or older than the log or an erasure."""
        if self.registered:
            with Registry.open(self.folder) as people:
                check_registry(self.folder, people)

    def check_nobody_erased(self, source: str) -> None:
        """Raise LedgerError if somebody was erased here, because ``source`` does not identify people."""
        self.recover()
        erased, erasures = set[str](), Erasures(self.folder).read()
        if (self.folder / people_register.FILE).exists():
            with Registry.open(self.folder) as people:
                erased = people.erased()
        if erased or erasures:
            raise LedgerError(
                f"{self.folder}: {_many(len(erased) or len(erasures))} erased here, and {source} would "
                'disclose them again. Set the policy to mode = "summary", and make the summary table with '
                "--person."
            )

    def recover(self) -> tuple[Path, ...]:
        """Finish what a killed process had begun; returns the folders of tables that were deleted for it.

        An approved update takes the place of the summary table. Earlier tables are deleted, unless it is
        known that nobody who was erased is in them.
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
        digest = str(self._description(self.renewal)["digest"])
        if digest != people.current:
            if not people.proposed(digest):  # of a process that was killed
                shutil.rmtree(self.renewal, ignore_errors=True)
            return
        if (self.path / ABOUT).exists():
            os.rename(self.path, self._archived())
        os.rename(self.renewal, self.path)

    def empty_tables(self, chosen: Callable[[dict[str, Any]], bool]) -> tuple[Path, ...]:
        """Delete some earlier tables; their date, settings, digest and approval stay as evidence."""
        done = []
        for place in sorted(about.parent for about in self.folder.glob(f"summary-*/{ABOUT}")):
            if (place / TABLE).exists() and chosen(self._description(place)):
                for name in (TABLE, PAGE):
                    (place / name).unlink(missing_ok=True)
                sync_folder(place)
                done.append(place)
        return tuple(done)

    @property
    def approved(self) -> str:
        """The time at which this summary table was approved; "" if it was not."""
        return self.approval().get("utc", "")

    def approval(self) -> dict[str, str]:
        """The approval of this summary table: its name ("by") and time ("utc"); empty if there is none."""
        try:
            note = json.loads((self.path / APPROVED).read_text(encoding="utf-8"))
            utc = str(note["utc"])
            return {"by": str(note.get("by", "")), "utc": utc} if note["digest"] == self.digest else {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}


class ReadOnlySummaryFolder(SummaryFolder):
    """The same for readers: an approved update is left for the site to put in place."""

    def recover(self) -> tuple[Path, ...]:
        return ()


def _many(people: int) -> str:
    return "1 person was" if people == 1 else f"{people} people were"


def _has_ids(table: Table | FloatArray, settings: SummarySettings) -> bool:
    return bool(settings.person) and isinstance(table, Table)
