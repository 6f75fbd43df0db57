"""The summaries that more than one method asks for: moments, cluster sums, local means, scatter.

Each Question stands above its Reply. All replies hold sums and counts; a cell below the site's minimum size
is absent, count and sum alike, as if its rows were not there.
"""

from dataclasses import dataclass

import numpy as np

from unpooled import kernels
from unpooled.codec import FloatArray
from unpooled.messages import Question, Reply, Rows, Stack, Stacked, Summable


@dataclass(frozen=True, eq=False)
class Moments(Summable):
    """How much there is, and its first two moments about an agreed origin."""

    mass: FloatArray  # (1,) sum of weights; the number of rows where there are none
    sums: FloatArray  # (d,) of x - origin
    squares: FloatArray  # (d,) of (x - origin)^2

    @property
    def n(self) -> float:
        return float(self.mass[0])

    @property
    def mean(self) -> FloatArray:
        """(d,) relative to the origin."""
        return self.sums / max(self.n, 1e-300)

    @property
    def variance(self) -> FloatArray:
        """(d,) population variance, per column."""
        return np.maximum(self.squares / max(self.n, 1e-300) - self.mean**2, 0.0)


@dataclass(frozen=True, eq=False)
class AskMoments(Question[Moments]):
    """Mass, sums and squares of the columns about ``origin`` (about zero if None)."""

    origin: FloatArray | None = None  # (d,)

    def answer_all(self, stack: Stack) -> Stacked[Moments]:
        d = stack.X.shape[1]
        origin = np.zeros(d) if self.origin is None else self.origin
        mass, sums, squares = (np.zeros((len(stack), m)) for m in (1, d, d))
        for s in range(len(stack)):
            a, b = stack.offsets[s], stack.offsets[s + 1]
            w = None if stack.weights is None else stack.weights[a:b]
            size = float(b - a) if w is None else float(w.sum())
            kept = stack.shown(np.array([size]), np.array([size if w is None else float((w * w).sum())]))
            if kept[0]:
                mass[s] = size
                sums[s], squares[s] = _column_sums(stack.X[a:b], w, origin)
        return Stacked(Moments(mass, sums, squares), len(stack))

    def reply_numbers(self, d: int) -> int:
        return 2 * d + 1


def _column_sums(X: Rows, w: FloatArray | None, origin: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted column sums of x - origin and of its square, in chunks: no second copy of the rows."""
    sums, squares = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for a in range(0, len(X), 8192):
        Z = X[a : a + 8192] - origin
        V = np.ones(len(Z)) if w is None else w[a : a + 8192]
        sums += V @ Z
        squares += V @ (Z * Z)
    return sums, squares


@dataclass(frozen=True, eq=False)
class ClusterSums(Summable):
    """Per start and cluster: mass, sums about the centre that was sent, and squared distances to it."""

    sums: FloatArray  # (R, k, d) of x - c
    mass: FloatArray  # (R, k)
    inertia: FloatArray  # (R, k)

    def means(self, centers: FloatArray, at_least: float = 0.0) -> FloatArray:
        """(R, k, d): the clusters' means; a cluster without rows, or below ``at_least``, keeps its centre."""
        full = (self.mass > 0) & (self.mass >= at_least)
        return centers + np.where(full, 1 / np.where(full, self.mass, 1), 0)[..., None] * self.sums


@dataclass(frozen=True, eq=False)
class AskClusterSums(Question[ClusterSums]):
    """Assign every row to its nearest centre, for R sets of centres in one pass, and sum up."""

    centers: FloatArray  # (R, k, d)

    def answer_all(self, stack: Stack) -> Stacked[ClusterSums]:
        t = kernels.totals(stack.X, stack.offsets, self.centers, stack.weights, threads=stack.threads)
        sums, mass, inertia = t.sums, t.mass, t.inertia
        if stack.minimum > 1:
            shown = stack.shown(mass, t.squares)
            sums, mass, inertia = sums * shown[..., None], mass * shown, inertia * shown
        return Stacked(ClusterSums(sums, mass, inertia), len(stack))

    def reply_numbers(self, d: int) -> int:
        return int(np.prod(self.centers.shape[:2])) * (d + 2)


@dataclass(frozen=True, eq=False)
class LocalMeans(Reply):
    """The means and sizes of a site's own clusters; only those large enough to be shown."""

    means: FloatArray  # (m, d)
    counts: FloatArray  # (m,)


def shown_means(
    stack: Stack, means: FloatArray, mass: FloatArray, squares: FloatArray, at_least: float
) -> list[LocalMeans]:
    """A LocalMeans per site from means (S, k, d), masses and squares (S, k); small and empty ones left out."""
    shown = stack.shown(mass, squares, at_least) & (mass > 0)
    return [LocalMeans(m[keep], w[keep]) for m, w, keep in zip(means, mass, shown, strict=True)]


@dataclass(frozen=True, eq=False)
class AskLocalMeans(Question[LocalMeans]):
    """Cluster your own rows into at most k by k-means++ and ``steps`` of Lloyd; send means and counts.

    ``at_least`` may raise the site's minimum size, never lower it.
    """

    k: int
    n_init: int = 1
    steps: int = 300
    at_least: float = 1.0

    def answer_all(self, stack: Stack) -> list[LocalMeans]:
        got = kernels.kmeans(
            stack.X,
            stack.offsets,
            self.k,
            stack.seeds,
            stack.weights,
            n_init=self.n_init,
            max_iter=self.steps,
            threads=stack.threads,
        )
        return shown_means(stack, got.centers, got.mass, got.squares, self.at_least)

    def reply_numbers(self, d: int) -> int:
        return self.k * (d + 1)


@dataclass(frozen=True, eq=False)
class Scatter(Summable):
    """Per cluster: mass, distances and squared distances to the centre, simplified silhouettes."""

    mass: FloatArray  # (k,)
    distance: FloatArray  # (k,) sums of |x - c|
    inertia: FloatArray  # (k,) sums of |x - c|^2
    silhouette: FloatArray  # (k,) sums of (b - a) / max(a, b)


@dataclass(frozen=True, eq=False)
class AskScatter(Question[Scatter]):
    """How rows lie about the centres they belong to."""

    centers: FloatArray  # (k, d)

    def answer_all(self, stack: Stack) -> Stacked[Scatter]:
        got = kernels.scatter(stack.X, stack.offsets, self.centers, stack.weights, threads=stack.threads)
        shown = stack.shown(got.mass, got.squares)
        columns = (got.mass, got.distance, got.inertia, got.silhouette)
        return Stacked(Scatter(*(c * shown for c in columns)), len(stack))

    def reply_numbers(self, d: int) -> int:
        return 4 * len(self.centers)
