"""Agreement of all sites on one preparation: a schema from each, then totals only.

Columns must be the same at every site, or those that all have in common are taken, or all. Numbers are
standardised by two totals, as scikit-learn's SimpleImputer and StandardScaler would on the pooled table. A
categorical column becomes one-hot over the categories that sites name, scaled so that the whole column has
the variance of one number. Where many cells are missing they stay so (missing_values.py), and scales are
those of the observed cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unpooled.data.categories import (
    all_differ,
    categories_of,
    check_spelling,
    differing_categories,
    one_hot,
    two_values_of,
)
from unpooled.data.column_differences import (
    check_preparation_options,
    columns_differ,
    empty_column_warnings,
    excluded_by_intersection,
    exclusion_reason,
    kinds_differ,
    no_rows_message,
    with_all_columns,
)
from unpooled.data.column_kinds import CATEGORY, EMPTY, TEXT, has_mean, looks_odd
from unpooled.data.column_scales import (
    SHAPES,
    all_columns,
    check_rows,
    is_constant,
    observed_scale,
    shaped,
    standard_scale,
)
from unpooled.data.missing_values import MISSING, PreparationWithMissing, decided, more_frequent
from unpooled.data.plausibility import constant_somewhere, long_tails, odd_units
from unpooled.data.schema import (
    AskColumns,
    AskSchema,
    ColumnTotals,
    Schema,
    check_not_noisy,
    kinds_by_site,
    some,
    stated_units,
)
from unpooled.data.transforms import Binary, Category, Number, Preparation, number_column
from unpooled.errors import InputError, SchemaMismatchError
from unpooled.options.preparation import PreparationChoices
from unpooled.protocol.algorithm import Steps, each, total, transformed
from unpooled.protocol.messages import Message, SiteId
from unpooled.protocol.questions.sums_with_missing import AskObservedMoments
from unpooled.typing import FloatArray

_DIFFER = 0.1  # of a power of ten: sizes of a column that differ by more are looked at


@dataclass(frozen=True, eq=False)
class ColumnPlan:
    """The columns to use and their kinds, before any value is known."""

    sites: tuple[SiteId, ...]
    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    kinds: dict[str, str]  # of the numbers
    two_values: dict[str, tuple[float, float]]  # of the numbers that have no more over all sites
    categorical: tuple[str, ...]
    categories: tuple[tuple[str, ...], ...]
    missing: FloatArray  # (S, columns)
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    odd_units: tuple[str, ...]  # of the warnings, those about a column in another unit at some sites
    empty: tuple[tuple[str, str, str], ...]  # (column, the sites that state no value of it, in which words)

    def share_missing(self, rows: FloatArray) -> float:
        """Return the share of missing cells in the columns to use, where sites have ``rows`` (S,) rows.

        An undisclosed small number counts as zero, "nearly all" as all.
        """
        take = [j for j, name in enumerate(self.columns) if name in (*self.numbers, *self.categorical)]
        missing = np.nan_to_num(self.missing[:, take], posinf=np.inf)
        cells = float(rows.sum()) * len(take)
        return float(np.minimum(missing, rows[:, None]).sum()) / max(cells, 1.0)


def plan_columns(
    schemas: Mapping[SiteId, Schema],
    columns: str | tuple[str, ...],
    exclude: tuple[str, ...],
    max_categories: int,
    outcomes: tuple[str, ...] = (),
) -> ColumnPlan:
    """Return the columns to use; SchemaMismatchError if they differ between sites."""
    sites = tuple(schemas)
    chosen = _chosen(schemas, columns, exclude, outcomes)
    named = not isinstance(columns, str)
    others = (*exclude, *outcomes)
    left_out = excluded_by_intersection(schemas, chosen, others) if columns == "common" else []
    numbers, categorical, warnings = [], [], []
    of_numbers: dict[str, str] = {}
    for name in chosen:
        kinds = {site: schema.kinds[schema.names.index(name)] for site, schema in schemas.items()}
        present = set(kinds.values()) - {EMPTY}
        if odd := looks_odd(present):
            why = exclusion_reason(odd, name)
            if named:
                raise SchemaMismatchError(f"column {name}: {why}", kinds_by_site(schemas, chosen))
            left_out.append((name, why))
        elif len(present) == 1 and all(map(has_mean, present)):
            numbers.append(name)
            (of_numbers[name],) = present
        elif present == {CATEGORY} and not named and all_differ(schemas, name):
            left_out.append((name, "a different text in every row: names or ids"))
        elif present == {CATEGORY} and len(categories_of(schemas, name)) <= max_categories:
            categorical.append(name)
        elif not present:
            if named:
                raise SchemaMismatchError(
                    f"column {name} has no value at any site", kinds_by_site(schemas, chosen)
                )
            left_out.append((name, "no value at any site"))
        elif present <= {CATEGORY, TEXT}:
            why = f"text with more than {max_categories} categories"
            if named:
                raise SchemaMismatchError(f"column {name} is {why}", kinds_by_site(schemas, chosen))
            left_out.append((name, why))
        else:
            raise kinds_differ(schemas, name, chosen)
    missing = np.array(
        [[schema.missing[schema.names.index(name)] for name in chosen] for schema in schemas.values()]
    ).reshape(len(sites), len(chosen))
    units = []
    for name in numbers:
        if _sizes_differ(schemas, name):
            units += (apart := odd_units(schemas, name))
            warnings += [*constant_somewhere(schemas, name), *apart]
    for name in categorical:
        check_spelling(schemas, name)
        warnings += filter(None, [differing_categories(schemas, name)])
    empty = []
    for name in (*numbers, *categorical):
        for what, grouped in (("no value at all", False), ("no value that enough people have", True)):
            none = [
                site
                for site in sites
                if schemas[site].kinds[schemas[site].names.index(name)] == EMPTY
                and (schemas[site].protection[0] == "summary") is grouped
            ]
            empty += [(name, some(none), what)] if none else []
    return ColumnPlan(
        sites=sites,
        columns=chosen,
        numbers=tuple(numbers),
        kinds=of_numbers,
        two_values={
            name: (float(both[0]), float(both[1]))
            for name in numbers
            if len(both := two_values_of(schemas, name)) == 2
        },
        categorical=tuple(categorical),
        categories=tuple(categories_of(schemas, name) for name in categorical),
        missing=missing,
        left_out=tuple(left_out),
        warnings=tuple(warnings),
        odd_units=tuple(units),
        empty=tuple(empty),
    )


def _chosen(
    schemas: Mapping[SiteId, Schema],
    columns: str | tuple[str, ...],
    exclude: tuple[str, ...],
    outcomes: tuple[str, ...],
) -> tuple[str, ...]:
    everywhere = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    unknown = [name for name in exclude if name not in everywhere]
    if unknown:
        raise SchemaMismatchError(
            f"--exclude {', '.join(unknown)}: no site has this column; columns are {', '.join(everywhere)}",
            (),
        )
    others = (*exclude, *outcomes)
    selected = [name for name in (everywhere if isinstance(columns, str) else columns) if name not in others]
    lacking = {site: [n for n in selected if n not in schema.names] for site, schema in schemas.items()}
    common = [name for name in selected if not any(name in names for names in lacking.values())]
    if columns == "common":
        if not common:
            raise SchemaMismatchError(
                f"no column is common to all {len(schemas)} sites", kinds_by_site(schemas, everywhere)
            )
        return tuple(common)
    if any(lacking.values()):
        raise columns_differ(schemas, selected, lacking, common)
    if not selected:
        raise SchemaMismatchError("no column is left to cluster", ())
    return tuple(selected)


def _sizes_differ(schemas: Mapping[SiteId, Schema], name: str) -> bool:
    sizes = [float(s.size[s.names.index(name)]) for s in schemas.values()]
    spreads = [float(s.spread[s.names.index(name)]) for s in schemas.values()]
    known = [v for v in sizes if not np.isnan(v)]
    return not np.isfinite(known + spreads).all() or bool(known and max(known) - min(known) > _DIFFER)


SCALES = ("standard", *SHAPES, "min-max", "none")


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparationOptions(PreparationChoices, Message):
    """The options for the preparation of tables before clustering."""

    def __post_init__(self) -> None:
        for scale in (self.scale, *(scale for _, scale in self.scales)):
            if scale not in SCALES:
                raise InputError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
        if len(set(self.outcomes)) < len(self.outcomes):
            raise InputError(f"--outcomes must name each column once, got {', '.join(self.outcomes)}")
        both = [name for name in self.outcomes if name in self.columns and not isinstance(self.columns, str)]
        if both or (both := [name for name in self.outcomes if name in self.exclude]):
            where = "--exclude" if both[0] in self.exclude else "--columns"
            raise InputError(
                f"{both[0]} is in {where} and in --outcomes. An outcome is described by cluster and does not "
                "count in the distance: name it in --outcomes only."
            )
        if self.missing not in MISSING:
            raise InputError(f"missing must be one of {', '.join(MISSING)}, got {self.missing!r}")
        if not 0 <= self.min_category_share < 1:
            raise InputError(
                f"min_category_share must be a share from 0 to below 1, got {self.min_category_share}"
            )
        for name, low, high in self.bounds:
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise InputError(f"bounds of {name} must be two rising numbers, got {low:g} to {high:g}")

    def scale_of(self, name: str) -> str:
        return dict(self.scales).get(name, self.scale)

    @property
    def named_scales(self) -> tuple[str, ...]:
        """The scales as ``--scale`` takes them; () if all are the default."""
        usual = (self.scale,) if self.scale != PreparationOptions.scale else ()
        return (*usual, *(f"{name}={scale}" for name, scale in self.scales))


@dataclass(frozen=True, eq=False)
class AgreedSchema(Message):
    """The preparation that sites agreed on, and the facts about their tables behind it."""

    preparation: Preparation
    sites: tuple[SiteId, ...]
    rows: FloatArray  # (S,) of every site
    groups: FloatArray  # (S,) of a summary table; else the rows
    tables: FloatArray  # (S,) behind the answers: 1; of a relay those of its members
    used: float  # rows in all that are clustered
    columns: tuple[str, ...]  # (c,) those considered
    missing: FloatArray  # (S, c) missing cells; nan: some, but fewer than the site may disclose
    left_out: tuple[tuple[str, str], ...]  # (column, reason)
    merged: tuple[tuple[str, tuple[str, ...]], ...]  # (column, its rare categories)
    warnings: tuple[str, ...]
    odd_units: tuple[str, ...]  # of the warnings, those about a column in another unit at some sites
    mean: FloatArray  # (width,) of the prepared columns
    share: FloatArray  # (width,) of each category; nan for numbers
    protection: tuple[tuple[str, ...], ...] = ()  # (S,) "summary", "raw" or "none", and a table's date
    within: tuple[float, ...] = ()  # of every prepared column: the variance within groups of summary tables
    unstated_within: tuple[SiteId, ...] = ()  # sites whose tables have too few groups to state it

    def in_order(self, order: Sequence[int]) -> "AgreedSchema":
        """Return the same with the sites in another order, for display."""
        return replace(
            self,
            sites=tuple(self.sites[i] for i in order),
            rows=self.rows[list(order)],
            groups=self.groups[list(order)],
            tables=self.tables[list(order)],
            missing=self.missing[list(order)],
            protection=tuple(self.protection[i] for i in order),
        )

    @property
    def from_summaries(self) -> bool:
        """True if a site answers from a summary table: figures are then of means of groups of people."""
        return any(mode == "summary" for mode, _ in self.protection)


def agree_schema(sites: tuple[SiteId, ...], preparation_options: PreparationOptions) -> Steps[AgreedSchema]:
    """Agree on the schema and the preparation, in two or three exchanges."""
    # down: nothing; up: names, kinds, categories, missing cells, coarse sizes
    schemas = yield from each(sites, AskSchema())
    check_not_noisy(schemas)
    if preparation_options.columns == "any":
        schemas = with_all_columns(schemas)
    plan = plan_columns(
        schemas,
        preparation_options.columns,
        preparation_options.exclude,
        preparation_options.max_categories,
        preparation_options.outcomes,
    )
    rows = np.array([float(schemas[site].rows[0]) for site in plan.sites])
    missing = decided(preparation_options.missing, plan.share_missing(rows))
    preparation_options = replace(preparation_options, missing=missing)
    warnings = list(plan.warnings)
    if plan.empty:
        warnings += empty_column_warnings(plan, preparation_options)
    of_distance = tuple(name for name in plan.numbers if preparation_options.scale_of(name) not in SHAPES)
    warnings += filter(None, [long_tails(schemas, of_distance, preparation_options.named_scales)])
    return (
        yield from _prepared(sites, schemas, replace(plan, warnings=tuple(warnings)), preparation_options)
    )


def agree_outcomes(sites: tuple[SiteId, ...], preparation_options: PreparationOptions) -> Steps[AgreedSchema]:
    """Agree on the outcome columns, in standard deviations of their observed values."""
    # down: nothing; up: names, kinds, categories, missing cells, coarse sizes
    schemas = yield from each(sites, AskSchema())
    check_not_noisy(schemas)
    schemas = with_all_columns(schemas)
    options = PreparationOptions(
        columns=preparation_options.outcomes,
        missing="keep",
        min_category_share=preparation_options.min_category_share,
        max_categories=preparation_options.max_categories,
    )
    plan = plan_columns(schemas, options.columns, (), options.max_categories)
    absent = tuple(f"outcome {name} at {where}: {what}" for name, where, what in plan.empty)
    return (yield from _prepared(sites, schemas, replace(plan, warnings=(*plan.warnings, *absent)), options))


def _prepared(
    sites: tuple[SiteId, ...],
    schemas: dict[SiteId, Schema],
    plan: ColumnPlan,
    preparation_options: PreparationOptions,
) -> Steps[AgreedSchema]:
    """Agree on scales and categories of the planned columns."""
    if (
        preparation_options.bounds
        or preparation_options.scales
        or preparation_options.scale == "min-max"
        or preparation_options.missing == "refuse"
    ):
        check_preparation_options(plan, preparation_options)
    plan = replace(plan, two_values=_as_categories(plan, preparation_options))
    shapes = {
        name: preparation_options.scale_of(name)
        for name in plan.numbers
        if preparation_options.scale_of(name) in SHAPES and name not in plan.two_values
    }
    if shapes:
        check_rows(schemas, shapes)
    unit = stated_units(schemas, plan.numbers)
    question = AskColumns(
        plan.numbers,
        np.zeros(len(unit)),
        unit,
        plan.categorical,
        plan.categories,
        preparation_options.missing == "drop",
    )
    # down: columns and categories; up: counts, sums, counts of categories
    first = (yield from total(sites, question)).times(unit)
    if first.rows[0] == 0:
        raise InputError(no_rows_message(schemas, preparation_options.missing == "drop"))
    about = first
    if any(preparation_options.scale_of(name) in ("standard", *SHAPES) for name in plan.numbers):
        # down: the means; up: squares about them
        about = yield from total(
            sites, replace(question, origin=first.mean, categories=((),) * len(plan.categorical))
        )
        about = about.times(unit)
    made: dict[str, Number] = {}
    if shapes:
        others = (
            all_columns(plan.numbers, plan.categorical, plan.categories)
            if preparation_options.missing == "drop"
            else ()
        )
        made = yield from shaped(sites, shapes, plan.numbers, first, about, others)
    agreement = _agreed(schemas, plan, preparation_options, first, about, made)
    if preparation_options.missing == "keep":
        # down: the preparation; up: the rows that have a value
        seen = yield from transformed(agreement.preparation, total(sites, AskObservedMoments()))
        agreement = replace(agreement, used=seen.n)
    return agreement


def _as_categories(
    plan: ColumnPlan, preparation_options: PreparationOptions
) -> dict[str, tuple[float, float]]:
    """The numbers with two values that are read as categories: not those whose scale was chosen by name.

    Without scaling, or between declared bounds, values stay as they are.
    """
    if preparation_options.scale in ("none", "min-max"):
        return {}
    named = {name for name, _ in preparation_options.scales}
    return {name: both for name, both in plan.two_values.items() if name not in named}


def _agreed(
    schemas: dict[SiteId, Schema],
    plan: ColumnPlan,
    preparation_options: PreparationOptions,
    first: ColumnTotals,
    about: ColumnTotals,
    made: dict[str, Number],
) -> AgreedSchema:
    left_out = list(plan.left_out)
    columns: dict[str, Number | Category] = {}
    merged: list[tuple[str, tuple[str, ...]]] = []
    n, keep = float(first.rows[0]), preparation_options.missing == "keep"
    bounds = {name: (low, high) for name, low, high in preparation_options.bounds}
    for j, name in enumerate(plan.numbers):
        if first.count[j] == 0:
            left_out.append((name, "no site discloses a value"))
            continue
        if name in made:
            if made[name].scale > 0:
                columns[name] = observed_scale(made[name], n, float(first.count[j])) if keep else made[name]
            else:
                left_out.append((name, f"constant ({made[name].shift:.6g})"))
            continue
        mean = float(first.mean[j])
        if name in plan.two_values:
            low, high = plan.two_values[name]
            share, known = min(max((mean - low) / (high - low), 0.0), 1.0), float(first.count[j])
            fill = (low, high)[more_frequent(np.array([1 - share, share]))]
            columns[name] = Binary.from_share(name, low, high, share, fill, known if keep else n, known)
            if not 0 < share < 1:
                left_out.append((name, f"constant ({mean:.6g})"))
                del columns[name]
            continue
        shift, scale = 0.0, 1.0
        if preparation_options.scale_of(name) == "standard":
            mean, scale = standard_scale(first, about, j, float(about.count[j]) if keep else n)
            shift = mean
            if is_constant(mean, scale):
                left_out.append((name, f"constant ({mean:.6g})"))
                continue
        elif preparation_options.scale_of(name) == "min-max":
            shift, scale = bounds[name][0], bounds[name][1] - bounds[name][0]
        columns[name] = number_column(plan.kinds[name], name, mean, shift, scale)
    start = 0
    shares: dict[str, FloatArray] = {}
    for name, categories in zip(plan.categorical, plan.categories, strict=True):
        counts = first.categories[start : start + len(categories) + 1]
        start += len(counts)
        prepared_category = one_hot(
            name,
            categories,
            counts,
            counts.sum() if keep else n,
            preparation_options.min_category_share,
            preparation_options.scale not in ("none", "min-max"),
        )
        if prepared_category is None:
            left_out.append((name, "constant" if counts.sum() else "no site discloses a category"))
            continue
        columns[name], shares[name], rare = prepared_category
        if rare:
            merged.append((name, rare))
    if not columns:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out)
        raise InputError(f"no column is left to cluster ({reasons})")
    prepared = tuple(columns[name] for name in plan.columns if name in columns)
    return AgreedSchema(
        preparation=PreparationWithMissing(prepared, False)
        if keep
        else Preparation(prepared, preparation_options.missing == "drop"),
        sites=plan.sites,
        rows=np.array([float(schemas[s].rows[0]) for s in plan.sites]),
        groups=np.array([float(schemas[s].groups[0]) for s in plan.sites]),
        tables=np.array([float(schemas[s].tables[0]) for s in plan.sites]),
        used=n,
        columns=plan.columns,
        missing=plan.missing,
        left_out=tuple(left_out),
        merged=tuple(merged),
        warnings=plan.warnings,
        odd_units=plan.odd_units,
        mean=np.concatenate(
            [
                shares[c.name] / c.scale
                if isinstance(c, Category)
                else [0.0 if isinstance(c, Binary) else (c.fill - c.shift) / c.scale]
                for c in prepared
            ]
        ),
        share=np.concatenate([shares[c.name] if isinstance(c, Category) else [np.nan] for c in prepared]),
        protection=tuple(schemas[s].protection for s in plan.sites),
        within=tuple(_within(schemas, c) for c in prepared),
        unstated_within=tuple(
            s
            for s in plan.sites
            if any(
                _lacks_within(schemas[s], c.name) for c in prepared if not isinstance(c, Category | Binary)
            )
        ),
    )


def _within(schemas: dict[SiteId, Schema], column: Number | Category) -> float:
    """The variance of a prepared column within groups, over the rows of all sites that state it.

    Single rows add none. It is 0 if no site states it.
    """
    inside = rows = 0.0
    for schema in schemas.values():
        if not _lacks_within(schema, column.name):
            n = float(schema.rows[0])
            inside += n * float(np.nan_to_num(schema.within[schema.names.index(column.name)]))
            rows += n
    return inside / max(rows, 1.0) / column.scale**2


def _lacks_within(schema: Schema, name: str) -> bool:
    """Whether a site has groups of people, and does not state how these vary within them."""
    j = schema.names.index(name)
    varies = schema.protection[0] == "summary" and has_mean(schema.kinds[j]) and schema.spread[j] != -np.inf
    return bool(varies and np.isnan(schema.within[j]))
