"""The state of a site's folder as plain values: studies, copy, what left, budget.

Nothing is written or locked. Rows of the data are never opened: what is shown of persons is the copy.
"""

import contextlib
import math
import sqlite3
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from unpooled.app.desk.reading import KeptReading, SlowReading, signature
from unpooled.errors import LedgerError, UnpooledError
from unpooled.privacy.dp.accounting import epsilon_of
from unpooled.runtimes.provisioning.health import of_site
from unpooled.runtimes.provisioning.site_folder import SiteFolder, joined_under, told_policy
from unpooled.site.audit import summary
from unpooled.site.audit.page import verdict
from unpooled.site.audit.summary import LogSummary
from unpooled.site.copy_folder import ABOUT, APPROVED, ERASURES, TABLE, SeenCopyFolder
from unpooled.site.copy_notes import rare_in
from unpooled.site.copy_page import facts
from unpooled.site.dossier.facts import rules_of
from unpooled.site.ledger import Ledger
from unpooled.site.log_files import segments
from unpooled.site.policy import Policy
from unpooled.site.study import asked, sentences
from unpooled.site.study_folder import APPROVED as STUDY_APPROVED
from unpooled.site.study_folder import DECLINED, WITHDRAWN, KeptStudy, StudyFolder

SIGNS = ("invitation.json", "log.jsonl", f"copy/{ABOUT}")  # one of them is in a site's folder, or a study
VERBS = {"approve": STUDY_APPROVED, "decline": DECLINED, "withdraw": WITHDRAWN}
_ROWS = 6  # groups of the copy that the page shows; the copy's own page has more
_HEALTH = 1.5  # seconds between looks whether the site runs and is connected
_NOBODY: dict[str, Any] = {"name": "", "federation": "", "state": "", "up": False, "problems": []}
_AGAIN = 0.3  # seconds after which a fault is looked at again: a site may have been writing the line


def is_site(folder: Path) -> bool:
    came = any(len(path.stem) == 64 for path in StudyFolder(folder).path.glob("[0-9a-f]*.json"))
    return came or any((folder / sign).exists() for sign in SIGNS)


