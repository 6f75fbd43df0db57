"""The functions of a kernels backend: mypy holds ``reference`` (a module) and ``Compiled`` (a class) to it.

Every function takes arrays that ``unpooled.kernels`` has already checked.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .label_cache import LabelCache
from .reference_rows import Rows
from .results import Floats, FuzzyTotals, KMeans, LocalSteps, MiniBatchSteps, Nearest, ScatterTotals, Totals

Offsets = NDArray[np.int64]
Seeds = NDArray[np.uint64]


class Backend(Protocol):
    @property
    def ISA(self) -> str: ...  # noqa: N802

    def totals(
        self,
        X: Rows,
        offsets: Offsets,
        centers: Floats,
        weights: Floats | None,
        threads: int,
        labels: NDArray[np.int32] | None = None,
    ) -> Totals: ...

    def nearest(self, X: Rows, centers: Floats, threads: int) -> Nearest: ...

    def local_steps(
        self,
        X: Rows,
        offsets: Offsets,
        centers: Floats,
        weights: Floats | None,
        steps: int,
        recount: bool,
        threads: int,
        cache: LabelCache | None = None,
    ) -> LocalSteps: ...

    def kmeans(
        self,
        X: Rows,
        offsets: Offsets,
        k: int,
        seeds: Seeds,
        weights: Floats | None,
        n_init: int,
        max_iter: int,
        swaps: int,
        threads: int,
    ) -> KMeans: ...

    def minibatch(
        self,
        X: Rows,
        offsets: Offsets,
        centers: Floats,
        seeds: Seeds,
        weights: Floats | None,
        epochs: int,
        batch: int,
        rate: float,
        threads: int,
    ) -> MiniBatchSteps: ...

    def scatter(
        self, X: Rows, offsets: Offsets, centers: Floats, weights: Floats | None, threads: int
    ) -> ScatterTotals: ...

    def fuzzy(
        self,
        X: Rows,
        offsets: Offsets,
        centers: Floats,
        m: float,
        power: float,
        weights: Floats | None,
        threads: int,
    ) -> FuzzyTotals: ...

    def memberships(self, X: Rows, centers: Floats, m: float, power: float, threads: int) -> Floats: ...

    def fold(self, total: Floats, block: Floats) -> None: ...

    def fold_moves(
        self, centers: Floats, received: Floats, weight: Floats, weighted: Floats, plain: Floats
    ) -> None: ...
