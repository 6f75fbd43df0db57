"""Sums over halves of the rows, for replication: clusters found in one half are judged in the other.

A keyed hash of a row's place in its site divides the rows, the groups of a summary table among them; with
another key they are divided otherwise. Of very many rows the two parts are smaller than halves.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from unpooled import kernels
from unpooled.errors import QueryRefusedError
from unpooled.kernels.rng import uniform
from unpooled.protocol.declarations import Centers, Count, Length, Point, Setting, Sum
from unpooled.protocol.messages import Question, Summable
from unpooled.protocol.questions.cluster_sums import ClusterSums
from unpooled.protocol.questions.description import AskCovariance, Covariance
from unpooled.protocol.questions.sums_with_missing import AskObservedSums, ObservedSums
from unpooled.protocol.site_batch import ReplyBatch, SiteBatch
from unpooled.protocol.suppression import complementary_suppression, zero_suppressed
from unpooled.typing import BoolArray, FloatArray, IntArray


def in_part(key: int, split: int, part: int, share: float, place: IntArray) -> BoolArray:
    """Return the mask of the rows, by their places in their sites, that are in part 0 or 1 of a split.

    >>> both = [in_part(7, 0, part, 0.5, np.arange(1000)) for part in (0, 1)]
    >>> (both[0] ^ both[1]).all(), 450 < both[0].sum() < 550
    (np.True_, np.True_)
    """
    drawn = uniform(key + split, place.astype(np.uint64))
    return drawn < share if part == 0 else drawn >= 1 - share


@dataclass(frozen=True, eq=False)
class AskHalfSums(Question[ClusterSums]):
    """Sums and counts by nearest centre; set r of centres is for part r % 2 of the split r // 2.

    A site with a minimum size discloses a cell only if the rest of its rows, which follows by subtraction
    from the cell of all rows, is empty or large enough too.
    """

    reads = "rows"
    asks_for = "the sums by nearest centre again, each for a random half of the rows"

    centers: Annotated[FloatArray, Centers("R k d")]
    key: Annotated[int, Setting()]
    share: Annotated[float, Setting()] = 0.5  # of the rows in each part

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[ClusterSums]:
        replies = [self._sums(batch, r) for r in range(len(self.centers))]
        sums, mass, inertia = (np.concatenate(arrays, axis=1) for arrays in zip(*replies, strict=True))
        return ReplyBatch(ClusterSums(sums, mass, inertia), len(batch))

    def _sums(self, batch: SiteBatch, r: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sums (S, 1, k, d), mass and inertia (S, 1, k) of one set of centres."""
        at = _rows_in(batch, self.key, self.share, r)
        own = _part(batch, at)
        t = kernels.totals(own.X, own.offsets, self.centers[r : r + 1], own.weights, threads=batch.threads)
        if batch.minimum <= 1:
            return t.sums, t.mass, t.inertia
        other = _part(batch, ~at)
        rest = kernels.totals(
            other.X, other.offsets, self.centers[r : r + 1], other.weights, threads=batch.threads
        )
        allowed = batch.large(t.mass, t.squares)
        allowed &= batch.large(rest.mass, rest.squares) | (rest.mass == 0)
        disclosed = complementary_suppression(allowed, t.mass, t.squares, batch.minimum * (1 - 1e-9))
        sums, mass, inertia = (zero_suppressed(disclosed, a) for a in (t.sums, t.mass, t.inertia))
        return sums, mass, inertia


@dataclass(frozen=True, eq=False)
class AskObservedHalfSums(Question[ObservedSums]):
    """The same over observed columns, where cells are missing."""

    reads = "rows"
    asks_for = "the sums by nearest centre again, each for a random half of the rows, without missing values"
    supports_missing = True

    centers: Annotated[FloatArray, Centers("R k d")]
    key: Annotated[int, Setting()]
    share: Annotated[float, Setting()] = 0.5

    def answer_all(self, batch: SiteBatch) -> ReplyBatch[ObservedSums]:
        replies = []
        for r in range(len(self.centers)):
            at = _rows_in(batch, self.key, self.share, r)
            question = AskObservedSums(self.centers[r : r + 1])
            arrays = question.answer_all(_part(batch, at)).arrays()
            if batch.minimum > 1:  # both parts must be disclosed, in the same cells
                _, known, mass, _ = question.answer_all(_part(batch, ~at)).arrays()
                arrays = tuple(a * ((known if a.ndim == 4 else mass) > 0) for a in arrays)
            replies.append(arrays)
        sums, known, mass, inertia = (np.concatenate(arrays, axis=1) for arrays in zip(*replies, strict=True))
        return ReplyBatch(ObservedSums(sums, known, mass, inertia), len(batch))


@dataclass(frozen=True, eq=False)
class HalfCovariance(Summable):
    """Rows, sums and products of all pairs of columns about an origin, of each part of every split."""

    mass: Annotated[FloatArray, Count("parts")]
    sums: Annotated[FloatArray, Sum("parts d", rows="mass")]
    products: Annotated[FloatArray, Sum("parts d d", rows="mass")]

    def matrices(self) -> FloatArray:
        """Return the covariance matrices (parts, d, d)."""
        n = np.maximum(self.mass, 1e-300)[:, None]
        mean = self.sums / n
        return self.products / n[..., None] - mean[:, :, None] * mean[:, None, :]


@dataclass(frozen=True, eq=False)
class AskHalfCovariance(Question[HalfCovariance]):
    """Number of rows, and sums and products of all pairs of columns, of both parts of some splits."""

    reads = "rows"
    asks_for = "the sums and products of columns, each for a random half of the rows"

    origin: Annotated[FloatArray, Point("d")]
    parts: Annotated[int, Length()]  # twice the number of splits
    key: Annotated[int, Setting()]
    share: Annotated[float, Setting()] = 0.5

    def answer_all(self, batch: SiteBatch) -> list[HalfCovariance]:
        asked = AskCovariance(self.origin)
        replies: list[list[Covariance]] = []  # by part
        for r in range(self.parts):
            at = _rows_in(batch, self.key, self.share, r)
            own = asked.answer_all(_part(batch, at))
            if batch.minimum > 1:  # the rest follows by subtraction from the covariance of all rows
                rest = asked.answer_all(_part(batch, ~at))
                own = [
                    a if b.mass.any() else Covariance(*(0.0 * f for f in _fields(a)))
                    for a, b in zip(own, rest, strict=True)
                ]
            replies.append(own)
        return [
            HalfCovariance(
                np.concatenate([one[s].mass for one in replies]),
                np.stack([one[s].sums for one in replies]),
                np.stack([one[s].products for one in replies]),
            )
            for s in range(len(batch))
        ]


def _fields(covariance: Covariance) -> tuple[FloatArray, FloatArray, FloatArray]:
    return covariance.mass, covariance.sums, covariance.products


def _rows_in(batch: SiteBatch, key: int, share: float, r: int) -> BoolArray:
    """The mask of the rows that set r of centres is for."""
    if not 0 < share <= 0.5:
        raise QueryRefusedError(f"parts with a share of {share:g} of the rows; a share must be in (0, 0.5]")
    place = np.arange(len(batch.X)) - np.repeat(batch.offsets[:-1], batch.row_counts)
    return in_part(key, r // 2, r % 2, share, place)


def _part(batch: SiteBatch, at: BoolArray) -> SiteBatch:
    """The same sites with some of their rows."""
    before = np.concatenate([[0], np.cumsum(at)])
    return replace(
        batch,
        X=batch.X[at],
        offsets=before[batch.offsets],
        weights=None if batch.weights is None else batch.weights[at],
    )
