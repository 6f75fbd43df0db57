"""Rare categories, which a summary table merges: with each other, or with the most frequent one."""

import numpy as np

from unpooled.data.column_kinds import CATEGORY
from unpooled.data.summary_table import OTHER, SummaryTable, category_indices
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


def only_disclosed(table: Table, summary: SummaryTable) -> Table:
    """Return rows with the columns and categories that their summary table discloses, and no others.

    >>> from unpooled.privacy.microaggregation.summarize import microaggregate
    >>> rows = Table.from_columns({"age": [60.0] * 6, "code": list("aaaaxy"), "sex": list("ffffff")})
    >>> only_disclosed(rows, microaggregate(rows, SummarySettings(min_group_size=3))).categories
    {'code': ('a',), 'sex': ('f',)}
    """
    lost = [name for name in table.names if name not in summary.means and name not in summary.counts]
    kept = table.without(lost)
    merged = [name for name in summary.counts if table.categories[name] != summary.categories[name]]
    if not merged:
        return kept
    values = np.array(kept.values, dtype=np.float64)
    for name in merged:
        names, column = summary.categories[name], values[:, kept.index(name)]
        rest = names.index(OTHER) if OTHER in names else int(summary.counts[name].sum(axis=0).argmax())
        there = ~np.isnan(column)
        place = category_indices(table.categories[name], names, rest)
        column[there] = place[column[there].astype(np.int64)]
    categories = kept.categories | {name: summary.categories[name] for name in merged}
    return Table(kept.names, kept.kinds, categories, values)
