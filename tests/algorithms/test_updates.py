"""Two papers' momentum, each by hand."""

import numpy as np
import pytest

from unpooled.algorithms.server_updates import ema, heavy_ball, movement

C, OLD, TARGET = np.array([[1.0, 2.0]]), np.array([[0.0, 4.0]]), np.array([[3.0, 2.0]])


def test_trace_by_hand():
    # 1 + .5 (3 - 1) + .1 (1 - 0), 2 + .5 (2 - 2) + .1 (2 - 4)
    assert heavy_ball(C, OLD, TARGET, 0.5, 0.1) == pytest.approx(np.array([[2.1, 1.8]]))


def test_trace_without_momentum_and_full_rate_is_the_target():
    assert heavy_ball(C, OLD, TARGET, 1.0, 0.0).tolist() == TARGET.tolist()


def test_trace_gathers_speed():
    """Towards a target that keeps its distance, the step tends to eta / (1 - mu) of it: a trace, no mean."""
    previous = centers = np.zeros(1)
    for _ in range(200):
        previous, centers = centers, heavy_ball(centers, previous, centers + 1.0, 0.01, 0.8)
    assert centers - previous == pytest.approx(0.01 / 0.2)


def test_ema_by_hand():
    assert ema(np.array([1.0]), np.array([2.0]), 1.0, 0.5).tolist() == [1.5]
    assert ema(np.array([1.0]), np.array([2.0]), 0.5, 0.0).tolist() == [1.0]


def test_ema_does_not_gather_speed():
    velocity = np.zeros(1)
    for _ in range(200):
        velocity = ema(velocity, np.ones(1), 1.0, 0.5)
    assert velocity == pytest.approx(1.0)


def test_movement_is_the_length_of_the_whole_step():
    assert movement(np.zeros((2, 2)), np.array([[3.0, 0.0], [0.0, 4.0]])) == 5.0
