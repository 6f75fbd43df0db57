"""Fuzzy c-means: laws 13-17, both merges, the start of the paper, suppressed cells, bad settings."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from helpers import blobs, in_order, lloyd_step, pooled, rounds, split, watched
from unpooled import kernels
from unpooled.algorithms import Fuzzy, Restarts
from unpooled.errors import InputError
from unpooled.evaluation.coincident_centers import coinciding
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.exchange import RoundLog, run_protocol
from unpooled.protocol.messages import Summable
from unpooled.protocol.questions.fuzzy_sums import AskFuzzySums
from unpooled.protocol.site_batch import SiteBatch

# ---------------------------------------------------------------- the oracle: pooled fuzzy c-means


def memberships(X, centers, m):
    """(n, k) by the textbook: (sum over l of (d_j / d_l)^(2 / (m - 1)))^-1, distances not squared."""
    distance = np.sqrt(((X[:, None] - centers[None]) ** 2).sum(axis=2))
    return 1 / ((distance[:, :, None] / distance[:, None, :]) ** (2 / (m - 1))).sum(axis=2)


def fcm_step(X, centers, m, weights=None):
    u = memberships(X, centers, m) ** m
    if weights is not None:
        u = u * weights[:, None]
    return (u.T @ X) / u.sum(axis=0)[:, None]


def objective(X, centers, m):
    u = memberships(X, centers, m)
    return float((u**m * ((X[:, None] - centers[None]) ** 2).sum(axis=2)).sum())


def case(seed, k=3, d=2, n=150, parts=4):
    X = blobs(seed, n=n, d=d, k=k, spread=2.0)[0]
    rng = np.random.default_rng(seed)
    start = X[rng.choice(n, k, replace=False)] + 0.1 * rng.standard_normal((k, d))
    return split(X, parts, seed, skewed=seed % 2 == 1), start


# ---------------------------------------------------------------- law 13: avg1 with one step is central


@pytest.mark.parametrize("m", [2.0, 1.3, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_law_13_avg1_with_one_step_is_pooled_fcm_for_200_rounds(seed, m):
    rows, start = case(seed)
    X, centers, scale = pooled(rows), start, np.abs(pooled(rows)).max()
    method = Fuzzy(k=3, m=m, init=start, tol=0.0)
    for number, state in enumerate(rounds(method, Simulation.from_rows(rows), 200)):
        if number:
            centers = fcm_step(X, centers, m)
        assert np.abs(state.centers - centers).max() <= 1e-12 * scale, number


@pytest.mark.parametrize("parts", [1, 2, 7, 40])
@pytest.mark.parametrize("skewed", [False, True])
def test_law_13_holds_for_any_split_and_with_weights(parts, skewed):
    X, _ = blobs(5, n=160, d=30, k=3, spread=2.0)
    weights = np.random.default_rng(1).exponential(size=len(X))
    rows = split(np.column_stack([X, weights]), parts, 3, skewed)
    federation = Simulation.from_rows(
        {s: r[:, :-1].copy() for s, r in rows.items()}, {s: r[:, -1].copy() for s, r in rows.items()}
    )
    start, centers = X[:3] + 0.1, X[:3] + 0.1
    for number, state in enumerate(rounds(Fuzzy(k=3, m=1.4, init=start, tol=0.0), federation, 200)):
        if number:
            centers = fcm_step(X, centers, 1.4, weights)
        assert np.abs(state.centers - centers).max() <= 1e-12 * np.abs(X).max(), number


def test_law_13_does_not_hold_with_weights_sum_u():
    rows, start = case(1)
    method = Fuzzy(k=3, init=start, weights="sum(u)", tol=0.0, max_rounds=1)
    after = run(method, Simulation.from_rows(rows)).state.centers
    assert np.abs(after - fcm_step(pooled(rows), start, 2.0)).max() > 1e-3


def test_one_step_with_weights_sum_u_by_hand():
    """One column, two centres; each site's own mean, weighed by its sum of memberships."""
    rows, start = (
        {"a": np.array([[0.5], [1.0]]), "b": np.array([[6.0], [9.0], [9.5]])},
        np.array([[0.0], [10.0]]),
    )
    own, weight = {}, {}
    for site, X in rows.items():
        own[site], weight[site] = fcm_step(X, start, 2.0), memberships(X, start, 2.0).sum(axis=0)[:, None]
    expected = sum(weight[s] * own[s] for s in rows) / sum(weight.values())
    method = Fuzzy(k=2, init=start, weights="sum(u)", max_rounds=1)
    assert np.allclose(run(method, Simulation.from_rows(rows)).state.centers, expected, rtol=1e-13)


