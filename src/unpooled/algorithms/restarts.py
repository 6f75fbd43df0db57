"""Restarts of any method in the same exchanges; the best one is the result.

Two ways. ``Restarts(method, n)`` runs every restart to its end and then compares them, in one more exchange:
algorithm 1 of Holzer et al. calls this n_init. ``ConcurrentRestarts(method)`` compares them after every
round, for methods that declare rules for it (``Method.restart_rules``): their questions are merged into one
with R sets of centres, a start is dropped once it rests or cannot win, and the leader runs to a smaller
movement. Ten starts cost the exchanges of the longest one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np

from unpooled import kernels
from unpooled.algorithms.method import Method, RestartRules
from unpooled.algorithms.seeding import starts
from unpooled.errors import InputError
from unpooled.protocol.algorithm import Algorithm, CopiedRng, Steps, build_algorithm, merged, together
from unpooled.protocol.messages import Message, SiteId
from unpooled.typing import BoolArray, FloatArray, IntArray

DEFAULT_RESTARTS = 10  # the default number of restarts


# ---------------------------------------------------------------- one start


@dataclass(frozen=True, eq=False)
class RoundLimitedState(Message):
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
class RoundLimited(Message):
    """A method that ends after ``max_rounds``, even if its ``finished`` does not check them."""

    inner: Method

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[Any]:
        inner: Any = self.inner
        state = yield from inner.start(sites, rng)
        return state if hasattr(state, "rounds") or inner.finished(state) else RoundLimitedState(state, 0)

    def round(self, state: Any, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[Any]:
        inner: Any = self.inner
        if not isinstance(state, RoundLimitedState):
            return (yield from inner.round(state, sites, rng))
        return RoundLimitedState((yield from inner.round(state.inner, sites, rng)), state.rounds + 1)

    def finished(self, state: Any) -> bool:
        inner: Any = self.inner
        if not isinstance(state, RoundLimitedState):
            return bool(inner.finished(state))
        return state.rounds >= self.inner.max_rounds or bool(inner.finished(state.inner))


# ---------------------------------------------------------------- each start to its end


@dataclass(frozen=True, eq=False)
class RestartsState(Message):
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
class Restarts(Message):
    """``n`` restarts of ``inner``. With an adaptive start one seeding serves them all."""

    inner: Method
    n: int = DEFAULT_RESTARTS

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InputError(f"Restarts: n must be >= 1, got {self.n}")

    @property
    def k(self) -> int | None:
        return self.inner.k

    def with_init(self, change: Callable[[Any], Any]) -> Self:
        return replace(self, inner=self.inner.with_init(change))

    def with_restarts(self, n: int | None) -> Algorithm[Any]:
        return self if n is None else replace(self, n=n)

    @property
    def supports_missing(self) -> bool:
        return self.inner.supports_missing

    def with_missing(self) -> Self:
        return replace(self, inner=self.inner.with_missing())

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[RestartsState]:
        inner = self.inner
        restarts = [inner] * self.n
        if not inner.own_start and isinstance(inner.init, str) and inner.init == "adaptive":
            seeding = yield from starts(
                sites, inner.clusters, inner.init, self.n, rng, min_cluster_size=inner.min_cluster_size
            )
            restarts = [replace(inner, init=centers) for centers in seeding.centers]
        rngs = rng.spawn(len(restarts))
        runs = [build_algorithm(m).start(sites, r) for m, r in zip(restarts, rngs, strict=True)]
        states = yield from together(runs)
        return RestartsState(tuple(states), np.full(len(states), np.nan), -1)

    def round(
        self, state: RestartsState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[RestartsState]:
        inner = build_algorithm(self.inner)
        rngs = rng.spawn(len(state.states))
        going = [i for i, s in enumerate(state.states) if not inner.finished(s)]
        if not going and self.inner.own_objective:
            own = np.array([float(s.inertia) for s in state.states])
            lowest = float(np.nanmin(own))
            return replace(state, inertias=own, best=int(np.argmax(own <= lowest + 1e-6 * abs(lowest))))
        if not going:
            centers = np.stack([s.centers for s in state.states])
            inertias, scores = yield from self.inner.score_restarts(sites, centers)
            return replace(state, inertias=inertias, best=int(np.argmax(scores <= (1 + 1e-6) * scores.min())))
        moved = yield from together([inner.round(state.states[i], sites, rngs[i]) for i in going])
        states = list(state.states)
        for i, new in zip(going, moved, strict=True):
            states[i] = new
        return replace(state, states=tuple(states))

    def finished(self, state: RestartsState) -> bool:
        return state.best >= 0


# ---------------------------------------------------------------- side by side


@dataclass(frozen=True, eq=False)
class ConcurrentRestartsState(Message):
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
class ConcurrentRestarts(Message):
    """The starts of a method, run and compared round by round."""

    inner: Method

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[ConcurrentRestartsState]:
        seeding = yield from self.inner.seeds(sites, self.inner.n_concurrent_starts, rng)
        R = len(seeding.centers)
        return ConcurrentRestartsState(
            states=tuple(self.inner.begin(centers, seeding) for centers in seeding.centers),
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
        self, state: ConcurrentRestartsState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[ConcurrentRestartsState]:
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
        self,
        state: ConcurrentRestartsState,
        active: IntArray,
        states: tuple[Any, ...],
        sites: tuple[SiteId, ...],
    ) -> ConcurrentRestartsState:
        rules = self.inner.restart_rules or RestartRules()
        scores = state.scores.copy()
        scores[active] = [states[i].score for i in active]
        lead = float(scores.min())
        fell = state.lowest[active] - scores[active] > 0.01 * self.inner.tol * scores[active]
        stale = state.stale.copy()
        stale[active] = np.where(fell, 0, stale[active] + 1)
        best = int(np.argmax(scores <= (1 + rules.tie_tolerance) * lead))
        lead_stale = 0 if lead < state.lead * (1 - 1e-6) else state.lead_stale + 1
        going = state.active.copy()
        if rules.leader_max_stale_rounds:
            leader = states[best]
            going[:] = leader.movement > leader.threshold and lead_stale < rules.leader_max_stale_rounds
        else:
            going[active] = self._going(rules, state, active, states, scores, stale, sites)
        return ConcurrentRestartsState(
            states=states,
            scores=scores,
            active=going,
            lowest=np.minimum(state.lowest, scores),
            stale=stale,
            lead=min(state.lead, lead),
            lead_stale=lead_stale,
            best=best,
            movement=float(
                states[best].movement if rules.leader_max_stale_rounds else max(s.movement for s in states)
            ),
            rounds=state.rounds + 1,
        )

    def _going(
        self,
        rules: RestartRules,
        state: ConcurrentRestartsState,
        active: IntArray,
        states: tuple[Any, ...],
        scores: FloatArray,
        stale: IntArray,
        sites: tuple[SiteId, ...],
    ) -> BoolArray:
        """Mask of the active starts that still move and can still win."""
        current, lead = scores[active], float(scores.min())
        moved = np.array([states[i].movement for i in active])
        rest = states[0].threshold * np.where(current == lead, rules.leader_tolerance, 1.0)
        going: BoolArray = moved > rest
        if not self.inner.may_drop_starts(sites):
            return going
        suppressed = any(states[i].suppressed for i in active)
        gain = state.scores[active] - current  # infinite in the first round
        slack = rules.score_slack_suppressed if suppressed else rules.score_slack
        going &= current - rules.patience * np.maximum(gain, 0.0) <= slack * lead
        patience = rules.max_stale_rounds_suppressed if suppressed else rules.max_stale_rounds
        if patience is not None:
            going &= stale[active] < patience
        if rules.duplicate_distance:
            near = rules.duplicate_distance * np.sqrt(lead / max(states[0].n, 1e-300))
            going &= ~_repeated([states[i].centers for i in active], near)
        return going

    def finished(self, state: ConcurrentRestartsState) -> bool:
        return state.rounds >= self.inner.max_rounds or not state.active.any()


def _repeated(centers: list[FloatArray], near: float) -> BoolArray:
    """(R,) True where an earlier start has the same centres, in any order."""
    out = np.zeros(len(centers), dtype=np.bool_)
    for i in range(len(centers)):
        out[i] = any(not out[j] and _alike(centers[i], centers[j], near) for j in range(i))
    return out


def _alike(a: FloatArray, b: FloatArray, near: float) -> bool:
    return all(kernels.nearest(x, y).sqdist.max() <= near**2 for x, y in ((a, b), (b, a)))
