"""A real federation on this machine: the server, every site and every command in a process of its own."""

import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from unpooled.federation.engine import EngineIdentity
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning.enrolment import admit, awaiting_admission
from unpooled.federation.provisioning.federation_folder import FederationFolder, connected_sites
from unpooled.federation.provisioning.invitations import Invitation
from unpooled.federation.provisioning.keys import Authority, private_pem, read_key
from unpooled.federation.provisioning.site_folder import SiteFolder
from unpooled.site.identity import identity_in
from unpooled.site.session import SiteSettings

UNPOOLED = [sys.executable, "-m", "unpooled"]
PATIENCE = 600.0  # seconds; only a process that hangs takes that long
STUDIES = '[studies]\napprove = "known"\npurposes = ["*"]\n'  # officers who approve all of this coordinator
RAW = f'format = 1\n[protect]\nmode = "raw"\n{STUDIES}'


def reserved_port() -> int:
    """A port that the system gives to nobody else while this process lives.

    A server may listen at it, because both sockets allow that (SO_REUSEADDR) and this one does not listen.
    While no server listens, a connection is refused.
    """
    both = socket.has_dualstack_ipv6()
    reservation = socket.socket(socket.AF_INET6 if both else socket.AF_INET)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if both:
        reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    reservation.bind(("", 0))
    port = int(reservation.getsockname()[1])
    reservation.detach()  # open until this process ends
    return port


def until(true: Callable[[], Any], what: str, patience: float = PATIENCE, pause: float = 0.05) -> Any:
    """Wait for a condition, at most ``patience`` seconds, and return its value."""
    end = time.monotonic() + patience
    while not (value := true()):
        assert time.monotonic() < end, f"waited {patience:g} seconds for {what}"
        time.sleep(pause)
    return value


