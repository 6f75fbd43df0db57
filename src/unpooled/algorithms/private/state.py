"""The state of a private run: all that was released, and what was made of it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unpooled.core.arrays import FloatArray
from unpooled.core.messages import Message
from unpooled.data.views import Affine


@dataclass(frozen=True, eq=False)
class Release(Message, wire="private_state.Release"):
    """One question that was paid for, and the sum of the sites' noisy replies."""

    question: Any
    reply: Any


@dataclass(frozen=True, eq=False)
class PrivateState(Message, wire="private_state.PrivateState"):
    """All that was released, what was made of it, and what is asked next."""

    releases: tuple[Release, ...]
    asking: Any  # the next question; None at the end
    view: Affine  # rows as the questions see them: x - middle, in units that make the box at most 1
    box: FloatArray  # (d,) or (1,) half widths of the bounds in these units
    unit: float  # of the inertia's lengths, in the units of the view
    n: float  # rows, with noise
    noises: float  # how many whole noises are in a total
    seeds: int = 0  # cells were tried so often
    steps: int = 0  # steps taken
    planned: int = 0  # steps in all
    found: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))  # (k, d) centres in these units
    settled: FloatArray = field(default_factory=lambda: np.zeros(0))  # (k,) weight of the steps in it
    sizes: FloatArray = field(default_factory=lambda: np.zeros(0))  # (k,) with noise
    apart: float = np.nan  # how far the clusters lie apart, as a silhouette; told by what was released
    tried: float = np.nan  # the excess when the rest was tried on what was released
    movement: float = np.inf
    inertia: float = np.nan  # with noise

    @property
    def centers(self) -> FloatArray:
        """(k, d) in the columns' own units."""
        return self.view.undo(self.found)

    @property
    def shown(self) -> Affine:
        """From the columns' own units to those in which the inertia is."""
        return Affine(self.view.shift, self.view.scale / self.unit)

    @property
    def spent(self) -> float:
        """mu^2."""
        return float(sum(release.question.spends for release in self.releases))