class SiteState:
    """Reads the folder of a site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copy, self._log = KeptReading(self._read_copy), SlowReading(self._read_log)
        self._kept: dict[str, KeptReading] = {}  # studies, by digest
        self._known = (-math.inf, _NOBODY)  # when the health was looked at, and what it was

    @property
    def gone(self) -> bool:
        return not is_site(self.folder)

    def read(self) -> dict[str, Any]:
        """All that the desk shows; UnpooledError or OSError if it cannot be read just now."""
        record, checked = self._log.get(self._log_files()) or (None, "")
        policy = self._policy(record)
        health = self._health()
        studies, damaged = self._studies()
        return {
            "role": "site",
            "name": health["name"] or (record.site if record else "") or self.folder.resolve().name,
            "folder": str(self.folder),
            **{name: health[name] for name in ("federation", "state", "up")},
            "problems": [*health["problems"], *damaged],
            "studies": studies,
            "copy": self._copy.get(self._copy_files()),
            "mode": policy.protect.mode if policy is not None else None,
            "purposes": list(policy.studies.purposes) if policy is not None else [],
            "auto": policy is not None and policy.protect.auto,
            "left": None if record is None else _left(record, checked),
            "has_log": (self.folder / "log.jsonl").exists(),
            "budget": self._budget(policy),
        }

    # ------------------------------------------------------------ parts

    def _health(self) -> dict[str, Any]:
        """Whether the site runs and is connected, where it joined a federation; looked at now and then."""
        if not (self.folder / "invitation.json").exists():
            return _NOBODY
        if time.monotonic() - self._known[0] > _HEALTH:
            self._known = (time.monotonic(), self._look())
        return self._known[1]

    def _look(self) -> dict[str, Any]:
        try:
            found = of_site(SiteFolder(self.folder.absolute()))
        except (UnpooledError, OSError, ValueError, KeyError) as error:
            return {**_NOBODY, "problems": [str(error)]}
        told = [problem.text for problem in found.problems if not problem.text.startswith("the study ")]
        return {
            "name": found.name,
            "federation": found.federation,
            "state": found.sites[found.name],
            "up": found.up,
            "problems": told,
        }

    def _studies(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Every study that came, and what is wrong with files that are none."""
        place, found, damaged = StudyFolder(self.folder), [], []
        for path in place.path.glob("[0-9a-f]*.json"):
            kept = self._kept.setdefault(path.stem, KeptReading(partial(_read_study, place, path.stem)))
            read = kept.get(signature([path]))
            if isinstance(read, KeptStudy):
                found.append(read)
            else:
                damaged.append(read)
        found.sort(key=lambda kept: (kept.received, kept.study.digest))
        return [study_values(kept) for kept in found], damaged

    def _copy_files(self) -> tuple[Any, ...]:
        place = SeenCopyFolder(self.folder)
        names = (TABLE, ABOUT, APPROVED)
        return signature(
            [*(place.path / name for name in names), place.renewal / ABOUT, self.folder / ERASURES]
        )

    def _read_copy(self) -> dict[str, Any] | None:
        place = SeenCopyFolder(self.folder)
        if not place.exists:
            return None
        try:
            copy, settings = place.read(), place.settings()
        except UnpooledError as error:
            return {"fault": str(error)}
        cells = copy.cells()
        rows = list(zip(*(values[:_ROWS].tolist() for _, values in cells), strict=True))
        return {
            "persons": float(copy.persons.sum()),
            "groups": len(copy),
            "least": copy.group_size,
            "made": copy.made,
            "columns": list(copy.names),
            "approved": place.approved,
            "digest": place.digest,
            "facts": facts(copy, settings, rare_in(place.path)),
            "renewal": place.waiting,
            "headings": [heading for heading, _ in cells],
            "rows": [["" if math.isnan(v) else f"{v:.6g}" for v in row] for row in rows],
        }

    def _log_files(self) -> tuple[Any, ...]:
        names = ("policy.toml", "ledger.sqlite", "registry.sqlite", f"copy/{TABLE}", f"copy/{ABOUT}")
        return signature([*segments(self.folder / "log.jsonl"), *(self.folder / name for name in names)])

    def _read_log(self) -> tuple[LogSummary | None, str]:
        """The log, checked. A fault counts if it is there twice: a site may be writing meanwhile."""
        log = self.folder / "log.jsonl"
        if not log.exists():
            return None, ""
        with contextlib.suppress(OSError, UnpooledError):
            policy = told_policy(self.folder)
            record = summary.read(log, only_look=True, policy=policy)
            if record.faults:
                time.sleep(_AGAIN)
                before, record = record.faults, summary.read(log, only_look=True, policy=policy)
                record.faults = [fault for fault in record.faults if fault in before]
            return record, datetime.now(UTC).isoformat(timespec="seconds")
        return None, ""

    def _policy(self, record: LogSummary | None) -> Policy | None:
        with contextlib.suppress(UnpooledError, OSError, ValueError, KeyError):
            return rules_of(self.folder, joined_under(self.folder), record)[0]
        return None

    def _budget(self, policy: Policy | None) -> dict[str, Any] | None:
        """What is spent of the privacy budget, by the ledger; None where there is no budget."""
        if policy is None or not policy.private:
            return None
        dp, path = policy.dp, self.folder / "ledger.sqlite"
        values = {"total": dp.epsilon_total, "delta": dp.delta, "unit": dp.unit, "spent": 0.0, "fault": ""}
        if path.exists():
            try:
                ledger = Ledger.seen(path)
                try:
                    values["spent"] = epsilon_of(math.sqrt(ledger.spent()), dp.delta)
                finally:
                    ledger.close()
            except (UnpooledError, sqlite3.Error) as error:
                values["fault"] = str(error)
        return values


def _read_study(place: StudyFolder, digest: str) -> KeptStudy | str:
    """A study, or what is wrong with its file."""
    try:
        return place.read(digest)
    except LedgerError as error:
        return str(error)


def study_values(kept: KeptStudy) -> dict[str, Any]:
    """A study with all that it says of itself, and what may be decided about it now."""
    may = {"waiting": ("approve", "decline"), "approved": ("withdraw",)}
    return {
        "digest": kept.study.digest,
        "title": kept.study.title,
        "purpose": kept.study.purpose,
        "state": kept.shown_state,
        "waits": kept.waits,
        "received": kept.received,
        "expires": kept.study.expires,
        "sentences": sentences(kept.study),
        "asked": asked(kept.study),
        "decisions": [vars(decision) for decision in kept.decisions],
        "may": () if kept.study.expired else may.get(kept.state, ("approve",)),
    }


def _left(record: LogSummary, checked: str) -> dict[str, Any]:
    """What left the site so far, and whether the record of it is whole."""
    return {
        "whole": record.whole,
        "verdict": verdict(record),
        "faults": [str(fault) for fault in record.faults[:20]],
        "unchecked": list(record.unchecked),
        "lines": record.lines,
        "answers": sum(run.releases for run in record.runs),
        "refusals": sum(run.refusals for run in record.runs),
        "numbers": sum(run.numbers for run in record.runs),
        "bytes": sum(run.bytes for run in record.runs),
        "checked": checked,
        "runs": [
            {
                "run": run.id,
                "first": run.first,
                "rounds": len(run.rounds),
                "answers": run.releases,
                "refusals": run.refusals,
                "numbers": run.numbers,
                "bytes": run.bytes,
                "masked": run.masked,
                "reasons": dict(run.reasons),
            }
            for run in record.runs
        ],
    }
