"""Restarts of any method in the same exchanges; the best one is the result.

Two ways. ``BestOf(method, n)`` runs every restart to its end and then compares them, in one more exchange:
algorithm 1 of Holzer et al. calls this n_init. ``SideBySide(method)`` compares them after every round, for
methods that declare rules for it (``Method.race``): their questions are merged into one with R sets of
centres, a start is dropped once it rests or cannot win, and the leader runs to a smaller movement. Ten starts
cost the exchanges of the longest one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np

from unpooled import kernels
from unpooled.algorithms.base import Method, Race
from unpooled.algorithms.seeding import starts
from unpooled.core.arrays import BoolArray, FloatArray, IntArray
from unpooled.core.messages import Message, SiteId
from unpooled.core.protocol import Algorithm, CopiedRng, Steps, expanded, merged, together
from unpooled.errors import BadInput

USUAL = 10  # the default number of restarts


# ---------------------------------------------------------------- one start


@dataclass(frozen=True, eq=False)
class CountedState(Message):
    """The number of rounds, and a state that does not count them itself."""

    inner: Any
    rounds: int

    @property
    def centers(self) -> FloatArray:
        centers: FloatArray = self.inner.centers
        return centers

    @property
    def movement(self) -> float:
        return float(self.inner.movement)

    @property
    def inertia(self) -> float:
        return float(self.inner.inertia)

    def __getattr__(self, name: str) -> Any:
        """Any other attribute of the inner state."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True, eq=False)
