"""Federations of many sites on this machine: ``python -m benchmarks.bench_sites``, or with numbers of sites.

Every site has processes of its own. Printed are the seconds from "all are connected" to the end of the first
round, the seconds of an exchange, threads and memory of the server's processes, and the memory of a process
that has only imported the engine. Only a quiet machine gives figures to quote.
"""

import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tests.machines.network import certified_site

from unpooled.app.job import Between, Job
from unpooled.app.run_job import tasks
from unpooled.runtimes.coordinator_run import ProgressFile
from unpooled.runtimes.provisioning import follow_run
from unpooled.runtimes.provisioning.federation_folder import FederationFolder, create
from unpooled.site.copy_folder import CopyFolder
from unpooled.site.site_process import SiteSettings

ASKED = {3: ("exchange", 0.1), 10: ("exchange", 0.3), 50: ("first round", 60.0)}
ROUNDS = 30


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def set_up(home: Path, sites: int) -> tuple[FederationFolder, list[list[str]]]:
    """A federation with all folders, copies and approvals; the commands that start its sites."""
    names = tuple(f"site-{number:04}" for number in range(sites))
    where = f"localhost:{free_port()}"
    federation = create(home / "federation", "many", where, names, engine_name="nvflare")
    rng, commands = np.random.default_rng(0), []
    for name in names:
        place = certified_site(federation, name, home / name)
        rows = rng.normal(size=(200, 4)) + 4 * rng.integers(0, 3, size=(200, 1))
        data = home / f"{name}.csv"
        np.savetxt(data, rows, delimiter=",", header="a,b,c,d", comments="")
        settings = SiteSettings(name, str(data), str(place.path), authority=place.invitation.authority)
        CopyFolder(place.path).make(settings.table(), settings.rules().protect.settings())
        CopyFolder(place.path).approve()
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
                process.kill()
            for process in started:
                process.wait()


class Watch(threading.Thread):
    """The most threads and bytes of the server's two processes, looked at ten times a second."""

    def __init__(self, server: int) -> None:
        super().__init__(daemon=True)
        self.server, self.most = server, {"server": (0, 0.0), "job": (0, 0.0)}

    def run(self) -> None:
        while True:
            with contextlib.suppress(psutil.Error):
                top = psutil.Process(self.server)
                for name, process in (("server", top), *(("job", child) for child in top.children())):
                    threads, size = self.most[name]
                    taken = process.memory_info().rss / 2**20
                    self.most[name] = (max(threads, process.num_threads()), max(size, taken))
            time.sleep(0.1)


def imported(modules: str) -> float:
    """Megabytes of a process that has imported modules."""
    words = f"import psutil, {modules}\nprint(psutil.Process().memory_info().rss / 2**20)"
    return float(subprocess.check_output([sys.executable, "-c", words], text=True).split()[-1])


def measured(sites: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        federation, commands = set_up(home, sites)
        server = federation.engine.server_command(federation.server, federation.address)
        began = time.monotonic()
        with running([server], home / "server.log") as up, running(commands, home / "sites.log"):
            while len(follow_run.present(federation) or ()) < sites:
                time.sleep(0.1)
            connected = time.monotonic()
            watch = Watch(up[0].pid)
            watch.start()
            first: list[float] = []
            between = Between(str(federation.path), "bench", federation.sites, quorum=1.0, deadline=120.0)
            job = Job(files=(), ks=(3,), n_init=1, max_rounds=ROUNDS, protect="copy", between=between)
            follow_run.follow(
                federation,
                *tasks(job, between),
                patience=300.0,
                progress=lambda record: first.append(time.monotonic()),
            )
            ended = time.monotonic()
            seconds = ProgressFile(federation.runs / "bench").read()["seconds"]
        return {
            "connected": connected - began,
            "first round": first[0] - connected,
            "run": ended - connected,
            "exchange": statistics.median(seconds[1:]),
            "exchanges": len(seconds),
            **watch.most,
        }


def main() -> None:
    engine = "nvflare.private.fed.app.server.runner_process, nvflare.apis.impl.controller"
    alone, ours = imported(engine), imported(f"{engine}, unpooled.runtimes.nvflare.coordinator")
    print(f"a job at the server: {alone:.0f} MB with the engine only, {ours - alone:.0f} MB are ours")
    for sites in map(int, sys.argv[1:] or ("3", "10", "50")):
        found = measured(sites)
        (threads, size), (job_threads, job_size) = found["server"], found["job"]
        print(
            f"{sites} sites: all connected after {found['connected']:.1f} s, first round "
            f"{found['first round']:.1f} s later; an exchange {found['exchange']:.3f} s (median of "
            f"{found['exchanges']}), the run "
            f"{found['run']:.1f} s; server {threads} threads, {size:.0f} MB; job {job_threads} threads, "
            f"{job_size:.0f} MB"
        )
        if sites in ASKED:
            what, most = ASKED[sites]
            reached = "reached" if found[what] <= most else "NOT REACHED"
            print(f"  asked: {what} at most {most:g} s: {reached}")


if __name__ == "__main__":
    main()
