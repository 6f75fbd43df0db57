"""Cells as they are written in a file, to be written next to a result: ids to join by, columns to keep."""

from dataclasses import replace
from pathlib import Path

from unpooled.data.readers.source import open_source
from unpooled.errors import InputError
from unpooled.options.reading import Reading


def read_cells(path: Path | str, names: tuple[str, ...], reading: Reading) -> dict[str, list[str]]:
    """Return the texts of columns, row by row as ``read_table`` has them; a missing one is empty."""
    if not names:
        return {}
    reading = replace(reading, columns=names, exclude=(), site_column=None, raw=True)
    source = open_source(path, reading)
    lacking = [name for name in names if name not in source.names]
    if lacking:
        raise InputError(
            f"{path}: no column {' or '.join(lacking)}; columns are {', '.join(source.every[:20])}"
        )
    cells: dict[str, list[str]] = {name: [] for name in names}
    for block in source.blocks():
        for name, column in zip(source.names, block, strict=True):
            cells[name] += [_text(cell) for cell in column]
    return cells


def _text(cell: str | float | None) -> str:
    if cell is None or cell != cell:
        return ""
    return cell if isinstance(cell, str) else f"{float(cell):.17g}"