def test_one_site_that_converges_locally_is_central_at_convergence():
    rows, start = case(2, parts=2)
    X = {"all": pooled(rows)}
    central, centers = start, start
    for _ in range(3000):
        central = fcm_step(X["all"], central, 2.0)
    for merge in ("avg1", "avg2"):
        method = Fuzzy(k=3, init=start, local_steps="converge", merge=merge, tol=1e-9, max_rounds=60)
        centers = run(method, Simulation.from_rows(X)).state.centers
        assert np.allclose(in_order(centers), in_order(central), atol=1e-5), merge


# ---------------------------------------------------------------- laws 14 to 17


@pytest.mark.parametrize("m", [1.01, 1.5, 2.0, 5.0])
def test_law_14_memberships_sum_to_one(m):
    rows, start = case(4, d=5)
    result = kernels.memberships(pooled(rows), start, m)
    assert np.allclose(result.sum(axis=1), 1, rtol=1e-14)
    assert ((result >= 0) & (result <= 1)).all()
    sums = conduct_sums(rows, start, m)
    assert sums.rows.sum() == pytest.approx(len(pooled(rows)), rel=1e-13)


def conduct_sums(rows, centers, m):
    from unpooled.protocol.algorithm import total

    federation = Simulation.from_rows(rows)
    return run_protocol(total(federation.sites, AskFuzzySums(centers[None], m)), federation)


@pytest.mark.parametrize("m", [1.001, 1.5, 2.0, 3.0])
def test_law_15_a_centre_on_a_record_is_finite(m):
    rows, _ = case(0)
    X = pooled(rows)
    start = np.concatenate([X[:2], X[:1]])  # on two rows, the first of them twice
    result = kernels.memberships(X, start, m)
    assert result[0].tolist() == [0.5, 0.0, 0.5]
    assert result[1].tolist() == [0.0, 1.0, 0.0]
    done = run(Fuzzy(k=3, m=m, init=start, max_rounds=30), Simulation.from_rows(rows))
    assert np.isfinite(done.state.centers).all()
    assert np.isfinite([r.inertia for r in done.history[1:]]).all()


@pytest.mark.parametrize("m", [1.1, 2.0, 4.0])
@pytest.mark.parametrize("seed", range(4))
def test_law_16_the_objective_never_rises(seed, m):
    rows, start = case(seed, k=4, d=3)
    method = Fuzzy(k=4, m=m, init=start, tol=0.0, max_rounds=60)
    history = [r.inertia for r in run(method, Simulation.from_rows(rows)).history[1:]]
    assert all(b <= a * (1 + 1e-13) for a, b in pairwise(history))
    assert history[0] == pytest.approx(objective(pooled(rows), start, m), rel=1e-12)


def test_law_17_the_step_tends_to_lloyds_as_m_tends_to_one():
    rows, start = case(3, k=4, d=3)
    X = pooled(rows)
    expected, gaps = lloyd_step(X, start), []
    for m in (1.5, 1.1, 1.01, 1.001, 1 + 1e-5, 1 + 1e-9):
        after = run(Fuzzy(k=4, m=m, init=start, max_rounds=1), Simulation.from_rows(rows)).state.centers
        gaps.append(np.abs(after - expected).max())
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-12


# ---------------------------------------------------------------- starts, restarts, stopping


@pytest.mark.parametrize("seed", range(4))
def test_the_default_is_as_good_as_the_best_of_many_pooled_runs(seed):
    X, _ = blobs(seed, n=400, k=5, spread=1.2)
    done = run(Fuzzy(k=5), Simulation.from_rows(split(X, 6, seed, skewed=True)), seed=seed)
    rng, best = np.random.default_rng(seed), np.inf
    for _ in range(20):
        centers = X[rng.choice(len(X), 5, replace=False)] + 1e-3
        for _ in range(150):
            centers = fcm_step(X, centers, 2.0)
        best = min(best, objective(X, centers, 2.0))
    assert done.finished
    assert objective(X, done.state.centers, 2.0) <= best * 1.0005


def test_many_starts_cost_the_exchanges_of_one():
    rows = split(blobs(3, n=300, k=4, spread=1.5)[0], 5)
    one = run(Fuzzy(k=4, n_starts=1, tol=1e-3), Simulation.from_rows(rows), seed=1)
    many = run(Fuzzy(k=4, n_starts=10, tol=1e-3), Simulation.from_rows(rows), seed=1)
    assert all(r.exchanges == 1 for r in many.history[1:])
    assert many.rounds <= 4 * one.rounds
    assert many.state.inertia <= one.state.inertia * (1 + 1e-6)


