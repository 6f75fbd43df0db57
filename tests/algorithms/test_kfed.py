"""k-FED: the original and the two simplifications that carry its name."""

import numpy as np
import pytest

from helpers import blobs, in_order, inertia_of, pooled, split, watched
from unpooled.algorithms import KFed
from unpooled.algorithms.kfed import AskDennisMeans, _clear_means, _dennis_server, merge_means
from unpooled.errors import InputError
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.algorithm import each
from unpooled.protocol.exchange import run_protocol
from unpooled.protocol.questions.cluster_sums import AskLocalMeans, LocalMeans

pytestmark = pytest.mark.quick


def separated(seed, k=8, k_local=2, d=3, sites=12):
    """Well separated clusters, each site with rows of k_local of them only; every cluster somewhere."""
    rng = np.random.default_rng(seed)
    middle = 100.0 * np.eye(k, d) + 200.0 * rng.permutation(k)[:, None]
    rows = {}
    for i in range(sites):
        mine = (k_local * i + np.arange(k_local)) % k
        X = np.repeat(middle[mine], 20, axis=0) + rng.standard_normal((20 * k_local, d))
        rows[f"site-{i:02d}"] = X[rng.permutation(len(X))]
    return rows, middle


# ---------------------------------------------------------------- by hand


def test_a_sites_means_by_hand():
    rows = {"a": np.array([[0.0], [1.0], [100.0], [102.0], [104.0]])}
    for question in (AskDennisMeans(2), AskLocalMeans(2)):
        result = run_protocol(each(("a",), question), Simulation.from_rows(rows))["a"]
        assert sorted(zip(result.means[:, 0].tolist(), result.counts.tolist(), strict=True)) == [
            (0.5, 2.0),
            (102.0, 3.0),
        ]


def test_the_one_to_three_rule_by_hand():
    X = np.array([[0.0], [1.0], [4.0], [10.0]])
    # seeds 0 and 10: rows 0, 1 are three times nearer to 0; 4 is not (4 against 6); 10 is its own
    assert _clear_means(X, X, np.array([[0.0], [10.0]])).tolist() == [[0.5], [10.0]]
    # no row is clear of either: then all rows of the seed count
    close = np.array([[4.0], [6.0]])
    assert _clear_means(close, close, np.array([[0.0], [10.0]])).tolist() == [[4.0], [6.0]]


def test_the_server_of_dennis_by_hand():
    # the first site's two means; the farthest of the others is 50; then one Lloyd step over all means
    first, second = np.array([[0.0], [10.0]]), np.array([[1.0], [50.0], [52.0]])
    assert _dennis_server([first, second], 3).tolist() == [[0.5], [10.0], [51.0]]
    assert _dennis_server([np.zeros((0, 1)), first, second], 3).tolist() == [[0.5], [10.0], [51.0]]
    with pytest.raises(InputError, match="k=6 clusters from 5 local means"):
        _dennis_server([first, second], 6)


def test_weighted_and_unweighted_merging_by_hand():
    replies = [
        LocalMeans(np.array([[0.0], [9.0]]), np.array([3.0, 1.0])),
        LocalMeans(np.array([[1.0]]), np.ones(1)),
    ]
    rng = np.random.default_rng
    assert in_order(merge_means(replies, 2, rng(0), 5, weighted=True)).tolist() == [[0.25], [9.0]]
    assert in_order(merge_means(replies, 2, rng(0), 5, weighted=False)).tolist() == [[0.5], [9.0]]
    with pytest.raises(InputError, match="k=4 clusters from 3 local means: the sites disclosed too few"):
        merge_means(replies, 4, rng(0), 5, weighted=True)
    with pytest.raises(InputError, match="k=3 clusters from 2 distinct local means"):
        merge_means(
            [replies[1], replies[1], LocalMeans(np.array([[5.0]]), np.ones(1))], 3, rng(0), 5, weighted=True
        )


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("seed", range(8))
def test_law_19_separated_clusters_are_all_found_in_one_round(seed):
    rows, middle = separated(seed)
    done = run(KFed.as_published(k=8, k_local=2), Simulation.from_rows(rows), seed=seed)
    assert (done.rounds, done.exchanges) == (0, 1)
    np.testing.assert_allclose(in_order(done.state.centers), in_order(middle), atol=1.0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "method", [KFed(k=8, k_local=2), KFed(k=8, k_local=2, variant="holzer", server_restarts=20)]
)
def test_the_other_variants_find_them_too(seed, method):
    rows, middle = separated(seed)
    centers = run(method, Simulation.from_rows(rows), seed=seed).state.centers
    np.testing.assert_allclose(in_order(centers), in_order(middle), atol=1.0)


