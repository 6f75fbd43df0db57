"""FKM: the laws of PAPERS.md that are its own, and its server by hand."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from helpers import blobs, in_order, inertia_of, lloyd, lloyd_step, pooled, rounds, split, watched
from unpooled.algorithms import FKM
from unpooled.algorithms.fkm import AskOneStep, FKMState
from unpooled.errors import InputError
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.algorithm import each
from unpooled.protocol.exchange import round_rng, run_protocol
from unpooled.protocol.questions.cluster_sums import AskLocalMeans
from unpooled.protocol.site_batch import SiteBatch


def one_round(method, rows, centers, seed=0):
    """The state after one round from given centres."""
    federation = Simulation.from_rows(rows)
    before = FKMState(
        centers=np.asarray(centers, dtype=float),
        movement=float("inf"),
        inertia=float("nan"),
        threshold=0.0,
        rounds=0,
    )
    return run_protocol(
        method.round(before, federation.sites, round_rng(seed, 1)), federation, seed=seed, number=1
    )


def best_fixed_point(X, k):
    """The best Lloyd fixed point that many restarts find."""
    return lloyd(X, KMeans(k, n_init=20, random_state=0, tol=0.0).fit(X).cluster_centers_)


def grid(seed, noise, n=800):
    """The paper's data: a 4 x 4 grid of clusters, 5 apart, over five sites."""
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 4, (n, 2)) * 5.0 + noise * rng.standard_normal((n, 2))
    return split(points, 5, seed, skewed=True)


# ---------------------------------------------------------------- by hand


def test_a_sites_step_by_hand():
    rows = {"a": np.array([[0.0], [1.0], [5.0], [6.0], [30.0]])}
    centers = np.array([[0.0], [4.0], [29.0], [99.0]])
    before = run_protocol(each(("a",), AskOneStep(centers, "before", 1.0)), Simulation.from_rows(rows))["a"]
    assert before.means.tolist() == [[0.5], [5.5], [30.0]]  # the empty one is dropped
    assert before.counts.tolist() == [2.0, 2.0, 1.0]
    reply = run_protocol(each(("a",), AskOneStep(centers, "before", 2.0)), Simulation.from_rows(rows))["a"]
    assert reply.means.tolist() == [[0.5], [5.5]]
    assert reply.counts.tolist() == [2.0, 2.0]
    guarded = Simulation.from_rows(rows, min_cluster_size=2)
    reply = run_protocol(each(("a",), AskOneStep(centers, "before", 1.0)), guarded)["a"]
    # a site's own minimum suppresses one more, or the row alone would follow from the site's total
    assert reply.means.tolist() == [[5.5]]
    assert reply.counts.tolist() == [2.0]


def test_counts_after_the_step_by_hand():
    """0, 1 and 3 go to the first centre; after the step to 4/3, the row 3 stays, but 4 comes over too."""
    rows = {"a": np.array([[0.0], [0.0], [4.0], [4.4], [20.0], [20.0]])}
    centers = np.array([[0.0], [8.5]])  # 4 goes to 0, 4.4 to 8.5, then to the mean 4/3
    before, after = (
        run_protocol(each(("a",), AskOneStep(centers, counts, 1.0)), Simulation.from_rows(rows))["a"]
        for counts in ("before", "after")
    )
    assert before.means.tolist() == after.means.tolist()  # the means are those of the first assignment
    assert before.counts.tolist() == [3.0, 3.0]
    assert after.counts.tolist() == [4.0, 2.0]


def test_p_limits_the_count_after_the_step_alone_unless_the_site_suppresses_rows():
    """4 is alone at 8; after the step to 4 the row 1.9 comes over, so that two rows stand behind it."""
    rows = {"a": np.array([[-2.0], [-2.0], [-2.0], [1.9], [4.0], [20.0], [20.0]])}
    centers = np.array([[-1.2], [8.0], [19.0]])
    asked = AskOneStep(centers, "after", 2.0)
    open_ = run_protocol(each(("a",), asked), Simulation.from_rows(rows))["a"]
    assert open_.means[:, 0].tolist() == pytest.approx([-1.025, 4.0, 20.0])
    assert open_.counts.tolist() == [3.0, 2.0, 2.0]
    reply = run_protocol(each(("a",), asked), Simulation.from_rows(rows, min_cluster_size=2))["a"]
    assert 4.0 not in reply.means[:, 0]  # the mean of one row, which a site with a minimum never sends