def test_starts_that_become_alike_are_asked_about_once():
    rows = split(blobs(1, n=200, k=3)[0], 3)
    twice = blobs(1, n=200, k=3)[0][:3]
    method = Fuzzy(k=3, init="random", n_starts=2)
    state = next(rounds(method, Simulation.from_rows(rows), 0))
    state = replace(state, states=tuple(replace(one, centers=twice) for one in state.states))
    federation = Simulation.from_rows(rows)
    steps = method.build().round(state, federation.sites, np.random.default_rng(0))
    state = run_protocol(steps, federation)
    assert state.active.tolist() == [True, False]


def test_it_rests_when_the_sum_of_movements_is_small():
    rows, start = case(0)
    method = Fuzzy(k=3, init=start, tol=0.01, tol_kind="absolute")
    states = list(rounds(method, Simulation.from_rows(rows), run(method, Simulation.from_rows(rows)).rounds))
    moved = np.sqrt(((states[-1].centers - states[-2].centers) ** 2).sum(axis=1)).sum()
    before = np.sqrt(((states[-2].centers - states[-3].centers) ** 2).sum(axis=1)).sum()
    assert moved <= 0.01 < before
    assert states[-1].movement == pytest.approx(moved)


def test_the_papers_start_is_in_the_unit_cube():
    rows = {s: X + 500 for s, X in case(1, d=4)[0].items()}
    method = Fuzzy(k=3, unit_start=True, n_starts=6)
    state = run(method, Simulation.from_rows(rows), max_rounds=0).state
    starts, _, _ = state.candidates
    assert starts.shape == (6, 3, 4)
    assert ((starts >= 0) & (starts < 1)).all()


# ---------------------------------------------------------------- avg2, and as published


def test_avg2_is_k_means_of_the_sites_centres():
    """Two sites with a cluster each and one they share: round 1 clusters the six local centres."""
    rng = np.random.default_rng(0)
    place = {"left": [0.0, 10.0], "right": [10.0, 20.0]}
    rows = {
        s: np.concatenate([c + 0.1 * rng.standard_normal((50, 1)) for c in cs]) for s, cs in place.items()
    }
    done = run(Fuzzy.as_published(k=3, merge="avg2"), Simulation.from_rows(rows), seed=3)
    assert np.allclose(np.sort(done.state.centers[:, 0]), [0, 10, 20], atol=0.3)


def test_avg2_needs_centres_and_avg1_only_sums():
    rows, _ = case(0)
    for merge, verb in (("avg1", "total"), ("avg2", "each")):
        federation, recorder = watched(rows)
        run(Fuzzy(k=3, merge=merge, max_rounds=2), federation)
        assert {part.verb for part, _ in recorder.seen[-4:]} == {verb}


def test_the_default_reply_can_be_summed():
    """So that secure sums and noise can serve it."""
    rows, start = case(0)
    batch = SiteBatch(pooled(rows), np.array([0, 150]), None, np.zeros(1, np.uint64))
    reply = AskFuzzySums(start[None], 2.0).answer(batch)
    assert isinstance(reply, Summable)
    halves = [SiteBatch(pooled(rows)[p], np.array([0, 75]), None, None) for p in (slice(75), slice(75, 150))]
    first, second = (AskFuzzySums(start[None], 2.0).answer(h) for h in halves)
    assert np.allclose((first + second).sums, reply.sums)


def test_best_of_compares_restarts_by_the_fuzzy_objective():
    rows, _ = case(6, k=4)
    done = run(
        Restarts(Fuzzy(k=4, merge="avg2", init="random", max_rounds=10), 5),
        Simulation.from_rows(rows),
        seed=2,
    )
    expected = [objective(pooled(rows), s.centers, 2.0) for s in done.state.states]
    assert np.allclose(done.state.inertias, expected)
    assert done.state.best == int(np.argmin(expected))


# ---------------------------------------------------------------- what sites suppress


def test_a_cell_of_too_few_rows_is_absent_weight_sums_and_objective_alike():
    X = np.concatenate([np.random.default_rng(0).normal(size=(20, 1)), [[100.0]]])
    centers = np.array([[[0.0], [100.5]]])
    batch = SiteBatch(X, np.array([0, 21]), None, None, minimum=5)
    reply = AskFuzzySums(centers, 1.5).answer(batch)
    assert (reply.weight[0, 1], reply.rows[0, 1], reply.inertia[0, 1], reply.sums[0, 1, 0]) == (0, 0, 0, 0)
    # nor is the other one disclosed, from which and the site's total the suppressed row would follow
    assert reply.weight[0, 0] == 0
    assert AskFuzzySums(centers, 1.5).answer(replace(batch, minimum=1)).weight.all()


