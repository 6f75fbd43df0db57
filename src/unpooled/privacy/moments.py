"""Where to begin, with noise: how many rows, how far out, where their mean is; a grid; columns' spreads."""

from dataclasses import dataclass

import numpy as np

from unpooled.codec import FloatArray
from unpooled.errors import BadInput
from unpooled.messages import Stack, Summable
from unpooled.privacy.cells import _ROWS, _SAFE, shortened
from unpooled.privacy.noise import whole_steps
from unpooled.privacy.spending import (
    MOST_CELLS,
    Part,
    Spending,
    bounded_rows,
    check_box,
    check_price,
    widened,
)


@dataclass(frozen=True, eq=False)
class NoisyMoments(Summable):
    """How many rows lie at which distance from the middle of the box, and the sum of all."""

    histogram: FloatArray  # (bins,) of |x|
    sums: FloatArray  # (d,)
    noise: FloatArray  # (1,)


@dataclass(frozen=True, eq=False)
class AskNoisyMoments(Spending[NoisyMoments]):
    """A histogram of |x| over [0, |box|] and the sum of the rows, each for half of the price."""

    box: FloatArray  # (d,), or (1,) for all columns alike
    bins: int = 32

    def __post_init__(self) -> None:
        check_price(self.mu, (0.5, 0.5), "AskNoisyMoments")
        check_box(self.box, "AskNoisyMoments")
        if not 1 <= self.bins <= 4096:
            raise BadInput(f"AskNoisyMoments: bins must be from 1 to 4096, got {self.bins}")

    @property
    def numbers(self) -> int:
        return self.bins + len(self.box)

    def answer_all(self, stack: Stack) -> list[NoisyMoments]:
        return [self._one(stack.site(s)) for s in range(len(stack))]

    def _one(self, local: Stack) -> NoisyMoments:
        box = widened(self.box, local)
        reach = float(np.linalg.norm(box))  # how long a row can be
        mu, n = self.mu * 0.5**0.5, len(local.X)
        histogram, sums = Part((self.bins,), 1.0, mu, n), Part((len(box),), reach, mu, n)
        for rows in bounded_rows(local, box, _ROWS):
            cut, length = shortened(rows, reach * _SAFE)
            place = np.minimum((length / reach * self.bins).astype(np.int64), self.bins - 1)
            histogram.add(np.bincount(place, minlength=self.bins) / histogram.step)
            sums.add(whole_steps(cut, sums.step).sum(axis=0))
        return NoisyMoments(histogram.out(local.noise), sums.out(local.noise), np.array([local.noise**2]))


@dataclass(frozen=True, eq=False)
class NoisyGrid(Summable):
    """How many rows lie in each cell of a grid over the box."""

    count: FloatArray  # (side^d,) the last column runs fastest
    noise: FloatArray  # (1,)


@dataclass(frozen=True, eq=False)
class AskNoisyGrid(Spending[NoisyGrid]):
    """Counts in a regular grid of ``side`` cells a column: one row is in one cell. side 1 asks how many
    rows."""

    box: FloatArray  # (d,)
    side: int

    def __post_init__(self) -> None:
        check_price(self.mu, (1.0,), "AskNoisyGrid")
        check_box(self.box, "AskNoisyGrid")
        if self.side < 1 or self.side ** len(self.box) > MOST_CELLS:
            raise BadInput(
                f"AskNoisyGrid: {self.side} cells a column in {len(self.box)} columns: more than {MOST_CELLS}"
            )

    @property
    def numbers(self) -> int:
        return int(self.side ** len(self.box))

    def centers(self) -> FloatArray:
        """(side^d, d) the middles of the cells."""
        ticks = (np.arange(self.side) + 0.5) / self.side * 2 - 1
        axes = np.meshgrid(*(ticks * b for b in self.box), indexing="ij")
        return np.stack([axis.ravel() for axis in axes], axis=1)

    def answer_all(self, stack: Stack) -> list[NoisyGrid]:
        return [self._one(stack.site(s)) for s in range(len(stack))]

    def _one(self, local: Stack) -> NoisyGrid:
        count = Part((self.numbers,), 1.0, self.mu, len(local.X))
        for rows in bounded_rows(local, self.box, _ROWS):
            ticks = ((rows / self.box + 1) / 2 * self.side).astype(np.int64).clip(0, self.side - 1)
            place = np.ravel_multi_index(tuple(ticks.T), (self.side,) * len(self.box))
            count.add(np.bincount(place, minlength=self.numbers) / count.step)
        return NoisyGrid(count.out(local.noise), np.array([local.noise**2]))


@dataclass(frozen=True, eq=False)
class NoisySpread(Summable):
    """First and second moments of every column, relative to its bounds."""

    count: FloatArray  # (1,)
    sums: FloatArray  # (d,) of x / box
    squares: FloatArray  # (d,) of (x / box)^2
    noise: FloatArray  # (1,)


@dataclass(frozen=True, eq=False)
class AskNoisySpread(Spending[NoisySpread]):
    """Moments of the columns within their bounds: 20, 40 and 40 % of the price for n, sums and squares."""

    box: FloatArray  # (d,), or (1,) for all columns alike

    def __post_init__(self) -> None:
        check_price(self.mu, (0.2, 0.4, 0.4), "AskNoisySpread")
        check_box(self.box, "AskNoisySpread")

    @property
    def numbers(self) -> int:
        return 2 * len(self.box) + 1

    def answer_all(self, stack: Stack) -> list[NoisySpread]:
        return [self._one(stack.site(s)) for s in range(len(stack))]

    def _one(self, local: Stack) -> NoisySpread:
        box, n = widened(self.box, local), len(local.X)
        d = len(box)
        parts = [
            Part(shape, length, self.mu * share**0.5, n)
            for shape, length, share in (((1,), 1.0, 0.2), ((d,), d**0.5, 0.4), ((d,), d**0.5, 0.4))
        ]
        for rows in bounded_rows(local, box, _ROWS):
            unit = rows / box * _SAFE
            for part, values in zip(parts, (np.ones((len(unit), 1)), unit, unit**2), strict=True):
                part.add(whole_steps(values, part.step).sum(axis=0))
        count, sums, squares = (part.out(local.noise) for part in parts)
        return NoisySpread(count, sums, squares, np.array([local.noise**2]))
