"""The schema of several sites as that of one: a relay's answer for the tables of its sites."""

from collections.abc import Collection, Mapping

import numpy as np

from unpooled.data.categories import categories_of, two_values_of
from unpooled.data.column_differences import with_all_columns
from unpooled.data.column_kinds import CATEGORY, EMPTY, TEXT, looks_odd
from unpooled.data.schema import Schema, kinds_by_site, some
from unpooled.errors import SchemaMismatchError
from unpooled.protocol.messages import SiteId
from unpooled.typing import BoolArray, FloatArray

COLUMNS = ("same", "common", "any")
_WEAKEST_LAST = ("dp", "summary", "raw", "none")  # a run must know that some sites only answer with noise


def merged(schemas: Mapping[SiteId, Schema], columns: str) -> Schema:
    """Return the columns and categories of all sites, their rows and missing cells summed, the largest sizes.

    ``columns`` as in PreparationOptions: all sites must have the same, or the common ones are taken, or all.
    SchemaMismatchError, without the name of a site, if they do not fit each other.
    """
    if columns == "any":
        schemas = with_all_columns(schemas)
    everywhere = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    names = tuple(n for n in everywhere if all(n in schema.names for schema in schemas.values()))
    lacking = [name for name in everywhere if name not in names]
    if not names or (lacking and columns == "same"):
        raise SchemaMismatchError(
            f"its sites have different columns: {some(lacking)} not at all of them",
            kinds_by_site(schemas, everywhere),
        )
    kinds = tuple(_kind(schemas, name) for name in names)
    modes = [schema.protection[0] for schema in schemas.values()]
    dates = {schema.protection[1] for schema in schemas.values()}
    rows = np.array([float(schema.rows[0]) for schema in schemas.values()])
    return Schema(
        protection=(min(modes, key=_WEAKEST_LAST.index), dates.pop() if len(dates) == 1 else ""),
        names=names,
        kinds=kinds,
        categories=tuple(
            categories_of(schemas, name) if kind == CATEGORY else two_values_of(schemas, name)
            for name, kind in zip(names, kinds, strict=True)
        ),
        rows=np.array([rows.sum()]),
        groups=np.array([sum(float(schema.groups[0]) for schema in schemas.values())]),
        tables=np.array([sum(float(schema.tables[0]) for schema in schemas.values())]),
        missing=_missing(_of_all(schemas, names, "missing"), rows),
        size=_largest(_of_all(schemas, names, "size")),
        spread=_largest(_of_all(schemas, names, "spread")),
        within=_within(
            _of_all(schemas, names, "within"), rows, np.array([mode == "summary" for mode in modes])
        ),
        tail=_largest(_of_all(schemas, names, "tail")),
    )


def _kind(schemas: Mapping[SiteId, Schema], name: str) -> str:
    """The kind of a column at all sites, so that it is used, or left out, as if each site were asked."""
    kinds = {schema.kinds[schema.names.index(name)] for schema in schemas.values()}
    if found := kind_of_all(kinds):
        return found
    raise SchemaMismatchError(
        f"column {name} is of different kinds at its sites: {', '.join(sorted(kinds - {EMPTY}))}",
        kinds_by_site(schemas, [name]),
    )


def kind_of_all(kinds: Collection[str]) -> str:
    """Return the kind of a column that has these kinds in several tables; "" if they do not fit each other.

    >>> kind_of_all(["number", "empty"]), kind_of_all(["number", "category"])
    ('number', '')
    """
    present = set(kinds) - {EMPTY}
    if len(present) <= 1:
        return present.pop() if present else EMPTY
    if present <= {CATEGORY, TEXT}:
        return TEXT
    return looks_odd(present)


def _of_all(schemas: Mapping[SiteId, Schema], names: tuple[str, ...], fact: str) -> FloatArray:
    """(S, columns) a fact about every column."""
    return np.array([[getattr(s, fact)[s.names.index(n)] for n in names] for s in schemas.values()])


def _missing(missing: FloatArray, rows: FloatArray) -> FloatArray:
    """Missing cells in all: "some" counts as none, "nearly all" as all; nan if there are only some."""
    known = np.minimum(np.nan_to_num(missing, posinf=np.inf), rows[:, None]).sum(axis=0)
    result: FloatArray = np.where((known == 0) & np.isnan(missing).any(axis=0), np.nan, known)
    return result


def _largest(facts: FloatArray) -> FloatArray:
    """(columns,) the largest that is known; nan if none is."""
    known = np.where(np.isnan(facts), -np.inf, facts).max(axis=0)
    result: FloatArray = np.where(np.isnan(facts).all(axis=0), np.nan, known)
    return result


def _within(within: FloatArray, rows: FloatArray, grouped: BoolArray) -> FloatArray:
    """(columns,) the variance within groups, over the rows of the sites that state it; nan if none does.

    Sites that are not ``grouped`` (S,) have single rows, which add none.
    """
    stating = ~np.isnan(within) | ~grouped[:, None]
    weights = np.where(stating, rows[:, None], 0.0)
    mean = (weights * np.nan_to_num(within)).sum(axis=0) / np.maximum(weights.sum(axis=0), 1.0)
    result: FloatArray = np.where(np.isnan(within).all(axis=0), np.nan, mean)
    return result
