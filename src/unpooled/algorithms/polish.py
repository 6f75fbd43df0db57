"""Exact rounds of Lloyd on rows, after a clustering was found on summary tables.

Secure sums over raw rows open one equation about rows for every cluster of every round, so that an ordinary
run gives most rows away. Here the start, all restarts and the choice of k ask for groups of rows alone. One
exact round then moves the centres to the means of the rows, which recovers most of what grouping cost.
"""

from dataclasses import dataclass, replace

import numpy as np

from unpooled.errors import InputError
from unpooled.protocol.algorithm import NestedState, State, Steps, Wrapper, total
from unpooled.protocol.messages import Message, SiteId
from unpooled.protocol.questions.exact_sums import AskExactSums
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class ExactRound(Message):
    """The centres after an exact round."""

    centers: FloatArray  # (k, d)
    inertia: float  # of the centres before it
    sites: int  # the sites that answered from their rows; the other ones answered from groups of them
    number: int  # of exact rounds so far


def exact_round(sites: tuple[SiteId, ...], centers: FloatArray, number: int) -> Steps[ExactRound]:
    """Move the centres (k, d) to the means of the rows nearest to each; ``number`` is that of the round."""
    # down: the centres; up: sums about them, counts, the inertia as one number
    sums = yield from total(sites, AskExactSums(centers))
    return ExactRound(sums.means(centers), float(sums.inertia[0]), round(float(sums.exact[0])), number)


def check_polish(rounds: object) -> None:
    """Raise InputError unless it is a number of exact rounds."""
    if isinstance(rounds, bool) or not isinstance(rounds, int | np.integer) or rounds < 0:
        raise InputError(f"polish must be a whole number >= 0, got {rounds!r}")


@dataclass(frozen=True, eq=False)
class PolishState(NestedState):
    """The state of the method, and its centres after the last exact round."""

    rounds: int = 0  # of the method
    exact: ExactRound | None = None

    @property
    def centers(self) -> FloatArray:
        return self.inner.centers if self.exact is None else self.exact.centers

    @property
    def movement(self) -> float:
        if self.exact is None:
            return self.inner.movement
        return float(np.sqrt(((self.exact.centers - self.inner.centers) ** 2).sum()))

    @property
    def inertia(self) -> float:
        return self.inner.inertia if self.exact is None else self.exact.inertia


@dataclass(frozen=True, eq=False)
class Polish(Wrapper[PolishState]):
    """Any method, then ``rounds`` exact rounds on rows."""

    rounds: int = 1

    def __post_init__(self) -> None:
        check_polish(self.rounds)

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[PolishState]:
        return PolishState((yield from self.inner.start(sites, rng)))

    def round(
        self, state: PolishState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[PolishState]:
        if not self._found(state):
            inner: State = yield from self.inner.round(state.inner, sites, rng)
            return replace(state, inner=inner, rounds=state.rounds + 1)
        number = 1 if state.exact is None else state.exact.number + 1
        exact = yield from exact_round(sites, state.centers, number)
        return replace(state, exact=exact)

    def _found(self, state: PolishState) -> bool:
        """Whether the method has ended."""
        return state.exact is not None or self.inner.ended(state.inner, state.rounds)

    def finished(self, state: PolishState) -> bool:
        return self._found(state) and (0 if state.exact is None else state.exact.number) >= self.rounds

    def ran_out(self, state: PolishState) -> bool:
        return self.inner.ran_out(state.inner)
