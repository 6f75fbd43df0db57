"""Questions about fuzzy clusterings: sums weighted by memberships, local centres, indices, borderline rows.

A membership u is the degree to which a row belongs to a cluster; a row's memberships sum to 1. Sites suppress
a cell whose effective size (sum w u^m)^2 / sum (w u^m)^2 is below their minimum, and disclose at most
rows / minimum cells: every cell is a sum over all rows, so many cells of few rows would reveal the rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from unpooled import kernels
from unpooled.errors import InputError
from unpooled.protocol.declarations import Centers, Count, Mean, Numbers, Repeats, Setting, Sum
from unpooled.protocol.limits import MAX_STEPS
from unpooled.protocol.messages import Question, Reply, Summable
from unpooled.protocol.site_batch import ReplyBatch, SiteBatch
from unpooled.protocol.suppression import complementary_suppression, effective_size, zero_suppressed
from unpooled.typing import BoolArray, FloatArray, Rows

LOCAL_STEPS = 300  # limit for a site that is asked to converge
_CHUNK = 16384  # rows at a time where the memberships themselves are needed
_CELLS = 1 << 22  # memberships, or products with vectors, at a time; fewer rows then


def check_m(m: object, where: str) -> None:
    """Raise InputError for a fuzzifier m for which memberships are not defined."""
    if isinstance(m, bool) or not isinstance(m, int | float | np.integer | np.floating) or not 1 < m < np.inf:
        raise InputError(
            f"{where}: m must be a finite number above 1, got {m!r}. Memberships go with the distance to the "
            "power -2 / (m - 1). Near m = 1 they become 0 or 1, which is k-means"
        )


def site_sizes(batch: SiteBatch) -> FloatArray:
    """Return the effective number of rows of every site (S,)."""
    if batch.weights is None:
        return batch.row_counts.astype(np.float64)
    ends = batch.offsets
    mass, squares = (
        np.diff(np.concatenate([[0.0], np.cumsum(w)])[ends]) for w in (batch.weights, batch.weights**2)
    )
    return effective_size(mass, squares)


def disclosed_fuzzy_cells(batch: SiteBatch, mass: FloatArray, squares: FloatArray) -> BoolArray:
    """Return the mask of the cells (S, ..., k) that a site discloses: large ones, at most rows / minimum."""
    if batch.minimum <= 1:
        return np.ones(mass.shape, dtype=np.bool_)
    size = effective_size(mass, squares)
    max_cells = np.floor(site_sizes(batch) / batch.minimum * (1 + 1e-9))
    rank = np.argsort(np.argsort(-size, axis=-1, kind="stable"), axis=-1, kind="stable")
    allowed = batch.large(mass, squares) & (rank < max_cells.reshape(-1, *([1] * (mass.ndim - 1))))
    return complementary_suppression(allowed, mass, squares, batch.minimum * (1 - 1e-9))


@dataclass(frozen=True, eq=False)
class FuzzySums(Summable):
    """Per start and cluster: the sums for a step of fuzzy c-means."""

    cells = "rows"

    # of weight (c' - c), c' the site's centre; with weight u^m: of u^m (x - c)
    sums: Annotated[FloatArray, Sum("R k d", rows="rows")]
    weight: Annotated[FloatArray, Sum("R k", min_value=0.0, rows="rows")]
    rows: Annotated[FloatArray, Count("R k")]  # of u under the centres that were sent
    # of u^m |x - c|^2 under the centres that were sent: J_m
    inertia: Annotated[FloatArray, Sum("R k", min_value=-1e-6, rows="rows")]


@dataclass(frozen=True, eq=False)
class AskFuzzySums(Question[FuzzySums]):
    """Sums of the rows weighted by memberships, for R sets of centres in one pass."""

    reads = "rows"
    asks_for = "for each centre: the sums of all rows, weighted by their memberships"

    centers: Annotated[FloatArray, Centers("R k d", by="memberships")]
    m: Annotated[float, Setting()]

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[FuzzySums]:
        totals = kernels.fuzzy(
            batch.X, batch.offsets, self.centers, self.m, batch.weights, threads=batch.threads
        )
        columns = (totals.sums, totals.mass, totals.rows, totals.inertia)
        if batch.minimum > 1:
            disclosed = disclosed_fuzzy_cells(batch, totals.mass, totals.squares)
            columns = tuple(zero_suppressed(disclosed, a) for a in columns)  # type: ignore[assignment]
        return ReplyBatch(FuzzySums(*columns), len(batch))


# ---------------------------------------------------------------- several steps at a site


@dataclass(frozen=True, eq=False)
class LocalRun:
    """A site's own steps from the centres it was sent."""

    centers: FloatArray  # (k, d) after the last step
    first: kernels.FuzzyTotals  # of the centres that were sent
    last: kernels.FuzzyTotals  # of the memberships that gave the final centres


