"""All methods side by side: the data, the measurements of a run, and the output."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from tests.optimality.hard_rows import problem as hard_problem
from tests.optimality.rational import optimum as true_optimum

from unpooled.app import compare
from unpooled.app.compare import Problem
from unpooled.app.compare.comparison_table import notes, reconstructed
from unpooled.app.compare.inertia_bound import lower_bound, principal_bound
from unpooled.app.compare.measure import MethodRun, run_method
from unpooled.data.readers import Reading
from unpooled.errors import InputError
from unpooled.optimality.exact import exact_kmeans


@pytest.fixture(scope="module")
def problem():
    X, y = make_blobs(90, centers=3, cluster_std=1.5, random_state=4)
    return compare.split_of(Problem("blobs", X, 3, y.astype(np.int64)), "iid", sites=3)


@pytest.fixture(scope="module")
def measured(problem):
    return compare.compare(problem, methods=("lloyd", "k-fed", "ewf"), seconds=0.5, questions=80)


def test_every_method_under_every_protection(problem, measured):
    done = {(r.method, r.protection): r for r in measured.runs}
    assert len(done) == 3 * 4
    pooled = KMeans(3, n_init=10, random_state=0).fit(problem.X).inertia_
    assert measured.pooled == pytest.approx(pooled, rel=1e-6)
    assert done["lloyd", "none"].inertia == pytest.approx(pooled, rel=1e-6)
    assert done["k-fed", "none"].exchanges < done["lloyd", "none"].exchanges
    assert done["ewf", "dp"].not_run == "has no differentially private variant"
    assert measured.bound <= measured.best <= min(r.inertia for r in measured.runs if not r.not_run)


def test_rows_are_reconstructed_without_protection_and_not_from_summary_tables(problem, measured):
    hits = {(r.method, r.protection): r.reconstructed for r in measured.runs}
    assert hits["lloyd", "none"] > len(problem.X) / 2
    assert all(hits[method, "summary"] == 0 for method in ("lloyd", "k-fed", "ewf"))
    assert measured.actively_reconstructed["none"] > 0
    assert measured.actively_reconstructed["summary"] == measured.actively_reconstructed["dp"] == 0


def test_the_attack_reads_one_step_of_dwf_and_sums_with_noise(problem, measured):
    """A move of n rows is their sum; noise is read as if there were none, and no row follows."""
    dwf, _ = run_method(problem, "dwf", "none", 0)
    assert dwf.examined == dwf.messages
    assert dwf.reconstructed > len(problem.X) / 2
    noisy = next(r for r in measured.runs if (r.method, r.protection) == ("lloyd", "dp"))
    assert noisy.reconstructed == 0 < noisy.examined < noisy.messages


def test_a_row_that_is_sent_as_a_centre_counts():
    """One row of a site is far from all others: as published, EWF's site sends it as its own centre."""
    X = np.random.default_rng(0).standard_normal((40, 2))
    X[0] = [50.0, 50.0]
    far = Problem("far", X, 2, site=np.repeat(["east", "west"], 20))
    (ewf, _), (fkm, _) = (run_method(far, f"{name}:published", "none", 0) for name in ("ewf", "fkm"))
    assert ewf.reconstructed >= 1
    assert ewf.examined < ewf.messages
    assert fkm.reconstructed == 0  # it discloses no mean of fewer than two rows
    assert run_method(far, "ewf:published", "summary", 0)[0].reconstructed == 0
    with pytest.raises(InputError, match=r"lloyd has no published settings\. Use lloyd without :published\."):
        run_method(far, "lloyd:published", "none", 0)


def test_no_run_from_summary_tables_is_below_the_ceiling(measured):
    reached = [r.inertia for r in measured.runs if r.protection == "summary"]
    assert measured.best <= measured.ceiling["summary"] <= min(reached)
    assert measured.ceiling["none"] == measured.ceiling["raw"] == measured.best
    assert np.isnan(measured.ceiling["dp"])


def test_the_same_seed_gives_the_same_run(problem, measured):
    (again, _), first = run_method(problem, "lloyd", "raw", 0), measured.runs[6]
    assert replace(again, seconds=0.0) == replace(first, seconds=0.0)


def test_the_share_of_messages_that_the_attack_reads_is_reported(measured):
    every = MethodRun("a", "none", 0, reconstructed=7, messages=10, examined=10)
    part = MethodRun("a", "none", 0, reconstructed=7, messages=10, examined=4)
    assert reconstructed(measured, [every]) == "7 of 90"
    assert reconstructed(measured, [part]) == "7 of 90, reads 40%"
    assert reconstructed(measured, [replace(part, examined=0)]) == "not examined"


def test_table_notes_json_and_figure(measured):
    head, *lines = compare.table(measured)
    assert {len(line) for line in lines} == {len(head)}
    assert [line[1] for line in lines] == ["none"] * 3 + ["summary"] * 3 + ["raw"] * 3 + ["dp"]
    first = [float(line[2]) for line in lines[:3]]
    assert first == sorted(first)
    assert "an active attacker" in " ".join(notes(measured))
    assert "Not run: k-fed, ewf: has no differentially private variant (dp)." in notes(measured)
    (content,) = json.loads(json.dumps(compare.to_json([measured]), allow_nan=False))
    assert content["problem"] == "blobs"
    assert len(content["runs"]) == 12
    assert content["ceiling"]["dp"] is None
    svg = compare.figure(measured)
    assert svg.startswith("<svg")
    assert svg.count("<circle") == 10 + 4  # four in the legend


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_of_few_rows_is_the_optimum(seed):
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(8, 16)), int(rng.integers(1, 5)), int(rng.integers(2, 4))
    X = rng.standard_normal((n, d)) * rng.uniform(0.1, 3, d)
    optimum = exact_kmeans(X, k)
    centers, bound = lower_bound(X, k, X[:k], 5.0)
    assert bound == pytest.approx(optimum.inertia, rel=1e-6)
    assert centers.shape == (k, d)


