"""Several tables as one, whose rows come one after the other."""

from collections.abc import Sequence

import numpy as np

from unpooled.data.column_kinds import CATEGORY, EMPTY, TEXT
from unpooled.data.merged_schema import kind_of_all
from unpooled.data.table import Table
from unpooled.errors import InputError


def joined(tables: Sequence[Table]) -> Table:
    """Return the rows of tables that have the same columns; InputError if their columns or kinds differ.

    >>> one, two = Table.from_columns({"sex": ["f", "m"]}), Table.from_columns({"sex": ["x", "f"]})
    >>> both = joined([one, two])
    >>> both.categories["sex"], both.values[:, 0].tolist()
    (('f', 'm', 'x'), [0.0, 1.0, 2.0, 0.0])
    """
    names = tables[0].names
    kinds = tuple(
        kind_in_all(name, [dict(zip(table.names, table.kinds, strict=True)) for table in tables])
        for name in names
    )
    check_same_columns([table.names for table in tables])
    categories: dict[str, tuple[str, ...]] = {}
    blocks = [np.array(table.values[:, [table.index(name) for name in names]]) for table in tables]
    for j, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        if kind not in (CATEGORY, TEXT):
            continue
        if all(name in table.categories or table.kinds[table.index(name)] == EMPTY for table in tables):
            categories[name] = tuple(
                dict.fromkeys(v for table in tables for v in table.categories.get(name, ()))
            )
        code = {category: float(i) for i, category in enumerate(categories.get(name, ()))}
        for table, block in zip(
            tables, blocks, strict=True
        ):  # codes of texts that were not kept mean nothing
            own = np.array([code.get(category, np.nan) for category in table.categories.get(name, ())])
            there = ~np.isnan(block[:, j])
            block[there, j] = own[block[there, j].astype(np.int64)] if len(own) else np.nan
    return Table(names, kinds, categories, np.concatenate(blocks))


def check_same_columns(columns: Sequence[Sequence[str]]) -> None:
    """InputError, with the names, if partitions of one table do not have the same columns."""
    everywhere = set(columns[0]).intersection(*columns[1:])
    lacking = sorted(set().union(*columns) - everywhere)
    if lacking:
        raise InputError(
            f"its partitions have different columns: {', '.join(lacking[:6])} not in all of them"
        )


def kind_in_all(name: str, kinds: Sequence[dict[str, str]]) -> str:
    """Return the kind of a column in several partitions of one table; InputError if the kinds conflict."""
    found = [own.get(name, EMPTY) for own in kinds]
    if kind := kind_of_all(found):
        return kind
    raise InputError(
        f"column {name} is of different kinds in its partitions: {', '.join(sorted(set(found) - {EMPTY}))}; "
        f"--numbers {name} or --categorical {name} decides how it is read"
    )
