"""Federated k-means with a bound on its distance from the best possible clustering: dual decomposition.

Yfantis, Wagner, Ruskowski: Federated K-Means Clustering via Dual Decomposition-based Distributed
Optimization. arXiv:2307.13267, 2023; Franklin Open, 2025. Equation numbers are the paper's. Sites share
centroids by constraint (5d). Pricing that constraint by multipliers leaves every site a clustering problem of
its own (14), whose values add up to a lower bound on the inertia of every clustering of all rows. ``update``
moves the multipliers: "sg" (17), "btm" (24), "qnda" (32), or "bundle", ours, which starts at the multipliers
of a Lloyd fixed point and models sites one by one (bundle.py).

Differences from the paper:

- Centroids lie in a box that encloses ALL rows, here and in ``as_published``. The paper's big-M uses one
  site's rows alone and can exclude the optimum.
- ``symmetry="published"`` is constraint (36). According to the paper it does not change the optimum. It
  sometimes does, so its bound names that condition. "pair" keeps (r_k - r_l).(m_k - m_l) >= 0, which some
  numbering of any centroids fulfils: its bound is unconditional, and weaker. "cell" (default) keeps centroid
  k in the Voronoi cell of r_k: stronger, and valid if the optimum has one centroid per cell. ``certify`` has
  no condition.
- The reported lower bound and centres are the best so far. ``gap_of="best"`` (default) also ends a run by
  their gap; "iterate" ends it by that of the present prices and their mean centroids, (35), as published.
- Sites are solved by our own branch and bound. A search that runs out of nodes reports its open bound: the
  sum stays valid. (36) is priced by multipliers too, so a value with it may be lower than its optimum.
- ``primal="lloyd"`` (default) weights the sites' centroids by their counts and goes on by Lloyd steps;
  "mean" is (33).
- "qnda" damps BFGS (27) as Powell does, and replaces a bundle cut (30) by the model's tangent, which may let
  a step break the cut (node_steps.py).
- The references of ``as_published`` come from a solve at prices of zero, the paper's first iteration. We
  repeat it with (36), because its cut would not belong to the same dual function: 150 iterations of the paper
  are that solve and 149 rounds.

A site discloses its centroids and counts at the prices sent, its value, and, unless a public range is given
as ``box``, the range of its columns.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from unpooled.algorithms.dual.bundle import bundled
from unpooled.algorithms.dual.dual_state import DualState, Evaluated, Evaluations
from unpooled.algorithms.dual.node_steps import (
    Cuts,
    bundle_trust,
    damped_bfgs,
    links,
    quasi_newton,
    subgradient,
)
from unpooled.algorithms.lloyd import Lloyd
from unpooled.algorithms.method import Method, WorkLimits, sample_sites
from unpooled.errors import InputError
from unpooled.optimality.bounds import AskBounds, AskPartsBound  # which certify asks
from unpooled.optimality.box import check_box, enclosing
from unpooled.optimality.certificate import NODES
from unpooled.optimality.exact import check_reach
from unpooled.optimality.parts import sum_below
from unpooled.optimality.questions import AskNode, AskObjective, AskOutside, AskRange, Objective
from unpooled.protocol.algorithm import Steps, each, together, total
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments, ClusterSums
from unpooled.typing import FloatArray, IntArray

UPDATES = ("sg", "btm", "qnda", "bundle")
CONDITIONS = {
    "cell": "one centroid per cell of the references",
    "pair": "unconditional",
    "published": "centroids that the references number by (36)",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Dual(Method, method="dual"):
    """Clustering with a lower bound on the inertia of any clustering. For sites of some dozen rows.

    Parameters
    ----------
    k, init, max_rounds, tol, participation, min_cluster_size
        See ``Method``.
    update : {"bundle", "sg", "btm", "qnda"}
        How the multipliers move; the module's docstring has the equations.
    symmetry : {"cell", "pair", "published"}
        The constraint that numbers the centroids.
    topology : str
        What ties the centroids of sites: ``"line"`` links neighbours; any other name links each to the mean.
    references : {"lloyd", "first"}
        The references of the symmetry constraint: a federated Lloyd fixed point, or the first site's own.
    primal : {"lloyd", "mean"}
        How a clustering of all rows follows from the sites' centroids.
    gap : float
        The relative duality gap at which a run ends (epsilon_DG).
    gap_of : {"best", "iterate"}
        Whether that gap is of the best bounds so far, or of the present prices and their mean centroids (35).
    residual : float
        The primal residual at which a run ends (epsilon_p).
    step : float
        alpha_0 of the step sizes and trust regions.
    cuts : int
        The number of evaluations that are kept (tau).
    box : array of shape (2, d) or None
        A public range of the columns. None asks the sites for theirs.
    n_starts : int
        The number of Lloyd starts for the references.
    nodes : int
        The largest number of nodes that a site's search visits.

    Examples
    --------
    >>> from unpooled.algorithms import Dual
    >>> Dual(k=3).update, Dual.as_published(k=3).symmetry
    ('bundle', 'published')
    """

    citation = (
        "Yfantis, Wagner, Ruskowski: Federated K-Means Clustering via Dual Decomposition-based Distributed "
        "Optimization. arXiv:2307.13267, 2023; Franklin Open, 2025."
    )
    advice = "A few dozen rows a site, and you must know how far the clustering is from the best possible"
    visibility = "each site's means"
    asks = (AskLocalMeans, AskRange, AskOutside, AskNode, AskObjective, AskPartsBound, AskBounds)

    update: str = "bundle"
    symmetry: str = "cell"
    topology: str = "line"
    references: str = "lloyd"
    primal: str = "lloyd"
    max_rounds: int = 150
    gap: float = 1e-4
    gap_of: str = "best"
    residual: float = 0.0
    step: float = 0.5
    cuts: int = 50
    box: FloatArray | None = None
    n_starts: int = 10
    nodes: int = 200_000

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (
            ("update", UPDATES),
            ("symmetry", tuple(CONDITIONS)),
            ("topology", ("line", "star")),
            ("references", ("lloyd", "first")),
            ("primal", ("lloyd", "mean")),
            ("gap_of", ("best", "iterate")),
        ):
            if getattr(self, name) not in known:
                raise InputError(
                    f"Dual: {name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        for name in ("step", "cuts", "n_starts", "nodes"):
            if not getattr(self, name) > 0:
                raise InputError(f"Dual: {name} must be above 0, got {getattr(self, name)}")
        if self.box is not None:
            check_box(self.box)

    @classmethod
    def as_published(cls, *, k: int | None = None, update: str = "qnda") -> Self:
        """Return table 1's parameters, constraint (36), the mean (33) and the gap (35)."""
        return cls(
            k=k,
            update=update,
            symmetry="published",
            references="first",
            primal="mean",
            max_rounds=149,
            gap=0.0025,
            gap_of="iterate",
            residual=1e-2,
        )

    def work_limits(self) -> WorkLimits:
        return {
            **super().work_limits(),
            AskNode: {"nodes": self.nodes},
            AskBounds: {"nodes": NODES},
        }

    def with_restarts(self, n: int | None) -> Self:
        return self if n is None else replace(self, n_starts=n)

    # ------------------------------------------------------------ start

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[DualState]:
        k = self.clusters
        asks: list[Steps[Any]] = [total(sites, AskMoments()), enclosing(sites, self.box)]
        moments, box = yield from together(asks)
        d = box.shape[1]
        check_reach(1, d, k)
        references = (yield from self._lloyd(sites, rng)) if self.references == "lloyd" else None
        zero = np.zeros((k, d))
        # down: no prices; up: every site's own best clustering. Their sum bounds, whatever the symmetry
        free = yield from each(sites, self._node(zero, box, "none", zero))
        names = tuple(free)
        first = free[names[0]]
        if references is None and not first.seen.any():
            raise InputError(
                f'Dual: references="first" are the centroids of {names[0]}, which discloses none. '
                'Use references="lloyd", which needs only sums over sites'
            )
        if references is None:
            references = np.where(first.seen[:, None] > 0, first.centroids, box.mean(axis=0))
        # down: the references; up: what they cost, and each site's residuals about them
        one_set = references[None]
        asks = [total(names, AskObjective(one_set)), each(names, AskClusterSums(one_set))]
        costs, sums = yield from together(asks)
        prices = np.zeros((len(names), k, d))
        if self.update == "bundle":
            prices = 2 * np.stack([sums[s].sums[0] for s in names])  # KKT: their sum is 0 at a fixed point
            prices -= prices.mean(axis=0)
        whole = costs.mass[0] >= moments.n * (1 - 1e-9)
        p = links(len(names), self.topology).shape[1] * k * d
        return DualState(
            sites=names,
            prices=prices,
            references=references,
            box=box,
            n=moments.n,
            centers=references,
            upper_bound=float(costs.inertia[0]) if whole else np.inf,
            lower_bound=sum_below(float(r.value[0]) for r in free.values()),
            bound_condition="unconditional",
            polished=references,
            past=Evaluations.none(len(names), k, d),
            curve=np.eye(p) if self.update == "qnda" else np.zeros((0, 0)),
            lowers=np.zeros(0),
            uppers=np.zeros(0),
            residual=np.inf,
            cap=np.inf,
            movement=np.inf,
            done=False,
        )

    def _lloyd(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[FloatArray]:
        """A Lloyd fixed point: the references, and the first upper bound."""
        lloyd = Lloyd(
            k=self.clusters,
            init=self.init,
            n_starts=1 if isinstance(self.init, np.ndarray) else self.n_starts,
            tol=1e-12,
            min_cluster_size=self.min_cluster_size,
        ).build()
        state = yield from lloyd.start(sites, rng)
        while not lloyd.finished(state):
            state = yield from lloyd.round(state, sites, rng)
        centers: FloatArray = state.centers
        return centers

    def _node(self, prices: FloatArray, box: FloatArray, symmetry: str, references: FloatArray) -> AskNode:
        k = len(prices)
        low, high = np.tile(box[0], (k, 1)), np.tile(box[1], (k, 1))
        return AskNode(prices, low, high, symmetry, references, self.nodes)

    # ------------------------------------------------------------ rounds

    def round(
        self, state: DualState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[DualState]:
        asked = sample_sites(sites, self.participation, rng)
        prices = dict(zip(state.sites, state.prices, strict=True))
        nothing = np.zeros_like(state.references)  # for a site without prices: it was silent at the start
        # down: each site's prices; up: its centroids, counts and value at them
        replies = yield from each(
            asked,
            lambda s: self._node(prices.get(s, nothing), state.box, self.symmetry, state.references),
        )
        now = Evaluated.from_replies(state, replies)
        average = now.mean(weighted=self.primal == "lloyd", fallback=state.centers)
        tried = np.stack([average, state.polished]) if self.primal == "lloyd" else average[None]
        # down: the mean centroids (and a Lloyd step from the last ones); up: what they cost, and their sums
        asks: list[Steps[Any]] = [total(asked, AskObjective(tried)), total(asked, AskClusterSums(tried))]
        costs, sums = yield from together(asks)
        state = self._bounded(state, now, tried, costs, sums)
        return self._moved(state, now)

    def _bounded(
        self, state: DualState, now: Evaluated, tried: FloatArray, costs: Objective, sums: ClusterSums
    ) -> DualState:
        """The bounds after a round, and a Lloyd step from the better of the tried centres."""
        upper, centers = state.upper_bound, state.centers
        best = int(costs.inertia.argmin())
        whole = costs.mass[0] >= state.n * (1 - 1e-9)
        primal = float(costs.inertia[best]) if whole else np.inf
        if primal < upper:
            upper, centers = primal, tried[best]
        lower, condition = state.lower_bound, state.bound_condition
        dual = now.bound(state.prices, state.box)
        if dual > lower:
            lower, condition = dual, CONDITIONS[self.symmetry]
        return replace(
            state,
            centers=centers,
            upper_bound=upper,
            lower_bound=lower,
            bound_condition=condition,
            polished=sums.means(tried, self.min_cluster_size)[best],
            past=state.past.and_then(
                state.prices, now.centroids, now.values, now.curved(state.box), self.cuts
            ),
            lowers=np.append(state.lowers, dual),
            uppers=np.append(state.uppers, primal),
            movement=float(np.linalg.norm(centers - state.centers)),
        )

    def _moved(self, state: DualState, now: Evaluated) -> DualState:
        """The multipliers to try next."""
        answering = np.flatnonzero(now.answered)
        M = links(len(answering), self.topology)
        slope = np.einsum("ip,ikd->pkd", M, now.centroids[answering])
        residual = float(np.linalg.norm(slope))
        state = replace(state, residual=residual)
        gap = state.gap if self.gap_of == "best" else state.iterate_gap
        if gap <= self.gap or residual <= self.residual or state.rounds >= self.max_rounds:
            return replace(state, done=True)
        if self.update == "bundle":
            return bundled(state, self.gap)
        alpha = self.step / np.sqrt(state.rounds)
        slopes = np.einsum("ip,likd->lpkd", M, state.past.centroids[:, answering]).reshape(
            len(state.past), -1
        )
        if not slopes.shape[1]:  # one site alone has no links, so no multipliers
            return state
        cuts = Cuts(slopes, state.past.heights(state.prices))
        if self.update == "sg":
            s = subgradient(slopes[-1], alpha)
        elif self.update == "btm":
            s = bundle_trust(cuts, alpha)
        else:
            state = self._curved(state, slopes, answering, M)
            s = quasi_newton(state.curve, cuts, alpha)
        prices = state.prices.copy()
        prices[answering] += np.einsum("ip,pkd->ikd", M, s.reshape(slope.shape))
        return replace(state, prices=prices)

    def _curved(self, state: DualState, slopes: FloatArray, answering: IntArray, M: FloatArray) -> DualState:
        """The Hessian after the last step; afresh where the sites that answer have changed."""
        if len(slopes) < 2 or len(answering) < len(state.sites) or len(state.curve) != slopes.shape[1]:
            return replace(state, curve=np.eye(slopes.shape[1]))
        change = (state.past.prices[-1] - state.past.prices[-2])[answering].reshape(len(answering), -1)
        s = np.linalg.lstsq(M, change, rcond=None)[0].ravel()
        return replace(state, curve=damped_bfgs(state.curve, s, slopes[-1] - slopes[-2]))

    def finished(self, state: DualState) -> bool:
        return state.done
