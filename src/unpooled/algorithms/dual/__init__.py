"""Federated k-means with a proof: dual decomposition. How far is this clustering from the best possible?

"Federated K-Means Clustering via Dual Decomposition-based Distributed Optimization", submitted to TMLR (2023);
equation numbers are its. Sites share centroids by constraint (5d); pricing that constraint by multipliers leaves
every site a clustering problem of its own (14), whose values add up to a lower bound on the inertia of every
clustering of all rows. ``update`` moves the multipliers: "sg" (17), "btm" (24), "qnda" (32), or "bundle", ours,
which starts at the multipliers of a Lloyd fixed point and models sites one by one (bundle.py).

Where this leaves the paper:

- Centroids lie in a box that encloses ALL rows, here and in ``as_published``. The paper's big-M looks at one
  site's rows alone and can exclude the optimum.
- ``symmetry="published"`` is constraint (36). It is said to leave the optimum untouched; it does not always, so
  its bound names that condition. "pair" keeps (r_k - r_l).(m_k - m_l) >= 0, which some numbering of any
  centroids fulfils: its bound is unconditional, and weaker. "cell" (default) keeps centroid k in the Voronoi cell
  of r_k: stronger, and it holds if the optimum has one centroid per cell. ``certify`` has no condition.
- The lower bound and the centres are the best so far, and sites are solved by our own branch and bound. A search
  that runs out of nodes reports its open bound: the sum stays valid.
- ``primal="lloyd"`` (default) weights the sites' centroids by their counts and goes on by Lloyd steps; "mean" is (33).

What is disclosed: every site's centroids and counts at the prices sent, its value, and, unless a public range is
given as ``box``, the range of its columns.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from unpooled.algorithms.base import Method
from unpooled.algorithms.dual import bundle
from unpooled.algorithms.dual.questions import (
    AskNode,
    AskObjective,
    AskOutside,
    AskRange,
    NodeSolution,
)
from unpooled.algorithms.dual.steps import Cuts, bundle_trust, damped_bfgs, links, quasi_newton, subgradient
from unpooled.algorithms.lloyd import Lloyd
from unpooled.codec import FloatArray, IntArray
from unpooled.errors import BadInput
from unpooled.exact import check_reach, relative_gap
from unpooled.messages import Message, SiteId
from unpooled.protocol import Steps, each, together, total
from unpooled.sampling import choose
from unpooled.summaries import AskClusterSums, AskMoments

UPDATES = ("sg", "btm", "qnda", "bundle")
CONDITIONS = {
    "cell": "one centroid per cell of the references",
    "pair": "unconditional",
    "published": "centroids that the references number by (36)",
}


@dataclass(frozen=True, eq=False)
class DualState(Message):
    """Multipliers, what the sites answered, and the bounds so far."""

    sites: tuple[SiteId, ...]  # N, those that answered at the start
    prices: FloatArray  # (N, k, d) to be sent next; they sum to zero over the sites
    references: FloatArray  # (k, d)
    box: FloatArray  # (2, d)
    n: float  # rows in all
    centers: FloatArray  # (k, d) the best so far
    upper_bound: float  # their inertia; inf where some rows are not shown
    lower_bound: float  # on the inertia of any k centres, if bound_condition holds
    bound_condition: str
    polished: FloatArray  # (k, d) centres to try next: a Lloyd step from the last ones tried
    past_prices: FloatArray  # (L, N, k, d) evaluations, newest last
    past_centroids: FloatArray  # (L, N, k, d)
    past_values: FloatArray  # (L, N)
    past_counts: FloatArray  # (L, N, k)
    curve: FloatArray  # (p, p) minus the approximated Hessian
    lowers: FloatArray  # (rounds,) the dual value of every round
    uppers: FloatArray  # (rounds,) the primal value of every round
    residual: float  # norm of the consensus constraints (38)
    cap: float  # how far the bundle's next step may go
    movement: float
    done: bool

    @property
    def rounds(self) -> int:
        return len(self.lowers)

    @property
    def inertia(self) -> float:
        return self.upper_bound

    @property
    def gap(self) -> float:
        """How far from the best possible, at most: 1 - lower_bound / upper_bound (35)."""
        return relative_gap(self.lower_bound, self.upper_bound) if np.isfinite(self.upper_bound) else np.inf


@dataclass(frozen=True, eq=False, kw_only=True)
class Dual(Method):
    """Clustering with a lower bound on what any clustering costs. For sites of some dozen rows."""

    update: str = "bundle"
    symmetry: str = "cell"
    topology: str = "line"
    primal: str = "lloyd"
    max_rounds: int = 150
    gap: float = 1e-4  # relative duality gap that is small enough (epsilon_DG)
    residual: float = 0.0  # primal residual that is small enough (epsilon_p)
    step: float = 0.5  # alpha_0 of the step sizes and trust regions
    cuts: int = 50  # evaluations kept (tau)
    box: FloatArray | None = None  # (2, d) a public range of the columns; None asks the sites for theirs
    n_starts: int = 10  # Lloyd starts for the references
    nodes: int = 200_000  # a site's search visits at most so many

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (
            ("update", UPDATES),
            ("symmetry", tuple(CONDITIONS)),
            ("topology", ("line", "star")),
            ("primal", ("lloyd", "mean")),
        ):
            if getattr(self, name) not in known:
                raise BadInput(f"Dual: {name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        for name in ("step", "cuts", "n_starts", "nodes"):
            if not getattr(self, name) > 0:
                raise BadInput(f"Dual: {name} must be above 0, got {getattr(self, name)}")
        if self.box is not None:
            check_box(self.box)

    @classmethod
    def as_published(cls, *, k: int | None = None, update: str = "qnda") -> Self:
        """Table 1's parameters, constraint (36) and the mean (33)."""
        return cls(k=k, update=update, symmetry="published", primal="mean", gap=0.0025, residual=1e-2)

    # ------------------------------------------------------------ start

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[DualState]:
        k = self.clusters
        moments, box = yield from together([total(sites, AskMoments()), self._range(sites)])  # type: ignore[list-item]
        d = box.shape[1]
        check_reach(1, d, k)
        references = None if self.symmetry == "published" else (yield from self._lloyd(sites, rng))
        zero = np.zeros((k, d))
        # down: no prices; up: every site's own best clustering. Their sum bounds, whatever the symmetry
        free = yield from each(sites, self._node(zero, box, "none", zero))
        names = tuple(free)
        first = free[names[0]]
        if references is None:
            references = first.centroids
        # down: the references; up: what they cost, and each site's residuals about them
        costs, sums = yield from together(
            [total(names, AskObjective(references[None])), each(names, AskClusterSums(references[None]))]  # type: ignore[list-item]
        )
        prices = np.zeros((len(names), k, d))
        if self.update == "bundle":
            prices = 2 * np.stack([sums[s].sums[0] for s in names])  # KKT: they sum to zero at a fixed point
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
            lower_bound=max(0.0, sum(float(r.value[0]) for r in free.values())),
            bound_condition="unconditional",
            polished=references,
            past_prices=np.zeros((0, len(names), k, d)),
            past_centroids=np.zeros((0, len(names), k, d)),
            past_values=np.zeros((0, len(names))),
            past_counts=np.zeros((0, len(names), k)),
            curve=np.eye(p) if self.update == "qnda" else np.zeros((0, 0)),
            lowers=np.zeros(0),
            uppers=np.zeros(0),
            residual=np.inf,
            cap=np.inf,
            movement=np.inf,
            done=False,
        )

    def _range(self, sites: tuple[SiteId, ...]) -> Steps[FloatArray]:
        """A box around all rows: the one given, which must enclose them, or the hull of the sites' own."""
        if self.box is not None:
            # down: the box; up: how many sites have rows outside
            outside = yield from total(sites, AskOutside(self.box))
            if outside.sites[0] > 0:
                raise BadInput(
                    f"Dual: the box excludes rows of {outside.sites[0]:.0f} of {len(sites)} sites: "
                    "a bound over it would be false"
                )
            return self.box
        # down: nothing; up: the range of every site's columns
        ranges = yield from each(sites, AskRange())
        hidden = [site for site, r in ranges.items() if r.withheld[0]]
        if hidden:
            raise BadInput(
                f"Dual: {len(hidden)} of {len(ranges)} sites do not show the range of their columns "
                f"({', '.join(hidden[:3])}): give a public range as box=(lowest, highest)"
            )
        shown = [r for r in ranges.values() if len(r.low)]
        if not shown:
            raise BadInput(f"k={self.clusters} clusters from 0 rows")
        return np.array([np.min([r.low for r in shown], axis=0), np.max([r.high for r in shown], axis=0)])

    def _lloyd(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[FloatArray]:
        """A Lloyd fixed point: the references, and the first upper bound."""
        lloyd = Lloyd(
            k=self.clusters,
            init=self.init,
            n_starts=1 if isinstance(self.init, np.ndarray) else self.n_starts,
            tol=1e-12,
            min_cluster_size=self.min_cluster_size,
        )
        state = yield from lloyd.start(sites, rng)
        while not lloyd.finished(state):
            state = yield from lloyd.round(state, sites, rng)
        return state.centers

    def _node(self, prices: FloatArray, box: FloatArray, symmetry: str, references: FloatArray) -> AskNode:
        k = len(prices)
        return AskNode(
            prices, np.tile(box[0], (k, 1)), np.tile(box[1], (k, 1)), symmetry, references, self.nodes
        )

    # ------------------------------------------------------------ rounds

    def round(
        self, state: DualState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[DualState]:
        asked = choose(sites, self.participation, rng)
        prices = dict(zip(state.sites, state.prices, strict=True))
        nothing = np.zeros_like(state.references)  # for a site that was silent at the start: it has no price
        # down: each site's prices; up: its centroids, counts and value at them
        got = yield from each(
            asked,
            lambda s: self._node(prices.get(s, nothing), state.box, self.symmetry, state.references),
        )
        now = _Evaluated.of(state, got)
        average = now.mean(weighted=self.primal == "lloyd", fallback=state.centers)
        tried = np.stack([average, state.polished]) if self.primal == "lloyd" else average[None]
        # down: the mean centroids (and a Lloyd step from the last ones); up: what they cost, and their sums
        costs, sums = yield from together(
            [total(asked, AskObjective(tried)), total(asked, AskClusterSums(tried))]
        )  # type: ignore[list-item]
        state = self._bounded(state, now, tried, costs, sums)
        return self._moved(state, now)

    def _bounded(
        self, state: DualState, now: "_Evaluated", tried: FloatArray, costs: Any, sums: Any
    ) -> DualState:
        """The bounds after a round, and a Lloyd step from the better of what was tried."""
        upper, centers = state.upper_bound, state.centers
        best = int(costs.inertia.argmin())
        whole = costs.mass[0] >= state.n * (1 - 1e-9)
        primal = float(costs.inertia[best]) if whole else np.inf
        if primal < upper:
            upper, centers = primal, tried[best]
        lower, condition = state.lower_bound, state.bound_condition
        if now.dual > lower:
            lower, condition = now.dual, CONDITIONS[self.symmetry]
        keep = self.cuts - 1
        return replace(
            state,
            centers=centers,
            upper_bound=upper,
            lower_bound=lower,
            bound_condition=condition,
            polished=sums.means(tried, self.min_cluster_size)[best],
            past_prices=np.concatenate(
                [state.past_prices[-keep:] if keep else state.past_prices[:0], state.prices[None]]
            ),
            past_centroids=np.concatenate(
                [state.past_centroids[-keep:] if keep else state.past_centroids[:0], now.centroids[None]]
            ),
            past_values=np.concatenate(
                [state.past_values[-keep:] if keep else state.past_values[:0], now.values[None]]
            ),
            past_counts=np.concatenate(
                [state.past_counts[-keep:] if keep else state.past_counts[:0], now.curved(state.box)[None]]
            ),
            lowers=np.append(state.lowers, now.dual),
            uppers=np.append(state.uppers, primal),
            movement=float(np.linalg.norm(centers - state.centers)),
        )

    def _moved(self, state: DualState, now: "_Evaluated") -> DualState:
        """The multipliers to try next."""
        here = np.flatnonzero(now.answered)
        M = links(len(here), self.topology)
        slope = np.einsum("ip,ikd->pkd", M, now.centroids[here])
        residual = float(np.linalg.norm(slope))
        state = replace(state, residual=residual)
        if state.gap <= self.gap or residual <= self.residual or state.rounds >= self.max_rounds:
            return replace(state, done=True)
        if self.update == "bundle":
            return self._bundled(state)
        alpha = self.step / np.sqrt(state.rounds)
        slopes = np.einsum("ip,likd->lpkd", M, state.past_centroids[:, here]).reshape(
            len(state.past_prices), -1
        )
        if not slopes.shape[1]:  # one site has nobody to agree with
            return state
        heights = np.array(
            [v.sum() + float((m * (state.prices - q)).sum())
             for v, m, q in zip(state.past_values, state.past_centroids, state.past_prices, strict=True)]
        )  # fmt: skip
        if self.update == "sg":
            s = subgradient(slopes[-1], alpha)
        elif self.update == "btm":
            s = bundle_trust(Cuts(slopes, heights), alpha)
        else:
            state = self._curved(state, slopes, here, M)
            s = quasi_newton(state.curve, Cuts(slopes, heights), alpha)
        prices = state.prices.copy()
        prices[here] += np.einsum("ip,pkd->ikd", M, s.reshape(slope.shape))
        return replace(state, prices=prices)

    def _curved(self, state: DualState, slopes: FloatArray, here: IntArray, M: FloatArray) -> DualState:
        """The Hessian after the last step; afresh where the sites that answer have changed."""
        if len(slopes) < 2 or len(here) < len(state.sites) or len(state.curve) != slopes.shape[1]:
            return replace(state, curve=np.eye(slopes.shape[1]))
        change = (state.past_prices[-1] - state.past_prices[-2])[here].reshape(len(here), -1)
        s = np.linalg.lstsq(M, change, rcond=None)[0].ravel()
        return replace(state, curve=damped_bfgs(state.curve, s, slopes[-1] - slopes[-2]))

    def _bundled(self, state: DualState) -> DualState:
        return bundled(state, self.gap)

    def finished(self, state: DualState) -> bool:
        return state.done


@dataclass(frozen=True, eq=False)
class _Evaluated:
    """One round's answers, complete: a site that is silent or hides its value costs at least its prices do."""

    centroids: FloatArray  # (N, k, d)
    counts: FloatArray  # (N, k)
    seen: FloatArray  # (N, k)
    values: FloatArray  # (N,)
    answered: FloatArray  # (N,)

    @classmethod
    def of(cls, state: DualState, got: dict[SiteId, NodeSolution]) -> "_Evaluated":
        low, high = state.box
        cheapest = np.where(state.prices > 0, low, high)  # (N, k, d)
        values = (state.prices * cheapest).sum(axis=(1, 2))  # squared distances are not negative
        N, k, _ = state.prices.shape
        centroids, counts, seen, answered = cheapest.copy(), np.zeros((N, k)), np.zeros((N, k)), np.zeros(N)
        for i, site in enumerate(state.sites):
            if site in got:
                reply, answered[i] = got[site], 1.0
                counts[i], seen[i] = reply.counts, reply.seen
                centroids[i] = reply.centroids
                if reply.whole[0]:
                    values[i] = max(values[i], float(reply.value[0]))
            elif len(state.past_values) and np.array_equal(state.past_prices[-1][i], state.prices[i]):
                values[i], centroids[i] = state.past_values[-1][i], state.past_centroids[-1][i]
        mean = _mean(centroids, seen, counts, state.centers)
        hidden = (seen == 0) & (answered[:, None] > 0)
        centroids = np.where(hidden[..., None], mean, centroids)  # no pull where nothing is known
        return cls(centroids, counts, seen, values, answered)

    @property
    def dual(self) -> float:
        return float(self.values.sum())

    def mean(self, *, weighted: bool, fallback: FloatArray) -> FloatArray:
        """(k, d) the sites' centroids, averaged: by their counts, or plainly (33)."""
        counts = self.counts if weighted else self.seen
        return _mean(self.centroids, self.seen, counts, fallback)

    def curved(self, box: FloatArray) -> FloatArray:
        """(N, k) counts where the cost bends with the price: not where a centroid touches the box."""
        edge = 1e-9 * (box[1] - box[0])
        inside = ((self.centroids > box[0] + edge) & (self.centroids < box[1] - edge)).all(axis=2)
        return np.where(inside, self.counts, 0.0)


def _mean(centroids: FloatArray, seen: FloatArray, counts: FloatArray, fallback: FloatArray) -> FloatArray:
    weight = seen * counts
    mass = weight.sum(axis=0)
    sums = (weight[..., None] * centroids).sum(axis=0)
    return np.where(mass[:, None] > 0, sums / np.where(mass > 0, mass, 1.0)[:, None], fallback)


def bundled(state: DualState, gap: float) -> DualState:
    """The next prices of ``bundle``: the model's best within a cap that shrinks when a step disappoints."""
    past = bundle.Evaluations(state.past_prices, state.past_centroids, state.past_values, state.past_counts)
    best = int(state.lowers[-len(past.values) :].argmax())
    origin = past.prices[best]
    scale = float(np.linalg.norm(origin)) or float(np.sqrt(state.n))
    cap = min(state.cap, scale)
    if best < len(past.values) - 1:
        cap *= 0.5
    target = gap * state.upper_bound
    for quadratic in (True, False):
        got = bundle.step(past, origin, cap, quadratic=quadratic)
        if got is not None and got[1] - past.values[best].sum() > max(
            0.05 * target, 1e-3 * abs(state.lower_bound)
        ):
            return replace(state, prices=got[0], cap=cap)
    return replace(state, done=True)


def check_box(box: Any) -> None:
    """(2, d), finite, lowest below highest."""
    if not isinstance(box, np.ndarray) or box.ndim != 2 or len(box) != 2 or not np.isfinite(box).all():
        raise BadInput(
            "Dual: box must be a finite array (2, d): the lowest and the highest value of every column"
        )
    bad = np.flatnonzero(box[0] > box[1])
    if len(bad):
        j = int(bad[0])
        raise BadInput(f"Dual: box is empty in column {j}: from {box[0, j]} to {box[1, j]}")
