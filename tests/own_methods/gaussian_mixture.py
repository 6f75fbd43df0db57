"""Federated EM for a mixture of Gaussians with diagonal covariances, written from docs/extending.md alone."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from unpooled.algorithms import Method
from unpooled.protocol import (
    Centers,
    Count,
    FloatArray,
    Numbers,
    Question,
    SiteBatch,
    SiteId,
    State,
    Steps,
    Sum,
    Summable,
    total,
)


@dataclass(frozen=True, eq=False)
class Moments(Summable, prefix="cold"):
    """Sums by responsibility, about the means that were sent."""

    mass: Annotated[FloatArray, Count("k")]
    sums: Annotated[FloatArray, Sum("k d", rows="mass")]
    squares: Annotated[FloatArray, Sum("k d", rows="mass", min_value=0.0)]
    likelihood: Annotated[FloatArray, Sum("k", rows="mass")]  # of log densities; adds up to that of all rows


@dataclass(frozen=True, eq=False)
class AskMoments(Question[Moments], prefix="cold"):
    reads = "rows"

    means: Annotated[FloatArray, Centers("k d", by="memberships")]
    variances: Annotated[FloatArray, Numbers("k d")]
    shares: Annotated[FloatArray, Numbers("k")]

    def answer_all(self, batch: SiteBatch) -> list[Moments]:
        return [self.one(batch.site(s)) for s in range(len(batch))]

    def one(self, site: SiteBatch) -> Moments:
        X = np.asarray(site.X)
        weights = np.ones(len(X)) if site.weights is None else site.weights
        away = X[:, None, :] - self.means  # (n, k, d)
        logs = (
            np.log(self.shares)
            - 0.5 * (np.log(2 * np.pi * self.variances).sum(axis=1))
            - 0.5 * (away**2 / self.variances).sum(axis=2)
        )  # (n, k)
        top = logs.max(axis=1, keepdims=True)
        density = top + np.log(np.exp(logs - top).sum(axis=1, keepdims=True))  # (n, 1)
        member = np.exp(logs - density) * weights[:, None]
        mass = member.sum(axis=0)
        disclosed = site.disclosed(mass, (member**2).sum(axis=0))
        sums = np.einsum("nk,nkd->kd", member, away)
        squares = np.einsum("nk,nkd->kd", member, away**2)
        return Moments(
            np.where(disclosed, mass, 0.0),
            np.where(disclosed[:, None], sums, 0.0),
            np.where(disclosed[:, None], squares, 0.0),
            np.where(disclosed, (member * density).sum(axis=0), 0.0),
        )


@dataclass(frozen=True, eq=False)
class MixtureState(State, prefix="cold"):
    centers: FloatArray  # (k, d)
    movement: float
    inertia: float  # minus the log likelihood
    variances: FloatArray  # (k, d)
    shares: FloatArray  # (k,)
    floor: FloatArray  # (d,)


@dataclass(frozen=True, eq=False, kw_only=True)
class GaussianMixture(Method, method="gaussian-mixture", prefix="cold"):
    citation = "Dempster, Laird, Rubin: Maximum Likelihood from Incomplete Data via EM. JRSS B 39, 1977."
    advice = "Clusters differ in width by column; memberships and a likelihood are wanted"
    asks = (AskMoments,)
    own_objective = True

    floor: float = 1e-6  # least variance, relative to that of all rows
    tolerance: float = 1e-6

    def start(self, sites: tuple[SiteId, ...], rng: np.random.Generator) -> Steps[MixtureState]:
        seeding = yield from self.seeds(sites, 1, rng)
        centers = np.asarray(seeding.centers[0])
        k, d = centers.shape
        result = yield from total(sites, AskMoments(centers.mean(axis=0)[None], np.ones((1, d)), np.ones(1)))
        variance = result.squares[0] / result.mass[0] - (result.sums[0] / result.mass[0]) ** 2
        floor = np.maximum(self.floor * variance, 1e-12)
        return MixtureState(
            centers, np.inf, np.nan, np.tile(np.maximum(variance, floor), (k, 1)), np.full(k, 1 / k), floor
        )

    def round(
        self, state: MixtureState, sites: tuple[SiteId, ...], rng: np.random.Generator
    ) -> Steps[MixtureState]:
        result = yield from total(sites, AskMoments(state.centers, state.variances, state.shares))
        full = result.mass[:, None] > 1e-9
        mass = np.where(full, result.mass[:, None], 1.0)
        step = np.where(full, result.sums / mass, 0.0)
        variances = np.where(full, np.maximum(result.squares / mass - step**2, state.floor), state.variances)
        shares = np.maximum(result.mass / result.mass.sum(), 1e-12)
        return replace(
            state,
            centers=state.centers + step,
            variances=variances,
            shares=shares / shares.sum(),
            movement=float(np.linalg.norm(step)),
            inertia=-float(result.likelihood.sum()),
        )

    def finished(self, state: MixtureState) -> bool:
        return state.movement < self.tolerance
