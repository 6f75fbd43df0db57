"""Export of a site's approved summary table as a signed file, and deletion notices after an erasure.

A file leaves as an answer does: the site is opened with the same checks, and its log records the file before
it is written.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpooled.data.summary_table import SummaryTable, restricted
from unpooled.errors import InputError, PolicyError
from unpooled.site.audit_log import AuditLog
from unpooled.site.erasures import Erasures
from unpooled.site.ledger import Ledger
from unpooled.site.log import EXPORT, NOTICE, POLL_SECONDS, LogInUse, locked_log, request_handover
from unpooled.site.log_files import parsed, tail
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy
from unpooled.site.signed_file import (
    NOTICE as NOTICE_FILE,
)
from unpooled.site.signed_file import (
    TABLE,
    RecipientKey,
    is_name,
    seal_file,
)
from unpooled.site.site import Site
from unpooled.site.study_file import StudyFile
from unpooled.site.summary_file import Header, table_content
from unpooled.site.table_store import SummaryFolder

if TYPE_CHECKING:
    from unpooled.privacy.secure_sum.crypto import Identity


@dataclass(frozen=True, eq=False)
class Export:
    """A summary file that is to leave: what it holds, for whom and for which study."""

    site: str
    table: SummaryTable  # with the study's columns only
    lacking: tuple[str, ...]  # columns of the study that the table does not have
    digest: str  # of the whole summary table, which was approved
    recipient: RecipientKey
    study: StudyFile

    @property
    def protection(self) -> str:
        """The protection of the table in words, for the header, the log and the report."""
        return (
            f"summary table of {self.table.made} (microaggregation): every row is the average of at least "
            f"{self.table.min_group_size} people"
        )


def plan_export(
    folder: Path, policy: Policy, recipient: RecipientKey, study: StudyFile, name: str = ""
) -> Export:
    """Return the file that a site would send, after the checks that do not need the log.

    Raises
    ------
    InputError
        The study has ended, or the table has none of its columns, or there is no table.
    PolicyError
        The policy does not allow a table to leave as a whole.
    """
    if policy.protect.mode != "summary":
        raise PolicyError(
            f'the policy has [protect] mode = "{policy.protect.mode}": such a site has no summary table'
        )
    if policy.aggregation.secure == "required":
        raise PolicyError(
            'the policy has [aggregation] secure = "required": the recipient may read only sums over all '
            "sites, and a summary file holds this site's table. Take part in runs with --secure instead."
        )
    if study.expired:
        raise InputError(f"the study {study.title!r} expired on {study.expires}. Ask for a new one.")
    place = SummaryFolder(folder)
    table, lacking = restricted(place.read(), study.columns)
    return Export(site_name(folder, policy, name), table, lacking, place.digest, recipient, study)


def site_name(folder: Path, policy: Policy, name: str = "") -> str:
    """Return the name of a site: as in its policy, or as it answered before, or that of its folder."""
    ledger = folder / "ledger.sqlite"
    names = Ledger.names(ledger) if ledger.exists() else {}  # by federation; "": exports
    known = policy.site.id or names.get("") or next(iter(names.values()), "")
    if name and known and name != known:
        raise InputError(f"--name {name}: this site is {known}. Leave --name out.")
    found = name or known or folder.resolve().name
    if not is_name(found):
        raise InputError(
            f"{found!r} cannot be the name of a site. Set another with --name: up to 63 letters, digits, - "
            "and _."
        )
    return found


def export_table(
    folder: Path, policy: Policy, plan: Export, identity: "Identity", *, encrypted: bool = True, by: str = ""
) -> bytes:
    """Return the bytes of the summary file; the site's log has them by then.

    The site is opened as for a run, with all checks of its folder; InputError if its table is not the one of
    the plan any more.
    """
    site = _opened(plan.site, policy, folder)
    try:
        assert isinstance(site.log, AuditLog)
        if SummaryFolder(folder).digest != plan.digest:
            raise InputError(
                f"{folder}: the summary table changed meanwhile. Review it, and export it again."
            )
        line = site.log.next_line
        header = Header(
            plan.site,
            identity.public.hex(),
            plan.recipient,
            line,
            datetime.now(UTC).isoformat(timespec="seconds"),
            plan.study,
            plan.protection,
            encrypted,
        )
        data, digest = seal_file(TABLE, header, table_content(plan.table, plan.digest), identity)
        site.log.record_export(
            EXPORT,
            recipient=plan.recipient.name,
            recipient_key=plan.recipient.public,
            recipient_identity=plan.recipient.identity,
            fingerprint=plan.recipient.fingerprint,
            study_file=plan.study.digest,
            title=plan.study.title,
            purpose=plan.study.purpose,
            expires=plan.study.expires,
            columns=list(plan.table.names),
            summary=plan.digest,
            people=int(plan.table.people.sum()),
            groups=len(plan.table),
            encrypted=encrypted,
            by=by,
            file=digest,
            bytes=len(data),
        )
    finally:
        site.close()
    return data


def _opened(name: str, policy: Policy, folder: Path, patience: float = 15.0) -> Site:
    """The site, opened as for a run; a process that answers meanwhile hands the log over."""
    until = time.monotonic() + patience
    while True:
        try:
            return open_site(name, None, policy, folder, what="unpooled site export")
        except LogInUse:
            if time.monotonic() > until:
                raise
            request_handover(folder)
            time.sleep(POLL_SECONDS / 2)


@dataclass(frozen=True)
class DeletionNotice:
    """A notice to one recipient, and the file in the site's folder that holds it."""

    recipient: str
    path: Path
    files: int  # summary files that it is about


