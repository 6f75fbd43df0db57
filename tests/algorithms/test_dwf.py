"""DWF and EWF: by hand, against pooled Lloyd, and the laws of PAPERS.md that are theirs."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from helpers import bits, blobs, inertia_of, lloyd_step, pooled, rounds, split
from unpooled.algorithms import DWF, EWF
from unpooled.algorithms.dwf import WEIGHTINGS, AskLocalMoves, DWFState
from unpooled.errors import InputError
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import run_protocol


def start_for(rows, k, seed):
    """k centres in the bounding box, no rows."""
    X = pooled(rows)
    return np.random.default_rng(seed).uniform(X.min(axis=0), X.max(axis=0), (k, X.shape[1]))


def case(seed, k=4, spread=4.0, **how):
    rows = split(blobs(seed, n=150, d=3, k=k, spread=spread)[0], 5, seed, **how)
    return rows, start_for(rows, k, seed)


def after(algorithm, rows, count, **settings):
    *_, last = rounds(algorithm, Simulation.from_rows(rows, **settings), count)
    return last.centers


# ---------------------------------------------------------------- by hand

TWO = {"a": np.array([[0.0], [1.0], [10.0]]), "b": np.array([[2.0], [12.0], [14.0]])}
START = np.array([[0.0], [11.0]])


def test_a_round_of_dwf_by_hand():
    # a has 2 rows near 0 with mean 0.5 and 1 near 11; b has 1 (2) and 2 with mean 13
    assert after(DWF(k=2, init=START), TWO, 1).tolist() == [[1.0], [12.0]]


def test_a_round_of_ewf_by_hand():
    assert after(EWF(k=2, init=START), TWO, 1).tolist() == [[(0.5 + 2) / 2], [(10 + 13) / 2]]


def test_a_round_weighted_by_rows_by_hand():
    rows = {"a": TWO["a"], "b": np.vstack([TWO["b"], [[13.0]] * 3])}  # 3 and 6 rows
    result = after(DWF(k=2, init=START, weights="rows"), rows, 1)
    np.testing.assert_allclose(result, [[(3 * 0.5 + 6 * 2) / 9], [(3 * 10 + 6 * 13) / 9]])


def test_learning_rate_and_momentum_by_hand():
    first, second = list(
        rounds(DWF(k=2, init=START, learning_rate=0.5, momentum=0.5), Simulation.from_rows(TWO), 2)
    )[1:]
    assert first.centers.tolist() == [[0.5], [11.5]]  # half the way to 1 and 12; no momentum yet
    # again half the way to 1 and 12, and half of the step before
    assert second.centers.tolist() == [[0.5 + 0.25 + 0.25], [11.5 + 0.25 + 0.25]]


def test_a_cluster_without_any_weight_takes_the_plain_mean_over_sites():
    """Empty under the received centres, filled at one site by its second local step (eq. 4, with 1/|I|)."""
    rows = {"a": np.array([[-1.0], [8.0]]), "b": np.array([[0.0], [0.0]])}
    centers = np.array([[3.9], [12.1]])
    # a: both rows go to 3.9, its mean is 3.5; now 8 is nearer to 12.1, which becomes 8. b keeps 12.1.
    result = run_protocol(total(("a", "b"), AskLocalMoves(centers, 5, "counts")), Simulation.from_rows(rows))
    assert result.weight.tolist() == [4.0, 0.0]
    assert after(DWF(k=2, init=centers, local_steps=5), rows, 1)[1] == pytest.approx([(8.0 + 12.1) / 2])


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("skewed", [False, True])
def test_law_01_one_step_full_rate_is_pooled_lloyd_every_round(seed, skewed):
    rows, centers = case(seed, skewed=skewed)
    X = pooled(rows)
    for state in list(rounds(DWF(k=4, init=centers), Simulation.from_rows(rows), 12))[1:]:
        centers = lloyd_step(X, centers)
        np.testing.assert_allclose(state.centers, centers, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_law_02_ewf_differs_from_pooled_lloyd_on_a_skewed_split(seed):
    rows, centers = case(seed, skewed=True)
    pooled_step = lloyd_step(pooled(rows), centers)
    assert np.abs(after(EWF(k=4, init=centers), rows, 1) - pooled_step).max() > 1e-3
    assert np.abs(after(DWF(k=4, init=centers), rows, 1) - pooled_step).max() < 1e-12


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("steps", [1, 5])
def test_law_03_with_one_client_ewf_dwf_and_central_are_one(seed, steps):
    rows, centers = case(seed)
    alone = {"only": pooled(rows)}
    central = centers
    for _ in range(3 * steps):
        central = lloyd_step(alone["only"], central)
    for algorithm in (DWF(k=4, init=centers, local_steps=steps), EWF(k=4, init=centers, local_steps=steps)):
        np.testing.assert_allclose(after(algorithm, alone, 3), central, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_law_05_splitting_a_client_changes_nothing_for_one_step_and_does_for_five(seed):
    rows, centers = case(seed)
    largest = max(rows, key=lambda s: len(rows[s]))
    halves = {s: X for s, X in rows.items() if s != largest}
    halves |= {"half-a": rows[largest][::2], "half-b": rows[largest][1::2]}
    one, five = (
        [after(DWF(k=4, init=centers, local_steps=steps), r, 3) for r in (rows, halves)] for steps in (1, 5)
    )
    np.testing.assert_allclose(*one, rtol=0, atol=1e-12)
    assert np.abs(five[0] - five[1]).max() > 1e-3


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [1.0, 0.5, 0.1])
def test_law_06_inertia_never_rises_for_one_step_without_momentum(seed, rate):
    rows, centers = case(seed, skewed=True)
    X = pooled(rows)
    states = list(rounds(DWF(k=4, init=centers, learning_rate=rate), Simulation.from_rows(rows), 25))
    inertias = [inertia_of(X, s.centers) for s in states]
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(inertias))
    assert inertias[-1] < inertias[0]
    # and what the state says is the inertia of the centres that were sent
    assert [s.inertia for s in states[1:]] == pytest.approx(inertias[:-1])


@pytest.mark.parametrize("algorithm", [DWF, EWF])
@pytest.mark.parametrize("steps", [1, 5])
def test_law_07_a_globally_empty_centroid_stays_put(algorithm, steps):
    rows, centers = case(1)
    centers[2] = 1e6
    for momentum in (0.0, 0.8):
        result = after(algorithm(k=4, init=centers, local_steps=steps, momentum=momentum), rows, 6)
        assert result[2].tolist() == [1e6] * 3


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("steps", [1, 4])
def test_law_08_a_client_without_rows_in_a_cluster_does_not_move_it(seed, steps):
    rows = split(blobs(seed, n=60, spread=1.0)[0], 3, seed)
    far = {"far": np.random.default_rng(seed).normal(size=(30, 2)) + 1000}
    centers = np.vstack([start_for(rows, 2, seed), [[1000.0, 1000.0]]])
    without = after(DWF(k=3, init=centers, local_steps=steps), rows, 3)
    with_far = after(DWF(k=3, init=centers, local_steps=steps), {**rows, **far}, 3)
    np.testing.assert_array_equal(with_far[:2], without[:2])
    assert not np.array_equal(with_far[2], without[2])
    equal = after(EWF(k=3, init=centers, local_steps=steps), {**rows, **far}, 1)
    assert not np.allclose(equal[:2], after(EWF(k=3, init=centers, local_steps=steps), rows, 1)[:2])


@pytest.mark.parametrize("algorithm", [DWF, EWF])
@pytest.mark.parametrize("seed", range(4))
def test_law_24_without_momentum_centroids_stay_in_the_bounding_box(algorithm, seed):
    rows, centers = case(seed, skewed=True)
    low, high = pooled(rows).min(axis=0), pooled(rows).max(axis=0)
    for rate, steps in ((1.0, 1), (0.3, 5)):
        method = algorithm(k=4, init=centers, learning_rate=rate, local_steps=steps)
        for state in rounds(method, Simulation.from_rows(rows), 10):
            assert (state.centers >= low - 1e-12).all()
            assert (state.centers <= high + 1e-12).all()


def test_with_momentum_they_may_leave_it():
    rows = {"a": np.array([[0.0], [1.0]])}
    method = DWF(k=1, init=np.array([[-1.0]]), learning_rate=0.5, momentum=0.95)
    assert max(s.centers.max() for s in rounds(method, Simulation.from_rows(rows), 20)) > 1.0


# ---------------------------------------------------------------- minimum size, own weights


def test_small_clusters_are_suppressed_with_all_that_belongs_to_them():
    rows = {"a": np.array([[0.0], [1.0], [50.0], [98.0], [99.0], [100.0]])}
    question = AskLocalMoves(np.array([[0.0], [49.0], [97.0]]), 1, "counts")
    result = run_protocol(total(("a",), question), Simulation.from_rows(rows, min_cluster_size=2))
    # the cluster of one, and the smallest other, or the one would follow from the site's total
    assert result.plain.tolist() == [[0.0], [0.0], [2.0]]
    assert result.weighted.tolist() == [[0.0], [0.0], [6.0]]
    assert result.weight.tolist() == [0.0, 0.0, 3.0]
    assert result.inertia.tolist() == [0.0, 0.0, 1.0 + 4.0 + 9.0]


def test_a_cluster_that_shrinks_to_one_row_in_the_local_steps_is_suppressed():
    """Two rows under the received centre, but the mean that would be sent is over one."""
    rows = {"a": np.array([[0.0], [7.0], [9.0], [10.0]])}
    question = AskLocalMoves(np.array([[3.0], [12.0]]), 5, "counts")
    disclosed = run_protocol(total(("a",), question), Simulation.from_rows(rows))
    suppressed = run_protocol(total(("a",), question), Simulation.from_rows(rows, min_cluster_size=2))
    assert disclosed.weight[0] == 2.0
    assert (disclosed.plain[0] + 3.0).tolist() == [0.0]  # the row itself
    assert (suppressed.weight[0], suppressed.plain[0, 0], suppressed.inertia[0]) == (0.0, 0.0, 0.0)


def test_a_weighting_of_your_own(monkeypatch):
    monkeypatch.setitem(WEIGHTINGS, "root", lambda counts, rows: np.sqrt(counts))
    result = after(DWF(k=2, init=START, weights="root"), TWO, 1)
    r = np.sqrt(2)
    np.testing.assert_allclose(result, [[(r * 0.5 + 2) / (r + 1)], [(10 + r * 13) / (r + 1)]])


def test_a_site_that_does_not_know_a_weighting_says_so():
    with pytest.raises(InputError, match="this site has no weighting 'secret'"):
        run_protocol(total(("a",), AskLocalMoves(START, 1, "secret")), Simulation.from_rows(TWO))


# ---------------------------------------------------------------- stopping


def state(movements, count):
    return DWFState(
        centers=START,
        previous=START,
        movements=np.array(movements),
        inertia=0.0,
        threshold=0.1,
        rounds=count,
    )


def test_it_rests_below_the_threshold_and_not_before_the_least_number_of_rounds():
    method = DWF(k=2, min_rounds=3, window=300)
    assert not method.finished(state([1.0, 0.01], 2))
    assert method.finished(state([1.0, 0.5, 0.01], 3))
    assert not method.finished(state([1.0, 0.5, 0.1], 3))
    assert not method.finished(state([], 0))


def test_it_stops_when_the_oldest_movement_of_the_window_is_the_smallest():
    method = DWF(k=2, window=3)
    assert method.finished(state([0.5, 0.7, 0.6], 9))
    assert not method.finished(state([0.7, 0.5, 0.6], 9))
    assert not method.finished(state([0.5, 0.7], 9))


def test_the_window_begins_after_the_least_number_of_rounds():
    """The authors' loop fills its queue from its round number 16 on, counted from 0: 316 rounds at least."""
    method = DWF.as_published(k=2)
    building = np.linspace(0.5, 0.9, 300)  # momentum builds up: the oldest movement is the smallest
    assert not method.finished(state(building, 300))
    assert not method.finished(state(building, 315))
    assert method.finished(state(building, 316))
    assert not method.finished(state(building[::-1], 316))


