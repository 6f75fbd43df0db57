"""The facts of a DPIA report, from a site's folder: policy, summary table, approval, log and attack."""

from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from unpooled.app.pages.dpia import data_changes, memberships
from unpooled.app.pages.dpia.data_changes import Changes
from unpooled.app.pages.dpia.memberships import Memberships
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError, UnpooledError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.site.audit import overview
from unpooled.site.audit.attack import Attack, on_log
from unpooled.site.audit.overview import LogReport
from unpooled.site.log import entries
from unpooled.site.log_files import segments
from unpooled.site.people_register import FILE as REGISTRY
from unpooled.site.policy import Policy, load
from unpooled.site.table_notes import rare_categories_in, risks_in
from unpooled.site.table_store import ABOUT, APPROVED, ERASURES, TABLE, ReadOnlySummaryFolder, SummaryFolder

_FILES = (f"summary/{TABLE}", f"summary/{ABOUT}", f"summary/{APPROVED}", "policy.toml", REGISTRY, ERASURES)


@dataclass(frozen=True, eq=False)
class SiteFacts:
    """The facts of a DPIA report, before they are put into words."""

    folder: Path
    policy: Policy | None  # None: unknown
    policy_from: str
    summary: SummaryTable | None
    settings: SummarySettings | None
    rare: tuple[str, ...] | None  # columns in which a rare category counts as the most common; None: unknown
    risks: tuple[str, ...]  # sentences on risks that were measured on the rows
    summary_digest: str
    changes: Changes
    memberships: Memberships
    renewal_pending: bool  # there is an update that nobody has approved yet
    approval: dict[str, str]  # who approved the summary table, and when; empty: nobody
    record: LogReport | None  # None: nothing has left
    attack: Attack | None  # None: nothing to attack, or the log is damaged
    versions: tuple[str, ...]  # of the package, as the log names them
    files: tuple[tuple[str, str], ...]  # (file, SHA-256)

    @property
    def name(self) -> str:
        logged = self.record.known_as if self.record is not None else ""
        return (
            logged or (self.policy.site.id if self.policy is not None else "") or self.folder.resolve().name
        )

    @property
    def mode(self) -> str:
        """The mode of the policy, or else that of the log."""
        if self.policy is not None:
            return self.policy.protect.mode
        return (
            self.record.protections[-1] if self.record is not None and self.record.protections else "summary"
        )


def read(
    folder: Path,
    policy: Path | None = None,
    log_heads: dict[int, str] | None = None,
    *,
    only_look: bool = False,
) -> SiteFacts:
    """Return the facts of the site in a folder.

    ``only_look``: nothing in the folder is written or locked, while the site may be answering.

    Raises
    ------
    InputError
        The folder is not that of a site.
    LedgerError
        The summary table was changed.
    """
    place = (ReadOnlySummaryFolder if only_look else SummaryFolder)(folder)
    log = folder / "log.jsonl"
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if not place.exists and not log.exists():
        raise InputError(f"{folder}: not the folder of a site: it has neither a summary table nor a log")
    pending = place.pending
    record = overview.read(log, log_heads, only_look=only_look, policy=policy) if log.exists() else None
    rules, where = policy_of(folder, policy, record)
    summary = place.read() if place.exists else None
    return SiteFacts(
        folder,
        rules,
        where,
        summary,
        place.settings() if summary is not None else None,
        rare_categories_in(place.path),
        risks_in(place.path) if summary is not None else (),
        place.digest if summary is not None else "",
        data_changes.read(folder, registered=summary is not None and place.registered),
        memberships.read(folder),
        pending,
        place.approval() if summary is not None else {},
        record,
        _attacked(record),
        _versions(log) if record is not None else (),
        tuple(
            (name, sha256((folder / name).read_bytes()).hexdigest())
            for name in (*_FILES, *(file.name for file in segments(log)))
            if (folder / name).exists()
        ),
    )


def policy_of(folder: Path, given: Path | None, record: LogReport | None) -> tuple[Policy | None, str]:
    """Return the policy of a site, None if it is unknown, and its source."""
    path = given or folder / "policy.toml"
    if given is not None or path.exists():
        return load(path), path.name
    if record is None or not record.policies or record.policies[-1] == Policy().digest:
        return Policy(), "the default rules"
    return None, f"not in the folder; the log names digest {record.policies[-1][:16]}. Use --policy FILE"


def _attacked(record: LogReport | None) -> Attack | None:
    if record is None:
        return None
    with suppress(UnpooledError, ValueError, KeyError, TypeError):
        return on_log(record.path)
    return None


def _versions(log: Path) -> tuple[str, ...]:
    versions = [
        str(entry.get("version") or "")
        for _, entry in entries(log)
        if entry and entry.get("kind") == "opening"
    ]
    return tuple(dict.fromkeys(filter(None, versions)))
