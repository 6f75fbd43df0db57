"""Centres that coincide, and the fuzzifier m at which they would not.

Two centres on one place c repel each other only where m is small enough. Let them differ by a small step: to
first order a step of fuzzy c-means multiplies it by 2 m / (m - 1) F, where F is the mean of r r' / |r|^2 over
rows r = x - c, weighted by u^m. So they part if 2 m / (m - 1) times the largest eigenvalue l of F is above 1:

    m < 1 / (1 - 2 l),    and at any m where l >= 1/2

With all centres on the grand mean this is the bound of Yu, Cheng, Huang (Analysis of the Weighting Exponent
in the FCM, IEEE Trans. SMC-B 34, 2004). In one column l is 1; in d columns alike it is 1 / d, so that m = 2
needs a direction that holds at least a quarter of the (normalised) variance. For g centres to part from each
other the same is asked of the (g - 1)th eigenvalue; that is a rule of thumb. F needs totals only.
"""

from dataclasses import dataclass

import numpy as np

from unpooled.protocol.algorithm import Steps, total
from unpooled.protocol.messages import SiteId
from unpooled.protocol.questions.fuzzy_sums import AskDirections, AskFuzzySums, FuzzySums
from unpooled.typing import FloatArray

_COINCIDE = 0.1  # centres nearer than this share of a cluster's width coincide
_WHOLE = 48  # columns up to which F is asked for as a whole
_VECTORS, _ITERATIONS = 4, 6  # of subspace iteration, for more columns


@dataclass(frozen=True)
class Coincidence:
    """Groups of centres that coincide, and the m below which they would part."""

    groups: tuple[tuple[int, ...], ...]  # indices of centres
    m: float  # the m that was used
    bound: float  # below it some of them part; infinite: at any m
    apart: float  # below it all of them part, by the rule of thumb

    @property
    def suggestion(self) -> float:
        """An m to try: safely below the bound, and below the m at which all centres part."""
        return 1 + min(0.7 * (self.bound - 1), 0.95 * (self.apart - 1), 0.7 * (self.m - 1))

    def __str__(self) -> str:
        names = " and ".join("{" + ", ".join(map(str, g)) + "}" for g in self.groups)
        if self.bound >= self.m:
            return f"centres {names} coincide: they started in one place, or there are fewer clusters than k"
        return (
            f"centres {names} coincide: m={self.m:g} is too large for these rows, whose centres part only "
            f"below m={_floor(self.bound)}; try m={_floor(self.suggestion)}"
        )


def _floor(m: float) -> str:
    """m rounded down to two figures behind its leading 1: 1.032 stays 1.032."""
    digits = max(2, 1 - int(np.floor(np.log10(max(m - 1, 1e-12)))))
    return f"{np.floor(m * 10**digits) / 10**digits:.{digits}f}"


def coinciding(
    sites: tuple[SiteId, ...], centers: FloatArray, m: float, sums: FuzzySums | None = None
) -> Steps[Coincidence | None]:
    """Return the groups of centres that coincide, and the m below which they part; None if there are none."""
    if sums is None:
        # down: the centres; up: J_m and weights, for the width of each cluster
        sums = yield from total(sites, AskFuzzySums(centers[None], m))
    width = np.sqrt(sums.inertia[0] / np.maximum(sums.weight[0], 1e-300))
    groups = _groups(centers, width)
    if not groups:
        return None
    bound = apart = np.inf
    for group in groups:
        values = yield from _eigenvalues(sites, centers, m, group[0], len(group) - 1)
        bound, apart = min(bound, _critical(values[0])), min(apart, _critical(values[-1]))
    return Coincidence(groups, float(m), bound, apart)


def _critical(eigenvalue: float) -> float:
    return 1 / (1 - 2 * eigenvalue) if eigenvalue < 0.5 else float("inf")


def _groups(centers: FloatArray, width: FloatArray) -> tuple[tuple[int, ...], ...]:
    """Sets of two or more centres, each near the first of its set."""
    left, groups = list(range(len(centers))), []
    while left:
        first = left[0]
        gaps = np.linalg.norm(centers[left] - centers[first], axis=1)
        near = [
            j for j, gap in zip(left, gaps, strict=True) if gap <= _COINCIDE * min(width[j], width[first])
        ]
        near = near or [first]
        if len(near) > 1:
            groups.append(tuple(near))
        left = [j for j in left if j not in near]
    return tuple(groups)


def _eigenvalues(
    sites: tuple[SiteId, ...], centers: FloatArray, m: float, j: int, count: int
) -> Steps[list[float]]:
    """The ``count`` largest eigenvalues of F about centre j, or all if there are fewer."""
    d = centers.shape[1]
    if d <= _WHOLE:
        # down: the centres; up: F itself
        reply = yield from total(sites, AskDirections(centers, m, j, np.eye(d)))
        values = np.linalg.eigvalsh(reply.sums / max(float(reply.weight[0]), 1e-300))
        return [float(v) for v in values[::-1][:count]]
    width = min(max(_VECTORS, count + 1), d)
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((d, width)))[0].T
    for _ in range(_ITERATIONS):
        # down: a few directions; up: F times each of them
        reply = yield from total(sites, AskDirections(centers, m, j, vectors))
        image = reply.sums / max(float(reply.weight[0]), 1e-300)
        values = np.linalg.eigvalsh((vectors @ image.T + image @ vectors.T) / 2)
        vectors = np.linalg.qr(image.T)[0].T
    return [float(v) for v in values[::-1][:count]]
