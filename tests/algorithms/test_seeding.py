"""Where centres start: by totals only, whatever the split, and never a row."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from helpers import blobs, in_order, inertia_of, lloyd, pooled, split, watched
from unpooled.algorithms import Lloyd, seeding
from unpooled.algorithms.seeding import spread_of, starts
from unpooled.errors import InputError, QueryRefusedError
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol import run
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import RoundLog, run_protocol
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskDrawnSums


def started(rows, k, init="adaptive", count=10, seed=0, minimum=1, **settings):
    federation, round_log = Simulation.from_rows(rows, min_cluster_size=minimum, **settings), RoundLog()
    steps = starts(federation.sites, k, init, count, np.random.default_rng(seed), min_cluster_size=minimum)
    return run_protocol(steps, federation, seed=seed, round_log=round_log), round_log


def many_clusters(seed, k=25, n=1500, d=2):
    """A grid of clusters: where one k-means++ start usually misses some."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    return 10 * grid[rng.integers(k, size=n)] + rng.normal(size=(n, d))


@pytest.mark.parametrize("seed", range(4))
def test_adaptive_starts_are_good_already(seed):
    rows = split(many_clusters(seed), 10, seed)
    result, round_log = started(rows, 25, seed=seed)
    X = pooled(rows)
    best = KMeans(25, n_init=10, random_state=seed).fit(X).inertia_
    assert result.centers.shape[1:] == (25, 2)
    assert 1 <= len(result.centers) <= 10
    assert inertia_of(X, result.centers[0]) < 1.1 * best
    assert round_log.exchanges == 4
    assert result.n == 1500
    assert result.spread == pytest.approx(X.var(axis=0).mean())


@pytest.mark.parametrize("seed", range(4))
def test_the_split_changes_the_start_only_by_rounding(seed):
    X = many_clusters(seed, n=600)
    splits = [{"all": X}, split(X, 3, seed, skewed=True), split(X, 50, seed)]
    first, *others = (started(rows, 25, seed=seed)[0].centers for rows in splits)
    for other in others:
        np.testing.assert_allclose(in_order(other[0]), in_order(first[0]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_a_tiny_far_cluster_is_found(seed):
    X = np.vstack([blobs(seed, n=2000, k=4)[0], np.random.default_rng(seed).normal(size=(12, 2)) + 500])
    result, _ = started(split(X, 20, seed), 5, seed=seed)
    assert np.abs(result.centers[0] - 500).max(axis=1).min() < 5


def test_only_totals_are_asked_for():
    rows = split(many_clusters(0), 5)
    federation, recorder = watched(rows)
    run_protocol(starts(federation.sites, 5, "adaptive", 3, np.random.default_rng(0)), federation)
    assert {part.verb for part, _ in recorder.seen} == {"total"}


def test_starts_differ_and_the_most_promising_comes_first():
    rows = split(blobs(3, n=400, k=6, spread=4.0)[0], 4)
    centers = started(rows, 6)[0].centers
    assert len(centers) > 1
    ends = [inertia_of(pooled(rows), lloyd(pooled(rows), c)) for c in centers]
    assert ends[0] <= np.median(ends)
    assert len({in_order(c).tobytes() for c in centers}) == len(centers)


def test_no_start_is_a_row():
    rows = split(blobs(1, n=40)[0], 5)
    X = pooled(rows)
    for init in ("adaptive", "random"):
        centers = started(rows, 3, init, minimum=2)[0].centers.reshape(-1, 2)
        assert np.abs(centers[:, None] - X).max(axis=2).min() > 1e-9


def test_k_fed_start():
    rows = split(blobs(1, n=200)[0], 4, skewed=False)
    result, round_log = started(rows, 3, "k-fed", count=2)
    assert result.centers.shape == (2, 3, 2)
    assert round_log.exchanges == 2
    best = KMeans(3, n_init=10, random_state=0).fit(pooled(rows)).inertia_
    assert inertia_of(pooled(rows), result.centers[0]) < 1.1 * best


def test_random_start_has_the_datas_mean_and_spread():
    X = np.random.default_rng(0).normal(size=(2000, 2)) * [1.0, 100.0] + [5.0, -300.0]
    centers = started(split(X, 4), 500, "random", count=4)[0].centers.reshape(-1, 2)
    np.testing.assert_allclose(centers.mean(axis=0), X.mean(axis=0), atol=10)
    np.testing.assert_allclose(centers.std(axis=0), X.std(axis=0), rtol=0.1)


def test_given_centres_are_taken_as_they_are():
    init = np.array([[1, 2], [3, 4]])
    result, _ = started({"a": np.arange(8.0).reshape(4, 2)}, 2, init)
    assert result.centers.tolist() == [[[1.0, 2.0], [3.0, 4.0]]]


@pytest.mark.parametrize("init", ["adaptive", "random", "k-fed", np.zeros((5, 2))], ids=str)
def test_more_clusters_than_rows(init):
    with pytest.raises(InputError, match="k=5 clusters from 4 rows"):
        started({"a": np.arange(8.0).reshape(4, 2)}, 5, init)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2)])
