"""The attack on a log: what differences of groups give away, and what they do not."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from unpooled import FederatedKMeans
from unpooled.algorithms import Fuzzy, KFed, Lloyd
from unpooled.algorithms.scaled import Scaled
from unpooled.app.cli import app
from unpooled.app.pages.audit_page import protected
from unpooled.data import PreparationOptions, Table
from unpooled.data.transforms import Affine
from unpooled.evaluation.analysis import Analysis
from unpooled.federation import LocalFederation
from unpooled.privacy import Gaussian, SecureSums
from unpooled.protocol import run
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site.audit.attack import attack, on_log
from unpooled.site.audit.known_sums import CellDisclosures, Space, disclosed_in
from unpooled.site.audit.overview import read
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

NAMES = ("east", "north", "west")
RAW = parse('format = 1\n[protect]\nmode = "raw"')


def cells(X, centers):
    """What a site that hides nothing shows for these centres."""
    labels = ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    groups = [X[labels == j] for j in range(len(centers))]
    return CellDisclosures(
        centers,
        np.array([len(g) for g in groups], dtype=float),
        np.array([(g - c).sum(axis=0) for g, c in zip(groups, centers, strict=True)]),
        np.array([((g - c) ** 2).sum() for g, c in zip(groups, centers, strict=True)]),
    )


def found_in(*disclosed):
    return attack([Space(disclosed[0].points.shape[1], disclosed=list(disclosed))])


def logged(folder, X, algorithm, rules=None, seed=0, table=False):
    """The rows of three sites, and the logs of a run of theirs."""
    rows = {name: X[i::3] for i, name in enumerate(NAMES)}
    sites = [
        open_site(s, Table.from_columns(columns(x)) if table else x, rules or RAW, folder=folder / s)
        for s, x in rows.items()
    ]
    run(algorithm, LocalFederation(sites), seed=seed)
    for site in sites:
        site.close()
    return rows, {name: folder / name / "log.jsonl" for name in NAMES}


def columns(X):
    return {f"c{j}": [float(v) for v in X[:, j]] for j in range(X.shape[1])}


def exact(found, X):
    """(rows of X found to 1e-6, rows found that are none of X)."""
    if not len(found.rows):
        return 0, 0
    far = np.abs(found.rows[:, None] - X[None]).max(axis=2)
    return int((far.min(axis=0) < 1e-6).sum()), int((far.min(axis=1) >= 1e-6).sum())


# ---------------------------------------------------------------- by hand


def test_two_cells_that_differ_by_one_row():
    X = np.array([[0.0, 1], [1, 0], [2, 3], [8, 1], [9, 2]])
    first, second = (cells(X, np.array([[b - 5, 1.0], [b + 5, 1.0]])) for b in (1.5, 5.0))
    found = found_in(first, second)  # (2, 3) lies between the borders
    assert found.rows.tolist() == [[2.0, 3.0]]
    assert len(found.single) == 0
    assert found_in(first).rows.tolist() == found_in(first, first).rows.tolist() == []


def test_a_row_that_is_found_opens_the_next():
    """1.2 and 2.7 lie between the borders of 1 and 3, which show no row. By the third border 2.7 is known;
    without it the first two differ by 1.2."""
    X = np.array([[0.1], [0.5], [1.2], [2.7], [3.4], [4.8], [5.1]])
    at = {b: cells(X, np.array([[b - 9.0], [b + 9.0]])) for b in (1, 2, 3)}
    assert len(found_in(at[1], at[3]).rows) == 0
    np.testing.assert_allclose(np.sort(found_in(*at.values()).rows, axis=0), [[1.2], [2.7]], atol=1e-9)


def test_a_union_of_two_cells_less_a_third_is_a_row():
    X = np.array([[0.3], [1.1], [2.2], [5.2], [6.4], [7.7], [9.8], [10.1], [11.6]])
    three = cells(X, np.array([[1.0], [5.0], [10.0]]))  # borders at 3 and 7.5
    two = cells(X, np.array([[4.0], [12.0]]))  # border at 8: the first two cells and 7.7
    np.testing.assert_allclose(found_in(three, two).rows, [[7.7]], atol=1e-9)


def test_suppressed_cells_count_as_what_is_missing_from_the_total():
    X = np.array([[0.3], [1.1], [2.2], [5.2], [6.4], [7.7]])
    first, second = (cells(X, np.array([[b - 9.0], [b + 9.0]])) for b in (3.0, 6.0))
    suppressed = CellDisclosures(
        second.points, second.n * [1, 0], second.sums * [[1], [0]], second.squares * [1, 0]
    )
    assert len(found_in(first, suppressed).rows) == 1  # the first alone is the total: 5.2
    np.testing.assert_allclose(found_in(first, suppressed).rows, [[5.2]], atol=1e-9)


def test_a_cell_of_one_row_is_disclosed_alone():
    X = np.array([[0.3, 1.0], [1.1, 4.0], [9.2, 2.0]])
    found = found_in(cells(X, np.array([[0.0, 0.0], [9.0, 0.0]])))
    np.testing.assert_allclose(found.single, [[9.2, 2.0]], atol=1e-12)
    assert len(found.differences) == 0


def test_repeated_centres_which_fill_up_a_set_hold_no_rows():
    X = np.array([[0.3], [1.1], [2.2], [5.2], [6.4], [7.7]])
    disclosed = []
    for border in (3.0, 6.0):
        c = np.array([[border - 9], [border + 9], [border + 9]])
        question = AskClusterSums(c[None])
        reply = question.answer(SiteBatch(X, np.array([0, 6]), None, np.zeros(1, np.uint64)))
        disclosed.extend(disclosed_in(question, reply))
    np.testing.assert_allclose(found_in(*disclosed).rows, [[5.2]], atol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_rows_are_in_the_units_of_the_table_whatever_the_transform(offset, tmp_path):
    """One border under one scaling, another under another: a row found in one is subtracted in the other."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 2)) * [1, 5] + offset
    order = np.sort(X[:, 0])
    site = open_site("a", X, RAW, folder=tmp_path)
    number = 0
    for transform in (None, Affine(np.full(2, offset), np.array([2.0, 3.0]))):
        for i in (15, 16) if transform is None else (15, 17):
            border = np.array([(order[i - 1] + order[i]) / 2, offset])
            centers = border + np.array([[-5.0, 0.0], [5.0, 0.0]])
            question = AskClusterSums((centers if transform is None else transform.apply(centers))[None])
            site.answer(Request(RequestId("run", 0, number, 0), (Part("total", question, transform, 0),)))
            number += 1
    site.close()
    found = on_log(tmp_path / "log.jsonl")
    wanted = X[np.argsort(X[:, 0])[[15, 16]]]
    np.testing.assert_allclose(found.rows[np.argsort(found.rows[:, 0])], wanted, atol=1e-6)


