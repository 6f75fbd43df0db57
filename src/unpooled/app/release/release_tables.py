"""The tables of a release, from the result of a run, and a check of these tables against the preset."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unpooled.app.private_result import PrivateResult
from unpooled.app.release.binary_columns import (
    BinaryColumn,
    binary_from_rows,
    binary_from_summaries,
    binary_from_values,
)
from unpooled.app.release.released_counts import REDACTED, Counts, large_enough, rounded
from unpooled.app.result import ClusterResult
from unpooled.data.transforms import Binary, Category, Number
from unpooled.errors import InputError
from unpooled.html.formatting import cluster_letter, figure
from unpooled.privacy.presets import Preset
from unpooled.storage.spreadsheet import csv_text
from unpooled.typing import FloatArray


class ReleaseTable(NamedTuple):
    """One CSV file: its heading, its rows, and which of its columns are counts of people."""

    about: str  # the file in one sentence
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    counts: tuple[str, ...] = ()

    def csv(self) -> str:
        """Return the text of the file."""
        return csv_text([self.head, *self.rows])


@dataclass(frozen=True, eq=False)
class ReleaseContents:
    """The contents of a release: tables by file name, and the numbers for its figures."""

    tables: dict[str, ReleaseTable]
    sites: tuple[str, ...]
    by_site: Counts  # (sites, clusters)
    means: list[tuple[str, list[str], list[float]]]  # (column, mean by cluster, distance in deviations)
    redacted: int  # cells
    certain: tuple[str, ...]  # cells that apply to nobody, or to everybody of a cluster

    @property
    def population(self) -> float:
        return float(self.by_site.values.sum())


def build_release(result: ClusterResult, preset: Preset, uncertain: Sequence[str] = ()) -> ReleaseContents:
    """Return the tables of a run without noise; InputError names the number that breaks the preset.

    For the columns ``uncertain``, numbers that apply to nobody or to everybody of a cluster are redacted.
    """
    sizes = result.sizes
    named = [column.name for column in result.agreement.preparation.columns]
    for name in uncertain:
        if name not in named:
            raise InputError(f"--uncertain: there is no column {name!r}; columns are {', '.join(named)}")
    if result.agreement.used < preset.min_people:
        raise InputError(
            f"the run has {result.agreement.used:.0f} {result.unit}; {preset.name} discloses no number about "
            f"fewer than {preset.min_people}"
        )
    for j, size in enumerate(sizes.tolist()):
        if not large_enough(np.array([size]), preset)[0] or not size:
            small = f" (rounded {rounded(np.array(size), preset.rounding):.0f})"
            raise InputError(
                f"cluster {cluster_letter(j)} has {size:.0f} {result.unit}"
                f"{small if size >= preset.min_people else ''}; {preset.name} discloses no "
                f"number about fewer than {preset.min_people}. Try fewer clusters."
            )
    sites = result.description.sites
    by_site = Counts.from_counts(
        np.array([[result.size_at(i, j) for j in range(result.k)] for i in range(len(sites))]), preset
    )
    categories, redacted_categories, certain = _categories(result, preset, uncertain)
    profiles, means, rates, redacted_means = _profiles(result, preset, by_site, uncertain)
    unit = result.unit
    tables = {
        "clusters.csv": ReleaseTable(
            f"The number of {unit} in each cluster.",
            ("cluster", unit),
            [(cluster_letter(j), by_site.total(j)) for j in range(result.k)],
            (unit,),
        ),
        "clusters_by_site.csv": ReleaseTable(
            f"The number of {unit} of each site in each cluster; the last line is the sum of those above.",
            ("site", *(f"cluster_{cluster_letter(j)}" for j in range(result.k))),
            [
                *(
                    (site, *(by_site.text(i, j) for j in range(result.k)))
                    for i, site in sorted(enumerate(sites), key=lambda pair: pair[1])
                ),
                ("total", *(by_site.total(j) for j in range(result.k))),
            ],
            tuple(f"cluster_{cluster_letter(j)}" for j in range(result.k)),
        ),
        "profiles.csv": profiles,
        "scores.csv": _scores(result, by_site),
    }
    if categories is not None:
        tables["categories.csv"] = categories
    redacted = by_site.redacted + redacted_categories + redacted_means
    return ReleaseContents(tables, sites, by_site, means, redacted, (*rates, *certain))


def _profiles(
    result: ClusterResult, preset: Preset, by_site: Counts, uncertain: Sequence[str]
) -> tuple[ReleaseTable, list[tuple[str, list[str], list[float]]], list[str], int]:
    """Return means by cluster, values for the figure, rates of nobody or everybody, redacted cells."""
    transform = result.agreement.preparation
    unit, rows, drawn, certain, redacted = result.unit, [], [], [], 0
    places = {label: j for j, (label, category) in enumerate(transform.outputs) if not category}
    spreads = {
        (c, t.column): (t.value, t.spread)
        for c in range(result.k)
        for t in result.column_means(c)
        if not t.category
    }
    counted = behind(result)
    for column in transform.columns:
        if not isinstance(column, Number):
            continue
        label = column.label
        cells, sizes = [spreads[c, label] for c in range(result.k)], counted[:, places[label]]
        twos = _two_values(result, column, cells, sizes)
        two = twos[0] if twos else None
        weights = _weights(result, preset, by_site, sizes)
        released = []
        for c, (mean, spread) in enumerate(cells):
            counts, with_high = sizes[c : c + 1], math.nan
            if two is not None:
                share = min(max((mean - two.low) / (two.high - two.low), 0.0), 1.0)
                computable = weights[c] * np.array([share, 1 - share])
                counts = np.concatenate([computable.round(6), *([t.lows[c], t.highs[c]] for t in twos)])
                with_high = float(rounded(computable[:1], preset.rounding)[0])
            is_certain = with_high in (0.0, weights[c])
            enough = bool(weights[c]) and large_enough(counts, preset).all()
            if not enough or (is_certain and column.name in uncertain):
                released.append((REDACTED, REDACTED))
                redacted += 1
            elif two is not None:
                released.append((_mean_of_two(two, with_high / float(weights[c])), ""))
                if is_certain:
                    people = f"all {unit}" if with_high else "nobody"
                    certain.append(f"{label} {two.high:g}: {people} of cluster {cluster_letter(c)}")
            else:
                released.append((rounded_mean(mean, spread), rounded_mean(spread, spread)))
        kind = "rate" if two is not None and two.is_rate else "mean"
        disclosed = np.array([mean != REDACTED for mean, _ in released])
        mean_of_all = _overall(released, disclosed * weights)
        rows += [
            (label, cluster_letter(c), f"{weights[c]:.0f}" if weights[c] else REDACTED, kind, *released[c])
            for c in range(result.k)
        ]
        total = f"{weights[disclosed].sum():.0f}" if disclosed.any() else REDACTED
        rows.append((label, "all disclosed", total, kind, mean_of_all, ""))
        drawn.append((label, [mean for mean, _ in released], _effects(released, weights, mean_of_all, two)))
    table = ReleaseTable(
        f"The mean of each column in each cluster, over its {unit}{_counted_people(result)} A column of 0 "
        "and 1 has the rate of 1, computed from rounded counts. A column that may have two other values has "
        "a mean computed from rounded counts, and no deviation. The last line of a column is the mean of the "
        "lines above it, weighted by their counts.",
        ("column", "cluster", unit, "kind", "value", "standard_deviation"),
        rows,
        (unit,),
    )
    return table, drawn, certain, redacted


def behind(result: ClusterResult) -> FloatArray:
    """Return (k, d) the rows behind the mean of each prepared column in each cluster."""
    known = result.description.known
    if known is not None:
        return known
    return np.repeat(result.sizes[:, None], result.agreement.preparation.width, axis=1)


def _weights(result: ClusterResult, preset: Preset, by_site: Counts, sizes: FloatArray) -> FloatArray:
    """Return (k,) the count beside the means of a column; 0 where it is redacted.

    It is the count of the cluster in the other tables; if rows without a value are left out, their rounded
    number, which is not above it.
    """
    totals: FloatArray = by_site.values.sum(axis=0)
    if not result.keeps_missing:
        return totals
    enough = large_enough(sizes, preset) & (totals > 0)
    fewer = np.minimum(rounded(sizes, preset.rounding), totals)
    weights: FloatArray = np.where(enough, np.where(sizes == result.sizes, totals, fewer), 0.0)
    return weights


def _counted_people(result: ClusterResult) -> str:
    if result.keeps_missing:
        return " with a value, which are counted."
    return ". Counts cover the sites whose counts are disclosed; missing values are filled."


def rounded_mean(mean: float, spread: float) -> str:
    """Return a mean to the second digit of its standard deviation; of a constant, three digits.

    >>> rounded_mean(48.731, 8.82), rounded_mean(52314.7, 17000.0), rounded_mean(2015.31, 0.42)
    ('48.7', '52000', '2015.31')
    """
    if not (math.isfinite(mean) and math.isfinite(spread)):
        return REDACTED
    scale = spread if spread > 0 else abs(mean) / 10
    if not scale:
        return "0"
    digits = 1 - math.floor(math.log10(scale))
    return f"{round(mean, digits) + 0.0:.{max(digits, 0)}f}"


def _two_values(
    result: ClusterResult, column: Number, cells: list[tuple[float, float]], sizes: FloatArray
) -> list[BinaryColumn]:
    """Return the pairs of values that a column can have; none if it is not a binary column."""
    a = result.agreement
    means, spreads = np.array(cells).T
    if isinstance(column, Binary):
        return [binary_from_values(column.low, column.high, means, sizes)]
    filled = 0.0
    if not result.keeps_missing and not a.preparation.drop and column.name in a.columns:
        filled = float(a.missing[:, a.columns.index(column.name)].sum())
    if not a.from_summaries and math.isfinite(filled) and not (filled and result.suppressed):
        return binary_from_rows(means, spreads, sizes, column.fill, round(filled))
    labels = [c.label for c in a.preparation.columns]
    within = a.within[labels.index(column.label)] * column.scale**2
    known = not a.from_summaries or within > 0
    return binary_from_summaries(means, np.maximum(spreads**2 - within, 0.0), within, sizes, known=known)


def _mean_of_two(two: BinaryColumn, share: float) -> str:
    """Return the mean of two values from rounded counts: a rate, or to a hundredth of their distance."""
    span = two.high - two.low
    return figure(share) if two.is_rate else rounded_mean(two.low + span * share, span / 10)


def _overall(released: list[tuple[str, str]], weights: FloatArray) -> str:
    """Return the mean over clusters, from released numbers alone, so that it discloses nothing more."""
    pairs = [(_number(mean), w) for (mean, _), w in zip(released, weights, strict=True) if mean != REDACTED]
    total = sum(w for _, w in pairs)
    return figure(sum(m * w for m, w in pairs) / total) if total else REDACTED


def _effects(
    released: list[tuple[str, str]], weights: FloatArray, overall: str, two: BinaryColumn | None
) -> list[float]:
    """Return the distance of each mean from that of all in standard deviations, from released numbers."""
    means = np.array([_number(mean) for mean, _ in released])
    inside = np.array([_number(spread) for _, spread in released]) ** 2
    if two is not None:
        inside = (means - two.low) * (two.high - means)
    there = ~np.isnan(means)
    middle = _number(overall)
    variance = (
        np.average(inside[there] + (means[there] - middle) ** 2, weights=weights[there]) if there.any() else 0
    )
    scale = math.sqrt(max(float(variance), 0.0))
    return [float(m - middle) / scale if scale > 0 else 0.0 for m in means]


def _number(text: str) -> float:
    return math.nan if text in (REDACTED, "-", "") else float(text)


def _categories(
    result: ClusterResult, preset: Preset, uncertain: Sequence[str]
) -> tuple[ReleaseTable | None, int, tuple[str, ...]]:
    """Return counts of categories by cluster, the number of redacted cells, cells of nobody or everybody."""
    transform, unit = result.agreement.preparation, result.unit
    values = transform.undo(result.description.means)
    rows, redacted, certain, at, counted = [], 0, [], 0, behind(result)
    for column in transform.columns:
        if not isinstance(column, Category):
            at += column.width
            continue
        shares = np.clip(np.nan_to_num(values[:, at : at + column.width]), 0.0, 1.0)
        counts = np.rint(shares * counted[:, at, None])
        at += column.width
        if (
            column.name in uncertain
        ):  # all categories of the cluster: one redacted alone would be known to be 0
            counts[(counts == 0).any(axis=1)] = np.nan
        cells = Counts.from_counts(counts, preset)
        redacted += cells.redacted
        for c in range(result.k):
            complete = cells.disclosed[c].all() and cells.values[c].sum() > 0
            for place, category in enumerate(column.places):
                share = f"{cells.values[c, place] / cells.values[c].sum():.3f}" if complete else REDACTED
                rows.append((column.label, category, cluster_letter(c), cells.text(c, place), share))
                if complete and cells.values[c, place] in (0.0, cells.values[c].sum()):
                    people = "nobody" if not cells.values[c, place] else f"all {unit}"
                    certain.append(f"{column.label} {category}: {people} of cluster {cluster_letter(c)}")
    if not rows:
        return None, 0, ()
    about = (
        f"The number of {unit} with each category of a column in each cluster"
        f"{'' if result.keeps_missing else ', missing values filled'}; shares are of the rounded counts."
    )
    return (
        ReleaseTable(about, ("column", "category", "cluster", unit, "share"), rows, (unit,)),
        redacted,
        tuple(certain),
    )


def _scores(result: ClusterResult, by_site: Counts) -> ReleaseTable:
    rows = [
        (str(s.k), f"{by_site.values.sum():.0f}", *map(_three, (s.inertia, s.silhouette, s.stability)))
        for s in result.choice.scores
    ]
    return ReleaseTable(
        f"Figures of the whole clustering for each number of clusters, over all {result.unit}.",
        ("k", result.unit, "inertia", "simplified silhouette", "stability"),
        rows,
        (result.unit,),
    )


def _three(value: float) -> str:
    """Return a number with three digits.

    >>> _three(123456.0), _three(0.23719), _three(float("nan"))
    ('123000', '0.237', '-')
    """
    return rounded_mean(value, abs(value) / 10) if math.isfinite(value) else "-"


def build_private_release(result: PrivateResult, preset: Preset) -> ReleaseContents:
    """Return the tables of a run with differential privacy; its noisy numbers are only rounded."""
    state, order = result.run.state, [int(j) for j in result.order]
    counts = Counts.from_counts(np.maximum(state.sizes[order], 0.0)[None, :], preset)
    columns = result.method.columns
    tables = {
        "clusters.csv": ReleaseTable(
            "The number of rows in each cluster, with noise.",
            ("cluster", "rows"),
            [(cluster_letter(i), counts.total(i)) for i in range(len(order))],
            ("rows",),
        ),
        "profiles.csv": ReleaseTable(
            "The centre of each cluster, with noise.",
            ("column", "cluster", "rows", "mean"),
            [
                (name, cluster_letter(i), counts.total(i), figure(float(state.centers[j][at])))
                for at, name in enumerate(columns)
                for i, j in enumerate(order)
            ],
            ("rows",),
        ),
    }
    drawn: list[tuple[str, list[str], list[float]]] = [
        (name, [figure(float(state.centers[j][at])) for j in order], []) for at, name in enumerate(columns)
    ]
    return ReleaseContents(tables, ("all sites",), counts, drawn, 0, ())


def breaches(tables: dict[str, ReleaseTable], preset: Preset) -> list[str]:
    """Return the counts that break the preset, as they are written: file, row and value."""
    wrong = []
    for file, table in tables.items():
        for row in table.rows:
            for name in table.counts:
                cell = row[table.head.index(name)]
                count = 0.0 if cell == REDACTED else float(cell)
                if count % preset.rounding or 0 < count < preset.min_people:
                    wrong.append(f"{file}: {name} of {row[0]} is {cell}")
    return wrong