def write_notices(folder: Path) -> tuple[DeletionNotice, ...]:
    """Write a deletion notice for each recipient of a file from before the last erasure.

    Files that an earlier notice names are not named again. If a kill cut off an erasure before its notices,
    the next call writes them.
    """
    from unpooled.site.identity import identity_in
    from unpooled.storage.atomic_files import write_atomically

    last = max((str(one["utc"])[:19] for one in Erasures(folder).read() if one["groups"]), default="")
    recalled = {file for entry in _lines(folder, NOTICE) for file in entry["files"]}
    by_recipient: dict[str, list[dict[str, Any]]] = {}
    for entry in _lines(folder, EXPORT):
        before = str(entry["utc"])[:19] <= last and entry["summary"] != SummaryFolder(folder).digest
        if before and entry["file"] not in recalled:
            by_recipient.setdefault(entry["recipient_key"], []).append(entry)
    notices = []
    for key, entries in by_recipient.items():
        name, site, identity = str(entries[0]["recipient"]), str(entries[0]["site"]), identity_in(folder)
        files = [{"file": e["file"], "line": e["seq"] + 1, "study": e["title"]} for e in reversed(entries)]
        with locked_log(folder, "a deletion notice") as log:
            header = Header(
                site,
                identity.public.hex(),
                RecipientKey(name, key, str(entries[0]["recipient_identity"])),
                log.seq + 2,
                datetime.now(UTC).isoformat(timespec="seconds"),
                None,
                "names files, no data",
                encrypted=True,
            )
            data, digest = seal_file(NOTICE_FILE, header, {"files": files}, identity)
            log.append(
                NOTICE,
                site=site,
                recipient=name,
                recipient_key=key,
                files=[one["file"] for one in files],
                file=digest,
            )
        path = folder / f"deletion-notice-{name}-{header.line}.unpooled"
        write_atomically(path, data)
        notices.append(DeletionNotice(name, path, len(files)))
    return tuple(notices)


def _lines(folder: Path, kind: str) -> Iterator[dict[str, Any]]:
    """The lines of a kind in a site's log, from the last."""
    path = folder / "log.jsonl"
    for line in tail(path) if path.exists() else ():
        if f'"kind":"{kind}"'.encode() in line:
            yield parsed(line, path)
