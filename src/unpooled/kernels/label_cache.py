"""Memory of the last time that local steps were taken from the same rows: it changes time alone.

It saves time: the local steps of a round of DWF in 784 dimensions (20 sites of 600 rows, k 10) take 6.9 ms
instead of 28; of the digits (64 dimensions, 100 sites) 0.18 ms instead of 0.63. Up to 24 dimensions it is not
used.
"""

import weakref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .reference_rows import Rows
from .results import Floats

_MAX_CACHED = 1 << 26  # bounds held: 256 MB


class CachedLabels(NamedTuple):
    """As the compiled kernels take it (S sites, n rows, k clusters)."""

    labels: NDArray[np.int64]  #: (steps, n)
    margins: Floats  #: (steps, n) how much farther than its own centre the second nearest is, at least
    bounds: NDArray[np.float32]  #: (steps, n, k) how far each centre is, at least, plus what it had moved
    moved: Floats  #: (S, steps, k) how far each centre has come in all
    reached: NDArray[np.int64]  #: (S,) steps that are there
    scale: Floats  #: (S,) what distances at the site stay below
    drift: Floats  #: (k,) how far each centre has moved since, at most


class LabelCache:
    """Labels and margins of the last call of ``local_steps``, for the next with the same rows and sites.

    While the centres creep most rows provably keep their cluster, and are not looked at. Labels are those
    that would be found without it, and sums are taken in the same order: results are equal in every bit.
    Other rows, or another number of centres or steps, and it begins anew; it begins with the second call, so
    that a single one costs what it costs without.
    """

    def __init__(self) -> None:
        self._of: tuple[Any, ...] = ()
        self._owner: Any = None
        self._cached: CachedLabels | None = None
        self._centers: Floats = np.zeros((0, 0))
        self._offsets: NDArray[np.int64] = np.zeros(0, np.int64)

    def at(self, X: Rows, offsets: NDArray[np.int64], centers: Floats, steps: int) -> CachedLabels | None:
        """All that is known for these rows, or room for it; it is filled by the call it is handed to.

        None the first time, and where it would take too much memory.
        """
        if len(X) * len(centers) * steps > _MAX_CACHED:
            return None
        owner, of = X if X.base is None else X.base, (X.ctypes.data, X.shape, X.dtype, steps, centers.shape)
        same = (
            self._owner is not None
            and self._owner() is owner
            and self._of == of
            and np.array_equal(self._offsets, offsets)
        )
        if not same:
            self._owner, self._of, self._offsets, self._cached = weakref.ref(owner), of, offsets.copy(), None
            return None
        drift = np.zeros(len(centers))
        if self._cached is not None:
            drift = np.sqrt(((centers - self._centers) ** 2).sum(axis=1)) * (1 + 1e-12)
            self._cached = self._cached._replace(drift=drift)
        else:
            (n, k), S, most = (len(X), len(centers)), len(offsets) - 1, max(steps, 1)
            self._cached = CachedLabels(
                labels=np.empty((most, n), np.int64),
                margins=np.empty((most, n)),
                bounds=np.empty((most, n, k), np.float32),
                moved=np.empty((S, most, k)),
                reached=np.zeros(S, np.int64),
                scale=np.zeros(S),
                drift=drift,
            )
        self._centers = centers.copy()
        return self._cached