def local_run(local: SiteBatch, centers: FloatArray, m: float, steps: int, rest: float) -> LocalRun:
    """Run up to ``steps`` of fuzzy c-means on one site's rows, until the centres move ``rest`` or less."""
    first: kernels.FuzzyTotals | None = None
    for _ in range(steps):
        totals = kernels.fuzzy(local.X, local.offsets, centers[None], m, local.weights, threads=local.threads)
        first = first or totals
        mass = totals.mass[0, 0]
        step = np.where(mass > 0, 1 / np.where(mass > 0, mass, 1.0), 0.0)[:, None] * totals.sums[0, 0]
        centers = centers + step
        if np.sqrt((step**2).sum(axis=1)).sum() <= rest:
            break
    assert first is not None
    return LocalRun(centers, first, totals)


def _disclosed_after_run(local: SiteBatch, run: LocalRun) -> BoolArray:
    """(k,) mask of the cells that are large under the sent centres and under the final ones."""
    cells = [
        disclosed_fuzzy_cells(local, totals.mass[:, 0], totals.squares[:, 0])[0]
        for totals in (run.first, run.last)
    ]
    both: BoolArray = cells[0] & cells[1]
    return both


@dataclass(frozen=True, eq=False)
class AskFuzzyMoves(Question[FuzzySums]):
    """Movement of the centres in ``steps`` of fuzzy c-means at the site (0: until they rest)."""

    reads = "rows"
    asks_for = "for each centre: how far it moves in some steps of fuzzy c-means on the site's rows"

    centers: Annotated[FloatArray, Centers("R k d", by="memberships")]
    m: Annotated[float, Setting()]
    steps: Annotated[int, Repeats(max_value=MAX_STEPS, zero=LOCAL_STEPS)]
    rest: Annotated[float, Setting()]
    weights: str  # sum(u^m) or sum(u)

    def answer_all(self, batch: SiteBatch) -> list[FuzzySums]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> FuzzySums:
        runs = [local_run(local, c, self.m, self.steps or LOCAL_STEPS, self.rest) for c in self.centers]
        disclosed = np.stack([_disclosed_after_run(local, run) for run in runs])
        weights = np.stack(
            [(run.last.mass if self.weights == "sum(u^m)" else run.last.rows)[0, 0] for run in runs]
        )
        moves = np.stack([run.centers for run in runs]) - self.centers
        columns = (
            weights[..., None] * moves,
            weights,
            np.stack([run.first.rows[0, 0] for run in runs]),
            np.stack([run.first.inertia[0, 0] for run in runs]),
        )
        return FuzzySums(*(zero_suppressed(disclosed, a) for a in columns))


@dataclass(frozen=True, eq=False)
class FuzzyMeans(Reply):
    """A site's own centres; only those over enough rows."""

    means: Annotated[FloatArray, Mean("disclosed d")]


@dataclass(frozen=True, eq=False)
class AskFuzzyMeans(Question[FuzzyMeans]):
    """The site's own centres after ``steps`` of fuzzy c-means (0: until they rest)."""

    reads = "rows"
    asks_for = "the centres that fuzzy c-means finds in the site's own rows"

    centers: Annotated[FloatArray, Centers("k d", by="memberships")]
    m: Annotated[float, Setting()]
    steps: Annotated[int, Repeats(max_value=MAX_STEPS, zero=LOCAL_STEPS)]
    rest: Annotated[float, Setting()]

    def answer_all(self, batch: SiteBatch) -> list[FuzzyMeans]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> FuzzyMeans:
        run = local_run(local, self.centers, self.m, self.steps or LOCAL_STEPS, self.rest)
        return FuzzyMeans(run.centers[_disclosed_after_run(local, run) & (run.last.mass[0, 0] > 0)])

    def max_lengths(self) -> dict[str, int]:
        return {"disclosed": len(self.centers)}


# ---------------------------------------------------------------- quality, sharpness, stability