def eventually(act: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Repeat an action until its assertions hold: on a busy machine a state may take its time to appear."""
    failures: list[AssertionError] = []

    def holds() -> tuple[Any] | None:
        try:
            return (act(),)
        except AssertionError as failure:
            failures[:] = [failure]
            return None

    try:
        return until(holds, what, patience, pause=0.5)[0]
    except AssertionError as late:
        raise AssertionError(f"{late}: {failures[0] if failures else ''}") from None


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file of a folder with its content; files and folders that vanish meanwhile are skipped."""
    for parent, _, names in os.walk(folder):  # which does not mind a folder that vanishes, as rglob does
        for path in (Path(parent) / name for name in names):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            yield path, data


def tree(process: int) -> list[psutil.Process]:
    """A process and all its descendants, in whatever process group."""
    try:
        top = psutil.Process(process)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def ip(*words: Any) -> None:
    """Run a command about networks of this machine."""
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


def certified_site(federation: FederationFolder, site: str, folder: Path, data: Path) -> None:
    """The folder of a site with a certificate of the federation's own authority, in the federation or not."""
    where, file = federation.address, folder.with_name(f"{folder.name}-invitation.json")
    Invitation(
        where.federation, where.host, where.port, "nvflare", site, federation.root(),
        identity_in(federation.path).public.hex(), "used", "2000-01-01T00:00:00+00:00",
    ).write(file)  # fmt: skip
    made = SiteFolder(folder)
    membership = made.accept(file)
    key = read_key(membership.key)
    certificate = Authority.read(federation.path / "authority").certify(
        site, key.public_key(), group=federation.address.federation
    )
    membership._write_engine_files(
        membership.invitation, EngineIdentity(private_pem(key), certificate, federation.root())
    )
    made.policy.write_text('format = 1\n[protect]\nmode = "raw"\n')
    made.open_audit_trail()
    SiteSettings(site, str(data), str(folder)).write()
    used = hashlib.sha256(b"used").hexdigest()
    (membership.path / "enrolled.json").write_text(json.dumps({"invitation": used}))


class Network:
    """Processes by name: "server", each site, and commands as they are called."""

    def __init__(
        self,
        folder: Path,
        files: dict[str, Path],
        *,
        host: str = "localhost",
        port: int | None = None,
        prefix: dict[str, Sequence[str]] | None = None,
        env: dict[str, str] | None = None,
        reading: Sequence[Any] = (),
        summary: bool = True,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.files = folder, files
        self._summary = summary  # sites have a summary table, which must be approved
        self._reading = reading  # how sites read their files, when they join first
        self.home = folder / "federation"
        self.port = port or reserved_port()
        self.alone(folder, env)
        self._prefix = prefix or {}  # e.g. to enter a network namespace
        self._joined: dict[str, int] = {}  # how often a site had reported a connection when it joined
        sites = [word for site in files for word in ("--site", site)]
        self.command(
            "federation", "init", self.home, "--name", "heart", "--address", f"{host}:{self.port}",
            *sites,
        )  # fmt: skip

    # ------------------------------------------------------------ starting

    def alone(self, folder: Path, env: dict[str, str] | None = None) -> None:
        """Prepare processes without a federation; the caller makes one."""
        self.folder, self._prefix = folder, {}
        self._env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **(env or {})}
        self.processes: dict[str, Any] = {}
        self._started: list[Any] = []

    def command(
        self,
        *words: Any,
        code: int = 0,
        patience: float = PATIENCE,
        folder: Path | None = None,
        entered: str | None = None,
    ) -> subprocess.CompletedProcess:
        """Run a command to its end, in a folder; ``entered`` are the answers to its prompts."""
        done = subprocess.run(
            [*UNPOOLED, *map(str, words)],
            env=self._env,
            cwd=folder,
            input=entered,
            capture_output=True,
            text=True,
            timeout=patience,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(
        self, name: str, *words: Any, where: str = "", folder: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command; its output goes to a file of its name."""
        with (self.folder / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                [*self._prefix.get(where or name, ()), *UNPOOLED, *map(str, words)],
                env=self._env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.processes[name] = process
        self._started.append(process.pid)
        return process

    def serve(self) -> None:
        self.start("server", "federation", "serve", self.home)

    def join(self, site: str, *options: Any, data: Path | None = None, folder: Path | None = None) -> None:
        """Start a site; if it joins for the first time, act as coordinator and officer."""
        if self._begin_to_join(site, *options, data=data, folder=folder):
            self.admit(site)
            if self._summary:
                self.approve(site)

    def _begin_to_join(
        self, site: str, *options: Any, data: Path | None = None, folder: Path | None = None
    ) -> bool:
        """Start a site; True if it joins for the first time."""
        own = folder or self.site_folder(site)
        self._joined[site] = self._connections(site)
        if not own.exists():
            options = (*self._reading, *options)
            options += () if "--person" in options else ("--one-row-per-person",)
            options += () if "--diverse" in options else ("--no-sensitive-columns",)
            if "--policy" not in options:
                policy = self.folder / f"{site}.toml"
                policy.write_text(f"format = 1\n{STUDIES}")
                options += ("--policy", policy)
            words = ("--data", data or self.files[site], *options)
            self.start(site, "site", "join", own, self.invitation(site), *words)
            return True
        if data or options:
            self.start(site, "site", "start", own, "--data", data or self.files[site], *options)
        else:
            self.start(site, "site", "start", own)
        return False

    def admit(self, site: str) -> None:
        """Act as the coordinator once the site has read out its fingerprint."""
        process, federation = self.processes[site], FederationFolder.read(self.home)
        read_out = until(lambda: self.fingerprint(site) or process.poll() is not None, f"{site} to read out")
        until(
            lambda: site in awaiting_admission(federation) or process.poll() is not None, f"{site} to enrol"
        )
        assert process.poll() is None, self.output(site)
        admit(federation, site, read_out)

    def fingerprint(self, site: str) -> str:
        """The fingerprint that a site read out last."""
        return ["", *re.findall(r"the fingerprint to read out: (.*)", self.output(site))][-1]

    def approve(self, site: str) -> None:
        """Act as the officer of a site, which answers nothing before."""
        about = self.site_folder(site) / "summary" / "about.json"
        process = self.processes[site]
        until(lambda: about.exists() or process.poll() is not None, f"the summary table of {site}")
        self.command("site", "approve", "--table", "--yes", self.site_folder(site))

    def up(self) -> "Network":
        """Start the server and all sites, which join side by side."""
        self.serve()
        new = [site for site in self.files if self._begin_to_join(site)]
        for site in new:
            self.admit(site)
        for site in new if self._summary else ():
            self.approve(site)
        self.wait_connected()
        return self

    def run(self, name: str, *options: Any) -> subprocess.Popen[bytes]:
        """``unpooled federation run`` into the folder of that name; does not wait.

        The deadline is far away, so that no site is left out because this machine is busy.
        """
        words = ("--out", self.out(name), "--deadline", 600, *options)
        return self.start(name, "federation", "run", self.home, *words, where="server")

    def finish(self, name: str, patience: float = 900.0, code: int = 0) -> str:
        """Wait for a command to end, and return its output."""
        process = self.processes[name]
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{name} takes more than {patience:g} seconds\n{self.output(name)}"
            ) from None
        assert process.returncode == code, self.output(name)
        return self.output(name)

    # ------------------------------------------------------------ other settings, for a while

    def policy(self, site: str) -> Path:
        """The file of a site's policy, which the next run at the site follows."""
        return self.site_folder(site) / "policy.toml"

    @contextlib.contextmanager
    def with_policy(self, site: str, text: str) -> Iterator[None]:
        """Give a site another policy for a while."""
        path = self.policy(site)
        before = path.read_text()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(before)

    @contextlib.contextmanager
    def answering_from_rows(self) -> Iterator["Network"]:
        """Let the sites answer from their rows for a while: then every question goes over the network."""
        with contextlib.ExitStack() as stack:
            for site in self.files:
                stack.enter_context(self.with_policy(site, RAW))
            yield self

    @contextlib.contextmanager
    def with_settings(self, site: str, **changed: Any) -> Iterator[None]:
        """Give a site other settings for a while, as if it had joined with them."""
        path = self.membership(site) / "engine" / "local" / "unpooled.json"
        if not changed.keys() <= json.loads(path.read_text()).keys():
            path = self.site_folder(site) / "settings.json"
        before = path.read_text()
        path.write_text(json.dumps({**json.loads(before), **changed}))
        try:
            yield
        finally:
            path.write_text(before)

    # ------------------------------------------------------------ looking

    def invitation(self, site: str) -> Path:
        return self.home / "invitations" / f"{site}.json"

    def site_folder(self, site: str) -> Path:
        return self.folder / "at" / site

    def membership(self, site: str) -> Path:
        """The subfolder of a site for the only federation that it joined."""
        (path,) = (self.site_folder(site) / "federations").iterdir()
        return path

    def out(self, name: str) -> Path:
        return self.folder / "out" / name

    def output(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text()

    def connected(self) -> set[str]:
        return set(connected_sites(FederationFolder.read(self.home)) or ())

    def _connections(self, site: str) -> int:
        """How often a site reported a connection."""
        output = self.output(site) if site in self.processes else ""
        return len(re.findall(r": connected to heart", output))

    def wait_connected(self, sites: set[str] | None = None) -> None:
        expected = sites if sites is not None else set(self.files)

        def all_connected() -> bool:
            for name in expected:
                assert self.processes[name].poll() is None, self.output(name)
            reported = all(self._connections(name) > self._joined[name] for name in expected)
            return reported and expected <= self.connected()

        until(all_connected, f"{expected} to connect")

    def at_round(self, name: str, number: int) -> dict[str, Any]:
        """Wait until the run of that name has finished a round; return its progress record."""

        def reached() -> Any:
            assert self.processes[name].poll() is None, f"over before round {number}\n{self.output(name)}"
            with contextlib.suppress(FileNotFoundError):
                job = json.loads((self.out(name) / "job.json").read_text())["job"]
                progress = ProgressFile(self.home / "runs" / job["remote"]["run"]).read()
                if progress.get("record", {}).get("round", -1) >= number:
                    return progress
            return None

        return until(reached, f"round {number} of {name}", pause=0.01)

    def job_process(self, name: str) -> psutil.Process:
        """The process of the job that runs at a site or at the server."""
        module = "runner_process" if name == "server" else "worker_process"
        return until(lambda: self._process(name, module), f"the job of {name}", pause=0.01)

    def engine_process(self, name: str) -> psutil.Process:
        """The engine's process at a site or at the server."""
        module = "server_train" if name == "server" else "client_train"
        return until(lambda: self._process(name, module), f"the engine of {name}", pause=0.01)

    def _process(self, name: str, module: str) -> psutil.Process | None:
        """The process among the descendants of ``name`` that runs a module, if there is one."""
        for process in tree(self.processes[name].pid):
            with contextlib.suppress(psutil.Error):
                runs = any(word.endswith(module) for word in process.cmdline())
                if runs and process.status() != psutil.STATUS_ZOMBIE:
                    return process
        return None

    def strays(self) -> list[list[str]]:
        """The commands of processes of this network that no living process of it started."""
        orphans = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if process.pid == os.getpid() or not any(str(self.folder) in word for word in words):
                    continue
                ancestors = {process.pid, *(parent.pid for parent in process.parents())}
                if not ancestors & set(self._started):
                    orphans.append(words)
        return orphans

    # ------------------------------------------------------------ ending

    def kill(self, name: str) -> None:
        """kill -9 of a process and of all that it started."""
        for process in tree(self.processes[name].pid):
            with contextlib.suppress(psutil.Error):
                process.kill()  # a process that has ended meanwhile raises psutil.Error
        self.processes[name].wait(PATIENCE)

    def stop(self, site: str) -> None:
        self.command("site", "stop", self.site_folder(site))
        self.processes[site].wait(PATIENCE)

    def close(self) -> None:
        every = [process for pid in self._started for process in tree(pid)]
        for process in every:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(every, timeout=PATIENCE)
        for process in self.processes.values():
            process.wait(PATIENCE)
