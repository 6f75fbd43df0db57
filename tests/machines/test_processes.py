"""Processes, locks and ports: nothing outlives its parent or keeps a lock, and messages are true."""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvflare.apis.shareable import Shareable

from machines.network import PATIENCE, Network, contents, eventually, reserved_port, tree, until
from machines.test_runs import EVERY, LONG, assert_same, points
from studies import approved_terms
from unpooled.federation.nvflare.controller import Mailbox
from unpooled.federation.nvflare.launchers import job_folders, mark_job_ended
from unpooled.federation.nvflare.presence import Presence
from unpooled.federation.nvflare.presence_file import PRESENCE_FILE
from unpooled.federation.provisioning import keys
from unpooled.federation.provisioning.federation_folder import create
from unpooled.federation.provisioning.supervisor import stop_supervisor
from unpooled.protocol import codec
from unpooled.site.log import Log, LogInUse, request_handover
from unpooled.site.session import ANSWERING, MembershipFile, SiteSession, SiteSettings
from unpooled.storage.file_locks import is_locked, lock_owner

ENGINES = (
    (signal.SIGKILL, True),
    (signal.SIGKILL, False),
    (signal.SIGTERM, False),
)  # True: its job is suspended


def free(log):
    with log.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def assert_encrypted(process):
    """The address that an engine gave to its job's process is one of mutual TLS."""
    words = process.cmdline()
    inside = words[words.index("-p") + 1]
    assert inside.startswith("stcp://localhost:")
    address = ("localhost", int(inside.rpartition(":")[2]))
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(address, timeout=PATIENCE) as connection,
    ):
        connection.sendall(b"hello" * 100)
        assert len(connection.recv(65536)) < 100  # at most a TLS alert


@pytest.mark.parametrize("strikes", [ENGINES[:1], pytest.param(ENGINES, marks=pytest.mark.long)])
def test_a_site_that_is_killed_comes_back_and_leaves_nothing_behind(asked, fitted, strikes):
    """kill -9 and SIGTERM of its engine while its job starts or is suspended; ``site stop`` in a run."""
    fit, run, network = fitted(*LONG), f"site-killed-{len(strikes)}", asked
    first, second, _ = points(fit)
    network.run(run, *EVERY)
    for number, suspended in strikes:
        worker = network.job_process("va")  # it has just started, and is far from its first answer
        if suspended:
            worker.send_signal(signal.SIGSTOP)
        engine = network.engine_process("va")
        engine.send_signal(number)
        until(lambda engine=engine: not engine.is_running(), "the engine to end")
        until(lambda worker=worker: not worker.is_running(), "its worker to end with it")
        until(lambda: network.engine_process("va"), "the engine to be started again")
    network.at_round(run, first)
    for name in ("server", "va"):
        assert_encrypted(network.job_process(name))
    network.at_round(run, second)
    before = tree(network.processes["va"].pid)
    network.stop("va")
    log = network.site_folder("va") / "log.jsonl"
    assert free(log)  # at once: no process is left that could answer
    assert not any(process.is_running() for process in before)
    network.join("va")
    network.finish(run)
    assert_same(network.out(run), fit)
    until(lambda: free(log), "the log to be released at the end of the run")
    until(lambda: not network.strays(), "processes without a parent to end")


@pytest.mark.long
def test_a_site_that_is_killed_as_a_whole_is_back_in_the_same_job(asked, fitted):
    fit, network = fitted(*LONG), asked
    network.run("whole-site-killed", *EVERY)
    for number in points(fit):
        network.at_round("whole-site-killed", number)
        network.kill("va")
        network.join("va")
    network.finish("whole-site-killed")
    assert_same(network.out("whole-site-killed"), fit)


def test_the_engines_files_at_a_site_name_neither_the_others_nor_the_run(after_a_run):
    """After runs of all three sites, the engine's files at a site are about this site only.

    The terms, which are encoded, hold the study: it names the run, as the site's own log does.
    """
    network = after_a_run
    engine = network.membership("va") / "engine"
    runs = [
        json.loads(job.read_text())["job"]["remote"]["run"] for job in network.folder.glob("out/*/job.json")
    ]
    assert runs
    jobs = 0
    for path, data in contents(engine):
        for word in (b"cleveland", b"hungarian", b"config_fed_server", b"RunTask", *map(str.encode, runs)):
            assert word not in data, (path, word)
        if path.name == "meta.json":
            assert json.loads(data)["name"] == "run"
            jobs += 1
    assert jobs
    until(lambda: len([*engine.glob("*/ended")]) <= 5, "all but the latest five ended jobs to be removed")