# ---------------------------------------------------------------- whole runs


@pytest.mark.parametrize(("d", "least"), [(2, 150), pytest.param(5, 190, marks=pytest.mark.long)])
def test_a_scan_over_k_gives_most_rows_away(d, least, tmp_path):
    X, _ = make_blobs(600, d, centers=5, cluster_std=2.5, random_state=d)
    scan = Analysis(PreparationOptions(), tuple(Lloyd(k=k, min_cluster_size=5) for k in range(2, 11)))
    rows, logs = logged(tmp_path, X, scan, table=True)
    true, false = exact(on_log(logs["north"]), rows["north"])
    assert true >= least
    assert false == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_single_fit_in_two_columns(seed, tmp_path):
    X, _ = make_blobs(600, 2, centers=4, cluster_std=2.5, random_state=seed)
    rows, logs = logged(tmp_path, X, Scaled(Lloyd(k=4, min_cluster_size=5)), seed=seed)
    true, false = exact(on_log(logs["west"]), rows["west"])
    assert true >= 60
    assert false == 0


@pytest.mark.parametrize("seed", range(4))
def test_where_q_fits_by_chance_what_is_taken_for_a_row_is_one(seed, tmp_path):
    """Whole numbers from 0 to 9: x + y - z has Q = |S|^2 for every right angle at z."""
    X = np.random.default_rng(seed).integers(0, 10, size=(600, 3)).astype(float)
    rows, logs = logged(tmp_path, X, Lloyd(k=4, min_cluster_size=5), seed=seed)
    true, false = exact(on_log(logs["east"]), rows["east"])
    assert true > 0
    assert false == 0


