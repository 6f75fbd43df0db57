"""The choice of k: right where k is known, and "no clusters" where there are none."""

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.cluster import KMeans

from helpers import bits
from unpooled.algorithms import Lloyd
from unpooled.data import PreparationOptions, Table
from unpooled.evaluation import Analysis
from unpooled.evaluation.choose_k import score
from unpooled.evaluation.replication import adjusted_rand, split_gains
from unpooled.federation import Simulation
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol import run
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import Part, Request, RequestId, RoundLog, run_protocol
from unpooled.protocol.questions.description import (
    AskBorders,
    AskCovariance,
    AskCrossing,
    AskOutline,
    AskProfile,
)
from unpooled.site import Site


def analysed(X, ks, seed=0, minimum=1, **preparation_options):
    rng = np.random.default_rng(seed)
    site = rng.integers(4, size=len(X))
    tables = {
        f"s{i}": Table.from_columns({f"x{j}": X[site == i, j] for j in range(X.shape[1])}) for i in range(4)
    }
    methods = tuple(Lloyd(k=k, min_cluster_size=minimum) for k in ks)
    return run(
        Analysis(PreparationOptions(**preparation_options), methods),
        Simulation.from_rows(tables, min_cluster_size=minimum),
        seed=seed,
    )


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
    assert ["simulated tables" in choice.support[0], "hold in the other half" in choice.support[1]] == [
        True
    ] * 2
    assert choice.judgement.replication.agreement > 0.9


def test_known_k_is_found_where_small_groups_are_suppressed():
    choice = analysed(groups(4, 3, 500, 5), range(2, 9), minimum=5).state.choice
    assert (choice.k, choice.clear) == (4, True), choice.reasons


def without_clusters(shape, seed):
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((800, 3))
    return {
        "uniform": rng.uniform(size=(800, 3)),
        "gaussian": normal,
        "stretched": normal @ rng.normal(size=(3, 3)),
        "exponential": rng.exponential(size=(800, 3)),
        "answers": rng.integers(2, size=(800, 10)).astype(float),
    }[shape]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("shape", ["uniform", "gaussian", "stretched", "exponential", "answers"])
def test_one_blob_has_no_clusters(shape, seed):
    state = analysed(without_clusters(shape, seed), range(2, 9), seed).state
    assert (state.choice.k, state.choice.clear, state.choice.none) == (1, False, True), state.choice.reasons
    assert state.description.centers.shape[0] == 1
    np.testing.assert_allclose(state.description.centers[0], state.mean)
    assert [s.k for s in state.choice.scores] == list(range(1, 9))  # k = 1 is compared, asked for or not


def test_k_from_one_on_finds_no_clusters_in_one_blob():
    choice = analysed(without_clusters("gaussian", 3), range(1, 9), 3).state.choice
    assert (choice.k, choice.none) == (1, True), choice.reasons
    both = [
        analysed(without_clusters("gaussian", 3), ks, 3).state.choice for ks in (range(1, 5), range(2, 5))
    ]
    assert both[0].judgements[1].replication.gain == pytest.approx(both[1].judgements[1].replication.gain)
    assert both[0].scores[0].inertia == pytest.approx(both[1].scores[0].inertia)


def test_no_k_with_empty_clusters_is_taken_and_none_is_described():
    places = np.array([[0.0, 0.0], [5.0, 1.0], [1.0, 5.0]])
    X = np.repeat(places, 40, axis=0)
    choice = analysed(X, range(2, 7)).state.choice
    assert choice.k == 3
    given = analysed(X, [5]).state
    assert given.choice.clear is False
    assert given.choice.verdict == "not judged"
    assert "2 of 5 clusters have no rows" in given.choice.reasons[0]
    assert sorted(given.description.sizes.sum(axis=0).tolist()) == [40, 40, 40]


def test_with_too_many_columns_for_a_covariance_no_k_is_judged():
    rows = np.random.default_rng(0).standard_normal((300, 201))
    choice = analysed(rows, range(2, 5)).state.choice
    assert (choice.verdict, choice.none, choice.clear) == ("not judged", False, False)
    assert choice.doubts == ("there are more than 200 columns",)
    silhouettes = [s.silhouette for s in choice.scores]
    assert choice.best == int(np.nanargmax(silhouettes))


def test_summary_tables_give_the_same_answer():
    X, blob = groups(4, 3, 900, 6), np.random.default_rng(6).standard_normal((900, 3))
    found = []
    for rows in (X, blob):
        tables = {f"s{i}": Table.from_columns({f"x{j}": rows[i::3, j] for j in range(3)}) for i in range(3)}
        summaries = Simulation.from_rows({name: microaggregate(table) for name, table in tables.items()})
        found.append(
            run(
                Analysis(PreparationOptions(), tuple(Lloyd(k=k) for k in range(2, 8))), summaries
            ).state.choice
        )
    assert [choice.k for choice in found] == [4, 1]
    assert [choice.clear for choice in found] == [True, False]