# ---------------------------------------------------------------- ports


def served(tmp_path, port):
    create(tmp_path, "here", f"localhost:{port}", ("a",), engine_name="nvflare")
    return tmp_path


@pytest.mark.parametrize("shared", [False, True])
def test_serve_names_the_process_that_has_the_port(network, tmp_path, shared):
    with socket.socket() as other:
        if shared:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("", 0))
        other.listen()
        home = served(tmp_path / "one", other.getsockname()[1])
        done = network.command("federation", "serve", home, code=1)
    assert f"belongs to process {os.getpid()} (" in " ".join(done.stderr.split())
    assert "the server is up" not in done.stdout
    assert not is_locked(home / "server")


def test_two_servers_do_not_share_a_port(network, tmp_path):
    """The second one refuses, even if the first one is a server of unpooled."""
    home = served(tmp_path / "second", network.port)
    error = " ".join(network.command("federation", "serve", home, code=1).stderr.split())
    assert f"port {network.port} of this machine belongs to process" in error


# ---------------------------------------------------------------- a full disk


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user cannot mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.long
def test_a_full_disk_is_named_with_its_site(network, small_disk):
    """The site's whole folder is on a disk that fills up before the run."""
    usual = network.site_folder("va")
    network.stop("va")
    shutil.copytree(usual, small_disk / "va", ignore=shutil.ignore_patterns("*-*-*-*-*", "log.txt*"))
    network.command("site", "confirm", small_disk / "va")
    network.join("va", folder=small_disk / "va")
    try:
        network.wait_connected()
        with filled(small_disk):
            network.run("full", "-k", "2", "--restarts", "1", "--quorum", "1", "--wait", "0")
            output = " ".join(network.finish("full", code=1).split())
        assert re.search(rf"\bva: [^;]*{os.strerror(errno.ENOSPC)}", output), output
    finally:
        network.kill("va")
        network.join("va")
        network.wait_connected()


@contextlib.contextmanager
def filled(disk):
    """Fill a disk for a while."""
    with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(1 << 16)):
            pass
    try:
        yield
    finally:
        (disk / "filler").unlink()


def test_a_server_outlives_a_full_disk_a_half_saved_file_and_a_second_server(small_disk, monkeypatch):
    """Each is reported once, with its cause, and ends with its cause; no file of the server is damaged."""
    monkeypatch.setattr(keys, "_BITS", 2048)
    home, alone = small_disk / "heart", Network.__new__(Network)
    federation = create(home, "heart", f"localhost:{reserved_port()}", ("a", "b"), engine_name="nvflare")
    (home / "server" / "startup" / "fed_server.json").write_text("")  # as an earlier version left it
    alone.alone(small_disk)
    try:
        alone.start("serving", "federation", "serve", home)
        until(lambda: "the server is up" in alone.output("serving"), "the server")
        files = [*home.glob("*/startup/*"), *home.glob("*/local/*")]
        before = {path: path.read_bytes() for path in files}
        error = alone.command("federation", "serve", home, "--listen", "127.0.0.2", code=1).stderr
        assert "is already in use (process" in " ".join(error.split())
        with filled(small_disk):
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                federation.engine.listen_at(federation.server, federation.console, federation.address, 1)
            until(lambda: "No space left" in alone.output("serving"), "the full disk")
            status = eventually(
                lambda: alone.command("federation", "status", home, code=3), "the state of a full disk"
            )
            assert status.stderr.count("No space left on device") == 1
        until(lambda: "all is well again" in alone.output("serving"), "the record to continue")
        status = eventually(
            lambda: alone.command("federation", "status", home, code=4), "the server to be up again"
        )
        assert status.stderr.count("has not joined yet") == 2
        recovered = alone.output("serving").count("all is well again")
        file, text = home / "federation.json", (home / "federation.json").read_text()
        file.write_text(text[:40])
        until(lambda: "not the folder of a federation; the earlier" in alone.output("serving"), "the error")
        file.write_text(text)
        until(lambda: alone.output("serving").count("all is well again") > recovered, "the error to end")
        assert alone.processes["serving"].poll() is None
        assert alone.output("serving").count("the server is up") == 1
        assert "starting it again" not in alone.output("serving")
        assert {path: path.read_bytes() for path in files} == before
    finally:
        alone.close()


# ---------------------------------------------------------------- locks, without an engine


