"""Three levels as processes, by the commands of docs/relays.md: killed anywhere, the bits of a flat run.

``pytest -m long`` adds random strikes over all processes.
"""

import contextlib
import csv
import json
import random
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest

from helpers import arrays_in
from machines.network import contents, eventually, tree, until
from machines.relay_network import HOSPITALS, LATER, RELAYS, TreeNetwork
from machines.test_processes import free
from unpooled.data.schema import Schema
from unpooled.privacy.secure_sum.stage_messages import Masked
from unpooled.protocol import codec
from unpooled.protocol.partial_sum import PartialSum
from unpooled.protocol.questions.cluster_sums import ClusterSums
from unpooled.protocol.questions.half_sums import AskHalfCovariance, AskHalfSums, AskObservedHalfSums
from unpooled.site.log import entries, unpacked, verify
from unpooled.site.study_store import APPROVED, StudyFolder

KILLS = 30
HALVES = (AskHalfSums, AskObservedHalfSums, AskHalfCovariance)
METHOD = ("-k", "2,3", "--method", "fuzzy", "--max-rounds", "30", "--exact-sums", "--seed", "1")


@pytest.fixture(scope="module")
def three_levels(hospital_files, tmp_path_factory):
    made = TreeNetwork(tmp_path_factory.mktemp("tree"), hospital_files["cleveland"])
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def flat(three_levels):
    """The folder of ``unpooled fit`` on the four hospitals' files."""
    folder, names = three_levels.folder / "flat", []
    folder.mkdir()
    for hospital in HOSPITALS:
        names.append(folder / f"{hospital}.csv")
        names[-1].write_bytes((three_levels.folder / hospital.title() / "patients.csv").read_bytes())
    three_levels.command("fit", *names, *METHOD, "--protect", "summary", "--out", folder / "run")
    return folder / "run"


def numbers_of(log):
    """All numbers in the answers of a log that are not integers, and the bytes of these answers.

    Without the up to 500 cells of a start and without the clusters of halves, many of which have rows of one
    hospital only; and without schemas, which hold the largest size in a column, which is some hospital's.
    """
    numbers, payloads = set(), b""
    for _, entry in entries(log):
        if entry["kind"] != "release":
            continue
        for asked, reply in zip(
            entry["asked"], codec.decode(unpacked(entry["payload"])).replies, strict=True
        ):
            if isinstance(codec.decode(unpacked(asked["payload"])), HALVES):
                continue
            whole = reply.reply() if isinstance(reply, PartialSum) else reply
            if (isinstance(whole, ClusterSums) and whole.mass.shape[-1] > 3) or isinstance(whole, Schema):
                continue
            payloads += codec.encode(reply)
            for array in arrays_in(whole):
                values = array[np.isfinite(array)] if array.dtype.kind == "f" else np.zeros(0)
                numbers |= set(values[values % 1 != 0].tolist())
    return numbers, payloads


def history(folder):
    """The results of each round, without those that differ in a tree: who answered, how many exchanges."""
    with (folder / "history.csv").open() as file:
        return [(row["round"], row["movement"], row["inertia"]) for row in csv.DictReader(file)]


def assert_as_flat(run, flat):
    """The clustering of a flat federation to the last bit; a tree reports nothing about single sites."""
    for name in ("model.unpooled", "preparation.json"):
        assert (run / name).read_bytes() == (flat / name).read_bytes(), name
    assert history(run) == history(flat)
    result, expected = (json.loads((folder / "result.json").read_text()) for folder in (run, flat))
    for name in ("inertia", "clusters", "columns", "rounds"):
        if name == "clusters":
            for cluster in (*result[name], *expected[name]):
                del cluster["rows_by_site"]
        assert result[name] == expected[name], name


def assert_all_is_released(network):
    """No process, no lock and no downstream run remains."""
    for person in ("Country", "North", "South"):
        runs = network.federation(person).runs
        until(lambda runs=runs: not list(runs.iterdir()), f"the runs of {person} to be over")
    for member in (*RELAYS, *HOSPITALS):
        log = network.member(member) / "log.jsonl"
        until(lambda log=log: free(log), f"the log of {member} to be free")
        assert verify(log) == []
    until(lambda: not network.strays(), "processes without a parent to end")


