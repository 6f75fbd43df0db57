"""Rare categories that count as the most frequent one: even together too few people have them."""

from unpooled.data.column_kinds import CATEGORY
from unpooled.data.summary_table import OTHER, SummaryTable
from unpooled.data.table import Table
from unpooled.privacy.microaggregation.people import People
from unpooled.privacy.microaggregation.scales import people_with_rare
from unpooled.privacy.microaggregation.summary_settings import SummarySettings


def merged_categories(table: Table, settings: SummarySettings, summary: SummaryTable) -> dict[str, int]:
    """Return, by column, the number of people whose category is counted as the most frequent one.

    >>> from unpooled.privacy.microaggregation.summarize import microaggregate
    >>> rows = Table.from_columns({"age": [30.0, 31.0, 32.0, 70.0, 71.0, 72.0, 73.0], "sex": list("fffmmmx")})
    >>> settings = SummarySettings(min_group_size=3)
    >>> merged_categories(rows, settings, microaggregate(rows, settings))
    {'sex': 1}
    """
    merged, people = {}, People(table, settings)
    for name, kind in zip(table.names, table.kinds, strict=True):
        categories = summary.categories.get(name, ())
        if (
            kind != CATEGORY
            or not categories
            or OTHER in categories
            or set(table.categories[name]) <= set(categories)
        ):
            continue
        if count := people_with_rare(table.categories[name], people.category(name), categories):
            merged[name] = count
    return merged
