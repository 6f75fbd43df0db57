"""The bound from parts of rows: valid in exact arithmetic, tight on usual rows, the same bits everywhere."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans

from helpers import blobs
from unpooled import FederatedKMeans, certify, exact_kmeans
from unpooled.errors import InputError, ReplyError, TooFewAnswersError
from unpooled.federation import LocalFederation, Simulation
from unpooled.kernels.exact_solver import available, budget_bound, deal
from unpooled.optimality.bounds import AskPartsBound, PartsBound, unit_for
from unpooled.optimality.certificate import percent_above, true_bound
from unpooled.optimality.parts import EFFORTS, bound_and_work, bound_by_parts
from unpooled.privacy import SecureSums
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import Federation, run_protocol
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

pytestmark = pytest.mark.skipif(not available(), reason="bounds need the compiled kernels")
TINY = EFFORTS["quick"]._replace(rows=4, rows_per_cluster=2, nodes=50, boxes=200)


def test_by_hand():
    """Four rows on a line: two parts of two rows and one centre each lose what lies between the parts."""
    X = np.array([[0.0], [2.0], [10.0], [12.0]])
    assert budget_bound(X, 2, np.array([0, 0, 1, 1]), goal=1e-9).lower == pytest.approx(4.0, abs=1e-6)
    assert budget_bound(X, 1, np.zeros(4), goal=1e-9).lower == pytest.approx(104.0, rel=1e-6)
    part = deal(X, 1, np.zeros(4), 2)
    assert [X[part == p].mean() for p in range(2)] == [6.0, 6.0]  # the mean of the whole
    centers, ones = np.array([[1.0], [11.0]]), np.ones(4)
    assert bound_by_parts(X, centers, EFFORTS["normal"], ones) == pytest.approx(4.0, rel=1e-3)
    assert bound_by_parts(X, centers, EFFORTS["normal"], 0.25 * ones) == pytest.approx(1.0, rel=1e-3)
    assert bound_by_parts(X, X, EFFORTS["normal"], ones) == 0.0


def test_the_sentence_rounds_to_the_safe_side():
    federation = Simulation.from_rows({"a": np.array([[0.0], [2.0], [10.0], [12.0]])})
    proof = certify(federation, [[1.0], [11.5]], effort="quick")
    assert proof.sentence == "No clustering into 2 groups can be more than 12% better."
    assert 0.11 < proof.input_gap < 0.12
    assert percent_above(0.0304) == "3.1"


def test_parts_look_like_the_whole():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(400, 3)), 8 + rng.normal(size=(203, 3))])
    labels = np.repeat([0, 1], [400, 203])
    part = deal(X, 2, labels, 6)
    assert np.ptp(np.bincount(part)) <= 1
    for j in range(2):
        whole = X[labels == j].mean(axis=0)
        for p in range(6):
            inside = (labels == j) & (part == p)
            assert abs(inside.sum() - (labels == j).sum() / 6) < 1
            assert np.abs(X[inside].mean(axis=0) - whole).max() < 0.03


@pytest.mark.parametrize(("n", "d", "k", "least"), [(1200, 2, 3, 0.97), (400, 4, 4, 0.9), (600, 2, 8, 0.7)])
def test_it_is_tight_where_clusters_overlap(n, d, k, least):
    X = blobs(1, n=n, d=d, k=k, spread=3.0)[0]
    model = FederatedKMeans(k, random_state=0).fit({"a": X[: n // 2], "b": X[n // 2 :]})
    federation = Simulation.from_rows({"a": X[: n // 2], "b": X[n // 2 :]})
    proof = certify(federation, model.cluster_centers_, effort="quick")
    raw = sum(
        bound_by_parts(X[half], model.cluster_centers_, EFFORTS["quick"], np.ones(n // 2))
        for half in (slice(n // 2), slice(n // 2, n))
    )
    assert least * proof.inertia < raw <= proof.inertia  # before anything could lower it
    assert proof.lower_bound == pytest.approx(raw, rel=1e-9)
    assert proof.condition == "unconditional"


def test_a_bound_above_the_inertia_is_not_passed_on():
    """It would be false: it is neither cut down to the inertia nor returned."""
    one, two, ten = np.array([1.0]), np.array([2.0]), np.array([10.0])
    assert true_bound(PartsBound(one, two, ten)) == 1.0
    assert true_bound(PartsBound(one * (2 + 1e-12), two, ten)) == pytest.approx(2.0)
    with pytest.raises(ReplyError, match=r"the sites' bounds sum up to 2\.1, above the inertia"):
        true_bound(PartsBound(one * 2.1, two, ten))


def test_work_is_limited_and_counted_the_same_way_every_time():
    """Rows whose parts no search ends: what is spent follows the limit, and so do bounds, bit for bit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8)) + rng.integers(3, size=(300, 1))
    centers, ones = X[:3], np.ones(300)
    result = {}
    for work in (3e8, 9e8, 3e8):
        effort = EFFORTS["normal"]._replace(work=work)
        bound, spent = bound_and_work(X, centers, effort, ones)
        assert result.setdefault(work, (bound, spent)) == (bound, spent)
        assert 0.5 * work < spent < 1.3 * work
    assert 0 < result[3e8][0] <= result[9e8][0]
    part = X[:100]
    columns = budget_bound(part, 3, np.arange(100) % 3, work=10**8)
    assert columns.work < 1.2e8
    assert not columns.converged


