"""Labels where scores in float cannot tell: those of the distances, for every instruction set."""

from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pytest
from kernel_cases import instruction_sets, native, needs_native
from numpy.typing import NDArray

from unpooled import kernels

pytestmark = needs_native

Make = Callable[[np.random.Generator, int, int], NDArray[np.float64]]


def normal(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float64]:
    return rng.standard_normal((n, d))


def rows_of_all_sizes(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float64]:
    return rng.standard_normal((n, d)) * 10.0 ** rng.integers(-30, 30, (n, 1))


def outliers(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float64]:
    X = rng.standard_normal((n, d))
    X[::7] *= 1e12
    return X


ROWS: dict[str, Make] = {
    "ties": lambda rng, n, d: rng.integers(-2, 3, (n, d)).astype(float),
    "duplicates": lambda rng, n, d: normal(rng, n, d)[rng.integers(0, n // 10, n)],
    "offset": lambda rng, n, d: normal(rng, n, d) + 1e6,
    "far groups": lambda rng, n, d: normal(rng, n, d) + 1e6 * rng.integers(-1, 2, (n, 1)),
    "denormal": lambda rng, n, d: normal(rng, n, d) * 5e-310,
    "squares denormal": lambda rng, n, d: normal(rng, n, d) * 1e-160,
    "tiny": lambda rng, n, d: normal(rng, n, d) * 1e-38,
    "huge": lambda rng, n, d: normal(rng, n, d) * 1e37,
    "all sizes": rows_of_all_sizes,
    "far away": lambda rng, n, d: normal(rng, n, d) * np.where(np.arange(n)[:, None] % 3, 2.0**43, 1.0),
    "outliers": outliers,
}


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("kind", ROWS)
def test_labels_are_those_of_the_distances(kind: str, isa: str) -> None:
    """Against the distances to one centre at a time, where there is nothing to choose."""
    native()._native.use(isa)
    try:
        for d, k, dtype in product((5, 24, 25, 128, 129, 300), (11, 33), (np.float64, np.float32)):
            rng = np.random.default_rng([d, k])
            X = ROWS[kind](rng, 150, d).astype(dtype)
            centers = X[rng.integers(0, 150, k)].astype(np.float64)
            centers[k // 2] = centers[0]
            sets = np.stack(
                [centers, 1e-37 * centers]
            )  # of one call, and of sizes that no unit of float fits
            totals = kernels.totals(X, [0, 150], sets)
            for r, some in enumerate(sets):
                labels = kernels.nearest(X, some).labels
                sqdist = np.stack([kernels.nearest(X, center[None]).sqdist for center in some])
                where = f"d {d}, k {k}, {dtype.__name__}, set {r}"
                np.testing.assert_array_equal(labels, sqdist.argmin(axis=0), where)
                np.testing.assert_array_equal(totals.mass[0, r], np.bincount(labels, minlength=k), where)
    finally:
        native()._native.use(kernels.ISA)


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("kind", ROWS)
def test_labels_of_a_second_local_step_are_those_of_the_distances(kind: str, isa: str) -> None:
    """Rows are moved once for all steps of a site; a second step counts as one from its own centres does."""
    native()._native.use(isa)
    try:
        for d, k, dtype in product((25, 129, 300), (3, 17), (np.float64, np.float32)):
            rng = np.random.default_rng([d, k, 1])
            X = ROWS[kind](rng, 150, d).astype(dtype)
            centers = X[rng.integers(0, 150, k)].astype(np.float64)
            offsets = np.array([0, 70, 150])
            once, twice = (kernels.local_steps(X, offsets, centers, steps=steps) for steps in (1, 2))
            for site, (begin, end) in enumerate(pairwise(offsets)):
                labels = kernels.nearest(X[begin:end], once.centers[site]).labels
                counts = np.bincount(labels, minlength=k)
                found = np.where(counts > 0, twice.support[site], 0)
                np.testing.assert_array_equal(found, counts, f"d {d}, k {k}, {dtype.__name__}, site {site}")
    finally:
        native()._native.use(kernels.ISA)
