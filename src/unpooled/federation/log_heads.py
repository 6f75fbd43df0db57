"""The heads of the sites' logs that a coordinator received, which are evidence: ``log_heads.jsonl``."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from unpooled.errors import InputError
from unpooled.protocol.site_id import SiteId
from unpooled.storage.account import account


def append_log_heads(path: Path, new: list[tuple[SiteId, str]]) -> None:
    """Append the new heads of sites' logs: they are evidence, over all exchanges and runs.

    The last head alone is not enough: a site could truncate its log, continue, and report a matching head.
    """
    _append(path, "".join(json.dumps({"site": site, "head": head}) + "\n" for site, head in new))


def last_log_heads(path: Path) -> dict[SiteId, str]:
    """Return the last head received of every site's log, in any run; none of a site readmitted since."""
    if not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    last = {str(line["site"]): str(line["head"]) for line in lines}
    return {site: head for site, head in last.items() if head}


def forked_logs(path: Path) -> dict[SiteId, int]:
    """Return the sites of whose log two different lines of one number came, and that number.

    Then two folders of the site have answered, because each continues a log of its own. A site that was
    readmitted begins anew.
    """
    known: dict[SiteId, dict[str, str]] = {}
    forked: dict[SiteId, int] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        entry = json.loads(line)
        site, (number, _, digest) = str(entry["site"]), str(entry["head"]).partition(":")
        if not digest:
            known.pop(site, None)
            forked.pop(site, None)
        elif known.setdefault(site, {}).setdefault(number, digest) != digest:
            forked.setdefault(site, int(number))
    return forked


def readmit(path: Path, site: SiteId, reason: str) -> int:
    """Record that a site's log begins anew: its earlier heads stay on record and are not required any more.

    Returns the number of lines of the old log, as far as the coordinator knows it.
    """
    head = last_log_heads(path).get(site, "")
    if not head:
        raise InputError(f"{path} has no log head of {site}: the site needs no readmission")
    if not reason.strip():
        raise InputError("a readmission needs a reason, because it is evidence. Give it with --reason.")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"site": site, "head": "", "readmitted": now, "by": account(), "reason": reason.strip()}
    _append(path, json.dumps(line) + "\n")
    return int(head.partition(":")[0]) + 1


def _append(path: Path, lines: str) -> None:
    with path.open("ab") as file:
        file.write(lines.encode())
        file.flush()
        os.fsync(file.fileno())
