"""Differentially private clustering from noisy totals: over-seeding, and residuals cut to the clusters'
radius.

No paper of its own. That noisy counts and sums give a private Lloyd step is Blum et al. (SuLQ, PODS 2005) and
Su et al. (CODASPY 2016); the accounting is Dong, Roth, Su (2022). Here 6 k to 40 k cells are
released three times, each time with more cells where counts and spreads are large, and a weighted
k-means of the released cells, which costs no budget, gives k centres. A row is cut to the radius of
its cell and not to that of the box (privacy/dp/noisy_cluster_sums.py), so noise is in proportion to the size
of clusters; radii are chosen cell by cell, so that a cell between two clusters can still reach one of them.

Shares of the budget mu^2: 5% for the number of rows, their mean and their spread, 58% for the start (three
releases), 37% for Lloyd steps. The centres are a weighted mean over all steps but the first: once the centres
rest, each step is a new measurement of the same centres.

Every exchange is one release, and the state keeps all of them: nothing else was learnt from the rows. The
noise comes from the operating system: an interrupted run continues from its releases and spends no budget
twice, but no seed repeats the same run. The seed is public; it places cells and restarts the k-means of
released cells.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from unpooled import kernels
from unpooled.algorithms.method import Method
from unpooled.algorithms.private.estimates import (
    CellEstimates,
    averaged,
    best_reach,
    fuzzy_from,
    gain_over_mean,
    is_clipped,
    mean_of_rows,
    merged,
    overall,
    radius,
    read,
    scattered,
    shrunk,
    spreads,
    standard_units,
    synthetic_points,
    thinned,
)
from unpooled.algorithms.private.private_state import PrivateState, Release
from unpooled.algorithms.private.trial import excess_in_trial
from unpooled.data import Number, Preparation
from unpooled.data.schema import AskSchema, Schema
from unpooled.data.transforms import Affine
from unpooled.errors import ForecastRefusedError, InputError
from unpooled.privacy.dp.accounting import gdp_epsilon
from unpooled.privacy.dp.forecast import Forecast, forecast, reach
from unpooled.privacy.dp.gaussian import Gaussian
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells, NoisyCells, radius_limits
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.protocol.algorithm import Steps, each, total, transformed
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.fuzzy_sums import check_m
from unpooled.protocol.transform import Transform
from unpooled.typing import FloatArray

SCALES = (None, "bounds", "standard")
_SPREAD = 0.1  # of mu^2 for the columns' standard deviations, where they are asked for
_FIRST = 0.05
_SEEDS = (0.18, 0.18, 0.22)
_STEPS = 0.37
_SEED_PARTS, _STEP_PARTS = (0.3, 0.6, 0.1), (0.15, 0.8, 0.05)  # counts, sums, squares
_CELLS = (6, 40)  # a cluster, more where A = n mu / k is larger
_ONE_MEAN = 15.0  # below this A one mean may be as good as k centres
_LITTLE = 2  # steps in that case: the first one tells which is better
_GOAL = 0.004  # steps are this / expected excess: the less noise, the more steps


@dataclass(frozen=True, eq=False, kw_only=True)
class Private(Method):
    """Private k-means, or with ``m`` private fuzzy c-means.

    Parameters
    ----------
    k, init, max_rounds, tol, participation, min_cluster_size
        See ``Method``.
    dp : Gaussian
        The privacy budget and the bounds of the columns.
    scale : None, "bounds" or "standard"
        None keeps the columns' units, "bounds" makes all bounds equally wide at no cost, "standard" divides
        by standard deviations that are released with noise for a tenth of the budget.
    m : float or None
        The fuzzifier of fuzzy c-means; None is k-means.
    noises : float or None
        The noise variance of a total, in units of one noise; None: 1 per site.
    columns : tuple of str
        The numeric columns of tables, by name. A missing value counts as the middle of its bounds.
    drop : bool
        Whether rows with a missing value are left out instead.

    Examples
    --------
    >>> from unpooled.algorithms import Private
    >>> from unpooled.privacy import Gaussian
    >>> Private(k=3, dp=Gaussian(epsilon=1.0, lower=[0.0], upper=[1.0])).dp.epsilon
    1.0
    """

    citation = (
        "Su, Cao, Li, Bertino, Jin: Differentially Private K-Means Clustering. CODASPY 2016. "
        "Dong, Roth, Su: Gaussian Differential Privacy. J. R. Stat. Soc. B 84(1), 2022."
    )

    dp: Gaussian = field(default_factory=Gaussian)
    scale: str | None = None
    m: float | None = None
    noises: float | None = None
    columns: tuple[str, ...] = ()
    drop: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale not in SCALES:
            raise InputError(f'scale must be None, "bounds" or "standard" under dp, got {self.scale!r}')
        if self.m is not None:
            check_m(self.m, "Private")
        if not isinstance(self.init, str) or self.init != "adaptive":
            raise InputError("init cannot be used under dp: a private run finds its own start")
        if self.participation != 1.0:
            raise InputError(
                f"participation must be 1.0 under dp, got {self.participation}: all sites answer every round"
            )

    @property
    def fuzzifier(self) -> float | None:
        return self.m

    # ------------------------------------------------------------ forecast and budget

    def forecast(self, n: float, noises: float, d: int | None = None) -> Forecast:
        """Return the forecast for ``n`` rows; ``noises``: the number of sites if each adds its own noise."""
        return forecast(self.dp, n, d or self.dp.columns or 1, self.clusters, noises)

    def forecast_of(self, state: PrivateState) -> Forecast:
        """Return the forecast that uses the released numbers of a run."""
        expected = self.forecast(state.n, state.noises, len(state.box))
        return replace(expected, separation=state.separation, trial_excess=state.trial_excess)

    def epsilon(self, state: PrivateState) -> float:
        """Return the spent budget, as epsilon at the budget's delta."""
        return gdp_epsilon(state.spent**0.5, self.dp.delta)

    def _refuse(self, expected: Forecast) -> None:
        if expected.hopeless and not self.dp.accept_noise:
            raise ForecastRefusedError(expected.refusal())

    # ------------------------------------------------------------ releases

    def build(self) -> "Private":
        return self  # the budget, not max_rounds, limits the rounds

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[PrivateState]:
        if self.dp.rows is not None:
            self._refuse(self.forecast(self.dp.rows, self.noises or float(len(sites))))
        if self.columns:
            # down: nothing; up: what a site with a budget declares
            schemas = yield from each(sites, AskSchema())
            _check_sites(schemas, self.columns)
        half = self.dp.half
        unit = half if self.scale == "bounds" else np.full(len(half), half.max())
        state = PrivateState(
            releases=(),
            asking=None,
            transform=Affine(self.dp.middle, unit),
            box=half / unit,
            unit=1.0 if self.scale == "bounds" else float(unit[0]),
            n=0.0,
            noises=1.0,
        )
        if self.scale == "standard":
            # down: bounds; up: noisy moments of the columns
            spread = AskNoisySpread(self.dp.row_mu * _SPREAD**0.5, state.box, **self._unit)
            state = self._standardised((yield from self._released(replace(state, asking=spread), sites)))
        # down: bounds; up: a noisy histogram of distances from the middle, noisy sums
        question = AskNoisyMoments(self._mu(_FIRST), state.box, **self._unit)
        state = yield from self._released(replace(state, asking=question), sites)
        return self._begun(state, rng)

    def round(
        self, state: PrivateState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[PrivateState]:
        # down: public centres and radii; up: noisy counts, sums and squares
        state = yield from self._released(state, sites)
        last = state.releases[-1]
        if state.planned == 0:
            return self._seeded(state, last.question, last.reply, rng)
        if state.planned == 1:
            return self._with_mean(state, last.question, last.reply)
        return self._stepped(state, last.question, last.reply)

    def finished(self, state: PrivateState) -> bool:
        return state.asking is None

    def _released(self, state: PrivateState, sites: tuple[SiteId, ...]) -> Steps[PrivateState]:
        transform: Transform = state.transform
        if self.columns:
            transform = prepared(self.columns, state.transform, self.drop)
        reply = yield from transformed(transform, total(sites, state.asking))
        return replace(state, releases=(*state.releases, Release(state.asking, reply)), asking=None)

    def _mu(self, share: float) -> float:
        """The mu of a row in a release with this share of the budget for clustering."""
        rest = 1 - _SPREAD if self.scale == "standard" else 1.0
        return self.dp.row_mu * float(np.sqrt(share * rest))

    @property
    def _unit(self) -> dict[str, int]:
        """The privacy unit, as every question states it."""
        return {"sites_per_person": self.dp.sites_per_person}

    # ------------------------------------------------------------ states after releases

    def _standardised(self, state: PrivateState) -> PrivateState:
        deviation = standard_units(
            state.releases[-1].question, state.releases[-1].reply
        )  # relative to the bounds
        widest = float((1 / deviation).max())
        d = len(deviation)
        own = np.broadcast_to(self.dp.half, (d,)) * deviation
        transform = Affine(np.broadcast_to(self.dp.middle, (d,)).copy(), own * widest)
        return replace(state, transform=transform, box=1 / deviation / widest, unit=widest)

    def _begun(self, state: PrivateState, rng: np.random.Generator) -> PrivateState:
        question, reply = state.releases[-1].question, state.releases[-1].reply
        d, k = len(reply.sums), self.clusters
        box = np.broadcast_to(state.box, (d,)).copy()
        n, mean, size = overall(question, reply, box)
        noises = float(reply.noise[0])
        transform = Affine(
            *(np.broadcast_to(a, (d,)).copy() for a in (state.transform.shift, state.transform.scale))
        )
        state = replace(
            state, n=n, noises=noises, box=box, transform=transform, estimate=mean[None].repeat(k, axis=0)
        )
        self._refuse(self.forecast(self.dp.rows or n, noises, d))
        mu = self._mu(_SEEDS[0])
        number = self._cells(state, mu * _SEED_PARTS[0] ** 0.5)
        draws = mean + size / d**0.5 * rng.standard_normal((6 * number, d))
        centers = thinned(np.clip(draws, -box, box), number, rng)
        rho = np.array([size * min(1.2, reach(d))])
        return replace(state, asking=AskNoisyCells(mu, centers, box, rho, _SEED_PARTS, **self._unit))

    def _cells(self, state: PrivateState, mu: float) -> int:
        """The number of cells to release: 6 to 40 a cluster, fewer where noise would exceed their counts."""
        k, drowned = self.clusters, state.n * mu / (3 * state.noises**0.5)
        per_cluster = float(np.clip(drowned / (5 * k), *_CELLS))
        return int(min(max(per_cluster * k, 8), max(1.2 * k, drowned)))

    def _seeded(
        self, state: PrivateState, asked: AskNoisyCells, reply: NoisyCells, rng: np.random.Generator
    ) -> PrivateState:
        reading = read(asked, reply, min_cells=self.clusters)
        seeds = state.seeds + 1
        if seeds < len(_SEEDS):
            mu = self._mu(_SEEDS[seeds])
            number = self._cells(state, mu * _SEED_PARTS[0] ** 0.5)
            centers, parent = scattered(reading, state.box, number, rng)
            rho = np.clip(1.4 * np.sqrt(reading.room), *radius_limits(state.box))
            question = AskNoisyCells(mu, centers, state.box, rho[parent], _SEED_PARTS, **self._unit)
            return replace(state, asking=question, seeds=seeds)
        expected = self.forecast(state.n, state.noises, len(state.box))
        steps = int(np.clip(_GOAL / expected.excess_apart, 3, 8))
        known = self.forecast(self.dp.rows or state.n, state.noises, len(state.box))
        if self.m is None and known.strength < _ONE_MEAN:
            steps = _LITTLE
        centers, rho, separation, wide = self._reduced(reading, state, steps, rng)
        question = AskNoisyCells(
            self._mu(_STEPS / steps), centers, state.box, rho, _STEP_PARTS, self.m, **self._unit
        )
        trial_excess = float("nan")
        if self.m is None:
            sc, ss, _ = question.noise(reply)
            noise = (sc, float((ss / question.radii).max()))
            trial_excess = excess_in_trial(reading, state.box, self.clusters, steps, noise, wide, rng)
        return replace(
            state,
            asking=question,
            seeds=seeds,
            planned=steps,
            estimate=centers,
            estimate_weight=np.zeros(self.clusters),
            reach=wide,
            separation=separation,
            trial_excess=trial_excess,
        )

    def _mean_next(self, state: PrivateState, asked: AskNoisyCells, reply: NoisyCells) -> PrivateState:
        """Ask for the mean of all rows, for the budget of the last step: it replaces the smallest cluster.

        Every row is then at most as far from its centre as from this mean, however wrong the other centres
        are.
        """
        last = state.releases[-2]
        reading = read(last.question, last.reply, min_cells=self.clusters)
        mean = np.clip(mean_of_rows(asked, reply)[0], -state.box, state.box)[None]
        square = reading.count @ (reading.spread + ((reading.means - mean) ** 2).sum(axis=1))
        square = np.array([square / reading.count.sum()])
        rho = radius(state.box, square, np.zeros(1), np.array([reach(len(state.box))]))
        smallest, *others = np.argsort(reply.count, kind="stable")
        centers = np.concatenate([mean, state.estimate[others]])
        mu = self._mu(_STEPS / _LITTLE)
        return replace(
            state,
            asking=AskNoisyCells(mu, mean, state.box, rho, _STEP_PARTS, **self._unit),
            planned=1,
            estimate=centers,
            sizes=np.maximum(reply.count[[smallest, *others]], 0.0),
        )

    def _with_mean(self, state: PrivateState, asked: AskNoisyCells, reply: NoisyCells) -> PrivateState:
        """The last release of a run with little data: the mean of all rows, averaged with that of the step
        before, about which it was asked."""
        sc, ss, _ = asked.noise(reply)
        totals = asked.in_units(reply)
        count = float(max(reply.count[0], 3 * sc))
        _, before = mean_of_rows(state.releases[-2].question, state.releases[-2].reply)
        share = before / (before + float(ss[0] / count) ** 2)
        step = totals.sums / count * share
        known = shrunk(asked.centers + step, np.array([before * (1 - share)]))  # towards the bounds' middle
        mean = np.clip(known, -state.box, state.box)
        inertia = float(totals.squares[0] - count * (step**2).sum()) * state.unit**2
        return replace(
            state,
            asking=None,
            steps=1,
            estimate=np.concatenate([mean, state.estimate[1:]]),
            movement=float(np.linalg.norm(step)) * state.unit,
            inertia=max(inertia, 0.0),
        )

    def _reduced(
        self, reading: CellEstimates, state: PrivateState, steps: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, float, FloatArray]:
        """k centres from the released cells, the radii to which rows are cut there, their silhouette, and the
        radii in root mean squares."""
        box, d = state.box, len(state.box)
        points, weights = synthetic_points(reading, box, rng)
        centers = np.clip(merged(points, weights, self.clusters, rng), -box, box)
        scatter = kernels.scatter(points, [0, len(points)], centers, weights)
        separation = float(scatter.silhouette.sum() / weights.sum())
        mass = np.maximum(scatter.mass[0], 1e-9)
        square = scatter.inertia[0] / mass
        room, before = reading.about(centers if self.m is None else centers[:1])
        wide = np.array([reach(d)])
        if self.m is None:
            mu = self._mu(_STEPS * (steps - 1) / steps * _STEP_PARTS[1]) / state.noises**0.5
            noise = 1 / (mu * np.maximum(mass, reading.sc))
            wide = best_reach(points, weights, centers, noise, reading.noise)
        if self.m is not None:  # a row adds to all clusters: one radius for all
            centers, mean = fuzzy_from(points, weights, centers, self.m)
            centers, square = np.clip(centers, -box, box), np.array([mean])
        return centers, radius(box, np.maximum(square, room), before, wide), separation, wide

    def _stepped(self, state: PrivateState, asked: AskNoisyCells, reply: NoisyCells) -> PrivateState:
        sc, ss, sq = asked.noise(reply)
        totals = asked.in_units(reply)
        full = reply.count > 3 * sc
        count = np.where(full, reply.count, 1.0)
        step = np.where(full[:, None], shrunk(totals.sums / count[:, None], (ss / count) ** 2), 0.0)
        after = np.clip(asked.centers + step, -state.box, state.box)
        held = is_clipped(step, asked.radii) & (self.m is None)
        # no weight for the first step, which leaves the start, and for steps that the radius held back
        weight = np.where(held | (state.steps == 0), 0.0, asked.radii**-2.0)
        estimate, estimate_weight = averaged(state.estimate, state.estimate_weight, after, weight)
        gained = float(np.where(full, reply.count, 0.0) @ (step**2).sum(axis=1))
        inertia = (float(totals.squares.sum()) - gained) * state.unit**2
        if state.steps > 1:  # a mean over all steps but the first, weighted by the noise of their squares
            weights = [float((past.question.radii**4).sum()) ** -1 for past in state.releases[-state.steps :]]
            inertia = state.inertia + (inertia - state.inertia) * weights[-1] / sum(weights)
        steps = state.steps + 1
        question = None
        if steps < state.planned:
            count = np.maximum(reply.count, sc)
            _, room = spreads(count, step, totals.squares, asked.radii, ss, sq)
            if self.m is not None:
                room = np.array([count @ room / count.sum()])
            question = replace(asked, centers=after, rho=radius(state.box, room, asked.rho, state.reach))
        after_step = replace(
            state,
            asking=question,
            steps=steps,
            estimate=estimate,
            estimate_weight=estimate_weight,
            sizes=np.maximum(reply.count, 0.0),
            movement=float(np.linalg.norm(after - asked.centers)) * state.unit,
            inertia=max(inertia, 0.0),
        )
        if state.planned == _LITTLE and steps == 1 and gain_over_mean(asked, reply) <= 0:
            return self._mean_next(after_step, asked, reply)
        return after_step


def _check_sites(schemas: Mapping[SiteId, Schema], columns: tuple[str, ...]) -> None:
    """InputError unless every site answers with noise and has the columns: before any budget is spent."""
    summarized = [site for site, schema in schemas.items() if schema.protection[0] == "summary"]
    if summarized:
        raise InputError(
            f"{', '.join(summarized)}: answers from a summary table and not with differential privacy, and a "
            "private run needs it at every site. Run without --epsilon, or without such sites"
        )
    for site, schema in schemas.items():
        lacking = [name for name in columns if name not in schema.names]
        if lacking:
            raise InputError(
                f"{site} does not have {', '.join(lacking)}. Its columns are {', '.join(schema.names)}"
            )


def prepared(columns: tuple[str, ...], transform: Affine, drop: bool) -> Preparation:
    """Return the preparation of a table's numeric columns, scaled by ``transform``.

    A missing value counts as the middle of its bounds.
    """
    shift, scale = (np.broadcast_to(a, (len(columns),)).tolist() for a in (transform.shift, transform.scale))
    return Preparation(
        tuple(Number(name, a, a, b) for name, a, b in zip(columns, shift, scale, strict=True)), drop
    )
