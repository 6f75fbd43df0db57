"""Federations of many sites on this machine: ``python -m benchmarks.bench_sites``, or with numbers of sites.

The server is ``unpooled federation serve``, and every site has processes of its own. The output has the
seconds from "all are connected" to the end of the first round, the seconds of an exchange, the CPU seconds of
a site, and threads, memory and open files of the server's three processes. Memory is that of a process alone
(USS). Ours is all of ``serve``, and in the engine's two processes the part that our modules add. Only a quiet
machine gives numbers to quote, so the load is printed too.
"""

import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tests.machines.network import UNPOOLED, certified_site

from unpooled.app.job import Job, RemoteRunOptions
from unpooled.app.run_remote import RemoteRun
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning import follow_run
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.site.session import SiteSettings
from unpooled.site.table_store import SummaryFolder

TARGETS = {3: ("exchange", 0.1), 10: ("exchange", 0.3), 50: ("first round", 60.0)}
MAX_MEMORY = 50.0  # MB of ours at the server
ROUNDS = 30
PARTS = {"server_train": "server", "runner_process": "job"}  # the engine's processes, by their module
ENGINE = "nvflare.private.fed.app.server"
ADDED = {  # the engine's processes: the engine's modules, and ours
    "server": (f"{ENGINE}.server_train", "unpooled.federation.nvflare.presence"),
    "job": (
        f"{ENGINE}.runner_process, nvflare.apis.impl.controller",
        "unpooled.federation.nvflare.controller",
    ),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def set_up(home: Path, sites: int) -> tuple[FederationFolder, list[list[str]]]:
    """A federation with all folders, summary tables and approvals; the commands that start its sites."""
    names = tuple(f"site-{number:04}" for number in range(sites))
    where = f"localhost:{free_port()}"
    federation = create(home / "federation", "many", where, names, engine_name="nvflare")
    rng, commands = np.random.default_rng(0), []
    policy = home / "policy.toml"  # approves all studies of this coordinator
    policy.write_text(
        "format = 1\n[protect]\none_row_per_person = true\nno_sensitive_columns = true\n"
        '[studies]\napprove = "known"\npurposes = ["*"]\n'
    )
    for name in names:
        place = certified_site(federation, name, home / name)
        rows = rng.normal(size=(200, 4)) + 4 * rng.integers(0, 3, size=(200, 1))
        data = home / f"{name}.csv"
        np.savetxt(data, rows, delimiter=",", header="a,b,c,d", comments="")
        settings = SiteSettings(
            name, str(data), str(place.path), str(policy), authority=place.invitation.authority
        )
        SummaryFolder(place.path).make(settings.table(), settings.rules().protect.settings())
        SummaryFolder(place.path).approve()
        settings.write(federation.engine.settings_file(place.engine_folder))
        commands.append(federation.engine.site_command(place.engine_folder, federation.address, name))
    return federation, commands


@contextlib.contextmanager
def running(commands: list[list[str]], log: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    with log.open("ab") as out:
        started = [subprocess.Popen(words, stdout=out, stderr=out, process_group=0) for words in commands]
        try:
            yield started
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()


@dataclass
class Peak:
    """The peaks of a process of the server."""

    threads: int = 0
    memory: float = 0.0  # MB of its own
    files: int = 0

    def update(self, process: psutil.Process) -> None:
        self.threads = max(self.threads, process.num_threads())
        self.memory = max(self.memory, process.memory_full_info().uss / 2**20)
        self.files = max(self.files, process.num_fds())


class Watch(threading.Thread):
    """Reads the server's processes twice per second."""

    def __init__(self, serve: int) -> None:
        super().__init__(daemon=True)
        self.serve, self.peaks = serve, {name: Peak() for name in ("serve", *PARTS.values())}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.5):
            for name, process in named(self.serve):
                with contextlib.suppress(psutil.Error):
                    self.peaks[name].update(process)


def named(serve: int) -> list[tuple[str, psutil.Process]]:
    """The processes of the server: ours, and the engine's two."""
    top = psutil.Process(serve)
    found = [("serve", top)]
    for process in top.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            found += [(name, process) for end, name in PARTS.items() if any(w.endswith(end) for w in words)]
    return found


def taken(pids: list[int]) -> float:
    """CPU seconds of processes and of all that they started."""
    seconds = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(pid)
            for process in (top, *top.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    seconds += times.user + times.system
    return seconds


def imported(modules: str) -> float:
    """Megabytes (USS) of a process that has imported these modules."""
    words = f"import psutil, {modules}\nprint(psutil.Process().memory_full_info().uss / 2**20)"
    return float(subprocess.check_output([sys.executable, "-c", words], text=True).split()[-1])


def measured(sites: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        federation, commands = set_up(home, sites)
        began = time.monotonic()
        serve = [*UNPOOLED, "federation", "serve", str(federation.path)]
        with running([serve], home / "server.log") as up, running(commands, home / "sites.log") as started:
            pids = [process.pid for process in started]
            while len(follow_run.connected_sites(federation) or ()) < sites:
                assert up[0].poll() is None, (home / "server.log").read_text()
                time.sleep(0.1)
            connected, joined = time.monotonic(), taken(pids)
            watch = Watch(up[0].pid)
            watch.start()
            rounds: list[tuple[float, float, float]] = []  # time, CPU seconds of the sites and of the server
            remote = RemoteRunOptions(
                str(federation.path), "bench", federation.sites, quorum=1.0, deadline=120.0
            )
            job = Job(files=(), ks=(3,), n_init=1, max_rounds=ROUNDS, protect="summary", remote=remote)

            def note(record: Any) -> None:
                rounds.append((time.monotonic(), taken(pids), taken([up[0].pid])))

            run = RemoteRun.from_job(job, federation)
            follow_run.follow(federation, run.task, run.terms, patience=300.0, progress=note)
            ended = time.monotonic()
            watch.over.set()
            watch.join()
            seconds = ProgressFile(federation.runs / "bench").read()["seconds"]
        (first, by_sites, by_server), (_, later, server_later) = rounds[0], rounds[-1]
        after = max(1, len(seconds) * (len(rounds) - 1) // len(rounds))  # exchanges after the first round
        return {
            "connected": connected - began,
            "first round": first - connected,
            "run": ended - connected,
            "exchange": statistics.median(seconds[1:]),
            "exchanges": len(seconds),
            "joining": joined / sites,
            "starting": (by_sites - joined) / sites,
            "answering": (later - by_sites) / sites / after,
            "asking": (server_later - by_server) / sites / after,
            "peaks": watch.peaks,
        }


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all started processes are ended
    ours = {}
    for name, (engine, added) in ADDED.items():
        alone = imported(engine)
        ours[name] = imported(f"{engine}, {added}") - alone
        print(
            f"the engine's {name} process before it does anything: {alone:.0f} MB, ours {ours[name]:.0f} MB"
        )
    for sites in map(int, sys.argv[1:] or ("3", "10", "50")):
        load = os.getloadavg()[0]
        found = measured(sites)
        peaks: dict[str, Peak] = found["peaks"]
        mine = peaks["serve"].memory + sum(ours.values())
        print(
            f"{sites} sites (load before {load:.1f}): all connected after {found['connected']:.1f} s, first "
            f"round {found['first round']:.1f} s later; an exchange {found['exchange']:.3f} s (median of "
            f"{found['exchanges']}), the run {found['run']:.1f} s"
        )
        print(
            f"  CPU per site: {found['joining']:.2f} s to connect, {found['starting']:.2f} s more until "
            f"the first round is done, {1000 * found['answering']:.1f} ms per exchange; the server "
            f"{1000 * found['asking']:.1f} ms per site and exchange"
        )
        for name, peak in peaks.items():
            print(f"  {name}: {peak.threads} threads, {peak.memory:.0f} MB, {peak.files} open files")
        print(f"  ours: serve's {peaks['serve'].threads} threads, {mine:.0f} MB in the three processes")
        verdict(f"ours at most {MAX_MEMORY:g} MB", mine <= MAX_MEMORY)
        if sites in TARGETS:
            what, limit = TARGETS[sites]
            verdict(f"{what} at most {limit:g} s", found[what] <= limit)


def verdict(target: str, met: bool) -> None:
    """Print whether a target is met."""
    print(f"  target: {target}: {'met' if met else 'NOT MET'}", flush=True)


if __name__ == "__main__":
    main()
