"""Two cells that differ by one row give that row away: their sums minus each other.

A minimum size does not see this, since both cells are large. The detector keeps which rows made up each cell
that was shown, over all rounds and runs, and finds a new cell that differs from an earlier one by fewer rows
than the minimum. Any converging k-means does that in its last rounds; so the usual setting is to write it
into the log ("warn"), and "refuse" is for sites that would rather lose the last polish. Differential privacy
is the defence; this is the alarm.
"""

import numpy as np
import numpy.typing as npt

from unpooled.codec import FloatArray
from unpooled.errors import Refused
from unpooled.messages import Rows
from unpooled.protocol import Envelope
from unpooled.site.guards import Open, sent_centers
from unpooled.site.ledger import Ledger
from unpooled.site.site import digest

_NUMBERS = 1 << 20  # distances held at once

Bits = npt.NDArray[np.uint8]


def _labels(X: Rows, centers: FloatArray) -> npt.NDArray[np.int64]:
    """(R, n) the nearest of each set of centres (R, k, d): one product for all sets, some rows at a time."""
    R, k, d = centers.shape
    flat = centers.reshape(R * k, d)
    squares = np.einsum("ij,ij->i", flat, flat)
    labels = np.empty((R, len(X)), dtype=np.int64)
    rows = max(1, _NUMBERS // (R * k))
    for a in range(0, len(X), rows):
        gaps = squares - 2 * (X[a : a + rows] @ flat.T)
        labels[:, a : a + rows] = gaps.reshape(-1, R, k).argmin(axis=2).T
    return labels


class Differencing(Open):
    """Watches hard cells: every question that sends out centres and sums over the nearest rows."""

    def __init__(self, ledger: Ledger, minimum: int, *, refuse: bool) -> None:
        self._ledger, self._minimum, self._refuse = ledger, minimum, refuse
        self._known: dict[str, tuple[npt.NDArray[np.int64], Bits]] = {}
        self.pairs = 0  # cells of the last envelope that differ from an earlier cell by too few rows

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        self.pairs = 0
        fresh: list[tuple[str, list[tuple[int, bytes]]]] = []
        for part, X in zip(post.parts, views, strict=True):
            centers = sent_centers(part.question)
            if centers is None or hasattr(part.question, "m") or not isinstance(X, np.ndarray):
                continue  # memberships have no cells of their own rows
            view = digest(part.view) if part.view is not None else f"rows of {X.shape}"
            sizes, members = self._shown(X, centers)
            self.pairs += self._close(view, sizes, members)
            packed = [(int(n), m.tobytes()) for n, m in zip(sizes, members, strict=True)]
            fresh.append((view, packed))
            self._add(view, sizes, members)
        if self.pairs and self._refuse:
            self._known.clear()  # what is refused was not shown
            raise Refused(
                f"{self.pairs} of these clusters differ from one shown before by fewer than "
                f"{self._minimum} rows, which could be told apart"
            )
        for view, cells in fresh:
            self._ledger.add_cells(view, cells)

    def _shown(self, X: Rows, centers: FloatArray) -> tuple[npt.NDArray[np.int64], Bits]:
        """Sizes and packed members of the cells that are large enough to be shown, each only once."""
        cells = []
        for labels in _labels(X, centers):
            for j in np.flatnonzero(np.bincount(labels, minlength=centers.shape[1]) >= self._minimum):
                cells.append(np.packbits(labels == j))
        if not cells:
            return np.zeros(0, np.int64), np.zeros((0, (len(X) + 7) // 8), np.uint8)
        members = np.stack(list({cell.tobytes(): cell for cell in cells}.values()))
        return np.bitwise_count(members).sum(axis=1, dtype=np.int64), members

    def _close(self, view: str, sizes: npt.NDArray[np.int64], members: Bits) -> int:
        """How many cells differ by 1 .. minimum - 1 rows from one shown before, or from each other."""
        known_sizes, known = self._load(view, members.shape[1])
        known_sizes, known = np.concatenate([known_sizes, sizes]), np.concatenate([known, members])
        close = 0
        for size, cell in zip(sizes, members, strict=True):
            near = np.flatnonzero(np.abs(known_sizes - size) < self._minimum)
            apart = np.bitwise_count(known[near] ^ cell).sum(axis=1, dtype=np.int64)
            close += bool(((apart > 0) & (apart < self._minimum)).any())
        return close

    def _load(self, view: str, width: int) -> tuple[npt.NDArray[np.int64], Bits]:
        if view not in self._known:
            cells = self._ledger.cells(view)
            cells = [cell for cell in cells if len(cell[1]) == width]  # not those of other rows than today's
            members = np.frombuffer(b"".join(m for _, m in cells), np.uint8).reshape(-1, width)
            self._known[view] = (np.array([n for n, _ in cells], dtype=np.int64), members)
        return self._known[view]

    def _add(self, view: str, sizes: npt.NDArray[np.int64], members: Bits) -> None:
        known_sizes, known = self._load(view, members.shape[1])
        self._known[view] = (np.concatenate([known_sizes, sizes]), np.concatenate([known, members]))
