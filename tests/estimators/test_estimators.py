"""The scikit-learn face."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import Declines, bits, blobs, in_order, inertia_of, nearest
from unpooled import FederatedFuzzyCMeans, FederatedKMeans
from unpooled.algorithms import DWF, EWF, FKM, METHODS, Dual, KFed, Lloyd, MiniBatch, Restarts
from unpooled.algorithms.scaled import Scaled
from unpooled.errors import CheckpointError, InputError, TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol import run
from unpooled.site import Site

pytestmark = pytest.mark.quick


@parametrize_with_checks([FederatedKMeans(n_clusters=3, random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [FederatedKMeans(n_clusters=2, scale="standard", method="dwf", n_init=2, random_state=0)]
)
def test_scikit_learn_contract_with_other_settings(estimator, check):
    check(estimator)


@pytest.fixture
def data():
    return blobs(1, n=150, k=3, spread=1.0)[0]


@pytest.fixture
def labels(data):
    """One of five sites for every row."""
    return np.array(["north", "south", "east", "west", "sea"])[
        np.random.default_rng(0).integers(5, size=len(data))
    ]


def model(**settings):
    return FederatedKMeans(**{"n_clusters": 3, "random_state": 0, **settings})


# ---------------------------------------------------------------- what it gives


def test_by_hand():
    X = np.array([[1.0, 2.0], [1.0, 4.0], [1.0, 0.0], [10.0, 2.0], [10.0, 4.0], [10.0, 0.0]])
    result = FederatedKMeans(2, random_state=0).fit(X, sites=["a", "a", "b", "b", "c", "c"])
    assert in_order(result.cluster_centers_).tolist() == [[1.0, 2.0], [10.0, 2.0]]
    assert result.inertia_ == 16.0
    assert len(set(result.labels_[:3])) == len(set(result.labels_[3:])) == 1
    assert result.labels_[0] != result.labels_[3]


def test_fitted_attributes(data, labels):
    result = model().fit(data, sites=labels)
    assert result.cluster_centers_.shape == (3, 2)
    assert (
        result.labels_.tolist() == nearest(data, result.cluster_centers_).tolist()
    )  # in the order of the rows
    assert result.inertia_ == pytest.approx(inertia_of(data, result.cluster_centers_))
    assert result.n_rounds_ == len(result.history_) - 1 == result.run_.rounds
    assert result.n_features_in_ == 2
    assert set(result.history_[0].answered) == set(labels)
    assert isinstance(result.algorithm_, Lloyd)
    assert list(result.get_feature_names_out()) == [
        "federatedkmeans0",
        "federatedkmeans1",
        "federatedkmeans2",
    ]
    frame = model().set_output(transform="pandas").fit(data, sites=labels).transform(data)
    assert list(frame.columns) == list(result.get_feature_names_out())
    assert np.array_equal(frame.to_numpy(), result.transform(data))


@pytest.mark.parametrize("seed", range(4))
def test_it_is_as_good_as_pooling(seed):
    X = blobs(seed, n=500, k=6, spread=1.5)[0]
    result = FederatedKMeans(6, random_state=seed).fit(
        X, sites=np.random.default_rng(seed).integers(9, size=500)
    )
    assert result.inertia_ <= 1.002 * KMeans(6, n_init=10, random_state=seed).fit(X).inertia_
    assert result.run_.exchanges <= 30


def test_labels_lists_and_dicts_of_sites_give_equal_results(data, labels):
    names = sorted(set(labels))
    by_label = model().fit(data, sites=labels)
    by_name = model().fit({name: data[labels == name] for name in reversed(names)})
    in_a_list = model().fit([data[labels == name] for name in names])
    assert by_name.cluster_centers_.tolist() == by_label.cluster_centers_.tolist()
    assert by_name.inertia_ == by_label.inertia_
    np.testing.assert_allclose(
        in_order(in_a_list.cluster_centers_), in_order(by_label.cluster_centers_), rtol=1e-9
    )
    # labels come back in the order in which the rows were given
    backwards = np.concatenate([data[labels == name] for name in reversed(names)])
    assert by_name.labels_.tolist() == by_name.predict(backwards).tolist()
    forwards = np.concatenate([data[labels == name] for name in names])
    assert in_a_list.labels_.tolist() == in_a_list.predict(forwards).tolist()


def test_a_list_of_more_than_ten_sites_keeps_its_order(data):
    parts = np.array_split(data, 12)
    result = model().fit(parts)
    assert result.labels_.tolist() == result.predict(data).tolist()
    assert result.history_[0].answered[:3] == ("site-00", "site-01", "site-02")


def test_without_sites_all_rows_are_one_site(data):
    result = model().fit(data)
    assert result.history_[0].answered == ("site-0",)
    np.testing.assert_allclose(
        result.inertia_, KMeans(3, n_init=10, random_state=0).fit(data).inertia_, rtol=1e-6
    )


def test_sites_of_different_precision():
    X = blobs(1, n=60)[0]
    result = model().fit({"a": X[:30].astype(np.float32), "b": X[30:]})
    assert result.inertia_ == pytest.approx(model().fit({"a": X[:30], "b": X[30:]}).inertia_, rel=1e-4)


def test_rows_are_left_alone(data, labels):
    before = data.copy()
    for scale in (None, "standard"):
        model(scale=scale).fit(data, sites=labels)
    assert np.array_equal(data, before)
    data.setflags(write=False)
    model(scale="standard").fit(data, sites=labels).predict(data)


def test_an_empty_site_contributes_nothing(data):
    with_it = model().fit({"a": data[:80], "b": data[80:], "c": data[:0]})
    without = model().fit({"a": data[:80], "b": data[80:]})
    assert with_it.cluster_centers_.tolist() == without.cluster_centers_.tolist()
    assert len(with_it.labels_) == len(data)


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize("method", ["lloyd", "dwf", "fkm", "k-fed"])
def test_weights_are_repeated_rows(method):
    X = blobs(2, n=90, spread=0.4)[0]
    times = np.random.default_rng(1).integers(0, 4, len(X))
    sites = np.arange(len(X)) % 3
    weighted = model(method=method).fit(X, sites=sites, sample_weight=times)
    repeated = model(method=method).fit(np.repeat(X, times, axis=0), sites=np.repeat(sites, times))
    np.testing.assert_allclose(
        in_order(weighted.cluster_centers_), in_order(repeated.cluster_centers_), rtol=1e-8
    )
    assert weighted.inertia_ == pytest.approx(repeated.inertia_)
    np.testing.assert_array_equal(weighted.labels_, weighted.predict(X))


@pytest.mark.parametrize("seed", range(8))
def test_weights_are_repeated_rows_where_cells_hold_one_row_several_times(seed):
    rng = np.random.default_rng(seed)
    X, times = rng.normal(size=(15, 4)), rng.integers(0, 5, 15)
    weighted = model(n_init=3, random_state=seed).fit(X, sample_weight=times)
    repeated = model(n_init=3, random_state=seed).fit(np.repeat(X, times, axis=0))
    np.testing.assert_allclose(
        in_order(weighted.cluster_centers_), in_order(repeated.cluster_centers_), rtol=1e-9
    )


def test_weights_in_any_form_of_the_sites(data):
    w = np.random.default_rng(0).uniform(0.5, 2, len(data))
    a = model().fit(data, sites=["a"] * 80 + ["b"] * 70, sample_weight=w)
    b = model().fit({"a": data[:80], "b": data[80:]}, sample_weight={"a": w[:80], "b": w[80:]})
    c = model().fit([data[:80], data[80:]], sample_weight=[w[:80], w[80:]])
    assert a.cluster_centers_.tolist() == b.cluster_centers_.tolist()
    np.testing.assert_allclose(in_order(c.cluster_centers_), in_order(a.cluster_centers_), rtol=1e-9)
    half = model().fit({"a": data[:80], "b": data[80:]}, sample_weight={"a": w[:80]})
    assert half.inertia_ != b.inertia_


# ---------------------------------------------------------------- using the model


@pytest.mark.parametrize("scale", [None, "standard"])
def test_predict_transform_score(data, labels, scale):
    result = model(scale=scale).fit(data, sites=labels)
    seen = StandardScaler().fit_transform(data) if scale else data
    centers = (
        StandardScaler().fit(data).transform(result.cluster_centers_) if scale else result.cluster_centers_
    )
    distances = np.sqrt(((seen[:, None] - centers) ** 2).sum(axis=2))
    np.testing.assert_allclose(result.transform(data), distances, rtol=1e-9, atol=1e-9)
    assert result.predict(data).tolist() == distances.argmin(axis=1).tolist() == result.labels_.tolist()
    assert result.score(data) == pytest.approx(-((distances.min(axis=1) ** 2).sum()))
    assert result.score(data) == pytest.approx(-result.inertia_)
    w = np.arange(len(data)) % 3
    assert result.score(data, sample_weight=w) == pytest.approx(-(w * distances.min(axis=1) ** 2).sum())


def test_fit_predict_and_a_pipeline(data, labels):
    assert (
        model().fit_predict(data, sites=labels).tolist() == model().fit(data, sites=labels).labels_.tolist()
    )
    pipe = make_pipeline(StandardScaler(), model()).fit(data, federatedkmeans__sites=labels)
    assert pipe.predict(data).shape == (len(data),)


@pytest.mark.parametrize("estimator", [FederatedKMeans, FederatedFuzzyCMeans])
def test_sites_reach_the_estimator_through_a_pipeline(data, labels, estimator):
    """By metadata routing; the same rows without it would be one site."""
    with config_context(enable_metadata_routing=True):
        clusterer = estimator(3, random_state=0).set_fit_request(sites=True)
        pipe = make_pipeline(PCA(2, random_state=0), clusterer).fit(data, sites=labels)
        assert list(pipe[-1].run_.records[0].answered) == sorted(set(map(str, labels)))
        search = GridSearchCV(pipe, {f"{estimator.__name__.lower()}__n_clusters": [2, 3]})
        search.fit(data, sites=labels)
        assert list(search.best_estimator_[-1].run_.records[0].answered) == sorted(set(map(str, labels)))


@pytest.mark.parametrize("estimator", [FederatedKMeans, FederatedFuzzyCMeans])
def test_what_controls_a_run_is_no_setting_of_the_model(data, labels, tmp_path, estimator):
    assert not {"quorum", "checkpoint", "progress", "sites"} & set(estimator().get_params())
    seen = []
    fitted = estimator(3, random_state=0).fit(
        data, sites=labels, checkpoint=tmp_path / "checkpoint", progress=seen.append
    )
    assert seen == list(fitted.history_)
    clone(fitted).fit(data[:20])  # with other rows, the checkpoint would be refused


def test_missing_and_text_cells_lead_to_cluster(data):
    bad = data.copy()
    bad[3, 1] = np.nan
    with pytest.raises(InputError, match=r"unpooled\.cluster takes tables with missing values"):
        model().fit(bad)
    with pytest.raises(
        InputError, match=r"unpooled\.cluster takes tables with missing values and categories"
    ):
        model().fit(np.array([["1", "x"], ["2", "y"]]))


def test_a_fitted_model_survives_pickling_and_cloning(data, labels):
    result = model().fit(data, sites=labels)
    again = pickle.loads(pickle.dumps(result))
    assert again.predict(data).tolist() == result.labels_.tolist()
    assert not hasattr(clone(result), "cluster_centers_")


def test_not_yet_fitted(data):
    for use in ("predict", "transform", "score"):
        with pytest.raises(NotFittedError):
            getattr(model(), use)(data)


def test_other_columns_than_fitted(data):
    result = model().fit(data)
    with pytest.raises(ValueError, match="X has 1 features, but FederatedKMeans is expecting 2"):
        result.predict(data[:, :1])
    bad = data.copy()
    bad[3, 1] = np.nan
    with pytest.raises(InputError, match=r"X contains NaN .* row 3, column 1"):
        result.predict(bad)


# ---------------------------------------------------------------- what is run


@pytest.mark.filterwarnings("ignore:the run stopped after")
@pytest.mark.parametrize("name", [name for name in METHODS if name != "fuzzy"])
def test_every_method_by_name(data, labels, name):
    result = model(method=name, n_init=3, participation=0.8, max_rounds=20).fit(data, sites=labels)
    assert result.inertia_ < 1.2 * KMeans(3, n_init=10, random_state=0).fit(data).inertia_
    assert result.labels_.tolist() == result.predict(data).tolist()
    algorithm = result.algorithm_.innermost
    assert type(algorithm) is METHODS[name]
    assert (algorithm.k, algorithm.participation, algorithm.max_rounds) == (3, 0.8, 20)


def test_restarts_of_lloyd_are_its_own_and_of_others_a_best_of(data):
    assert model(n_init=4).fit(data).algorithm_.n_starts == 4
    assert isinstance(model(method="dwf", n_init=4).fit(data).algorithm_, Restarts)
    assert model(method="dwf", n_init=4).fit(data).algorithm_.n == 4
    assert isinstance(model(method="dwf", n_init=1).fit(data).algorithm_, DWF)


@pytest.mark.filterwarnings("ignore:the run stopped after")
@pytest.mark.parametrize(
    "method",
    [
        DWF(momentum=0.3),
        EWF(k=3),
        FKM(p=3),
        KFed(variant="dennis"),
        MiniBatch(batch=5),
        Lloyd(n_starts=2),
        Restarts(DWF(init="random"), 2),
        DWF.as_published(participation=0.5),
        MiniBatch.as_published(k=3, rounds=5),
    ],
    ids=lambda m: type(m).__name__,
)
def test_an_algorithm_keeps_its_own_settings(data, labels, method):
    result = model(method=method).fit(data, sites=labels)
    used = result.algorithm_.inner if isinstance(result.algorithm_, Restarts) else result.algorithm_
    meant = method.inner if isinstance(method, Restarts) else method
    for name, value in vars(meant).items():
        assert getattr(used, name) == (3 if name == "k" else value)
    assert isinstance(method, Restarts) is False or result.algorithm_.n == 2


def test_the_estimators_settings_hold_where_they_are_given(data, labels):
    result = model(
        method=DWF(tol=0.5), n_init=1, max_rounds=7, participation=2, protect="raw", min_cluster_size=2
    )
    used = result.fit(data, sites=labels).algorithm_
    assert (used.max_rounds, used.min_cluster_size, used.tol) == (7, 2, 0.5)
    assert {len(r.answered) for r in result.history_[1:]} == {2}


def test_none_is_the_methods_own_setting_and_any_other_value_wins():
    """Also one that equals a default: nothing is guessed from what a value is."""
    own = DWF(tol=0.5, max_rounds=7, participation=0.5, min_cluster_size=3, init="random")
    kept = FederatedKMeans(3, method=own, n_init=1)._algorithm()
    assert bits(kept) == bits(replace(own, k=3))
    usual = {"tol": 1e-4, "max_rounds": 300, "participation": 1.0, "min_cluster_size": 1, "init": "adaptive"}
    records = FederatedKMeans(3, method=own, n_init=1, protect="raw", **usual)
    assert bits(records._algorithm()) == bits(DWF(k=3))
    assert FederatedKMeans(3, method=Lloyd(n_starts=4))._algorithm().n_starts == 4
    assert FederatedKMeans(3, method=Lloyd(n_starts=4), n_init=10)._algorithm().n_starts == 10
    assert FederatedKMeans(3, method=Restarts(DWF(), 4), n_init=10)._algorithm().n == 10
    assert bits(FederatedKMeans(3, method="dual")._algorithm()) == bits(Dual(k=3))


def test_one_as_a_number_of_sites_is_not_all_of_them(data, labels):
    sites = len(set(labels))
    with pytest.raises(InputError, match=rf"participation=1 is one site of {sites} a round, 1.0 is all"):
        model(participation=1).fit(data, sites=labels)
    with pytest.raises(InputError, match="participation=1 is one site of 2"):
        run(Lloyd(k=2, participation=1), Simulation.from_rows({"a": np.zeros((9, 1)), "b": np.ones((9, 1))}))
    assert model(participation=1).fit(data).n_rounds_ > 0  # one site is one site


def test_k_is_set_once():
    X = blobs(1, n=30)[0]
    with pytest.raises(InputError, match="n_clusters=3, but the method has k=4"):
        model(method=DWF(k=4)).fit(X)


@pytest.mark.parametrize("init", ["adaptive", "k-fed", "random"])
def test_every_start_by_name(data, labels, init):
    result = model(init=init).fit(data, sites=labels)
    assert result.inertia_ <= 1.01 * KMeans(3, n_init=10, random_state=0).fit(data).inertia_


@pytest.mark.parametrize("scale", [None, "standard"])
def test_given_centres_are_in_the_columns_own_units(scale):
    X = np.vstack([blobs(1, n=60, k=2)[0] * [1.0, 1000.0]])
    start = X[[3, 40]]
    result = FederatedKMeans(2, init=start, scale=scale, tol=0.0).fit(X, sites=np.arange(60) % 4)
    seen = StandardScaler().fit(X) if scale else StandardScaler(with_mean=False, with_std=False).fit(X)
    central = KMeans(2, init=seen.transform(start), n_init=1, tol=0.0).fit(seen.transform(X))
    np.testing.assert_allclose(
        result.cluster_centers_, seen.inverse_transform(central.cluster_centers_), rtol=1e-9
    )
    assert result.inertia_ == pytest.approx(central.inertia_)
    lists = FederatedKMeans(2, init=start.tolist(), scale=scale, tol=0.0).fit(X, sites=np.arange(60) % 4)
    assert lists.cluster_centers_.tolist() == result.cluster_centers_.tolist()


def test_scaling_is_over_all_sites_never_each_by_its_own():
    """Two sites that each hold one cluster: scaled by their own they would fall on one another."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(50, 2)), rng.normal(size=(50, 2)) + np.array([0.0, 100.0])
    result = FederatedKMeans(2, scale="standard", random_state=0).fit({"a": a, "b": b})
    assert len(set(result.labels_[:50])) == len(set(result.labels_[50:])) == 1
    assert result.labels_[0] != result.labels_[50]
    assert isinstance(result.algorithm_, Scaled)
    central = KMeans(2, n_init=10, random_state=0).fit(StandardScaler().fit_transform(np.vstack([a, b])))
    assert result.inertia_ == pytest.approx(central.inertia_)


