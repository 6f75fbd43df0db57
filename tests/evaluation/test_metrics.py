"""Federated measures equal those of the pooled rows."""

import numpy as np
import pytest
from sklearn import metrics as sk

from helpers import blobs, inertia_of, lloyd, nearest, pooled, split
from unpooled.errors import InputError
from unpooled.evaluation import metrics
from unpooled.federation import Simulation
from unpooled.protocol.exchange import RoundLog, run_protocol

pytestmark = pytest.mark.quick


def case(seed: int, spread: float = 3.0, k: int = 4):
    """Rows over sites, and a Lloyd fixed point of them."""
    rows = split(blobs(seed, n=160, d=3, k=k, spread=spread)[0], 5, seed, skewed=seed % 2 == 1)
    X = pooled(rows)
    centers = lloyd(X, X[np.random.default_rng(seed).choice(len(X), k, replace=False)])
    return rows, X, centers, nearest(X, centers)


def asked(measure, rows, centers):
    federation, round_log = Simulation.from_rows(rows), RoundLog()
    value = run_protocol(measure(federation.sites, centers), federation, round_log=round_log)
    assert round_log.exchanges == 1
    return value


def test_by_hand():
    rows = {"a": np.array([[0.0], [2.0]]), "b": np.array([[10.0], [12.0]])}
    centers = np.array([[1.0], [11.0]])
    assert asked(metrics.inertia, rows, centers) == 4.0
    # distances 1 to the own and 11, 9, 9, 11 to the other centre
    assert asked(metrics.simplified_silhouette, rows, centers) == pytest.approx((10 / 11 + 8 / 9) / 2)
    assert asked(metrics.davies_bouldin, rows, centers) == pytest.approx((1 + 1) / 10)
    assert asked(metrics.calinski_harabasz, rows, centers) == pytest.approx(100 * 2 / 4)


@pytest.mark.parametrize("seed", range(6))
def test_law_20_federated_inertia_equals_pooled(seed):
    rows, X, centers, _ = case(seed)
    for C in (centers, centers + 0.7, centers[:1]):
        assert asked(metrics.inertia, rows, C) == pytest.approx(inertia_of(X, C), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_davies_bouldin_equals_scikit_learn(seed):
    rows, X, centers, labels = case(seed)
    assert asked(metrics.davies_bouldin, rows, centers) == pytest.approx(sk.davies_bouldin_score(X, labels))


@pytest.mark.parametrize("seed", range(6))
def test_calinski_harabasz_equals_scikit_learn_wherever_the_centres_are(seed):
    rows, X, centers, _ = case(seed)
    for C in (centers, centers + 0.5):
        expected = sk.calinski_harabasz_score(X, nearest(X, C))
        assert asked(metrics.calinski_harabasz, rows, C) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(6))
def test_simplified_silhouette_equals_its_definition(seed):
    rows, X, centers, _ = case(seed)
    distances = np.sort(np.sqrt(((X[:, None] - centers) ** 2).sum(axis=2)), axis=1)
    expected = ((distances[:, 1] - distances[:, 0]) / distances[:, 1]).mean()
    assert asked(metrics.simplified_silhouette, rows, centers) == pytest.approx(expected)


def test_a_centre_without_rows_is_not_a_cluster():
    rows, X, centers, labels = case(0)
    more = np.vstack([centers, [[1e4] * 3]])
    assert asked(metrics.davies_bouldin, rows, more) == pytest.approx(sk.davies_bouldin_score(X, labels))
    assert asked(metrics.calinski_harabasz, rows, more) == pytest.approx(
        sk.calinski_harabasz_score(X, labels)
    )


@pytest.mark.parametrize("measure", [metrics.davies_bouldin, metrics.calinski_harabasz])
def test_one_cluster_is_too_few(measure):
    rows = case(0)[0]
    with pytest.raises(InputError, match="needs at least 2 clusters with rows, got 1"):
        asked(measure, rows, np.array([[0.0] * 3, [1e4] * 3]))


# ---------------------------------------------------------------- with all rows at hand


def test_majority_accuracy_by_hand():
    truth, labels = np.array(["x", "x", "y", "y", "z"]), np.array([0, 0, 0, 1, 1])
    assert metrics.majority_accuracy(truth, labels) == pytest.approx((2 + 1) / 5)
    assert metrics.majority_accuracy(truth, np.arange(5)) == 1.0  # many clusters to one label
    with pytest.raises(InputError, match="5 true labels for 4 labels"):
        metrics.majority_accuracy(truth, labels[:4])


def test_evaluate_agrees_with_scikit_learn():
    _, X, _, labels = case(2)
    truth = np.random.default_rng(0).integers(3, size=len(X))
    result = metrics.evaluate(X, labels, truth)
    assert result["silhouette"] == pytest.approx(sk.silhouette_score(X, labels))
    assert result["davies_bouldin"] == pytest.approx(sk.davies_bouldin_score(X, labels))
    assert result["calinski_harabasz"] == pytest.approx(sk.calinski_harabasz_score(X, labels))
    assert result["ari"] == pytest.approx(sk.adjusted_rand_score(truth, labels))
    assert result["v_measure"] == pytest.approx(sk.v_measure_score(truth, labels))
    assert result["majority_accuracy"] == pytest.approx(metrics.majority_accuracy(truth, labels))
    assert set(metrics.evaluate(X, labels)) == {"silhouette", "davies_bouldin", "calinski_harabasz"}


