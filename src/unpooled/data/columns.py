"""From the sites' schemas to the columns that are used: what differs, what is left out, what looks odd."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.core.messages import SiteId
from unpooled.data.schema import Schema
from unpooled.data.table import CATEGORY, EMPTY, NUMBER, TEXT
from unpooled.errors import SchemaMismatch

_FACTOR = np.log10(5.0)  # units that look mixed up: size and spread both off by this factor


@dataclass(frozen=True, eq=False)
class Plan:
    """Which columns are used and how, before any value is known."""

    sites: tuple[SiteId, ...]
    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    missing: FloatArray  # (S, columns)
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


def settle(
    schemas: Mapping[SiteId, Schema],
    columns: str | tuple[str, ...],
    exclude: tuple[str, ...],
    max_levels: int,
) -> Plan:
    """The columns to use; raises SchemaMismatch where sites do not have them alike."""
    sites = tuple(schemas)
    chosen = _chosen(schemas, columns, exclude)
    named = not isinstance(columns, str)
    left_out, numbers, categories, warnings = [], [], [], []
    for name in chosen:
        kinds = {site: schema.kinds[schema.names.index(name)] for site, schema in schemas.items()}
        found = set(kinds.values()) - {EMPTY}
        if found == {NUMBER}:
            numbers.append(name)
        elif found == {CATEGORY} and len(_levels(schemas, name)) <= max_levels:
            categories.append(name)
        elif not found:
            if named:
                raise SchemaMismatch(f"column {name} has no value at any site", _table(schemas, chosen))
            left_out.append((name, "no value at any site"))
        elif found <= {CATEGORY, TEXT}:
            why = f"text with more than {max_levels} levels"
            if named:
                raise SchemaMismatch(f"column {name} is {why}", _table(schemas, chosen))
            left_out.append((name, why))
        else:
            said = "; ".join(
                f"{kind} at {_some([s for s in sites if kinds[s] == kind])}" for kind in sorted(found)
            )
            raise SchemaMismatch(
                f"column {name} is {said}; --categories {name} takes it as a category everywhere, "
                f"--exclude {name} leaves it out",
                _table(schemas, chosen),
            )
    missing = np.array(
        [[schema.missing[schema.names.index(name)] for name in chosen] for schema in schemas.values()]
    ).reshape(len(sites), len(chosen))
    for name in numbers:
        warnings += _odd_units(schemas, name)
    return Plan(
        sites=sites,
        columns=chosen,
        numbers=tuple(numbers),
        categories=tuple(categories),
        levels=tuple(_levels(schemas, name) for name in categories),
        missing=missing,
        left_out=tuple(left_out),
        warnings=tuple(warnings),
    )


def _chosen(
    schemas: Mapping[SiteId, Schema], columns: str | tuple[str, ...], exclude: tuple[str, ...]
) -> tuple[str, ...]:
    everywhere = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    for name in exclude:
        if name not in everywhere:
            raise SchemaMismatch(
                f"column {name} is to be left out, but no site has it; columns are {', '.join(everywhere)}",
                (),
            )
    wanted = [name for name in (everywhere if isinstance(columns, str) else columns) if name not in exclude]
    lacking = {site: [n for n in wanted if n not in schema.names] for site, schema in schemas.items()}
    common = [name for name in wanted if not any(name in names for names in lacking.values())]
    if columns == "common":
        if not common:
            raise SchemaMismatch(
                f"no column is common to all {len(schemas)} sites", _table(schemas, everywhere)
            )
        return tuple(common)
    if any(lacking.values()):
        said = "; ".join(f"{site} lacks {_some(names)}" for site, names in lacking.items() if names)
        shared = [name for name in common if name in everywhere]
        hint = f"; --columns common takes the {len(shared)} that all have" if shared else ""
        if all(set(wanted) == set(names) for names in lacking.values()):
            hint = f"; columns are {_some(everywhere)}"
        raise SchemaMismatch(f"columns differ between sites: {said}{hint}", _table(schemas, wanted))
    if not wanted:
        raise SchemaMismatch("no column is left to cluster", ())
    return tuple(wanted)


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _table(
    schemas: Mapping[SiteId, Schema], columns: tuple[str, ...] | list[str]
) -> tuple[tuple[str, ...], ...]:
    """Rows of (column, kind at every site), heading first; only columns that are not alike everywhere."""
    rows = [("column", *schemas)]
    for name in columns:
        kinds = [s.kinds[s.names.index(name)] if name in s.names else "-" for s in schemas.values()]
        if len(set(kinds)) > 1 or kinds[0] in (TEXT, EMPTY, "-"):
            rows.append((name, *kinds))
    return tuple(rows)


def _levels(schemas: Mapping[SiteId, Schema], name: str) -> tuple[str, ...]:
    """The levels that any site names: as numbers where all are, else by the alphabet."""
    found = {level for s in schemas.values() for level in s.levels[s.names.index(name)]}
    try:
        return tuple(sorted(found, key=float))
    except ValueError:
        return tuple(sorted(found))


def _odd_units(schemas: Mapping[SiteId, Schema], name: str) -> list[str]:
    """Warnings for sites whose values of a column are larger or smaller than elsewhere by a large factor."""
    said = {
        site: (float(s.size[j]), float(s.spread[j]))
        for site, s in schemas.items()
        if not np.isnan(s.size[j := s.names.index(name)])
    }
    usual = [v for v in said.values() if np.isfinite(v).all()]
    if len(said) < 2 or not usual:
        return []
    warnings = []
    for site, (size, spread) in said.items():
        others = [v for other, v in said.items() if other != site and np.isfinite(v).all()]
        if not others or (len(said) == 2 and np.isfinite([size, spread]).all() and site == min(said)):
            continue  # of two sites that differ, one is named
        typical = np.median(np.array(usual if len(said) > 2 else others), axis=0)
        if np.isneginf(size):
            warnings.append(
                f"{name} at {site}: every value is 0; elsewhere it is about {_about(10 ** typical[0])}"
            )
            continue
        if np.isneginf(spread):
            if len(others) > 1 or abs(size - typical[0]) >= _FACTOR:
                warnings.append(f"{name} at {site}: every value is the same; elsewhere they differ")
            continue
        ratio = np.array([size, spread]) - typical
        if (ratio >= _FACTOR).all() or (ratio <= -_FACTOR).all():
            factor = 10 ** abs(ratio[0])
            way = "larger" if ratio[0] > 0 else "smaller"
            warnings.append(
                f"{name} at {site}: values about {_about(factor)} times {way} than elsewhere; another unit?"
            )
    return warnings


def _about(value: float) -> str:
    """
    >>> _about(316.2), _about(0.0316)
    ('320', '0.032')
    """
    return f"{float(f'{value:.2g}'):g}"
