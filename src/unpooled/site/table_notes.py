"""Notes for the officer on how a summary table was made, which the table itself does not contain."""

import json
from collections.abc import Iterable
from pathlib import Path

from unpooled.storage.atomic_files import write_atomically

NOTES = "notes.json"


def record_notes(path: Path, rare_categories: Iterable[str], risks: Iterable[str]) -> None:
    """Record the columns in which a rare category counts as the most frequent one, and sentences on risks.

    The risks are measured on rows. They stay in this folder: no answer, status or exported file has them.
    """
    notes = {"rare_categories": sorted(rare_categories), "risks": list(risks)}
    write_atomically(path / NOTES, (json.dumps(notes, indent=1) + "\n").encode())


def risks_in(path: Path) -> tuple[str, ...]:
    """Return the sentences on risks; none if they were not measured, as for an updated table."""
    try:
        return tuple(map(str, json.loads((path / NOTES).read_text(encoding="utf-8"))["risks"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def rare_categories_in(path: Path) -> tuple[str, ...] | None:
    """Return these columns; None if they are not known, as for an updated table."""
    try:
        return tuple(map(str, json.loads((path / NOTES).read_text(encoding="utf-8"))["rare_categories"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