def _chunks(
    local: SiteBatch, centers: FloatArray, m: float, width: int = 0
) -> Iterator[tuple[Rows, FloatArray, FloatArray]]:
    """Chunks of a site's rows, as float64, with their weights (n, 1) and memberships (n, k).

    ``width``: the numbers of another array that there are for every row, if these are more.
    """
    at_once = max(1, min(_CHUNK, _CELLS // max(len(centers), width)))
    for a in range(0, len(local.X), at_once):
        rows = np.asarray(local.X[a : a + at_once], dtype=np.float64)
        w = np.ones(len(rows)) if local.weights is None else local.weights[a : a + at_once]
        yield rows, w[:, None], kernels.memberships(rows, centers, m, threads=local.threads)


@dataclass(frozen=True, eq=False)
class FuzzyScatter(Summable):
    """Per cluster: the sums behind the fuzzy indices."""

    cells = "rows"

    rows: Annotated[FloatArray, Count("k")]  # sum of u
    sharp: Annotated[FloatArray, Sum("k", min_value=0.0, rows="rows")]  # sum of u^2
    weight: Annotated[FloatArray, Sum("k", min_value=0.0, rows="rows")]  # sum of u^m
    distance: Annotated[FloatArray, Sum("k", min_value=0.0, rows="rows")]  # sum of u^m |x - c|
    inertia: Annotated[FloatArray, Sum("k", min_value=0.0, rows="rows")]  # sum of u^m |x - c|^2


@dataclass(frozen=True, eq=False)
class AskFuzzyScatter(Question[FuzzyScatter]):
    """Distances of the rows to the centres, weighted by memberships and summed by cluster."""

    reads = "rows"
    asks_for = "for each centre: the distances of all rows to it, weighted by their memberships, in sum"

    centers: Annotated[FloatArray, Centers("k d", by="memberships")]
    m: Annotated[float, Setting()]

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[FuzzyScatter]:
        sums = np.stack([self._one(batch.site(s)) for s in range(len(batch))])
        disclosed = disclosed_fuzzy_cells(batch, sums[:, 2], sums[:, 5])
        return ReplyBatch(
            FuzzyScatter(*(zero_suppressed(disclosed, sums[:, i]) for i in range(5))), len(batch)
        )

    def _one(self, local: SiteBatch) -> FloatArray:
        out = np.zeros((6, len(self.centers)))
        for rows, w, u in _chunks(local, self.centers, self.m):
            heavy = w * u**self.m
            distance = np.stack(
                [np.sqrt(kernels.nearest(rows, c[None]).sqdist) for c in self.centers], axis=1
            )
            columns = (w * u, w * u**2, heavy, heavy * distance, heavy * distance**2, heavy**2)
            out += np.stack([c.sum(axis=0) for c in columns])
        return out


@dataclass(frozen=True, eq=False)
class Borderline(Summable):
    """Per cluster: the numbers of clear and of borderline rows among those that belong to it most.

    The two are separate cells: either may be too small to be disclosed.
    """

    clear: Annotated[FloatArray, Count("k")]
    borderline: Annotated[FloatArray, Count("k")]  # rows whose largest membership is below the limit

    @property
    def share(self) -> FloatArray:
        """Return the share (k,) of borderline rows among the disclosed ones; nan where none is."""
        disclosed = self.clear + self.borderline
        share: FloatArray = np.where(
            disclosed > 0, self.borderline / np.where(disclosed > 0, disclosed, 1.0), np.nan
        )
        return share


@dataclass(frozen=True, eq=False)
class AskBorderline(Question[Borderline]):
    """Counts of the rows of each cluster with and without a membership of at least ``limit``."""

    reads = "rows"
    asks_for = "for each cluster: how many rows clearly belong to it, and how many do not"

    centers: Annotated[FloatArray, Centers("k d", by="memberships")]
    m: Annotated[float, Setting()]
    limit: Annotated[float, Setting()] = 0.6

    def answer_all(self, batch: SiteBatch) -> list[Borderline]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> Borderline:
        k = len(self.centers)
        mass, squares = np.zeros(2 * k), np.zeros(2 * k)
        for _, w, u in _chunks(local, self.centers, self.m):
            cell = u.argmax(axis=1) + k * (u.max(axis=1) < self.limit)
            mass += np.bincount(cell, w[:, 0], 2 * k)
            squares += np.bincount(cell, w[:, 0] ** 2, 2 * k)
        counts = zero_suppressed(local.disclosed(mass, squares), mass)
        return Borderline(counts[:k], counts[k:])


@dataclass(frozen=True, eq=False)
class Directions(Summable):
    """The directions of the rows from one centre, without their distances."""

    weight: Annotated[FloatArray, Count("1")]  # sum of u^m
    # sum of u^m r (r.v) / |r|^2, r = x - c, for every vector v
    sums: Annotated[FloatArray, Sum("q d", rows="weight")]


@dataclass(frozen=True, eq=False)
class AskDirections(Question[Directions]):
    """Directions of the rows about centre ``j``, weighted by u^m, multiplied with q vectors and summed."""

    reads = "rows"
    asks_for = "for one centre: in which directions the rows lie from it, in sum"

    centers: Annotated[FloatArray, Centers("k d", by="memberships")]
    m: Annotated[float, Setting()]
    j: Annotated[int, Setting()]
    vectors: Annotated[FloatArray, Numbers("q d")]

    def answer_all(self, batch: SiteBatch) -> list[Directions]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> Directions:
        out, mass, squares = np.zeros(self.vectors.shape), 0.0, 0.0
        for rows, w, u in _chunks(local, self.centers, self.m, len(self.vectors)):
            heavy = w[:, 0] * u[:, self.j] ** self.m
            residual = rows - self.centers[self.j]
            norms = (residual**2).sum(axis=1)
            per_square = np.divide(heavy, norms, out=np.zeros_like(norms), where=norms > 0)
            out += (residual @ self.vectors.T * per_square[:, None]).T @ residual
            mass, squares = mass + heavy.sum(), squares + (heavy**2).sum()
        disclosed = local.large(np.array([mass]), np.array([squares]))
        return Directions(zero_suppressed(disclosed, np.array([mass])), np.where(disclosed, out, 0.0))
