"""The format of a site's folder, which no command may take for an empty one."""

from pathlib import Path

from unpooled.errors import LedgerError
from unpooled.storage.file_format import format_error

_EARLIER = "copy*/about.json"  # where releases before format 1 kept the summary table


def check_folder_format(folder: Path) -> None:
    """Raise LedgerError if a summary table is in the folder where this release does not look for one.

    The files that this release reads carry their format themselves: about.json, the ledger, the registry, the
    log and the studies.
    """
    if any(folder.glob(_EARLIER)):
        raise LedgerError(f"{folder}: the folder of a site has {format_error(None)}")
