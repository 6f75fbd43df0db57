"""docs/extending.md is true to the letter: its method runs wherever the page says that it does."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import bits, registered, split
from pages import ROOT, blocks
from unpooled import FederatedKMeans
from unpooled.algorithms import METHODS, Restarts
from unpooled.algorithms.registry import citation
from unpooled.algorithms.scaled import Scaled
from unpooled.app.cli import app
from unpooled.errors import InputError, PolicyError
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy.secure_sum import SecureSums
from unpooled.protocol import run
from unpooled.site import Site
from unpooled.site.explain_policy import explain
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

PAGE = ROOT / "docs" / "extending.md"
POLICY = "format = 1\n[jobs]\nmodules = ['hospital_methods']\n[protect]\nmode = 'raw'"


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    """The page's module, installed."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "hospital_methods.py").write_text(blocks(PAGE)[0].code, encoding="utf-8")
    with registered(folder, ["hospital_methods"]):
        yield sys.modules["hospital_methods"]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    angles = rng.choice([0.3, 2.4, 4.4], 600) + rng.normal(0, 0.1, 600)
    return split(
        np.column_stack([np.cos(angles), np.sin(angles)]) * rng.uniform(1, 50, 600)[:, None], 3, seed=3
    )


def test_the_module_is_typed(hospital):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", hospital.__file__],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_it_runs_at_sites_with_a_policy_and_ends_with_the_same_bits(hospital, rows, tmp_path):
    method = hospital.Spherical(k=3, min_cluster_size=5)
    sites = [open_site(s, X, parse(POLICY), folder=tmp_path / s) for s, X in rows.items()]
    behind = run(method, LocalFederation(sites), seed=1, quorum=1.0)
    plain = run(method, Simulation.from_rows(rows, min_cluster_size=5), seed=1)
    assert bits(behind.state) == bits(plain.state)
    assert behind.rounds > 0


def test_a_site_that_does_not_name_the_module_refuses(hospital, rows):
    site = open_site(
        "site-0",
        rows["site-0"],
        parse("format = 1\n[protect]\none_row_per_person = true\nno_sensitive_columns = true"),
    )
    done = run(
        hospital.Spherical(k=3),
        LocalFederation([site, *(Site(s, X) for s, X in rows.items() if s != "site-0")]),
    )
    assert "the policy does not allow hospital.AskPointing" in done.history[1].silent["site-0"]


def test_a_module_that_is_not_installed_is_named():
    policy = parse(
        "format = 1\n[protect]\none_row_per_person = true\n"
        "no_sensitive_columns = true\n[jobs]\nmodules = ['no_such']"
    )
    with pytest.raises(PolicyError, match=r"\[jobs\] modules: module no_such cannot be imported"):
        open_site("a", np.zeros((30, 2)), policy)


def test_reading_a_policy_imports_nothing(tmp_path, monkeypatch):
    """Somebody else's policy may be read, e.g. for its bounds; only who opens a site trusts its modules."""
    (tmp_path / "sent_with_a_policy.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "format = 1\n[protect]\none_row_per_person = true\nno_sensitive_columns = true\n"
    text += "[jobs]\nmodules = ['sent_with_a_policy']\nalgorithms = ['lloyd', 'theirs']"
    policy = parse(text)
    assert policy.jobs.modules == ("sent_with_a_policy",)
    assert policy.digest
    assert explain(policy)
    with pytest.raises(SystemExit, match="imported"):
        open_site("a", np.zeros((30, 2)), policy)


def test_a_method_that_no_module_has_is_named(hospital):
    text = "format = 1\n[protect]\none_row_per_person = true\nno_sensitive_columns = true\n"
    policy = parse(f"{text}[jobs]\nmodules = ['hospital_methods']\nalgorithms = ['lloid']")
    with pytest.raises(PolicyError, match=r"unknown 'lloid'; known are lloyd, .*spherical"):
        open_site("a", np.zeros((30, 2)), policy)


class Bytes:
    """A carrier of bytes: as between machines, without them."""

    def __init__(self, rows):
        self._sites = {s: Site(s, X) for s, X in rows.items()}
        self.sites = tuple(self._sites)

    def send_and_receive(self, requests):
        return {s: self._sites[s].respond(data) for s, data in requests.items()}


def test_it_runs_as_the_package_s_own_methods_do(hospital, rows, tmp_path):
    method = hospital.Spherical(k=3)
    plain = run(method, Simulation.from_rows(rows), seed=1)
    path = tmp_path / "run"
    done = run(method, Simulation.from_rows(rows), seed=1, checkpoint=path, max_rounds=1)
    while not done.finished:
        done = run(method, Simulation.from_rows(rows), seed=1, checkpoint=path, max_rounds=1)
    assert bits(done.state) == bits(plain.state)
    assert bits(run(method, TransportFederation(Bytes(rows)), seed=1).state) == bits(plain.state)
    assert bits(run(method, LocalFederation.from_rows(rows), seed=1).state) == bits(plain.state)
    secure = run(method, LocalFederation.from_rows(rows, secure=SecureSums()), seed=1)
    np.testing.assert_allclose(secure.state.centers, plain.state.centers, atol=1e-6)
    assert run(Restarts(method, 3), Simulation.from_rows(rows), seed=1).finished
    assert run(Scaled(method), Simulation.from_rows(rows), seed=1).finished
    for n_init in (None, 1, 4):
        model = FederatedKMeans(3, method=hospital.Spherical(), n_init=n_init, random_state=1).fit(rows)
        assert np.isfinite(model.inertia_)
    assert "Dhillon" in citation("spherical")
    assert "Dhillon" in citation(Restarts(method))


def test_from_the_command_line(hospital, rows, tmp_path):
    files = []
    for name, X in rows.items():
        files.append(tmp_path / f"{name}.csv")
        np.savetxt(files[-1], X, delimiter=",", header="x,y", comments="")
    words = ["fit", *map(str, files), "-k", "3", "--method", "spherical", "--scale", "none", "--json"]
    found = CliRunner().invoke(app, [*words, "--module", "hospital_methods"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["method"] == "spherical"
    unknown = CliRunner().invoke(app, [*words, "--module", "no_such_module"])
    assert unknown.exit_code != 0
    assert "module no_such_module cannot be imported" in unknown.output


def test_a_second_method_of_the_same_name_is_an_error(hospital):
    with pytest.raises(InputError, match="two methods are called 'lloyd'"):
        type("Lloyd", (METHODS["lloyd"],), {"__module__": "elsewhere"}, method="lloyd", prefix="elsewhere")


def test_the_page_lists_every_declaration():
    text = Path(PAGE).read_text(encoding="utf-8")
    for name in ("Centers", "Box", "Point", "Numbers", "Count", "Sum", "Mean", "Value", "Extreme", "Text"):
        assert f"`{name}(" in text
