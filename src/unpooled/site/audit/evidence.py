"""The evidence around a log: countersigned heads, and the ledger, summary table and policy in the folder."""

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.errors import LedgerError, PolicyError
from unpooled.protocol.crypto_labels import from_hex
from unpooled.protocol.exchange import countersignable
from unpooled.site import people_register
from unpooled.site.erasures import Erasures
from unpooled.site.folder_consistency import line_that_log_lacks
from unpooled.site.ledger import Ledger
from unpooled.site.log import CONTINUED, COUNTERSIGNED, LogFault
from unpooled.site.policy import load
from unpooled.site.table_store import ReadOnlySummaryFolder, SummaryFolder

if TYPE_CHECKING:
    from unpooled.site.audit.overview import LogReport


class Evidence:
    """Checks of a log against everything that it names; faults go into the report, line by line.

    With ``only_look`` nothing is written, and a site that answers meanwhile does not wait.
    """

    def __init__(self, record: "LogReport", *, only_look: bool = False, policy: Path | None = None) -> None:
        self._record, self._folder, self._only_look = record, record.path.parent, only_look
        self._policy = policy  # None: policy.toml next to the log
        self._hashes: dict[int, str] = {}
        self._opening: dict[str, Any] = {}
        self._mark = ("", 0)  # the last link of the ledger that a line names, and the line
        self._registry = ("", 0)  # the same of the registry of people
        self._unsigned = 0
        self._first = 0  # the number of the first line whose hash is known

    def see(self, number: int, entry: dict[str, Any]) -> None:
        """Look at one line."""
        if isinstance(entry.get("seq"), int):
            self._hashes[entry["seq"]] = str(entry.get("hash"))
        if entry.get("kind") in ("opening", CONTINUED):
            self._opening = entry
        if entry.get("kind") == CONTINUED and isinstance(entry.get("seq"), int):
            self._check_rotation(number, entry)
        if entry.get("ledger"):
            self._mark = (str(entry["ledger"]), number)
        if entry.get("kind") in ("opening", "release", "refusal"):
            self._registry = (str(entry.get("registry") or ""), number)
        if entry.get("kind") == COUNTERSIGNED:
            self._check_countersignature(number, entry)

    def _check_rotation(self, number: int, entry: dict[str, Any]) -> None:
        """Check the file before a rotation or, if it is elsewhere, record the first known line."""
        before = self._folder / str(entry.get("file"))
        self._hashes.setdefault(entry["seq"] - 1, str(entry.get("prev")))
        if number == 1:
            self._first = entry["seq"] - 1
        elif before.is_file() and sha256(before.read_bytes()).hexdigest() != entry.get("digest"):
            self._fault(
                number, f"names the file {before.name} with another digest: another program changed that file"
            )

    def _check_countersignature(self, number: int, entry: dict[str, Any]) -> None:
        line, head = str(entry.get("number")), str(entry.get("head"))
        if line.isdigit() and int(line) < self._first:
            return  # its line is in a file that is elsewhere
        if not line.isdigit() or self._hashes.get(int(line)) != head:
            self._fault(number, "a countersigned head that is not the hash of a line before it")
            return
        authority = str(self._opening.get("authority") or "")
        if not authority:
            self._unsigned += 1
            return
        from unpooled.privacy.secure_sum.crypto import is_signed

        statement = countersignable(str(self._opening.get("site")), f"{line}:{head}")
        signed = is_signed(from_hex(authority), statement, from_hex(str(entry.get("signature"))))
        if not signed:
            self._fault(number, "the countersignature is not that of the federation's authority")

    def finish(self) -> None:
        """Check the files next to the log: ledger, registry, summary table, policy."""
        if self._unsigned:
            self._note(f"{self._unsigned} countersignatures: the authority's key is not known to this site")
        self._check_ledger()
        self._check_registry()
        self._check_summary()
        self._check_policy()

    def _hash_at(self, number: int) -> str:
        return self._hashes.get(number, "")

    def _check_ledger(self) -> None:
        path, (mark, number) = self._folder / "ledger.sqlite", self._mark
        if not mark:
            return
        if not path.exists() and not (self._folder / "identity.key").exists():
            self._note("the ledger: the log is not in the folder of its site")
            return
        if not path.exists():
            self._fault(number, "names an entry of the ledger, and there is no ledger next to the log")
            return
        try:
            ledger = Ledger.open_read_only(path) if self._only_look else Ledger.open_existing(path)
        except LedgerError as error:
            self._fault(0, str(error))
            return
        try:
            ledger.check()
            if not ledger.has(mark):
                self._fault(number, "names an entry that the ledger lacks: it is an older ledger")
            if (line := line_that_log_lacks(ledger, self._hash_at)) is not None:
                self._fault(0, f"the ledger names line {line + 1}, and the log lacks it: it was cut")
        except LedgerError as error:
            self._fault(0, str(error))
        finally:
            ledger.close()

    def _check_registry(self) -> None:
        mark, number = self._registry
        if not mark:
            return
        if not (self._folder / people_register.FILE).exists():
            if (self._folder / "ledger.sqlite").exists():
                self._fault(
                    number, "names an entry of the registry, and there is no registry next to the log"
                )
            else:
                self._note("the registry of people: the log is not in the folder of its site")
            return
        try:
            with people_register.Registry.open(self._folder) as people:
                if not people.has(mark):
                    self._fault(number, "names an entry that the registry lacks: it is an older registry")
                Erasures(self._folder).check(people.erasures())
                if (line := line_that_log_lacks(people, self._hash_at)) is not None:
                    self._fault(0, f"the registry names line {line + 1}, and the log lacks it: it was cut")
        except LedgerError as error:
            self._fault(0, str(error))

    def _check_summary(self) -> None:
        digest = str(self._opening.get("summary") or "")
        if not digest:
            return
        try:
            place = (ReadOnlySummaryFolder if self._only_look else SummaryFolder)(self._folder)
            if not place.exists:
                self._note("the summary table that the site answered from: it is not next to the log")
                return
            place.read()
        except LedgerError as error:
            self._fault(0, str(error))
            return
        if place.digest != digest:
            self._note("the summary table that the site last answered from: another one is next to the log")

    def _check_policy(self) -> None:
        digest, path = str(self._opening.get("policy") or ""), self._policy or self._folder / "policy.toml"
        if not self._opening:
            return  # it never answered
        if not path.exists():
            self._note("the policy that the site answered under: there is no policy.toml next to the log")
            return
        try:
            same = load(path).digest == digest
        except PolicyError:
            same = False
        if not same:
            where = "next to the log" if self._policy is None else f"in {path}"
            self._note(f"the policy that the site last answered under: another one is {where}")

    def _fault(self, line: int, what: str) -> None:
        if (fault := LogFault(line, what)) not in self._record.faults:  # two checks may meet the same one
            self._record.faults.append(fault)

    def _note(self, what: str) -> None:
        self._record.unchecked.append(what)