def test_evaluate_of_one_cluster_leaves_out_what_is_not_defined():
    assert metrics.evaluate(np.ones((4, 1)), np.zeros(4)) == {}


# ---------------------------------------------------------------- fuzzy


def fuzzy_case(seed: int, m: float):
    """Rows over sites, centres, and their memberships and distances by the textbook."""
    rows, X, centers, _ = case(seed)
    distance = np.sqrt(((X[:, None] - centers[None] - 0.3) ** 2).sum(axis=2))
    u = distance ** (-2 / (m - 1)) / (distance ** (-2 / (m - 1))).sum(axis=1, keepdims=True)
    return rows, centers + 0.3, u, distance


@pytest.mark.parametrize("m", [2.0, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_fuzzy_indices_equal_their_definitions(seed, m):
    rows, centers, u, distance = fuzzy_case(seed, m)
    gaps = np.sqrt(((centers[:, None] - centers[None]) ** 2).sum(axis=2)) + np.diag([np.inf] * len(centers))

    def found(measure):
        return asked(lambda sites, C: measure(sites, C, m), rows, centers)

    assert found(metrics.partition_coefficient) == pytest.approx((u**2).sum() / len(u))
    assert found(metrics.xie_beni) == pytest.approx((u**m * distance**2).sum() / len(u) / gaps.min() ** 2)
    width = (u**m * distance).sum(axis=0) / (u**m).sum(axis=0)
    expected = np.mean(
        [max((width[i] + width[j]) / gaps[i, j] for j in range(4) if j != i) for i in range(4)]
    )
    assert found(metrics.fuzzy_davies_bouldin) == pytest.approx(expected)


def test_fuzzy_indices_of_crisp_memberships():
    """As m tends to 1 the fuzzy Davies-Bouldin becomes the plain one, and the partition is certain."""
    rows, _, centers, _ = case(2)
    crisp = asked(lambda s, C: metrics.fuzzy_davies_bouldin(s, C, 1 + 1e-6), rows, centers)
    assert crisp == pytest.approx(asked(metrics.davies_bouldin, rows, centers))
    assert asked(lambda s, C: metrics.partition_coefficient(s, C, 1 + 1e-6), rows, centers) == pytest.approx(
        1
    )
    assert asked(lambda s, C: metrics.partition_coefficient(s, C, 1e6), rows, centers) == pytest.approx(1 / 4)


def test_fuzzy_indices_name_the_right_k():
    """Usable by the choice of k: four clear clusters."""
    from unpooled.algorithms import Fuzzy
    from unpooled.protocol import run

    rng = np.random.default_rng(0)
    X = np.concatenate([c + rng.normal(size=(60, 2)) for c in [(0, 0), (12, 0), (0, 12), (12, 12)]])
    federation = Simulation.from_rows(split(X, 3))
    scores = {}
    for k in (2, 3, 4, 5, 6):
        centers = run(Fuzzy(k=k), federation, seed=0).state.centers
        scores[k] = [
            sign * run_protocol(index(federation.sites, centers), federation)
            for sign, index in (
                (-1, metrics.partition_coefficient),
                (1, metrics.xie_beni),
                (1, metrics.fuzzy_davies_bouldin),
            )
        ]
    assert [min(scores, key=lambda k: scores[k][i]) for i in range(3)] == [4, 4, 4]


def test_an_index_of_one_cluster_is_refused():
    for index in (metrics.xie_beni, metrics.fuzzy_davies_bouldin):
        with pytest.raises(InputError, match="needs at least 2 clusters with rows, got 1"):
            asked(index, {"a": np.zeros((4, 1))}, np.ones((1, 1)))


def test_borderline_rows_by_hand_and_suppressed():
    rows = {"a": np.array([[0.0], [1.0], [5.0], [5.1]]), "b": np.array([[9.0], [10.0]])}
    centers = np.array([[0.0], [10.0]])
    federation = Simulation.from_rows(rows)
    result = run_protocol(metrics.borderline(federation.sites, centers), federation)
    assert (result["a"].clear.tolist(), result["a"].borderline.tolist()) == ([2, 0], [1, 1])
    assert (result["b"].clear.tolist(), result["b"].borderline.tolist()) == ([0, 2], [0, 0])
    assert (result["a"] + result["b"]).share.tolist() == pytest.approx([1 / 3, 1 / 3])
    federation = Simulation.from_rows(rows, min_cluster_size=2)
    result = run_protocol(metrics.borderline(federation.sites, centers), federation)
    assert (result["a"].clear.tolist(), result["a"].borderline.tolist()) == ([2, 0], [0, 0])
    assert np.isnan(result["a"].share[1])


def test_sse_and_gaps_of_the_paper():
    X, centers = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 2.0]]), np.array([[0.0, 0.0], [3.0, 4.0]])
    assert metrics.within_sse(X, centers) == pytest.approx(2 / 6)
    assert metrics.outside_sse(X, centers) == pytest.approx((5 + 5 + np.sqrt(13)) / 6)
    true = np.array([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0]])
    found = np.array([[20.0, 1.0], [0.0, 0.0], [1.0, 0.0]])  # one true centre missed
    assert metrics.nearest_gap(found, true) == pytest.approx(2.0)
    assert metrics.knowledge_gap(found, true) == pytest.approx(1.0 + 9.0)
    assert metrics.knowledge_gap(true[[2, 0, 1]], true) == 0
    with pytest.raises(InputError, match="2 centres found, 3 true ones"):
        metrics.knowledge_gap(found[:2], true)