def test_random_state_of_every_kind(data, labels):
    def centers(state):
        model = FederatedKMeans(3, random_state=state).fit(data, sites=labels)
        return model.run_.state.candidates[0].tobytes()

    def drawn(state):  # ten draws of rows, which differ where ten optima may not
        model = FederatedKMeans(3, init="random", max_rounds=1, random_state=state)
        with pytest.warns(ConvergenceWarning):
            model.fit(data, sites=labels)
        return model.run_.state.candidates[0].tobytes()

    assert centers(5) == centers(5) == centers(np.int64(5))
    assert centers(5) != centers(6)
    assert centers(np.random.RandomState(1)) == centers(np.random.RandomState(1))
    assert centers(np.random.default_rng(1)) == centers(np.random.default_rng(1))
    assert drawn(None) != drawn(None)
    moving = np.random.RandomState(1)
    assert drawn(moving) != drawn(moving)
    with pytest.raises(InputError, match="random_state must be >= 0, got -1"):
        centers(-1)


def test_number_of_threads_is_irrelevant(data, labels):
    one, two = (model(n_threads=t).fit(data, sites=labels) for t in (1, 2))
    assert bits(one.run_.state) == bits(two.run_.state)
    assert one.labels_.tolist() == two.labels_.tolist()


def test_progress_and_checkpoint(data, labels, tmp_path):
    records = []
    settings = {"init": "random", "n_init": 1, "tol": 0.0}
    how = {"sites": labels, "checkpoint": tmp_path / "run", "progress": records.append}
    first = model(**settings).fit(data, **how)
    assert records == list(first.history_)
    again = model(**settings).fit(data, **how)
    assert len(records) == len(first.history_)  # nothing was run again
    assert bits(again.run_.state) == bits(first.run_.state)
    assert again.inertia_ == first.inertia_
    with pytest.raises(CheckpointError, match="checkpoint of seed 0, this run has seed 1"):
        model(**settings, random_state=1).fit(data, **how)
    (tmp_path / "run").write_bytes((tmp_path / "run").read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="truncated or was altered"):
        model(**settings).fit(data, **how)