def test_where_sites_are_too_small_to_disclose_their_groups_no_k_is_clear():
    X = groups(5, 3, 3000, 2)
    tables = {f"s{i:03d}": Table.from_columns({f"x{j}": X[i::150, j] for j in range(3)}) for i in range(150)}
    methods = tuple(Lloyd(k=k, min_cluster_size=5) for k in range(2, 11))
    choice = run(
        Analysis(PreparationOptions(), methods), Simulation.from_rows(tables, min_cluster_size=5)
    ).state.choice
    assert not choice.clear
    assert any("not judged" in reason or "too small" in reason for reason in choice.reasons)


def test_a_given_k_is_kept_and_judged():
    choice = analysed(np.random.default_rng(0).uniform(size=(500, 2)), [4]).state.choice
    assert (choice.k, choice.clear, choice.votes) == (4, False, {})
    assert analysed(groups(3, 2, 300, 0), [3]).state.choice.clear


def test_every_k_shares_the_exchanges_of_one():
    X = groups(4, 3, 400, 3)
    one, many = analysed(X, [10]), analysed(X, range(2, 11))
    assert many.exchanges <= one.exchanges + 10  # only the slowest k counts
    per_site = max(numbers for numbers, _ in many.sent().values())
    assert per_site < 3 * max(numbers for numbers, _ in one.sent().values())


def test_scores_are_scikit_learns():
    X = groups(3, 2, 300, 0)
    fitted = KMeans(3, n_init=1, random_state=0).fit(X)
    there = Simulation.from_rows({"a": X[:100], "b": X[100:]})
    result = run_protocol(score(there.sites, fitted.cluster_centers_, np.zeros((0, 3, 2))), there)
    assert result.inertia == pytest.approx(fitted.inertia_)
    assert result.calinski_harabasz == pytest.approx(sk.calinski_harabasz_score(X, fitted.labels_))
    assert result.davies_bouldin == pytest.approx(sk.davies_bouldin_score(X, fitted.labels_))
    assert (result.stability, result.restarts) == (1.0, 0)


def test_stability_is_the_adjusted_rand_index_of_the_restarts():
    rng = np.random.default_rng(0)
    X, centers, others = rng.normal(size=(200, 2)), rng.normal(size=(3, 2)), rng.normal(size=(2, 3, 2))
    there = Simulation.from_rows({"a": X[:90], "b": X[90:]})
    round_log = RoundLog()
    result = run_protocol(score(there.sites, centers, others), there, round_log=round_log)

    def labels(c):
        return ((X[:, None] - c) ** 2).sum(axis=2).argmin(axis=1)

    expected = np.mean([sk.adjusted_rand_score(labels(centers), labels(o)) for o in others])
    assert result.stability == pytest.approx(expected)
    assert round_log.exchanges == 1


def test_adjusted_rand_of_counts():
    rng = np.random.default_rng(1)
    a, b = rng.integers(3, size=60), rng.integers(4, size=60)
    assert adjusted_rand(sk.cluster.contingency_matrix(a, b).astype(float)) == pytest.approx(
        sk.adjusted_rand_score(a, b)
    )


def test_gain_does_not_change_with_the_unit_of_all_columns_or_a_rotation():
    rng = np.random.default_rng(2)
    X, turn = groups(3, 4, 300, 2), rng.normal(size=(4, 4))
    labels = KMeans(3, n_init=3, random_state=0).fit(X).labels_
    shares, means = (
        np.bincount(labels) / 300,
        np.array([X[labels == j].mean(axis=0) for j in range(3)]),
    )
    covariance = np.cov(X.T, bias=True)
    scaled = split_gains(shares, 7.0 * means, 49.0 * covariance)
    assert split_gains(shares, means, covariance) == pytest.approx(scaled)
    orthogonal = np.linalg.qr(turn)[0]
    turned = split_gains(shares, means @ orthogonal, orthogonal.T @ covariance @ orthogonal)
    assert split_gains(shares, means, covariance) == pytest.approx(turned)


def test_borders_by_hand():
    """Centres at 0 and 8: a step is 1 wide, and the border is at 4."""
    X = np.array([-9.0, -2.0, -1.5, 0.5, 1.5, 3.9, 4.1, 8.0, 9.5])[:, None]
    weights = np.array([1.0, 1, 1, 1, 2, 1, 1, 1, 1])
    there = Simulation.from_rows({"a": X[:4], "b": X[4:]}, weights={"a": weights[:4], "b": weights[4:]})
    result = run_protocol(total(there.sites, AskBorders(np.array([[0.0], [8.0]]))), there)
    assert result.counts.tolist() == [[1, 2, 0, 1, 2, 0, 1], [0, 1, 0, 1, 0, 0, 1]]


