"""A whole analysis as one algorithm: agree on a preparation, cluster for every k, choose, describe.

It is an Algorithm like any other, so it runs in every runtime, its history lists what each site sent in each
round, and it resumes from its checkpoint.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unpooled.algorithms.polish import ExactRound, exact_round
from unpooled.data import AgreedSchema, Preparation, PreparationOptions, agree_outcomes, agree_schema
from unpooled.data.outcomes import PreparationWithOutcomes
from unpooled.errors import InputError, ReplyError
from unpooled.evaluation.choose_k import (
    Choice,
    Judgement,
    Scores,
    choose,
    early_fault,
    judge,
    near_best,
    not_judged,
    score,
    unjudged,
)
from unpooled.evaluation.influential_sites import influential_sites, moves_without
from unpooled.evaluation.make_references import (
    MAX_ROWS,
    coded_columns,
    histograms,
    make_references,
    people_in_a_group,
)
from unpooled.evaluation.replication import SPLITS, Replication, between, replicate
from unpooled.kernels.exact_solver import check_room
from unpooled.optimality.bounds import UNLIMITED, PartsBound
from unpooled.optimality.certificate import bound_parts, true_bound
from unpooled.protocol.algorithm import Algorithm, State, Steps, each, together, total, transformed
from unpooled.protocol.merge_questions import shared
from unpooled.protocol.messages import Message, Question, SiteId
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskScatter, Scatter
from unpooled.protocol.questions.description import (
    AskCovariance,
    AskOutline,
    AskProfile,
    Outline,
    Profile,
    map_axes,
)
from unpooled.protocol.questions.fuzzy_sums import AskBorderline, Borderline
from unpooled.protocol.questions.half_sums import AskHalfCovariance, AskHalfSums, AskObservedHalfSums
from unpooled.protocol.questions.outcome_sums import AskOutcomes, OutcomeSums
from unpooled.protocol.questions.sums_with_missing import (
    AskObservedCovariance,
    AskObservedProfile,
    AskObservedSums,
    ObservedProfile,
    ObservedSums,
)
from unpooled.typing import FloatArray, IntArray

NEEDS_COMPLETE_ROWS = (
    "the run kept missing values, and a certificate needs rows without them. Fit with --missing fill or drop"
)
ALL_SITES = "all sites"  # the only name where there are no replies of single sites


@dataclass(frozen=True, eq=False)
class Description(Message):
    """A clustering in numbers, clusters from the largest to the smallest. All in prepared columns."""

    centers: FloatArray  # (k, d)
    sites: tuple[SiteId, ...]
    sizes: FloatArray  # (S, k) rows; 0 where there are none, or too few to be disclosed
    inertias: FloatArray  # (S, k)
    silhouettes: FloatArray  # (S, k) sums
    means: FloatArray  # (k, d)
    deviations: FloatArray  # (k, d)
    mean: FloatArray  # (d,) of all rows
    deviation: FloatArray  # (d,)
    axes: FloatArray  # (d, 2) of the map
    explained: FloatArray  # (2,) share of the variance on each
    places: FloatArray  # (k, 2) centres on the map
    clusters: FloatArray  # (k, 6) ellipses: rows, mean x, y, variance x, covariance, variance y
    outlines: FloatArray  # (S, 6) the same for sites
    borderline: FloatArray | None = (
        None  # (S, k) of fuzzy clusters: share of borderline rows; nan: suppressed
    )
    movers: tuple[SiteId, ...] = ()  # sites that alone move a centre far; see ``influential_sites``
    moves: FloatArray | None = None  # (S, k) of centres without a site; see ``moves_without``
    known: FloatArray | None = None  # (k, d) rows that have a value, where cells stay missing; None: all rows
    # where cells stay missing, of every site: the observed cells of each column, and the inertia over them
    known_by_site: FloatArray | None = None  # (S, d)
    observed_inertias: FloatArray | None = None  # (S,)
    outcomes: OutcomeSums | None = None  # in prepared outcomes, about their means

    def differences(self) -> list[tuple[SiteId, int, float, float]]:
        """Return (site, cluster, its share there, its share at all sites) where they differ, largest first.

        They differ by ten percentage points or more, and by four standard errors or more.
        """
        rows = self.sizes.sum(axis=1)
        overall = self.sizes.sum(axis=0) / max(float(rows.sum()), 1.0)
        found = []
        for i in np.flatnonzero(rows):
            shares = self.sizes[i] / rows[i]
            gaps, errors = np.abs(shares - overall), np.sqrt(overall * (1 - overall) / rows[i])
            for j in np.flatnonzero((gaps >= 0.1) & (gaps >= 4 * errors)):
                found.append((float(gaps[j]), (self.sites[i], int(j), float(shares[j]), float(overall[j]))))
        return [item for _, item in sorted(found, key=lambda pair: -pair[0])]

    def in_order(self, order: Sequence[int]) -> "Description":
        """Return the same with the sites in another order, for display."""
        at = list(order)
        return replace(
            self,
            sites=tuple(self.sites[i] for i in at),
            **{name: getattr(self, name)[at] for name in ("sizes", "inertias", "silhouettes", "outlines")},
            borderline=_rows_at(self.borderline, at),
            known_by_site=_rows_at(self.known_by_site, at),
            moves=_rows_at(self.moves, at),
            observed_inertias=_rows_at(self.observed_inertias, at),
        )


def _rows_at(values: FloatArray | None, at: list[int]) -> FloatArray | None:
    return None if values is None else values[at]


def describe(
    sites: tuple[SiteId, ...],
    centers: FloatArray,
    mean: FloatArray,
    covariance: FloatArray | None,
    aggregate_only: bool = False,
    m: float | None = None,
    rows: float = np.inf,
    has_missing: bool = False,
    wide: PreparationWithOutcomes | None = None,
) -> Steps[Description]:
    """Ask for all figures of a report, in one exchange; with ``aggregate_only`` only for sums over sites.

    ``m`` is the fuzzifier of fuzzy clusters, which adds their shares of borderline rows. If all ``rows`` are
    in disclosed clusters, the other clusters are empty and left out. With ``has_missing`` cells are missing,
    and figures are of the observed cells. ``wide`` has the outcomes beside the clustered columns.
    """
    axes, explained, deviation = map_axes(centers, mean, covariance)

    def by_site(question: Question[Any]) -> Steps[Any]:
        answers = yield from each(sites, question)
        return answers

    def of_all(question: Question[Any]) -> Steps[Any]:
        answers = yield from total(sites, question)
        return {ALL_SITES: answers}

    def nothing() -> Steps[Any]:
        return {}
        yield

    def summed(question: Question[Any]) -> Steps[Any]:
        answers = yield from total(sites, question)
        return answers

    def outcome_sums(wide: PreparationWithOutcomes) -> Steps[Any]:
        positions = np.hstack([centers, np.zeros((len(centers), wide.width - centers.shape[1]))])
        question = AskOutcomes(positions, wide.width - centers.shape[1])
        return (yield from transformed(wide, total(sites, question)))

    asked = of_all if aggregate_only else by_site
    # down: centres and axes; up: per site scatter and outline, and totals of profiles and outlines by cluster
    answers: list[Any] = yield from together(
        [
            asked(AskScatter(centers)),
            nothing() if aggregate_only else by_site(AskOutline(axes, mean)),
            summed(AskObservedProfile(centers) if has_missing else AskProfile(centers)),
            summed(AskOutline(axes, mean, centers)),
            nothing() if m is None else asked(AskBorderline(centers, m)),
            nothing()
            if aggregate_only
            else by_site(AskObservedSums(centers[None]) if has_missing else AskClusterSums(centers[None])),
            nothing() if wide is None else outcome_sums(wide),
        ]
    )
    scatters: dict[SiteId, Scatter] = answers[0]
    outlines: dict[SiteId, Outline] = answers[1]
    profile: Profile | ObservedProfile = answers[2]
    order = np.argsort(-profile.mass, kind="stable")
    if profile.mass.sum() >= rows * (1 - 1e-6):
        order = order[profile.mass[order] > 0]
    n = np.maximum(profile.known if isinstance(profile, ObservedProfile) else profile.mass[:, None], 1.0)
    about = profile.sums / n
    variance = np.maximum(profile.squares / n - about**2, 0.0)
    answered = tuple(scatters)
    empty = np.full(6, np.nan)
    moves = moves_without(centers, answers[5])
    by_name = dict(zip(answers[5], moves[:, order], strict=True))
    return Description(
        centers=centers[order],
        sites=answered,
        sizes=np.array([scatters[s].mass[order] for s in answered]),
        inertias=np.array([scatters[s].inertia[order] for s in answered]),
        silhouettes=np.array([scatters[s].silhouette[order] for s in answered]),
        means=(centers + about)[order],
        deviations=np.sqrt(variance)[order],
        mean=mean,
        deviation=deviation,
        axes=axes,
        explained=explained,
        places=((centers - mean) @ axes)[order],
        clusters=answers[3].ellipses()[order],
        outlines=np.array([outlines[s].ellipses()[0] if s in outlines else empty for s in answered]),
        borderline=_shares(answers[4], answered, order) if m is not None else None,
        movers=influential_sites(answers[5], moves),
        moves=None
        if aggregate_only
        else np.array([by_name.get(s, np.full(len(order), np.nan)) for s in answered]),
        known=profile.known[order] if isinstance(profile, ObservedProfile) else None,
        **_observed_by_site(answers[5], answered if has_missing and not aggregate_only else ()),
        outcomes=None
        if wide is None
        else OutcomeSums(*(getattr(answers[6], f)[order] for f in ("mass", "known", "sums", "squares"))),
    )


def _observed_by_site(sums: Mapping[SiteId, ObservedSums], sites: Sequence[SiteId]) -> dict[str, FloatArray]:
    """The observed cells of every site and the inertia over them, as fields of a description."""
    if not sites:
        return {}
    d = next(iter(sums.values())).known.shape[-1]
    cells = [sums[s].known[0].sum(axis=0) if s in sums else np.zeros(d) for s in sites]
    inertias = [float(sums[s].inertia[0].sum()) if s in sums else 0.0 for s in sites]
    return {"known_by_site": np.array(cells), "observed_inertias": np.array(inertias)}


def _shares(replies: dict[SiteId, Borderline], sites: tuple[SiteId, ...], order: IntArray) -> FloatArray:
    """(S, k) shares of borderline rows among the disclosed ones; nan for sites that did not answer."""
    unknown = np.full(len(order), np.nan)
    return np.array([replies[s].share[order] if s in replies else unknown for s in sites])


def _within_groups(agreement: AgreedSchema) -> FloatArray | None:
    """(width,) variance within groups of summary tables; of a category the same for each of its places."""
    if not agreement.from_summaries:
        return None
    columns = zip(agreement.preparation.columns, agreement.within, strict=True)
    return np.concatenate([np.full(c.width, inside / c.width) for c, inside in columns])


def _beside(preparation: Preparation, outcomes: AgreedSchema) -> PreparationWithOutcomes:
    return PreparationWithOutcomes.beside(preparation, outcomes.preparation.columns)


MAX_COLUMNS = 200  # no covariance is asked for beyond this: it would outweigh all other replies


@dataclass(frozen=True, eq=False)
class AnalysisState(State):
    """The agreed preparation, the states of the clusterings, and the results."""

    agreement: AgreedSchema
    inner: tuple[State, ...]  # one per k
    inertias: FloatArray  # (rounds, K) after every round of clustering
    seed: int  # of the halves and of the reference tables
    outcomes: AgreedSchema | None = None  # of the outcome columns
    choice: Choice | None = None
    exact: ExactRound | None = None  # the last exact round on rows
    mean: FloatArray | None = None  # (d,) of all rows
    covariance: FloatArray | None = None  # (d, d)
    description: Description | None = None
    bound: PartsBound | None = None  # of the certificate, where one is asked for
    uncertified: str = ""  # why there is none

    @property
    def chosen(self) -> State:
        """The state of the chosen k; of the first k before the choice, and if none was chosen."""
        k = self.choice.k if self.choice is not None else None
        return next((state for state in self.inner if len(state.centers) == k), self.inner[0])

    @property
    def centers(self) -> FloatArray:
        """(k, d) in prepared columns."""
        if self.description is not None:
            return self.description.centers
        if self.choice is not None and self.choice.none and self.mean is not None:
            return self.mean[None]
        return self.chosen.centers if self.exact is None else self.exact.centers

    @property
    def movement(self) -> float:
        """Movement of the leading restart at the k that moves most; other restarts may stop early."""
        return max(state.leader_movement for state in self.inner)

    @property
    def inertia(self) -> float:
        return self.chosen.inertia


@dataclass(frozen=True, eq=False)
class Analysis(Message, Algorithm[AnalysisState]):
    """Prepare, cluster by each of ``methods`` (one per k) in the same exchanges, choose k, describe, certify.

    With ``aggregate_only`` the only replies of single sites are their schemas. ``certify`` is the effort of a
    certificate, and ``work`` limits the work of a site for it, because a site must answer in time. ``polish``
    is the number of exact rounds on rows, of the chosen k, where sites otherwise answer from groups of rows.
    """

    preparation_options: PreparationOptions
    methods: tuple[Algorithm[Any], ...]
    aggregate_only: bool = False
    certify: str = ""
    work: float = UNLIMITED  # billions of steps
    polish: int = 0

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[AnalysisState]:
        options = self._preparation_options()
        asked = [agree_schema(sites, options)]
        asked += [agree_outcomes(sites, options)] if options.outcomes else []
        agreement, *outcomes = yield from shared(together(asked))
        # every k draws the same sketch of the data, so equal questions are asked once
        runs = [m.start(sites, deepcopy(rng)) for m in self._methods(agreement)]
        states: list[State] = yield from transformed(agreement.preparation, shared(together(runs)))
        return AnalysisState(
            agreement,
            tuple(states),
            np.zeros((0, len(states))),
            int(rng.integers(2**62)),
            outcomes[0] if outcomes else None,
        )

    def _preparation_options(self) -> PreparationOptions:
        """The options; a method that cannot keep missing cells has them filled, unless the option is keep."""
        if all(m.supports_missing for m in self.methods):
            return self.preparation_options
        if self.preparation_options.missing == "keep":
            self.methods[0].with_missing()
        return (
            replace(self.preparation_options, missing="fill")
            if self.preparation_options.missing == "auto"
            else self.preparation_options
        )

    def _methods(self, agreement: AgreedSchema) -> tuple[Algorithm[Any], ...]:
        """The methods to run on the prepared rows: over the observed cells, if some are missing."""
        keeps_missing = agreement.preparation.keeps_missing
        return tuple((m.with_missing() if keeps_missing else m).build() for m in self.methods)

    def round(
        self, state: AnalysisState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[AnalysisState]:
        transform, methods = state.agreement.preparation, self._methods(state.agreement)
        done = len(state.inertias)
        going = [i for i, (m, s) in enumerate(zip(methods, state.inner, strict=True)) if not m.ended(s, done)]
        if going:
            rngs = rng.spawn(len(state.inner))
            rounds = [methods[i].round(state.inner[i], sites, rngs[i]) for i in going]
            moved: list[State] = yield from transformed(transform, together(rounds))
            inner = list(state.inner)
            for i, new in zip(going, moved, strict=True):
                inner[i] = new
            now = [float(s.inertia) for s in inner]
            return replace(state, inner=tuple(inner), inertias=np.vstack([state.inertias, now]))
        if state.choice is None:
            return (yield from transformed(transform, self._score_all_k(state, sites)))
        if state.description is not None:
            return (yield from transformed(transform, self._certified(state, sites)))
        assert state.mean is not None
        number = 0 if state.exact is None else state.exact.number
        if number < self.polish and not state.choice.none:
            exact = yield from transformed(transform, exact_round(sites, state.centers, number + 1))
            return replace(state, exact=exact)
        m = None if state.choice.none else self.methods[0].fuzzifier
        asked = describe(
            sites,
            state.centers,
            state.mean,
            state.covariance,
            self.aggregate_only,
            m,
            state.agreement.used,
            transform.keeps_missing,
            None if state.outcomes is None else _beside(transform, state.outcomes),
        )
        description = yield from transformed(transform, asked)
        return replace(state, description=description)

    def _certified(self, state: AnalysisState, sites: tuple[SiteId, ...]) -> Steps[AnalysisState]:
        """A lower bound on the inertia of any centres; where there can be none, the reason."""
        if state.agreement.preparation.keeps_missing:
            return replace(state, uncertified=NEEDS_COMPLETE_ROWS)
        try:
            check_room(state.centers.shape[1], len(state.centers))
            bound = yield from bound_parts(sites, state.centers, self.certify, self.work)
            true_bound(bound)
        except (InputError, ReplyError) as error:
            return replace(state, uncertified=str(error))
        return replace(state, bound=bound)

    def _score_all_k(self, state: AnalysisState, sites: tuple[SiteId, ...]) -> Steps[AnalysisState]:
        """Score every k in one exchange, judge them, and choose."""
        agreement = state.agreement
        has_missing, origin = agreement.preparation.keeps_missing, agreement.mean

        def varied(centers: FloatArray | None = None) -> Steps[Any]:
            if has_missing:
                return (yield from total(sites, AskObservedCovariance(origin, centers)))
            return (yield from total(sites, AskCovariance(origin)))

        sums_of = AskObservedSums if has_missing else AskClusterSums
        runs: list[Steps[Any]] = [
            score(sites, s.centers, near_best(s), sums_of, _within_groups(agreement)) for s in state.inner
        ]
        wide = agreement.preparation.width > MAX_COLUMNS
        inside = [varied(s.centers) for s in state.inner] if has_missing and not wide else []
        results = yield from together([*runs, *inside] if wide else [*runs, *inside, varied()])
        scores = results[: len(runs)]
        if wide:
            why = f"there are more than {MAX_COLUMNS} columns"
            choice = choose(scores, [unjudged(s, why) for s in scores])
            return replace(state, choice=choice, mean=origin)
        varying = results.pop()
        covariance = varying.matrix()
        within = [one.matrix() for one in results[len(runs) :]] or [None] * len(runs)
        judgements = yield from self._judged(state, sites, scores, covariance, within)
        choice = choose(scores, judgements)
        return replace(state, choice=choice, mean=origin + varying.mean, covariance=covariance)

    def _judged(
        self,
        state: AnalysisState,
        sites: tuple[SiteId, ...],
        scores: Sequence[Scores],
        covariance: FloatArray,
        within: Sequence[FloatArray | None],
    ) -> Steps[list[Judgement]]:
        """Judge every k: replicate its clusters in halves of the rows, and compare it with references.

        ``within`` is the covariance within clusters by k, where cells are missing: with that of the means it
        is the covariance of all rows, while one of all observed cells may contradict the means.
        """
        agreement = state.agreement
        rows, groups = agreement.used, float(agreement.groups.sum())
        share = min(0.5, 0.5 * MAX_ROWS / max(rows, 1.0))
        whys = [not_judged(s, rows, groups) if s.k > 1 else "one cluster" for s in scores]
        judged = [i for i, why in enumerate(whys) if not why]
        if not judged:
            return [unjudged(s, why) for s, why in zip(scores, whys, strict=True)]

        def varied() -> Steps[Any]:
            if within[0] is not None:
                return None
            # down: a key; up: sums and products of both halves of every split
            question = AskHalfCovariance(agreement.mean, 2 * SPLITS, state.seed, share)
            return (yield from total(sites, question))

        first: list[Steps[Any]] = [varied(), histograms(sites, agreement, covariance)]
        by_half, cells = yield from together(first)

        def halves(i: int) -> Steps[Replication]:
            inside, sums_of = within[i], AskHalfSums if within[i] is None else AskObservedHalfSums

            def total_of(shares: FloatArray, means: FloatArray) -> FloatArray:
                return by_half.matrices() if inside is None else inside + between(shares, means)

            mass = None if inside is not None else by_half.mass
            return replicate(sites, state.inner[i].centers, state.seed, share, total_of, sums_of, mass)

        replications = yield from together([halves(i) for i in judged])
        found = dict(zip(judged, replications, strict=True))
        group_size, coded = people_in_a_group(agreement), coded_columns(agreement)
        compared = [i for i in judged if not early_fault(scores[i], found[i], group_size, coded)]
        rng = np.random.default_rng(state.seed)
        references = make_references(agreement, cells, covariance, rng) if compared else None
        compare = {i: references.scores(scores[i].k) for i in compared} if references else {}
        return [
            judge(s, found[i], compare.get(i), group_size, coded) if i in found else unjudged(s, whys[i])
            for i, s in enumerate(scores)
        ]

    def finished(self, state: AnalysisState) -> bool:
        if self.certify and state.bound is None and not state.uncertified:
            return False
        return state.description is not None
