"""Rare levels that a copy counts as the commonest one, for too few persons have them, also together."""

from unpooled.data.copy import OTHER, Copy
from unpooled.data.table import CATEGORY, Table
from unpooled.privacy.copy.persons import Persons
from unpooled.privacy.copy.scales import persons_beside
from unpooled.privacy.copy.settings import CopySettings


def merged_levels(table: Table, settings: CopySettings, copy: Copy) -> dict[str, int]:
    """The persons by category who have a level that the copy of a table counts as its commonest one.

    >>> from unpooled.privacy.copy.make import make_copy
    >>> rows = Table.of({"age": [30.0, 31.0, 32.0, 70.0, 71.0, 72.0, 73.0], "sex": list("fffmmmx")})
    >>> merged_levels(rows, CopySettings(g=3), make_copy(rows, CopySettings(g=3)))
    {'sex': 1}
    """
    found, persons = {}, Persons(table, settings)
    for name, kind in zip(table.names, table.kinds, strict=True):
        levels = copy.levels.get(name, ())
        if kind != CATEGORY or not levels or OTHER in levels or set(table.levels[name]) <= set(levels):
            continue
        if count := persons_beside(table.levels[name], persons.category(name), levels):
            found[name] = count
    return found
