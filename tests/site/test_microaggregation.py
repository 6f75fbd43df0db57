"""Microaggregation: groups of enough similar rows, made once, and nothing to be had but their means."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from helpers import ALGORITHMS, Recorder
from unpooled import InProcess, Lloyd, Site, kernels, run
from unpooled.core import codec
from unpooled.core.exchange import Envelope, Part, Turn
from unpooled.core.messages import Refusal
from unpooled.data import Table
from unpooled.data.views import Affine, Number, Preparation
from unpooled.errors import PolicyError
from unpooled.questions.clusters import AskClusterSums, AskMoments
from unpooled.site.audit.attack import on_log
from unpooled.site.ledger import Ledger
from unpooled.site.microaggregation import averaged, groups
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse


def rules(size=5, more=""):
    return parse(f"version = 1\n[disclosure]\ngroup_rows = {size}\n{more}")


def asked(site, question, number=0, view=None):
    (reply,) = site.answer(Envelope(Turn("run", 0, number, 0), (Part("total", question, view, 0),))).replies
    return reply


def test_four_pairs_by_hand():
    X = np.array([[0.0, 0], [9, 9], [0, 1], [9, 8], [5, 0], [0, 9], [5, 1], [1, 9]])
    labels = groups(X, 2)
    assert {frozenset(np.flatnonzero(labels == g).tolist()) for g in set(labels.tolist())} == {
        frozenset(pair) for pair in ((0, 2), (1, 3), (4, 6), (5, 7))
    }
    assert averaged(X, labels)[:2].tolist() == [[0.0, 0.5], [9.0, 8.5]]


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_large_enough_and_no_larger_than_need_be(seed):
    rng = np.random.default_rng(seed)
    least, n, d = int(rng.integers(2, 9)), int(rng.integers(1, 400)), int(rng.integers(1, 30))
    X = rng.normal(size=(n, d)) * rng.choice([0.0, 1.0, 1e6], size=d)
    if seed % 3 == 0:
        X = X[rng.integers(n, size=n)]  # rows that are the same
    sizes = np.bincount(groups(X, least))
    assert sizes.sum() == n
    assert sizes.max() < 2 * least
    assert n < least or sizes.min() >= least


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_stay_what_they_are(weighted):
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(90, 4)), rng.integers(9, size=90)
    w = rng.exponential(size=90) if weighted else np.ones(90)
    w[labels == 3] = 0
    blurred = averaged(X, labels, w)
    for g in range(9):
        mine = labels == g
        assert (blurred[mine] == blurred[mine][0]).all()
        np.testing.assert_allclose(w[mine] @ blurred[mine], w[mine] @ X[mine], atol=1e-12)
    assert np.isfinite(blurred).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_answers_depend_on_nothing_but_the_means_of_groups(name):
    """Rows that are changed within their groups, means kept: every reply of every method is the same."""
    rng = np.random.default_rng(4)
    X, _ = make_blobs(160, 2, centers=4, random_state=4)
    labels = groups(X, 5)
    moved = X.copy()
    for g in range(labels.max() + 1):
        mine = np.flatnonzero(labels == g)
        noise = rng.normal(size=(len(mine), 2))
        moved[mine] += noise - noise.mean(axis=0)

    def replies(rows):
        recorder = Recorder()
        sites = [
            Site(
                site,
                rows + shift,
                min_cluster_size=5,
                guards=[recorder],
                blur=lambda X, weights, chosen: averaged(X, labels, weights).round(9),
            )
            for site, shift in (("a", 0.0), ("b", 1.0), ("c", -1.0))
        ]
        run(ALGORITHMS[name](min_cluster_size=5), InProcess(sites), seed=2)
        return [codec.encode(reply) for _, reply in recorder.seen]

    found = replies(X)
    assert len(found) > 0
    assert found == replies(moved)


@pytest.mark.parametrize("seed", range(6))
def test_the_log_gives_no_row_away_and_the_result_is_close_to_pooling(seed, tmp_path):
    """Where it gives away some without groups, in all of these runs together."""
    X, _ = make_blobs(900, 2 + seed, centers=3, cluster_std=2.5, random_state=seed)
    rows = {name: X[i::3] for i, name in enumerate(("east", "north", "west"))}
    best = KMeans(3, n_init=10, random_state=0).fit(X).inertia_
    found = {}
    for size in (0, 5):
        sites = [open_site(s, x, rules(size), folder=tmp_path / f"{s}-{size}") for s, x in rows.items()]
        centers = run(Lloyd(k=3, min_cluster_size=5), InProcess(sites), seed=seed).state.centers
        assert kernels.nearest(X, centers).sqdist.sum() < 1.04 * best
        found[size] = sum(on_log(tmp_path / f"{s}-{size}" / "log.jsonl").hits(x) for s, x in rows.items())
        for site in sites:
            site.close()
    assert found[5] == 0
    assert found[0] > 0 or seed > 1  # in few columns there is always some


def test_groups_are_made_once_and_kept(tmp_path):
    """A restart, another scaling: the same groups; other rows: refused."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    question = AskClusterSums(rng.normal(size=(1, 4, 2)))
    site = open_site("a", X, rules(), folder=tmp_path)
    first = asked(site, question)
    kept = site._blur._ledger.groups()
    site.close()
    site = open_site("a", X, rules(), folder=tmp_path)
    again = asked(site, question, 1)
    np.testing.assert_array_equal(first.sums, again.sums)
    scaled = Affine(np.array([1.0, 0.0]), np.array([3.0, 0.01]))
    stretched = AskClusterSums((question.centers - scaled.shift) / scaled.scale)
    assert asked(site, stretched, 2, scaled).mass.sum() > 0
    assert site._blur._ledger.groups() == kept
    site.close()
    for rows, size in ((X[:55], 5), (X, 6)):
        site = open_site("a", rows, rules(size), folder=tmp_path)
        reply = asked(site, question, 3 + size + len(rows))
        assert isinstance(reply, Refusal)
        assert "made once: not of other rows, nor of another size" in reply.reason
        site.close()


