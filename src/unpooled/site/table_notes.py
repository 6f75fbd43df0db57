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
    """Return the sentences on risks; of an updated table those of the latest table that was measured."""
    if own := _risks(path):
        return own
    beside = [path.parent / "summary", *sorted(path.parent.glob("summary-*"), key=_age, reverse=True)]
    for earlier in beside:
        if risks := _risks(earlier):
            made = json.loads((earlier / "about.json").read_text(encoding="utf-8"))["made"]
            changed = f"The table was changed after its risks were measured. On the table of {made}:"
            return changed, *risks
    return ()


def _risks(path: Path) -> tuple[str, ...]:
    try:
        return tuple(map(str, json.loads((path / NOTES).read_text(encoding="utf-8"))["risks"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _age(path: Path) -> tuple[str, int]:
    """The date and the number in the name of an earlier table, as summary-2026-11-18-1."""
    date, _, number = path.name.removeprefix("summary-").rpartition("-")
    return date, int(number) if number.isdigit() else 0


def rare_categories_in(path: Path) -> tuple[str, ...] | None:
    """Return these columns; None if they are not known, as for an updated table."""
    try:
        return tuple(map(str, json.loads((path / NOTES).read_text(encoding="utf-8"))["rare_categories"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