def test_centres_that_do_not_fit_a_site_cost_no_work():
    """Rows without groups: common centres are far from the best ones of 160 of them."""
    spent = 0.0
    for seed in range(3):
        X = np.random.default_rng(seed).uniform(size=(800, 2))
        common, own = (KMeans(8, n_init=10, random_state=0).fit(rows) for rows in (X, X[:160]))
        bound, work = bound_and_work(X[:160], common.cluster_centers_, EFFORTS["quick"], np.ones(160))
        assert 0.97 * own.inertia_ < bound <= own.inertia_ * (1 + 1e-9)
        spent += work
    assert spent < 8e8  # from the clustering by the common centres it is 1.1e9


def test_a_line_of_progress_counts_parts():
    X = blobs(1, n=400, d=2, k=3, spread=3.0)[0]
    lines = []
    certify(Simulation.from_rows({"a": X}), X[:3], effort="quick", report=lines.append)
    assert lines[0] == "every site bounds parts of its rows (quick)"
    counts = [line.split(" of ")[:2] for line in lines[1:]]
    assert len(counts) > 1
    assert [int(done) for done, _ in counts] == list(range(2, 2 + len(counts)))
    assert all(line.endswith("parts of a site's rows are bounded (quick)") for line in lines[1:])


def test_it_is_never_above_the_optimum_of_some_rows():
    """Parts so small that many are made, and a search so short that it is stopped."""
    for seed in range(6):
        X = blobs(seed, n=40, d=2, k=3, spread=4.0)[0]
        best = exact_kmeans(X, 3)
        assert best.proved
        for effort in (TINY, EFFORTS["quick"]):
            assert 0 < bound_by_parts(X, best.centers, effort, np.ones(40)) <= best.inertia


def certified(rows, centers, weights=None, **options):
    return certify(Simulation.from_rows(rows, weights), centers, **options)


def test_the_same_bits_in_every_runtime_and_from_weights():
    X = blobs(2, n=300, d=2, k=3, spread=3.0)[0]
    rows = {s: X[i::3] for i, s in enumerate("abc")}
    centers = FederatedKMeans(3, random_state=0).fit(rows).cluster_centers_
    proof = certified(rows, centers, effort="quick")
    for secure in (None, SecureSums()):
        federation = LocalFederation.from_rows(rows, secure=secure)
        assert certify(federation, centers, effort="quick").lower_bound == proof.lower_bound
    twice = certified(rows, centers, effort="quick", weights={s: np.full(100, 2.0) for s in "abc"})
    assert twice.lower_bound == pytest.approx(2 * proof.lower_bound, rel=1e-9)


def test_a_raw_mode_site_with_few_rows_adds_nothing():
    X = blobs(3, n=40, d=2, k=3, spread=3.0)[0]
    question = AskPartsBound(X[:3], "quick", unit_for(1.0))
    result = {}
    for least in (1, 5, 14):
        federation = Simulation.from_rows({"a": X}, min_cluster_size=least)
        result[least] = run_protocol(total(federation.sites, question), federation)
    assert result[1].lower[0] == result[5].lower[0] > 0
    assert (result[14].lower[0], result[14].inertia[0], result[14].mass[0]) == (0.0, 0.0, 0.0)


