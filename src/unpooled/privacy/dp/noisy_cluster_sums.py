"""The mechanism of noisy replies about clusters: counts, sums and squares about public centres, with noise.

Each row goes to its nearest centre p, and its residual x - p is cut at the site to the length rho of that
cell. One row touches one cell: it adds 1 to a count, a vector of length at most rho to a sum, at most rho^2
to a sum of squares. With noise of 1 / (mu sqrt a_c), rho / (mu sqrt a_s) and rho^2 / (mu sqrt a_q), where
a_c + a_s + a_q = 1, it shifts the reply by at most mu standard deviations, whichever cell it is in: every
cell may have its own radius and with it its own noise. All cells are released, empty ones too. Sensitivity
is the clusters' radius rather than that of the box, so the noise is small enough for small budgets.

With memberships (fuzzy c-means) a row touches all cells, and shifts the reply no more than that. It adds
u_j^m to the counts, a vector no longer than 1 since the u_j sum to 1. u_j is proportional to |x - c_j|^(-2
/ (m - 1)), so u_j^(m - 1) |x - c_j|^2 = H is the same for every cluster, at most the squared distance to
the nearest centre; so sums of u_j^m (x - c_j) have together the length sqrt(H sum u_j^(m + 1)) <= sqrt H,
and the objective's parts add up to H. In units of the cells' radii the row's sums, and its objective, are
cut, all by one factor, to length 1: rows as near to a centre as the smallest rho keep all they add.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from unpooled import kernels
from unpooled.errors import InputError
from unpooled.privacy.dp.noise import whole_steps
from unpooled.privacy.dp.private_questions import (
    NoisyArray,
    PrivateQuestion,
    bounded_rows,
    charged_noise,
    check_box,
    check_price,
)
from unpooled.protocol.declarations import Box, Centers, Noisy, Numbers, Setting, Value
from unpooled.protocol.messages import Summable
from unpooled.protocol.site_batch import SiteBatch
from unpooled.typing import FloatArray

_ROWS = 8192  # rows at once: sums of this many whole steps are exact in float64
_SMALLEST = 1e-9  # smallest radius, in diagonals of the box
_SAFE = 1 - 2.0**-40  # cut a little shorter than rho, so that rounding cannot make it longer


@dataclass(frozen=True, eq=False)
class NoisyCells(Summable):
    """Noisy count, sum of residuals and sum of squared residuals of each cell, in units of the cells'
    radii."""

    count: Annotated[FloatArray, Noisy("M")]
    sums: Annotated[FloatArray, Noisy("M d")]  # of (x - p) / rho
    squares: Annotated[FloatArray, Noisy("M")]  # of |x - p|^2 / rho^2
    # variance of its noise, in units of one release's
    noise: Annotated[FloatArray, Value("1", min_value=0.0)]

    @property
    def noises(self) -> float:
        """The standard deviation of the noise in units of one release's: sqrt(sites) if each site adds its
        own."""
        return float(np.sqrt(self.noise[0]))


@dataclass(frozen=True, eq=False)
class AskNoisyCells(PrivateQuestion[NoisyCells]):
    """Counts, sums and squares of the residuals about public centres, cut to length rho, with noise."""

    reads = "rows"
    asks_for = (
        "for each public centre: how many rows are nearest to it, and the sums of their values, with noise"
    )

    centers: Annotated[FloatArray, Centers("M d", by="noise")]
    box: Annotated[FloatArray, Box("d")]  # rows are cut to -box..box
    rho: Annotated[FloatArray, Numbers("radii")]  # length to which residuals are cut; (1,): for all cells
    shares: Annotated[tuple[float, float, float], Setting()]  # of mu^2: counts, sums, squares
    m: Annotated[float | None, Setting()] = None  # fuzzifier: memberships instead of the nearest centre

    def __post_init__(self) -> None:
        name = "AskNoisyCells"
        check_price(self, self.shares)
        check_box(self.box, name)
        if self.centers.ndim != 2 or not len(self.centers) or self.centers.shape[1] != len(self.box):
            raise InputError(
                f"{name}: centres of shape {self.centers.shape} do not fit {len(self.box)} columns"
            )
        if not np.isfinite(self.centers).all() or (np.abs(self.centers) > self.box * (1 + 1e-9)).any():
            raise InputError(f"{name}: a centre is not finite, or outside the box")
        if self.rho.ndim != 1 or len(self.rho) not in (1, len(self.centers)):
            raise InputError(
                f"{name}: rho must be one radius or {len(self.centers)}, got shape {self.rho.shape}"
            )
        smallest, largest = radius_limits(self.box)
        if not ((self.rho >= smallest) & (self.rho <= largest)).all():
            raise InputError(
                f"{name}: rho must be from {smallest:g} to the box's diagonal {largest:g}, got "
                f"{self.rho.min()} to {self.rho.max()}"
            )
        if self.m is not None and not 1 < self.m <= 100:
            raise InputError(f"{name}: m must be above 1 and at most 100, got {self.m}")

    @property
    def numbers(self) -> int:
        return len(self.centers) * (int(self.centers.shape[1]) + 2)

    @property
    def radii(self) -> FloatArray:
        """(M,) rho of every cell."""
        return np.broadcast_to(self.rho, (len(self.centers),))

    @property
    def sds(self) -> tuple[float, FloatArray, FloatArray]:
        """Standard deviations of one release: counts, sums (each column) and squares of each cell (M,)."""
        counts, sums, squares = (self.mu * share**0.5 for share in self.shares)
        return 1 / counts, self.radii / sums, self.radii**2 / squares

    def noise(self, reply: NoisyCells) -> tuple[float, FloatArray, FloatArray]:
        """Standard deviations of the noise in a total, as ``sds`` are of one release."""
        counts, sums, squares = self.sds
        return counts * reply.noises, sums * reply.noises, squares * reply.noises

    def in_units(self, reply: NoisyCells) -> NoisyCells:
        """The reply in the units of the centres, in which ``sds`` are given."""
        rho = self.radii
        return replace(reply, sums=reply.sums * rho[:, None], squares=reply.squares * rho**2)

    def answer_all(self, batch: SiteBatch) -> list[NoisyCells]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> NoisyCells:
        M, d = self.centers.shape
        count, sums, squares = (  # a row adds at most 1 to each, as a vector
            NoisyArray(shape, 1.0, self.mu * share**0.5, local)
            for shape, share in zip(((M,), (M, d), (M,)), self.shares, strict=True)
        )
        add = self._nearest if self.m is None else self._memberships
        at_once = _ROWS if self.m is None else max(1, min(_ROWS, 4_000_000 // (M * d)))
        for rows in bounded_rows(local, self.box, at_once):
            if len(rows):
                add(rows, count, sums, squares, local.threads)
        share = charged_noise(local).share
        return NoisyCells(count.out(), sums.out(), squares.out(), np.array([share**2]))

    def _nearest(
        self, rows: FloatArray, count: NoisyArray, sums: NoisyArray, squares: NoisyArray, threads: int
    ) -> None:
        from scipy.sparse import csr_array

        labels = kernels.nearest(rows, self.centers, threads=threads).labels
        cut, length = clip_norms((rows - self.centers[labels]) / self.radii[labels][:, None], _SAFE)
        n, M = len(rows), len(self.centers)
        member = csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, M)).T.tocsr()
        count.add(member @ whole_steps(np.ones(n), count.step))
        sums.add(member @ whole_steps(cut, sums.step))
        squares.add(member @ whole_steps(length**2, squares.step))

    def _memberships(
        self, rows: FloatArray, count: NoisyArray, sums: NoisyArray, squares: NoisyArray, threads: int
    ) -> None:
        assert self.m is not None
        u = kernels.memberships(rows, self.centers, self.m, threads=threads) ** self.m  # (n, M)
        residuals = (rows[:, None, :] - self.centers) / self.radii[:, None]  # (n, M, d)
        sqdist = (residuals**2).sum(axis=2)
        flat, _ = clip_norms((u[..., None] * residuals).reshape(len(rows), -1), _SAFE)
        objective, _ = clip_norms(u * sqdist, _SAFE)
        near, _ = clip_norms(u, _SAFE)
        count.add(whole_steps(near, count.step).sum(axis=0))
        sums.add(whole_steps(flat, sums.step).sum(axis=0).reshape(sums.sums.shape))
        squares.add(whole_steps(objective, squares.step).sum(axis=0))


def radius_limits(box: FloatArray) -> tuple[float, float]:
    """The smallest radius, in units of which residuals can still be computed, and the largest, the box's
    diagonal.

    >>> radius_limits(np.array([3.0, 4.0]))
    (1e-08, 10.0)
    """
    diagonal = 2 * float(np.linalg.norm(box))
    return _SMALLEST * diagonal, diagonal


def clip_norms(vectors: FloatArray, rho: float) -> tuple[FloatArray, FloatArray]:
    """Vectors (n, d) cut to length rho, and their lengths after that (n,).

    >>> clip_norms(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    (array([[0.6, 0.8],
           [0.3, 0.4]]), array([1. , 0.5]))
    """
    length = np.sqrt((vectors**2).sum(axis=1))
    factor = rho / np.maximum(length, rho)
    return vectors * factor[:, None], np.minimum(length, rho)
