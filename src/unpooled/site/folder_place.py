"""The place of a site's folder: a site lives in one folder, on one machine.

``place.json`` holds the folder's id, by which the register of site folders recognises it, and host, file
system and inode. A folder that was renamed on its file system has the same place. One that was copied,
restored, or moved to another disk or machine has another, and might be one of two. It answers nothing until
an officer confirms that it is the one that lives on. A backup holds only the id.
"""

import json
import os
import platform
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unpooled.errors import InputError
from unpooled.site.log import MOVED, locked_log
from unpooled.site.log_files import segments
from unpooled.site.study_store import FEDERATIONS
from unpooled.storage.account import account
from unpooled.storage.atomic_files import create_atomically, write_atomically
from unpooled.storage.file_format import FORMAT

PLACE = "place.json"
_OWN = (  # files and folders of which each site has its own
    *("log.jsonl", "ledger.sqlite", "registry.sqlite", "identity.key", "erasures.json", "settings.json"),
    *("summary", "renewal", FEDERATIONS, PLACE),
)


class FolderMovedError(InputError):
    """The site's folder was moved, copied or restored, and nobody has confirmed that it lives on."""


def _place(folder: Path) -> dict[str, Any]:
    return {
        "host": platform.node(),
        "file_system": os.statvfs(folder).f_fsid if hasattr(os, "statvfs") else folder.stat().st_dev,
        "inode": folder.stat().st_ino,
    }


def record_place(folder: Path) -> None:
    """Record where a folder is, if it records no place: that of a new site."""
    create_atomically(folder / PLACE, _record(folder, os.urandom(16).hex()))


def folder_id(folder: Path) -> str:
    """Return the id of a site's folder; "" if it has none."""
    return str((recorded_place(folder) or {}).get("id", ""))


def only_id(content: bytes) -> bytes:
    """Return the content of a place's file for a backup: a restored folder is in no place yet."""
    try:
        values = {name: json.loads(content)[name] for name in ("format", "id")}
    except (ValueError, TypeError, KeyError):
        return content
    return (json.dumps(values, indent=1) + "\n").encode()


def _record(folder: Path, id_: str) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    values = {"format": FORMAT, "id": id_, **_place(folder), "since": now}
    return (json.dumps(values, indent=1) + "\n").encode()


def recorded_place(folder: Path) -> dict[str, Any] | None:
    """Return the place that a folder records; None if it records none."""
    try:
        return dict(json.loads((folder / PLACE).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def check_place(folder: Path) -> None:
    """Raise FolderMovedError if a site's folder is not where it was when it was last confirmed.

    A folder without the file is that of a site that has not joined a federation, or it was copied.
    """
    recorded = recorded_place(folder)
    joined = any(any(folder.glob(f"{FEDERATIONS}/*/{name}.json")) for name in ("invitation", "coordinator"))
    if recorded is None and not joined and not (folder / PLACE).exists():
        return
    now = _place(folder)
    if recorded is not None and all(recorded.get(name) == value for name, value in now.items()):
        return
    what = "was restored, or copied without its place"
    if recorded is not None and "host" in recorded:
        since = f"{str(recorded.get('since'))[:10]} on {recorded.get('host')}"
        what = (
            f"is not the one that was used since {since}: it was copied, or moved to another disk or machine"
        )
    raise FolderMovedError(
        f"{folder} {what}. A site lives in one folder, so nothing is answered. If no other copy of it is "
        f"used any more, confirm this one with unpooled site confirm {folder}."
    )


def confirm_place(folder: Path, by: str = "") -> None:
    """Record in the log, and then in the folder, that this folder of a site lives on."""
    check_links(folder)
    with locked_log(folder, "unpooled site confirm") as log:
        log.append(MOVED, by=by or account(), host=platform.node())
        write_atomically(folder / PLACE, _record(folder, folder_id(folder) or os.urandom(16).hex()))


def check_links(folder: Path) -> None:
    """Raise InputError if a file of the site is a link: the folder at its other end might be another site's.

    A copy of a folder with links would write into the files of the original.
    """
    for name in _OWN:
        if (folder / name).is_symlink():
            raise InputError(
                f"{folder / name} is a link, and a site's files must be in its own folder. Put the file "
                "there in place of the link."
            )
    log = folder / "log.jsonl"
    for file in (*segments(log)[-1:], folder / "ledger.sqlite"):
        if file.exists() and file.stat().st_nlink > 1 + _cut_off_rotation(file):
            raise InputError(
                f"{file} has a second name in another folder (a hard link), and a site's files must be its "
                "own. Replace it with a copy of its content."
            )


def _cut_off_rotation(file: Path) -> int:
    """Return the number of further names of a log within its folder, which a cut-off rotation leaves."""
    inode = file.stat()[stat.ST_INO]
    return sum(other.stat().st_ino == inode for other in file.parent.glob("log-*.jsonl"))
