"""A user-defined method between real processes: sites whose policies name its module answer."""

import csv
import json

import pytest

from machines.network import STUDIES
from pages import ROOT, blocks

POLICY = f'format = 1\n[protect]\nmode = "raw"\n[jobs]\nmodules = ["hospital_methods"]\n{STUDIES}'
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
    "--protect",
    "raw",
)


@pytest.fixture
def own_network(network, modules):
    """The module is installed at every site and at the coordinator; one site's policy does not name it."""
    module = modules / "hospital_methods.py"
    module.write_text(blocks(ROOT / "docs" / "extending.md")[0].code)
    try:
        with (
            network.answering_from_rows(),
            network.with_policy("cleveland", POLICY),
            network.with_policy("hungarian", POLICY),
        ):
            yield network
    finally:
        module.unlink()


def test_sites_that_allow_the_module_answer_and_another_refuses(own_network):
    own_network.run("own", *OPTIONS)
    own_network.finish("own")
    result = json.loads((own_network.out("own") / "result.json").read_text())
    assert result["method"] == "spherical"
    for site in own_network.files:  # a site that does not allow the module does not even know its messages
        log = (own_network.site_folder(site) / "log.jsonl").read_text()
        assert ("hospital.AskPointing" in log) is (site != "va")
    rounds = list(csv.DictReader((own_network.out("own") / "history.csv").read_text().splitlines()))
    assert {row["sites"] for row in rounds[1:-3]} == {"2"}
