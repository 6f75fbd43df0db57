"""Scaling: standardisation over all sites by two totals, and any algorithm on scaled columns."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unpooled.data.transforms import Affine
from unpooled.protocol.algorithm import Steps, build_algorithm, total, transformed
from unpooled.protocol.messages import Message, SiteId
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.typing import FloatArray


def standardise(sites: tuple[SiteId, ...]) -> Steps[Affine]:
    """Agree on the scaling to mean 0 and standard deviation 1 over all sites, by two totals.

    Squares are taken about the mean, to avoid cancellation. A constant column keeps scale 1.
    """
    # down: nothing; up: mass and sums
    first = yield from total(sites, AskMoments())
    # down: the mean; up: squares about it
    second = yield from total(sites, AskMoments(first.mean))
    mean, sd = first.mean + second.mean, np.sqrt(second.variance)
    constant = sd <= 1e-12 * np.abs(mean) + 1e-300
    return Affine(mean, np.where(constant, 1.0, sd))


@dataclass(frozen=True, eq=False)
class ScaledState(Message):
    """The agreed scaling, and the inner algorithm's state in scaled columns."""

    transform: Affine
    inner: Any

    @property
    def centers(self) -> FloatArray:
        """(k, d) in the columns' own units."""
        return self.transform.undo(self.inner.centers)

    @property
    def movement(self) -> float:
        return float(self.inner.movement)

    @property
    def inertia(self) -> float:
        return float(self.inner.inertia)


@dataclass(frozen=True, eq=False)
class Scaled(Message):
    """Any algorithm on columns standardised over all sites. Movement and inertia are in scaled units."""

    inner: Any

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[ScaledState]:
        transform = yield from standardise(sites)
        inner = build_algorithm(self._scaled(transform))
        state = yield from transformed(transform, inner.start(sites, rng))
        return ScaledState(transform, state)

    def _scaled(self, transform: Affine) -> Any:
        """The algorithm with starting centres, if it was given any, in scaled columns."""
        change = getattr(self.inner, "with_init", None)
        return self.inner if change is None else change(transform.apply)

    def round(
        self, state: ScaledState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[ScaledState]:
        inner = yield from transformed(
            state.transform, build_algorithm(self.inner).round(state.inner, sites, rng)
        )
        return replace(state, inner=inner)

    def finished(self, state: ScaledState) -> bool:
        return build_algorithm(self.inner).finished(state.inner)
