"""BestOf: restarts of any method, all in the same exchanges; the lowest federated inertia wins.

Algorithm 1 of Holzer et al. calls this n_init. Ten restarts cost the exchanges of the longest one, plus one
to score them: the restarts run in lockstep (``together``), and each draws randomness of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np

from unpooled.algorithms.base import Method
from unpooled.algorithms.seeding import starts
from unpooled.codec import FloatArray
from unpooled.errors import BadInput
from unpooled.messages import Message, SiteId
from unpooled.protocol import Algorithm, Steps, together


@dataclass(frozen=True, eq=False)
class BestOfState(Message):
    """The restarts' own states; ``best`` is their index once they are scored, -1 before."""

    states: tuple[Any, ...]
    inertias: FloatArray  # (R,) of the final centres; nan before they are scored
    best: int

    @property
    def centers(self) -> FloatArray:
        centers: FloatArray = self.states[max(self.best, 0)].centers
        return centers

    @property
    def movement(self) -> float:
        return max(float(s.movement) for s in self.states)

    @property
    def inertia(self) -> float:
        if self.best >= 0:
            return float(self.inertias[self.best])
        known = [float(s.inertia) for s in self.states if not np.isnan(s.inertia)]
        return min(known, default=float("nan"))


@dataclass(frozen=True, eq=False)
class BestOf(Message):
    """``n`` restarts of ``inner``. With an adaptive start one seeding serves them all."""

    inner: Method
    n: int = 10

    def __post_init__(self) -> None:
        if self.n < 1:
            raise BadInput(f"BestOf: n must be >= 1, got {self.n}")

    @property
    def k(self) -> int | None:
        return self.inner.k

    def with_init(self, change: Callable[[Any], Any]) -> Self:
        return replace(self, inner=self.inner.with_init(change))

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[BestOfState]:
        inner = self.inner
        restarts = [inner] * self.n
        if not inner.own_start and isinstance(inner.init, str) and inner.init == "adaptive":
            got = yield from starts(
                sites, inner.clusters, inner.init, self.n, rng, min_cluster_size=inner.min_cluster_size
            )
            restarts = [replace(inner, init=centers) for centers in got.centers]
        rngs = rng.spawn(len(restarts))
        runs = [cast(Algorithm[Any], m).start(sites, r) for m, r in zip(restarts, rngs, strict=True)]
        states = yield from together(runs)
        return BestOfState(tuple(states), np.full(len(states), np.nan), -1)

    def round(
        self, state: BestOfState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[BestOfState]:
        inner = cast(Algorithm[Any], self.inner)
        rngs = rng.spawn(len(state.states))
        going = [i for i, s in enumerate(state.states) if not inner.finished(s)]
        if not going:
            centers = np.stack([s.centers for s in state.states])
            inertias, scores = yield from self.inner.judged(sites, centers)
            return replace(state, inertias=inertias, best=int(np.argmax(scores <= (1 + 1e-6) * scores.min())))
        moved = yield from together([inner.round(state.states[i], sites, rngs[i]) for i in going])
        states = list(state.states)
        for i, new in zip(going, moved, strict=True):
            states[i] = new
        return replace(state, states=tuple(states))

    def finished(self, state: BestOfState) -> bool:
        return state.best >= 0
