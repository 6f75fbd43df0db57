"""Agreement of all sites on one preparation: a schema from each, then totals only.

Columns must be the same at every site, or those that all have in common are taken, or all. Numbers are
standardised by two totals, as scikit-learn's SimpleImputer and StandardScaler would on the pooled table. A
category becomes one-hot over the levels that sites name, scaled so that the whole column has the variance of
one number. Where many cells are missing they stay so, and scales are those of the cells that there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.core.messages import Message, SiteId
from unpooled.core.protocol import Steps, each, total, viewed
from unpooled.data.categories import one_hot
from unpooled.data.column_choice import Plan, settle, with_all_columns
from unpooled.data.column_scales import SHAPES, all_columns, check_rows, shaped
from unpooled.data.observed_view import Observed
from unpooled.data.plausibility import long_tail
from unpooled.data.schema import (
    AskColumns,
    AskSchema,
    ColumnTotals,
    Schema,
    check_not_noisy,
    stated_units,
)
from unpooled.data.views import Category, Number, Preparation, Shaped
from unpooled.errors import BadInput
from unpooled.questions.observed import AskObservedMoments

SCALES = ("standard", *SHAPES, "min-max", "none")
MISSING = ("auto", "keep", "fill", "drop", "refuse")
MANY = 0.05  # share of missing cells above which "auto" keeps them missing, up to which it fills them


@dataclass(frozen=True, eq=False, kw_only=True)
class Wishes(Message, wire="agreement.Wishes", version=2, since="0.2"):
    """The wanted preparation of a table."""

    columns: str | tuple[str, ...] = "same"  # "same": all sites must have the same; "common"; "any"; or names
    exclude: tuple[str, ...] = ()
    scale: str = "standard"  # of every column of numbers,
    scales: tuple[tuple[str, str], ...] = ()  # but for these: (column, its scale)
    bounds: tuple[tuple[str, float, float], ...] = ()  # for "min-max": declared, never computed from data
    missing: str = "auto"  # "keep" if many cells are missing, else "fill"
    rare: float = 0.01  # levels of less than this share of the rows are merged into "other"
    max_levels: int = 50

    def __post_init__(self) -> None:
        for scale in (self.scale, *(scale for _, scale in self.scales)):
            if scale not in SCALES:
                raise BadInput(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
        if self.missing not in MISSING:
            raise BadInput(f"missing must be one of {', '.join(MISSING)}, got {self.missing!r}")
        if not 0 <= self.rare < 1:
            raise BadInput(f"rare must be a share from 0 to below 1, got {self.rare}")
        for name, low, high in self.bounds:
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise BadInput(f"bounds of {name} must be two numbers that rise, got {low:g} to {high:g}")

    def scale_of(self, name: str) -> str:
        return dict(self.scales).get(name, self.scale)


@dataclass(frozen=True, eq=False)
class Agreement(Message, wire="agreement.Agreement", version=2, since="0.2"):
    """The preparation that sites agreed on, and the facts about their tables that it rests on."""

    preparation: Preparation
    sites: tuple[SiteId, ...]
    rows: FloatArray  # (S,) of every site
    used: float  # rows in all that are clustered
    columns: tuple[str, ...]  # (c,) those considered
    missing: FloatArray  # (S, c) missing cells; nan: some, but fewer than the site may show
    left_out: tuple[tuple[str, str], ...]  # (column, why)
    merged: tuple[tuple[str, tuple[str, ...]], ...]  # (category, its rare levels)
    warnings: tuple[str, ...]
    mean: FloatArray  # (width,) of the prepared columns
    share: FloatArray  # (width,) of each level; nan for numbers
    protection: tuple[tuple[str, ...], ...] = ()  # (S,) "copy", "trusted" or "none", and a copy's date
    within: tuple[float, ...] = ()  # of every prepared column: the variance within the groups of copies

    def in_order(self, order: Sequence[int]) -> "Agreement":
        """The same with the sites in another order, to be shown."""
        return replace(
            self,
            sites=tuple(self.sites[i] for i in order),
            rows=self.rows[list(order)],
            missing=self.missing[list(order)],
            protection=tuple(self.protection[i] for i in order),
        )

    @property
    def copied(self) -> bool:
        """True if a site answers from a copy: then a row is a person, and figures are of means of groups."""
        return any(mode == "copy" for mode, _ in self.protection)


def agree(sites: tuple[SiteId, ...], wishes: Wishes) -> Steps[Agreement]:
    """Schema agreement and preparation, in two or three exchanges."""
    # down: nothing; up: names, kinds, levels, missing cells, coarse sizes
    schemas = yield from each(sites, AskSchema())
    check_not_noisy(schemas)
    if wishes.columns == "any":
        schemas = with_all_columns(schemas)
    plan = settle(schemas, wishes.columns, wishes.exclude, wishes.max_levels)
    wishes = _decided(plan, schemas, wishes)
    plan = replace(plan, warnings=(*plan.warnings, *_told_empty(plan, wishes)))
    _check(plan, wishes)
    shapes = {name: wishes.scale_of(name) for name in plan.numbers if wishes.scale_of(name) in SHAPES}
    if shapes:
        check_rows(schemas, shapes)
    unit = stated_units(schemas, plan.numbers)
    question = AskColumns(
        plan.numbers, np.zeros(len(unit)), unit, plan.categories, plan.levels, wishes.missing == "drop"
    )
    # down: columns and levels; up: counts, sums, level counts
    first = (yield from total(sites, question)).times(unit)
    if first.rows[0] == 0:
        raise BadInput(_nothing_left(schemas, wishes))
    about = first
    if any(wishes.scale_of(name) in ("standard", *SHAPES) for name in plan.numbers):
        # down: the means; up: squares about them
        about = yield from total(
            sites, replace(question, origin=first.mean, levels=((),) * len(plan.categories))
        )
        about = about.times(unit)
    made: dict[str, Number] = {}
    if shapes:
        others = all_columns(plan.numbers, plan.categories, plan.levels) if wishes.missing == "drop" else ()
        made = yield from shaped(sites, shapes, plan.numbers, first, about, others)
    tails = [name for name in plan.numbers if name not in shapes and _has_tail(schemas, name)]
    plan = replace(
        plan, warnings=(*plan.warnings, *filter(None, (long_tail(schemas, name) for name in tails)))
    )
    agreement = _agreed(schemas, plan, wishes, first, about, made)
    if wishes.missing == "keep":
        # down: the preparation; up: the rows that have a value
        seen = yield from viewed(agreement.preparation, total(sites, AskObservedMoments()))
        agreement = replace(agreement, used=seen.n)
    return agreement


def _decided(plan: Plan, schemas: Mapping[SiteId, Schema], wishes: Wishes) -> Wishes:
    """The wishes with a decision about missing cells: "auto" keeps them if there are many."""
    if wishes.missing != "auto":
        return wishes
    rows = np.array([float(schemas[s].rows[0]) for s in plan.sites])
    many = plan.share_missing(rows) > MANY
    return replace(wishes, missing="keep" if many else "fill")


def _told_empty(plan: Plan, wishes: Wishes) -> list[str]:
    how = "every cell is filled from the other sites"
    if wishes.missing == "keep":
        how = "rows there are compared by their other columns"
    return [f"{name} at {where}: no value at all; {how}" for name, where in plan.empty]


def _has_tail(schemas: Mapping[SiteId, Schema], name: str) -> bool:
    return any(s.tail[s.names.index(name)] >= 0.4 for s in schemas.values())


def _check(plan: Plan, wishes: Wishes) -> None:
    bounded = {name for name, _, _ in wishes.bounds}
    unknown = [name for name, _ in wishes.scales if name not in plan.numbers]
    if unknown:
        raise BadInput(f"--scale for {', '.join(unknown)}, which is no column of numbers in use")
    if any(wishes.scale_of(name) == "min-max" for name in plan.numbers):
        lacking = [n for n in plan.numbers if wishes.scale_of(n) == "min-max" and n not in bounded]
        if lacking:
            raise BadInput(
                f"min-max needs declared bounds for every number; none for {', '.join(lacking)} "
                f"(e.g. --bounds {lacking[0]}=0:100)"
            )
    unknown = sorted(bounded - set(plan.numbers))
    if unknown:
        raise BadInput(f"bounds for {', '.join(unknown)}, which is no column of numbers in use")
    if wishes.missing == "refuse":
        used = [j for j, name in enumerate(plan.columns) if name in (*plan.numbers, *plan.categories)]
        bad = [(i, j) for i in range(len(plan.sites)) for j in used if plan.missing[i, j] != 0]
        if bad:
            i, j = bad[0]
            raise BadInput(
                f"missing values: column {plan.columns[j]} at site {plan.sites[i]} "
                f"(and {len(bad) - 1} more places); --missing keep, fill or drop deals with them"
            )


def _nothing_left(schemas: dict[SiteId, Schema], wishes: Wishes) -> str:
    n = sum(float(s.rows[0]) for s in schemas.values())
    if wishes.missing == "drop" and n > 0:
        return f"no row is complete in all columns ({n:g} rows); --missing fill, or fewer columns, keeps them"
    return f"no site shows any of its rows ({len(schemas)} sites, {n:g} rows shown)"


def _agreed(
    schemas: dict[SiteId, Schema],
    plan: Plan,
    wishes: Wishes,
    first: ColumnTotals,
    about: ColumnTotals,
    made: dict[str, Number],
) -> Agreement:
    left_out = list(plan.left_out)
    columns: dict[str, Number | Category] = {}
    merged: list[tuple[str, tuple[str, ...]]] = []
    n, keep = float(first.rows[0]), wishes.missing == "keep"
    bounds = {name: (low, high) for name, low, high in wishes.bounds}
    for j, name in enumerate(plan.numbers):
        if first.count[j] == 0:
            left_out.append((name, "no site shows a value"))
            continue
        if name in made:
            if made[name].scale > 0:
                columns[name] = _observed_scale(made[name], n, float(first.count[j])) if keep else made[name]
            else:
                left_out.append((name, f"constant ({made[name].shift:.6g})"))
            continue
        mean = float(first.mean[j])
        shift, scale = 0.0, 1.0
        if wishes.scale_of(name) == "standard":
            # the moments after filling: filled cells are at the mean and add nothing to the squares
            filled = mean + float(about.mean[j])
            deviation = float(about.mean[j]) ** 2 * float(about.count[j])
            cells = float(about.count[j]) if keep else n
            shift, scale = filled, float(np.sqrt(max(float(about.squares[j]) - deviation, 0.0) / cells))
            if scale <= 1e-12 * abs(filled) + 1e-300:
                left_out.append((name, f"constant ({filled:.6g})"))
                continue
            mean = filled
        elif wishes.scale_of(name) == "min-max":
            shift, scale = bounds[name][0], bounds[name][1] - bounds[name][0]
        columns[name] = Number(name, mean, shift, scale)
    start = 0
    shares: dict[str, FloatArray] = {}
    for name, levels in zip(plan.categories, plan.levels, strict=True):
        counts = first.levels[start : start + len(levels) + 1]
        start += len(counts)
        prepared_category = one_hot(
            name,
            levels,
            counts,
            counts.sum() if keep else n,
            wishes.rare,
            wishes.scale not in ("none", "min-max"),
        )
        if prepared_category is None:
            left_out.append((name, "constant" if counts.sum() else "no site shows a level"))
            continue
        columns[name], shares[name], rare = prepared_category
        if rare:
            merged.append((name, rare))
    if not columns:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out)
        raise BadInput(f"no column is left to cluster ({reasons})")
    prepared = tuple(columns[name] for name in plan.columns if name in columns)
    return Agreement(
        preparation=Observed(prepared, False) if keep else Preparation(prepared, wishes.missing == "drop"),
        sites=plan.sites,
        rows=np.array([float(schemas[s].rows[0]) for s in plan.sites]),
        used=n,
        columns=plan.columns,
        missing=plan.missing,
        left_out=tuple(left_out),
        merged=tuple(merged),
        warnings=plan.warnings,
        mean=np.concatenate(
            [
                [(c.fill - c.shift) / c.scale] if isinstance(c, Number) else shares[c.name] / c.scale
                for c in prepared
            ]
        ),
        share=np.concatenate([[np.nan] if isinstance(c, Number) else shares[c.name] for c in prepared]),
        protection=tuple(schemas[s].protection for s in plan.sites),
        within=tuple(_within(schemas, c) for c in prepared),
    )


def _observed_scale(column: Number, rows: float, known: float) -> Number:
    """A logarithm or rank with variance 1 over the cells that there are, not over all ``rows`` with fills."""
    return (
        replace(column, scale=column.scale * float(np.sqrt(rows / known)))
        if isinstance(column, Shaped)
        else column
    )


def _within(schemas: dict[SiteId, Schema], column: Number | Category) -> float:
    """The variance of a prepared column within the groups of copies, over all rows; rows as such add none."""
    inside = rows = 0.0
    for schema in schemas.values():
        j, n = schema.names.index(column.name), float(schema.rows[0])
        inside += n * float(np.nan_to_num(schema.within[j]))
        rows += n
    return inside / max(rows, 1.0) / column.scale**2
