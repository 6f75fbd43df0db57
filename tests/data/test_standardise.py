"""One scaling for all sites, by two totals: scikit-learn's on the pooled rows."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from helpers import bits, blobs, inertia_of, pooled, split
from unpooled.algorithms import DWF, Lloyd
from unpooled.algorithms.scaled import Scaled
from unpooled.data.column_scales import standardise
from unpooled.data.transforms import Affine
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.exchange import RoundLog, run_protocol

pytestmark = pytest.mark.quick


def federated(rows, **settings):
    federation, round_log = Simulation.from_rows(rows, **settings), RoundLog()
    transform = run_protocol(standardise(federation.sites), federation, round_log=round_log)
    assert round_log.exchanges == 2
    return transform


def test_by_hand():
    transform = federated({"a": np.array([[0.0, 5.0], [2.0, 5.0]]), "b": np.array([[4.0, 5.0]])})
    assert transform.shift.tolist() == [2.0, 5.0]
    assert transform.scale == pytest.approx([np.sqrt(8 / 3), 1.0])  # a constant column keeps its scale


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("skewed", [False, True])
def test_equals_scikit_learn_on_the_pooled_rows(seed, skewed):
    X = blobs(seed, n=200, d=4, spread=3.0)[0] * [1.0, 1e-6, 1e6, 3.0] + [0.0, 5.0, -1e6, 100.0]
    transform = federated(split(X, 6, seed, skewed))
    scaler = StandardScaler().fit(X)
    np.testing.assert_allclose(transform.shift, scaler.mean_, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(transform.scale, scaler.scale_, rtol=1e-11)
    np.testing.assert_allclose(transform.apply(X), scaler.transform(X), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(transform.undo(transform.apply(X)), X, rtol=1e-11, atol=1e-9)


def test_a_big_offset_does_not_drown_the_spread():
    X = np.random.default_rng(0).normal(size=(300, 2)) + np.array([1e9, -1e7])
    transform = federated(split(X, 5))
    exact = (X - [1e9, -1e7]).std(axis=0)
    np.testing.assert_allclose(transform.scale, exact, rtol=1e-6)


def test_float32_rows_are_summed_in_float64():
    X = (np.random.default_rng(0).normal(size=(3000, 3)) + 1000).astype(np.float32)
    transform = federated(split(X, 5))
    np.testing.assert_allclose(transform.shift, X.astype(np.float64).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(transform.scale, X.astype(np.float64).std(axis=0), rtol=1e-9)
    assert transform.apply(X).dtype == np.float32
    np.testing.assert_allclose(transform.apply(X).std(axis=0), 1.0, rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1e12, 1e-300])
def test_a_constant_column_keeps_scale_one(value):
    X = np.column_stack([np.full(50, value), np.arange(50.0)])
    transform = federated(split(X, 3))
    assert transform.scale[0] == 1.0
    assert StandardScaler().fit(X).scale_[0] == 1.0
    np.testing.assert_allclose(transform.apply(X)[:, 0], 0.0, atol=1e-3)


def test_weights_count_like_repeated_rows():
    rng = np.random.default_rng(0)
    X, times = rng.normal(size=(40, 2)), rng.integers(0, 4, 40)
    weighted = federated({"a": X[:25], "b": X[25:]}, weights={"a": times[:25] * 1.0, "b": times[25:] * 1.0})
    repeated = np.repeat(X, times, axis=0)
    np.testing.assert_allclose(weighted.shift, repeated.mean(axis=0))
    np.testing.assert_allclose(weighted.scale, repeated.std(axis=0))


def test_empty_sites_add_nothing():
    X = np.random.default_rng(0).normal(size=(20, 2))
    assert bits(federated({"a": X})) == bits(federated({"a": X, "b": X[:0]}))


def test_a_site_below_its_minimum_is_left_out():
    X = np.random.default_rng(0).normal(size=(20, 2))
    transform = federated({"a": X, "b": X[:3] + 100}, min_cluster_size=5)
    np.testing.assert_allclose(transform.shift, X.mean(axis=0))


def test_a_transform_does_not_change_its_rows():
    X = np.ones((3, 2))
    Affine(np.ones(2), np.ones(2)).apply(X)
    assert X.tolist() == np.ones((3, 2)).tolist()


# ---------------------------------------------------------------- any algorithm in scaled columns


@pytest.mark.parametrize("seed", range(3))
def test_scaled_runs_in_scaled_columns_and_answers_in_the_columns_own(seed):
    X = blobs(seed, n=150)[0] * [1.0, 1000.0] + [0.0, 1e5]
    rows = split(X, 4, seed)
    done = run(Scaled(Lloyd(k=3)), Simulation.from_rows(rows), seed=seed)
    Z = StandardScaler().fit_transform(pooled(rows))
    np.testing.assert_allclose(done.state.inertia, inertia_of(Z, done.state.inner.centers), rtol=1e-6)
    np.testing.assert_allclose(done.state.centers, done.state.transform.undo(done.state.inner.centers))
    assert done.state.centers[:, 1].min() > 8e4


def test_scaled_equals_the_inner_algorithm_on_scaled_rows():
    rows = split(blobs(5, n=90, spread=3.0)[0] * [1.0, 50.0], 3)
    transform = federated(rows)
    inner = DWF(k=3, init="random", max_rounds=5)
    scaled = run(Scaled(inner), Simulation.from_rows(rows), seed=2)
    by_hand = run(inner, Simulation.from_rows({s: transform.apply(X) for s, X in rows.items()}), seed=2)
    np.testing.assert_allclose(scaled.state.inner.centers, by_hand.state.centers, rtol=1e-9, atol=1e-9)
    assert scaled.history[-1].movement == pytest.approx(by_hand.history[-1].movement, rel=1e-6, abs=1e-9)


def test_given_centres_are_in_the_columns_own_units():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 5000.0], [1.0, 5000.0]])
    start = np.array([[0.5, 10.0], [0.5, 4000.0]])
    done = run(Scaled(Lloyd(k=2, init=start)), Simulation.from_rows({"a": X[::2], "b": X[1::2]}))
    np.testing.assert_allclose(done.state.centers, [[0.5, 0.0], [0.5, 5000.0]], atol=1e-9)