@contextlib.contextmanager
def killed_in_round(network, name, number, after=None):
    """Kill a job's process once the run that begins meanwhile has finished a round.

    The run goes on as soon as the last officer has approved, and their commands may take long to end.
    """

    def kill():
        until(lambda: network.processes.get("run") is not after, "the run to be submitted")
        network.at(number)
        network.job_of(name).kill()

    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(kill)
        yield
        killed.result()


def test_the_page_with_a_relay_killed(three_levels, flat):
    network = three_levels
    with killed_in_round(network, "north", 2):
        network.perform()
    network.finish("run")
    assert_as_flat(network.folder / "Country" / "run", flat)
    assert (network.folder / "Country" / "report.html").stat().st_size > 10_000
    assert_all_is_released(network)
    assert_hospitals_numbers_do_not_go_up(network)
    assert_officers_see_both_studies(network)


@pytest.mark.long
def test_a_process_killed_at_every_level(performed, flat):
    network = performed
    begin(network, "killed")
    strikes, reached = TreeStrikes(network, 0), 0
    for name in ("hospital-a", "north", "South", "Country"):  # a hospital, a relay, its server, the run
        until(lambda reached=reached: strikes.approve() or network.reached() >= reached + 2, "two rounds")
        network.job_of(name).kill()
        reached = network.reached()
    ended(network, strikes)
    assert_as_flat(network.folder / "Country" / "killed", flat)
    assert_all_is_released(network)


@pytest.fixture
def performed(three_levels):
    """The federations after the first part of the page, independently of the order of tests."""
    if "run" not in three_levels.commands:
        three_levels.perform()
        three_levels.finish("run")
    return three_levels


@pytest.mark.long
def test_the_page_with_secure_sums_and_a_relay_killed(performed):
    """Relays sum securely in the country's federation, and hospitals in their relay's."""
    network = performed
    before = {name: len(list(entries(network.member(name) / "log.jsonl"))) for name in RELAYS}
    ended = network.processes["run"]
    with killed_in_round(network, "north", 1, after=ended):
        network.perform("Secure sums between machines")
    network.finish("run")
    files = [network.folder / "secure" / f"{name}.csv" for name in (*HOSPITALS, *LATER)]
    files[0].parent.mkdir()
    for file in files:
        file.write_bytes((network.folder / file.stem.title() / "patients.csv").read_bytes())
    method = ("-k", "2", "--secure", "--max-rounds", "4", "--seed", "2")
    network.command(
        "fit", *files, *method, "--protect", "summary", "--out", network.folder / "secure" / "run"
    )
    assert_as_flat(network.folder / "Country" / "secure-run", network.folder / "secure" / "run")
    for name, lines in before.items():
        new = [entry for _, entry in entries(network.member(name) / "log.jsonl")][lines:]
        sent = [entry["payload"] for entry in new if entry["kind"] == "release"]
        kinds = {type(reply) for payload in sent for reply in codec.decode(unpacked(payload)).replies}
        assert Masked in kinds
        assert not kinds & {PartialSum, ClusterSums}
    assert_all_is_released(network)


def assert_hospitals_numbers_do_not_go_up(network):
    above = {name: numbers_of(network.member(name) / "log.jsonl") for name in RELAYS}
    for hospital in HOSPITALS:
        own, sent = numbers_of(network.member(hospital) / "log.jsonl")
        assert len(own) > 100
        for numbers, payloads in above.values():
            assert len(numbers) > 100
            assert not own & numbers
            assert not any(np.float64(value).tobytes() in payloads for value in own)
        assert all(np.float64(value).tobytes() in sent for value in list(own)[:20])  # the search can find
    written = b"".join(
        data
        for folder in ("Country/national", "Country/run", "North/north", "South/south")
        for _, data in contents(network.folder / folder)
    )
    assert b"north" in written
    assert not [hospital for hospital in HOSPITALS if hospital.encode() in written]


def assert_officers_see_both_studies(network):
    """A relay's officer sees the study from above, a hospital's the same one, and through whom it came."""
    (above,) = StudyFolder(network.member("north")).every()
    (forwarded,) = StudyFolder(network.member("hospital-a")).every()
    assert (above.study.purpose, forwarded.study.purpose) == ("kinds of heart patients",) * 2
    assert (above.study.federation, forwarded.study.federation) == ("national", "north-hospitals")
    through = f"passed on by north-hospitals, which is north in national; its study {above.study.digest[:16]}"
    assert through in forwarded.study.title
    assert forwarded.study.questions == above.study.questions
    words = ("site", "status", network.member("north"))
    status = eventually(lambda: network.command(*words), "the relay to be connected")
    assert (
        "north-hospitals with 2 members; the relay sends upstream sums over 2 sites or more" in status.stdout
    )


