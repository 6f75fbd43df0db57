"""Restarts of any method in the same exchanges; the best one is the result.

Without rules every restart runs to its end, and one more exchange compares them: algorithm 1 of Holzer et
al. calls this n_init. With rules (``Method.restart_rules``) they are compared after every round: their
questions are merged into one with R sets of centres, a start is dropped once it rests or cannot win, and the
leader runs to a smaller movement. Ten starts cost the exchanges of the longest one.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from unpooled.algorithms.method import Method, is_full
from unpooled.algorithms.same_centers import distinct
from unpooled.errors import InputError
from unpooled.protocol.algorithm import State, Steps, Wrapper, WrapperState, together
from unpooled.protocol.merge_questions import merged
from unpooled.protocol.messages import Message, SiteId
from unpooled.typing import BoolArray, FloatArray, IntArray

DEFAULT_RESTARTS = 10  # the default number of restarts


class ComparedState(State, abstract=True):
    """The state of a start that is compared with others after every round."""

    if TYPE_CHECKING:  # a subclass has it as a field or as a property

        @property
        def score(self) -> float:  # the lowest leads; above the inertia if sites suppressed rows
            raise NotImplementedError

    threshold: float = 0.0  # movement that counts as rest
    n: float = np.nan  # rows in all


@dataclass(frozen=True, eq=False)
class RestartRules(Message):
    """The rules for starts that run side by side: their comparison, and when one is dropped."""

    tie_tolerance: float = 1e-9  # starts within this factor of the lowest score are equal: the first leads
    leader_tolerance: float = 1.0  # of the threshold: below 1 the leader, which is the result, runs longer
    drop: bool = True  # drop starts that cannot win; they rest by their own threshold in any case
    patience: int = 20  # rounds at its present pace that a start is given to catch up
    score_slack: float = 1.0  # times the leader's score: a start must be able to get below it
    score_slack_suppressed: float = 1.005  # the same where rows are suppressed: a step may lose a little
    max_stale_rounds: int | None = None  # allowed rounds without a gain; None: any number
    max_stale_rounds_suppressed: int | None = None
    duplicate_distance: float = 0.0  # of the typical distance to a centre: nearer starts count as one
    sample_rows: bool = False  # starts of very many rows are made on a sample of them
    # > 0: no start is dropped; all stop when the leader rests, or has not gained for this number of rounds
    leader_max_stale_rounds: int = 0

    def still_moving(self, states: Sequence[ComparedState], scores: FloatArray, lead: float) -> BoolArray:
        """Return the mask of the starts that do not rest; the leader may have a smaller threshold."""
        moved = np.array([state.movement for state in states])
        rest = states[0].threshold * np.where(scores == lead, self.leader_tolerance, 1.0)
        moving: BoolArray = moved > rest
        return moving

    def can_win(
        self,
        states: Sequence[ComparedState],
        before: FloatArray,
        scores: FloatArray,
        stale: IntArray,
        lead: float,
    ) -> BoolArray:
        """Return the mask of the starts that can still win.

        ``before`` are their scores before the round, and ``stale`` their rounds without a gain.
        """
        suppressed = any(state.score > state.inertia for state in states)
        gain = before - scores  # infinite in the first round
        slack = self.score_slack_suppressed if suppressed else self.score_slack
        going: BoolArray = scores - self.patience * np.maximum(gain, 0.0) <= slack * lead
        patience = self.max_stale_rounds_suppressed if suppressed else self.max_stale_rounds
        if patience is not None:
            going &= stale < patience
        if self.duplicate_distance:
            distance = self.duplicate_distance * np.sqrt(lead / max(states[0].n, 1e-300))
            going &= distinct(np.stack([state.centers for state in states]), distance, both_ways=True)
        return going


@dataclass(frozen=True, eq=False, kw_only=True)
class RestartsState(WrapperState):
    """R starts between two rounds, and their comparison."""

    states: tuple[State, ...]  # (R) of the method
    rounds: int  # of the method, without the one that compares restarts at the end
    active: BoolArray  # (R,) still asked about
    best: int  # the one that leads; -1 before any comparison
    inertias: FloatArray  # (R,) before each start's last step, or of the final centres; nan: not known yet
    movement: float  # the largest of all starts; that of the leader, where all stop with it
    compared_at_end: bool
    scores: FloatArray  # (R,) of the last round that each took part in; inf before the first
    lowest: FloatArray  # (R,) the lowest score so far
    stale: IntArray  # (R,) rounds since it fell
    lead: float  # the lowest score of all so far
    lead_stale: int  # rounds since it fell

    @property
    def leader(self) -> State:
        return self.states[max(self.best, 0)].leader

    @property
    def leader_movement(self) -> float:
        return self.movement if self.compared_at_end else self.leader.movement

    @property
    def centers(self) -> FloatArray:
        return self.leader.centers

    @property
    def inertia(self) -> float:
        if self.best >= 0:
            return float(self.inertias[self.best])
        known = [float(s.inertia) for s in self.states if not np.isnan(s.inertia)]
        return min(known, default=float("nan"))

    @property
    def candidates(self) -> tuple[FloatArray, FloatArray, int]:
        return np.stack([s.centers for s in self.states]), self.inertias, max(self.best, 0)

    @property
    def comparison_rounds(self) -> int:
        return int(self.compared_at_end and self.best >= 0)


@dataclass(frozen=True, eq=False)
class Restarts(Wrapper[RestartsState]):
    """Restarts of an algorithm in the same round trips; the best one is kept.

    With an adaptive start one seeding serves them all.

    Parameters
    ----------
    inner : Algorithm
        The algorithm that is restarted.
    n : int
        The number of restarts.
    rules : RestartRules or None
        When a restart is given up. None: each one runs to its end, and then they are compared.

    Examples
    --------
    >>> from unpooled.algorithms import KFed, Restarts
    >>> Restarts(KFed(k=3), 5).n
    5
    """

    n: int = DEFAULT_RESTARTS
    rules: RestartRules | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.innermost, Method):
            raise InputError(f"Restarts needs a Method, and {type(self.innermost).__name__} is not one")
        if self.n < 1:
            raise InputError(f"Restarts: n must be >= 1, got {self.n}")

    @property
    def method(self) -> Method:
        """The method that is restarted."""
        return cast(Method, self.innermost)

    def build(self) -> Self:
        return super().build() if self.rules is None else self

    def with_restarts(self, n: int | None) -> Self:
        return self if n is None else replace(self, n=n)

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[RestartsState]:
        states: list[State]
        if self.rules is None:
            states = yield from self._started(sites, rng)
            active = [not self.inner.ended(state, 0) for state in states]
        else:
            seeding = yield from self.method.seeds(sites, self.n, rng)
            states = [self.method.begin(centers, seeding) for centers in seeding.centers]
            active = [True] * len(states)
        R = len(states)
        return RestartsState(
            states=tuple(states),
            rounds=0,
            active=np.array(active),
            best=-1 if self.rules is None else 0,
            inertias=np.full(R, np.nan) if self.rules is None else _inertias(states),
            movement=_largest_movement(states),
            compared_at_end=self.rules is None,
            scores=np.full(R, np.inf),
            lowest=np.full(R, np.inf),
            stale=np.zeros(R, dtype=np.int64),
            lead=np.inf,
            lead_stale=0,
        )

    def _started(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[list[State]]:
        """The restarts, each by the start of its method; one adaptive seeding gives all their centres."""
        restarts = [self.inner] * self.n
        adaptive = isinstance(self.method.init, str) and self.method.init == "adaptive"
        if adaptive and not self.method.own_start:
            seeding = yield from self.method.seeds(sites, self.n, rng)
            restarts = [self.inner.with_init(centers) for centers in seeding.centers]
        rngs = rng.spawn(len(restarts))
        return (yield from together([m.start(sites, r) for m, r in zip(restarts, rngs, strict=True)]))

    def round(
        self, state: RestartsState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[RestartsState]:
        active = np.flatnonzero(state.active)
        if not len(active):
            return (yield from self._compared_at_end(state, sites))
        rngs = self._rngs(len(state.states), sites, rng)
        steps = together([self.inner.round(state.states[i], sites, rngs[i]) for i in active])
        moved = yield from steps if self.rules is None else merged(steps)
        states = list(state.states)
        for i, new in zip(active, moved, strict=True):
            states[i] = new
        if self.rules is not None:
            return self._compared(self.rules, state, tuple(states), active, sites)
        ended = np.array([self.inner.ended(s, state.rounds + 1) for s in states])
        return replace(
            state,
            states=tuple(states),
            rounds=state.rounds + 1,
            active=state.active & ~ended,
            movement=_largest_movement(states),
        )

    def _rngs(
        self, count: int, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> list[np.random.Generator]:
        """A generator for every start. Starts side by side ask the same sites, to share one question."""
        if self.rules is None:
            return rng.spawn(count)
        if is_full(self.method.participation, sites):
            return [rng] * count
        return [deepcopy(rng) for _ in range(count)]

    def _compared_at_end(self, state: RestartsState, sites: tuple[SiteId, ...]) -> Steps[RestartsState]:
        if self.method.own_objective:
            own = _inertias(state.states)
            lowest = float(np.nanmin(own))
            return replace(state, inertias=own, best=int(np.argmax(own <= lowest + 1e-6 * abs(lowest))))
        centers = np.stack([s.centers for s in state.states])
        inertias, scores = yield from self.method.score_restarts(sites, centers)
        return replace(state, inertias=inertias, best=int(np.argmax(scores <= (1 + 1e-6) * scores.min())))

    def _compared(
        self,
        rules: RestartRules,
        state: RestartsState,
        after: tuple[State, ...],
        active: IntArray,
        sites: tuple[SiteId, ...],
    ) -> RestartsState:
        """The state with the starts ``after`` a round in which the ``active`` ones took part."""
        method, states = self.method, cast(tuple[ComparedState, ...], after)
        scores = state.scores.copy()
        scores[active] = [states[i].score for i in active]
        lead = float(scores.min())
        fell = state.lowest[active] - scores[active] > 0.01 * method.tol * scores[active]
        stale = state.stale.copy()
        stale[active] = np.where(fell, 0, stale[active] + 1)
        best = int(np.argmax(scores <= (1 + rules.tie_tolerance) * lead))
        lead_stale = 0 if lead < state.lead * (1 - 1e-6) else state.lead_stale + 1
        going = state.active.copy()
        if rules.leader_max_stale_rounds:
            leader = states[best]
            going[:] = leader.movement > leader.threshold and lead_stale < rules.leader_max_stale_rounds
        else:
            taking_part = [states[i] for i in active]
            going[active] = rules.still_moving(taking_part, scores[active], lead)
            if rules.drop and is_full(method.participation, sites):
                going[active] &= rules.can_win(
                    taking_part, state.scores[active], scores[active], stale[active], lead
                )
        return RestartsState(
            states=after,
            rounds=state.rounds + 1,
            active=going,
            best=best,
            inertias=_inertias(states),
            movement=(
                float(states[best].movement) if rules.leader_max_stale_rounds else _largest_movement(states)
            ),
            compared_at_end=False,
            scores=scores,
            lowest=np.minimum(state.lowest, scores),
            stale=stale,
            lead=min(state.lead, lead),
            lead_stale=lead_stale,
        )

    def finished(self, state: RestartsState) -> bool:
        if self.rules is None:
            return state.best >= 0
        return state.rounds >= self.method.max_rounds or not state.active.any()

    def ran_out(self, state: RestartsState) -> bool:
        if self.rules is None:
            return self.inner.ran_out(state.states[max(state.best, 0)])
        return state.rounds >= self.method.max_rounds and bool(state.active[state.best])


def _inertias(states: Sequence[State]) -> FloatArray:
    return np.array([float(s.inertia) for s in states])


def _largest_movement(states: Sequence[State]) -> float:
    return max(float(s.movement) for s in states)