class Counted(Message):
    """A method that ends after ``max_rounds``, even if its ``finished`` does not check them."""

    inner: Method

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[Any]:
        inner: Any = self.inner
        state = yield from inner.start(sites, rng)
        return state if hasattr(state, "rounds") or inner.finished(state) else CountedState(state, 0)

    def round(self, state: Any, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[Any]:
        inner: Any = self.inner
        if not isinstance(state, CountedState):
            return (yield from inner.round(state, sites, rng))
        return CountedState((yield from inner.round(state.inner, sites, rng)), state.rounds + 1)

    def finished(self, state: Any) -> bool:
        inner: Any = self.inner
        if not isinstance(state, CountedState):
            return bool(inner.finished(state))
        return state.rounds >= self.inner.max_rounds or bool(inner.finished(state.inner))


# ---------------------------------------------------------------- each start to its end


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

    @property
    def candidates(self) -> tuple[FloatArray, FloatArray, int]:
        """The centres of every restart (R, k, d), their inertia (R,), and which is best."""
        return np.stack([s.centers for s in self.states]), self.inertias, max(self.best, 0)


@dataclass(frozen=True, eq=False)
class BestOf(Message):
    """``n`` restarts of ``inner``. With an adaptive start one seeding serves them all."""

    inner: Method
    n: int = USUAL

    def __post_init__(self) -> None:
        if self.n < 1:
            raise BadInput(f"BestOf: n must be >= 1, got {self.n}")

    @property
    def k(self) -> int | None:
        return self.inner.k

    def with_init(self, change: Callable[[Any], Any]) -> Self:
        return replace(self, inner=self.inner.with_init(change))

    def restarted(self, n: int | None) -> Algorithm[Any]:
        return self if n is None else replace(self, n=n)

    @property
    def keeps_holes(self) -> bool:
        return self.inner.keeps_holes

    def over_holes(self) -> Self:
        return replace(self, inner=self.inner.over_holes())

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[BestOfState]:
        inner = self.inner
        restarts = [inner] * self.n
        if not inner.own_start and isinstance(inner.init, str) and inner.init == "adaptive":
            seeding = yield from starts(
                sites, inner.clusters, inner.init, self.n, rng, min_cluster_size=inner.min_cluster_size
            )
            restarts = [replace(inner, init=centers) for centers in seeding.centers]
        rngs = rng.spawn(len(restarts))
        runs = [expanded(m).start(sites, r) for m, r in zip(restarts, rngs, strict=True)]
        states = yield from together(runs)
        return BestOfState(tuple(states), np.full(len(states), np.nan), -1)

    def round(
        self, state: BestOfState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[BestOfState]:
        inner = expanded(self.inner)
        rngs = rng.spawn(len(state.states))
        going = [i for i, s in enumerate(state.states) if not inner.finished(s)]
        if not going and self.inner.own_objective:
            own = np.array([float(s.inertia) for s in state.states])
            lowest = float(np.nanmin(own))
            return replace(state, inertias=own, best=int(np.argmax(own <= lowest + 1e-6 * abs(lowest))))
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


# ---------------------------------------------------------------- side by side


@dataclass(frozen=True, eq=False)
class SideBySideState(Message):
    """R starts between two rounds, and their comparison."""

    states: tuple[Any, ...]  # (R) of the method
    scores: FloatArray  # (R,) of the last round that each took part in; inf before the first
    active: BoolArray  # (R,) still asked about
    lowest: FloatArray  # (R,) the lowest score so far
    stale: IntArray  # (R,) rounds since it fell
    lead: float  # the lowest score of all so far
    lead_stale: int  # rounds since it fell
    best: int
    movement: float  # the largest of all starts; that of the leader, where all stop with it
    rounds: int

    @property
    def leader(self) -> Any:
        """The state of the start that leads."""
        return self.states[self.best]

    def __getattr__(self, name: str) -> Any:
        """Any other attribute of the leader's state, e.g. the suspects of Robust."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.leader, name)

    @property
    def centers(self) -> FloatArray:
        centers: FloatArray = self.leader.centers
        return centers

    @property
    def inertia(self) -> float:
        return float(self.leader.inertia)

    @property
    def inertias(self) -> FloatArray:
        """(R,) of the centres before each start's last step."""
        return np.array([float(s.inertia) for s in self.states])

    @property
    def candidates(self) -> tuple[FloatArray, FloatArray, int]:
        """The centres of every start (R, k, d), their inertia (R,), and which is best."""
        return np.stack([s.centers for s in self.states]), self.inertias, self.best


@dataclass(frozen=True, eq=False)
class SideBySide(Message):
    """The starts of a method, run and compared round by round."""

    inner: Method

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[SideBySideState]:
        learnt = yield from self.inner.seeds(sites, self.inner.side_by_side, rng)
        R = len(learnt.centers)
        return SideBySideState(
            states=tuple(self.inner.begin(centers, learnt) for centers in learnt.centers),
            scores=np.full(R, np.inf),
            active=np.ones(R, dtype=np.bool_),
            lowest=np.full(R, np.inf),
            stale=np.zeros(R, dtype=np.int64),
            lead=np.inf,
            lead_stale=0,
            best=0,
            movement=np.inf,
            rounds=0,
        )

    def round(
        self, state: SideBySideState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[SideBySideState]:
        inner: Any = self.inner
        active = np.flatnonzero(state.active)
        # equal random draws for all starts, so that they ask the same sites and can share one question
        steps = [
            inner.round(state.states[i], sites, cast(np.random.Generator, CopiedRng(rng))) for i in active
        ]
        moved = yield from merged(together(steps))
        states = list(state.states)
        for i, new in zip(active, moved, strict=True):
            states[i] = new
        return self._compared(state, active, tuple(states), sites)

    def _compared(
        self, state: SideBySideState, active: IntArray, states: tuple[Any, ...], sites: tuple[SiteId, ...]
    ) -> SideBySideState:
        rules = self.inner.race or Race()
        scores = state.scores.copy()
        scores[active] = [states[i].score for i in active]
        lead = float(scores.min())
        fell = state.lowest[active] - scores[active] > 0.01 * self.inner.tol * scores[active]
        stale = state.stale.copy()
        stale[active] = np.where(fell, 0, stale[active] + 1)
        best = int(np.argmax(scores <= (1 + rules.tie) * lead))
        lead_stale = 0 if lead < state.lead * (1 - 1e-6) else state.lead_stale + 1
        going = state.active.copy()
        if rules.leader_stale:
            leader = states[best]
            going[:] = leader.movement > leader.threshold and lead_stale < rules.leader_stale
        else:
            going[active] = self._going(rules, state, active, states, scores, stale, sites)
        return SideBySideState(
            states=states,
            scores=scores,
            active=going,
            lowest=np.minimum(state.lowest, scores),
            stale=stale,
            lead=min(state.lead, lead),
            lead_stale=lead_stale,
            best=best,
            movement=float(states[best].movement if rules.leader_stale else max(s.movement for s in states)),
            rounds=state.rounds + 1,
        )

    def _going(
        self,
        rules: Race,
        state: SideBySideState,
        active: IntArray,
        states: tuple[Any, ...],
        scores: FloatArray,
        stale: IntArray,
        sites: tuple[SiteId, ...],
    ) -> BoolArray:
        """Mask of the active starts that still move and can still win."""
        current, lead = scores[active], float(scores.min())
        moved = np.array([states[i].movement for i in active])
        rest = states[0].threshold * np.where(current == lead, rules.polish, 1.0)
        going: BoolArray = moved > rest
        if not self.inner.drops(sites):
            return going
        hidden = any(states[i].hidden for i in active)
        gain = state.scores[active] - current  # infinite in the first round
        slack = rules.slack_hidden if hidden else rules.slack
        going &= current - rules.patience * np.maximum(gain, 0.0) <= slack * lead
        patience = rules.stale_hidden if hidden else rules.stale
        if patience is not None:
            going &= stale[active] < patience
        if rules.alike:
            near = rules.alike * np.sqrt(lead / max(states[0].n, 1e-300))
            going &= ~_repeated([states[i].centers for i in active], near)
        return going

    def finished(self, state: SideBySideState) -> bool:
        return state.rounds >= self.inner.max_rounds or not state.active.any()


def _repeated(centers: list[FloatArray], near: float) -> BoolArray:
    """(R,) True where an earlier start has the same centres, in any order."""
    out = np.zeros(len(centers), dtype=np.bool_)
    for i in range(len(centers)):
        out[i] = any(not out[j] and _alike(centers[i], centers[j], near) for j in range(i))
    return out


def _alike(a: FloatArray, b: FloatArray, near: float) -> bool:
    return all(kernels.nearest(x, y).sqdist.max() <= near**2 for x, y in ((a, b), (b, a)))
