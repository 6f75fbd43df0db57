"""EWF and DWF where a site computes nothing that cannot have changed.

With a learning rate of .01 the centres creep, and most sites would compute the same steps from the same
assignments in hundreds of rounds. A row cannot change its cluster while twice the drift of the centres since
the site last computed is below the row's margin: how much farther its second nearest centre is than its
nearest. The site's margin is the least over its rows and over all its local steps. In later steps only
centres without rows are still the received ones, and move with them; the others are means of rows, and stay.
So while twice the drift is below the site's margin, its means and counts are those that it has, and it sends
them again.

What it sends then differs from what it would have computed by rounding alone (a mean is summed about the
received centre); tests/reproduce/test_steady.py holds it to that, and to equal counts. The inertia of a round
is not known and left out. Margins cost as much as steps, so they are taken only once centres move little.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled import kernels
from unpooled.algorithms.dwf import WEIGHTINGS, AskLocalMoves, Dwf, DwfState, LocalMoves
from unpooled.codec import BoolArray, FloatArray
from unpooled.errors import BadInput
from unpooled.messages import Stack, Stacked

_WORTH = 8.0  # margins are taken once they would last so many rounds at the present pace
_ROUNDING = 1e-9  # of the largest distance: closer than that, margins are not trusted


@dataclass(frozen=True, eq=False)
class Held:
    """What a site keeps: its reply, and from where and how far it holds."""

    received: FloatArray  # (k, d) the centres that it is about
    margin: float  # 0: not known
    centers: FloatArray  # (k, d) after the local steps
    moved: BoolArray  # (k,) is it a mean of rows, and not the received centre?
    counts: FloatArray  # (k,)
    last: FloatArray  # (k, d) the centres received last
    guess: float  # the margin when it was last taken


@dataclass(frozen=True, eq=False)
class AskSteadyMoves(AskLocalMoves):
    """As AskLocalMoves, of sites that remember; with weights or a minimum size they answer the plain way."""

    def answer_all(self, stack: Stack) -> Stacked[LocalMoves]:
        if stack.minimum > 1 or stack.weights is not None:
            return super().answer_all(stack)
        if self.weighting not in WEIGHTINGS:
            raise BadInput(f"this site knows no weighting {self.weighting!r}")
        stale = [s for s in range(len(stack)) if not self._holds(stack.memory[s].get("steady"))]
        if stale:
            self._compute(stack, stale)
        held: list[Held] = [memory["steady"] for memory in stack.memory]
        for memory, h in zip(stack.memory, held, strict=True):
            memory["steady"] = _with_last(h, self.centers)
        moved = np.stack([h.moved for h in held])
        moves = np.where(moved[..., None], np.stack([h.centers for h in held]) - self.centers, 0.0)
        counts = np.stack([h.counts for h in held])
        weight = WEIGHTINGS[self.weighting](counts, stack.row_counts[:, None].astype(np.float64))
        inertia = np.full(counts.shape, np.nan)
        ones = np.ones((len(stack), 1))
        return Stacked(LocalMoves(moves * weight[..., None], weight, moves, ones, inertia), len(stack))

    def _holds(self, held: Held | None) -> bool:
        return held is not None and 2 * _drift(held.received, self.centers) < held.margin

    def _compute(self, stack: Stack, stale: Sequence[int]) -> None:
        X, offsets = _rows_of(stack, stale)
        got = kernels.local_steps(X, offsets, self.centers, steps=self.steps, threads=stack.threads)
        before = [stack.memory[s].get("steady") for s in stale]
        worth = [i for i, h in enumerate(before) if h is None or self._is_worth(h)]
        margins = np.zeros(len(stale))
        if worth:
            Y, ends = _rows_of(stack, [stale[i] for i in worth])
            margins[worth] = _margins(Y, ends, self.centers, self.steps, stack.threads)
        taken = set(worth)
        for i, s in enumerate(stale):
            old = before[i]
            guess = float(margins[i]) if i in taken or old is None else old.guess
            stack.memory[s]["steady"] = Held(
                self.centers,
                float(margins[i]),
                got.centers[i],
                got.support[i] > 0,
                got.mass[i],
                self.centers,
                guess,
            )

    def _is_worth(self, held: Held) -> bool:
        return _WORTH * _drift(held.last, self.centers) < held.guess


def _with_last(held: Held, received: FloatArray) -> Held:
    if held.last is received:
        return held
    return Held(held.received, held.margin, held.centers, held.moved, held.counts, received, held.guess)


def _drift(a: FloatArray, b: FloatArray) -> float:
    """How far the centre that moved most has moved."""
    return 0.0 if a is b else float(np.sqrt(((a - b) ** 2).sum(axis=1).max()))


def _rows_of(stack: Stack, some: Sequence[int]) -> tuple[Any, Any]:
    """Rows and offsets of some sites; all of them are not copied."""
    if len(some) == len(stack):
        return stack.X, stack.offsets
    parts = [stack.X[stack.offsets[s] : stack.offsets[s + 1]] for s in some]
    return np.concatenate(parts), np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)


def _margins(X: Any, offsets: Any, received: FloatArray, steps: int, threads: int) -> FloatArray:
    """(S,) the least margin of every site's rows over its local steps."""
    sites = len(offsets) - 1
    centers = np.broadcast_to(received, (sites, *received.shape)).copy()
    out = np.full(sites, np.inf)
    going = np.arange(sites)
    for _ in range(steps):
        for s in going:
            rows = np.asarray(X[offsets[s] : offsets[s + 1]], dtype=np.float64)
            out[s] = min(out[s], margin(rows, centers[s]))
        after = kernels.local_steps(X, offsets, centers, steps=1, threads=threads).centers
        going = np.flatnonzero((after != centers).any(axis=(1, 2)))
        if not len(going):
            break
        centers = after
    return out


def margin(rows: FloatArray, centers: FloatArray) -> float:
    """How much farther than its nearest the second nearest centre is, of the row where that is least.

    >>> margin(np.array([[0.0], [4.0]]), np.array([[0.0], [10.0]]))
    2.0
    """
    if not len(rows) or len(centers) < 2:
        return np.inf
    squares = (rows**2).sum(axis=1)[:, None] - 2 * rows @ centers.T + (centers**2).sum(axis=1)
    two = np.sqrt(np.maximum(np.partition(squares, 1, axis=1)[:, :2], 0.0))
    least = float((two[:, 1] - two[:, 0]).min())
    scale = float(np.sqrt(max(squares.max(), 0.0)))
    return least if least > _ROUNDING * scale else 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Steady(Dwf):
    """DWF, or EWF by its weights, whose sites remember."""

    def question(self, state: DwfState) -> AskLocalMoves:
        return AskSteadyMoves(state.centers, self.local_steps, self.weights)
