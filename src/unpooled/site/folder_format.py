"""The format of a site's folder, which no command may take for an empty one."""

from pathlib import Path

from unpooled.errors import LedgerError
from unpooled.site.chained_file import check_file_format
from unpooled.site.log_files import check_log_format, segments
from unpooled.storage.file_format import format_error

_EARLIER = ("copy*/about.json", "engine/startup")  # files before format 1: summary table, federation
_CHAINED = {"ledger.sqlite": "ledger", "registry.sqlite": "registry"}


def check_folder_format(folder: Path) -> None:
    """Raise LedgerError if a file in the folder has another format, or is where this release does not look.

    The descriptions of summary tables and the studies are checked when they are read.
    """
    if any(found for pattern in _EARLIER for found in folder.glob(pattern)):
        raise LedgerError(f"{folder}: the folder of a site has {format_error(None)}")
    for file in segments(folder / "log.jsonl"):
        if file.exists():
            check_log_format(file)
    for name, what in _CHAINED.items():
        if (folder / name).exists():
            check_file_format(folder / name, what)
