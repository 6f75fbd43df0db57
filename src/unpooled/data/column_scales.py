"""Scales of columns, agreed by totals: standard ones; logarithms, ranks and the middle half.

Quantiles are found by counting: rows are assigned to the cells of a grid, as to the centres of clusters, and
the cell that holds the wanted row is cut again. A cell of equal values ends the search.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from unpooled.data.schema import ColumnTotals, Schema
from unpooled.data.transforms import Affine, Category, Number, Preparation, Shaped
from unpooled.errors import InputError
from unpooled.protocol.algorithm import Steps, together, total, transformed
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments
from unpooled.typing import BoolArray, FloatArray

SHAPES = ("robust", "log", "rank")
KNOTS = 33  # quantiles between which ranks are interpolated
_CELLS = 32  # of a grid
_CUTS = 16  # of a cell, at most; 32^12 is beyond all digits of a number
_MIDDLE = 1.3489795003921634  # the middle half of a normal distribution of variance 1


def check_rows(schemas: Mapping[SiteId, Schema], shapes: dict[str, str]) -> None:
    """Raise InputError if a column needs a shape and a site does not answer from all its rows."""
    other = [site for site, schema in schemas.items() if schema.protection[0] != "none"]
    if other:
        name, shape = next(iter(shapes.items()))
        raise InputError(
            f"--scale {shape} of {', '.join(shapes)} needs all rows of a site; {', '.join(other)} has a "
            f"summary table, or suppresses small groups. A summary table can hold logarithms "
            f"(--log-transform {name})"
        )


def all_columns(
    numbers: tuple[str, ...], categorical: tuple[str, ...], categories: tuple[tuple[str, ...], ...]
) -> tuple[Number | Category, ...]:
    """Return all columns in use, to find the rows that lack none."""
    own = zip(categorical, categories, strict=True)
    return (
        *(Number(name, 0.0, 0.0, 1.0) for name in numbers),
        *(Category(name, named, True, 0, 1.0) for name, named in own),
    )


def shaped(
    sites: tuple[SiteId, ...],
    shapes: dict[str, str],
    numbers: Sequence[str],
    first: ColumnTotals,
    about: ColumnTotals,
    others: tuple[Number | Category, ...],
) -> Steps[dict[str, Number]]:
    """Return the columns of numbers with a shape of their own, ready for a preparation.

    ``first`` and ``about`` are totals of all columns, about 0 and about the means. If rows with a missing
    value are dropped, ``others`` are all columns that must be there; else it is empty.
    """
    made = yield from together(
        [
            _one(sites, name, shapes[name], _moments(first, about, list(numbers).index(name)), others)
            for name in shapes
        ]
    )
    return dict(zip(shapes, made, strict=True))


def _moments(first: ColumnTotals, about: ColumnTotals, j: int) -> tuple[float, float, int, int]:
    """Mean, standard deviation, present and missing values of a column."""
    count = float(about.count[j])
    mean = float(first.mean[j]) + float(about.mean[j])
    variance = float(about.squares[j]) / max(count, 1.0) - float(about.mean[j]) ** 2
    return mean, float(np.sqrt(max(variance, 0.0))), round(count), round(float(first.rows[0]) - count)


def _one(
    sites: tuple[SiteId, ...],
    name: str,
    shape: str,
    moments: tuple[float, float, int, int],
    others: tuple[Number | Category, ...],
) -> Steps[Number]:
    mean, sd, n, missing = moments
    if is_constant(mean, sd):
        return Number(name, mean, mean, 0.0)  # constant: it is left out
    if shape == "log":
        return (yield from _standardised(sites, Shaped(name, 0.0, 0.0, 1.0, "log", ()), n, others))
    # units of standard deviations: all values lie within sqrt(n) of them (Samuelson's inequality)
    reach = float(np.sqrt(n)) + 1.0
    shares = [0.25, 0.5, 0.75] if shape == "robust" else np.linspace(0, 1, KNOTS).tolist()
    transform = _alone(Number(name, mean - 3 * reach * sd, mean, sd), others)
    found = yield from transformed(
        transform, _quantiles(sites, shares, n, 0 if others else missing, reach, transform.width)
    )
    values = mean + sd * found
    if shape == "rank":
        column = Shaped(name, 0.5, 0.0, 1.0, "rank", tuple(float(f"{v:.12g}") for v in values))
        return (yield from _standardised(sites, column, n, others))
    low, median, high = (float(v) for v in values)
    if is_constant(median, high - low):
        raise InputError(
            f"column {name}: the middle half of its values is {median:g}, which gives no scale; --scale "
            f"{name}=rank or {name}=standard does"
        )
    return Number(name, median, median, (high - low) / _MIDDLE)


def _alone(column: Number, others: tuple[Number | Category, ...]) -> Preparation:
    """The preparation of one column; with ``others``, of the rows that lack none of them, at weight zero."""
    rest = tuple(replace(other, scale=1e150) for other in others if other.name != column.name)
    return Preparation((column, *rest), bool(others))


def _standardised(
    sites: tuple[SiteId, ...], column: Shaped, n: int, others: tuple[Number | Category, ...]
) -> Steps[Number]:
    """The column with mean 0 and variance 1 over all rows, missing values at the mean."""
    # missing values are filled with the origin, and so add nothing to sums and squares about it
    # down: the shape; up: sums of the shaped values
    zero = replace(column, fill=0.0)
    first = yield from transformed(_alone(zero, others), total(sites, AskMoments()))
    mean = float(first.sums[0]) / max(n, 1)
    # down: the mean; up: squares about it
    filled = _alone(replace(column, fill=mean), others)
    origin = np.zeros(filled.width)
    origin[0] = mean
    second = yield from transformed(filled, total(sites, AskMoments(origin)))
    shift = mean + float(second.sums[0]) / max(n, 1)
    scale = float(np.sqrt(float(second.variance[0])))
    return replace(column, fill=shift, shift=shift, scale=scale)


def _quantiles(
    sites: tuple[SiteId, ...], shares: Sequence[float], n: int, below: int, reach: float, width: int
) -> Steps[FloatArray]:
    """The quantiles of the first prepared column, as numpy's; ``below`` rows lie under all others."""
    places = np.array(shares) * (n - 1)
    ranks = np.unique(np.concatenate([np.floor(places), np.ceil(places)]))
    values = yield from _ordered(sites, ranks + below, reach, width)
    known = dict(zip(ranks.tolist(), values.tolist(), strict=True))
    low, high = (np.array([known[float(v)] for v in f(places)]) for f in (np.floor, np.ceil))
    found: FloatArray = low + (places - np.floor(places)) * (high - low)
    return found