def test_no_clustering_is_below_the_bound():
    """Against every partition in exact arithmetic: far groups were bounded above their optimum."""
    positive: set[str] = set()
    for number in range(120):
        p = hard_problem(number)
        best = true_optimum(p.X.tolist(), p.k)
        principal = principal_bound(p.X, p.k)
        assert Fraction(principal) <= best, p.family
        with np.errstate(over="ignore"):
            if len(p.X) * np.square(np.ptp(p.X, axis=0)).sum() < 1e300:
                assert Fraction(lower_bound(p.X, p.k, p.X[: p.k], 1.0)[1]) <= best, p.family
        positive |= {p.family} if principal > 0 else set()
    assert len(positive) > 5


@pytest.mark.parametrize("far", [1e4, 1e7, 1e8, 1e9])
def test_far_groups_are_not_bounded_above_their_optimum(far):
    for seed in range(5):
        X = np.random.default_rng(seed).standard_normal((30, 2))
        X[15:] += far
        best = exact_kmeans(X, 2)
        assert best.proved
        bound = lower_bound(X, 2, best.centers, 1.0)[1]
        assert principal_bound(X, 2) <= best.inertia
        assert best.inertia * (1 - 1e-8) <= bound <= best.inertia


def test_many_rows_and_more_clusters_than_columns_have_a_bound_too():
    X = np.random.default_rng(0).uniform(size=(200, 2))
    centers = KMeans(4, n_init=3, random_state=0).fit(X)
    assert principal_bound(X, 4) == 0.0
    assert 0.9 * centers.inertia_ < lower_bound(X, 4, centers.cluster_centers_, 1.0)[1] <= centers.inertia_
    wide = np.random.default_rng(0).normal(size=(200, 70))  # more columns than parts are bounded in
    assert 0 < lower_bound(wide, 3, wide[:3], 1.0)[1] < KMeans(3, n_init=1, random_state=0).fit(wide).inertia_


# ---------------------------------------------------------------- data


def test_own_files_with_labels(tmp_path):
    for name, species in (("north", "abba"), ("south", "ba")):
        rows = [f"{i},{10 * (s == 'b') + i},{s}" for i, s in enumerate(species)]
        (tmp_path / f"{name}.csv").write_text("x,y,kind\n" + "\n".join(rows) + "\n")
    problem = compare.from_files(
        [tmp_path / "north.csv", tmp_path / "south.csv"], 2, reading=Reading(), label="kind"
    )
    assert problem.X.shape == (6, 2)  # the label is not clustered
    assert problem.y.tolist() == [0, 1, 1, 0, 1, 0]
    assert {name: len(rows) for name, rows in problem.sites().items()} == {"north": 4, "south": 2}
    np.testing.assert_allclose([problem.X.mean(axis=0), problem.X.std(axis=0)], [[0, 0], [1, 1]], atol=1e-12)
    again = compare.split_of(problem, "iid", sites=3)
    assert [len(rows) for rows in again.sites().values()] == [2, 2, 2]


@pytest.mark.parametrize("name", [name for name in compare.SUITES if name != "debian"])
def test_a_suite_is_the_same_every_time(name):
    first, second = compare.suite(name), compare.suite(name)
    assert [p.name for p in first] == [p.name for p in second]
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.X, b.X)
        assert np.isfinite(a.X).all()
        assert a.k <= len(np.unique(a.y)) or name == "images"


def test_a_data_folder_adds_sets(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (50, 784)).astype(np.uint8)
    np.savez(tmp_path / "mnist.npz", X=pixels, y=np.arange(50) % 10)
    assert [p.name for p in compare.suite("images", data=tmp_path)] == ["digits", "mnist"]
    (tmp_path / "none").mkdir()
    for name, where, message in (
        ("tabular", tmp_path, r"The suite tabular reads no data folder\. Only these suites do: images \("),
        ("images", tmp_path / "none", r"no file is named \*mnist\*\.npz\. The suite images reads"),
        ("images", tmp_path / "nowhere", r"there is no such folder\. Check the path\."),
    ):
        with pytest.raises(InputError, match=message):
            compare.suite(name, data=where)


def test_heart_disease_is_at_its_hospitals():
    heart = compare.suite("tabular")[-1]
    assert heart.name == "heart disease"
    assert len(heart.sites()) > 1
    assert sum(map(len, heart.sites().values())) == len(heart.X) > 600
    assert set(np.unique(heart.y)) == {0, 1}


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda p: compare.split_of(p, "halves"), r"There is no split 'halves'\. Use one of iid, "),
        (
            lambda p: compare.split_of(p, "dirichlet:much"),
            r"'much' is not a number\. Write, for example, dirichlet:0\.3\.",
        ),
        (lambda p: compare.split_of(replace(p, y=None), "shards"), "needs labels, and there are none"),
        (
            lambda p: compare.suite("sounds"),
            r"There is no suite 'sounds'\. Use shapes, .* or a folder of tables\.",
        ),
        (lambda p: replace(p, site=None).sites(), "the rows are not divided over sites"),
        (lambda p: replace(p, k=91), r"k must be from 1 to 90, the number of its rows\. It is 91\."),
    ],
)
def test_bad_input(problem, act, message):
    with pytest.raises(InputError, match=message):
        act(problem)