def test_min_cluster_size_suppresses_and_still_clusters(data):
    result = model(protect="raw", min_cluster_size=5).fit(data, sites=np.arange(len(data)) % 3)
    assert result.algorithm_.min_cluster_size == 5
    assert result.inertia_ == pytest.approx(KMeans(3, n_init=10, random_state=0).fit(data).inertia_)


def test_a_minimum_that_suppresses_much_warns(data):
    sites = np.where(np.arange(150) < 120, np.arange(150) % 3, np.arange(150) // 3)  # ten sites of three rows
    with pytest.warns(
        UserWarning, match=r"min_cluster_size=5 suppressed 20\.0% of the rows, with \d+\.\d% of the inertia"
    ):
        model(protect="raw", min_cluster_size=5).fit(data, sites=sites)


def test_five_hundred_sites_of_ten_rows():
    X = blobs(3, n=5000, k=5, spread=1.0)[0]
    sites = np.arange(5000) // 10
    best = KMeans(5, n_init=10, random_state=0).fit(X).inertia_
    assert FederatedKMeans(5, random_state=0).fit(X, sites=sites).inertia_ <= 1.002 * best


# ---------------------------------------------------------------- real federations


def test_fit_federation_never_sees_a_row(data, labels):
    rows = {name: data[labels == name] for name in set(labels)}
    result = model().fit_federation(Simulation.from_rows(rows))
    simulated = model().fit(data, sites=labels)
    assert result.cluster_centers_.tolist() == simulated.cluster_centers_.tolist()
    assert result.inertia_ == simulated.inertia_
    assert not hasattr(result, "labels_")
    assert result.predict(data).tolist() == simulated.labels_.tolist()
    assert result.n_features_in_ == 2


def test_fit_federation_with_a_silent_site(data, labels):
    sites = [
        Site(name, data[labels == name], guards=[Declines("closed")] if name == "sea" else [])
        for name in sorted(set(labels))
    ]
    result = model(scale="standard").fit_federation(LocalFederation(sites))
    assert all(r.silent == {"sea": "closed"} for r in result.history_)
    with pytest.raises(TooFewAnswersError, match=r"4 of 5 sites answered, 5 needed; missing: sea \(closed\)"):
        model().fit_federation(LocalFederation(sites), quorum=1.0)
    with pytest.raises(InputError, match=r"quorum must be a share between 0 and 1, got 2\.0"):
        model().fit_federation(LocalFederation(sites), quorum=2.0)


def test_fit_federation_of_fewer_rows_than_clusters():
    with pytest.raises(InputError, match="k=3 clusters from 2 rows"):
        model().fit_federation(Simulation.from_rows({"a": np.ones((2, 2))}))


# ---------------------------------------------------------------- what is refused


def spoiled(value, place=(4, 1)):
    X = blobs(1, n=20)[0]
    X[place] = value
    return X


GOOD = blobs(1, n=20)[0]


@pytest.mark.parametrize(
    ("X", "settings", "fit", "error", "message"),
    [
        (spoiled(np.nan), {}, {}, InputError, r"X contains NaN .* row 4, column 1"),
        (spoiled(np.inf), {}, {}, InputError, r"X contains infinity .* row 4, column 1"),
        (
            {"a": GOOD, "b": spoiled(-np.inf)},
            {},
            {},
            InputError,
            r"site b contains infinity .* row 4, column 1",
        ),
        ({"a": GOOD, "b": GOOD[:, :1]}, {}, {}, InputError, "sites with different columns: a has 2, b has 1"),
        ([GOOD, np.ones((3, 4))], {}, {}, InputError, "different columns: site-0 has 2, site-1 has 4"),
        (GOOD, {"n_clusters": 21}, {}, InputError, "n_clusters=21, but there are only n_samples=20 rows"),
        (
            {"a": GOOD, "b": GOOD[:0]},
            {"n_clusters": 21},
            {},
            InputError,
            "n_clusters=21, .* n_samples=20 rows",
        ),
        (
            np.ones((9, 2)),
            {"n_clusters": 2},
            {},
            InputError,
            "n_clusters=2, but only 1 of the 9 rows are distinct",
        ),
        (
            np.vstack([GOOD[:4]] * 3),
            {"n_clusters": 5},
            {},
            InputError,
            "n_clusters=5, but only 4 of the 12 rows",
        ),
        ({"a": GOOD[:0]}, {}, {}, InputError, "n_clusters=3, but there are only n_samples=0 rows"),
        (np.zeros((0, 2)), {}, {}, ValueError, r"0 sample\(s\) .* minimum of 1 is required"),
        (np.array([["1", "x"], ["2", "y"]]), {}, {}, InputError, "X has text in column 1, row 0: 'x'"),
        (
            {"a": np.array([[1, "ill"]], dtype=object)},
            {},
            {},
            InputError,
            "site a has text in column 1, row 0: 'ill'",
        ),
        (GOOD[:, 0], {}, {}, ValueError, "Expected 2D array, got 1D array"),
        ({"a": GOOD[:, 0]}, {}, {}, ValueError, "Expected 2D array, got 1D array"),
        (sparse.csr_matrix(GOOD), {}, {}, TypeError, "Sparse data was passed"),
        (sparse.dok_matrix(GOOD), {}, {}, TypeError, "Sparse data was passed for X"),
        ([sparse.csr_matrix(GOOD)], {}, {}, TypeError, "Sparse data was passed for site site-0"),
        (GOOD, {}, {"sample_weight": [-1.0] * 20}, InputError, "must be finite and >= 0, got -1.0 at row 0"),
        (GOOD, {}, {"sample_weight": [1.0] * 19}, InputError, r"shape \(19,\) for 20 rows"),
        (
            GOOD,
            {},
            {"sample_weight": [0.0] * 20},
            InputError,
            "only n_samples=0 rows with a weight above zero",
        ),
        ([GOOD], {}, {"sample_weight": [[1.0, np.nan] * 10]}, InputError, "site site-0: .* got nan at row 1"),
        (GOOD, {}, {"sites": ["a"] * 19}, InputError, r"sites has shape \(19,\), but X has 20 rows"),
        ([GOOD], {}, {"sites": ["a"] * 20}, InputError, "X is already given by site"),
        (GOOD, {"n_clusters": 0}, {}, InputError, "n_clusters must be a whole number >= 1, got 0"),
        (GOOD, {"n_clusters": 2.5}, {}, InputError, "n_clusters must be a whole number >= 1, got 2.5"),
        (GOOD, {"n_clusters": True}, {}, InputError, "n_clusters must be a whole number >= 1, got True"),
        (GOOD, {"n_init": 0}, {}, InputError, "n_init must be a whole number >= 1, got 0"),
        (GOOD, {"max_rounds": 0}, {}, InputError, "max_rounds must be a whole number >= 1, got 0"),
        (
            GOOD,
            {"min_cluster_size": 0},
            {},
            InputError,
            "min_cluster_size must be a whole number >= 1, got 0",
        ),
        (GOOD, {"tol": -1.0}, {}, InputError, "tol must be >= 0, got -1.0"),
        (GOOD, {"participation": 0.0}, {}, InputError, "participation must be a share .* got 0.0"),
        (GOOD, {"scale": "minmax"}, {}, InputError, "scale must be None or \"standard\", got 'minmax'"),
        (
            GOOD,
            {"method": "kmeans"},
            {},
            InputError,
            "method must be one of lloyd, dual, dwf, .* got 'kmeans'",
        ),
        (GOOD, {"method": 3}, {}, InputError, "method must be a name or an algorithm, got 3"),
        (GOOD, {"init": "best"}, {}, InputError, "init must be one of adaptive, .* got 'best'"),
        (
            GOOD,
            {"init": np.ones((3, 5))},
            {},
            InputError,
            r"init has shape \(3, 5\), but k=3 and the rows have 2",
        ),
        (GOOD, {"init": np.ones((2, 2))}, {}, InputError, r"init has shape \(2, 2\), but k=3"),
        (GOOD, {"init": np.full((3, 2), np.nan)}, {}, InputError, "init holds NaN or infinity"),
        (GOOD, {}, {"checkpoint": "no/such/folder/run"}, InputError, "there is no folder no/such/folder"),
    ],
)
def test_bad_input_gets_a_clear_error_and_nothing_half_done(X, settings, fit, error, message):
    bad = model(**settings)
    with pytest.raises(error, match=message):
        bad.fit(X, **fit)
    assert not hasattr(bad, "cluster_centers_")
    assert not hasattr(bad, "labels_")


def test_without_a_seed_a_fit_goes_on_with_the_seed_of_its_checkpoint(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    path = tmp_path / "checkpoint"
    first = FederatedKMeans(3, max_rounds=2).fit(X, checkpoint=path)
    again = FederatedKMeans(3, max_rounds=2).fit(X, checkpoint=path)
    np.testing.assert_array_equal(first.cluster_centers_, again.cluster_centers_)


# ---------------------------------------------------------------- rounds


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("k-fed", "dual")])
@pytest.mark.parametrize("n_init", [1, 3])
def test_a_run_that_reaches_max_rounds_warns_and_counts_them(name, n_init):
    X = np.random.default_rng(0).normal(size=(300, 3))
    kind = FederatedFuzzyCMeans if name == "fuzzy" else FederatedKMeans
    settings = {} if name == "fuzzy" else {"method": name}
    given = kind(6, max_rounds=2, n_init=n_init, init="random", random_state=0, tol=1e-9, **settings)
    with pytest.warns(ConvergenceWarning, match="stopped after 2 rounds, .* Raise max_rounds"):
        given.fit(X, sites=np.arange(300) % 3)
    assert given.n_rounds_ == given.n_iter_ == 2


