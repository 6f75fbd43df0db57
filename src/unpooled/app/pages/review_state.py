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

from unpooled.app.pages.audit_page import verdict
from unpooled.app.pages.cached_reading import BackgroundReading, CachedReading, signature
from unpooled.app.pages.dpia.site_facts import policy_of
from unpooled.app.pages.table_page import facts
from unpooled.errors import LedgerError, UnpooledError
from unpooled.federation.provisioning.health import site_health
from unpooled.federation.provisioning.site_folder import SiteFolder, find_joined_policy, joined_policy
from unpooled.privacy.dp.accounting import gdp_epsilon
from unpooled.site.audit import overview
from unpooled.site.audit.overview import LogReport
from unpooled.site.ledger import Ledger
from unpooled.site.log_files import segments
from unpooled.site.policy import Policy
from unpooled.site.study import allowed_questions, sentences
from unpooled.site.study_store import APPROVED as STUDY_APPROVED
from unpooled.site.study_store import DECLINED, WITHDRAWN, ReceivedStudy, StudyFolder
from unpooled.site.table_notes import rare_categories_in
from unpooled.site.table_store import ABOUT, APPROVED, ERASURES, TABLE, ReadOnlySummaryFolder

SIGNS = ("invitation.json", "log.jsonl", f"summary/{ABOUT}")  # one of them is in a site's folder, or a study
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
        self._copy, self._log = CachedReading(self._read_copy), BackgroundReading(self._read_log)
        self._kept: dict[str, CachedReading] = {}  # studies, by digest
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
            "summary": self._copy.get(self._copy_files()),
            "mode": policy.protect.mode if policy is not None else None,
            "purposes": list(policy.studies.purposes) if policy is not None else [],
            "auto_approve": policy is not None and policy.protect.auto_approve,
            "sent": None if record is None else _sent(record, checked),
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
            found = site_health(SiteFolder(self.folder.absolute()))
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
            kept = self._kept.setdefault(path.stem, CachedReading(partial(_read_study, place, path.stem)))
            read = kept.get(signature([path]))
            if isinstance(read, ReceivedStudy):
                found.append(read)
            else:
                damaged.append(read)
        found.sort(key=lambda kept: (kept.received, kept.study.digest))
        return [study_values(kept) for kept in found], damaged

    def _copy_files(self) -> tuple[Any, ...]:
        place = ReadOnlySummaryFolder(self.folder)
        names = (TABLE, ABOUT, APPROVED)
        return signature(
            [*(place.path / name for name in names), place.renewal / ABOUT, self.folder / ERASURES]
        )

    def _read_copy(self) -> dict[str, Any] | None:
        place = ReadOnlySummaryFolder(self.folder)
        if not place.exists:
            return None
        try:
            table, settings = place.read(), place.settings()
        except UnpooledError as error:
            return {"fault": str(error)}
        cells = table.cells()
        rows = list(zip(*(values[:_ROWS].tolist() for _, values in cells), strict=True))
        return {
            "people": float(table.people.sum()),
            "groups": len(table),
            "min_group_size": table.min_group_size,
            "made": table.made,
            "columns": list(table.names),
            "approved": place.approved,
            "digest": place.digest,
            "facts": facts(table, settings, rare_categories_in(place.path)),
            "renewal": place.pending,
            "headings": [heading for heading, _ in cells],
            "rows": [["" if math.isnan(v) else f"{v:.6g}" for v in row] for row in rows],
        }

    def _log_files(self) -> tuple[Any, ...]:
        names = ("policy.toml", "ledger.sqlite", "registry.sqlite", f"summary/{TABLE}", f"summary/{ABOUT}")
        return signature([*segments(self.folder / "log.jsonl"), *(self.folder / name for name in names)])

    def _read_log(self) -> tuple[LogReport | None, str]:
        """The log, checked. A fault counts if it is there twice: a site may be writing meanwhile."""
        log = self.folder / "log.jsonl"
        if not log.exists():
            return None, ""
        with contextlib.suppress(OSError, UnpooledError):
            policy = find_joined_policy(self.folder)
            record = overview.read(log, only_look=True, policy=policy)
            if record.faults:
                time.sleep(_AGAIN)
                before, record = record.faults, overview.read(log, only_look=True, policy=policy)
                record.faults = [fault for fault in record.faults if fault in before]
            return record, datetime.now(UTC).isoformat(timespec="seconds")
        return None, ""

    def _policy(self, record: LogReport | None) -> Policy | None:
        with contextlib.suppress(UnpooledError, OSError, ValueError, KeyError):
            return policy_of(self.folder, joined_policy(self.folder), record)[0]
        return None

    def _budget(self, policy: Policy | None) -> dict[str, Any] | None:
        """What is spent of the privacy budget, by the ledger; None where there is no budget."""
        if policy is None or not policy.private:
            return None
        dp, path = policy.dp, self.folder / "ledger.sqlite"
        values = {
            "total": dp.epsilon_total,
            "delta": dp.delta,
            "unit": dp.privacy_unit,
            "spent": 0.0,
            "fault": "",
        }
        if path.exists():
            try:
                ledger = Ledger.open_read_only(path)
                try:
                    values["spent"] = gdp_epsilon(math.sqrt(ledger.spent()), dp.delta)
                finally:
                    ledger.close()
            except (UnpooledError, sqlite3.Error) as error:
                values["fault"] = str(error)
        return values


def _read_study(place: StudyFolder, digest: str) -> ReceivedStudy | str:
    """A study, or what is wrong with its file."""
    try:
        return place.read(digest)
    except LedgerError as error:
        return str(error)


def study_values(kept: ReceivedStudy) -> dict[str, Any]:
    """A study with all that it says of itself, and what may be decided about it now."""
    may = {"waiting": ("approve", "decline"), "approved": ("withdraw",)}
    return {
        "digest": kept.study.digest,
        "title": kept.study.title,
        "purpose": kept.study.purpose,
        "state": kept.display_state,
        "pending": kept.is_pending,
        "received": kept.received,
        "expires": kept.study.expires,
        "sentences": sentences(kept.study),
        "asked": allowed_questions(kept.study),
        "decisions": [vars(decision) for decision in kept.decisions],
        "may": () if kept.study.expired else may.get(kept.state, ("approve",)),
    }


def _sent(record: LogReport, checked: str) -> dict[str, Any]:
    """What left the site so far, and whether the record of it is whole."""
    return {
        "intact": record.intact,
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
