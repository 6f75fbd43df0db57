"""Bad networks: answers that get lost, links that are cut."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from machines.conftest import READING
from machines.network import Network

LOSSY = Path(__file__).parent / "lossy"


def test_three_of_ten_answers_lost_for_a_hundred_rounds(hospital_files, fitted, tmp_path):
    """Every lost answer is asked for again, so the result is that of a network that loses none."""
    options = ("-k", "24", "--method", "fuzzy", "--restarts", "1", "--max-rounds", "105", "--seed", "1")
    fit = fitted(*options)
    assert (fit / "history.csv").read_text().count("\n") - 2 >= 100  # less the heading and the start
    lossy = Network(tmp_path, hospital_files, env={"PYTHONPATH": str(LOSSY)}, reading=READING)
    try:
        lossy.up()
        lossy.run("lossy", *options)
        lossy.finish("lossy", patience=300)
        for name in ("model.unpooled", "history.csv"):
            assert (lossy.out("lossy") / name).read_bytes() == (fit / name).read_bytes()
    finally:
        lossy.close()


def _ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


def _may_make_networks():
    if shutil.which("ip") is None or os.getuid() != 0:
        return False
    try:
        _ip("netns", "add", "unpooled-try")
        _ip("netns", "del", "unpooled-try")
    except subprocess.CalledProcessError:
        return False
    return True


@pytest.fixture
def hosts():
    """Three hosts with addresses of their own on one switch: name -> (namespace, address)."""
    tag, made = f"un{os.getpid() % 10000}", {}
    try:
        _ip("link", "add", tag, "type", "bridge")
        _ip("link", "set", tag, "up")
        for number, name in enumerate(("coordinator", "cleveland", "va"), start=1):
            space, here, there = f"{tag}-{name}", f"{tag}h{number}", f"{tag}n{number}"
            address = f"10.213.{os.getpid() % 200}.{number}"
            _ip("netns", "add", space)
            made[name] = (space, address, here)
            _ip("link", "add", here, "type", "veth", "peer", "name", there)
            _ip("link", "set", here, "master", tag)
            _ip("link", "set", here, "up")
            _ip("link", "set", there, "netns", space)
            _ip("-n", space, "addr", "add", f"{address}/24", "dev", there)
            _ip("-n", space, "link", "set", there, "up")
            _ip("-n", space, "link", "set", "lo", "up")
        yield made
    finally:
        for space, _, _ in made.values():
            subprocess.run(["ip", "netns", "del", space], check=False)
        subprocess.run(["ip", "link", "del", tag], check=False)


@pytest.mark.skipif(not _may_make_networks(), reason="this machine makes no network namespaces")
def test_three_hosts_and_a_link_that_is_cut_for_twenty_seconds(hosts, hospital_files, tmp_path):
    """The run is long, so that it cannot end while the link is down, however quick the machine is."""
    options = ("-k", "24", "--method", "fuzzy", "--restarts", "1", "--max-rounds", "105", "--seed", "1")
    files = {name: hospital_files[name] for name in ("cleveland", "va")}
    inside = {name: ("ip", "netns", "exec", space) for name, (space, _, _) in hosts.items()}
    network = Network(
        tmp_path, files, host=hosts["coordinator"][1], port=8002,
        prefix={"server": inside["coordinator"], "cleveland": inside["cleveland"], "va": inside["va"]},
    )  # fmt: skip
    try:
        network.up()
        network.run("cut", *options, "--quorum", "1")
        network.at_round("cut", 2)
        _ip("link", "set", hosts["va"][2], "down")
        time.sleep(20)
        assert network.processes["cut"].poll() is None
        _ip("link", "set", hosts["va"][2], "up")
        network.finish("cut")
        network.command("fit", *files.values(), "--out", tmp_path / "fit", *options, "--protect", "copy")
        for name in ("model.unpooled", "history.csv"):
            assert (network.out("cut") / name).read_bytes() == (tmp_path / "fit" / name).read_bytes()
    finally:
        network.close()