def test_no_more_cells_than_the_rows_allow():
    X = np.random.default_rng(0).normal(size=(11, 2))
    centers = 0.1 * np.random.default_rng(1).normal(size=(1, 6, 2)) + 5
    for minimum, most in ((2, 5), (5, 2), (12, 0)):
        batch = SiteBatch(X, np.array([0, 11]), None, None, minimum=minimum)
        assert (AskFuzzySums(centers, 2.0).answer(batch).weight > 0).sum() == most


# ---------------------------------------------------------------- centres that coincide


def many_columns(d, sep, seed=0, k=2):
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=(k, d)) * sep / np.sqrt(d)
    return {str(i): np.concatenate([c + rng.normal(size=(80, d)) for c in middle]) for i in range(3)}


@pytest.mark.parametrize(("d", "sep"), [(10, 2), (30, 3), (64, 6)])
def test_centres_part_just_below_the_bound_and_not_above(d, sep):
    rows = many_columns(d, sep)
    federation = Simulation.from_rows(rows)
    start = np.mean(pooled(rows), axis=0) + np.random.default_rng(1).normal(size=(2, d)) * 0.1
    found = run_protocol(
        coinciding(federation.sites, np.stack([pooled(rows).mean(axis=0)] * 2), 2.0), federation
    )
    assert found.groups == ((0, 1),)
    assert 1 < found.bound < 2
    gaps = []
    for share in (0.95, 1.05):
        m = 1 + share * (found.bound - 1)
        done = run(Fuzzy(k=2, m=m, init=start, tol=1e-7, max_rounds=3000), federation)
        gaps.append(np.linalg.norm(done.state.centers[0] - done.state.centers[1]))
        assert (run_protocol(coinciding(federation.sites, done.state.centers, m), federation) is None) == (
            share < 1
        )
    assert gaps[0] > 0.3
    assert gaps[1] < 1e-3


@pytest.mark.parametrize(("d", "k"), [(10, 4), (60, 3)])
def test_the_m_that_is_suggested_would_do(d, k):
    federation = Simulation.from_rows(many_columns(d, 4, k=k))
    done = run(Fuzzy(k=k, max_rounds=500), federation)
    found = run_protocol(coinciding(federation.sites, done.state.centers, 2.0), federation)
    assert "m=2 is too large" in str(found)
    m = found.suggestion
    again = run(Fuzzy(k=k, m=m, max_rounds=500), federation)
    assert run_protocol(coinciding(federation.sites, again.state.centers, m), federation) is None


def test_separated_clusters_do_not_coincide():
    rows, round_log = split(blobs(1, k=3)[0], 3), RoundLog()
    federation = Simulation.from_rows(rows)
    done = run(Fuzzy(k=3), federation)
    assert (
        run_protocol(coinciding(federation.sites, done.state.centers, 2.0), federation, round_log=round_log)
        is None
    )
    assert round_log.exchanges == 1


# ---------------------------------------------------------------- bad settings


@pytest.mark.parametrize("m", [1.0, 0.5, -2, 0, np.nan, np.inf, "2", None, True])
def test_m_of_one_or_less_is_an_error_with_the_reason(m):
    with pytest.raises(
        InputError, match=r"m must be a finite number above 1, got .*\. Memberships go with the dist"
    ):
        Fuzzy(k=3, m=m)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"merge": "avg3"}, "merge must be avg1 or avg2, got 'avg3'"),
        ({"local_steps": 0}, "local_steps must be a whole number >= 1"),
        ({"local_steps": "all"}, "or \"converge\", got 'all'"),
        ({"local_steps": 2.5}, "local_steps must be"),
        ({"local_steps": True}, "local_steps must be"),
        ({"weights": "u"}, r"weights must be sum\(u\^m\) or sum\(u\)"),
        ({"n_starts": 0}, "n_starts must be >= 1, got 0"),
        ({"server_restarts": 0}, "server_restarts must be >= 1, got 0"),
        ({"tol_kind": "both"}, "tol_kind must be"),
        ({"k": 0}, "k must be a whole number >= 1"),
    ],
)
def test_bad_settings_are_refused(setting, message):
    with pytest.raises(InputError, match=message):
        Fuzzy(**{"k": 3, **setting})


def test_more_clusters_than_rows_is_an_error_with_both_numbers():
    for method in (Fuzzy(k=4), Fuzzy.as_published(k=4)):
        with pytest.raises(InputError, match="k=4 clusters from 3 rows"):
            run(method, Simulation.from_rows({"a": np.zeros((3, 2))}))
