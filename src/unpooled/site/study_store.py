"""The studies that came to a site, in its folder, and what was decided about each.

A decision is a line of the site's log, in its chain, and beside it a file that tells a running process of it:
``studies/DIGEST.json``. An approval counts where both have it; a withdrawal where either has it.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unpooled.errors import InputError, LedgerError
from unpooled.protocol.messages import SiteId
from unpooled.site.log import STUDY, Log
from unpooled.site.log_files import parsed, tail
from unpooled.site.log_handover import locked_log
from unpooled.site.study import Study
from unpooled.storage.account import account
from unpooled.storage.atomic_files import write_atomically

PENDING, APPROVED, DECLINED, WITHDRAWN = "pending", "approved", "declined", "withdrawn"
REFUSED = "refused"  # in the log: by the site itself, before anybody was asked
_FOLDER, _VERSION = "studies", 1
_FROM = {APPROVED: (PENDING, DECLINED, WITHDRAWN), DECLINED: (PENDING,), WITHDRAWN: (APPROVED,)}
_COMMANDS = {APPROVED: "approve", DECLINED: "decline", WITHDRAWN: "decline"}  # of unpooled site
_SHORTEST = 6  # digits of a digest that name a study; fewer are its number in the list


@dataclass(frozen=True)
class Decision:
    """The decision of somebody, or of the site's policy, about a study."""

    decision: str
    by: str
    at: str
    reason: str = ""


@dataclass(frozen=True)
class ReceivedStudy:
    """A study that came to a site, with the decisions about it."""

    site: SiteId
    study: Study
    signature: str
    received: str
    decisions: tuple[Decision, ...] = ()

    @property
    def state(self) -> str:
        """waiting, approved, declined or withdrawn."""
        return self.decisions[-1].decision if self.decisions else PENDING

    @property
    def is_pending(self) -> bool:
        """True if somebody at the site is to decide."""
        return self.state == PENDING and not self.study.expired

    @property
    def display_state(self) -> str:
        return "expired" if self.study.expired and self.state in (PENDING, APPROVED) else self.state