def _ordered(sites: tuple[SiteId, ...], ranks: FloatArray, reach: float, width: int) -> Steps[FloatArray]:
    """The values of the rows of these ranks, from 0, in the first prepared column; all are within reach."""
    low, high = np.full(len(ranks), -reach), np.full(len(ranks), reach)
    values, searching = np.zeros(len(ranks)), np.ones(len(ranks), dtype=np.bool_)
    for _ in range(_CUTS):
        at = np.flatnonzero(searching)
        step = (high[at] - low[at]) / _CELLS
        # one cell more at each end, for what is rounded across the edges; rows outside count there too
        places = low[at, None] + step[:, None] * (np.arange(_CELLS + 2) - 0.5)
        centers = np.zeros((len(at), _CELLS + 2, width))
        centers[:, :, 0] = places
        # down: a grid for each rank; up: rows, sums and squares of its cells
        cells = yield from total(sites, AskClusterSums(centers))
        for i, rank in enumerate(at):
            cell = int(np.argmax(np.cumsum(cells.mass[i]) > ranks[rank] + 0.5))
            mass = max(float(cells.mass[i, cell]), 1.0)
            off = float(cells.sums[i, cell, 0]) / mass
            values[rank] = places[i, cell] + off
            spread = float(cells.inertia[i, cell]) / mass - off * off
            low[rank], high[rank] = places[i, cell] - 0.5 * step[i], places[i, cell] + 0.5 * step[i]
            inner = 0 < cell < _CELLS + 1
            fine = step[i] <= 1e-13 * max(abs(values[rank]), 1e-3)
            searching[rank] = not ((inner and spread <= 1e-26 * reach**2) or fine)
        if not searching.any():
            break
    return values


def observed_scale(column: Number, rows: float, known: float) -> Number:
    """Return a logarithm or rank with variance 1 over the observed cells, not over all filled ``rows``."""
    return (
        replace(column, scale=column.scale * float(np.sqrt(rows / known)))
        if isinstance(column, Shaped)
        else column
    )


def standard_scale(first: ColumnTotals, about: ColumnTotals, j: int, cells: float) -> tuple[float, float]:
    """Return the mean and the standard deviation of column ``j`` over ``cells`` cells.

    ``first`` and ``about`` are totals about 0 and about the means. Filled cells are at the mean and add
    nothing to the squares.
    """
    mean = float(first.mean[j]) + float(about.mean[j])
    deviation = float(about.mean[j]) ** 2 * float(about.count[j])
    return mean, float(np.sqrt(max(float(about.squares[j]) - deviation, 0.0) / cells))


def standardise(sites: tuple[SiteId, ...]) -> Steps[Affine]:
    """Agree on the scaling to mean 0 and standard deviation 1 over all sites.

    The second total has squares about the mean that the first one gave, to avoid cancellation. A constant
    column keeps scale 1.
    """
    # down: nothing; up: mass and sums
    first = yield from total(sites, AskMoments())
    # down: the mean; up: squares about it
    second = yield from total(sites, AskMoments(first.mean))
    mean, sd = first.mean + second.mean, np.sqrt(second.variance)
    return Affine(mean, np.where(is_constant(mean, sd), 1.0, sd))


def is_constant(center: FloatArray | float, scale: FloatArray | float) -> BoolArray:
    """Return where a scale is so small that only rounding tells the values of a column apart."""
    return np.asarray(scale <= 1e-12 * np.abs(center) + 1e-300)
