"""The hand-over of a site's log: it has one writer, and a process that answers hands it to one that waits."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from unpooled.site.log import Log, LogInUse

POLL_SECONDS = 0.2  # between checks whether another process requests the log
FRESH = 2.0  # seconds for which a request for the log, or a sign of work, counts; it is repeated


def handover_file(folder: Path) -> Path:
    """The file that a process touches while it waits for the log."""
    return folder / "log.jsonl.handover"


def request_handover(folder: Path) -> None:
    """Ask for the log. On a full disk the request fails, and only the end of the other process helps."""
    with contextlib.suppress(OSError):
        handover_file(folder).touch()


def handover_requested(folder: Path) -> bool:
    """True if another process waits for the log."""
    return is_fresh(handover_file(folder))


def is_fresh(file: Path) -> bool:
    """True if a process has just touched a file, to request the log or to signal that it is at work."""
    try:
        return time.time() - file.stat().st_mtime < FRESH
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def locked_log(folder: Path, what: str, patience: float = 15.0) -> Iterator[Log]:
    """The site's log, for a few lines; a process that answers hands it over. LogInUse if it is not free."""
    until = time.monotonic() + patience
    while True:
        try:
            log = Log(folder / "log.jsonl", what)
            break
        except LogInUse:
            if time.monotonic() > until:
                raise
            request_handover(folder)
            time.sleep(POLL_SECONDS / 2)
    handover_file(folder).unlink(missing_ok=True)
    try:
        yield log
    finally:
        log.close()
