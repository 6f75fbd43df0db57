"""One federation of three hospitals for most tests, because it takes a while to set up."""

import csv
import json
import os
import shutil
import subprocess
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import pytest

from machines.network import Network, ip
from unpooled.app import lasting_process, memberships_process, site_process
from unpooled.federation.provisioning import keys

# each site decides how its file is read and grouped; small groups make runs of many rounds
READING = ("--categorical", "cp,restecg", "--na", "chol=0", "--min-group-size", "5")
HOSPITALS = ("cleveland", "hungarian", "va")


@pytest.fixture(scope="session")
def hospital_files(tmp_path_factory):
    """Every hospital's own CSV file: numbers, codes, missing values, and its own order of columns."""
    folder = tmp_path_factory.mktemp("hospitals")
    with (files("unpooled.data.examples") / "heart_disease.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = [name for name in rows[0] if name not in ("site", "num")]
    paths = {}
    for number, hospital in enumerate(HOSPITALS):
        paths[hospital] = folder / f"{hospital}.csv"
        with paths[hospital].open("w", newline="") as file:
            rotated = columns[number:] + columns[:number]
            writer = csv.DictWriter(file, rotated, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(row for row in rows if row["site"] == hospital)
    return paths


@pytest.fixture(scope="session")
def modules(tmp_path_factory):
    """A folder of modules that every process of the federation can import; empty at first."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="session")
def network(hospital_files, modules, tmp_path_factory):
    path = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))
    folder = tmp_path_factory.mktemp("network")
    made = Network(folder, hospital_files, env={"PYTHONPATH": path}, reading=READING)
    try:
        yield made.up()
    finally:
        made.close()


@pytest.fixture
def asked(network):
    """The federation, whose sites answer every question of a run from their rows for a while."""
    with network.answering_from_rows():
        yield network


@pytest.fixture
def after_a_run(network):
    """The federation after at least one run in which all sites answered, from their summary tables."""
    ended = [path for path in network.folder.glob("out/*/job.json") if (path.parent / "result.json").exists()]
    jobs = [json.loads(path.read_text())["job"] for path in ended]
    if not any(job["remote"]["quorum"] == 1 and job["protect"] == "summary" for job in jobs):
        network.run("first", "-k", "3", "--restarts", "2", "--seed", "2", "--quorum", "1")
        network.finish("first")
    return network


@pytest.fixture(scope="session")
def fitted(hospital_files, tmp_path_factory):
    """The folder of ``unpooled fit`` on the same files, by its options; as a rule from summary tables."""
    from typer.testing import CliRunner

    from unpooled.app.cli import app

    folder, known = tmp_path_factory.mktemp("fitted"), dict[tuple[object, ...], Path]()

    def fit(*options):
        if options not in known:
            out = folder / str(len(known))
            words = ["fit", *map(str, hospital_files.values()), "--out", str(out), *map(str, options)]
            words += READING[:4] if "--protect" in options else ["--protect", "summary", *READING]
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, result.output
            known[options] = out
        return known[options]

    return fit


def may_make_networks():
    if shutil.which("ip") is None or os.getuid() != 0:
        return False
    try:
        ip("netns", "add", f"unpooled-try-{os.getpid()}")
        ip("netns", "del", f"unpooled-try-{os.getpid()}")
    except subprocess.CalledProcessError:
        return False
    return True


@pytest.fixture(scope="module")
def hosts():
    """Three hosts with addresses of their own on one switch: name -> (namespace, address, link)."""
    if not may_make_networks():
        pytest.skip("network namespaces cannot be made on this machine")
    tag, made = f"un{os.getpid() % 10000}", {}
    try:
        ip("link", "add", tag, "type", "bridge")
        ip("link", "set", tag, "up")
        for number, name in enumerate(("coordinator", "cleveland", "va"), start=1):
            space, here, there = f"{tag}-{name}", f"{tag}h{number}", f"{tag}n{number}"
            address = f"10.213.{os.getpid() % 200}.{number}"
            ip("netns", "add", space)
            made[name] = (space, address, here)
            ip("link", "add", here, "type", "veth", "peer", "name", there)
            ip("link", "set", here, "master", tag)
            ip("link", "set", here, "up")
            ip("link", "set", there, "netns", space)
            ip("-n", space, "addr", "add", f"{address}/24", "dev", there)
            ip("-n", space, "link", "set", there, "up")
            ip("-n", space, "link", "set", "lo", "up")
        yield made
    finally:
        for space, _, _ in made.values():
            subprocess.run(["ip", "netns", "del", space], check=False)
        subprocess.run(["ip", "link", "del", tag], check=False)


@pytest.fixture
def started(monkeypatch):
    """Let commands of this process start no engine; the folders of those that would have been started."""
    homes = []
    monkeypatch.setattr(lasting_process, "begin", lambda name, values: import_module(name).main(**values))
    monkeypatch.setattr(site_process, "supervise", lambda command, home, *_: homes.append(home))
    monkeypatch.setattr(memberships_process, "supervise_all", lambda commands, *_: homes.extend(commands))
    return homes


@pytest.fixture(scope="module")
def shorter_keys():
    """Make keys of 2048 bits, which takes a quarter of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_BITS", 2048)
        yield