def test_momentum_that_builds_up_does_not_stop_a_run():
    """The first movements are the smallest there are: a window over them would stop at its own length."""
    X, _ = blobs(3, n=400, k=4, spread=3.0)
    rows = split(X, 10, 3, skewed=True)
    method = replace(EWF.as_published(k=4), window=20, max_rounds=400)
    done = run(method, Simulation.from_rows(rows), seed=1)
    moved = [record.movement for record in done.history[1:]]
    assert moved[0] == min(moved[:20])
    assert done.rounds > 36


def test_it_stops_at_max_rounds():
    assert DWF(k=2, max_rounds=4).finished(state([9.0], 4))
    assert not DWF(k=2, max_rounds=5).finished(state([9.0], 4))


def test_the_window_of_movements_is_bounded(rows):
    done = run(DWF(k=3, init="random", window=4, min_rounds=9, max_rounds=9), Simulation.from_rows(rows))
    assert done.state.movements.tolist() == [r.movement for r in done.history[-4:]]


def test_as_published():
    method = DWF.as_published(k=5)
    assert (method.learning_rate, method.momentum, method.local_steps) == (0.01, 0.8, 5)
    assert (method.min_rounds, method.window, method.tol, method.max_rounds) == (16, 300, 1e-8, 10_000)
    assert (method.kfed_restarts, method.weights, method.tol_kind) == (5, "counts", "absolute")
    assert EWF.as_published(k=5).weights == "equal"
    assert bits(replace(EWF.as_published(k=5), weights="counts")) != bits(method)  # another class


