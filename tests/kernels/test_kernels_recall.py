"""Local steps with a memory give what they give without, in every bit."""

import numpy as np
import pytest
from kernel_cases import Case, make_case, native, needs_native
from numpy.typing import NDArray

from unpooled import kernels

pytestmark = needs_native


def walk(centers: NDArray[np.float64], rng: np.random.Generator, rounds: int) -> list[NDArray[np.float64]]:
    """Centres that creep, rest, and jump now and then, some faster than others."""
    pace = rng.exponential(size=(len(centers), 1)) * 0.03
    out = [centers]
    for i in range(1, rounds):
        step = pace * rng.normal(size=centers.shape) * (0.0 if i % 7 == 3 else 20.0 if i % 11 == 5 else 1.0)
        out.append(out[-1] + step)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [25, 40, 130])
def test_it_changes_no_bit(d: int, dtype: type) -> None:
    for seed in range(12):
        rng = np.random.default_rng([seed, d])
        k, shift = int(rng.integers(1, 14)), float(rng.choice([0.0, 30.0]))
        case = make_case(seed, d=d, k=k, sites=6, rows=60, dtype=dtype, shift=shift)
        steps, memory = int(rng.integers(0, 6)), kernels.LabelCache()
        spread = rng.choice([0.3, 3.0])  # far from the blobs some centres have no rows
        start = case.centers[0] + spread * rng.normal(size=(k, d))
        for centers in walk(start, rng, 25):
            args = case.X, case.offsets, centers, None, steps, bool(seed % 2), 1 + seed % 2
            for a, b in zip(native().local_steps(*args, memory), native().local_steps(*args), strict=True):
                np.testing.assert_array_equal(a, b)


def test_ties_are_broken_as_ever() -> None:
    """Rows on a lattice, centres on it too: many rows have two nearest centres."""
    rng = np.random.default_rng(5)
    X = rng.integers(0, 2, size=(80, 26)).astype(np.float64)
    X[40:] = X[:40]
    memory, offsets = kernels.LabelCache(), np.array([0, 30, 80])
    for _ in range(40):
        centers = rng.integers(0, 3, size=(6, 26)) / 2
        for _ in range(3):  # at rest, the margins stay
            args = X, offsets, centers, None, 4, True, 1
            for a, b in zip(native().local_steps(*args, memory), native().local_steps(*args), strict=True):
                np.testing.assert_array_equal(a, b)


def test_other_rows_begin_anew() -> None:
    case = make_case(1, d=30, k=5, sites=4, rows=50)
    memory, centers = kernels.LabelCache(), case.centers[0]
    for X, offsets in (
        (case.X, case.offsets),
        (case.X + 1.0, case.offsets),  # other values
        (case.X, case.offsets),
        (case.X[: case.offsets[2]], case.offsets[:3]),  # fewer sites in the same place
        (case.X[: case.offsets[2]], np.array([0, 0, case.offsets[2]])),  # other sites
        (case.X[: case.offsets[2]].astype(np.float32), case.offsets[:3]),
    ):
        for steps in (3, 3, 3, 5, 5):  # kept from the second call on, used from the third
            args = X, offsets, centers, None, steps, False, 1
            for a, b in zip(native().local_steps(*args, memory), native().local_steps(*args), strict=True):
                np.testing.assert_array_equal(a, b)


def test_rows_are_skipped() -> None:
    """The margins that stand are those of the second call, less what the centres moved."""
    case = make_case(2, d=30, k=5, sites=4, rows=50)
    memory, centers = kernels.LabelCache(), case.centers[0]
    assert memory.at(case.X, case.offsets, centers, 2) is None  # a single call keeps nothing
    native().local_steps(case.X, case.offsets, centers, None, 2, False, 1, memory)
    first = margins(memory, case, centers)
    centers = centers + 1e-3 / np.sqrt(30)
    native().local_steps(case.X, case.offsets, centers, None, 2, False, 1, memory)
    np.testing.assert_allclose(margins(memory, case, centers), first - 2e-3, atol=1e-9)


def margins(memory: kernels.LabelCache, case: Case, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    kept = memory.at(case.X, case.offsets, centers, 2)
    assert kept is not None
    return kept.margins[0].copy()
