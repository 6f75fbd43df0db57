"""Bad networks: answers that get lost, links that are cut."""

import time
from pathlib import Path

from machines.conftest import READING
from machines.network import Network, ip

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
        ip("link", "set", hosts["va"][2], "down")
        time.sleep(20)
        assert network.processes["cut"].poll() is None
        ip("link", "set", hosts["va"][2], "up")
        network.finish("cut")
        network.command("fit", *files.values(), "--out", tmp_path / "fit", *options, "--protect", "copy")
        for name in ("model.unpooled", "history.csv"):
            assert (network.out("cut") / name).read_bytes() == (tmp_path / "fit" / name).read_bytes()
    finally:
        network.close()