@pytest.mark.parametrize("method", [DWF.as_published(k=5, participation=0.5), EWF.as_published(k=5)])
def test_as_published_ends_by_its_own_rule_at_a_good_clustering(method):
    X, _ = blobs(3, n=500, k=5, spread=0.6)
    rows = split(X, 10, 3)
    done = run(method, Simulation.from_rows(rows), seed=1)
    assert 16 <= done.rounds < 2000
    best = run(DWF(k=5), Simulation.from_rows(rows)).state
    assert inertia_of(X, done.state.centers) < 1.1 * inertia_of(X, best.centers)


def test_only_the_sites_of_the_round_are_asked():
    rows = split(blobs(3, n=200)[0], 10, 3)
    done = run(
        DWF(k=3, init="random", participation=3, min_rounds=8, max_rounds=8), Simulation.from_rows(rows)
    )
    assert [len(r.answered) for r in done.history] == [10] + [3] * 8
    assert len({r.answered for r in done.history[1:]}) > 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0.0}, r"learning_rate must be in \(0, 1\], got 0.0"),
        ({"learning_rate": 1.5}, "got 1.5"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"local_steps": 0}, "local_steps must be >= 1, got 0"),
        ({"window": 1}, "window must be >= 2, got 1"),
        ({"weights": "heavy"}, "weights must be one of counts, equal, rows, got 'heavy'"),
        ({"k": 0}, "DWF: k must be a whole number >= 1, got 0"),
        ({"k": 2.5}, "got 2.5"),
        ({"init": "best"}, "init must be one of adaptive, k-fed, random or centres, got 'best'"),
        ({"init": np.zeros(3)}, r"init as centres must be an array \(k, d\)"),
        ({"max_rounds": 0}, "max_rounds must be >= 1, got 0"),
        ({"tol": -1.0}, "tol must be >= 0, got -1.0"),
        ({"tol": float("nan")}, "tol must be >= 0, got nan"),
        ({"min_cluster_size": 0}, "min_cluster_size must be >= 1, got 0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        DWF(**{"k": 3, **settings})


def test_no_k_at_all():
    with pytest.raises(
        InputError, match=r"DWF: the number of clusters is missing\. Pass it as k, e\.g\. DWF\(k=3\)"
    ):
        run(DWF(), Simulation.from_rows(TWO))