def test_a_summary_table_sends_what_the_authors_send():
    """Where rows are groups of people a mean of one row is of many: only p after the step counts."""
    groups = SiteBatch(
        np.array([[-2.0], [1.9], [4.0], [20.0]]),
        np.array([0, 4]),
        np.array([15.0, 5.0, 5.0, 10.0]),
        np.zeros(1, np.uint64),
        grouped=True,
    )
    (sent,) = AskOneStep(np.array([[-1.2], [8.0], [19.0]]), "after", 7.0).answer_all(groups)
    assert sent.means[:, 0].tolist() == pytest.approx([-1.025, 4.0, 20.0])
    assert sent.counts.tolist() == [15.0, 10.0, 10.0]


def test_the_server_weighs_by_counts():
    rows = {
        "a": np.array([[0.0], [0.0], [0.0], [50.0], [50.0]]),
        "b": np.array([[4.0], [4.0], [52.0], [52.0]]),
    }
    state = one_round(FKM(k=2), rows, [[1.0], [51.0]])
    assert state.centers == pytest.approx(np.array([[8 / 5], [51.0]]))


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("p", [2, 5, 20])
@pytest.mark.parametrize("counts", ["before", "after"])
def test_law_11_no_count_below_p_is_ever_sent(p, counts):
    for seed in range(3):
        federation, recorder = watched(grid(seed, 1.5, n=5000))
        run(FKM(k=16, p=p, counts=counts, max_rounds=5), federation, seed=seed)
        sent = np.concatenate([reply.counts for _, reply in recorder.seen])
        assert sent.min() >= p
        assert all(len(reply.means) == len(reply.counts) for _, reply in recorder.seen)
        assert {type(part.question) for part, _ in recorder.seen} == {AskLocalMeans, AskOneStep}


def test_p_suppresses_something_that_would_be_sent_without_it():
    federation, recorder = watched(grid(0, 1.5))
    run(FKM(k=16, p=1, max_rounds=5), federation)
    assert min(reply.counts.min() for _, reply in recorder.seen) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_law_12_a_client_of_ten_rows_with_sixteen_clusters_sends_nothing_and_the_round_goes_on(seed):
    rows = grid(seed, 1.0)
    small = np.random.default_rng(seed).uniform(0, 15, (10, 2))
    federation, recorder = watched({**rows, "small": small})
    run_protocol(each(("small",), AskLocalMeans(16, 1, 1, 2)), federation)
    (_, reply), recorder.seen = recorder.seen[0], []
    assert reply.means.shape == (0, 2)  # ten seeds, ten clusters of one
    assert reply.counts.shape == (0,)
    done = run(FKM(k=16, max_rounds=20), federation, seed=seed)
    assert all("small" in record.answered for record in done.history)
    assert not any(record.silent for record in done.history)
    assert np.isfinite(done.state.centers).all()


