"""What is made of noisy cells: radii cell by cell, columns' units, means of steps."""

import numpy as np
import pytest

from seeded_noise import batch
from unpooled.algorithms.private.estimates import radius, reach, spreads, standard_units
from unpooled.privacy.dp.noisy_moments import AskNoisySpread, NoisySpread


def two_cells(steps, squares, noise):
    """Two cells of 1000 rows each and of radius 1; ``noise`` of one row's sum and square."""
    same = np.ones(2)
    return spreads(1000 * same, np.array(steps), 1000 * np.array(squares), same, noise * same, noise * same)


def test_a_cell_between_two_clusters_keeps_its_radius_while_others_shrink():
    spread, slack = two_cells([[0.0, 0.0], [0.0, 0.0]], [0.5, 1e-4], noise=1.0)
    assert spread == pytest.approx([0.5, 0.0125], rel=0.05)  # a twentieth of the common one at least
    assert (slack >= spread).all()
    wide, narrow = radius(np.ones(2), slack, np.ones(2), np.full(2, reach(2)))
    assert wide > 1
    assert narrow < 0.3


def test_noise_makes_spreads_alike():
    spread, slack = two_cells([[0.0, 0.0], [0.0, 0.0]], [0.3, 0.2], noise=1000.0)
    assert spread == pytest.approx([0.25, 0.25], rel=0.05)
    assert slack == pytest.approx([1.0, 1.0])  # nothing is known: the radius stays


def test_a_mean_that_was_held_back_may_go_on():
    """All rows lie further off than the radius: their mean moved by all of it, their spread seems to be 0."""
    spread, slack = two_cells([[0.99, 0.0], [0.01, 0.0]], [1.0, 0.01], noise=1.0)
    assert spread[0] == slack[0] == 1.0
    assert slack[1] < 0.1


def test_units_of_columns_are_their_deviations():
    rng = np.random.default_rng(0)
    rows = np.clip(rng.normal([0.0, 0.4, -0.2], [0.3, 0.1, 0.02], (200_000, 3)), -1, 1)
    asked = AskNoisySpread(3.0, np.ones(3))
    result = standard_units(asked, asked.answer(batch(rows)))
    assert result == pytest.approx(rows.std(axis=0), rel=0.1)


def test_units_of_columns_that_drown_in_noise_are_alike():
    """A column that seems narrow by chance must not outweigh the others."""
    asked, n = AskNoisySpread(0.01, np.ones(3)), 1000.0
    result = NoisySpread(np.array([n]), np.zeros(3), n * (np.array([0.3, 0.1, -0.2]) - 0.75), np.ones(1))
    units = standard_units(asked, result)
    assert units.max() / units.min() < 1.5