def test_with_k_local_as_large_as_k_the_original_starts_from_one_site_only():
    """Nothing is added farthest-first, so what the first site lacks stays missing."""
    rows, middle = separated(0)
    centers = run(KFed.as_published(k=8), Simulation.from_rows(rows)).state.centers
    assert inertia_of(pooled(rows), centers) > 10 * inertia_of(pooled(rows), middle)


# ---------------------------------------------------------------- the rest


@pytest.mark.parametrize("seed", range(3))
def test_the_default_is_near_pooling_where_sites_are_alike(seed):
    X, _ = blobs(seed, n=600, k=4, spread=1.0)
    centers = run(KFed(k=4), Simulation.from_rows(split(X, 5, seed)), seed=seed).state.centers
    assert inertia_of(X, centers) < 1.1 * inertia_of(
        X, run(KFed(k=4), Simulation.from_rows({"all": X})).state.centers
    )


def test_every_reply_is_seen_one_by_one():
    federation, recorder = watched(separated(0)[0])
    run(KFed(k=8, k_local=2), federation)
    assert {part.verb for part, _ in recorder.seen} == {"each"}
    assert len(recorder.seen) == 12


def test_an_empty_site_and_a_site_with_fewer_rows_than_clusters():
    rows, middle = separated(0)
    rows = {**rows, "empty": np.zeros((0, 3)), "one": middle[:1]}
    for method in (KFed.as_published(k=8, k_local=2), KFed(k=8, k_local=2)):
        centers = run(method, Simulation.from_rows(rows)).state.centers
        np.testing.assert_allclose(in_order(centers), in_order(middle), atol=1.0)


def test_a_cluster_of_one_is_suppressed_by_any_minimum():
    rows = {"a": np.array([[0.0], [1.0], [1000.0], [2000.0], [2001.0], [2002.0]])}
    for question in (AskDennisMeans(3), AskLocalMeans(3)):
        result = run_protocol(each(("a",), question), Simulation.from_rows(rows, min_cluster_size=2))["a"]
        # and one more with it, or it would follow from the site's total
        assert result.means.tolist() == [[2001.0]]
        assert result.counts.tolist() == [3.0]


def test_a_site_with_fewer_rows_than_clusters_sends_its_rows_only_without_a_minimum():
    rows = {"a": np.array([[0.0], [5.0], [9.0]])}
    for question in (AskDennisMeans(5), AskLocalMeans(5)):
        simulated = run_protocol(each(("a",), question), Simulation.from_rows(rows))["a"]
        assert sorted(simulated.means[:, 0].tolist()) == [0.0, 5.0, 9.0]
        protected = run_protocol(each(("a",), question), Simulation.from_rows(rows, min_cluster_size=2))["a"]
        assert len(protected.means) == 0


def test_presets_by_name():
    assert KFed.as_published(k=5, k_local=3).variant == "dennis"
    holzer = KFed.as_published_by_holzer(k=5, restarts=1)
    assert (holzer.variant, holzer.local_restarts, holzer.server_restarts) == ("holzer", 1, 1)
    with pytest.raises(InputError, match="variant must be weighted, dennis or holzer, got 'best'"):
        KFed(k=2, variant="best")


def test_the_servers_steps_by_hand():
    # one step from 0 and 10: 5.1 is nearer to 10; then the border is at 5.6, and it goes over
    first, second = np.array([[0.0], [10.0]]), np.array([[4.9], [4.9], [4.9], [5.1]])
    np.testing.assert_allclose(_dennis_server([first, second], 2), [[14.7 / 4], [7.55]])
    np.testing.assert_allclose(_dennis_server([first, second], 2, steps=300), [[19.8 / 5], [10.0]])
    with pytest.raises(InputError, match="server_steps must be >= 1, got 0"):
        KFed(k=2, server_steps=0)


def test_seeds_of_the_original_are_distinct_rows():
    from unpooled.algorithms.kfed import _plain_seeds

    rows = np.array([[0.0], [0.0], [1.0], [5.0]])
    for seed in range(20):
        result = _plain_seeds(rows, 4, None, np.random.default_rng(seed))
        assert sorted(result[:, 0].tolist()) == [0.0, 1.0, 5.0]
    heavy = _plain_seeds(rows, 1, np.array([0.0, 0.0, 0.0, 2.0]), np.random.default_rng(0))
    assert heavy.tolist() == [[5.0]]
