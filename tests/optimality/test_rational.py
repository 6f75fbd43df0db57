"""Optima in exact arithmetic, by hand."""

from fractions import Fraction

import numpy as np
import pytest
from hard_rows import problem
from rational import inertia, optimum, optimum_on_a_line, priced_optimum

pytestmark = pytest.mark.quick


def test_by_hand():
    X = [[0.0], [1.0], [4.0]]
    assert optimum(X, 2) == optimum_on_a_line([0.0, 1.0, 4.0], 2) == inertia(X, [0, 0, 1]) == Fraction(1, 2)
    assert optimum(X, 1) == Fraction(26, 3)
    assert optimum(X, 2, [1.0, 3.0, 0.0]) == 0
    assert optimum(X, 1, [1.0, 3.0, 0.0]) == Fraction(3, 4)
    assert optimum_on_a_line([0.1, 0.2], 1) == (Fraction(0.2) - Fraction(0.1)) ** 2 / 2
    ones = [1.0, 1.0, 1.0]
    assert priced_optimum(X, 1, ones, [[0.0]], [[0.0]], [[1.0]]) == 1 + 0 + 9
    assert priced_optimum(X, 2, ones, [[0.0], [2.0]], [[0.0], [-1.0]], [[4.0], [4.0]]) == 1
    assert priced_optimum(X, 1, ones, [[0.0]], [[2.0]], [[1.0]]) is None
    corner = priced_optimum(
        [[3.0, 3.0]],
        2,
        [1.0],
        np.zeros((2, 2)),
        np.zeros((2, 2)),
        np.ones((2, 2)) * 4,
        [[0.0, 0.0], [4.0, 4.0]],
        [0, 0],
    )
    assert corner == 2


def test_the_two_ways_agree():
    for number in range(64):
        p = problem(number)
        best = optimum(p.X.tolist(), p.k)
        if p.X.shape[1] == 1:
            assert best == optimum_on_a_line(p.X[:, 0].tolist(), p.k)
        low, high = np.tile(p.X.min(axis=0), (p.k, 1)), np.tile(p.X.max(axis=0), (p.k, 1))
        if len(p.X) < 7 and p.k < 4:
            assert best == priced_optimum(p.X.tolist(), p.k, np.ones(len(p.X)), 0 * low, low, high)
