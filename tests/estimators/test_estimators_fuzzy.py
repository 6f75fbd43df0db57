"""The scikit-learn face of fuzzy c-means."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import bits, blobs, in_order
from unpooled import FederatedFuzzyCMeans, FederatedKMeans
from unpooled.algorithms import Fuzzy, Restarts
from unpooled.algorithms.scaled import Scaled
from unpooled.errors import InputError
from unpooled.federation import LocalFederation, Simulation
from unpooled.site import Site


@pytest.mark.filterwarnings("ignore:centres .* coincide")  # some checks draw rows without any cluster
@parametrize_with_checks([FederatedFuzzyCMeans(n_clusters=3, random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:the run stopped after")
@pytest.mark.filterwarnings("ignore:centres .* coincide")
@parametrize_with_checks(
    [FederatedFuzzyCMeans(2, m=1.5, merge="avg2", scale="standard", n_init=2, max_rounds=20, random_state=0)]
)
def test_scikit_learn_contract_with_other_settings(estimator, check):
    check(estimator)


@pytest.fixture
def data():
    return blobs(1, n=150, k=3, spread=1.0)[0]


@pytest.fixture
def labels(data):
    return np.array(["north", "south", "east"])[np.random.default_rng(0).integers(3, size=len(data))]


def model(**settings):
    return FederatedFuzzyCMeans(**{"n_clusters": 3, "random_state": 0, **settings})


def pooled_fcm(X, centers, m, steps=500):
    for _ in range(steps):
        sq = ((X[:, None] - centers[None]) ** 2).sum(axis=2)
        u = sq ** (-1 / (m - 1)) / (sq ** (-1 / (m - 1))).sum(axis=1, keepdims=True)
        centers = (u**m).T @ X / (u**m).sum(axis=0)[:, None]
    return centers, u, float((u**m * sq).sum())


@pytest.mark.parametrize("m", [2.0, 1.4])
def test_it_ends_where_pooled_fuzzy_c_means_does(data, labels, m):
    result = model(m=m, tol=1e-9).fit(data, sites=labels)
    centers, u, objective = pooled_fcm(data, result.cluster_centers_ + 0.3, m)
    assert np.allclose(result.cluster_centers_, centers, atol=1e-6)
    assert result.objective_ == pytest.approx(objective, rel=1e-9)
    assert np.allclose(result.predict_proba(data), u, atol=1e-6)
    assert (result.labels_ == u.argmax(axis=1)).all()
    assert result.score(data) == pytest.approx(-objective, rel=1e-9)
    assert result.coincidence_ is None


def test_ways_to_hand_in_sites_agree(data, labels):
    one = model().fit(data, sites=labels)
    by_name = {s: data[labels == s] for s in np.unique(labels)}
    two = model().fit(by_name)
    three = model().fit_federation(Simulation.from_rows(by_name))
    assert bits(one.cluster_centers_) == bits(two.cluster_centers_) == bits(three.cluster_centers_)
    assert not hasattr(three, "labels_")
    assert three.predict_proba(data).shape == (150, 3)


def test_distances_memberships_and_labels_belong_together(data, labels):
    result = model().fit(data, sites=labels)
    u, distance = result.predict_proba(data), result.transform(data)
    assert np.allclose(u.sum(axis=1), 1)
    assert (u.argmax(axis=1) == distance.argmin(axis=1)).all()
    assert (result.predict(data) == result.labels_).all()
    assert (result.fit_predict(data) == result.labels_).all()
    assert list(result.get_feature_names_out()) == [f"federatedfuzzycmeans{j}" for j in range(3)]


def test_weights_count_as_repeated_rows(data, labels):
    weights = np.random.default_rng(0).integers(1, 4, len(data))
    start = data[:3]
    weighted = model(init=start, tol=1e-9).fit(data, sites=labels, sample_weight=weights)
    repeated = model(init=start, tol=1e-9).fit(np.repeat(data, weights, axis=0))
    assert np.allclose(weighted.cluster_centers_, repeated.cluster_centers_, atol=1e-7)
    assert weighted.score(data, sample_weight=weights) == pytest.approx(
        repeated.score(np.repeat(data, weights, 0))
    )


def test_scaled_columns(data, labels):
    wide = data * [1.0, 1000.0]
    result = model(scale="standard").fit(wide, sites=labels)
    other = make_pipeline(StandardScaler(), model()).fit(wide)
    assert np.allclose(result.predict_proba(wide), other.predict_proba(wide), atol=1e-3)
    assert isinstance(result.algorithm_, Scaled)


def test_what_is_run(data):
    assert model(n_init=4).fit(data).algorithm_.n_starts == 4
    several = model(merge="avg2", n_init=2, max_rounds=5).fit(data).algorithm_
    assert isinstance(several, Restarts)
    assert several.n == 2
    one = (
        model(init=data[:3], m=1.7, local_steps="converge", weights="sum(u)", max_rounds=7)
        .fit(data)
        .algorithm_
    )
    assert (one.m, one.local_steps, one.weights, one.max_rounds, one.n_starts) == (
        1.7,
        "converge",
        "sum(u)",
        7,
        1,
    )
    assert model(init="unit").fit(data).algorithm_.unit_start


def test_clone_and_pickle(data, labels):
    result = model(m=1.8, merge="avg1").fit(data, sites=labels)
    assert clone(result).get_params() == result.get_params()
    again = pickle.loads(pickle.dumps(result))
    assert (again.predict_proba(data) == result.predict_proba(data)).all()


def test_float32_rows(data, labels):
    small = model().fit(data.astype(np.float32), sites=labels)
    assert np.allclose(
        in_order(small.cluster_centers_), in_order(model().fit(data).cluster_centers_), atol=1e-3
    )
    assert small.predict_proba(data.astype(np.float32)).dtype == np.float64


@pytest.mark.filterwarnings("ignore:the run stopped after")
def test_centres_that_coincide_are_named_with_an_m_that_separates_them():
    rng = np.random.default_rng(0)
    X = np.concatenate([c + rng.normal(size=(100, 30)) for c in rng.normal(size=(3, 30))])
    with pytest.warns(
        UserWarning, match=r"centres \{0, 1, 2\} coincide: m=2 is too large .* below m=.*; try m=1\."
    ) as warned:
        result = model().fit(X)
    assert warned[-1].filename == __file__
    assert result.coincidence_.groups == ((0, 1, 2),)
    better = model(m=result.coincidence_.suggestion).fit(X)  # warnings are errors here
    assert better.coincidence_ is None


def test_suppressed_memberships_warn():
    X = blobs(3, n=60, k=3, spread=3.0)[0]
    with pytest.warns(UserWarning, match=r"min_cluster_size=8 suppressed .*% of the memberships"):
        model(protect="raw", min_cluster_size=8).fit(X, sites=np.arange(60) // 10)


@pytest.mark.parametrize("m", [1, 1.0, 0.3, np.nan, "soft"])
def test_m_of_one_or_less_is_an_error_with_the_reason(data, m):
    with pytest.raises(
        InputError, match=r"m must be a finite number above 1, .* Near m = 1 they become 0 or 1"
    ):
        model(m=m).fit(data)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be a whole number >= 1"),
        ({"n_clusters": 200}, "n_clusters=200, but there are only n_samples=150 rows"),
        ({"merge": "mean"}, "merge must be avg1 or avg2"),
        ({"init": "best"}, "init must be adaptive, k-fed, random, unit or centres, got 'best'"),
        ({"init": np.zeros((2, 2))}, "init has shape"),
        ({"local_steps": "some"}, "local_steps must be"),
        ({"weights": "u"}, "weights must be"),
        ({"scale": "yes"}, "scale must be None"),
        ({"tol": -1}, "tol must be >= 0"),
    ],
)
def test_bad_settings(data, settings, message):
    with pytest.raises(InputError, match=message):
        model(**settings).fit(data)


def test_bad_rows(data):
    data[3, 1] = np.nan
    with pytest.raises(InputError, match="row 3, column 1"):
        model().fit(data)
    with pytest.raises(InputError, match=r"sample_weight must be finite and >= 0, got -1\.0 at row 0"):
        model().fit(data[10:], sample_weight=-np.ones(140))


@pytest.mark.parametrize("method", ["fuzzy", Fuzzy(), Restarts(Fuzzy(merge="avg2"), 2)])
def test_federated_k_means_points_to_the_fuzzy_estimator(data, method):
    with pytest.raises(InputError, match="Use FederatedFuzzyCMeans"):
        FederatedKMeans(3, method=method).fit(data)


def test_a_federation_with_a_minimum_size_ends_near_pooling(data):
    sites = [Site(f"s{i}", data[i::3], min_cluster_size=5) for i in range(3)]
    result = model(m=1.5).fit_federation(LocalFederation(sites))
    whole = model(m=1.5).fit(data)
    assert result.score(data) == pytest.approx(whole.score(data), rel=0.02)
