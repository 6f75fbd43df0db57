"""What the methods have in common: their settings, and how a run starts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from unpooled.codec import FloatArray
from unpooled.errors import BadInput
from unpooled.messages import Message, SiteId
from unpooled.protocol import Steps, together, total
from unpooled.sampling import check_participation
from unpooled.summaries import AskClusterSums, AskMoments

INITS = ("adaptive", "k-fed", "random")


@dataclass(frozen=True, eq=False, kw_only=True)
class Method(Message):
    """The settings every method has. ``k`` may be left out where an estimator will fill it in.

    A method is an Algorithm (see protocol.py) whose settings travel in the codec: they name a checkpoint.
    """

    k: int | None = None
    init: str | FloatArray = "adaptive"  # or "k-fed", "random", or centres (k, d)
    max_rounds: int = 300
    tol: float = 1e-4  # on the squared movement, relative to the mean variance of the columns
    participation: float = 1.0  # share of sites a round (float), or number of sites (int)
    min_cluster_size: int = 1  # what the sites are known to hide; they enforce their own

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.k is not None and (not isinstance(self.k, int | np.integer) or self.k < 1):
            raise BadInput(f"{name}: k must be a whole number >= 1, got {self.k!r}")
        if isinstance(self.init, str):
            if self.init not in INITS:
                raise BadInput(
                    f"{name}: init must be one of {', '.join(INITS)} or centres, got {self.init!r}"
                )
        elif not isinstance(self.init, np.ndarray) or self.init.ndim != 2:
            raise BadInput(f"{name}: init as centres must be an array (k, d)")
        if self.max_rounds < 1:
            raise BadInput(f"{name}: max_rounds must be >= 1, got {self.max_rounds}")
        if not self.tol >= 0:
            raise BadInput(f"{name}: tol must be >= 0, got {self.tol}")
        if self.min_cluster_size < 1:
            raise BadInput(f"{name}: min_cluster_size must be >= 1, got {self.min_cluster_size}")
        check_participation(self.participation)

    @property
    def own_start(self) -> bool:
        """Does the method start in a way of its own, whatever ``init`` says?"""
        return False

    def with_init(self, change: Callable[[Any], Any]) -> Self:
        """The same method with given starting centres changed, e.g. into scaled columns."""
        return replace(self, init=change(self.init)) if isinstance(self.init, np.ndarray) else self

    def judged(self, sites: tuple[SiteId, ...], centers: FloatArray) -> Steps[tuple[FloatArray, FloatArray]]:
        """The inertia of every restart (R, k, d), and the score, lower is better, by which they compare."""
        # down: every restart's centres; up: their inertia, and the moments
        asks: list[Steps[Any]] = [total(sites, AskClusterSums(centers)), total(sites, AskMoments())]
        sums, moments = yield from together(asks)
        inertias = sums.inertia.sum(axis=1)
        hidden = np.maximum(moments.n - sums.mass.sum(axis=1), 0.0)  # as if they had no cluster
        return inertias, inertias + hidden * float(moments.variance.sum())

    @property
    def clusters(self) -> int:
        """k, which by now must be known."""
        if self.k is None:
            raise BadInput(f"{type(self).__name__}: say how many clusters, e.g. {type(self).__name__}(k=3)")
        return int(self.k)


def share_or_zero(sums: FloatArray, weights: FloatArray) -> Any:
    """sums / weights per cluster, 0 where there is no weight: (k, d), (k,) -> (k, d)."""
    full = weights > 0
    return np.where(full, 1 / np.where(full, weights, 1.0), 0.0)[:, None] * sums