@pytest.mark.parametrize("seed", range(5))
def test_law_21_with_one_client_it_ends_at_a_lloyd_fixed_point(seed):
    X = blobs(seed, n=200, k=4, spread=4.0)[0]
    done = run(FKM(k=4, p=1, tol=1e-14), Simulation.from_rows({"only": X}), seed=seed)
    assert done.rounds < 300
    np.testing.assert_allclose(lloyd_step(X, done.state.centers), done.state.centers, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_law_22_counts_before_the_step_share_their_fixed_points_with_pooled_lloyd(seed):
    rows = grid(seed, 1.5)
    X = pooled(rows)
    fixed = best_fixed_point(X, 16)
    before = one_round(FKM(k=16, p=1), rows, fixed, seed)
    np.testing.assert_allclose(before.centers, fixed, rtol=0, atol=1e-8)
    assert before.movement < 1e-7
    # counts after the step do not: the means move although Lloyd's would not
    after = one_round(FKM(k=16, p=1, counts="after"), rows, fixed, seed)
    assert np.abs(after.centers - fixed).max() > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_counts_after_the_step_end_at_a_higher_inertia(seed):
    rows = grid(seed, 1.5)
    X = pooled(rows)
    ends = {
        counts: inertia_of(
            X, run(FKM(k=16, p=1, counts=counts, max_rounds=60), Simulation.from_rows(rows)).state.centers
        )
        for counts in ("before", "after")
    }
    assert ends["before"] < ends["after"]


# ---------------------------------------------------------------- the rest


@pytest.mark.parametrize("seed", range(3))
def test_it_is_near_pooling_on_the_papers_data(seed):
    rows = grid(seed, 1.0)
    X = pooled(rows)
    done = run(FKM(k=16), Simulation.from_rows(rows), seed=seed)
    assert inertia_of(X, done.state.centers) < 1.03 * inertia_of(X, best_fixed_point(X, 16))


def test_fewer_means_than_clusters_keep_the_centres():
    rows = {"a": np.array([[0.0], [0.1], [9.0]]), "b": np.array([[0.2], [0.3]])}
    centers = np.array([[0.0], [9.0], [20.0]])
    state = one_round(FKM(k=3), rows, centers)
    assert state.centers.tolist() == centers.tolist()
    assert state.movement == 0.0


def test_too_few_means_to_start():
    with pytest.raises(InputError, match="k=4 clusters from 0 local means of at least 2 rows"):
        run(FKM(k=4), Simulation.from_rows({"a": np.arange(4.0)[:, None], "b": np.arange(3.0)[:, None]}))


def test_the_start_sends_no_record():
    rows = grid(1, 1.0)
    federation, recorder = watched(rows)
    next(rounds(FKM(k=16), federation, 0))
    X = pooled(rows)
    for _, reply in recorder.seen:
        assert np.abs(reply.means[:, None] - X).max(axis=2).min() > 1e-9


def test_as_published_runs_all_rounds_with_a_fresh_server():
    method = FKM.as_published(k=16)
    assert (method.p, method.counts, method.server, method.server_restarts) == (2, "after", "fresh", 10)
    done = run(FKM.as_published(k=16, rounds=7), Simulation.from_rows(grid(0, 1.0)))
    assert (done.rounds, done.finished) == (7, True)


def test_a_fresh_server_keeps_the_order_of_clusters_for_the_movement():
    rows = grid(0, 0.3)
    fixed = best_fixed_point(pooled(rows), 16)
    state = one_round(FKM(k=16, server="fresh"), rows, fixed)
    np.testing.assert_allclose(state.centers, fixed, atol=0.2)
    np.testing.assert_allclose(in_order(state.centers), in_order(fixed), atol=0.2)


def test_partial_participation_asks_a_part():
    done = run(FKM(k=16, participation=0.6, max_rounds=5, tol=0.0), Simulation.from_rows(grid(0, 1.0)))
    assert [len(r.answered) for r in done.history] == [5, 3, 3, 3, 3, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"p": 0}, "p must be >= 1, got 0"),
        ({"counts": "during"}, "counts must be before or after, got 'during'"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        FKM(k=3, **settings)


def test_seeds_that_know_no_weights_give_weighted_means():
    """The server's Lloyd is weighted either way; only where it starts differs."""
    means = np.array([[0.0], [1.0], [10.0], [12.0]])
    counts = np.array([3.0, 1.0, 1.0, 1.0])
    for seeds in ("weighted", "unweighted"):
        centers, inertia = FKM(k=2, server_seeds=seeds).clustered(means, counts, np.random.default_rng(0))
        assert sorted(centers[:, 0].tolist()) == [0.25, 11.0]
        assert inertia == pytest.approx(0.75 + 2.0)
    with pytest.raises(InputError, match="server_seeds must be weighted or unweighted, got 'no'"):
        FKM(k=2, server_seeds="no")
    with pytest.raises(InputError, match="k=3 clusters from 2 distinct local means"):
        FKM(k=3, server_seeds="unweighted").clustered(
            np.array([[0.0], [0.0], [1.0]]), np.ones(3), np.random.default_rng(0)
        )