def test_rows_of_a_table_are_grouped_as_they_are_chosen():
    """Incomplete rows dropped for one choice of columns and not for another: the second is refused."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=40), rng.normal(size=40)
    y[7] = np.nan
    site = open_site("a", Table.of({"x": x, "y": y}), rules())
    one, other = Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)
    reply = asked(site, AskMoments(), 0, Preparation((one,), drop=True))
    assert reply.mass[0] == 40
    both = Preparation((one, other), drop=True)
    assert isinstance(asked(site, AskMoments(), 1, both), Refusal)
    filled = Preparation((one, other), drop=False)
    assert asked(site, AskMoments(), 2, filled).mass[0] == 40


def test_a_group_is_the_least_that_is_shown():
    X = np.random.default_rng(0).normal(size=(30, 2))
    assert open_site("a", X, rules(8)).min_cluster_size == 8
    assert not open_site("a", X, rules(8)).plain
    assert Site("a", X, blur=lambda X, weights, chosen: X).plain is False


def test_noise_does_not_go_with_groups():
    with pytest.raises(PolicyError, match="group_rows does not go with"):
        rules(5, "[dp]\nepsilon_total = 1.0")
    with pytest.raises(PolicyError, match="group_rows must be 0, or at least 2, got 1"):
        rules(1)


def test_the_ledger_keeps_one_set_of_groups(tmp_path):
    ledger = Ledger(tmp_path / "ledger", "a")
    assert ledger.groups() is None
    ledger.keep_groups("these", b"12")
    assert ledger.groups() == ("these", b"12")
    with pytest.raises(Exception, match="UNIQUE"):
        ledger.keep_groups("those", b"34")
    assert ledger.groups() == ("these", b"12")
