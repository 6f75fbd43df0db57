"""The long format: one row for each value, as person, feature, value; read as one row for each person."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from unpooled.data.readers.arrow_cells import rows_at_a_time
from unpooled.data.readers.cell_text import NA, Cells
from unpooled.data.readers.source import Source, open_source
from unpooled.errors import InputError
from unpooled.options.reading import Reading

_MAX_FEATURES = 10_000  # more are hardly columns of a table


def open_long(given: object, reading: Reading, name: str) -> Source:
    """Open a long table as a wide one: a column for the person, and one for each feature.

    Features come in the order of their first appearance. A feature that a person lacks is missing; two values
    of one feature are an error.
    """
    assert reading.long is not None
    if reading.site_column is not None:
        raise InputError("--long and --site-column exclude each other: a long table has three columns")
    three = reading.long
    inner = replace(reading, columns=three, exclude=(), long=None, raw=True)
    source = open_source(given, inner, name)
    lacking = [column for column in three if column not in source.names]
    if lacking:
        raise InputError(
            f"{source.path}: no column {' or '.join(lacking)} (--long {','.join(three)}); columns are "
            f"{', '.join(source.every[:20])}"
        )
    people, features, cells = _gathered(source, three)
    if three[0] in features:
        raise InputError(f"{source.path}: {three[0]} is both the person column and a feature")
    every = (three[0], *features)
    names = tuple(column for column in every if reading.selects(column))

    def blocks() -> Iterator[list[Cells]]:
        rows, person_ids = rows_at_a_time(len(names)), list(people)
        for a in range(0, len(person_ids), rows):
            block: list[Cells] = []
            for column in names:
                if column == three[0]:
                    block.append(person_ids[a : a + rows])
                    continue
                at = cells[features[column]]
                block.append(_column([at.get(i) for i in range(a, min(a + rows, len(person_ids)))]))
            yield block

    return Source(source.path, every, names, blocks, lambda row: f"person {list(people)[row]}", source.usual)


def _gathered(
    source: Source, three: tuple[str, str, str]
) -> tuple[dict[str, int], dict[str, int], list[dict[int, Any]]]:
    """The people and the features in order of appearance, and the values of each feature by person."""
    people: dict[str, int] = {}
    features: dict[str, int] = {}
    cells: list[dict[int, Any]] = []
    order = [source.names.index(column) for column in three]
    seen = 0
    for block in source.blocks():
        columns = [_listed(block[j]) for j in order]
        for i, (person, feature, value) in enumerate(zip(*columns, strict=True)):
            if person is None or feature is None:
                lacks = three[0] if person is None else three[1]
                raise InputError(f"{source.path}, {source.locate(seen + i)}: no {lacks}")
            row = people.setdefault(_text(person), len(people))
            at = features.setdefault(_text(feature), len(features))
            if at == len(cells):
                cells.append({})
                if at == _MAX_FEATURES:
                    raise InputError(
                        f"{source.path}: more than {_MAX_FEATURES} features in column {three[1]}"
                    )
            if row in cells[at]:
                raise InputError(
                    f"{source.path}, {source.locate(seen + i)}: a second value of {_text(feature)} for "
                    f"person {_text(person)}; a table has one (a query may take the mean, or the latest)"
                )
            cells[at][row] = value
        seen += len(columns[0])
    return people, features, cells


def _listed(cells: Cells) -> list[Any]:
    """The cells of a block; a missing one is None."""
    if isinstance(cells, np.ndarray):
        return [None if cell != cell else cell for cell in cells.tolist()]
    return [None if cell is None or cell.strip() in NA else cell for cell in cells]


def _text(cell: str | float) -> str:
    if isinstance(cell, str):
        return cell.strip()
    return str(int(cell)) if cell == int(cell) else repr(cell)


def _column(values: list[Any]) -> Cells:
    """A feature's cells: numbers if the values are, else texts."""
    if not any(isinstance(value, str) for value in values):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return values
