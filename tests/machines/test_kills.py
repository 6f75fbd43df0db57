"""Random kill -9 and SIGSTOP over all processes of real runs, start-up included.

A run that ends with an error says it in one line, and ``resume`` brings it to the bits of a calm one.
"""

import contextlib
import random
import re
import signal
import time

import psutil
import pytest

from machines.network import tree, until
from machines.test_processes import free
from machines.test_runs import EVERY, LONG, assert_same
from unpooled.storage.file_locks import is_locked

KILLS, RUNS = 200, 40
PAUSE = 2.0  # seconds between two strikes on average


class Strikes:
    """Strikes processes of a network at random, and starts again what the user of a machine would."""

    def __init__(self, network, seed):
        self.network, self.chance = network, random.Random(seed)
        self.told = []  # what was done, for the message of a failed test
        self._halted = []

    def strike(self, run):
        """kill -9 or halt one process: a command, an engine, or a job's process, anywhere.

        True if a signal reached a process that lived, and that was not halted already if it is to be halted.
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
            told = f"{number.name} {name}: {' '.join(process.cmdline())[-80:]}"
            process.send_signal(number)
        except psutil.Error:
            return False
        self.told.append(told)
        if number == signal.SIGSTOP:
            self._halted.append((time.monotonic() + self.chance.uniform(0.5, 6.0), process))
        return True

    def mend(self, run):
        """What supervisors and administrators do: halted processes go on, dead commands are started again."""
        late = [process for until_then, process in self._halted if time.monotonic() > until_then]
        self._halted = [(t, process) for t, process in self._halted if process not in late]
        for process in late:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)
        if not self._alive("server"):
            until(lambda: not is_locked(self.network.home / "server"), "the server's folder to be free")
            self.network.serve()
        for site in self.network.files:
            if not self._alive(site):
                until(lambda site=site: not is_locked(self.network.site_folder(site)), f"{site} to be free")
                self.network.join(site)
        if self.network.processes[run].poll() == -signal.SIGKILL:
            self.network.start(run, "resume", self.network.out(run), where="server")

    def calm(self, run):
        """Let all halted processes go on and all dead ones start."""
        self._halted = [(0.0, process) for _, process in self._halted]
        self.mend(run)

    def _alive(self, name):
        return self.network.processes[name].poll() is None


def disturbed(network, run, kills, seed):
    """A run that is struck so many times, to its end; how often it had to be resumed after an error."""
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
        end = time.monotonic() + 240
        while network.processes[run].poll() is None:
            strikes.mend(run)
            assert time.monotonic() < end, ("it hangs", strikes.told, network.output(run)[-2000:])
            time.sleep(0.2)
        code = network.processes[run].returncode
        if code == 0:
            break
        if code != -signal.SIGKILL:  # one clear line, and a way out
            said = network.output(run)
            assert "Traceback" not in said, (strikes.told, said)
            assert re.search(r"unpooled: .*unpooled resume", " ".join(said.split())), (strikes.told, said)
        resumed += 1
        assert resumed < 4, (strikes.told, network.output(run)[-3000:])
        network.start(run, "resume", network.out(run), where="server")
    return kills, resumed, strikes


@pytest.mark.long
def test_runs_that_are_struck_at_random_end_with_the_calm_bits(network, fitted):
    """So many strikes in at least so many runs; runs that end before their share leave it to further ones."""
    left, errors, number, began = KILLS, 0, 0, time.monotonic()
    while left or number < RUNS:
        assert number < 3 * RUNS, f"{left} of {KILLS} strikes are left after {number} runs"
        share = -(-left // max(1, RUNS - number))
        unused, resumed, strikes = disturbed(network, f"struck-{number}", share, number)
        assert len(strikes.told) == share - unused
        left -= len(strikes.told)
        errors += resumed
        try:
            assert_same(network.out(f"struck-{number}"), fitted(*LONG))
            for site in network.files:
                log = network.site_folder(site) / "log.jsonl"
                until(lambda log=log: free(log), f"the log of {site} to be free")
            assert network.strays() == []
            assert not [path for path in (network.home / "runs").iterdir() if is_locked(path)]
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n" + "\n".join(strikes.told)) from wrong
        number += 1
    minutes = (time.monotonic() - began) / 60
    print(f"{KILLS - left} strikes in {number} runs, {errors} resumed after an error, {minutes:.1f} min")
    assert left == 0
    network.wait_connected()
