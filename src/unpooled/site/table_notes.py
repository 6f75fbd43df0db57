"""What was seen when a copy was made, and the copy itself does not tell: kept beside it, for its officer."""

import json
from collections.abc import Iterable
from pathlib import Path

from unpooled.storage.atomic_files import write_atomically

NOTES = "notes.json"


def record_rare_categories(path: Path, columns: Iterable[str]) -> None:
    """Note in the folder of a copy in which columns a rare level is counted as the commonest one."""
    write_atomically(
        path / NOTES, (json.dumps({"rare_categories": sorted(columns)}, indent=1) + "\n").encode()
    )


def rare_categories_in(path: Path) -> tuple[str, ...] | None:
    """These columns; None if they are not known, as of a renewed copy."""
    try:
        return tuple(map(str, json.loads((path / NOTES).read_text(encoding="utf-8"))["rare_categories"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