def test_given_centres_of_the_wrong_shape(shape):
    with pytest.raises(InputError, match=rf"init has shape \({shape[0]}, {shape[1]}\), but k=2 .* 2 columns"):
        started({"a": np.arange(8.0).reshape(4, 2)}, 2, np.zeros(shape))


def test_given_centres_that_are_not_finite():
    with pytest.raises(InputError, match="init holds NaN or infinity"):
        started({"a": np.arange(8.0).reshape(4, 2)}, 2, np.array([[0.0, np.nan], [1.0, 1.0]]))


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, 1e8, 1e10])
def test_the_spread_survives_a_big_offset(offset):
    X = np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 2.0, 4.0]
    shifted = X + offset
    federation = Simulation.from_rows(split(shifted, 4))
    result = run_protocol(spread_of(federation.sites), federation)
    np.testing.assert_allclose(result.variance, (shifted - offset).var(axis=0), rtol=1e-6)
    np.testing.assert_allclose(result.mean, shifted.mean(axis=0), rtol=1e-12, atol=1e-12)
    assert result.n == 200


@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_a_big_offset_does_not_spoil_the_start(offset):
    X = blobs(2, n=300, k=4)[0]
    best = KMeans(4, n_init=10, random_state=0).fit(X).inertia_
    rows = split(X + offset, 5)
    centers = run(Lloyd(k=4), Simulation.from_rows(rows)).state.centers
    assert inertia_of(X, centers - offset) == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize(("minimum", "size"), [(2, 6), (2, 10), (5, 12), (5, 20)])
def test_small_sites_that_suppress_small_cells_still_start(minimum, size):
    """Cells as fine as usual would all be suppressed: coarser ones are asked for."""
    X = blobs(4, n=1200, k=3)[0]
    rows = {f"s{i:03d}": X[i * size : (i + 1) * size] for i in range(len(X) // size)}
    result, _ = started(rows, 3, minimum=minimum)
    best = KMeans(3, n_init=10, random_state=0).fit(X).inertia_
    done = run(Lloyd(k=3, min_cluster_size=minimum), Simulation.from_rows(rows, min_cluster_size=minimum))
    assert np.isfinite(result.centers).all()
    assert inertia_of(X, done.state.centers) < 1.02 * best


def test_a_minimum_that_suppresses_every_site():
    with pytest.raises(InputError, match="k=2 clusters from 0 rows"):
        started({"a": np.eye(4), "b": np.eye(4)}, 2, minimum=5)


@pytest.mark.parametrize("d", [30, 60, 150])
def test_many_columns(d):
    X = blobs(5, n=400, d=d, k=6, spread=2.0)[0]
    rows = split(X, 5)
    result, _ = started(rows, 6)
    best = KMeans(6, n_init=10, random_state=0).fit(X).inertia_
    assert inertia_of(X, lloyd(X, result.centers[0])) <= 1.002 * best
    assert result.centers.shape[2] == d


def test_as_many_clusters_as_rows():
    X = np.random.default_rng(0).normal(size=(6, 2))
    done = run(Lloyd(k=6), Simulation.from_rows({"a": X[:2], "b": X[2:]}))
    assert inertia_of(X, done.state.centers) < inertia_of(X, X.mean(axis=0)[None])


def test_constant_rows_and_one_cluster():
    result, _ = started({"a": np.full((5, 2), 3.0)}, 1)
    np.testing.assert_allclose(result.centers[0], [[3.0, 3.0]])
    assert result.spread == 0.0


# ---------------------------------------------------------------- of very many rows: on a draw of them


def drawn(rows, question, **settings):
    federation = Simulation.from_rows(rows, **settings)
    return run_protocol(total(federation.sites, question), federation)


def test_a_draw_with_chance_one_has_all_rows():
    rows = split(blobs(0, n=300, d=2, k=3)[0], 4, 0)
    centers = np.random.default_rng(0).normal(size=(2, 3, 2))
    whole = drawn(rows, AskClusterSums(centers))
    draw = drawn(rows, AskDrawnSums(centers, np.zeros(2), 1.0, 0.0, draw=3))
    for name in ("sums", "mass", "inertia"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(draw, name))


def test_sums_of_draws_are_right_in_the_mean_and_hold_what_is_far():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(size=(4000, 2)), [[90.0, 90.0]]])
    rows = split(X, 3, 1)
    centers = np.array([[[0.0, 0.0], [1.0, 1.0], [80.0, 80.0]]])
    scatter = len(X) * X.var(axis=0).sum()
    whole = drawn(rows, AskClusterSums(centers))
    draws = [
        drawn(rows, AskDrawnSums(centers, X.mean(axis=0), 0.5 * 400 / len(X), 0.5 * 400 / scatter, draw))
        for draw in range(200)
    ]
    for name in ("sums", "mass", "inertia"):
        values = np.stack([getattr(d, name) for d in draws])
        error = values.std(axis=0) / np.sqrt(len(draws))
        assert (abs(values.mean(axis=0) - getattr(whole, name)) <= 4.5 * error + 1e-9).all()
    assert all(d.mass[0, 2] == 1 for d in draws)  # the row far away is in each of them