# ---------------------------------------------------------------- what it finds nothing in


@pytest.mark.parametrize("method", [Fuzzy(k=3, min_cluster_size=5), KFed(k=3, min_cluster_size=5)])
def test_memberships_and_local_means_give_no_row(method, tmp_path):
    X, _ = make_blobs(300, 2, centers=3, random_state=1)
    rows, logs = logged(tmp_path, X, method)
    found = on_log(logs["east"])
    true, false = exact(found, rows["east"])
    assert false == 0
    assert true == 0 or isinstance(method, Fuzzy)  # fuzzy runs start from cells


def test_noise_gives_no_row(tmp_path):
    X, _ = make_blobs(9000, 2, centers=3, random_state=2)
    rules = parse("format = 1\n[protect]\nmode = 'dp'\n[dp]\nepsilon_total = 1\n[domain]\nrows = 3000")
    sites = [open_site(s, X[i::3], rules, folder=tmp_path / s) for i, s in enumerate(NAMES)]
    FederatedKMeans(3, dp=Gaussian(1.0, lower=-15, upper=15), random_state=0).fit_federation(
        LocalFederation(sites)
    )
    assert len(on_log(tmp_path / "east" / "log.jsonl").rows) == 0


def test_sums_with_noise_added_give_no_row():
    rng = np.random.default_rng(0)
    X, disclosed = rng.normal(size=(200, 2)), []
    for _ in range(60):
        c = cells(X, rng.normal(size=(4, 2)))
        n = np.maximum(c.n + rng.integers(-1, 2, size=4), 0.0)
        noise = rng.normal(size=(2, 4), scale=1e-3)
        disclosed.append(CellDisclosures(c.points, n, c.sums + noise[0][:, None], c.squares + noise[1]))
    assert len(found_in(*disclosed).rows) == 0


def test_masked_answers_are_counted_and_not_judged(tmp_path, capsys):
    X, _ = make_blobs(300, 2, centers=3, random_state=3)
    rules = parse(
        'format = 1\n[protect]\nmode = "raw"\n[aggregation]\nsecure = "required"\nmax_equations = 1'
    )
    sites = [open_site(s, X[i::3], rules, folder=tmp_path / s) for i, s in enumerate(NAMES)]
    FederatedKMeans(3, random_state=0, secure=True).fit_federation(
        LocalFederation(sites, secure=SecureSums())
    )
    for site in sites:
        site.close()
    found = on_log(tmp_path / "east" / "log.jsonl")
    assert (found.cells, len(found.rows)) == (0, 0)
    assert found.masked == sum(run.masked for run in read(tmp_path / "east" / "log.jsonl").runs) > 5
    with pytest.raises(SystemExit) as done:
        app(["site", "log", str(tmp_path / "east"), "--attack"])
    assert not done.value.code
    out = capsys.readouterr().out
    assert f"{found.masked} answers were masked and are not judged here" in out
    assert "0 rows" not in out
    assert "0 rows" not in " ".join(protected(read(tmp_path / "east" / "log.jsonl")))


def test_refusals_weights_and_an_empty_log(tmp_path):
    X, w = np.random.default_rng(0).normal(size=(60, 2)), np.linspace(0.5, 1.5, 60)
    site = open_site("a", X, RAW, folder=tmp_path, weights=w)
    assert len(on_log(tmp_path / "log.jsonl").rows) == 0
    questions = [AskMoments(), AskClusterSums(np.zeros((1, 2, 3))), AskClusterSums(X[None, :3])]
    replies = [
        site.answer(Request(RequestId("run", 0, i, 0), (Part("total", q, None, 0),))).replies[0]
        for i, q in enumerate(questions)
    ]
    assert [isinstance(r, Refusal) for r in replies] == [False, True, False]
    assert list(disclosed_in(questions[1], replies[1])) == []
    site.close()
    assert len(on_log(tmp_path / "log.jsonl").rows) == 0
