"""Random kill -9 and SIGSTOP of all processes of real runs, including their start.

A run that ends with an error reports it in one line, and ``resume`` gives it the bits of an undisturbed run.
"""

import contextlib
import random
import re
import signal
import time

import psutil
import pytest

from machines.network import PATIENCE, tree, until
from machines.test_processes import free
from machines.test_runs import EVERY, LONG, assert_same
from unpooled.storage.file_locks import is_locked

KILLS, RUNS = 200, 40
PAUSE = 2.0  # seconds between two strikes on average


class Strikes:
    """Kills or suspends processes of a network at random, and restarts them as an administrator would."""

    def __init__(self, network, seed):
        self.network, self.chance = network, random.Random(seed)
        self.done = []  # descriptions of the signals, for the message of a failed test
        self._suspended = []

    def strike(self, run):
        """kill -9 or suspend one process: a command, an engine, or a job's process, anywhere.

        Returns True if a signal reached a live process, which was not suspended already if it is to be.
        """
        names = [name for name in ("server", *self.network.files, run) if self._alive(name)]
        name = self.chance.choice(names)
        process = self.chance.choice(tree(self.network.processes[name].pid) or [None])
        number = self.chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
        try:
            gone = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            useless = (*gone, psutil.STATUS_STOPPED) if number == signal.SIGSTOP else gone
            if process is None or process.status() in useless:
                return False
            description = f"{number.name} {name}: {' '.join(process.cmdline())[-80:]}"
            process.send_signal(number)
        except psutil.Error:
            return False
        self.done.append(description)
        if number == signal.SIGSTOP:
            self._suspended.append((time.monotonic() + self.chance.uniform(0.5, 6.0), process))
        return True

    def mend(self, run):
        """Act as supervisors and administrators: resume suspended processes, restart dead commands."""
        late = [process for until_then, process in self._suspended if time.monotonic() > until_then]
        self._suspended = [(t, process) for t, process in self._suspended if process not in late]
        for process in late:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)
        if not self._alive("server"):
            until(lambda: not is_locked(self.network.home / "server"), "the server's folder to be free")
            self.network.serve()
        for site in self.network.files:
            if not self._alive(site):
                until(lambda site=site: not is_locked(self.network.membership(site)), f"{site} to be free")
                self.network.join(site)
        if self.network.processes[run].poll() == -signal.SIGKILL:
            self.network.start(run, "resume", self.network.out(run), where="server")

    def calm(self, run):
        """Resume all suspended processes and restart all dead ones."""
        self._suspended = [(0.0, process) for _, process in self._suspended]
        self.mend(run)

    def _alive(self, name):
        return self.network.processes[name].poll() is None


def disturbed(network, run, kills, seed):
    """A run with ``kills`` strikes, to its end; how often it had to be resumed after an error."""
    strikes, resumed = Strikes(network, seed), 0
    network.run(run, *EVERY)
    until(lambda: (network.out(run) / "job.json").exists(), "the job")  # before it there is nothing to resume
    process = network.processes[run]
    while kills and process.poll() in (None, -signal.SIGKILL):
        time.sleep(strikes.chance.expovariate(1 / PAUSE))
        kills -= strikes.strike(run)
        time.sleep(0.2)
        strikes.mend(run)
        process = network.processes[run]
    strikes.calm(run)
    while True:
        end = time.monotonic() + PATIENCE
        while network.processes[run].poll() is None:
            strikes.mend(run)
            assert time.monotonic() < end, ("it hangs", strikes.done, network.output(run)[-2000:])
            time.sleep(0.2)
        code = network.processes[run].returncode
        if code == 0:
            break
        if code != -signal.SIGKILL:  # one clear line, and a way out
            output = network.output(run)
            assert "Traceback" not in output, (strikes.done, output)
            assert re.search(r"unpooled: .*unpooled resume", " ".join(output.split())), (strikes.done, output)
        resumed += 1
        assert resumed < 4, (strikes.done, network.output(run)[-3000:])
        network.start(run, "resume", network.out(run), where="server")
    return kills, resumed, strikes


@pytest.mark.long
def test_runs_whose_processes_are_killed_at_random_end_with_the_same_bits(asked, fitted):
    """KILLS strikes in at least RUNS runs; a run that ends before its share leaves the rest to later ones."""
    left, errors, number, began, network = KILLS, 0, 0, time.monotonic(), asked
    while left or number < RUNS:
        assert number < 3 * RUNS, f"{left} of {KILLS} strikes are left after {number} runs"
        share = -(-left // max(1, RUNS - number))
        unused, resumed, strikes = disturbed(network, f"struck-{number}", share, number)
        assert len(strikes.done) == share - unused
        left -= len(strikes.done)
        errors += resumed
        try:
            assert_same(network.out(f"struck-{number}"), fitted(*LONG))
            for site in network.files:
                log = network.site_folder(site) / "log.jsonl"
                until(lambda log=log: free(log), f"the log of {site} to be free")
            until(lambda: not network.strays(), "processes without a parent to end")
            assert not [path for path in (network.home / "runs").iterdir() if is_locked(path)]
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n" + "\n".join(strikes.done)) from wrong
        number += 1
    minutes = (time.monotonic() - began) / 60
    print(f"{KILLS - left} strikes in {number} runs, {errors} resumed after an error, {minutes:.1f} min")
    assert left == 0
    network.wait_connected()
