"""The state of a private run: all releases, and the numbers computed from them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unpooled.data.transforms import Affine
from unpooled.protocol.algorithm import State
from unpooled.protocol.messages import Message
from unpooled.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Release(Message):
    """One question that was charged to the budget, and the sum of the sites' noisy replies."""

    question: Any
    reply: Any


@dataclass(frozen=True, eq=False)
class PrivateState(State):
    """All releases, the numbers computed from them, and the next question."""

    releases: tuple[Release, ...]
    asking: Any  # the next question; None at the end
    transform: Affine  # of the rows that questions read: x - middle, in units that make the box at most 1
    box: FloatArray  # (d,) or (1,) half widths of the bounds in these units
    unit: float  # of the inertia's lengths, in the units of the transformed rows
    n: float  # rows, with noise
    noises: float  # noise variance of a total, in units of one release's noise
    seeds: int = 0  # releases of cells so far
    steps: int = 0  # steps taken
    planned: int = 0  # steps in all
    estimate: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))  # (k, d) centres in these units
    estimate_weight: FloatArray = field(default_factory=lambda: np.zeros(0))  # (k,) of the steps in estimate
    sizes: FloatArray = field(default_factory=lambda: np.zeros(0))  # (k,) with noise
    reach: FloatArray = field(default_factory=lambda: np.zeros(0))  # (k,) or (1,) radii in root mean squares
    separation: float = np.nan  # separation of the clusters, as a silhouette; from released numbers
    trial_excess: float = np.nan  # the excess in a trial of the rest on synthetic points (trial.py)
    movement: float = np.inf
    inertia: float = np.nan  # with noise

    @property
    def centers(self) -> FloatArray:
        """(k, d) in the columns' own units."""
        return self.transform.undo(self.estimate)

    @property
    def inertia_transform(self) -> Affine:
        """The transform from the columns' own units to the units of the inertia."""
        return Affine(self.transform.shift, self.transform.scale / self.unit)

    @property
    def spent(self) -> float:
        """The spent budget, mu^2."""
        return float(sum(release.question.privacy_cost for release in self.releases))