class Silent(Federation):
    """A federation in which a site falls silent after some exchanges."""

    def __init__(self, inner, site, after):
        self.inner, self.site, self.left = inner, site, after
        self.sites = inner.sites

    def ask(self, request_id, asks):
        self.left -= 1
        if self.left >= 0:
            return self.inner.ask(request_id, asks)
        rest = tuple(s for s in self.sites if s != self.site)
        return self.inner.ask(request_id, tuple(replace(ask, sites=rest) for ask in asks))


@pytest.mark.parametrize("after", [0, 1])
def test_after_a_dropout_it_says_for_whose_rows_it_holds(after):
    X = blobs(4, n=90, d=2, k=3, spread=3.0)[0]
    rows = {s: X[i::3] for i, s in enumerate("abc")}
    rest = {s: rows[s] for s in "ab"}
    centers = FederatedKMeans(3, random_state=0).fit(rest).cluster_centers_
    with pytest.raises(TooFewAnswersError):
        certify(Silent(Simulation.from_rows(rows), "c", after), centers)
    proof = certify(Silent(Simulation.from_rows(rows), "c", after), centers, quorum=0.5)
    alone = certify(Simulation.from_rows(rest), centers, effort="quick")
    assert (proof.sites, proof.missing) == (("a", "b"), ("c",))
    assert proof.sentence.endswith("better for the rows of a, b; c did not answer.")
    assert proof.input_inertia == pytest.approx(alone.input_inertia)
    assert proof.lower_bound <= alone.inertia


def test_bad_efforts_and_rows_beyond_float64_are_refused():
    federation = Simulation.from_rows({"a": np.array([[0.0], [1.0], [2.0]])})
    with pytest.raises(InputError, match="effort must be one of quick, normal, thorough, got 'slow'"):
        certify(federation, [[0.0], [1.0]], effort="slow")
    with pytest.raises(InputError, match=r"beyond float64\. Scale them"):
        certify(Simulation.from_rows({"a": np.array([[0.0], [1e150], [2e150]])}), [[0.0], [1.0]])
    for size in (1e153, 1e154, 1e300):  # the sum over sites is infinite, or that of a site, or a square
        huge = np.random.default_rng(0).normal(size=(200, 2)) * size
        rows = {f"s{i}": huge[i::10] for i in range(10)}
        for act in (
            lambda: certify(Simulation.from_rows(rows), huge[:3], effort="quick"),  # noqa: B023
            lambda: certify(LocalFederation.from_rows(rows), huge[:3], effort="quick"),  # noqa: B023
            lambda: bound_by_parts(1e3 * huge, huge[:3], TINY, np.ones(200)),  # noqa: B023
            lambda: exact_kmeans(huge, 3, time_limit=1.0),  # noqa: B023
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # one clear error, and nothing before it
                with pytest.raises(InputError, match=r"beyond float64\. Scale them"):
                    act()
    for centers, lines in (
        ([["a", "b"]], "centers must be numbers"),
        (np.zeros((0, 1)), r"at least one, got shape \(0, 1\)"),
        ([[0.0], [1.0, 2.0]], "centers must be numbers"),
    ):
        with pytest.raises(InputError, match=lines):
            certify(federation, centers)


POLICIES = {
    "summary": "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\n"
    "no_sensitive_columns = true\nmin_group_size = 5",
    "raw": "format = 1\n[protect]\nmode = 'raw'\nmin_cluster_size = 5",
    "dp": "format = 1\n[protect]\nmode = 'dp'\n[dp]\nepsilon_total = 1\n[domain]\nrows = 1000",
}


@pytest.mark.parametrize("mode", ["summary", "raw"])
def test_real_sites_answer_under_their_policies(mode):
    X = blobs(5, n=400, d=2, k=3, spread=2.0)[0]
    sites = [open_site(s, X[i::3], parse(POLICIES[mode])) for i, s in enumerate("abc")]
    model = FederatedKMeans(3, random_state=0).fit_federation(LocalFederation(sites))
    proof = certify(LocalFederation(sites), model.cluster_centers_, effort="quick")
    assert 0.8 * proof.inertia < proof.lower_bound <= proof.inertia


def test_a_dp_site_refuses():
    X = blobs(5, n=400, d=2, k=3, spread=2.0)[0]
    federation = LocalFederation([open_site("a", X, parse(POLICIES["dp"]))])
    with pytest.raises(TooFewAnswersError, match="the policy requires differential privacy"):
        certify(federation, X[:3], effort="quick")
