"""Locks between processes, and the one sentence of what needs Linux.

Simulations, files and estimators run everywhere. A site that answers, and the machines of a federation, need
Linux: their processes are watched through ``/proc``, end with their parent, and lock their records.
"""

import os
import sys

from unpooled.errors import InputError

if sys.platform == "win32":
    import msvcrt

    _BYTE = 1 << 30  # the byte that is locked, far behind what a file holds, so that others may read it

    def lock(file: int, *, shared: bool = False, wait: bool = False) -> None:
        """Lock an open file until it is closed; BlockingIOError if another process has it and we do not wait.

        There are no shared locks here: a shared one keeps others out, too.
        """
        before = os.lseek(file, 0, os.SEEK_CUR)
        os.lseek(file, _BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(error.errno, error.strerror) from error
        finally:
            os.lseek(file, before, os.SEEK_SET)
else:
    import fcntl

    def lock(file: int, *, shared: bool = False, wait: bool = False) -> None:
        """Lock an open file until it is closed; BlockingIOError if another has it and we do not wait."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)


def require_linux(what: str) -> None:
    """Raise InputError on another system; ``what`` is the subject of the sentence."""
    if not sys.platform.startswith("linux"):
        raise InputError(
            f"{what} needs Linux, and this is {sys.platform}; files (unpooled fit), unpooled.cluster and the "
            "estimators run here"
        )
