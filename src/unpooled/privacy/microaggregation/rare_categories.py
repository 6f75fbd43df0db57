"""Rare levels that a copy counts as the commonest one, for too few persons have them, also together."""

from unpooled.data.summary_table import OTHER, SummaryTable
from unpooled.data.table import CATEGORY, Table
from unpooled.privacy.microaggregation.people import People
from unpooled.privacy.microaggregation.scales import people_with_rare
from unpooled.privacy.microaggregation.summary_settings import SummarySettings


def merged_categories(table: Table, settings: SummarySettings, copy: SummaryTable) -> dict[str, int]:
    """The persons by category who have a level that the copy of a table counts as its commonest one.

    >>> from unpooled.privacy.microaggregation.summarize import microaggregate
    >>> rows = Table.from_columns({"age": [30.0, 31.0, 32.0, 70.0, 71.0, 72.0, 73.0], "sex": list("fffmmmx")})
    >>> merged_categories(rows, SummarySettings(min_group_size=3), microaggregate(rows, SummarySettings(min_group_size=3)))
    {'sex': 1}
    """
    found, people = {}, People(table, settings)
    for name, kind in zip(table.names, table.kinds, strict=True):
        categories = copy.categories.get(name, ())
        if (
            kind != CATEGORY
            or not categories
            or OTHER in categories
            or set(table.categories[name]) <= set(categories)
        ):
            continue
        if count := people_with_rare(table.categories[name], people.category(name), categories):
            found[name] = count
    return found
