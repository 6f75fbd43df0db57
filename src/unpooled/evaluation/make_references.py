"""The reference tables of an analysis, from totals: histograms, shares, covariance, sizes of sites."""

from typing import Any

import numpy as np

from unpooled.data import AgreedSchema
from unpooled.data.transforms import Binary, Category, Number, Preparation
from unpooled.evaluation.reference_scores import References
from unpooled.evaluation.reference_tables import (
    ReferenceColumn,
    category,
    column,
    few_values,
    fit_model,
    grid,
)
from unpooled.protocol.algorithm import Steps, together, total, transformed
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.cluster_sums import AskClusterSums, ClusterSums
from unpooled.typing import FloatArray, IntArray

REFERENCES = 20
MAX_ROWS = 1000  # of a reference table, and of the two halves of the data together
_ROWS_PER_CELL = 12  # of a histogram, on average, at a site that suppresses small cells


def histograms(
    sites: tuple[SiteId, ...], agreement: AgreedSchema, covariance: FloatArray
) -> Steps[list[ClusterSums | None]]:
    """Return the histogram of every column; None for a category, and for a number with two values."""

    def one(j: int, at: int) -> Steps[Any]:
        wanted = agreement.preparation.columns[j]
        if isinstance(wanted, Category | Binary):
            return None
        cells = middles(agreement, covariance, at)[:, None]
        # down: the middles of cells; up: rows, sums and squares of each cell
        alone = Preparation((wanted,), drop=True)
        return (yield from transformed(alone, total(sites, AskClusterSums(cells[None]))))

    starts = _starts(agreement)
    return (yield from together([one(j, at) for j, at in enumerate(starts[:-1])]))


def middles(agreement: AgreedSchema, covariance: FloatArray, at: int) -> FloatArray:
    """Return the middles of the cells of a prepared column: fewer if sites suppress small cells."""
    suppressing = [
        rows for rows, (mode, _) in zip(agreement.rows, agreement.protection, strict=True) if mode == "raw"
    ]
    cells = float(np.median(suppressing)) / _ROWS_PER_CELL if suppressing else np.inf
    deviation = float(np.sqrt(max(covariance[at, at], 1e-300)))
    spread: FloatArray = agreement.mean[at] + deviation * grid(int(min(cells, 1e6)))
    return spread


def make_references(
    agreement: AgreedSchema,
    cells: list[ClusterSums | None],
    covariance: FloatArray,
    rng: np.random.Generator,
) -> References:
    """Return reference tables like the agreed one, in as many groups if sites have summary tables."""
    starts = _starts(agreement)
    columns = [_column(agreement, j, int(starts[j]), cells[j], covariance) for j in range(len(cells))]
    n = round(min(agreement.used, MAX_ROWS))
    group_size = people_in_a_group(agreement)
    # tables of one size: a relay does not tell how its rows are divided
    tables = min(int(agreement.tables.sum()), n // group_size) if group_size > 1 else 1
    site_rows = np.diff(np.rint(np.linspace(0, n, max(tables, 1) + 1))).astype(np.int64)
    model = fit_model(columns, covariance, site_rows, group_size, rng)
    rows = model.tables(REFERENCES, rng)
    if agreement.preparation.keeps_missing:
        missing = rng.random((len(rows.X), len(columns))) < _lost(agreement)
        missing[missing.all(axis=1), 0] = False  # a row without any value is not in the data either
        rows.X[np.repeat(missing, np.diff(starts), axis=1)] = np.nan
    return References(rows, int(rng.integers(2**31)))


def people_in_a_group(agreement: AgreedSchema) -> int:
    """Return the people in a group of the summary tables, rounded down; 1 if sites answer from rows."""
    return int(max(float(agreement.rows.sum()) // max(float(agreement.groups.sum()), 1.0), 1.0))


def coded_columns(agreement: AgreedSchema) -> list[slice]:
    """Return the prepared columns of each category, and of each number with two values."""
    starts, columns = _starts(agreement), agreement.preparation.columns
    return [
        slice(int(a), int(b))
        for one, a, b in zip(columns, starts[:-1], starts[1:], strict=True)
        if isinstance(one, Category | Binary)
    ]


def _starts(agreement: AgreedSchema) -> IntArray:
    """The first prepared column of every column, and the number of all."""
    starts: IntArray = np.cumsum([0, *(c.width for c in agreement.preparation.columns)])
    return starts


def _lost(agreement: AgreedSchema) -> FloatArray:
    """(columns,) share of missing cells over all sites; "few" counts as none, "nearly all" as all."""
    at = [agreement.columns.index(c.name) for c in agreement.preparation.columns]
    missing = np.minimum(np.nan_to_num(agreement.missing[:, at], posinf=np.inf), agreement.rows[:, None])
    share: FloatArray = missing.sum(axis=0) / max(float(agreement.rows.sum()), 1.0)
    return share


def _column(
    agreement: AgreedSchema, j: int, at: int, cells: ClusterSums | None, covariance: FloatArray
) -> ReferenceColumn:
    """A column of reference tables; where rows are groups, as wide as the people in them."""
    wanted = agreement.preparation.columns[j]
    own = slice(at, at + wanted.width)
    if isinstance(wanted, Category):
        others = np.delete(covariance[own], np.arange(at, at + wanted.width), axis=1)
        shares = agreement.share[own] / max(float(agreement.share[own].sum()), 1e-300)
        if not others.shape[1]:
            others = np.zeros((wanted.width, 1))
        return category(np.eye(wanted.width) / wanted.scale, shares, others * wanted.scale)
    if isinstance(wanted, Binary):
        share = wanted.share(wanted.shift)
        both = np.array([wanted.low, wanted.high])
        return few_values((both - wanted.shift) / wanted.scale, np.array([1 - share, share]))
    assert isinstance(wanted, Number)
    assert cells is not None
    centers = middles(agreement, covariance, at)
    inside = agreement.within[j] if agreement.within else 0.0
    deviation = float(np.sqrt(covariance[at, at] + inside))
    mass = cells.mass[0]
    if not mass.any():  # no cell is large enough to be disclosed: a normal column
        mass = np.exp(-0.5 * ((centers - agreement.mean[at]) / max(deviation, 1e-300)) ** 2)
        return column(centers, mass, centers, np.full(len(centers), np.inf), deviation)
    off = cells.sums[0, :, 0] / np.maximum(mass, 1e-300)
    variances = np.maximum(cells.inertia[0] / np.maximum(mass, 1e-300) - off**2, 0.0)
    return column(centers, mass, centers + off, variances, deviation)
