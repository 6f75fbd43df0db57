"""Sites that send again what cannot have changed: the same centres as sites that compute every round."""

import numpy as np
import pytest

from unpooled import Dwf, InProcess, partition, run
from unpooled.algorithms.dwf import AskLocalMoves
from unpooled.datasets import synthetic
from unpooled.messages import Stack
from unpooled.reproduce.steady import AskSteadyMoves, Steady, margin


def sites_of(split, seed):
    X, _ = synthetic.holzer()
    X = X[::7]
    labels = partition.iid(len(X), 30, seed=seed) if split == "iid" else partition.by_kmeans(X, 30, seed=seed)
    return partition.divided(X, labels)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("split", ["iid", "by k-means"])
@pytest.mark.parametrize("weights", ["counts", "equal"])
@pytest.mark.parametrize("participation", [1.0, 0.3])
def test_a_run_is_the_plain_one_to_rounding(seed, split, weights, participation):
    rows = sites_of(split, seed)
    plain, steady = (
        run(
            kind.as_published(k=5, weights=weights, participation=participation),
            InProcess.of(rows, threads=1),
            seed=seed,
            max_rounds=400,
        )
        for kind in (Dwf, Steady)
    )
    assert steady.rounds == plain.rounds
    np.testing.assert_allclose(steady.state.centers, plain.state.centers, rtol=0, atol=1e-12)


def stack_of(rows):
    counts = [len(X) for X in rows.values()]
    return Stack(
        X=np.concatenate(list(rows.values())),
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        weights=None,
        seeds=None,
        minimum=1,
        threads=1,
        memory=tuple({} for _ in rows),
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_site_that_holds_has_the_counts_that_it_would_have(seed):
    """Centres wander at random, now little, now much: whoever sends again must be right to."""
    rng = np.random.default_rng(seed)
    stack = stack_of(sites_of("by k-means", seed))
    centers = rng.uniform(-1, 1, (5, 2))
    again = 0
    for _ in range(120):
        centers = centers + 10.0 ** rng.uniform(-7, -2) * rng.standard_normal(centers.shape)
        question = AskSteadyMoves(centers, 5, "counts")
        before = [memory.get("steady") for memory in stack.memory]
        held = [s for s, h in enumerate(before) if question._holds(h)]
        got = question.answer_all(stack).reply
        plain = AskLocalMoves(centers, 5, "counts").answer_all(stack).reply
        np.testing.assert_array_equal(got.weight, plain.weight)
        np.testing.assert_allclose(got.plain, plain.plain, rtol=0, atol=1e-13)
        again += len(held)
    assert again > 0.2 * 120 * len(stack)  # it is not that nobody ever holds


def test_margins_by_hand():
    two = np.array([[0.0], [10.0]])
    assert margin(np.array([[1.0]]), two) == 8.0
    assert margin(np.array([[1.0], [4.5]]), two) == pytest.approx(1.0)
    assert margin(np.array([[5.0]]), two) == 0.0
    assert margin(np.zeros((0, 1)), two) == np.inf
    assert margin(np.array([[1.0]]), two[:1]) == np.inf


def test_weights_and_minimum_sizes_are_answered_the_plain_way():
    rows = sites_of("iid", 0)
    done = [
        run(kind.as_published(k=5), InProcess.of(rows, min_cluster_size=5, threads=1), max_rounds=40)
        for kind in (Dwf, Steady)
    ]
    np.testing.assert_array_equal(done[0].state.centers, done[1].state.centers)
