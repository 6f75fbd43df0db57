"""Differences of outcomes between clusters, from totals: effect sizes, confidence intervals, numbers of rows.

A cluster is compared with all other clusters together. The interval of a difference of means is Welch's, that
of a difference of shares is Newcombe's (Statistics in Medicine 17, 1998, method 10). Clusters were made
without the outcomes, so the intervals take them as given; they hold for one comparison, not for all at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unpooled.data import AgreedSchema
from unpooled.data.transforms import Binary, Category, Number
from unpooled.protocol.questions.outcome_sums import OutcomeSums
from unpooled.typing import FloatArray

_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Outcome:
    """A number, or a category of an outcome column, by cluster; nan where a figure does not exist."""

    column: str
    category: str  # "" for a number
    known: FloatArray  # (k,) rows with a value
    value: FloatArray  # (k,) mean in the column's own unit, or share
    deviation: FloatArray  # (k,) standard deviation; nan for a share
    overall: float  # mean or share over all clusters
    difference: FloatArray  # (k,) of the cluster from all others together
    low: FloatArray  # (k,) 95% interval of the difference
    high: FloatArray  # (k,)
    effect: FloatArray  # (k,) Cohen's d of two means, Cohen's h of two shares
    explained: float  # of the column over all clusters: eta squared of a number, Cramér's V of categories


def outcomes_by_cluster(sums: OutcomeSums, agreement: AgreedSchema) -> list[Outcome]:
    """Return the outcomes of ``agreement`` by cluster, from their sums in prepared columns.

    The variance of a number in summary tables is that between groups and that within them, which is known
    over all rows only. If a site does not state it, intervals and effects of numbers are nan.
    """
    found, at = [], 0
    for column, within in zip(agreement.preparation.columns, agreement.within, strict=True):
        own = slice(at, at + column.width)
        at += column.width
        known, total, squares = sums.known[:, own], sums.sums[:, own], sums.squares[:, own]
        if isinstance(column, Category):
            found += _categories(column, known[:, 0], total)
        elif isinstance(column, Binary):
            low, high = ((value - column.shift) / column.scale for value in (column.low, column.high))
            counts = (total[:, 0] - low * known[:, 0]) / (high - low)
            found += _shares(column.name, (column.category,), known[:, 0], counts[:, None])
        else:
            unstated = bool(agreement.unstated_within)
            found.append(_number(column, known[:, 0], total[:, 0], squares[:, 0], within, unstated))
    return found


def _number(
    column: Number, n: FloatArray, total: FloatArray, squares: FloatArray, within: float, unstated: bool
) -> Outcome:
    """A number by cluster; squares of deviations are about 0 in prepared units."""
    inside = np.maximum(squares - total**2 / np.maximum(n, 1e-300), 0.0) + n * within  # about the own mean
    mean = _divided(total, n)
    rest_n, rest_total = n.sum() - n, total.sum() - total
    rest_mean = _divided(rest_total, rest_n)
    rest_squares = (inside.sum() - inside) + np.array(
        [_between(np.delete(n, j), np.delete(total, j)) for j in range(len(n))]
    )
    difference = mean - rest_mean
    pooled = np.sqrt(_divided(inside + rest_squares, n + rest_n - 2, above=0.0))
    some, others = (
        _divided(squared, rows - 1, above=0.0) / np.maximum(rows, 1.0)
        for squared, rows in ((inside, n), (rest_squares, rest_n))
    )
    reach = _welch(some, n, others, rest_n)
    if unstated:
        reach, pooled = np.full(len(n), np.nan), np.full(len(n), np.nan)
    between = _between(n, total)
    everything = between + float(inside.sum())
    return Outcome(
        column.name,
        "",
        n,
        mean * column.scale + column.shift,
        np.sqrt(_divided(inside, n - 1, above=0.0)) * column.scale,
        float(total.sum() / max(n.sum(), 1e-300)) * column.scale + column.shift,
        difference * column.scale,
        (difference - reach) * column.scale,
        (difference + reach) * column.scale,
        _divided(difference, pooled),
        between / everything if len(n) > 1 and everything > 0 and not unstated else float("nan"),
    )


def _between(n: FloatArray, total: FloatArray) -> float:
    """The squares of the means of groups about the mean of all their rows."""
    return float((total**2 / np.maximum(n, 1e-300)).sum() - total.sum() ** 2 / max(float(n.sum()), 1e-300))


def _welch(some: FloatArray, n: FloatArray, others: FloatArray, m: FloatArray) -> FloatArray:
    """Half the width of the interval of differences, from the squared standard errors of two means."""
    from scipy.special import stdtrit

    together = some + others
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = together**2 / (some**2 / (n - 1) + others**2 / (m - 1))
        reach: FloatArray = stdtrit(degrees, (1 + _LEVEL) / 2) * np.sqrt(together)
    return np.where(together > 0, reach, np.nan)


def _categories(column: Category, known: FloatArray, total: FloatArray) -> list[Outcome]:
    return _shares(column.name, column.places, known, total * column.scale)


def _shares(name: str, places: Sequence[str], known: FloatArray, counts: FloatArray) -> list[Outcome]:
    """The shares of categories by cluster; a column of two values has one of them."""
    everything = counts if counts.shape[1] > 1 else np.column_stack([counts, known[:, None] - counts])
    explained = _cramers_v(everything)
    return [_share(name, place, known, counts[:, i], explained) for i, place in enumerate(places)]


def _share(name: str, place: str, n: FloatArray, count: FloatArray, explained: float) -> Outcome:
    share = np.clip(_divided(count, n), 0.0, 1.0)
    rest_n, rest_count = n.sum() - n, count.sum() - count
    rest = np.clip(_divided(rest_count, rest_n), 0.0, 1.0)
    low, high = _wilson(share, n)
    rest_low, rest_high = _wilson(rest, rest_n)
    difference = share - rest
    return Outcome(
        name,
        place,
        n,
        share,
        np.full(len(n), np.nan),
        float(count.sum() / max(n.sum(), 1e-300)),
        difference,
        difference - np.sqrt((share - low) ** 2 + (rest_high - rest) ** 2),
        difference + np.sqrt((high - share) ** 2 + (rest - rest_low) ** 2),
        2 * (np.arcsin(np.sqrt(share)) - np.arcsin(np.sqrt(rest))),
        explained,
    )


def _wilson(share: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Wilson's interval of shares; nan where there are no rows."""
    from scipy.special import ndtri

    z = float(ndtri((1 + _LEVEL) / 2))
    n = np.where(n > 0, n, np.nan)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return middle - reach, middle + reach


def _cramers_v(counts: FloatArray) -> float:
    """Cramér's V of counts (clusters, categories); nan if there is one row or one column.

    >>> _cramers_v(np.array([[10.0, 0.0], [0.0, 10.0]]))
    1.0
    """
    counts = np.maximum(counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0], 0.0)
    smaller = min(counts.shape) - 1
    if smaller < 1:
        return float("nan")
    n = counts.sum()
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / n
    return float(np.sqrt(((counts - expected) ** 2 / expected).sum() / (n * smaller)))


def _divided(values: FloatArray, by: FloatArray, above: float = 1e-300) -> FloatArray:
    """Values by numbers; nan where a number is not above ``above``."""
    quotients: FloatArray = np.divide(values, by, out=np.full(len(values), np.nan), where=by > above)
    return quotients