def test_a_supervisor_that_is_suspended_or_killed_ends(tmp_path):
    """``site stop`` ends it and all that it started; the lock that it holds names it."""
    script = (
        "import sys, signal\nfrom pathlib import Path\n"
        "from unpooled.federation.provisioning.supervisor import supervise\n"
        "command = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "supervise(command, Path(sys.argv[1]), print, lambda: None)\n"
    )
    for killed in (False, True):
        supervisor = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
        until(lambda supervisor=supervisor: len(tree(supervisor.pid)) > 1, "its child")
        assert lock_owner(tmp_path).pid == supervisor.pid
        child = tree(supervisor.pid)[1]
        supervisor.send_signal(signal.SIGSTOP)
        if killed:
            supervisor.send_signal(signal.SIGKILL)  # as by a power cut: nobody cleans up
        else:
            assert stop_supervisor(tmp_path, PATIENCE)
        supervisor.wait(PATIENCE)
        assert not is_locked(tmp_path)
        assert not killed or not stop_supervisor(tmp_path)
        if not killed:
            assert not child.is_running()
        else:
            child.kill()


def test_a_process_that_waits_for_the_log_gets_it_between_answers(tmp_path):
    """Two runs at one site: each hands the log over, and opens it again for its next question."""
    settings = raw_site(tmp_path)
    one, two = (SiteSession(settings, approved_terms(settings, name)) for name in ("one", "two"))
    for session in (one, two, one, two):
        assert str(session.respond(b"anything")).startswith("not a message")
    with pytest.raises(LogInUse, match=rf"process {os.getpid()} \({ANSWERING}\)"):
        Log(tmp_path / "site" / "log.jsonl")
    two.close()
    Log(tmp_path / "site" / "log.jsonl").close()
    assert two.respond(b"anything") == "the run is over"


def raw_site(tmp_path):
    data, policy = tmp_path / "patients.csv", tmp_path / "policy.toml"
    data.write_text("age,bmi\n" + "".join(f"{40 + i % 31},{20 + i % 9}\n" for i in range(60)))
    policy.write_text('format = 1\n[protect]\nmode = "raw"\n')
    return SiteSettings("a", str(data), str(tmp_path / "site"), str(policy))


def test_a_program_that_has_the_log_is_named_and_left_alone(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("unpooled.site.session._WAIT", (0.5, 30.0))
    settings = raw_site(tmp_path)
    terms = approved_terms(settings)
    SiteSession(settings, terms).close()
    (tmp_path / "site").mkdir(exist_ok=True)
    log = Log(tmp_path / "site" / "log.jsonl", "somebody's script")
    reason = SiteSession(settings, terms).respond(b"anything")
    assert reason == "another program at the site has its log open. The site's own log names it."
    assert f"process {os.getpid()} (somebody's script)" in caplog.text
    log.close()


def site_in_a_process(folder, does):
    """A site's settings, a run's terms, and the command of a process that opens the session and does this."""
    settings, file = raw_site(folder), folder / "membership.json"
    home = Path(settings.folder)
    home.mkdir()
    shutil.copy(settings.policy, home / "policy.toml")
    settings.write()
    MembershipFile(settings.site, "", settings.folder, settings.folder).write(file)
    terms = approved_terms(settings)
    (folder / "terms").write_bytes(codec.encode(terms))
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from unpooled.protocol import codec\n"
        "from unpooled.site.session import RunTerms, SiteSession, SiteSettings\n"
        "terms = codec.decode(Path(sys.argv[2]).read_bytes(), expect=RunTerms)\n"
        "session = SiteSession(SiteSettings.read(Path(sys.argv[1])), terms)\n"
    )
    words = [sys.executable, "-c", f"{script}{does}time.sleep(600)\n"]
    return settings, terms, [*words, str(file), str(folder / "terms")]


def test_a_process_of_ours_that_hangs_is_killed_for_the_log(tmp_path, monkeypatch):
    """It has the log and is suspended, so it hands nothing over: it is killed, and the site answers."""
    monkeypatch.setattr("unpooled.site.session._HAND_OVER", 0.5)
    monkeypatch.setattr("unpooled.site.session._WAIT", (PATIENCE, PATIENCE))
    settings, terms, words = site_in_a_process(tmp_path, "print(session.respond(b'x'), flush=True)\n")
    hung = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert hung.stdout.readline().startswith(b"not a message")
    hung.send_signal(signal.SIGSTOP)
    session = SiteSession(settings, terms)
    assert str(session.respond(b"anything")).startswith("not a message")
    assert hung.wait(PATIENCE) == -signal.SIGKILL
    hung.stdout.close()
    session.close()


