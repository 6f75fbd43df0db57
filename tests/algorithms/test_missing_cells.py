"""Lloyd over the cells that there are: by hand, equal to pooling, never rising, and k-POD's own form."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import blobs, rounds
from unpooled.algorithms import METHODS, Lloyd
from unpooled.data import PreparationOptions, Table, agree_schema
from unpooled.data.bounded_table import BoundedTable
from unpooled.data.missing_values import PreparationWithMissing
from unpooled.data.transforms import Category, Number
from unpooled.errors import InputError, QueryRefusedError, UnpooledError
from unpooled.evaluation import Analysis
from unpooled.federation import LocalFederation, Simulation
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.protocol import run
from unpooled.protocol.algorithm import Algorithm, total, transformed
from unpooled.protocol.exchange import run_protocol
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskScatter
from unpooled.protocol.questions.description import AskBorders, AskCrossing, AskOutline
from unpooled.protocol.questions.sums_with_missing import (
    AskObservedCovariance,
    AskObservedMoments,
    AskObservedProfile,
    AskObservedSums,
)
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

NAN = np.nan


def with_missing_cells(seed: int, n: int = 150, d: int = 4, k: int = 3, share: float = 0.3):
    rng = np.random.default_rng(seed)
    X, labels = blobs(seed, n=n, d=d, k=k, spread=1.0)[:2]
    X = np.where(rng.random(X.shape) < share, NAN, X)
    X[np.isnan(X).all(axis=1), 0] = 1.0
    return X, labels


def transform(d: int) -> PreparationWithMissing:
    return PreparationWithMissing(tuple(Number(f"c{j}", 0.0, 0.0, 1.0) for j in range(d)), False)


def named(X) -> Table:
    return Table(
        tuple(f"c{j}" for j in range(X.shape[1])), ("number",) * X.shape[1], {}, np.asarray(X, dtype=float)
    )


def sites_of(X, parts: int = 3, seed: int = 0, kind=Simulation, **options):
    site_of = np.random.default_rng(seed).integers(parts, size=len(X))
    return kind.from_rows({f"s{i}": named(X[site_of == i]) for i in range(parts)}, **options)


def asked(federation, question, d: int):
    return run_protocol(transformed(transform(d), total(federation.sites, question)), federation)


def pooled_step(X, centers, weights=None):
    """A Lloyd step on pooled rows, in the plainest numpy: centres, and the objective before the step."""
    w = np.ones(len(X)) if weights is None else weights
    away = np.nansum((X[:, None] - centers[None]) ** 2, axis=2)
    labels = away.argmin(axis=1)
    after = centers.copy()
    for j in range(len(centers)):
        mine, there = X[labels == j], ~np.isnan(X[labels == j])
        mass = (w[labels == j][:, None] * there).sum(axis=0)
        sums = np.nansum(w[labels == j][:, None] * mine, axis=0)
        after[j] = np.where(mass > 0, sums / np.where(mass > 0, mass, 1.0), centers[j])
    return after, float(w @ away[np.arange(len(X)), labels])


def test_by_hand():
    X = np.array([[0.0, NAN], [2.0, 4.0], [NAN, 6.0], [10.0, NAN]])
    sums = asked(sites_of(X, 2), AskObservedSums(np.array([[[1.0, 5.0], [11.0, 5.0]]])), 2)
    # rows 0, 1, 2 to the first centre (row 2 is as near to both), row 3 to the second
    assert sums.mass[0].tolist() == [3.0, 1.0]
    assert sums.known[0].tolist() == [[2.0, 2.0], [1.0, 0.0]]
    assert sums.means(np.array([[[1.0, 5.0], [11.0, 5.0]]]))[0].tolist() == [[1.0, 5.0], [10.0, 5.0]]
    assert sums.inertia[0].tolist() == [4.0, 1.0]


@pytest.mark.parametrize("kind", [Simulation, LocalFederation])
def test_every_round_equals_the_pooled_step_and_never_raises_the_objective(kind):
    for seed in range(12):
        X, _ = with_missing_cells(seed, d=2 + seed % 4, share=0.1 + 0.1 * (seed % 5))
        d, start = X.shape[1], np.random.default_rng(seed).normal(0, 5, (3, X.shape[1]))
        federation = sites_of(X, 1 + seed % 5, seed, kind)
        method = Lloyd(k=3, init=start, n_starts=1, tol=0.0).with_missing()
        centers, last = start, np.inf
        for state in rounds(_Viewed(method, transform(d)), federation, 8):
            if state.rounds == 0:
                continue
            expected, objective = pooled_step(X, centers)
            np.testing.assert_allclose(state.centers, expected, atol=1e-9)
            assert state.inertia == pytest.approx(objective, rel=1e-9)
            assert state.inertia <= last * (1 + 1e-12)
            centers, last = state.centers, state.inertia


class _Viewed(Algorithm):
    """A method whose questions read transformed rows."""

    def __init__(self, method, preparation):
        self.method, self.transform = method, preparation

    def start(self, sites, rng):
        return (yield from transformed(self.transform, self.method.start(sites, rng)))

    def round(self, state, sites, rng):
        return (yield from transformed(self.transform, self.method.round(state, sites, rng)))

    def finished(self, state):
        return False


def test_it_rests_where_k_pod_rests():
    """k-POD fills a missing cell with the centre of its cluster and takes plain means: same fixed points."""
    for seed in range(5):
        X, _ = with_missing_cells(seed)
        centers = np.random.default_rng(seed).normal(0, 5, (3, 4))
        for _ in range(100):
            centers, objective = pooled_step(X, centers)
        labels = np.nansum((X[:, None] - centers[None]) ** 2, axis=2).argmin(axis=1)
        filled = np.where(np.isnan(X), centers[labels], X)
        means = np.array(
            [filled[labels == j].mean(axis=0) if (labels == j).any() else centers[j] for j in range(3)]
        )
        np.testing.assert_allclose(means, centers, atol=1e-9)
        assert ((filled - centers[labels]) ** 2).sum() == pytest.approx(objective)


def test_any_split_secure_sums_and_weights_of_groups_give_the_pooled_result():
    for seed in range(6):
        X, _ = with_missing_cells(seed, n=120)
        analysis = Analysis(PreparationOptions(missing="keep"), (Lloyd(k=3, n_starts=3),))
        whole = run(analysis, Simulation.from_rows({"all": named(X)}), seed=seed).state
        parts = run(analysis, sites_of(X, 4, seed), seed=seed).state
        np.testing.assert_allclose(parts.centers, whole.centers, atol=1e-6)
        assert parts.inertia == pytest.approx(whole.inertia)
    secure = run(
        replace(analysis, aggregate_only=True),
        sites_of(X, 4, seed, LocalFederation, secure=True, allowed_in_clear=("AskSchema",)),
        seed=seed,
    ).state
    np.testing.assert_allclose(secure.centers, whole.centers, atol=1e-6)


def test_without_missing_values_it_is_lloyd():
    for seed in range(5):
        X = blobs(seed, n=150, d=3)[0]
        tables = {"a": named(X[:50]), "b": named(X[50:])}
        plain = run(
            Analysis(PreparationOptions(missing="fill"), (Lloyd(k=3),)), Simulation.from_rows(tables), seed=0
        ).state
        kept = run(
            Analysis(PreparationOptions(missing="keep"), (Lloyd(k=3),)), Simulation.from_rows(tables), seed=0
        ).state
        np.testing.assert_allclose(kept.centers, plain.centers, atol=1e-9)
        assert kept.choice.scores[0].border == pytest.approx(plain.choice.scores[0].border)
        assert kept.choice.scores[0].calinski_harabasz == pytest.approx(
            plain.choice.scores[0].calinski_harabasz
        )
        for name in ("silhouette", "davies_bouldin", "border", "total_inertia", "inertia"):
            assert getattr(kept.choice.scores[0], name) == pytest.approx(
                getattr(plain.choice.scores[0], name)
            )
        for name in ("means", "deviations", "clusters", "outlines", "sizes"):
            np.testing.assert_allclose(
                getattr(kept.description, name), getattr(plain.description, name), atol=1e-8
            )


def test_part_of_the_sites_a_round_counts_each_cell_by_what_it_has_seen():
    X, _ = with_missing_cells(3, n=400)
    method = Lloyd(k=3, participation=0.5, max_rounds=40).with_missing()
    done = run(Analysis(PreparationOptions(missing="keep"), (replace(method),)), sites_of(X, 8), seed=0).state
    assert np.isfinite(done.centers).all()


# ---------------------------------------------------------------- who keeps, who fills


def wide_table(share: float, n: int = 400) -> dict:
    X, _ = with_missing_cells(0, n=n, share=share)
    return {"a": named(X[:200]), "b": named(X[200:])}


@pytest.mark.parametrize(("share", "keeps"), [(0.0, False), (0.03, False), (0.08, True), (0.3, True)])
def test_by_default_many_missing_cells_are_kept_and_few_are_filled(share, keeps):
    there = Simulation.from_rows(wide_table(share))
    assert (
        run_protocol(agree_schema(there.sites, PreparationOptions()), there).preparation.keeps_missing
        is keeps
    )


def test_scales_are_of_the_cells_that_there_are():
    X, _ = with_missing_cells(0, n=400)
    categories = [None if v != v else "ab"[int(v > 0)] for v in X[:, 2]]
    table = Table.from_columns({"x": X[:, 0], "y": np.exp(X[:, 1] / 10), "c": categories})
    there = Simulation.from_rows({"a": table})
    agreement = run_protocol(
        agree_schema(("a",), PreparationOptions(missing="keep", scales=(("y", "log"),))), there
    )
    Z = agreement.preparation.apply(table)
    np.testing.assert_allclose(np.nanmean(Z[:, :2], axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(np.nanstd(Z[:, :2], axis=0), 1, atol=1e-9)
    assert np.nanvar(Z[:, 2:], axis=0).sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(np.isnan(Z[:, 0]), np.isnan(X[~np.isnan(X[:, :3]).all(axis=1), 0]))
    assert agreement.used == len(Z) == (~np.isnan(X[:, :3]).all(axis=1)).sum()


@pytest.mark.parametrize("name", [name for name in METHODS if name != "lloyd"])
def test_other_methods_refuse_by_name_and_fill_by_default(name):
    method = METHODS[name]
    if name == "private" or not method.__module__.startswith("unpooled."):
        return
    kept = Analysis(PreparationOptions(missing="keep"), (method(k=2).with_restarts(1),))
    with pytest.raises(
        InputError, match=f"--missing keep needs --method lloyd, got {name}. Use --missing fill"
    ):
        run(kept, Simulation.from_rows(wide_table(0.3)), seed=0)


def test_fuzzy_fills_by_default():
    state = run(
        Analysis(PreparationOptions(), (METHODS["fuzzy"](k=2, max_rounds=5).with_restarts(1),)),
        Simulation.from_rows(wide_table(0.3)),
        seed=0,
    ).state
    assert not state.agreement.preparation.keeps_missing


def test_a_question_that_does_not_support_missing_values_is_refused_by_name():
    X, _ = with_missing_cells(0)
    question = AskClusterSums(np.zeros((1, 2, 4)))
    for federation in (sites_of(X), sites_of(X, kind=LocalFederation)):
        with pytest.raises(UnpooledError, match="AskClusterSums cannot be answered where cells are missing"):
            asked(federation, question, 4)


# ---------------------------------------------------------------- columns that a site lacks


def test_a_site_that_lacks_columns_takes_part():
    X, _ = with_missing_cells(2, n=300, share=0.0)
    lacking = {"a": named(X[:150]), "b": Table.from_columns({"c1": X[150:, 1], "c3": X[150:, 3]})}
    incomplete = X.copy()
    incomplete[150:, [0, 2]] = NAN
    full = {"a": named(incomplete[:150]), "b": named(incomplete[150:])}
    ours = run(
        Analysis(PreparationOptions(columns="any"), (Lloyd(k=3),)), Simulation.from_rows(lacking), seed=0
    ).state
    theirs = run(Analysis(PreparationOptions(), (Lloyd(k=3),)), Simulation.from_rows(full), seed=0).state
    np.testing.assert_allclose(ours.centers, theirs.centers, rtol=1e-12)
    assert ours.agreement.missing.tolist() == [[0, 0, 0, 0], [150, 0, 150, 0]]
    assert any(
        "c0 at b: no value at all; rows there are compared" in text for text in ours.agreement.warnings
    )
    apart = run(
        Analysis(PreparationOptions(columns="any"), (Lloyd(k=3),)),
        LocalFederation.from_rows(lacking),
        seed=0,
    ).state
    np.testing.assert_array_equal(apart.centers, ours.centers)


# ---------------------------------------------------------------- protection


def test_a_cell_of_a_summary_table_counts_with_the_people_who_have_it_and_none_has_fewer_than_g():
    for seed in range(8):
        X, _ = with_missing_cells(seed, n=300, share=0.3)
        summary = microaggregate(named(X), SummarySettings(min_group_size=5))
        rows, weights, _ = transform(4).apply_weighted(summary, None, None)
        people, known = weights[:, 0], weights[:, :1] * weights[:, 1:]
        np.testing.assert_array_equal(np.isnan(rows), np.round(known) == 0)
        assert (np.round(known[known > 0.5]) >= 5).all()
        assert (known <= people[:, None] + 1e-9).all()
        sums = asked(Simulation.from_rows({"a": summary}), AskObservedSums(np.zeros((1, 1, 4))), 4)
        np.testing.assert_allclose(sums.known[0, 0], summary.known.sum(axis=0))
        means = [summary.known[:, j] @ summary.means[f"c{j}"] for j in range(4)]
        np.testing.assert_allclose(sums.sums[0, 0], means)


def test_a_group_of_a_summary_table_that_is_suppressed_is_left_out():
    X, _ = with_missing_cells(0, n=60, share=0.0)
    X[:20] = NAN
    X[:20, 0] = 100.0
    table = Table.from_columns({"c0": X[:, 0], "c1": X[:, 1]})
    only_second = PreparationWithMissing((Number("c1", 0.0, 0.0, 1.0),), False)
    rows, weights, _ = only_second.apply_weighted(
        microaggregate(table, SummarySettings(min_group_size=5)), None, None
    )
    assert len(rows) == len(weights)
    assert not np.isnan(rows).any()
    assert weights[:, 0].sum() <= 45


def test_a_raw_mode_site_suppresses_small_cells_of_cluster_and_column():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (30, 2)), rng.normal(20, 1, (30, 2)), rng.normal(-20, 1, (30, 2))])
    X[30:57, 1] = NAN  # of the second cluster 3 rows have the second column
    centers = np.array([[0.0, 0.0], [20.0, 20.0], [-20.0, -20.0]])
    federation = Simulation.from_rows({"a": named(X)}, min_cluster_size=5)
    sums = asked(federation, AskObservedSums(centers[None]), 2)
    assert sums.mass[0].tolist() == [30.0, 30.0, 30.0]
    known = sums.known[0]
    assert known[:, 0].tolist() == [30.0, 30.0, 30.0]
    assert known[1, 1] == 0.0 == sums.sums[0, 1, 1]
    assert sorted(known[:, 1].tolist()) == [0.0, 0.0, 30.0]  # and one more: else the 3 follow by subtraction
    profile = asked(federation, AskObservedProfile(centers), 2)
    assert profile.known.tolist() == known.tolist()
    # nor does a suppressed cell follow from the inertia
    np.testing.assert_allclose(sums.inertia[0], profile.squares.sum(axis=1))
    np.testing.assert_allclose(asked(federation, AskScatter(centers), 2).inertia, sums.inertia[0])
    X[0, 0] = NAN  # one row has the second column and lacks the first
    pairs = asked(
        Simulation.from_rows({"a": named(X)}, min_cluster_size=5), AskObservedCovariance(np.zeros(2)), 2
    )
    assert pairs.known[0, 1] == pairs.known[1, 0] == 0.0 == pairs.products[0, 1]
    X[30:57, 1], X[0, 0] = 0.0, 0.0
    few = X.copy()
    few[:88, 1] = NAN
    moments = asked(Simulation.from_rows({"a": named(few)}, min_cluster_size=5), AskObservedMoments(), 2)
    assert moments.known.tolist() == [90.0, 0.0]
    assert moments.sums[1] == 0.0


def test_a_real_site_answers_from_its_summary_table_with_missing_values_and_columns():
    X, _ = with_missing_cells(1, n=400)
    policy = parse(
        "format = 1\n[protect]\nmin_group_size = 5\nauto_approve = true\none_row_per_person = true\n"
        "no_sensitive_columns = true"
    )
    tables = {"a": named(X[:200]), "b": Table.from_columns({f"c{j}": X[200:, j] for j in (0, 1, 3)})}
    real = LocalFederation([open_site(name, table, policy) for name, table in tables.items()])
    summaries = Simulation.from_rows(
        {name: microaggregate(table, SummarySettings(min_group_size=5)) for name, table in tables.items()}
    )
    analysis = Analysis(PreparationOptions(columns="any"), (Lloyd(k=3),))
    ours, rehearsed = (run(analysis, there, seed=0).state for there in (real, summaries))
    np.testing.assert_array_equal(ours.centers, rehearsed.centers)
    assert ours.agreement.preparation.keeps_missing


def test_a_dp_site_refuses():
    declared = BoundedTable(("c0", "c1"), ("number", "number"), {}, np.zeros((9, 2)), 9)
    with pytest.raises(QueryRefusedError, match="fills missing values, or drops their rows"):
        transform(2).check(declared)


# ---------------------------------------------------------------- the figures of a report


def test_figures_with_missing_values_by_hand():
    X = np.array([[0.0, 1.0], [1.0, NAN], [NAN, 9.0], [10.0, 10.0]])
    centers = np.array([[0.0, 0.0], [10.0, 10.0]])
    there = sites_of(X, 2)
    scatter = asked(there, AskScatter(centers), 2)
    assert scatter.mass.tolist() == [2.0, 2.0]
    assert scatter.inertia.tolist() == [2.0, 1.0]
    a = np.array([1.0, 1.0])
    b = np.array([np.sqrt(181.0), 9.0])
    assert scatter.silhouette[0] == pytest.approx(((b - a) / b).sum())
    crossing = asked(there, AskCrossing(centers, centers[None, ::-1]), 2)
    assert crossing.counts[0].tolist() == [[0.0, 2.0], [2.0, 0.0]]
    outline = asked(there, AskOutline(np.eye(2), np.zeros(2), centers), 2)
    assert outline.sums.tolist() == [[1.0, 1.0], [20.0, 19.0]]  # a missing cell lies at its centre
    whole = asked(there, AskOutline(np.eye(2), np.array([5.0, 5.0])), 2)
    assert whole.sums.tolist() == [[-5.0 - 4.0 + 5.0, -4.0 + 4.0 + 5.0]]  # at the origin
    covariance = asked(there, AskObservedCovariance(np.zeros(2)), 2)
    assert covariance.known.tolist() == [[3.0, 2.0], [2.0, 3.0]]
    both = np.array([[0.0, 1.0], [10.0, 10.0]])
    assert covariance.matrix()[0, 1] == pytest.approx(np.cov(both.T, bias=True)[0, 1], rel=0.2)
    assert asked(there, AskBorders(centers), 2).counts.sum() == 4.0


def test_categories_with_missing_values():
    table = Table.from_columns({"x": [1.0, NAN, 3.0], "c": ["a", "b", None]})
    preparation = PreparationWithMissing(
        (Number("x", 0.0, 0.0, 1.0), Category("c", ("a", "b"), False, 0, 1.0)), False
    )
    np.testing.assert_array_equal(preparation.apply(table), [[1, 1, 0], [NAN, 0, 1], [3, NAN, NAN]])
