"""Private clustering: figures at small budgets, what is spent, resuming, refusing, scaling, fuzzy."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from unpooled import kernels
from unpooled.algorithms import Private
from unpooled.algorithms.private import private_kmeans
from unpooled.algorithms.private.estimates import best_reach, gain_over_mean, mean_of_rows
from unpooled.errors import ForecastRefusedError, InputError
from unpooled.federation import Federation, Simulation
from unpooled.privacy import Gaussian
from unpooled.privacy.dp.forecast import forecast, reach
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells, NoisyCells
from unpooled.protocol import codec, run


def blobs(n, d, k, seed=0, spread=1.0):
    """Rows within -1..1, as bounds that everyone knows would make them."""
    X, _ = make_blobs(n, d, centers=k, cluster_std=spread, random_state=seed)
    low, high = X.min(axis=0), X.max(axis=0)
    return (X - (low + high) / 2) / ((high - low) / 2).max()


def dealt(X, sites):
    return Simulation.from_rows({f"site-{s:02d}": X[s::sites] for s in range(sites)}, n_threads=1)


def ratios(X, k, epsilon, sites=1, runs=5, **settings):
    """Inertia over that of k-means without noise, n_init = 10."""
    best = KMeans(k, n_init=10, random_state=0).fit(X).inertia_
    federation = dealt(X, sites)
    states = [
        run(Private(k=k, dp=Gaussian(epsilon), **settings), federation, seed=s).state for s in range(runs)
    ]
    return np.array([kernels.nearest(X, s.centers).sqdist.sum() / best for s in states])


@pytest.mark.parametrize(("epsilon", "at_most"), [(0.5, 1.01), (1.0, 1.003), (2.0, 1.001)])
def test_ten_blobs(epsilon, at_most):
    assert np.median(ratios(blobs(10_000, 10, 10), 10, epsilon)) <= at_most


def test_eight_blobs():
    assert np.median(ratios(blobs(20_000, 8, 8), 8, 1.0)) <= 1.002


def test_ten_sites_each_with_its_own_noise():
    assert np.median(ratios(blobs(10_000, 10, 10), 10, 1.0, sites=10)) <= 1.03


def test_few_columns():
    for d, k in ((1, 3), (2, 4), (3, 5)):
        assert np.median(ratios(blobs(10_000, d, k, seed=1), k, 1.0, runs=3)) <= 1.003


@pytest.mark.parametrize(("size", "shift"), [(0.1, 0.6), (0.02, 0.0)])
def test_bounds_far_wider_than_the_rows_cost_little(size, shift):
    X = blobs(10_000, 6, 5) * size + shift
    assert np.median(ratios(X, 5, 1.0)) <= 1.01


def test_clusters_far_tighter_than_the_rows_spread():
    """Every run finds them all: the worst of 200 was 1.0041."""
    assert ratios(blobs(10_000, 10, 10, spread=0.05), 10, 1.0, runs=4).max() <= 1.02


def skewed(n=20_000, k=3):
    """Clusters with long tails to one side."""
    rng = np.random.default_rng(3)
    X = np.repeat(rng.uniform(-10, 10, (k, 5)), n // k, axis=0)
    X += rng.lognormal(0, 1.0, X.shape)
    return (X - (X.min() + X.max()) / 2) / ((X.max() - X.min()) / 2)


def test_long_tails_are_not_cut_where_the_noise_allows_it():
    """With the narrowest radius for every cluster the excess is several times as large."""
    X = skewed()
    chosen = np.median(ratios(X, 3, 1.0)) - 1
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            private_kmeans, "best_reach", lambda points, *rest: reach(points.shape[1]) * np.ones(3)
        )
        cut = np.median(ratios(X, 3, 1.0)) - 1
    assert chosen < cut / 2


def test_the_best_radius_by_hand():
    """Without tails the narrowest is kept; one row in fifty far out widens it, unless noise is large."""
    rng = np.random.default_rng(0)
    even = rng.normal(0, 0.1, (2000, 4))
    tail = even + np.array([2.0, 0, 0, 0]) * (np.arange(2000) % 50 == 0)[:, None]
    weights = np.ones(2000)

    def widened(X, noise):
        center = X.mean(axis=0)[None]
        return best_reach(X, weights, center, np.array([noise]), np.zeros(50))[0] / reach(4)

    assert widened(even, 1e-3) == pytest.approx(1.0)
    assert widened(tail, 1e-3) > 2
    assert widened(tail, 1.0) == pytest.approx(1.0)


def test_a_cell_that_noise_moved_is_not_a_tail():
    """40 points of a cell far from the others: without noise they widen the radius, with large noise not."""
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(0, 0.1, (1960, 4)), rng.normal(0, 0.1, (40, 4)) + 1.5])
    center = points.mean(axis=0)[None]
    for cell_noise, wider in ((0.0, True), (0.02, True), (3.0, False)):
        each = np.full(50, 1e-3)
        each[-1] = cell_noise
        found = best_reach(points, np.ones(2000), center, np.array([1e-3]), each)[0] / reach(4)
        assert bool(found > 1.5) is wider


def test_with_hardly_any_rows_no_row_is_farther_from_its_centre_than_from_the_mean(monkeypatch):
    """Where the first step shows no gain, the first centre is the released mean of all rows."""
    monkeypatch.setattr(private_kmeans, "gain_over_mean", lambda question, reply: 0.0)
    X = np.random.default_rng(0).uniform(-1, 1, (60, 5))
    for seed, k in enumerate((1, 2, 4, 9)):
        state = run(Private(k=k, dp=Gaussian(0.1, rows=60, accept_noise=True)), dealt(X, 1), seed=seed).state
        assert state.spent == pytest.approx(Gaussian(0.1).mu ** 2)
        assert len(state.releases[-1].question.centers) == 1
        assert state.centers.shape == (k, 5)
        assert state.sizes.shape == (k,)
        each = kernels.nearest(X, state.centers).sqdist
        assert (each <= kernels.nearest(X, state.centers[:1]).sqdist * (1 + 1e-12)).all()


def test_the_mean_is_asked_for_only_with_hardly_any_rows(monkeypatch):
    monkeypatch.setattr(private_kmeans, "gain_over_mean", lambda question, reply: 0.0)
    state = run(Private(k=3, dp=Gaussian(1.0, rows=3000)), dealt(blobs(3000, 4, 3), 1)).state
    assert all(len(release.question.centers) >= 3 for release in state.releases[1:])


def test_the_gain_over_one_mean_by_hand():
    """Rows 0, 2 and 10 about the centres 0 and 10: the inertia is 4, and that of the mean, 4, is 56."""
    question = AskNoisyCells(
        1.0, np.array([[0.0], [10.0]]), np.full(1, 20.0), np.full(2, 5.0), (0.3, 0.6, 0.1)
    )
    reply = NoisyCells(np.array([2.0, 1.0]), np.array([[0.4], [0.0]]), np.array([0.16, 0.0]), np.ones(1))
    mean, variance = mean_of_rows(question, reply)
    assert mean == pytest.approx([4.0])
    assert gain_over_mean(question, reply) == pytest.approx(56 - 4)
    far = replace(question, centers=np.array([[15.0], [20.0]]))  # nearest is 15, and the rows are not cut
    reply = NoisyCells(np.array([3.0, 0.0]), np.array([[-33 / 5], [0.0]]), np.zeros(2), np.ones(1))
    assert gain_over_mean(far, reply) == pytest.approx(56 - (15**2 + 13**2 + 5**2))
    # counts have the variance 1 / 0.3, at distances 4 and 6; sums 25 / 0.6, in two cells
    assert variance == pytest.approx(((16 + 36) / 0.3 + 2 * 25 / 0.6) / 9)


# ---------------------------------------------------------------- the budget


@pytest.mark.parametrize("settings", [{}, {"scale": "standard"}, {"scale": "bounds"}, {"m": 2.0}])
@pytest.mark.parametrize("d", [2, 5])
def test_a_run_spends_its_budget_and_no_more(d, settings):
    algorithm = Private(k=3, dp=Gaussian(0.7), **settings)
    done = run(algorithm, dealt(blobs(6000, d, 3), 2))
    assert done.finished
    assert done.state.spent == pytest.approx(algorithm.dp.mu**2, rel=1e-9)
    assert done.state.spent <= algorithm.dp.mu**2 * (1 + 1e-12)
    assert algorithm.epsilon(done.state) == pytest.approx(0.7, rel=1e-6)
    assert done.exchanges == len(done.state.releases)  # nothing was asked that is not paid for


def test_no_row_and_no_count_leaves_without_noise():
    """Two runs of one seed release different numbers, and no count is whole."""
    X = blobs(5000, 5, 3)
    one, other = (run(Private(k=3, dp=Gaussian(1.0)), dealt(X, 2), seed=4).state for _ in range(2))
    for a, b in zip(one.releases[1:], other.releases[1:], strict=False):
        assert not np.intersect1d(a.reply.count, b.reply.count).size
        assert not (a.reply.count == np.round(a.reply.count)).any()


def test_a_stopped_run_goes_on_from_what_was_released(tmp_path):
    X, algorithm = blobs(6000, 5, 3), Private(k=3, dp=Gaussian(1.0))
    path = tmp_path / "run"
    half = run(algorithm, dealt(X, 2), seed=1, checkpoint=path, max_rounds=2)
    assert not half.finished
    whole = run(algorithm, dealt(X, 2), seed=1, checkpoint=path)
    kept = [codec.encode(release) for release in half.state.releases]
    assert [codec.encode(release) for release in whole.state.releases][: len(kept)] == kept
    assert whole.state.spent == pytest.approx(algorithm.dp.mu**2)
    again = run(algorithm, dealt(X, 2), seed=1, checkpoint=path)
    assert codec.encode(again.state) == codec.encode(whole.state)


def test_all_that_was_made_follows_from_what_was_released(monkeypatch):
    """The same releases and the same public seed give the same centres: rows were not looked at otherwise."""
    X, algorithm = blobs(6000, 5, 3), Private(k=3, dp=Gaussian(1.0))
    first = run(algorithm, dealt(X, 2), seed=1).state
    replies = iter([release.reply for release in first.releases])
    from unpooled.algorithms.private import private_kmeans as private

    def recorded(sites, question):
        return next(replies)
        yield

    monkeypatch.setattr(private, "total", recorded)
    again = run(algorithm, dealt(np.zeros((4, 5)), 2), seed=1).state
    assert codec.encode(again) == codec.encode(first)


# ---------------------------------------------------------------- the forecast


def test_too_little_is_refused_before_anything_is_asked():
    X = blobs(1000, 4, 10)
    federation = dealt(X, 1)
    asked = []
    ask = {"sites": federation.sites, "ask": lambda self, *words: asked.append(words)}
    watched = type("Watched", (Federation,), ask)()
    with pytest.raises(ForecastRefusedError, match=r"n mu / k = 23\.7.*epsilon = 1\.1 or 1,057 rows"):
        run(Private(k=10, dp=Gaussian(1.0, rows=1000)), watched)
    assert not asked


def test_too_little_that_nobody_knew_costs_a_twentieth():
    algorithm = Private(k=10, dp=Gaussian(0.5))
    asked = []
    federation = dealt(blobs(500, 4, 10), 1)
    ask = federation.ask
    federation.ask = lambda request_id, asks: asked.append(asks[0].question) or ask(request_id, asks)
    with pytest.raises(ForecastRefusedError):
        run(algorithm, federation)
    assert sum(q.privacy_cost for q in asked) == pytest.approx(0.05 * algorithm.dp.mu**2)
    done = run(replace(algorithm, dp=Gaussian(0.5, accept_noise=True)), federation)
    assert np.isfinite(done.state.centers).all()


def test_noises_of_many_sites_weaken_the_forecast():
    dp = Gaussian(1.0)
    alone, ten = forecast(dp, 10_000, 10, 10), forecast(dp, 10_000, 10, 10, noises=10)
    assert alone.strength / ten.strength == pytest.approx(10**0.5)
    assert alone.warning is None
    assert "epsilon = 1.1 or 10,689 rows would suffice" in ten.warning
    with pytest.raises(ForecastRefusedError, match=r"n mu / k = 23\.7"):
        run(Private(k=10, dp=Gaussian(1.0, rows=10_000)), dealt(blobs(10_000, 4, 10), 100))


def stretched(rng, n, d, k, apart):
    """Not what the forecast was fitted to: clusters of unequal size, each stretched in its own way."""
    label = rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0)))
    away = rng.standard_normal((n, d)) * 10 ** rng.uniform(-0.5, 0.2, (k, d))[label]
    X = apart * rng.standard_normal((k, d))[label] + away
    return X / np.abs(X).max()


@pytest.mark.parametrize(
    ("d", "k", "apart", "epsilon"),
    [
        (8, 6, 2.0, 1.0),
        (12, 10, 2.0, 0.7),
        (5, 8, 0.2, 1.0),
        pytest.param(20, 5, 0.1, 1.0, marks=pytest.mark.long),
    ],
)
def test_the_forecast_is_within_a_factor_of_three(d, k, apart, epsilon):
    """Apart and overlapping, of a shape that it was not fitted to; the median over four tables, three runs
    each."""
    off = []
    for seed in range(4):
        X = stretched(np.random.default_rng(seed), 12_000, d, k, apart)
        best = KMeans(k, n_init=10, random_state=0).fit(X).inertia_
        algorithm = Private(k=k, dp=Gaussian(epsilon))
        for _ in range(3):
            state = run(algorithm, dealt(X, 1), seed=seed).state
            excess = kernels.nearest(X, state.centers).sqdist.sum() / best - 1
            off.append(algorithm.forecast_of(state).excess / max(excess, 1e-9))
    assert 1 / 3 < np.median(off) < 3, off


def test_a_trial_tells_clusters_that_lie_apart_from_one_blob():
    """Both have the same n, d and k, so that before the start is released the forecast is the same."""
    algorithm = Private(k=6, dp=Gaussian(1.0))
    tables = blobs(12_000, 8, 6), np.random.default_rng(0).uniform(-1, 1, (12_000, 8))
    apart, blob = (run(algorithm, dealt(X, 1), seed=1).state for X in tables)
    assert apart.trial_excess < blob.trial_excess / 3
    one, other = algorithm.forecast_of(apart), algorithm.forecast_of(blob)
    assert one.excess < other.excess / 3
    assert one.excess_apart == pytest.approx(other.excess_apart, rel=0.5)  # n is noisy


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"scale": "robust"}, "scale must be"),
        ({"init": np.zeros((3, 2))}, "init cannot be used"),
        ({"init": "random"}, "init cannot be used"),
        ({"participation": 0.5}, "participation must be 1.0"),
        ({"m": 1.0}, "m"),
    ],
)
def test_what_dp_does_not_cover_is_refused(settings, says):
    with pytest.raises(InputError, match=says):
        Private(k=3, **settings)


def test_standard_scaling_finds_clusters_in_a_narrow_column():
    rng = np.random.default_rng(0)
    label = rng.integers(3, size=9000)
    X = np.column_stack([label * 0.01, 10.0 * (label == 1)]) + rng.normal(0, [0.001, 2.0], (9000, 2))
    dp = Gaussian(1.0, lower=[-0.02, -20], upper=[0.04, 30])
    state = run(Private(k=3, dp=dp, scale="standard"), dealt(X, 1)).state
    assert np.sort(state.centers[:, 0]) == pytest.approx([0, 0.01, 0.02], abs=0.001)
    assert state.inertia_transform.scale == pytest.approx(X.std(axis=0), rel=0.5)
