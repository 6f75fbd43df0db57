"""Detection of differencing: if two cells differ by one row, the difference of their sums is that row.

A minimum size does not prevent this, since both cells are large. The detector keeps the rows of each cell
that was shown, over all rounds and runs, and finds a new cell that differs from an earlier one by fewer rows
than the minimum. Any converging k-means does that in its last rounds; so the default only writes it into the
log ("warn"), and "refuse" is for sites that accept a k-means that stops a little earlier. This only detects;
differential privacy prevents.
"""

import numpy as np
import numpy.typing as npt

from unpooled import kernels
from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.exchange import Envelope
from unpooled.errors import Refused
from unpooled.site.guards import sent_centers
from unpooled.site.ledger import Ledger
from unpooled.site.site import Guard, Labels, digest

_HELD = 1 << 21  # bytes of members compared at once, to bound memory
_FIRST = 8  # words of a pair of cells that are compared first: most pairs differ enough within them

Words = npt.NDArray[np.uint64]  # (cells, words): a bit for every row, set where it is a member


class Differencing(Guard):
    """Watches questions that send centres and sum over the nearest rows: each row is in one cell."""

    def __init__(self, ledger: Ledger, minimum: int, *, refuse: bool) -> None:
        self._ledger, self._minimum, self._refuse = ledger, minimum, refuse
        self._known: dict[str, _Cells] = {}
        self.pairs = 0  # cells of the last envelope that differ from an earlier cell by too few rows

    def leaving(self, post: Envelope, views: tuple[Rows, ...], labels: tuple[Labels | None, ...]) -> None:
        self.pairs = 0
        fresh: list[tuple[str, Words]] = []
        for part, X, given in zip(post.parts, views, labels, strict=True):
            sets = [centers for declared, centers in sent_centers(part.question) if declared.by == "nearest"]
            for centers in sets:
                view = digest(part.view) if part.view is not None else f"rows of {X.shape}"
                cells = _labels(X, centers) if given is None or len(sets) > 1 else given
                members = self._shown(cells, centers.shape[1])
                known = self._load(view, members.shape[1])
                known.add(members)
                self.pairs += close_cells(members, known, self._minimum)
                fresh.append((view, members))
        if self.pairs and self._refuse:
            self._known.clear()  # the refused cells were added, but are not shown
            raise Refused(
                f"{self.pairs} of these clusters differ from one shown before by fewer than "
                f"{self._minimum} rows, which could be told apart"
            )
        for view, members in fresh:
            if len(members):
                self._ledger.add_cells(view, members.shape[1] * 8, members.tobytes())

    def _shown(self, labels: Labels, k: int) -> Words:
        """Packed members of the cells that are large enough to be shown, each only once."""
        words = -(-labels.shape[1] // 64)
        found: dict[bytes, None] = {}
        for cell_of in labels:
            large = np.flatnonzero(np.bincount(cell_of, minlength=k) >= self._minimum).astype(cell_of.dtype)
            packed = np.zeros((len(large), 8 * words), dtype=np.uint8)
            packed[:, : -(-len(cell_of) // 8)] = np.packbits(cell_of == large[:, None], axis=1)
            found |= dict.fromkeys(cell.tobytes() for cell in packed)
        return np.frombuffer(b"".join(found), dtype=np.uint64).reshape(-1, words)

    def _load(self, view: str, words: int) -> "_Cells":
        if view not in self._known:
            cells = self._ledger.cells(view, 8 * words)  # another width: cells of other rows
            self._known[view] = _Cells(np.frombuffer(b"".join(cells), np.uint64).reshape(-1, words))
        return self._known[view]


class _Cells:
    """Cells and their sizes, in arrays with room for more."""

    def __init__(self, members: Words) -> None:
        self._members, self._sizes, self._count = members, _sizes(members), len(members)

    @property
    def members(self) -> Words:
        return self._members[: self._count]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return self._sizes[: self._count]

    def add(self, members: Words) -> None:
        end = self._count + len(members)
        if end > len(self._members):
            room = np.zeros((2 * end, members.shape[1]), np.uint64), np.zeros(2 * end, np.int64)
            room[0][: self._count], room[1][: self._count] = self.members, self.sizes
            self._members, self._sizes = room
        self._members[self._count : end], self._sizes[self._count : end] = members, _sizes(members)
        self._count = end


def close_cells(members: Words, known: _Cells, minimum: int) -> int:
    """The number of cells that differ by 1 .. minimum - 1 rows from a known cell."""
    apart = np.abs(_sizes(members)[:, None] - known.sizes)
    ours, theirs = np.nonzero(apart < minimum)
    close = np.zeros(len(members), dtype=np.bool_)
    width = min(_FIRST, members.shape[1])
    step = max(1, _HELD // (8 * width))
    for a in range(0, len(ours), step):
        i, j = ours[a : a + step], theirs[a : a + step]
        near = _sizes(members[i, :width] ^ known.members[j, :width]) < minimum
        i, j = i[near], j[near]
        whole = max(1, _HELD // (8 * members.shape[1]))
        for b in range(0, len(i), whole):
            differ = _sizes(members[i[b : b + whole]] ^ known.members[j[b : b + whole]])
            close[i[b : b + whole][(differ > 0) & (differ < minimum)]] = True
    return int(close.sum())


def _sizes(members: Words) -> npt.NDArray[np.int64]:
    sizes: npt.NDArray[np.int64] = np.bitwise_count(members).sum(axis=1, dtype=np.int64)
    return sizes


def _labels(X: Rows, centers: FloatArray) -> Labels:
    """(R, n) nearest of each set of centres (R, k, d), for questions that do not return labels."""
    return np.stack([kernels.nearest(X, one_set).labels for one_set in centers])
