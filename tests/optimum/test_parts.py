"""The bound from parts of rows: valid in exact arithmetic, tight on usual rows, the same bits everywhere."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import blobs
from unpooled import FederatedKMeans, InProcess, SecureSums, certify, exact_kmeans
from unpooled.core.exchange import conduct
from unpooled.core.protocol import total
from unpooled.errors import BadInput, TooFewAnswers
from unpooled.kernels.exact_solver import available, budget_bound, deal
from unpooled.optimum.bounds import AskPartsBound, unit_for
from unpooled.optimum.certificate import percent_above
from unpooled.optimum.parts import EFFORTS, bound_by_parts
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
    federation = InProcess.of({"a": np.array([[0.0], [2.0], [10.0], [12.0]])})
    proof = certify(federation, [[1.0], [11.5]], effort="quick")
    assert proof.sentence == "No clustering into 2 groups can be more than 12 % better."
    assert 0.11 < proof.given_gap < 0.12
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
    federation = InProcess.of({"a": X[: n // 2], "b": X[n // 2 :]})
    proof = certify(federation, model.cluster_centers_, effort="quick")
    assert least * proof.inertia < proof.lower_bound <= proof.inertia
    assert proof.condition == "unconditional"


def test_it_is_never_above_the_optimum_of_some_rows():
    """Parts so small that many are made, and a search so short that it is stopped."""
    for seed in range(6):
        X = blobs(seed, n=40, d=2, k=3, spread=4.0)[0]
        best = exact_kmeans(X, 3)
        assert best.proved
        for effort in (TINY, EFFORTS["quick"]):
            assert 0 < bound_by_parts(X, best.centers, effort, np.ones(40)) <= best.inertia


def certified(rows, centers, **options):
    runtime = {name: options.pop(name) for name in ("secure", "fused", "weights") if name in options}
    return certify(InProcess.of(rows, **runtime), centers, **options)


def test_the_same_bits_in_every_runtime_and_from_weights():
    X = blobs(2, n=300, d=2, k=3, spread=3.0)[0]
    rows = {s: X[i::3] for i, s in enumerate("abc")}
    centers = FederatedKMeans(3, random_state=0).fit(rows).cluster_centers_
    proof = certified(rows, centers, effort="quick")
    for options in ({"fused": False}, {"secure": SecureSums()}):
        assert certified(rows, centers, effort="quick", **options).lower_bound == proof.lower_bound
    twice = certified(rows, centers, effort="quick", weights={s: np.full(100, 2.0) for s in "abc"})
    assert twice.lower_bound == pytest.approx(2 * proof.lower_bound, rel=1e-9)


def test_a_trusted_site_with_few_rows_adds_nothing():
    X = blobs(3, n=40, d=2, k=3, spread=3.0)[0]
    question = AskPartsBound(X[:3], "quick", unit_for(1.0))
    got = {}
    for least in (1, 5, 14):
        federation = InProcess.of({"a": X}, min_cluster_size=least)
        got[least] = conduct(total(federation.sites, question), federation)
    assert got[1].lower[0] == got[5].lower[0] > 0
    assert (got[14].lower[0], got[14].inertia[0], got[14].mass[0]) == (0.0, 0.0, 0.0)


class Silent:
    """A federation in which a site falls silent after some exchanges."""

    def __init__(self, inner, site, after):
        self.inner, self.site, self.left = inner, site, after
        self.sites = inner.sites

    def ask(self, turn, asks):
        self.left -= 1
        if self.left >= 0:
            return self.inner.ask(turn, asks)
        rest = tuple(s for s in self.sites if s != self.site)
        return self.inner.ask(turn, tuple(replace(ask, sites=rest) for ask in asks))


@pytest.mark.parametrize("after", [0, 1])
def test_after_a_dropout_it_says_for_whose_rows_it_holds(after):
    X = blobs(4, n=90, d=2, k=3, spread=3.0)[0]
    rows = {s: X[i::3] for i, s in enumerate("abc")}
    rest = {s: rows[s] for s in "ab"}
    centers = FederatedKMeans(3, random_state=0).fit(rest).cluster_centers_
    with pytest.raises(TooFewAnswers):
        certify(Silent(InProcess.of(rows), "c", after), centers)
    proof = certify(Silent(InProcess.of(rows), "c", after), centers, quorum=0.5)
    alone = certify(InProcess.of(rest), centers, effort="quick")
    assert (proof.sites, proof.missing) == (("a", "b"), ("c",))
    assert proof.sentence.endswith("better for the rows of a, b; c did not answer.")
    assert proof.given_inertia == pytest.approx(alone.given_inertia)
    assert proof.lower_bound <= alone.inertia


def test_bad_efforts_and_rows_beyond_float64_are_refused():
    federation = InProcess.of({"a": np.array([[0.0], [1.0], [2.0]])})
    with pytest.raises(BadInput, match="effort must be one of quick, normal, thorough, got 'slow'"):
        certify(federation, [[0.0], [1.0]], effort="slow")
    with pytest.raises(BadInput, match="beyond float64; scale them"):
        certify(InProcess.of({"a": np.array([[0.0], [1e150], [2e150]])}), [[0.0], [1.0]])


POLICIES = {
    "copy": "version = 2\n[protect]\nauto = true\ng = 5",
    "trusted": "version = 2\n[protect]\nmode = 'trusted'\nmin_cluster_size = 5",
    "noise": "version = 2\n[protect]\nmode = 'noise'\n[dp]\nepsilon_total = 1\n[domain]\nrows = 1000",
}


@pytest.mark.parametrize("mode", ["copy", "trusted"])
def test_real_sites_answer_under_their_policies(mode):
    X = blobs(5, n=400, d=2, k=3, spread=2.0)[0]
    sites = [open_site(s, X[i::3], parse(POLICIES[mode])) for i, s in enumerate("abc")]
    model = FederatedKMeans(3, random_state=0).fit_federation(InProcess(sites))
    proof = certify(InProcess(sites), model.cluster_centers_, effort="quick")
    assert 0.8 * proof.inertia < proof.lower_bound <= proof.inertia


def test_a_site_with_noise_refuses():
    X = blobs(5, n=400, d=2, k=3, spread=2.0)[0]
    federation = InProcess([open_site("a", X, parse(POLICIES["noise"]))])
    with pytest.raises(TooFewAnswers, match="the policy asks for differential privacy"):
        certify(federation, X[:3], effort="quick")
