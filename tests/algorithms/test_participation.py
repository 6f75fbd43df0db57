"""Who takes part in a round."""

from collections import Counter

import numpy as np
import pytest

from unpooled.algorithms import DWF
from unpooled.algorithms.method import check_participation, is_full, sample_sites
from unpooled.errors import InputError

SITES = tuple("abcdefghij")


@pytest.mark.parametrize(
    ("participation", "number"),
    [(1.0, 10), (0.5, 5), (0.29, 2), (0.3, 3), (0.01, 1), (2, 2), (4, 4), (99, 10)],
)
def test_so_many_take_part_in_site_order(participation, number):
    result = sample_sites(SITES, participation, np.random.default_rng(0))
    assert len(result) == number
    assert list(result) == sorted(set(result))
    assert set(result) <= set(SITES)


def test_every_site_has_the_same_chance():
    rng = np.random.default_rng(1)
    times = Counter(site for _ in range(4000) for site in sample_sites(SITES, 0.3, rng))
    assert set(times) == set(SITES)
    assert all(abs(n - 1200) < 150 for n in times.values())  # five standard deviations


def test_the_same_generator_gives_the_same_choice_and_all_draw_nothing():
    one, two = np.random.default_rng(3), np.random.default_rng(3)
    assert sample_sites(SITES, 3, one) == sample_sites(SITES, 3, two)
    assert sample_sites(SITES, 1.0, one) == SITES
    assert one.integers(2**60) == two.integers(2**60)


def test_is_full():
    assert is_full(1.0, SITES)
    assert not is_full(0.99, SITES)
    assert is_full(10, SITES)
    assert not is_full(9, SITES)
    assert not is_full(1, SITES)


@pytest.mark.parametrize("bad", [0, 0.0, -1, 1.5, -0.5, float("nan"), True, "half", None])
def test_invalid_participation(bad):
    with pytest.raises(
        InputError, match=r"participation must be a share in \(0, 1\] or a number of sites >= 1, got"
    ):
        check_participation(bad)
    with pytest.raises(InputError, match="participation"):
        DWF(k=2, participation=bad)
