"""Any algorithm on columns that are standardised over all sites, by two more totals at the start."""

from dataclasses import dataclass, replace

import numpy as np

from unpooled.data.column_scales import is_constant
from unpooled.data.transforms import Affine
from unpooled.protocol.algorithm import State, Steps, Wrapper, WrapperState, total, transformed
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class ScaledState(WrapperState):
    """The agreed scaling, and the inner algorithm's state in scaled columns."""

    transform: Affine
    inner: State

    @property
    def centers(self) -> FloatArray:
        """(k, d) in the columns' own units."""
        return self.transform.undo(self.inner.centers)

    @property
    def movement(self) -> float:
        return self.inner.movement

    @property
    def inertia(self) -> float:
        return self.inner.inertia

    @property
    def leader(self) -> State:
        return self.inner.leader

    @property
    def leader_movement(self) -> float:
        return self.inner.leader_movement

    @property
    def scaling(self) -> Affine:
        return self.transform

    @property
    def scaled_centers(self) -> FloatArray:
        return self.inner.centers

    @property
    def comparison_rounds(self) -> int:
        return self.inner.comparison_rounds


@dataclass(frozen=True, eq=False)
class Scaled(Wrapper[ScaledState]):
    """Any algorithm on columns standardised over all sites. Movement and inertia are in scaled units."""

    @property
    def max_rounds(self) -> int:
        return self.inner.max_rounds

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[ScaledState]:
        transform = yield from standardise(sites)
        inner = self.inner
        if isinstance(inner.init, np.ndarray):
            inner = inner.with_init(transform.apply(inner.init))
        state = yield from transformed(transform, inner.start(sites, rng))
        return ScaledState(transform, state)

    def round(
        self, state: ScaledState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[ScaledState]:
        inner = yield from transformed(state.transform, self.inner.round(state.inner, sites, rng))
        return replace(state, inner=inner)

    def finished(self, state: ScaledState) -> bool:
        return self.inner.finished(state.inner)

    def ran_out(self, state: ScaledState) -> bool:
        return self.inner.ran_out(state.inner)


def standardise(sites: tuple[SiteId, ...]) -> Steps[Affine]:
    """Agree on the scaling to mean 0 and standard deviation 1 over all sites.

    The second total has squares about the mean that the first one gave, to avoid cancellation. A constant
    column keeps scale 1.
    """
    # down: nothing; up: mass and sums
    first = yield from total(sites, AskMoments())
    # down: the mean; up: squares about it
    second = yield from total(sites, AskMoments(first.mean))
    mean, sd = first.mean + second.mean, np.sqrt(second.variance)
    return Affine(mean, np.where(is_constant(mean, sd), 1.0, sd))
