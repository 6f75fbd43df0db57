"""Two methods that were written from docs/extending.md alone run wherever it says that a method runs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from helpers import in_order, registered
from unpooled import FederatedKMeans
from unpooled.algorithms import Restarts
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol import run
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

HERE = Path(__file__).parent
METHODS = [
    ("KMedians", "k-medians", "k_medians"),
    ("GaussianMixture", "gaussian-mixture", "gaussian_mixture"),
]
each = pytest.mark.parametrize("own", METHODS, ids=["medians", "mixture"], indirect=True)


@pytest.fixture(scope="module", autouse=True)
def _registered():
    """The two modules are known while these tests run, and to no others."""
    with registered(HERE, [module for _, _, module in METHODS]):
        yield


class Own(NamedTuple):
    """A method's class, its name and its module."""

    M: Any
    name: str
    module: str


@pytest.fixture
def own(request):
    kind, name, module = request.param
    return Own(getattr(sys.modules[module], kind), name, module)


def rows(seed=0):
    rng = np.random.default_rng(seed)
    C = rng.normal(0, 3, (4, 5))
    X = np.concatenate(
        [
            c + rng.normal(0, s, (n, 5))
            for c, s, n in zip(C, (0.7, 1, 1.5, 2), (151, 100, 250, 120), strict=True)
        ]
    )
    return X[rng.permutation(len(X))] * [1, 10, 0.1, 1, 1] + [0, 500, 0, 0, -3]


X = rows()
TABLES = {"north": X[:90], "south": X[90:300], "west": X[300:]}


def pooled_medians(X, C):
    for _ in range(300):
        label = np.abs(X[:, None] - C).sum(2).argmin(1)
        after = np.array(
            [np.median(X[label == j], axis=0) if (label == j).any() else C[j] for j in range(len(C))]
        )
        if np.abs(after - C).max() < 1e-12:
            break
        C = after
    return C, np.abs(X[:, None] - C).sum(2).min(1).sum()


def pooled_mixture(X, m, rounds, floor=1e-6):
    k = len(m)
    least = floor * X.var(axis=0)
    v, p = np.tile(X.var(axis=0), (k, 1)), np.full(k, 1 / k)
    for _ in range(rounds):
        logs = np.log(p) - 0.5 * np.log(2 * np.pi * v).sum(1) - 0.5 * ((X[:, None] - m) ** 2 / v).sum(2)
        top = logs.max(1, keepdims=True)
        dens = top + np.log(np.exp(logs - top).sum(1, keepdims=True))
        r = np.exp(logs - dens)
        n = r.sum(0)
        m = r.T @ X / n[:, None]
        v = np.maximum(np.array([(r[:, j, None] * (X - m[j]) ** 2).sum(0) / n[j] for j in range(k)]), least)
        p = n / len(X)
    return m, v, p, -dens.sum()


