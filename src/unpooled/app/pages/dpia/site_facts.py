"""The facts of a dossier, from a site's folder: policy, copy, approval, log, and the attack on the log."""

import json
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from unpooled.app.pages.dpia import data_changes
from unpooled.app.pages.dpia.data_changes import Changes
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
from unpooled.site.table_notes import rare_categories_in
from unpooled.site.table_store import ABOUT, APPROVED, ERASURES, TABLE, ReadOnlySummaryFolder, SummaryFolder

_FILES = (f"summary/{TABLE}", f"summary/{ABOUT}", f"summary/{APPROVED}", "policy.toml", REGISTRY, ERASURES)


@dataclass(frozen=True, eq=False)
class SiteFacts:
    """All that a dossier says, before it is put into words."""

    folder: Path
    policy: Policy | None  # None: it is not known
    policy_from: str
    summary: SummaryTable | None
    settings: SummarySettings | None
    rare: tuple[str, ...] | None  # columns in which a rare level is counted as the commonest; None: not known
    summary_digest: str
    changes: Changes
    renewal_pending: bool  # a renewal is made, and nobody has approved it yet
    approval: dict[str, str]  # who approved the copy, and when; empty: nobody
    record: LogReport | None  # None: nothing has left
    attack: Attack | None  # None: nothing to attack, or the log is damaged
    versions: tuple[str, ...]  # of the package, as the log names them
    files: tuple[tuple[str, str], ...]  # (file, SHA-256)

    @property
    def name(self) -> str:
        said = self.record.site if self.record is not None else ""
        return said or (self.policy.site.id if self.policy is not None else "") or self.folder.resolve().name

    @property
    def mode(self) -> str:
        """The protection: of the policy, or else as the log or the copy tells."""
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
    """The facts of the site in a folder. InputError if it is no site's; LedgerError if its copy was changed.

    ``only_look``: nothing in the folder is written or locked, while the site may be answering.
    """
    place = (ReadOnlySummaryFolder if only_look else SummaryFolder)(folder)
    log = folder / "log.jsonl"
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if not place.exists and not log.exists():
        raise InputError(f"{folder}: not the folder of a site: it has neither a copy nor a log")
    waits = place.pending
    record = overview.read(log, log_heads, only_look=only_look, policy=policy) if log.exists() else None
    rules, where = policy_of(folder, policy, record)
    copy = place.read() if place.exists else None
    return SiteFacts(
        folder,
        rules,
        where,
        copy,
        place.settings() if copy is not None else None,
        rare_categories_in(place.path),
        place.digest if copy is not None else "",
        data_changes.read(folder, registered=copy is not None and place.registered),
        waits,
        _approval(place) if copy is not None else {},
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
    """The policy of a site, None if it is not known, and where it is from."""
    path = given or folder / "policy.toml"
    if given is not None or path.exists():
        return load(path), path.name
    if record is None or not record.policies or record.policies[-1] == Policy().digest:
        return Policy(), "the rules that hold where no policy is given"
    return None, f"not in the folder; the log names digest {record.policies[-1][:16]}, say --policy FILE"


def _approval(place: SummaryFolder) -> dict[str, str]:
    if not place.approved:
        return {}
    note: dict[str, Any] = json.loads((place.path / APPROVED).read_text(encoding="utf-8"))
    return {name: str(note.get(name, "")) for name in ("by", "utc")}


def _attacked(record: LogReport | None) -> Attack | None:
    if record is None:
        return None
    with suppress(UnpooledError, ValueError, KeyError, TypeError):
        return on_log(record.path)
    return None


def _versions(log: Path) -> tuple[str, ...]:
    said = [
        str(entry.get("version") or "")
        for _, entry in entries(log)
        if entry and entry.get("kind") == "opening"
    ]
    return tuple(dict.fromkeys(filter(None, said)))
