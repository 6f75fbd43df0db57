"""The choice of columns: those that sites have in common, or all; their kinds and their missing cells."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.core.messages import SiteId
from unpooled.data.categories import all_differ, check_spelling, levels_of
from unpooled.data.plausibility import odd_units
from unpooled.data.schema import Schema, kinds_by_site
from unpooled.data.table import CATEGORY, CODE, DATE, EMPTY, ID, NUMBER, TEXT
from unpooled.errors import SchemaMismatch

_DIFFER = 0.1  # of a power of ten: sizes of a column that differ by more are looked at
_WHY = {
    DATE: "dates are no measurements; a number such as an age or days could be clustered by",
    ID: "looks like ids or row numbers; --numbers {0} takes it as numbers",
    CODE: "looks like codes (digits with leading zeros); --categories {0} takes it as a category",
}


@dataclass(frozen=True, eq=False)
class Plan:
    """The columns to use and their kinds, before any value is known."""

    sites: tuple[SiteId, ...]
    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    missing: FloatArray  # (S, columns)
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    empty: tuple[tuple[str, str], ...]  # (column, the sites that have no value of it)

    def share_missing(self, rows: FloatArray) -> float:
        """The share of missing cells in the columns to use, where sites have so many ``rows`` (S,).

        Few that a site does not show count as none, nearly all as all.
        """
        take = [j for j, name in enumerate(self.columns) if name in (*self.numbers, *self.categories)]
        missing = np.nan_to_num(self.missing[:, take], posinf=np.inf)
        cells = float(rows.sum()) * len(take)
        return float(np.minimum(missing, rows[:, None]).sum()) / max(cells, 1.0)


def with_all_columns(schemas: Mapping[SiteId, Schema]) -> dict[SiteId, Schema]:
    """The schemas as if every site had the columns of all: one that a site lacks is empty there."""
    everywhere = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    return {site: _widened(schema, everywhere) for site, schema in schemas.items()}


def _widened(schema: Schema, names: list[str]) -> Schema:
    lacking = tuple(name for name in names if name not in schema.names)
    unknown = np.full(len(lacking), np.nan)
    return replace(
        schema,
        names=schema.names + lacking,
        kinds=schema.kinds + (EMPTY,) * len(lacking),
        levels=schema.levels + ((),) * len(lacking),
        missing=np.append(schema.missing, np.full(len(lacking), float(schema.rows[0]))),
        size=np.append(schema.size, unknown),
        spread=np.append(schema.spread, unknown),
        within=np.append(schema.within, unknown),
        tail=np.append(schema.tail, unknown),
    )


def settle(
    schemas: Mapping[SiteId, Schema],
    columns: str | tuple[str, ...],
    exclude: tuple[str, ...],
    max_levels: int,
) -> Plan:
    """The columns to use; raises SchemaMismatch where they differ between sites."""
    sites = tuple(schemas)
    chosen = _chosen(schemas, columns, exclude)
    named = not isinstance(columns, str)
    left_out, numbers, categories, warnings = [], [], [], []
    for name in chosen:
        kinds = {site: schema.kinds[schema.names.index(name)] for site, schema in schemas.items()}
        present = set(kinds.values()) - {EMPTY}
        odd = [kind for kind in _WHY if kind in present]
        if odd and (NUMBER not in present or odd == [ID]):
            why = _WHY[odd[0]].format(name)
            if named:
                raise SchemaMismatch(f"column {name}: {why}", kinds_by_site(schemas, chosen))
            left_out.append((name, why))
        elif present == {NUMBER}:
            numbers.append(name)
        elif present == {CATEGORY} and not named and all_differ(schemas, name):
            left_out.append((name, "a different text in every row: names or ids"))
        elif present == {CATEGORY} and len(levels_of(schemas, name)) <= max_levels:
            categories.append(name)
        elif not present:
            if named:
                raise SchemaMismatch(
                    f"column {name} has no value at any site", kinds_by_site(schemas, chosen)
                )
            left_out.append((name, "no value at any site"))
        elif present <= {CATEGORY, TEXT}:
            why = f"text with more than {max_levels} levels"
            if named:
                raise SchemaMismatch(f"column {name} is {why}", kinds_by_site(schemas, chosen))
            left_out.append((name, why))
        else:
            differences = "; ".join(
                f"{kind} at {_some([s for s in sites if kinds[s] == kind])}" for kind in sorted(present)
            )
            raise SchemaMismatch(
                f"column {name} is {differences}; --categories {name} takes it as a category everywhere, "
                f"--exclude {name} leaves it out",
                kinds_by_site(schemas, chosen),
            )
    missing = np.array(
        [[schema.missing[schema.names.index(name)] for name in chosen] for schema in schemas.values()]
    ).reshape(len(sites), len(chosen))
    for name in numbers:
        if _sizes_differ(schemas, name):
            warnings += odd_units(schemas, name)
    for name in categories:
        check_spelling(schemas, name)
    empty = []
    for name in (*numbers, *categories):
        none = [site for site in sites if schemas[site].kinds[schemas[site].names.index(name)] == EMPTY]
        empty += [(name, _some(none))] if none else []
    return Plan(
        sites=sites,
        columns=chosen,
        numbers=tuple(numbers),
        categories=tuple(categories),
        levels=tuple(levels_of(schemas, name) for name in categories),
        missing=missing,
        left_out=tuple(left_out),
        warnings=tuple(warnings),
        empty=tuple(empty),
    )


def _chosen(
    schemas: Mapping[SiteId, Schema], columns: str | tuple[str, ...], exclude: tuple[str, ...]
) -> tuple[str, ...]:
    everywhere = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    unknown = [name for name in exclude if name not in everywhere]
    if unknown:
        raise SchemaMismatch(
            f"column {', '.join(unknown)} is to be left out, but no site has it; columns are "
            f"{', '.join(everywhere)}",
            (),
        )
    wanted = [name for name in (everywhere if isinstance(columns, str) else columns) if name not in exclude]
    lacking = {site: [n for n in wanted if n not in schema.names] for site, schema in schemas.items()}
    common = [name for name in wanted if not any(name in names for names in lacking.values())]
    if columns == "common":
        if not common:
            raise SchemaMismatch(
                f"no column is common to all {len(schemas)} sites", kinds_by_site(schemas, everywhere)
            )
        return tuple(common)
    if any(lacking.values()):
        differences = "; ".join(f"{site} lacks {_some(names)}" for site, names in lacking.items() if names)
        shared = [name for name in common if name in everywhere]
        hint = f"; --columns common takes the {len(shared)} that all have, any takes all" if shared else ""
        if all(set(wanted) == set(names) for names in lacking.values()):
            hint = f"; columns are {_some(everywhere)}"
        raise SchemaMismatch(
            f"columns differ between sites: {differences}{hint}", kinds_by_site(schemas, wanted)
        )
    if not wanted:
        raise SchemaMismatch("no column is left to cluster", ())
    return tuple(wanted)


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _sizes_differ(schemas: Mapping[SiteId, Schema], name: str) -> bool:
    sizes = [float(s.size[s.names.index(name)]) for s in schemas.values()]
    spreads = [float(s.spread[s.names.index(name)]) for s in schemas.values()]
    known = [v for v in sizes if not np.isnan(v)]
    return not np.isfinite(known + spreads).all() or bool(known and max(known) - min(known) > _DIFFER)
