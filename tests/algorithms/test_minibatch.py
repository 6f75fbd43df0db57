"""Mini-batch federated k-means: Lloyd in the limit, momentum, and reassignment by hand."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans

from helpers import blobs, inertia_of, lloyd_step, pooled, rounds, split
from unpooled.algorithms import MiniBatch
from unpooled.algorithms.minibatch import AskEpochs, MiniBatchState
from unpooled.errors import InputError
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.algorithm import each
from unpooled.protocol.exchange import round_rng, run_protocol


def case(seed, **how):
    rows = split(blobs(seed, n=150, d=3, k=4, spread=4.0)[0], 5, seed, **how)
    X = pooled(rows)
    return rows, X, X[np.random.default_rng(seed).choice(len(X), 4, replace=False)] + 0.01


def one_round(method, rows, before, seed=0):
    federation = Simulation.from_rows(rows)
    return run_protocol(
        method.round(before, federation.sites, round_rng(seed, 1)), federation, seed=seed, number=1
    )


def state(centers, **changes):
    centers = np.asarray(centers, dtype=float)
    zero = MiniBatchState(
        centers=centers,
        velocity=np.zeros_like(centers),
        unused=np.zeros(len(centers), int),
        low=np.full(1, -9.0),
        high=np.full(1, 9.0),
        movement=np.inf,
        inertia=np.nan,
        threshold=0.0,
        rounds=0,
    )
    return replace(zero, **changes)


# ---------------------------------------------------------------- by hand


def test_a_sites_epoch_by_hand():
    rows = {"a": np.array([[0.0], [2.0], [10.0]])}
    whole = run_protocol(
        each(("a",), AskEpochs(np.array([[0.0], [9.0]]), 1, 0, 1.0)), Simulation.from_rows(rows)
    )["a"]
    assert whole.counts.tolist() == [2.0, 1.0]
    assert whole.weighted.tolist() == [[2 * 1.0], [1 * 1.0]]
    half = run_protocol(
        each(("a",), AskEpochs(np.array([[0.0], [9.0]]), 1, 0, 0.5)), Simulation.from_rows(rows)
    )["a"]
    assert half.weighted.tolist() == [[2 * 0.5], [1 * 0.5]]


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_batches_of_one_cluster_end_at_its_mean_whatever_their_order(batch):
    X = np.array([[1.0], [2.0], [6.0], [7.0]])
    result = run_protocol(
        each(("a",), AskEpochs(np.array([[50.0]]), 1, batch, 1.0)), Simulation.from_rows({"a": X})
    )["a"]
    assert result.counts.tolist() == [4.0]
    assert 50 + result.weighted[0, 0] / 4 == pytest.approx(4.0)


def test_counts_are_those_of_the_last_epoch():
    X = np.array([[0.0], [4.0], [5.0]])
    # epoch one: 0 | 4, 5 against centres 1 and 20 gives 3 | 0, then all rows at the mean 3
    result = run_protocol(
        each(("a",), AskEpochs(np.array([[1.0], [20.0]]), 3, 0, 1.0)), Simulation.from_rows({"a": X})
    )["a"]
    assert result.counts.tolist() == [3.0, 0.0]
    assert result.rows.tolist() == [3.0]


def test_momentum_is_an_exponential_mean():
    rows = {"a": np.array([[10.0]])}
    method = MiniBatch(k=1, momentum=0.5, learning_rate=1.0)
    first = one_round(method, rows, state([[0.0]]))
    assert first.velocity.tolist() == [[5.0]]  # half of nothing, half of 10
    assert first.centers.tolist() == [[5.0]]
    second = one_round(method, rows, first)
    assert second.velocity.tolist() == [[5.0]]  # half of 5, half of the 5 that is left
    assert second.centers.tolist() == [[10.0]]
    assert (second.movement, second.rounds) == (5.0, 2)


def test_the_server_rate_decays_with_the_rounds():
    rows = {"a": np.array([[8.0]])}
    current = state([[0.0]])
    for rounds_done, expected in ((0, 8.0), (3, 4.0), (15, 2.0)):  # 8 t^-0.5 of round t
        moved = one_round(MiniBatch(k=1, decay=0.5), rows, replace(current, rounds=rounds_done))
        assert moved.centers.tolist() == [[expected]]


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("skewed", [False, True])
def test_law_18_all_clients_one_epoch_no_momentum_full_rates_is_lloyd(seed, skewed):
    rows, X, centers = case(seed, skewed=skewed)
    method = MiniBatch(k=4, init=centers, epochs=1, batch=0, learning_rate=1.0, momentum=0.0, client_rate=1.0)
    for result in list(rounds(method, Simulation.from_rows(rows), 8))[1:]:
        centers = lloyd_step(X, centers)
        np.testing.assert_allclose(result.centers, centers, rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [{"epochs": 2}, {"batch": 3}, {"momentum": 0.5}, {"client_rate": 0.5}])
def test_anything_else_is_not_lloyd(settings):
    rows, X, centers = case(1)
    _, result = rounds(MiniBatch(k=4, init=centers, **settings), Simulation.from_rows(rows), 1)
    assert np.abs(result.centers - lloyd_step(X, centers)).max() > 1e-3


# ---------------------------------------------------------------- reassignment


def test_a_cluster_unused_for_so_many_rounds_gets_a_new_place():
    rows = {"a": np.array([[0.0], [1.0]])}
    method = MiniBatch(k=2, reassign_after=3)
    current = state([[0.5], [100.0]], velocity=np.array([[0.0], [7.0]]))
    for count in (1, 2):
        current = one_round(
            replace(method, momentum=0.5), rows, replace(current, centers=np.array([[0.5], [100.0]]))
        )
        assert current.unused.tolist() == [0, count]
    last = one_round(method, rows, replace(current, centers=np.array([[0.5], [100.0]])))
    assert last.unused.tolist() == [0, 0]
    assert -9 <= last.centers[1, 0] <= 9  # the stated box
    assert last.velocity[1].tolist() == [0.0]
    assert last.centers[0].tolist() == [0.5]


def test_a_cluster_used_again_starts_counting_anew():
    rows = {"a": np.array([[0.0], [1.0], [100.0]])}
    result = one_round(MiniBatch(k=2), rows, state([[0.5], [100.0]], unused=np.array([5, 19])))
    assert result.unused.tolist() == [0, 0]


def test_below_one_percent_of_the_rounds_rows_counts_as_unused():
    rows = {"a": np.vstack([np.zeros((250, 1)), [[100.0], [100.0]]])}
    result = one_round(MiniBatch(k=2), rows, state([[0.0], [100.0]]))
    assert result.unused.tolist() == [0, 1]  # 2 of 252 rows
    result = one_round(MiniBatch(k=2, reassign_below=0.005), rows, state([[0.0], [100.0]]))
    assert result.unused.tolist() == [0, 0]


def test_reassignment_can_be_left_out():
    rows = {"a": np.array([[0.0], [1.0]])}
    result = one_round(
        MiniBatch(k=2, reassign_after=0), rows, state([[0.5], [100.0]], unused=np.array([0, 500]))
    )
    assert result.centers[1].tolist() == [100.0]


# ---------------------------------------------------------------- the rest


def test_as_published():
    method = MiniBatch.as_published(k=5)
    code = MiniBatch.as_published_code(k=5)
    assert (method.learning_rate, method.decay, method.momentum, method.max_rounds) == (1.0, 0.5, 0.0, 200)
    assert vars(replace(code, decay=0.5, momentum=0.0)) == vars(method)
    assert (code.learning_rate, code.decay, code.momentum) == (1.0, 0.0, 0.5)
    assert (method.reassign_below, method.reassign_after) == (0.01, 20)
    X = np.random.default_rng(0).normal(np.repeat(np.arange(1.0, 6.0), 100), 0.2)[:, None]
    rows = split(X, 50)
    (start,) = rounds(method, Simulation.from_rows(rows), 0)
    assert ((start.centers >= 0) & (start.centers <= 6)).all()
    done = run(MiniBatch.as_published(k=5, participation=0.5), Simulation.from_rows(rows), seed=2)
    assert (done.rounds, done.finished) == (200, True)
    assert {len(r.answered) for r in done.history[1:]} == {25}


@pytest.mark.parametrize("seed", range(3))
def test_mini_batches_come_near_pooling(seed):
    X, _ = blobs(seed, n=500, k=4, spread=1.0)
    done = run(MiniBatch(k=4, batch=10, max_rounds=30), Simulation.from_rows(split(X, 5, seed)), seed=seed)
    assert inertia_of(X, done.state.centers) < 1.1 * KMeans(4, n_init=10, random_state=0).fit(X).inertia_


def test_a_small_cluster_is_suppressed_in_counts_moves_and_rows():
    rows = {"a": np.array([[0.0], [2.0], [50.0], [98.0], [99.0], [100.0]])}
    question = AskEpochs(np.array([[0.0], [49.0], [97.0]]), 1, 0, 1.0)
    result = run_protocol(each(("a",), question), Simulation.from_rows(rows, min_cluster_size=2))["a"]
    # the cluster of one, and the smallest other, or the one would follow from the site's total
    assert result.counts.tolist() == [0.0, 0.0, 3.0]
    assert result.weighted.tolist() == [[0.0], [0.0], [6.0]]
    assert result.rows.tolist() == [3.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be >= 1 and batch >= 0, got 0, 0"),
        ({"batch": -1}, "got 1, -1"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"decay": 1.5}, r"decay must be in \[0, 1\], got 1.5"),
        ({"client_rate": 0.0}, r"client_rate must be in \(0, 1\]"),
        ({"learning_rate": 0.0}, "learning_rate > 0"),
        ({"low": 0.0}, "state both low and high, or neither"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        MiniBatch(k=3, **settings)


def test_more_clusters_than_rows():
    with pytest.raises(InputError, match="k=3 clusters from 2 rows"):
        run(MiniBatch.as_published(k=3), Simulation.from_rows({"a": np.ones((2, 1))}))