@pytest.mark.parametrize("weighted", [False, True])
def test_figures_of_a_report_are_plain_sums_over_rows(weighted):
    """More rows than are worked on at once; and clusterings with nearly the same centres, and with others."""
    rng = np.random.default_rng(3)
    k, d, n = 6, 3, 12_000
    centers, axes, origin = rng.normal(0, 2, (k, d)), rng.normal(size=(d, 2)), np.full(d, 0.3)
    X = centers[rng.integers(k, size=n)] + rng.standard_normal((n, d)) + 1e4
    w = rng.integers(1, 5, size=n).astype(float) if weighted else np.ones(n)
    centers, origin = centers + 1e4, origin + 1e4
    orders = [rng.permutation(k) for _ in range(4)]
    others = np.stack([*(centers[order] + 0.004 * rng.normal(size=(k, d)) for order in orders), X[:k]])
    there = Simulation.from_rows({"a": X}, weights={"a": w} if weighted else None)

    def asked(question):
        return run_protocol(total(there.sites, question), there)

    def distances(places):
        return ((X[:, None] - places[None]) ** 2).sum(axis=2)

    away = distances(centers)
    own, other = away.argsort(axis=1)[:, :2].T
    member = w[:, None] * np.eye(k)[own]
    crossing = AskCrossing(centers, others)
    assert len(crossing._alike()) == 4
    for r, counts in enumerate(asked(crossing).counts):
        np.testing.assert_array_equal(counts, member.T @ np.eye(k)[distances(others[r]).argmin(axis=1)])
    gap = ((centers[own] - centers[other]) ** 2).sum(axis=1)
    way = 0.5 + (away[np.arange(n), own] - away[np.arange(n), other]) / (2 * gap)
    steps = np.eye(7)[np.clip(np.floor(8 * way) + 3, 0, 6).astype(int)]
    np.testing.assert_array_equal(asked(AskBorders(centers)).counts, member.T @ steps)
    profile, Z = asked(AskProfile(centers)), X - centers[own]
    np.testing.assert_allclose(profile.sums, member.T @ Z, rtol=1e-9)
    np.testing.assert_allclose(profile.squares, member.T @ Z**2, rtol=1e-9)
    covariance, Z = asked(AskCovariance(origin)), X - origin
    np.testing.assert_allclose(covariance.products, Z.T @ (w[:, None] * Z), rtol=1e-9)
    np.testing.assert_allclose(covariance.sums, w @ Z, rtol=1e-9)
    x, y = ((X - origin) @ axes).T
    for groups_of, places in ((member, centers), (w[:, None], None)):
        outline = asked(AskOutline(axes, origin, places))
        np.testing.assert_array_equal(outline.mass, groups_of.sum(axis=0))
        np.testing.assert_allclose(outline.sums, groups_of.T @ np.stack([x, y], 1), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(
            outline.products, groups_of.T @ np.stack([x * x, x * y, y * y], 1), rtol=1e-6, atol=1e-6
        )


def test_resumed_after_any_round_the_analysis_ends_with_the_same_bits(tmp_path):
    X = groups(3, 2, 200, 1)
    whole = analysed(X, range(2, 5)).state
    tables = {f"s{i}": Table.from_columns({"x0": X[i::4, 0], "x1": X[i::4, 1]}) for i in range(4)}
    there, job = (
        Simulation.from_rows(tables),
        Analysis(PreparationOptions(), tuple(Lloyd(k=k) for k in (2, 3, 4))),
    )
    straight = run(job, there, seed=7)
    path = tmp_path / "checkpoint"
    for _ in range(100):
        step = run(job, Simulation.from_rows(tables), seed=7, checkpoint=path, max_rounds=1)
        if step.finished:
            break
    assert bits(step.state) == bits(straight.state)
    assert whole.choice is not None


CENTERS = np.array([[0.0, 0.0], [8.0, 0.0]])


@pytest.mark.parametrize(
    ("question", "field"),
    [
        (AskBorders(CENTERS), "counts"),
        (AskProfile(CENTERS), "mass"),
        (AskOutline(np.eye(2), np.zeros(2), CENTERS), "mass"),
    ],
    ids=["borders", "profile", "outline"],
)
def test_a_raw_mode_site_counts_one_heavy_row_as_one(question, field):
    """A row of weight 10 alone in its cell is suppressed; ten rows of weight 1 are disclosed."""
    rows = np.vstack([np.zeros((20, 2)), [[8.0, 0.0]]])
    heavy = np.append(np.ones(20), 10.0)
    many = np.vstack([np.zeros((20, 2)), np.tile([[8.0, 0.0]], (10, 1))])
    disclosed = []
    for X, weights in ((rows, heavy), (many, None)):
        site = Site("a", X, weights, min_cluster_size=5)
        request = Request(RequestId("r", 0, 0, 0), (Part("total", question, None, 0),))
        disclosed.append(getattr(site.answer(request).replies[0], field).reshape(2, -1).sum(axis=1).tolist())
    assert disclosed[0][1] == 0.0
    assert disclosed[1] == [20.0, 10.0]


def test_the_covariance_of_a_raw_mode_site_is_not_that_of_one_heavy_row():
    site = Site("a", np.array([[8.0, 1.0], [0.0, 0.0]]), np.array([10.0, 0.01]), min_cluster_size=5)
    request = Request(RequestId("r", 0, 0, 0), (Part("total", AskCovariance(np.zeros(2)), None, 0),))
    assert not site.answer(request).replies[0].mass.any()
