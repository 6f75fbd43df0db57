"""Whether a disk is full, by bytes or by files."""

import os
from pathlib import Path

_MIN_FREE_BYTES = 1 << 16  # a disk with less free space counts as full


def is_full(folder: Path) -> bool:
    """Return True if the disk of a folder has no space for another small file."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < _MIN_FREE_BYTES or bool(disk.f_files and not disk.f_favail)
