"""The choice of k: right where k is known, and "no clear k" where there are no clusters."""

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.cluster import KMeans

from helpers import bits
from unpooled import InProcess, Lloyd, run
from unpooled.analysis import Analysis
from unpooled.analysis.choose_k import adjusted_rand, knee_of, score
from unpooled.analysis.choose_k import blobs as reference
from unpooled.core.exchange import Trace, conduct
from unpooled.data import Table, Wishes


def analysed(X, ks, seed=0, minimum=1, **wishes):
    rng = np.random.default_rng(seed)
    site = rng.integers(4, size=len(X))
    tables = {f"s{i}": Table.of({f"x{j}": X[site == i, j] for j in range(X.shape[1])}) for i in range(4)}
    methods = tuple(Lloyd(k=k, min_cluster_size=minimum) for k in ks)
    return run(Analysis(Wishes(**wishes), methods), InProcess.of(tables, min_cluster_size=minimum), seed=seed)


def groups(k, d, n, seed):
    """k groups, at least six standard deviations apart."""
    rng = np.random.default_rng(seed)
    while True:
        centers = rng.uniform(-10, 10, (k, d))
        gaps = np.sqrt(((centers[:, None] - centers[None]) ** 2).sum(axis=2))
        if (gaps + 99 * np.eye(k)).min() > 6:
            return centers[rng.integers(k, size=n)] + rng.standard_normal((n, d))


@pytest.mark.parametrize("k", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("seed", [0, 1])
def test_known_k_is_found(k, seed):
    choice = analysed(groups(k, 4, 600, seed), range(2, 11), seed).state.choice
    assert (choice.k, choice.clear) == (k, True), choice.reasons
    assert any("criteria agree" in reason for reason in choice.reasons)


def test_known_k_is_found_where_small_groups_are_hidden():
    choice = analysed(groups(4, 3, 500, 5), range(2, 9), minimum=5).state.choice
    assert (choice.k, choice.clear) == (4, True), choice.reasons


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("shape", ["uniform", "gaussian", "stretched"])
def test_one_blob_has_no_clear_k(shape, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(800, 3)) if shape == "uniform" else rng.standard_normal((800, 3))
    if shape == "stretched":
        X = X @ rng.normal(size=(3, 3))
    choice = analysed(X, range(2, 9), seed).state.choice
    assert not choice.clear
    assert any("blob" in reason for reason in choice.reasons)


def test_where_sites_are_too_small_to_show_their_groups_no_k_is_clear():
    X = groups(5, 3, 3000, 2)
    tables = {f"s{i:03d}": Table.of({f"x{j}": X[i::150, j] for j in range(3)}) for i in range(150)}
    methods = tuple(Lloyd(k=k, min_cluster_size=5) for k in range(2, 11))
    choice = run(Analysis(Wishes(), methods), InProcess.of(tables, min_cluster_size=5)).state.choice
    assert not choice.clear
    assert any("cannot be judged" in reason or "too small" in reason for reason in choice.reasons)


def test_a_given_k_is_kept_and_judged():
    choice = analysed(np.random.default_rng(0).uniform(size=(500, 2)), [4]).state.choice
    assert (choice.k, choice.clear, choice.votes) == (4, False, {})
    assert analysed(groups(3, 2, 300, 0), [3]).state.choice.clear


def test_every_k_shares_the_exchanges_of_one():
    X = groups(4, 3, 400, 3)
    one, many = analysed(X, [10]), analysed(X, range(2, 11))
    assert many.exchanges <= one.exchanges + 10  # only the slowest k counts
    per_site = max(numbers for numbers, _ in many.left().values())
    assert per_site < 3 * max(numbers for numbers, _ in one.left().values())


def test_scores_are_scikit_learns():
    X = groups(3, 2, 300, 0)
    fitted = KMeans(3, n_init=1, random_state=0).fit(X)
    there = InProcess.of({"a": X[:100], "b": X[100:]})
    got = conduct(score(there.sites, fitted.cluster_centers_, np.zeros((0, 3, 2))), there)
    assert got.inertia == pytest.approx(fitted.inertia_)
    assert got.calinski_harabasz == pytest.approx(sk.calinski_harabasz_score(X, fitted.labels_))
    assert got.davies_bouldin == pytest.approx(sk.davies_bouldin_score(X, fitted.labels_))
    assert (got.stability, got.restarts) == (1.0, 0)


def test_stability_is_the_adjusted_rand_index_of_the_restarts():
    rng = np.random.default_rng(0)
    X, centers, others = rng.normal(size=(200, 2)), rng.normal(size=(3, 2)), rng.normal(size=(2, 3, 2))
    there = InProcess.of({"a": X[:90], "b": X[90:]})
    trace = Trace()
    got = conduct(score(there.sites, centers, others), there, trace=trace)

    def labels(c):
        return ((X[:, None] - c) ** 2).sum(axis=2).argmin(axis=1)

    expected = np.mean([sk.adjusted_rand_score(labels(centers), labels(o)) for o in others])
    assert got.stability == pytest.approx(expected)
    assert trace.exchanges == 1


def test_adjusted_rand_of_counts():
    rng = np.random.default_rng(1)
    a, b = rng.integers(3, size=60), rng.integers(4, size=60)
    assert adjusted_rand(sk.cluster.contingency_matrix(a, b).astype(float)) == pytest.approx(
        sk.adjusted_rand_score(a, b)
    )


def test_knee():
    assert knee_of([1, 2, 3, 4, 5], np.array([100.0, 60.0, 20.0, 18.0, 17.0])) == 3
    assert knee_of([2, 3], np.array([60.0, 20.0])) is None


def test_the_reference_is_a_blob_of_the_same_covariance():
    rng = np.random.default_rng(0)
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]])
    X = rng.multivariate_normal([0, 0], covariance, 1000)
    inertia = KMeans(3, n_init=10, random_state=0).fit(X).inertia_ / len(X)
    blob = reference(np.cov(X.T, bias=True), 1000, [3], rng)
    assert blob.log_inertia[1, 0] == pytest.approx(np.log(inertia), abs=0.06)


def test_resumed_after_any_round_the_analysis_ends_with_the_same_bits(tmp_path):
    X = groups(3, 2, 200, 1)
    whole = analysed(X, range(2, 5)).state
    tables = {f"s{i}": Table.of({"x0": X[i::4, 0], "x1": X[i::4, 1]}) for i in range(4)}
    there, job = InProcess.of(tables), Analysis(Wishes(), tuple(Lloyd(k=k) for k in (2, 3, 4)))
    straight = run(job, there, seed=7)
    path = tmp_path / "checkpoint"
    for _ in range(100):
        step = run(job, InProcess.of(tables), seed=7, checkpoint=path, max_rounds=1)
        if step.finished:
            break
    assert bits(step.state) == bits(straight.state)
    assert whole.choice is not None
