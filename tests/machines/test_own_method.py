"""A method that is not the package's, between real processes: sites whose policies name its module answer."""

import csv
import json
import os

import pytest

from machines.network import STUDIES, Network
from pages import ROOT, blocks

POLICY = f'version = 2\n[jobs]\nmodules = ["hospital_methods"]\n{STUDIES}'
OPTIONS = (
    "-k",
    "3",
    "--method",
    "spherical",
    "--module",
    "hospital_methods",
    "--restarts",
    "3",
    "--seed",
    "2",
)


@pytest.fixture
def own_network(hospital_files, tmp_path):
    """The module is installed at every site and at the coordinator; one site does not trust it."""
    (tmp_path / "hospital_methods.py").write_text(blocks(ROOT / "docs" / "extending.md")[0].code)
    path = os.pathsep.join(p for p in (str(tmp_path), os.environ.get("PYTHONPATH", "")) if p)
    made = Network(tmp_path / "network", hospital_files, env={"PYTHONPATH": path})
    (tmp_path / "policy.toml").write_text(POLICY)
    try:
        made.serve()
        for site in made.files:
            made.join(site, *(() if site == "va" else ("--policy", tmp_path / "policy.toml")))
        made.wait_connected()
        yield made
    finally:
        made.close()


def test_sites_that_trust_the_module_answer_and_another_refuses(own_network):
    own_network.run("own", *OPTIONS)
    own_network.finish("own")
    result = json.loads((own_network.out("own") / "result.json").read_text())
    assert result["method"] == "spherical"
    for site in own_network.files:  # one that does not trust the module does not even know its messages
        log = (own_network.site_folder(site) / "log.jsonl").read_text()
        assert ("hospital.AskPointing" in log) is (site != "va")
    rounds = list(csv.DictReader((own_network.out("own") / "history.csv").read_text().splitlines()))
    assert {row["sites"] for row in rounds[1:-3]} == {"2"}
