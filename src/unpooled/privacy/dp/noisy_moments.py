"""Noisy moments for the start: number of rows, histogram of their norms, their sum; columns' spreads."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from unpooled.errors import InputError
from unpooled.privacy.dp.noise import whole_steps
from unpooled.privacy.dp.noisy_cluster_sums import _ROWS, _SAFE, clip_norms
from unpooled.privacy.dp.private_questions import (
    NoisyArray,
    PrivateQuestion,
    bounded_rows,
    broadcast_box,
    charged_noise,
    check_box,
    check_price,
    columns_of,
)
from unpooled.protocol.declarations import Box, Length, Noisy, Value
from unpooled.protocol.messages import Summable
from unpooled.protocol.site_batch import SiteBatch
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class NoisyMoments(Summable):
    """A histogram of the rows' distances from the middle of the box, and the sum of all rows."""

    histogram: Annotated[FloatArray, Noisy("bins")]  # of |x|
    sums: Annotated[FloatArray, Noisy("d")]
    noise: Annotated[FloatArray, Value("1", min_value=0.0)]


@dataclass(frozen=True, eq=False)
class AskNoisyMoments(PrivateQuestion[NoisyMoments]):
    """A histogram of |x| over [0, |box|] and the sum of the rows, each for half of the price."""

    reads = "rows"
    asks_for = "how the distances of the rows are distributed, and the sum of every column, with noise"

    box: Annotated[FloatArray, Box("bounds")]  # or (1,) for all columns alike
    bins: Annotated[int, Length()] = 32

    def __post_init__(self) -> None:
        check_price(self, (0.5, 0.5))
        check_box(self.box, "AskNoisyMoments")
        if not 1 <= self.bins <= 4096:
            raise InputError(f"AskNoisyMoments: bins must be from 1 to 4096, got {self.bins}")

    @property
    def numbers(self) -> int:
        return self.bins + len(self.box)

    def lengths(self) -> dict[str, int]:
        return {**super().lengths(), **columns_of(self.box)}

    def answer_all(self, batch: SiteBatch) -> list[NoisyMoments]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> NoisyMoments:
        box = broadcast_box(self.box, local)
        reach = float(np.linalg.norm(box))  # the largest norm of a row
        mu = self.mu * 0.5**0.5
        histogram, sums = NoisyArray((self.bins,), 1.0, mu, local), NoisyArray((len(box),), reach, mu, local)
        for rows in bounded_rows(local, box, _ROWS):
            cut, length = clip_norms(rows, reach * _SAFE)
            place = np.minimum((length / reach * self.bins).astype(np.int64), self.bins - 1)
            histogram.add(np.bincount(place, minlength=self.bins) / histogram.step)
            sums.add(whole_steps(cut, sums.step).sum(axis=0))
        return NoisyMoments(histogram.out(), sums.out(), np.array([charged_noise(local).share ** 2]))


@dataclass(frozen=True, eq=False)
class NoisySpread(Summable):
    """First and second moments of every column, relative to its bounds."""

    count: Annotated[FloatArray, Noisy("1")]
    sums: Annotated[FloatArray, Noisy("d")]  # of u = x / box
    squares: Annotated[FloatArray, Noisy("d")]  # of u^2 - 3/4
    noise: Annotated[FloatArray, Value("1", min_value=0.0)]


@dataclass(frozen=True, eq=False)
class AskNoisySpread(PrivateQuestion[NoisySpread]):
    """Moments of the columns within their bounds: a tenth of the price for n, the rest for the others.

    Sums and squares are charged together. A column of a row adds u and u^2 - 3/4, and for |u| <= 1
    8/9 u^2 + 16/9 (u^2 - 3/4)^2 <= 1: as a function of u^2 it is convex, and 1 at both ends. With standard
    deviations in these proportions d columns shift both by at most sqrt(d), and each has hardly more noise
    than if the other had not been asked for.
    """

    reads = "rows"
    asks_for = "how many rows there are, and the mean and spread of every column, with noise"

    box: Annotated[FloatArray, Box("bounds")]  # or (1,) for all columns alike

    def __post_init__(self) -> None:
        check_price(self, (0.1, 0.9))
        check_box(self.box, "AskNoisySpread")

    @property
    def numbers(self) -> int:
        return 2 * len(self.box) + 1

    def lengths(self) -> dict[str, int]:
        return {**super().lengths(), **columns_of(self.box)}

    def sds(self, d: int) -> tuple[float, float, float]:
        """Standard deviations of one release's noise, for d columns: n, sums, squares."""
        both = (d / 0.9) ** 0.5 / self.mu
        return 1 / (self.mu * 0.1**0.5), (9 / 8) ** 0.5 * both, 0.75 * both

    def answer_all(self, batch: SiteBatch) -> list[NoisySpread]:
        return [self._one(batch.site(s)) for s in range(len(batch))]

    def _one(self, local: SiteBatch) -> NoisySpread:
        box = broadcast_box(self.box, local)
        d = len(box)
        parts = [
            NoisyArray(shape, 1.0, 1 / sd, local)  # |u| and |u^2 - 3/4| are at most 1
            for shape, sd in zip(((1,), (d,), (d,)), self.sds(d), strict=True)
        ]
        for rows in bounded_rows(local, box, _ROWS):
            unit = rows / box
            values = (np.ones((len(unit), 1)), unit * _SAFE, (unit**2 - 0.75) * _SAFE)
            for part, value in zip(parts, values, strict=True):
                part.add(whole_steps(value, part.step).sum(axis=0))
        count, sums, squares = (part.out() for part in parts)
        return NoisySpread(count, sums, squares, np.array([charged_noise(local).share ** 2]))
