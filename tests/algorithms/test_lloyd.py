"""Exact federated Lloyd: pooling's own result, from totals."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.cluster import KMeans

from helpers import bits, blobs, in_order, inertia_of, lloyd, lloyd_step, pooled, rounds, split, watched
from unpooled.algorithms import Lloyd
from unpooled.errors import InputError
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.exchange import run_protocol
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments

pytestmark = pytest.mark.quick


def case(seed, k=4, spread=4.0, parts=5, **how):
    rows = split(blobs(seed, n=150, d=3, k=k, spread=spread)[0], parts, seed, **how)
    X = pooled(rows)
    return rows, X, X[np.random.default_rng(seed).choice(len(X), k, replace=False)] + 0.01


def test_a_round_by_hand():
    rows = {"a": np.array([[0.0], [1.0], [10.0]]), "b": np.array([[2.0], [12.0], [14.0]])}
    _, first = rounds(Lloyd(k=2, init=np.array([[0.0], [11.0]])), Simulation.from_rows(rows), 1)
    assert first.centers.tolist() == [[1.0], [12.0]]
    assert first.inertia == 0 + 1 + 1 + 4 + 1 + 9
    assert first.movement == pytest.approx(np.sqrt(2))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("skewed", [False, True])
def test_every_round_is_pooled_lloyd(seed, skewed):
    rows, X, centers = case(seed, skewed=skewed)
    for state in list(rounds(Lloyd(k=4, init=centers, tol=0.0), Simulation.from_rows(rows), 4))[1:]:
        assert state.inertia == pytest.approx(inertia_of(X, centers), rel=1e-12)
        centers = lloyd_step(X, centers)
        np.testing.assert_allclose(state.centers, centers, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_it_ends_where_scikit_learn_ends_from_the_same_start(seed):
    rows, X, centers = case(seed)
    done = run(Lloyd(k=4, init=centers, tol=0.0), Simulation.from_rows(rows))
    central = KMeans(4, init=centers, n_init=1, tol=0.0, algorithm="lloyd").fit(X)
    np.testing.assert_allclose(done.state.centers, central.cluster_centers_, rtol=0, atol=1e-9)
    assert done.state.inertia == pytest.approx(central.inertia_, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("k", "spread"), [(3, 0.5), (5, 3.0), (12, 1.0)])
def test_the_default_is_as_good_as_pooling(seed, k, spread):
    X = blobs(seed, n=600, k=k, spread=spread)[0]
    done = run(Lloyd(k=k), Simulation.from_rows(split(X, 7, seed, skewed=seed % 2 == 0)), seed=seed)
    central = KMeans(k, n_init=10, random_state=seed).fit(X).inertia_
    assert inertia_of(X, done.state.centers) <= 1.002 * central
    assert done.exchanges <= 30


@pytest.mark.parametrize("seed", range(4))
def test_the_split_changes_the_result_only_by_rounding(seed):
    X = blobs(seed, n=300, k=4, spread=2.0)[0]
    splits = [
        {"all": X},
        split(X, 3, seed, skewed=True),
        {f"{i:03d}": X[3 * i : 3 * i + 3] for i in range(100)},
    ]
    ends = [in_order(run(Lloyd(k=4), Simulation.from_rows(rows), seed=seed).state.centers) for rows in splits]
    for end in ends[1:]:
        np.testing.assert_allclose(end, ends[0], rtol=0, atol=1e-6)


def test_all_starts_share_the_exchanges():
    rows, X, _ = case(3)
    ten = run(Lloyd(k=4, init="random", n_starts=10, tol=0.0), Simulation.from_rows(rows))
    assert all(r.exchanges == 1 for r in ten.history)
    starts, _, _ = ten.state.candidates
    assert starts.shape == (10, 4, 3)
    inertias = [inertia_of(X, c) for c in starts]
    assert inertia_of(X, ten.state.centers) == min(inertias)
    assert ten.state.inertia == pytest.approx(min(inertias))


def test_a_start_at_rest_is_not_asked_about_again():
    rows, _, _ = case(3)
    federation, recorder = watched(rows)
    run(Lloyd(k=4, init="random", n_starts=10), federation)
    asked = [
        len(part.question.centers) for part, _ in recorder.seen if isinstance(part.question, AskClusterSums)
    ]
    assert asked[0] == 10
    assert asked == sorted(asked, reverse=True)
    assert asked[-1] < 10


def test_only_totals_are_asked_for():
    rows, _, _ = case(1)
    federation, recorder = watched(rows)
    run(Lloyd(k=4), federation)
    assert {part.verb for part, _ in recorder.seen} == {"total"}
    assert {type(part.question) for part, _ in recorder.seen} == {AskMoments, AskClusterSums}


def test_an_empty_cluster_stays_where_it_is():
    rows, X, centers = case(2)
    centers[1] = 1e5
    done = run(Lloyd(k=4, init=centers), Simulation.from_rows(rows))
    assert done.state.centers[1].tolist() == [1e5] * 3
    others = lloyd(X, np.delete(centers, 1, axis=0))
    np.testing.assert_allclose(np.delete(done.state.centers, 1, axis=0), others, atol=0.1)


def test_a_cluster_whose_total_is_below_the_minimum_stays_where_it_is():
    X = np.vstack([blobs(1, n=60)[0], [[100.0, 100.0], [104.0, 100.0], [102.0, 103.0]]])
    centers = np.array([[0.0, 0.0], [5.0, 5.0], [101.0, 99.0]])
    rows = {"a": X[:30], "b": X[30:]}
    still, moved = (
        run(Lloyd(k=3, init=centers, min_cluster_size=p), Simulation.from_rows(rows)).state.centers[2]
        for p in (5, 3)
    )
    assert still.tolist() == [101.0, 99.0]
    assert moved == pytest.approx([102.0, 101.0])


@pytest.mark.parametrize("seed", range(3))
def test_with_a_part_of_the_sites_every_round_it_comes_near(seed):
    X = blobs(seed, n=800, k=4)[0]
    rows = split(X, 20, seed)
    done = run(Lloyd(k=4, participation=0.25, max_rounds=40, tol=0.0), Simulation.from_rows(rows), seed=seed)
    assert {len(r.answered) for r in done.history[1:]} == {5}
    assert inertia_of(X, done.state.centers) < 1.02 * KMeans(4, n_init=10, random_state=0).fit(X).inertia_


def test_a_centre_moves_by_its_share_of_new_weight():
    """One site a round: the centre is the mean of all rows seen so far, of whichever sites."""
    rows = {"a": np.array([[0.0], [0.0]]), "b": np.array([[6.0]])}
    states = list(
        rounds(Lloyd(k=1, init=np.array([[3.0]]), participation=0.5), Simulation.from_rows(rows), 12, seed=1)
    )
    total = weight = 0.0
    asked = set()
    for before, after in pairwise(states):
        new = after.leader.seen[0] - before.leader.seen[0]  # two rows of a, or one of b
        total, weight = total + (6.0 if new == 1.0 else 0.0), weight + new
        assert after.centers[0, 0] == pytest.approx(total / weight)
        asked.add(new)
    assert asked == {1.0, 2.0}


def test_float32_rows_do_not_lose_the_result():
    X = (blobs(4, n=4000, k=5, spread=2.0)[0] + 1000).astype(np.float32)
    rows = split(X, 5)
    narrow = run(Lloyd(k=5), Simulation.from_rows(rows)).state
    wide = run(Lloyd(k=5), Simulation.from_rows({s: x.astype(np.float64) for s, x in rows.items()})).state
    assert narrow.centers.dtype == np.float64
    np.testing.assert_allclose(in_order(narrow.centers), in_order(wide.centers), atol=1e-3)
    assert narrow.inertia == pytest.approx(wide.inertia, rel=1e-5)


def test_weights_are_repeated_rows():
    rows, _, centers = case(5)
    times = {s: np.random.default_rng(i).integers(0, 4, len(X)) for i, (s, X) in enumerate(rows.items())}
    repeated = {s: np.repeat(X, times[s], axis=0) for s, X in rows.items()}
    weighted = run(
        Lloyd(k=4, init=centers), Simulation.from_rows(rows, {s: t.astype(float) for s, t in times.items()})
    ).state
    plain = run(Lloyd(k=4, init=centers), Simulation.from_rows(repeated)).state
    np.testing.assert_allclose(weighted.centers, plain.centers, rtol=0, atol=1e-10)
    assert weighted.inertia == pytest.approx(plain.inertia)


def test_it_stops_at_max_rounds_and_below_the_tolerance():
    rows, _, centers = case(3)
    assert run(Lloyd(k=4, init=centers, tol=0.0, max_rounds=3), Simulation.from_rows(rows)).rounds == 3
    exact = run(Lloyd(k=4, init=centers, tol=0.0), Simulation.from_rows(rows))
    rough = run(Lloyd(k=4, init=centers, tol=0.01), Simulation.from_rows(rows))
    assert rough.rounds < exact.rounds
    limit = np.sqrt(0.01 * pooled(rows).var(axis=0).mean())
    assert rough.state.threshold == pytest.approx(limit)


def test_bad_settings():
    with pytest.raises(InputError, match="n_starts must be >= 1, got 0"):
        Lloyd(k=3, n_starts=0)
    with pytest.raises(InputError, match=r"Lloyd: the number of clusters is missing"):
        run(Lloyd(), Simulation.from_rows({"a": np.ones((3, 1))}))


def test_a_round_does_not_change_the_state_it_is_given(rows):
    federation, method = Simulation.from_rows(rows), Lloyd(k=3, init="random")
    (first,) = rounds(method, federation, 0)
    before = bits(first)
    run_protocol(method.build().round(first, federation.sites, np.random.default_rng(0)), federation)
    assert bits(first) == before
