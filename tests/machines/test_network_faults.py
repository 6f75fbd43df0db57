"""Network faults: answers that get lost, links that are cut."""

import time

import pytest

from machines.conftest import READING
from machines.network import Network, ip
from machines.wire import captured, secrets_of, send_in_clear

# The sitecustomize module of the processes: three of ten answers of a site come too late to count. The test
# writes it, because a file among the tests would be imported when pytest looks for doctests.
LOSSY = """\
import random
import time

from unpooled.site.session import SiteSession

respond, chance = SiteSession.respond, random.Random(1)


def lossy(self, data):
    answer = respond(self, data)
    if chance.random() < 0.3:
        time.sleep(3.0)  # far beyond the wait for an answer that usually takes milliseconds
    return answer


SiteSession.respond = lossy
"""
ROUNDS = 55  # in 56 this run is over
CUT = 3.0  # seconds; an answer usually takes a fraction of one


@pytest.mark.long
def test_three_of_ten_answers_are_lost_in_every_round(hospital_files, fitted, tmp_path):
    """Every lost answer is requested again, so the result is that of a network that loses none."""
    options = ("-k", "24", "--method", "fuzzy", "--restarts", "1", "--max-rounds", str(ROUNDS), "--seed", "1")
    options += ("--protect", "raw")
    fit = fitted(*options)
    assert (fit / "history.csv").read_text().count("\n") - 2 >= ROUNDS - 5  # less the heading and the start
    (tmp_path / "lossy").mkdir()
    (tmp_path / "lossy" / "sitecustomize.py").write_text(LOSSY)
    lossy = Network(tmp_path, hospital_files, env={"PYTHONPATH": str(tmp_path / "lossy")}, reading=READING)
    try:
        with lossy.up().answering_from_rows():
            lossy.run("lossy", *options)
            lossy.finish("lossy", patience=1800)
        for name in ("model.unpooled", "history.csv"):
            assert (lossy.out("lossy") / name).read_bytes() == (fit / name).read_bytes()
    finally:
        lossy.close()


@pytest.fixture(scope="module")
def cut(hosts, hospital_files, tmp_path_factory):
    """A run over three hosts whose link to one is cut for some seconds, with all frames captured.

    The run waits for all sites, so that it cannot end while the link is down.
    """
    options = ("-k", "24", "--method", "fuzzy", "--restarts", "1", "--max-rounds", "40", "--seed", "1")
    options += ("--protect", "raw")
    folder = tmp_path_factory.mktemp("cut")
    files = {name: hospital_files[name] for name in ("cleveland", "va")}
    inside = {name: ("ip", "netns", "exec", space) for name, (space, _, _) in hosts.items()}
    network = Network(
        folder, files, host=hosts["coordinator"][1], port=8002,
        prefix={"server": inside["coordinator"], "cleveland": inside["cleveland"], "va": inside["va"]},
    )  # fmt: skip
    try:
        with captured(hosts, folder) as wires, network.up().answering_from_rows():
            network.run("cut", *options, "--quorum", "1")
            network.at_round("cut", 2)
            ip("link", "set", hosts["va"][2], "down")
            time.sleep(CUT)
            assert network.processes["cut"].poll() is None
            ip("link", "set", hosts["va"][2], "up")
            network.finish("cut")
            send_in_clear(hosts, wires, "a word in clear")
        network.command("fit", *files.values(), "--out", folder / "fit", *options)
        yield network, files, wires
    finally:
        network.close()


def test_three_hosts_and_a_link_that_is_cut(cut):
    network, _, _ = cut
    for name in ("model.unpooled", "history.csv"):
        assert (network.out("cut") / name).read_bytes() == (network.folder / "fit" / name).read_bytes()


def test_captured_traffic_contains_none_of_the_data(cut):
    """Columns, rows, questions, replies, the sites and the run: between the hosts and within each."""
    network, files, wires = cut
    confidential = secrets_of(network, files, "cut")
    for name, file in wires.items():
        wire = file.read_bytes()
        assert len(wire) > 100_000, name
        for secret in confidential:
            assert secret not in wire, (name, secret[:40])
