"""Groups with limits on classes: no excess in any group, the same groups from C++ and from numpy."""

import numpy as np
import pytest
from kernel_cases import needs_native
from test_grouping import blobs, drawn, squared_error
from tests.amounts import amounts

from unpooled.kernels import reference_diverse
from unpooled.kernels.grouping import ClassLimits, groups


def limits_of(columns: list[np.ndarray], by: float) -> ClassLimits:
    """Every class may have its share and ``by`` more."""
    first, codes, limits = [0], [], []
    for of in columns:
        counts = np.bincount(of[of >= 0])
        codes.append(np.where(of >= 0, of + first[-1], -1))
        limits.append(counts / max(counts.sum(), 1) + by)
        first.append(first[-1] + len(counts))
    return ClassLimits(
        np.stack(codes, axis=1).astype(np.int32), np.array(first, np.int32), np.concatenate(limits)
    )


def limited(seed: int) -> tuple[np.ndarray, int, ClassLimits]:
    """Rows, a size, and one to three columns of classes: some by position, some at random, with gaps."""
    rng = np.random.default_rng(seed)
    Z, least = drawn(seed)
    columns = []
    for _ in range(int(rng.integers(1, 4))):
        k = int(rng.integers(2, 6))
        near = np.argsort(np.argsort(Z[:, int(rng.integers(Z.shape[1]))], kind="stable")) * k // len(Z)
        of = np.where(rng.random(len(Z)) < rng.choice([0.0, 0.5, 1.0]), near, rng.integers(0, k, len(Z)))
        of[rng.random(len(Z)) < rng.choice([0.0, 0.0, 0.3])] = -1
        columns.append(of)
    return Z, least, limits_of(columns, float(rng.choice([0.1, 0.2, 0.3, 0.4])))


def check(Z: np.ndarray, least: int, limits: ClassLimits, labels: np.ndarray) -> None:
    assert np.bincount(labels).min() >= least
    for label in range(int(labels.max()) + 1):
        assert limits.excess(np.flatnonzero(labels == label)) == 0


def test_a_group_of_one_class_is_mixed_by_the_cheapest_swap() -> None:
    """Four and four, each side of one class; 0.25 above the share: three of four may be alike."""
    Z = np.array([[0.0, 0], [1, 0], [2, 0], [3, 0], [5, 0], [6, 0], [7, 0], [8, 0]])
    limits = limits_of([np.array([0, 0, 0, 0, 1, 1, 1, 1])], 0.25)
    labels = groups(Z, 4, limits=limits)
    assert sorted(map(tuple, (np.flatnonzero(labels == g).tolist() for g in (0, 1)))) == [
        (0, 1, 2, 4),
        (3, 5, 6, 7),
    ]


def test_where_no_swap_can_help_two_groups_become_one() -> None:
    """Five of six are of one class, and no group may have a larger share of it: only all six have that."""
    Z = np.arange(12.0).reshape(6, 2)
    limits = limits_of([np.array([0, 0, 0, 0, 0, 1])], 0.0)
    assert groups(Z, 3, limits=limits).tolist() == [0] * 6


def test_rows_that_exceed_a_limit_together_are_refused() -> None:
    limits = limits_of([np.array([0, 0, 0, 1])], 0.0)._replace(limits=np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match="exceed a limit"):
        groups(np.zeros((4, 2)), 2, limits=limits)


@pytest.mark.parametrize("tables", amounts(60, 6000))
def test_no_group_exceeds_a_limit(tables: int) -> None:
    for seed in range(tables):
        Z, least, limits = limited(seed)
        check(Z, least, limits, groups(Z, least, limits=limits))


@needs_native
@pytest.mark.parametrize("tables", amounts(4, 600))
def test_numpy_gives_the_same_groups(tables: int) -> None:
    for seed in range(tables):
        Z, least, limits = limited(seed)
        labels = reference_diverse.groups(Z, least, *limits, lambda share: None)
        check(Z, least, limits, labels)
        assert np.array_equal(labels, groups(Z, least, limits=limits)), seed


@pytest.mark.parametrize("seed", range(3))
def test_limits_cost_little_where_classes_do_not_follow_from_the_columns(seed: int) -> None:
    Z = blobs(seed, 600, 6)
    limits = limits_of([np.random.default_rng(seed).integers(0, 3, 600)], 0.3)
    plain, mixed = groups(Z, 5), groups(Z, 5, limits=limits)
    assert squared_error(Z, mixed) < 1.1 * squared_error(Z, plain)
    assert mixed.max() == plain.max()


def test_without_excess_the_groups_are_only_improved() -> None:
    Z = blobs(1, 300, 4)
    limits = limits_of([np.zeros(300, np.int64)], 0.3)
    assert squared_error(Z, groups(Z, 5, limits=limits)) <= squared_error(Z, groups(Z, 5))


def test_progress_rises_to_one() -> None:
    Z, limits = blobs(2, 400, 3), limits_of([np.arange(400) % 3], 0.1)
    shares: list[float] = []
    groups(Z, 5, limits=limits, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
