"""Notes for the officer on how a summary table was made, which the table itself does not contain."""

import json
from collections.abc import Iterable
from pathlib import Path

from unpooled.storage.atomic_files import write_atomically

NOTES = "notes.json"


def record_rare_categories(path: Path, columns: Iterable[str]) -> None:
    """Record the columns in which a rare category is counted as the most frequent one."""
    write_atomically(
        path / NOTES, (json.dumps({"rare_categories": sorted(columns)}, indent=1) + "\n").encode()
    )


def rare_categories_in(path: Path) -> tuple[str, ...] | None:
    """Return these columns; None if they are not known, as for an updated table."""
    try:
        return tuple(map(str, json.loads((path / NOTES).read_text(encoding="utf-8"))["rare_categories"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