# ---------------------------------------------------------------- at random


class TreeStrikes:
    """Kills or suspends processes of all levels at random, and restarts them as people would."""

    def __init__(self, network, seed):
        self.network, self.chance, self.done, self._suspended = network, random.Random(seed), [], []

    def strike(self, run):
        names = [*self.network.commands]
        name = self.chance.choice([n for n in names if n != "run" or run])
        process = self.chance.choice(tree(self.network.processes[name].pid) or [None])
        number = self.chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
        try:
            gone = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            useless = (*gone, psutil.STATUS_STOPPED) if number == signal.SIGSTOP else gone
            if process is None or process.status() in useless:
                return False
            description = f"{number.name} {name}: {' '.join(process.cmdline())[-90:]}"
            process.send_signal(number)
        except psutil.Error:
            return False
        self.done.append(description)
        if number == signal.SIGSTOP:
            self._suspended.append((time.monotonic() + self.chance.uniform(0.5, 6.0), process))
        return True

    def mend(self, every=False):
        late = [process for then, process in self._suspended if every or time.monotonic() > then]
        self._suspended = [(then, process) for then, process in self._suspended if process not in late]
        for process in late:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)
        for name in self.network.commands:
            code = self.network.processes[name].poll()
            if code is not None and (name != "run" or code == -signal.SIGKILL):
                self.network.again(name)
        self.approve()

    def approve(self):
        for member in (*RELAYS, *HOSPITALS):
            studies = StudyFolder(self.network.member(member))
            for pending in studies.pending():
                studies.decide(pending.study.digest, APPROVED, "the officer", patience=60.0)


def begin(network, out):
    """Begin another run in the same federations."""
    words = [
        "federation",
        "run",
        "national",
        *METHOD,
        "--quorum",
        "1",
        "--deadline",
        "600",
        "--out",
        out,
        "--purpose",
        "kinds of heart patients",
    ]
    network.wait_all()
    network.commands["run"] = (words, network.folder / "Country")
    network.start("run", *words, folder=network.folder / "Country")
    until((network.folder / "Country" / out / "job.json").exists, "the job")


@pytest.mark.long
def test_runs_that_are_struck_at_random_at_all_levels_end_with_the_flat_bits(performed, flat):
    network, left, resumed, number, began = performed, KILLS, 0, 0, time.monotonic()
    while left:
        strikes, out = TreeStrikes(network, number), f"struck-{number}"
        begin(network, out)
        share = min(left, 6)
        while share and network.processes["run"].poll() in (None, -signal.SIGKILL):
            time.sleep(strikes.chance.expovariate(1 / 3.0))
            struck = strikes.strike("run")
            share, left = share - struck, left - struck
            time.sleep(0.2)
            strikes.mend()
        strikes.mend(every=True)
        resumed += ended(network, strikes)
        try:
            assert_as_flat(network.folder / "Country" / out, flat)
            assert_all_is_released(network)
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n" + "\n".join(strikes.done)) from wrong
        number += 1
        assert number < KILLS, "runs are over before they are struck"
    minutes = (time.monotonic() - began) / 60
    print(f"{KILLS} strikes in {number} runs, {resumed} resumed after an error, {minutes:.1f} min")


def ended(network, strikes):
    """Let the run end; return how often it had to be resumed after an error, which is one line."""
    resumed, end = 0, time.monotonic() + 1200
    while True:
        while network.processes["run"].poll() is None:
            strikes.mend(every=True)
            assert time.monotonic() < end, ("it hangs", strikes.done, network.output("run")[-2000:])
            time.sleep(0.2)
        code = network.processes["run"].returncode
        if code == 0:
            return resumed
        if code != -signal.SIGKILL:
            output = network.output("run")
            assert "Traceback" not in output, (strikes.done, output)
            assert re.search(r"unpooled: .*unpooled resume", " ".join(output.split())), (strikes.done, output)
            resumed += 1
        assert resumed < 6, (strikes.done, network.output("run")[-3000:])
        network.again("run")