def test_a_draw_is_the_same_rows_in_every_question_and_runtime():
    rows = split(blobs(2, n=900, d=3, k=3)[0], 3, 2)
    centers = np.random.default_rng(0).normal(size=(2, 4, 3))
    seen = []
    for federation in (
        Simulation.from_rows(rows),
        Simulation.from_rows(rows, n_threads=2),
        LocalFederation.from_rows(rows),
    ):
        ask = AskDrawnSums(centers, np.zeros(3), 0.1, 0.001, draw=9)
        seen += [run_protocol(total(federation.sites, ask), federation) for _ in range(2)]
    for other in seen[1:]:
        assert other.mass.tobytes() == seen[0].mass.tobytes()
        assert other.sums.tobytes() == seen[0].sums.tobytes()
    assert 40 < seen[0].mass[0].sum() / 10 < 160  # about a tenth of the rows, each counted about ten times


@pytest.mark.parametrize(("even", "far"), [(0.0, 1.0), (np.nan, 0.0), (2.0, 0.0), (0.5, -1.0), (0.5, np.inf)])
def test_a_sample_without_probabilities_is_refused(even, far):
    rows = split(blobs(2, n=90, d=2, k=3)[0], 3, 2)
    with pytest.raises(QueryRefusedError, match="probabilities"):
        drawn(rows, AskDrawnSums(np.zeros((1, 2, 2)), np.zeros(2), even, far, 1))


@pytest.mark.parametrize("shape", ["heavy tails", "a tiny cluster far away", "overlapping"])
def test_a_fit_of_very_many_rows_is_as_good_as_without_a_draw(shape, monkeypatch):
    rng = np.random.default_rng(5)
    k = 6
    if shape == "heavy tails":
        X = rng.standard_t(2, (40_000, 2))
    elif shape == "overlapping":
        X = rng.normal(0, 2, (k, 2))[rng.integers(k, size=40_000)] + rng.normal(size=(40_000, 2))
    else:
        X = np.concatenate([rng.normal(size=(40_000, 2)), rng.normal(99, 1, (12, 2))])
    rows = split(X, 5, 0)
    quick = run(Lloyd(k=k), Simulation.from_rows(rows), seed=1)
    monkeypatch.setattr(seeding, "_ROWS_A_CELL", 1000)
    whole = run(Lloyd(k=k), Simulation.from_rows(rows), seed=1)
    assert inertia_of(X, quick.state.centers) < 1.003 * inertia_of(X, whole.state.centers)
    assert quick.exchanges <= 1.5 * whole.exchanges + 3
