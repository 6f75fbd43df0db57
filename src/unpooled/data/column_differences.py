"""Errors and warnings about columns that differ between sites or do not suit the preparation options."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.data.column_kinds import EMPTY, kind_of
from unpooled.data.schema import Schema, kinds_by_site, some
from unpooled.data.table import is_unnamed
from unpooled.errors import InputError, SchemaMismatchError
from unpooled.protocol.messages import SiteId

if TYPE_CHECKING:
    from unpooled.data.schema_agreement import ColumnPlan, PreparationOptions


def exclusion_reason(kind: str, name: str) -> str:
    """Return why a column of dates, ids or codes is left out, and the option that uses it nevertheless."""
    if is_unnamed(name):
        return "looks like row numbers; with a name in the file, --numbers and that name take it as numbers"
    return kind_of(kind).why_left_out(name)


def with_all_columns(schemas: Mapping[SiteId, Schema]) -> dict[SiteId, Schema]:
    """Return the schemas as if every site had the columns of all: one that a site lacks is empty there."""
    everywhere = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    return {site: _widened(schema, everywhere) for site, schema in schemas.items()}


def _widened(schema: Schema, names: list[str]) -> Schema:
    lacking = tuple(name for name in names if name not in schema.names)
    unknown = np.full(len(lacking), np.nan)
    return replace(
        schema,
        names=schema.names + lacking,
        kinds=schema.kinds + (EMPTY,) * len(lacking),
        categories=schema.categories + ((),) * len(lacking),
        missing=np.append(schema.missing, np.full(len(lacking), float(schema.rows[0]))),
        size=np.append(schema.size, unknown),
        spread=np.append(schema.spread, unknown),
        within=np.append(schema.within, unknown),
        tail=np.append(schema.tail, unknown),
    )


def kinds_differ(
    schemas: Mapping[SiteId, Schema], name: str, columns: tuple[str, ...]
) -> SchemaMismatchError:
    """Return the error for a column of several kinds."""
    kinds = {site: schema.kinds[schema.names.index(name)] for site, schema in schemas.items()}
    differences = "; ".join(
        f"{kind} at {some([s for s in schemas if kinds[s] == kind])}"
        for kind in sorted(set(kinds.values()) - {EMPTY})
    )
    return SchemaMismatchError(
        f"column {name} is {differences}; --categorical {name} takes it as a category everywhere, "
        f"--exclude {name} leaves it out",
        kinds_by_site(schemas, columns),
    )


def columns_differ(
    schemas: Mapping[SiteId, Schema], selected: list[str], lacking: dict[SiteId, list[str]], common: list[str]
) -> SchemaMismatchError:
    """Return the error for sites that lack columns."""
    everywhere = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    differences = "; ".join(f"{site} lacks {some(names)}" for site, names in lacking.items() if names)
    shared = [name for name in common if name in everywhere]
    hint = ""
    if shared:
        hint = f"; --columns common takes the {len(shared)} that all have, --columns any takes all"
    if all(set(selected) == set(names) for names in lacking.values()):
        hint = f"; columns are {some(everywhere)}"
    return SchemaMismatchError(
        f"columns differ between sites: {differences}{hint}", kinds_by_site(schemas, selected)
    )


def excluded_by_intersection(
    schemas: Mapping[SiteId, Schema], chosen: tuple[str, ...], exclude: tuple[str, ...]
) -> list[tuple[str, str]]:
    """Return (column, reason) for the columns that some sites lack."""
    everywhere = dict.fromkeys(name for schema in schemas.values() for name in schema.names)
    return [
        (name, f"not at {some([site for site, schema in schemas.items() if name not in schema.names])}")
        for name in everywhere
        if name not in (*chosen, *exclude)
    ]


def no_rows_message(schemas: Mapping[SiteId, Schema], dropped: bool) -> str:
    """Return the reason why no row is left; ``dropped``: rows with a missing value are dropped."""
    n = sum(float(s.rows[0]) for s in schemas.values())
    if dropped and n > 0:
        return f"no row is complete in all columns ({n:g} rows); --missing fill, or fewer columns, keeps them"
    return f"no site discloses any of its rows ({len(schemas)} sites, {n:g} rows disclosed)"


def empty_column_warnings(plan: "ColumnPlan", preparation_options: "PreparationOptions") -> list[str]:
    """Return warnings about the columns that have no value at some sites."""
    how = "every cell is filled from the other sites"
    if preparation_options.missing == "keep":
        how = "rows there are compared by their other columns"
    return [f"{name} at {where}: {what}; {how}" for name, where, what in plan.empty]


def check_preparation_options(plan: "ColumnPlan", preparation_options: "PreparationOptions") -> None:
    """Raise InputError if bounds or scales are of columns not in use, or missing cells are to be refused."""
    bounded = {name for name, _, _ in preparation_options.bounds}
    unknown = [name for name, _ in preparation_options.scales if name not in plan.numbers]
    if unknown:
        raise InputError(f"--scale for {', '.join(unknown)}, which is not a column of numbers in use")
    if any(preparation_options.scale_of(name) == "min-max" for name in plan.numbers):
        lacking = [
            n for n in plan.numbers if preparation_options.scale_of(n) == "min-max" and n not in bounded
        ]
        if lacking:
            raise InputError(
                f"min-max needs declared bounds for every number; none for {', '.join(lacking)} "
                f"(e.g. --bounds {lacking[0]}=0:100)"
            )
    unknown = sorted(bounded - set(plan.numbers))
    if unknown:
        raise InputError(f"bounds for {', '.join(unknown)}, which is not a column of numbers in use")
    if preparation_options.missing == "refuse":
        used = [j for j, name in enumerate(plan.columns) if name in (*plan.numbers, *plan.categorical)]
        bad = [(i, j) for i in range(len(plan.sites)) for j in used if plan.missing[i, j] != 0]
        if bad:
            i, j = bad[0]
            raise InputError(
                f"missing values: column {plan.columns[j]} at site {plan.sites[i]} "
                f"(and {len(bad) - 1} more places); --missing keep, fill or drop deals with them"
            )
