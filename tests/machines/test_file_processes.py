"""Runs over files between real processes, any of which is killed at any time."""

import random
import subprocess
import sys
import time

import pytest

from federation.test_file_runs import DP, PRIVATE, SITES, SUMMARY, Federation, command, same_result
from unpooled.privacy.dp.accounting import gdp_mu

UNPOOLED = [sys.executable, "-m", "unpooled"]
PATIENCE = 600.0  # seconds; only a process that hangs takes that long


class Processes:
    """The coordinator and the sites of a federation, each a process that is started again after a kill."""

    def __init__(self, federation: Federation, seed: int) -> None:
        self.federation, self.chance, self.kills = federation, random.Random(seed), []
        self.out = federation.top / "run"
        self.running = {site: self._site(site) for site in SITES}

    def _site(self, site: str) -> subprocess.Popen:
        top = self.federation.top
        return self._start("site", "answer", top / site, self.federation.shared / site, "--watch")

    def _start(self, *words) -> subprocess.Popen:
        with (self.federation.top / "output.txt").open("ab") as output:
            return subprocess.Popen([*UNPOOLED, *map(str, words)], stdout=output, stderr=output)

    def run(self, *options, kills: int) -> None:
        """Run a job to its end, with kill -9 of a site or of the coordinator at random moments."""
        words = ("--files", self.federation.shared, "--out", self.out, "--quorum", 1, "--deadline", PATIENCE)
        run = self._start("federation", "run", self.federation.home, *words, *options)
        due = time.monotonic() + self.chance.uniform(1, 3)
        while run.poll() is None:
            time.sleep(0.02)
            if len(self.kills) >= kills or time.monotonic() < due:
                continue
            name = self.chance.choice((*SITES, "coordinator"))
            if name == "coordinator" and not (self.out / "job.json").exists():
                continue  # the run has not begun, and there is nothing to resume
            killed = run if name == "coordinator" else self.running[name]
            killed.kill()
            killed.wait()
            self.kills.append(name)
            if name == "coordinator":
                run = self._start("resume", self.out)
            else:
                self.running[name] = self._site(name)
            due = time.monotonic() + self.chance.uniform(0.2, 3)
        assert run.returncode == 0, (self.kills, (self.federation.top / "output.txt").read_text())

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def processes(request, tmp_path):
    rules, seed = request.param
    made = Processes(Federation(tmp_path, rules), seed)
    yield made
    made.close()


def seeds(rules, first=0):
    """Rules and seeds; those from ``first`` on are long."""
    few = [(rules, seed) for seed in range(first)]
    return [*few, *(pytest.param((rules, seed), marks=pytest.mark.long) for seed in range(first, 6))]


@pytest.mark.parametrize("processes", seeds(SUMMARY, 1), indirect=True)
def test_secure_sums_survive_kills_with_the_same_bits(processes, request):
    options = ("-k", "2", "--restarts", "1", "--protect", "summary", "--secure")
    processes.run(*options, kills=3)
    federation = processes.federation
    command("fit", *federation.files, *options, "--out", federation.top / "fit")
    same_result(processes.out, federation.top / "fit")
    for site in SITES:
        assert all(len(digests) == 1 for digests in federation.releases(site).values())


@pytest.mark.parametrize("processes", seeds(DP), indirect=True)
def test_a_private_run_survives_kills_and_charges_each_query_once(processes):
    processes.run(*PRIVATE, kills=3)
    for site in SITES:
        number, different, mu_squared = processes.federation.spent(site)
        assert number == different > 0
        assert mu_squared == pytest.approx(gdp_mu(4, 1e-6) ** 2)
        assert all(len(digests) == 1 for digests in processes.federation.releases(site).values())
