"""Runs over files between real processes that are killed before every step.

A step is a call that puts something on the disk or takes it away. The n-th life of a process ends by kill -9
before its n-th step, so every step of a beginning process is hit, one after the other, until a life is long
enough to end the run. Nothing depends on time.
"""

import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys

import pytest

from federation.test_file_runs import DP, PRIVATE, SITES, SUMMARY, Federation, command, same_result
from helpers import bits
from unpooled.app.cli import app, join_commands
from unpooled.app.local_sites import NO_FACTS
from unpooled.app.run_folder import RunFolder
from unpooled.federation import file_transport
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy.dp.accounting import gdp_mu
from unpooled.protocol import codec, run
from unpooled.protocol.exchange import Request, Response, Transport
from unpooled.site.log import entries, unpacked

PATIENCE = 600.0  # seconds; only a process that hangs takes that long
STEPS = ("fsync", "replace", "rename", "link", "unlink")  # of the module os
_PRELOADED = ("unpooled", "numpy", "cryptography", "scipy", "opendp", "typer", "rich")


def _live(words, step, output):
    """Run a command in this process, which is killed before its step of this number; 0: never."""
    steps = itertools.count(1)

    def counted(call):
        def counting(*args, **named):
            if next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **named)

        return counting

    for module in (file_transport, join_commands):
        module._MAX_PAUSE = 0.02  # between two looks at the folder, in which processes would only wait
    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    with output.open("a", encoding="utf-8") as log:
        sys.stdout = sys.stderr = log
        app([str(word) for word in words], standalone_mode=True)


class Processes:
    """The coordinator and the sites of a federation, each in a process of its own."""

    def __init__(self, federation: Federation) -> None:
        self.federation, self.out = federation, federation.top / "run"
        self.output = federation.top / "output.txt"
        self._context = multiprocessing.get_context("forkserver")  # a process begins with all imports done
        known = [name for name in sys.modules if name.split(".")[0] in _PRELOADED]
        self._context.set_forkserver_preload(["__main__", *known])
        self.running = {}

    def _start(self, words, step=0):
        process = self._context.Process(target=_live, args=(words, step, self.output))
        process.start()
        return process

    def _site(self, site):
        folder = self.federation.shared / site
        return ("site", "answer", self.federation.top / site, folder, "--watch")

    def coordinator(self, options):
        """The command that begins the run, or goes on with it."""
        if (self.out / "job.json").exists():
            return ("resume", self.out)
        words = ("--files", self.federation.shared, "--out", self.out, "--quorum", 1, "--deadline", PATIENCE)
        return ("federation", "run", self.federation.home, *words, *options)

    def run(self, options, dying, first=1, stride=1):
        """Run a job to its end, and return the number of lives of one party.

        They end before step ``first``, ``first + stride`` and so on.
        """
        others = [site for site in SITES if site != dying]
        self.running = {site: self._start(self._site(site)) for site in others}
        lives = itertools.count(first, stride)
        if dying == "coordinator":
            number, process = 0, None
            while process is None or process.exitcode == -signal.SIGKILL:
                process = self._start(self.coordinator(options), next(lives))
                process.join(PATIENCE)
                number += 1
            self._ended(process)
            return number
        self.running["coordinator"] = whole = self._start(self.coordinator(options))
        number = 0
        while whole.exitcode is None:
            self.running[dying] = one = self._start(self._site(dying), next(lives))
            number += 1
            multiprocessing.connection.wait([one.sentinel, whole.sentinel], PATIENCE)
            if whole.exitcode is None:
                one.join(PATIENCE)
                assert one.exitcode == -signal.SIGKILL, self.output.read_text()
        self._ended(whole)
        return number

    def _ended(self, process):
        assert process.exitcode == 0, (process.exitcode, self.output.read_text()[-3000:])

    def close(self):
        for process in self.running.values():
            process.kill()
            process.join()


@pytest.fixture
def processes(request, tmp_path):
    made = Processes(Federation(tmp_path, request.param))
    yield made
    made.close()


class LoggedAnswers(Transport):
    """Gives each site's logged answer to a request, at once: what any transport carries in a calm run."""

    sites = SITES

    def __init__(self, federation: Federation) -> None:
        self._answers = {
            (site, entry["request"]): codec.decode(unpacked(entry["payload"]), expect=Response)
            for site in SITES
            for _, entry in entries(federation.top / site / "log.jsonl")
            if entry["kind"] == "release"
        }

    def send_and_receive(self, requests):
        return {
            site: codec.wrap(self._answers[site, codec.unwrap(data, expect=Request).digest])
            for site, data in requests.items()
        }


LONG = pytest.mark.long  # every step is hit; in the others some are


@pytest.mark.parametrize(
    ("dying", "lives"),
    [
        ("coordinator", (3, 41)),
        pytest.param("coordinator", (1, 3), marks=LONG),
        pytest.param("north", (1, 1), marks=LONG),
    ],
)
@pytest.mark.parametrize("processes", [SUMMARY], indirect=True)
def test_secure_sums_survive_a_kill_before_every_step_with_the_same_bits(processes, dying, lives):
    options = ("-k", "2", "--restarts", "1", "--protect", "summary", "--secure")
    assert processes.run(options, dying, *lives) > 3
    federation = processes.federation
    command("fit", *federation.files, *options, "--out", federation.top / "fit")
    same_result(processes.out, federation.top / "fit")
    for site in SITES:
        assert all(len(digests) == 1 for digests in federation.releases(site).values())


@pytest.mark.parametrize(
    ("dying", "lives"),
    [
        ("north", (2, 13)),
        pytest.param("coordinator", (1, 1), marks=LONG),
        pytest.param("north", (1, 1), marks=LONG),
    ],
)
@pytest.mark.parametrize("processes", [DP], indirect=True)
def test_a_private_run_survives_a_kill_before_every_step_and_charges_each_query_once(processes, dying, lives):
    assert processes.run(PRIVATE, dying, *lives) > 3
    for site in SITES:
        number, different, mu_squared = processes.federation.spent(site)
        assert number == different > 0
        assert mu_squared == pytest.approx(gdp_mu(4, 1e-6) ** 2)
        assert all(len(digests) == 1 for digests in processes.federation.releases(site).values())
    folder, calm = RunFolder(processes.out), TransportFederation(LoggedAnswers(processes.federation))
    job = folder.load_job()
    again = run(job.algorithm, calm, seed=job.seed, quorum=1, name=job.remote.run)
    assert bits(again.state) == bits(folder.load_run(job, NO_FACTS).state)
