"""A whole analysis as one algorithm: agree on a preparation, cluster for every k, choose, describe.

It is an Algorithm like any other, so it runs in every runtime, its history says what left each site in each
round, and its checkpoint goes on wherever it was.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unpooled.analysis.choose_k import Choice, choose
from unpooled.analysis.description import Description, describe
from unpooled.analysis.scores import near_best, score
from unpooled.analysis.shared_questions import shared
from unpooled.core.arrays import FloatArray
from unpooled.core.messages import Message, SiteId
from unpooled.core.protocol import Steps, expanded, together, total, viewed
from unpooled.data import Agreement, Wishes, agree
from unpooled.questions.description import AskCovariance

MOST_COLUMNS = 200  # beyond this no covariance is asked for: it would be larger than all the rest


@dataclass(frozen=True, eq=False)
class AnalysisState(Message, wire="algorithm.AnalysisState"):
    """What sites agreed on, the clusterings on their way, and what came of them."""

    agreement: Agreement
    inner: tuple[Any, ...]  # a state per k
    choice: Choice | None = None
    mean: FloatArray | None = None  # (d,) of all rows
    covariance: FloatArray | None = None  # (d, d)
    description: Description | None = None

    @property
    def chosen(self) -> Any:
        return self.inner[self.choice.best if self.choice is not None else 0]

    @property
    def centers(self) -> FloatArray:
        """(k, d) in prepared columns."""
        if self.description is not None:
            return self.description.centers
        centers: FloatArray = self.chosen.centers
        return centers

    @property
    def movement(self) -> float:
        """Of the restart that leads, at the k that moves most; the others stop where they cannot win."""
        return max(_moved(state) for state in self.inner)

    @property
    def inertia(self) -> float:
        return float(self.chosen.inertia)


def _moved(state: Any) -> float:
    return float(getattr(state, "leader", state).movement)


@dataclass(frozen=True, eq=False)
class Analysis(Message, wire="algorithm.Analysis"):
    """Prepare, cluster by each of ``methods`` (one per k) in the same exchanges, choose k, describe.

    With ``totals_only`` nothing but the sites' schemas is asked of each site.
    """

    wishes: Wishes
    methods: tuple[Any, ...]
    totals_only: bool = False

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[AnalysisState]:
        agreement = yield from agree(sites, self.wishes)
        # every k draws the same sketch of the data, so what they ask alike is asked once
        runs = [expanded(m).start(sites, deepcopy(rng)) for m in self.methods]
        states: list[Any] = yield from viewed(agreement.preparation, shared(together(runs)))
        return AnalysisState(agreement, tuple(states))

    def round(
        self, state: AnalysisState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[AnalysisState]:
        view = state.agreement.preparation
        going = [
            i
            for i, (m, s) in enumerate(zip(self.methods, state.inner, strict=True))
            if not expanded(m).finished(s)
        ]
        if going:
            rngs = rng.spawn(len(state.inner))
            rounds = [expanded(self.methods[i]).round(state.inner[i], sites, rngs[i]) for i in going]
            moved: list[Any] = yield from viewed(view, together(rounds))
            inner = list(state.inner)
            for i, new in zip(going, moved, strict=True):
                inner[i] = new
            return replace(state, inner=tuple(inner))
        if state.choice is None:
            return (yield from viewed(view, self._judged(state, sites, rng)))
        assert state.mean is not None
        m = getattr(self.methods[state.choice.best], "m", None)
        asked = describe(sites, state.chosen.centers, state.mean, state.covariance, self.totals_only, m)
        description = yield from viewed(view, asked)
        return replace(state, description=description)

    def _judged(
        self, state: AnalysisState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[AnalysisState]:
        """Score every k in one exchange, and choose."""

        def varied() -> Steps[Any]:
            got = yield from total(sites, AskCovariance(state.agreement.mean))
            return got

        runs: list[Steps[Any]] = [score(sites, s.centers, near_best(s)) for s in state.inner]
        wide = state.agreement.preparation.width > MOST_COLUMNS
        got = yield from together(runs if wide else [*runs, varied()])
        if wide:
            return replace(
                state, choice=choose(got, state.agreement.used, None, rng), mean=state.agreement.mean
            )
        varying = got.pop()
        mean = state.agreement.mean + varying.sums / max(float(varying.mass[0]), 1.0)
        matrix = varying.matrix()
        return replace(
            state, choice=choose(got, state.agreement.used, matrix, rng), mean=mean, covariance=matrix
        )

    def finished(self, state: AnalysisState) -> bool:
        return state.description is not None
