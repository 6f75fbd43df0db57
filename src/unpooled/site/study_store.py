"""The studies that a site received, in its folder, and the decisions about each.

A decision is a line of the site's log, in its chain, and also in a file that a running process reads:
``studies/DIGEST.json``. An approval counts if both have it, a withdrawal if either has it.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unpooled.errors import InputError, LedgerError
from unpooled.protocol.messages import SiteId
from unpooled.site.log import STUDY, Log, locked_log
from unpooled.site.log_files import parsed, tail
from unpooled.site.study import Study
from unpooled.storage.account import account
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_format import FORMAT, format_error

PENDING, APPROVED, DECLINED, WITHDRAWN = "pending", "approved", "declined", "withdrawn"
REFUSED = "refused"  # in the log: by the site itself, before anybody decided
FEDERATIONS = "federations"  # the folder of a site's memberships
_FOLDER = "studies"
_FROM = {APPROVED: (PENDING, DECLINED, WITHDRAWN), DECLINED: (PENDING,), WITHDRAWN: (APPROVED,)}
_COMMANDS = {APPROVED: "approve", DECLINED: "decline", WITHDRAWN: "decline"}  # of unpooled site
_SHORTEST = 6  # digits of a digest that name a study; fewer are its number in the list


@dataclass(frozen=True)
class Decision:
    """A decision about a study, by a person or by the site's policy."""

    decision: str
    by: str
    at: str
    reason: str = ""


@dataclass(frozen=True)
class ReceivedStudy:
    """A study that a site received, with the decisions about it."""

    site: SiteId
    study: Study
    signature: str
    received: str
    decisions: tuple[Decision, ...] = ()

    @property
    def state(self) -> str:
        """pending, approved, declined or withdrawn."""
        return self.decisions[-1].decision if self.decisions else PENDING

    @property
    def is_pending(self) -> bool:
        """True if somebody at the site must decide."""
        return self.state == PENDING and not self.study.expired

    @property
    def display_state(self) -> str:
        return "expired" if self.study.expired and self.state in (PENDING, APPROVED) else self.state


class StudyFolder:
    """The studies of a site: those of one federation, or of all of them.

    Parameters
    ----------
    folder
        The site's folder, which has the log.
    membership
        Its subfolder for one federation; None: the studies of all federations.
    """

    def __init__(self, folder: Path, membership: Path | None = None) -> None:
        self.folder, self._membership = folder, membership
        self.path = (membership or folder) / _FOLDER  # of a study that is received

    def files(self) -> list[Path]:
        """The files of all studies."""
        folders = [self.path]
        if self._membership is None:
            folders += sorted(self.folder.glob(f"{FEDERATIONS}/*/{_FOLDER}"))
        return [path for folder in folders for path in folder.glob("[0-9a-f]*.json")]

    def file(self, digest: str) -> Path:
        """The file of a study, where it is or will be."""
        own = self.path / f"{digest}.json"
        return next((path for path in self.files() if path.stem == digest), own)

    def receive(self, site: SiteId, study: Study, signature: str) -> ReceivedStudy:
        """Return the record of a study; a new study is pending from now on.

        If its file is lost, or older than the log, the last decision in the log counts.
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
        """A study that the site received; LedgerError if another program changed its file."""
        path = self.file(digest)
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if wrong := format_error(values.get("format")):
                raise LedgerError(f"{path}: the study has {wrong}")
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
            raise LedgerError(f"{path}: another program changed the study since it was received")
        return kept

    def every(self) -> list[ReceivedStudy]:
        """All studies that the site received, the first one first."""
        studies = [self.read(path.stem) for path in self.files()]
        return sorted(studies, key=lambda kept: (kept.received, kept.study.digest))

    def pending(self) -> list[ReceivedStudy]:
        return [kept for kept in self.every() if kept.is_pending]

    def find(self, which: str) -> ReceivedStudy:
        """The study of a number in the list, or of a digest's first digits; InputError if there is none."""
        every = self.every()
        if not every:
            raise InputError(f"{self.folder}: the site has not received a study yet")
        if which.isdigit() and len(which) < _SHORTEST:
            if 1 <= int(which) <= len(every):
                return every[int(which) - 1]
            raise InputError(
                f"there is no study {which}. unpooled site status {self.folder} lists them by number."
            )
        matches = [kept for kept in every if kept.study.digest.startswith(which.lower())]
        if len(which) < _SHORTEST or len(matches) != 1:
            raise InputError(
                f"{which!r} does not name one study. Give its number, or at least {_SHORTEST} digits of its "
                f"digest. unpooled site status {self.folder} lists both."
            )
        return matches[0]

    def decide(
        self, digest: str, decision: str, by: str = "", reason: str = "", patience: float = 15.0
    ) -> ReceivedStudy:
        """Record a decision about a study; the line in the log is on disk before an approval counts."""
        kept = self.read(digest)
        new = Decision(decision, by or account(), _now(), reason)
        self._check(kept, decision)
        decided = replace(kept, decisions=(*kept.decisions, new))
        if decision != APPROVED:
            self._write(decided)
        with locked_log(self.folder, f"unpooled site {_COMMANDS[decision]}", patience) as log:
            record_decision(log, kept.site, kept.study, new)
        if decision == APPROVED:
            self._write(decided)
        return decided

    def refuse(self, site: SiteId, study: Study, reason: str) -> None:
        """Record in the log that the site refuses a study by itself, or answers nothing more of it."""
        with locked_log(self.folder, "the refusal of a study", patience=2.0) as log:
            record_decision(log, site, study, Decision(REFUSED, "the site", _now(), reason))

    def _check(self, kept: ReceivedStudy, decision: str) -> None:
        if kept.state not in _FROM[decision]:
            raise InputError(f"the study {kept.study.digest[:16]} is {kept.state}. It cannot be {decision}.")
        if decision == APPROVED and kept.study.expired:
            raise InputError(f"the study {kept.study.digest[:16]} expired at {kept.study.expires}")

    def _write(self, kept: ReceivedStudy) -> None:
        values = {
            "format": FORMAT,
            "site": kept.site,
            "study": kept.study.to_json(),
            "signature": kept.signature,
            "received": kept.received,
            "decisions": [vars(decision) for decision in kept.decisions],
        }
        text = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
        write_atomically(self.file(kept.study.digest), text.encode())


def record_decision(log: Log, site: SiteId, study: Study, decision: Decision) -> None:
    """Write a decision about a study into the log."""
    log.append(
        STUDY,
        site=site,
        federation=study.federation[:100],
        decision=decision.decision,
        study=study.digest,
        run=study.run[:100],
        title=study.title[:500],
        purpose=study.purpose[:500],
        contact=study.contact[:200],
        by=decision.by,
        reason=decision.reason,
    )


def last_decision(log: Path, digest: str) -> Decision | None:
    """The last decision about a study in the log; None if there is none."""
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
            f"{log.path}: the log has no approval of the study {digest[:16]}. Nothing of it is answered."
        )


def checked_reason(reason: str) -> str:
    """A reason that is logged and sent to the coordinator; InputError unless it is one line."""
    if len(reason) > 300 or not all(c.isprintable() for c in reason):
        raise InputError("--reason must be one line of at most 300 characters")
    return reason.strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