def test_a_process_that_is_answering_is_left_to_finish(tmp_path, monkeypatch):
    """It reports that it works: it is not killed, however long it takes, and hands the log over later."""
    settings, terms, words = site_in_a_process(
        tmp_path,
        "session.respond(b'x')\nreceive, go = session._site.receive, Path(sys.argv[3])\n"
        "def slow(data):\n    print('begins', flush=True)\n"
        "    while not go.exists():\n        time.sleep(0.05)\n    return receive(data)\n"
        "session._site.receive = slow\nprint(session.respond(b'x'), flush=True)\n",
    )
    go, asked, ask = tmp_path / "go", [], SiteSession._ask_for_log

    def counted(session, waited):
        asked.append(waited)
        if len(asked) == 5:
            go.touch()
        return ask(session, waited)

    with subprocess.Popen([*words, str(go)], stdout=subprocess.PIPE) as slow:
        assert slow.stdout.readline() == b"begins\n"
        session = SiteSession(settings, terms)
        busy = Path(settings.folder) / "log.jsonl.busy"
        until(lambda: request_handover(Path(settings.folder)) or busy.exists(), "it to report that it works")
        monkeypatch.setattr("unpooled.site.session._HAND_OVER", 0.0)  # one that hangs is killed at once
        monkeypatch.setattr("unpooled.site.log.FRESH", PATIENCE)  # its next report may be late
        monkeypatch.setattr(SiteSession, "_ask_for_log", counted)
        assert str(session.respond(b"anything")).startswith("not a message")
        assert len(asked) >= 5
        assert slow.poll() is None
        assert slow.stdout.readline().startswith(b"not a message")
        slow.kill()
    session.close()


class FakeEngine:
    """As much of an engine as a mailbox needs: it delivers no message, and keeps them all."""

    def __init__(self, *sites):
        self.sites, self.sent = sites, []

    def get_client_from_name(self, name):
        return name if name in self.sites else None

    @contextlib.contextmanager
    def new_context(self):
        yield None

    def send_aux_request(self, sites, topic, request, timeout, context, optional):
        self.sent.append((sites[0], request["payload"], request["correlation_id"]))


def test_requests_that_nobody_waits_for_are_not_kept():
    """Of a request that is sent again one answer counts; the ids of earlier attempts answer nothing."""
    engine, answers = FakeEngine("a", "b"), []
    mailbox = Mailbox(engine)

    def send(site, data):
        mailbox.send(site, data, lambda answer: answers.append((site, data, answer)))
        return engine.sent[-1][2]

    def answer(correlation_id, payload):
        mailbox.receive("", Shareable({"correlation_id": correlation_id, "payload": payload}), None)

    first, other = b"first question", send("b", b"first question")
    ids = [send("a", first), send("a", first)]  # the second is a repeated attempt
    assert len(mailbox._open) == 3
    answer("no such id", b"forged")
    answer(ids[1], b"reply")
    assert answers == [("a", first, b"reply")]
    assert list(mailbox._open) == [other]  # no attempt at a is open any more
    answer(ids[0], b"again")
    answer(ids[1], b"again")
    late = send("a", first)
    send("a", b"second question")
    answer(late, b"too late")
    assert len(answers) == 1
    assert len(mailbox._open) == 2
    answer(other, b"reply of b")
    assert answers[1:] == [("b", b"first question", b"reply of b")]
    mailbox.send("c", first, lambda answer: answers.append(answer))
    assert answers[2].unreached
    assert [site for site, _ in mailbox._open.values()] == ["a"]


def test_a_site_whose_connection_ended_is_not_recorded_as_connected(tmp_path):
    """The engine drops it a minute after its last heartbeat."""
    clients = [SimpleNamespace(name=name, last_connect_time=9.0) for name in ("a", "b")]
    cell = SimpleNamespace(get_sub_cell_names=lambda: (["server.job"], ["b"]))
    engine = SimpleNamespace(get_clients=lambda: clients, get_cell=lambda: cell)
    Presence()._record(engine, tmp_path)
    assert json.loads((tmp_path / PRESENCE_FILE).read_text())["sites"] == {"b": 9.0}


def test_all_but_the_latest_folders_of_ended_jobs_are_removed(tmp_path):
    for number in range(9):
        (tmp_path / f"job-{number}").mkdir()
        (tmp_path / f"job-{number}" / "meta.json").write_text("{}")
        if number < 8:
            mark_job_ended(tmp_path / f"job-{number}")
            os.utime(tmp_path / f"job-{number}" / "ended", (number, number))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"job-{n}" for n in (3, 4, 5, 6, 7, 8)]
    assert [path.name for path in job_folders(tmp_path)] == ["job-8"]
