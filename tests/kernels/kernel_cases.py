"""Data the kernel tests share: sites of clustered rows, some empty, some rows of weight 0."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unpooled import kernels
from unpooled.kernels import Compiled

needs_native = pytest.mark.skipif(kernels.BACKEND != "native", reason="nothing was compiled")


@dataclass(frozen=True)
class Case:
    X: NDArray
    offsets: NDArray[np.int64]
    centers: NDArray[np.float64]  # (R, k, d)
    weights: NDArray[np.float64] | None
    seeds: NDArray[np.uint64]

    @property
    def k(self) -> int:
        return self.centers.shape[1]

    @property
    def sites(self) -> int:
        return len(self.offsets) - 1


def make_case(
    seed: int,
    *,
    d: int,
    k: int,
    R: int = 1,
    sites: int = 3,
    rows: int = 120,
    weighted: bool = False,
    dtype: type = np.float64,
    shift: float = 0.0,
) -> Case:
    """Blobs around the first set of centres, the other sets near it."""
    rng = np.random.default_rng(seed)
    first = rng.normal(scale=4, size=(k, d))
    counts = rng.integers(0, rows + 1, sites)
    if sites > 1:
        counts[rng.integers(sites)] = 0
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    n = int(offsets[-1])
    X = first[rng.integers(k, size=n)] + rng.normal(size=(n, d)) + shift
    weights = rng.exponential(size=n) * (rng.random(n) > 0.2) if weighted else None
    sets = first + rng.normal(scale=0.2, size=(R, k, d)) + shift
    return Case(X.astype(dtype), offsets, sets, weights, rng.integers(0, 2**63, sites).astype(np.uint64))


Results = dict[str, Any]  # by the name of a case: a named tuple of arrays


def each_kernel(case: Case, backend: Any, threads: int = 1) -> Results:
    """Every kernel's results on the case, by name."""
    X, offsets, centers, w, seeds = case.X, case.offsets, case.centers, case.weights, case.seeds
    one = np.ascontiguousarray(centers[0])
    own = np.ascontiguousarray(np.broadcast_to(one, (case.sites, *one.shape)))
    return {
        "totals": backend.totals(X, offsets, centers, w, threads),
        "nearest": backend.nearest(X, one, threads),
        "no step": backend.local_steps(X, offsets, one, w, 0, True, threads),
        "one step": backend.local_steps(X, offsets, one, w, 1, False, threads),
        "steps": backend.local_steps(X, offsets, own, w, 4, True, threads),
        "seeds": backend.kmeans(X, offsets, case.k, seeds, w, 2, 0, 0, threads),
        "one iteration": backend.kmeans(X, offsets, case.k, seeds, w, 1, 1, 0, threads),
        "kmeans": backend.kmeans(X, offsets, case.k, seeds, w, 2, 30, 0, threads),
        "swaps": backend.kmeans(X, offsets, case.k, seeds, w, 1, 30, 3, threads),
        "full batch": backend.minibatch(X, offsets, one, seeds, w, 2, 0, 1.0, threads),
        "minibatch": backend.minibatch(X, offsets, one, seeds, w, 2, 7, 0.7, threads),
        "scatter": backend.scatter(X, offsets, one, w, threads),
    }


def assert_same(found: Results, expected: Results) -> None:
    """To the last bit."""
    for name, arrays in expected.items():
        for field, a, b in zip(arrays._fields, found[name], arrays, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{name}: {field}")


def assert_close(found: Results, expected: Results, rtol: float = 1e-9) -> None:
    for name, arrays in expected.items():
        for field, a, b in zip(arrays._fields, found[name], arrays, strict=True):
            scale = max(1.0, np.abs(b).max(initial=0))
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale, err_msg=f"{name}: {field}")


def native() -> Compiled:
    assert isinstance(kernels._backend, Compiled)
    return kernels._backend


def usable(name: str) -> bool:
    """Can this machine run the kernels compiled for that instruction set?"""
    if kernels.BACKEND != "native":
        return False
    extension = native()._native
    usual = extension.isa()
    try:
        extension.use(name)
    except ValueError:
        return False
    extension.use(usual)
    return True


def instruction_sets() -> list[str]:
    """Those that this machine runs."""
    if kernels.BACKEND != "native":
        return []
    extension, usable = native()._native, []
    for name in ("generic", "x86-64", "x86-64-v3", "x86-64-v4"):
        with suppress(ValueError):
            extension.use(name)
            usable.append(name)
    extension.use(kernels.ISA)
    return usable
