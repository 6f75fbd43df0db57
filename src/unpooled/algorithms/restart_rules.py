"""Rules for restarts that run side by side: how starts are compared, and when one is dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled import kernels
from unpooled.protocol.algorithm import State
from unpooled.protocol.messages import Message
from unpooled.typing import BoolArray, FloatArray, IntArray


class ComparedState(State, abstract=True):
    """The state of a start that is compared with others after every round."""

    if TYPE_CHECKING:  # a subclass has it as a field or as a property

        @property
        def score(self) -> float:  # the lowest leads; above the inertia if sites suppressed rows
            raise NotImplementedError

    threshold: float = 0.0  # movement that counts as rest
    n: float = np.nan  # rows in all


@dataclass(frozen=True, eq=False)
class RestartRules(Message):
    """The rules for starts that run side by side: their comparison, and when one is dropped."""

    tie_tolerance: float = 1e-9  # starts within this factor of the lowest score are equal: the first leads
    leader_tolerance: float = 1.0  # of the threshold: below 1 the leader, which is the result, runs longer
    drop: bool = True  # drop starts that cannot win; they rest by their own threshold in any case
    patience: int = 20  # rounds at its present pace that a start is given to catch up
    score_slack: float = 1.0  # times the leader's score: a start must be able to get below it
    score_slack_suppressed: float = 1.005  # the same where rows are suppressed: a step may lose a little
    max_stale_rounds: int | None = None  # allowed rounds without a gain; None: any number
    max_stale_rounds_suppressed: int | None = None
    duplicate_distance: float = 0.0  # of the typical distance to a centre: nearer starts count as one
    sample_rows: bool = False  # starts of very many rows are made on a sample of them
    # > 0: no start is dropped; all stop when the leader rests, or has not gained for this number of rounds
    leader_max_stale_rounds: int = 0

    def still_moving(self, states: Sequence[ComparedState], scores: FloatArray, lead: float) -> BoolArray:
        """Return the mask of the starts that do not rest; the leader may have a smaller threshold."""
        moved = np.array([state.movement for state in states])
        rest = states[0].threshold * np.where(scores == lead, self.leader_tolerance, 1.0)
        moving: BoolArray = moved > rest
        return moving

    def can_win(
        self,
        states: Sequence[ComparedState],
        before: FloatArray,
        scores: FloatArray,
        stale: IntArray,
        lead: float,
    ) -> BoolArray:
        """Return the mask of the starts that can still win.

        ``before`` are their scores before the round, and ``stale`` their rounds without a gain.
        """
        suppressed = any(state.score > state.inertia for state in states)
        gain = before - scores  # infinite in the first round
        slack = self.score_slack_suppressed if suppressed else self.score_slack
        going: BoolArray = scores - self.patience * np.maximum(gain, 0.0) <= slack * lead
        patience = self.max_stale_rounds_suppressed if suppressed else self.max_stale_rounds
        if patience is not None:
            going &= stale < patience
        if self.duplicate_distance:
            near = self.duplicate_distance * np.sqrt(lead / max(states[0].n, 1e-300))
            going &= ~_repeated([state.centers for state in states], near)
        return going


def _repeated(centers: list[FloatArray], near: float) -> BoolArray:
    """(R,) True where an earlier start has the same centres, in any order."""
    out = np.zeros(len(centers), dtype=np.bool_)
    for i in range(len(centers)):
        out[i] = any(not out[j] and _alike(centers[i], centers[j], near) for j in range(i))
    return out


def _alike(a: FloatArray, b: FloatArray, near: float) -> bool:
    return all(kernels.nearest(x, y).sqdist.max() <= near**2 for x, y in ((a, b), (b, a)))