def test_strict():
    """By the settings of the package, which are strict, and with what `make lint` has found of it."""
    root = HERE.parents[1]
    words = [sys.executable, "-m", "mypy", "--config-file", root / "pyproject.toml"]
    words += ["--cache-dir", root / ".mypy_cache", "k_medians.py", "gaussian_mixture.py"]
    done = subprocess.run(words, cwd=HERE, capture_output=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("seed", range(3))
def test_medians_as_pooled(seed):
    for k in (3, 4, 6):
        start = X[np.random.default_rng(seed).choice(len(X), k, replace=False)]
        done = run(
            sys.modules["k_medians"].KMedians(k=k, init=start), Simulation.from_rows(TABLES), seed=seed
        )
        C, cost = pooled_medians(X, start)
        np.testing.assert_allclose(done.state.centers, C, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(done.state.inertia, cost, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_mixture_as_pooled(seed):
    start = X[np.random.default_rng(seed).choice(len(X), 4, replace=False)]
    done = run(
        sys.modules["gaussian_mixture"].GaussianMixture(k=4, init=start),
        Simulation.from_rows(TABLES),
        seed=seed,
        max_rounds=60,
    )
    m, v, p, cost = pooled_mixture(X, start, done.rounds)
    np.testing.assert_allclose(done.state.centers, m, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(done.state.variances, v, rtol=1e-8)
    np.testing.assert_allclose(done.state.shares, p, rtol=1e-8)
    np.testing.assert_allclose(done.state.inertia, cost, rtol=1e-8)


@each
def test_any_split(own):
    for parts in (2, 3, 7):
        cut = {f"s{i}": x for i, x in enumerate(np.array_split(X, parts))}
        a, b = (
            run(own.M(k=4), Simulation.from_rows(cut), seed=1),
            run(own.M(k=4), Simulation.from_rows({"all": X}), seed=1),
        )
        assert a.finished
        assert b.finished
        np.testing.assert_allclose(a.state.centers, b.state.centers, rtol=1e-8, atol=1e-8)


@each
def test_best_of(own):
    done = run(Restarts(own.M(k=4), 3), Simulation.from_rows(TABLES), seed=1)
    assert done.finished
    assert np.isfinite(done.state.states[done.state.best].centers).all()


@each
def test_best_of_takes_the_best_by_the_methods_own_inertia(own):
    wrong = []
    for s in range(10):
        Z = np.random.default_rng(100 + s).standard_t(1.5, (300, 2))
        model = run(
            Restarts(own.M(k=4), 8), Simulation.from_rows({"a": Z[:50], "b": Z[50:150], "c": Z[150:]}), seed=s
        ).state
        values = np.array([x.inertia for x in model.states])
        if values[model.best] > values.min() + 1e-3 * abs(values.min()):
            wrong.append((s, values[model.best], values.min()))
    assert not wrong


@each
@pytest.mark.parametrize("n_init", [None, 1, 4])
@pytest.mark.parametrize("as_object", [False, True])
def test_estimator(own, n_init, as_object):
    model = FederatedKMeans(4, method=own.M() if as_object else own.name, n_init=n_init, random_state=1).fit(
        TABLES
    )
    assert model.cluster_centers_.shape == (4, 5)
    one = FederatedKMeans(4, method=own.name, n_init=n_init, random_state=1).fit({"all": X})
    np.testing.assert_allclose(model.cluster_centers_, one.cluster_centers_, rtol=1e-6, atol=1e-6)


@each
def test_scale(own):
    model = FederatedKMeans(4, method=own.name, scale="standard", n_init=1, random_state=1).fit(TABLES)
    Z = (X - X.mean(0)) / X.std(0)
    found = FederatedKMeans(4, method=own.name, n_init=1, random_state=1).fit(
        {"all": Z}
    ).cluster_centers_ * X.std(0) + X.mean(0)
    np.testing.assert_allclose(in_order(model.cluster_centers_), in_order(found), rtol=1e-4, atol=1e-4)


@each
@pytest.mark.parametrize("restarts", [0, 3])
def test_resume(own, restarts, tmp_path):
    method = Restarts(own.M(k=4), restarts) if restarts else own.M(k=4)
    whole = run(method, Simulation.from_rows(TABLES), seed=3)
    part = run(method, Simulation.from_rows(TABLES), seed=3, max_rounds=2, checkpoint=tmp_path / "c")
    assert not part.finished
    after = run(method, Simulation.from_rows(TABLES), seed=3, checkpoint=tmp_path / "c")
    assert after.rounds == whole.rounds
    a, b = (
        (after.state, whole.state)
        if not restarts
        else (after.state.states[after.state.best], whole.state.states[whole.state.best])
    )
    assert a.centers.tobytes() == b.centers.tobytes()


@each
def test_secure(own):
    plain = FederatedKMeans(4, method=own.name, n_init=3, random_state=1).fit(TABLES)
    secure = FederatedKMeans(4, method=own.name, n_init=3, random_state=1, secure=True).fit(TABLES)
    np.testing.assert_allclose(secure.cluster_centers_, plain.cluster_centers_, rtol=1e-5, atol=1e-5)


@each
def test_minimum_size(own):
    method = own.M(k=4, init=X[:4])
    free, held = (
        run(method, Simulation.from_rows(TABLES), seed=1),
        run(method, Simulation.from_rows(TABLES, min_cluster_size=5), seed=1),
    )
    assert held.finished
    np.testing.assert_allclose(held.state.centers, free.state.centers, rtol=0.05, atol=0.3)


def unpooled(*args, cwd, path=True):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | (
        {"PYTHONPATH": str(HERE)} if path else {}
    )
    return subprocess.run(
        [sys.executable, "-m", "unpooled", *args],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
    )


@each
def test_policy_file(own, tmp_path):
    (tmp_path / "p.toml").write_text(f'format = 1\n\n[jobs]\nmodules = ["{own.module}"]\n')
    assert unpooled("site", "policy", "--check", "p.toml", cwd=tmp_path).returncode == 0
    assert own.module in unpooled("site", "policy", "p.toml", cwd=tmp_path).stdout
    missing = unpooled("site", "policy", "--check", "p.toml", cwd=tmp_path, path=False)
    assert missing.returncode == 1
    assert f"module {own.module} cannot be imported" in missing.stderr


@each
def test_fit(own, tmp_path):
    for site, table in TABLES.items():
        np.savetxt(
            tmp_path / f"{site}.csv", table, delimiter=",", header="a,b,c,d,e", comments="", fmt="%.17g"
        )
    files = [f"{site}.csv" for site in TABLES]
    options = (
        "-k",
        "4",
        "--method",
        own.name,
        "--threads",
        "1",
        "--restarts",
        "3",
        "--min-cluster-size",
        "1",
    )
    done = unpooled("fit", *files, *options, "--module", own.module, "--out", "o", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "o" / "result.json").read_text())
    unknown = unpooled("fit", *files, *options, cwd=tmp_path)
    assert unknown.returncode == 1
    assert "method must be one of" in unknown.stderr


@each
def test_sites_with_a_policy(own, tmp_path):
    """Those that own.name the module answer with the same bits as in process; another refuses."""
    rules = parse(f'format = 1\n[protect]\nmode = "raw"\n[jobs]\nmodules = ["{own.module}"]')
    method = own.M(k=4, min_cluster_size=5, max_rounds=4)
    sites = [open_site(s, x, rules, folder=tmp_path / s) for s, x in TABLES.items()]
    behind = run(method, LocalFederation(sites), seed=1, quorum=1.0)
    plain = run(method, Simulation.from_rows(TABLES, min_cluster_size=5), seed=1)
    assert behind.state.centers.tobytes() == plain.state.centers.tobytes()
    closed = open_site(
        "west",
        TABLES["west"],
        parse("format = 1\n[protect]\none_row_per_person = true\nno_sensitive_columns = true"),
    )
    done = run(method, LocalFederation([*sites[:2], closed]), seed=1)
    assert any("the policy does not allow cold." in r.silent.get("west", "") for r in done.history)


@pytest.mark.filterwarnings("ignore:the run stopped after")
@each
def test_it_ends_after_max_rounds(own):
    """Whatever its own ``finished`` says."""
    model = FederatedKMeans(4, method=own.name, n_init=1, max_rounds=3, random_state=1).fit(TABLES)
    assert model.n_rounds_ <= 3
    assert run(own.M(k=4, max_rounds=2), Simulation.from_rows(TABLES)).rounds <= 2