class StudyFolder:
    """The studies in a site's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / _FOLDER

    def file(self, digest: str) -> Path:
        return self.path / f"{digest}.json"

    def receive(self, site: SiteId, study: Study, signature: str) -> ReceivedStudy:
        """The record of a study; one that is new waits from now on.

        If its file is lost, or older than the log, the last decision that the log has counts.
        """
        known = self.file(study.digest).exists()
        kept = self.read(study.digest) if known else ReceivedStudy(site, study, signature, _now())
        last = last_decision(self.folder / "log.jsonl", study.digest)
        if last is not None and last.decision != APPROVED and kept.state in (PENDING, APPROVED):
            kept = replace(kept, decisions=(*kept.decisions, last))
        elif known:
            return kept
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write(kept)
        return kept

    def read(self, digest: str) -> ReceivedStudy:
        """A study that came; LedgerError if its file was changed."""
        path = self.file(digest)
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if values["version"] != _VERSION:
                raise LedgerError(f"{path}: of version {values['version']}, this program reads {_VERSION}")
            kept = ReceivedStudy(
                str(values["site"]),
                Study.from_json(values["study"]),
                str(values["signature"]),
                str(values["received"]),
                tuple(Decision(**decision) for decision in values["decisions"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerError(f"{path}: not a study, or damaged: {error}") from error
        if kept.study.digest != digest:
            raise LedgerError(f"{path}: the study was changed since it came")
        return kept

    def every(self) -> list[ReceivedStudy]:
        """All studies that came, the first one first."""
        found = [self.read(path.stem) for path in self.path.glob("*.json") if not path.name.startswith(".")]
        return sorted(found, key=lambda kept: (kept.received, kept.study.digest))

    def pending(self) -> list[ReceivedStudy]:
        return [kept for kept in self.every() if kept.is_pending]

    def find(self, which: str) -> ReceivedStudy:
        """The study of a number in the list, or of a digest's beginning; InputError unless it is one."""
        every = self.every()
        if not every:
            raise InputError(f"{self.folder}: no study has come yet")
        if which.isdigit() and len(which) < _SHORTEST:
            if 1 <= int(which) <= len(every):
                return every[int(which) - 1]
            raise InputError(f"there is no study {which}; unpooled site status {self.folder} numbers them")
        found = [kept for kept in every if kept.study.digest.startswith(which.lower())]
        if len(which) < _SHORTEST or len(found) != 1:
            raise InputError(
                f"{which!r} names no study: say its number, or its digest from {_SHORTEST} digits on; "
                f"unpooled site status {self.folder} has both"
            )
        return found[0]

    def decide(
        self, digest: str, decision: str, by: str = "", reason: str = "", patience: float = 15.0
    ) -> ReceivedStudy:
        """Decide about a study: the line in the log is on disk before an approval counts."""
        kept = self.read(digest)
        said = Decision(decision, by or account(), _now(), reason)
        self._check(kept, decision)
        new = ReceivedStudy(kept.site, kept.study, kept.signature, kept.received, (*kept.decisions, said))
        if decision != APPROVED:
            self._write(new)
        with locked_log(self.folder, f"unpooled site {_COMMANDS[decision]}", patience) as log:
            record_decision(log, kept.site, kept.study, said)
        if decision == APPROVED:
            self._write(new)
        return new

    def refuse(self, site: SiteId, study: Study, reason: str) -> None:
        """Note in the log that a study was refused before anybody was asked, or is not answered any more."""
        with locked_log(self.folder, "the refusal of a study", patience=2.0) as log:
            record_decision(log, site, study, Decision(REFUSED, "the site", _now(), reason))

    def _check(self, kept: ReceivedStudy, decision: str) -> None:
        if kept.state not in _FROM[decision]:
            raise InputError(f"the study {kept.study.digest[:16]} is {kept.state}: it cannot be {decision}")
        if decision == APPROVED and kept.study.expired:
            raise InputError(f"the study {kept.study.digest[:16]} expired at {kept.study.expires}")

    def _write(self, kept: ReceivedStudy) -> None:
        values = {
            "version": _VERSION,
            "site": kept.site,
            "study": kept.study.to_json(),
            "signature": kept.signature,
            "received": kept.received,
            "decisions": [vars(decision) for decision in kept.decisions],
        }
        text = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
        write_atomically(self.file(kept.study.digest), text.encode())


def record_decision(log: Log, site: SiteId, study: Study, said: Decision) -> None:
    """Write a decision about a study into the log."""
    log.append(
        STUDY,
        site=site,
        decision=said.decision,
        study=study.digest,
        run=study.run[:100],
        title=study.title[:500],
        purpose=study.purpose[:500],
        by=said.by,
        reason=said.reason,
    )


def last_decision(log: Path, digest: str) -> Decision | None:
    """The last decision about a study that the log has; None if it has none."""
    for line in tail(log) if log.exists() else ():
        if f'"kind":"{STUDY}"'.encode() in line:
            entry = parsed(line, log)
            if entry.get("study") == digest and entry.get("decision") != REFUSED:
                return Decision(*(str(entry.get(name, "")) for name in ("decision", "by", "utc", "reason")))
    return None


def check_approved(log: Log, digest: str) -> None:
    """Raise LedgerError unless the last decision about a study in the log approves it."""
    last = last_decision(log.path, digest)
    if last is None or last.decision != APPROVED:
        raise LedgerError(
            f"{log.path}: has no approval of the study {digest[:16]}; nothing of it is answered"
        )


def checked_reason(reason: str) -> str:
    """A reason that is written into the log and told to the coordinator; InputError unless it is one line."""
    if len(reason) > 300 or not all(c.isprintable() for c in reason):
        raise InputError("--reason must be one line of at most 300 characters")
    return reason.strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
