"""Any algorithm on columns that are standardised over all sites, by two more totals at the start."""

from dataclasses import dataclass, replace

import numpy as np

from unpooled.data.column_scales import standardise
from unpooled.data.transforms import Affine
from unpooled.protocol.algorithm import NestedState, Steps, Wrapper, transformed
from unpooled.protocol.messages import SiteId
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class ScaledState(NestedState):
    """The inner algorithm's state in scaled columns, and the agreed scaling."""

    transform: Affine

    @property
    def centers(self) -> FloatArray:
        """(k, d) in the columns' own units."""
        return self.transform.undo(self.inner.centers)

    @property
    def scaling(self) -> Affine:
        return self.transform

    @property
    def scaled_centers(self) -> FloatArray:
        return self.inner.centers


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
        return ScaledState(state, transform)

    def round(
        self, state: ScaledState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[ScaledState]:
        inner = yield from transformed(state.transform, self.inner.round(state.inner, sites, rng))
        return replace(state, inner=inner)

    def finished(self, state: ScaledState) -> bool:
        return self.inner.finished(state.inner)

    def ran_out(self, state: ScaledState) -> bool:
        return self.inner.ran_out(state.inner)
