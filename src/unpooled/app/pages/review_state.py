"""The state of a site's folder as plain values: studies, summary table, log, privacy budget.

Nothing is written or locked. The site's data are never opened: the page shows the summary table only.
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
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.privacy.dp.accounting import gdp_epsilon
from unpooled.site.audit import overview
from unpooled.site.audit.overview import LogReport
from unpooled.site.ledger import Ledger
from unpooled.site.log_files import segments
from unpooled.site.policy import Policy
from unpooled.site.study import allowed_queries, sentences
from unpooled.site.study_store import APPROVED as STUDY_APPROVED
from unpooled.site.study_store import (
    DECLINED,
    FEDERATIONS,
    PENDING,
    WITHDRAWN,
    ReceivedStudy,
    StudyFolder,
)
from unpooled.site.table_notes import rare_categories_in, risks_in
from unpooled.site.table_store import ABOUT, APPROVED, ERASURES, TABLE, ReadOnlySummaryFolder, SummaryFolder

MARKERS = (FEDERATIONS, "log.jsonl", f"summary/{ABOUT}")  # a site's folder has one of them, or a study
VERBS = {"approve": STUDY_APPROVED, "decline": DECLINED, "withdraw": WITHDRAWN}
_ROWS = 6  # groups of the summary table on the page; its own page has more
_HEALTH = 1.5  # seconds between checks whether the site runs and is connected
_NOT_JOINED: dict[str, Any] = {"name": "", "federation": "", "state": "", "up": False, "problems": []}
_AGAIN = 0.3  # seconds after which a fault is checked again: the site may have been writing the line


def is_site(folder: Path) -> bool:
    """Return True for the folder of a site: it has an invitation, a log, a summary table or a study."""
    has_study = any(len(path.stem) == 64 for path in StudyFolder(folder).files())
    return has_study or any((folder / marker).exists() for marker in MARKERS)


class SiteState:
    """Reads the folder of a site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._table, self._log = CachedReading(self._read_table), BackgroundReading(self._read_log)
        self._received: dict[str, CachedReading] = {}  # studies, by digest
        self._last_health = (-math.inf, _NOT_JOINED)  # when the health was checked, and the result

    @property
    def gone(self) -> bool:
        return not is_site(self.folder)

    def read(self) -> dict[str, Any]:
        """Return all values of the page; raise UnpooledError or OSError if a file cannot be read now."""
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
            "summary": self._table.get(self._table_files()),
            "mode": policy.protect.mode if policy is not None else None,
            "purposes": list(policy.studies.purposes) if policy is not None else [],
            "auto_approve": policy is not None and policy.protect.auto_approve,
            "sent": None if record is None else _sent(record, checked),
            "has_log": (self.folder / "log.jsonl").exists(),
            "budget": self._budget(policy),
        }

    # ------------------------------------------------------------ parts

    def _health(self) -> dict[str, Any]:
        """Return whether a site that joined a federation runs and is connected; checked now and then."""
        if not (self.folder / FEDERATIONS).exists():
            return _NOT_JOINED
        if time.monotonic() - self._last_health[0] > _HEALTH:
            self._last_health = (time.monotonic(), self._check_health())
        return self._last_health[1]

    def _check_health(self) -> dict[str, Any]:
        try:
            place = SiteFolder(self.folder.absolute())
            found = [site_health(place, membership) for membership in place.memberships()]
        except (UnpooledError, OSError, ValueError, KeyError) as error:
            return {**_NOT_JOINED, "problems": [str(error)]}
        if not found:
            return _NOT_JOINED
        problems = dict.fromkeys(issue.text for health in found for issue in health.problems)
        states = [f"{health.federation}: {health.sites[health.name]}" for health in found]
        return {
            "name": found[0].name,
            "federation": ", ".join(health.federation for health in found),
            "state": found[0].sites[found[0].name] if len(found) == 1 else "; ".join(states),
            "up": all(health.up for health in found),
            "problems": [text for text in problems if not text.startswith("the study ")],
        }

    def _studies(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return every study that the site received, and what is wrong with files that are not studies."""
        store = StudyFolder(self.folder)
        studies: list[ReceivedStudy] = []
        damaged: list[str] = []
        for path in store.files():
            cached = CachedReading(partial(_read_study, store, path.stem))
            study = self._received.setdefault(path.stem, cached).get(signature([path]))
            if isinstance(study, ReceivedStudy):
                studies.append(study)
            else:
                damaged.append(study)
        studies.sort(key=lambda received: (received.received, received.study.digest))
        return [study_values(received) for received in studies], damaged

    def _table_files(self) -> tuple[Any, ...]:
        place = ReadOnlySummaryFolder(self.folder)
        names = (TABLE, ABOUT, APPROVED)
        return signature(
            [*(place.path / name for name in names), place.renewal / ABOUT, self.folder / ERASURES]
        )

    def _read_table(self) -> dict[str, Any] | None:
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
            "update_pending": place.pending,
            "waiting": _waiting_table(place),
            "headings": [heading for heading, _ in cells],
            "rows": [["" if math.isnan(v) else f"{v:.6g}" for v in row] for row in rows],
        }

    def _log_files(self) -> tuple[Any, ...]:
        names = ("policy.toml", "ledger.sqlite", "registry.sqlite", f"summary/{TABLE}", f"summary/{ABOUT}")
        return signature([*segments(self.folder / "log.jsonl"), *(self.folder / name for name in names)])

    def _read_log(self) -> tuple[LogReport | None, str]:
        """Return the checked log. A fault counts if it is found twice: the site may be writing meanwhile."""
        log = self.folder / "log.jsonl"
        if not log.exists():
            return None, ""
        with contextlib.suppress(OSError, UnpooledError):
            record = overview.read(log, only_look=True)
            if record.faults:
                time.sleep(_AGAIN)
                before, record = record.faults, overview.read(log, only_look=True)
                record.faults = [fault for fault in record.faults if fault in before]
            return record, datetime.now(UTC).isoformat(timespec="seconds")
        return None, ""

    def _policy(self, record: LogReport | None) -> Policy | None:
        with contextlib.suppress(UnpooledError, OSError, ValueError, KeyError):
            return policy_of(self.folder, None, record)[0]
        return None

    def _budget(self, policy: Policy | None) -> dict[str, Any] | None:
        """Return what is spent of the privacy budget, by the ledger; None if there is no budget."""
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


def _waiting_table(place: SummaryFolder) -> dict[str, Any] | None:
    """Return what an officer decides on: the table, or its update, that is not approved; None if it is."""
    if place.approved and not place.pending:
        return None
    path = place.renewal if place.pending else place.path
    table = place.read(renewed=place.pending)
    return {
        "digest": place.renewal_digest if place.pending else place.digest,
        "update": place.pending,
        "facts": facts(table, place.settings(), rare_categories_in(path)),
        "risks": list(risks_in(path)),
        "columns": list(table.names),
    }


def _read_study(store: StudyFolder, digest: str) -> ReceivedStudy | str:
    """Return a study, or what is wrong with its file."""
    try:
        return store.read(digest)
    except LedgerError as error:
        return str(error)


def study_values(received: ReceivedStudy) -> dict[str, Any]:
    """Return the statement of a study, its state, and the decisions that are open."""
    study, open_in = received.study, {PENDING: ("approve", "decline"), STUDY_APPROVED: ("withdraw",)}
    return {
        "digest": study.digest,
        "title": study.title,
        "purpose": study.purpose,
        "state": received.display_state,
        "pending": received.is_pending,
        "received": received.received,
        "expires": study.expires,
        "sentences": sentences(study),
        "queries": allowed_queries(study),
        "decisions": [vars(decision) for decision in received.decisions],
        "decisions_open": () if study.expired else open_in.get(received.state, ("approve",)),
    }


def _sent(record: LogReport, checked: str) -> dict[str, Any]:
    """Return what the site has sent, by its log, and whether the log is intact."""
    return {
        "intact": record.intact,
        "verdict": verdict(record),
        "faults": [str(fault) for fault in record.faults[:20]],
        "unchecked": list(record.unchecked),
        "lines": record.lines,
        "answers": sum(run.answers for run in record.runs),
        "refusals": sum(run.refusals for run in record.runs),
        "numbers": sum(run.numbers for run in record.runs),
        "bytes": sum(run.bytes for run in record.runs),
        "checked": checked,
        "runs": [
            {
                "run": run.id,
                "first": run.first,
                "rounds": len(run.rounds),
                "answers": run.answers,
                "refusals": run.refusals,
                "numbers": run.numbers,
                "bytes": run.bytes,
                "masked": run.masked,
                "reasons": dict(run.reasons),
            }
            for run in record.runs
        ],
    }