def test_rounds_that_sufficed_are_not_warned_of(data, labels):
    assert model(n_init=3).fit(data, sites=labels).n_rounds_ < 300  # warnings are errors here


# ---------------------------------------------------------------- tables with names


def frames(data):
    return {s: pd.DataFrame(data[i::3], columns=["x", "y"]) for i, s in enumerate("abc")}


def test_tables_of_sites_are_aligned_by_name(data):
    pd_tables = frames(data)
    expected = model().fit(pd_tables)
    mixed = pd_tables | {"b": pd_tables["b"][["y", "x"]]}
    result = model().fit(mixed)
    assert np.array_equal(result.cluster_centers_, expected.cluster_centers_)
    assert result.feature_names_in_.tolist() == ["x", "y"]
    with pytest.raises(ValueError, match="feature names"):
        result.predict(mixed["b"])


def test_tables_of_sites_whose_columns_differ_are_refused(data):
    tables = frames(data)
    with pytest.raises(InputError, match="b lacks x, y; b has u, v, which a lacks"):
        model().fit(tables | {"b": tables["b"].rename(columns={"x": "u", "y": "v"})})
    with pytest.raises(InputError, match="c has z, which a lacks"):
        model().fit(tables | {"c": tables["c"].assign(z=1.0)})
    with pytest.raises(InputError, match="a has names of columns, site b has none"):
        model().fit(tables | {"b": tables["b"].to_numpy()})
    with pytest.raises(InputError, match="column y is text at b and numbers elsewhere"):
        model().fit(tables | {"b": tables["b"].assign(y=tables["b"]["y"].astype(str))})
    whole = tables | {"b": tables["b"].round().astype(int)}
    assert model().fit(whole).n_features_in_ == 2
