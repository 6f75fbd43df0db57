"""Attacks on a federation: what must not get in, and what must not get out."""

import json
import secrets
import shutil
import signal
import socket
import ssl
import struct

import pytest

from machines.network import PATIENCE, RAW, STUDIES, certified_site, contents, until
from unpooled.app.job import Job, RemoteRunOptions
from unpooled.app.run_folder import RunFolder
from unpooled.app.run_remote import RemoteRun
from unpooled.data.readers import Reading, read_table
from unpooled.federation.nvflare import console
from unpooled.federation.nvflare import startup_kit as kit
from unpooled.federation.nvflare.console import submitted_job
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning.enrolment import invite
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.site.log import unpacked

QUICK = ("-k", "3", "--restarts", "2", "--seed", "2")


@pytest.fixture
def job(network, tmp_path):
    """A job folder as the coordinator would submit it, to be tampered with."""
    federation = FederationFolder.read(network.home)
    options = Job(
        files=(), ks=(3,), n_init=1, remote=RemoteRunOptions(str(network.home), "tampered", federation.sites)
    )
    folder = tmp_path / "job"
    run = RemoteRun.from_job(options, federation)
    federation.engine.write_job(folder, run.task, run.terms)
    return folder


def submit(network, job):
    """Submit a job as the coordinator's console would; return its end state and the progress of its run."""
    shutil.rmtree(network.home / "runs" / "tampered", ignore_errors=True)
    with submitted_job(network.home / "console", network.home / "server", job, timeout=PATIENCE) as ended:
        end_state = until(ended, "the job to end")
    progress = ProgressFile(network.home / "runs" / "tampered").read()
    shutil.rmtree(network.home / "runs" / "tampered", ignore_errors=True)
    return end_state, progress


def change(path, edit):
    values = json.loads(path.read_text())
    edit(values)
    path.write_text(json.dumps(values))


def test_a_job_with_code_of_its_own_is_refused(network, job, tmp_path):
    marker = tmp_path / "it-ran"
    custom = job / "site" / "custom"
    custom.mkdir()
    (custom / "evil.py").write_text(
        "from pathlib import Path\n"
        "from unpooled.federation.nvflare.executor import Responder\n"
        f"Path({str(marker)!r}).touch()\n"
        "class Evil(Responder):\n    pass\n"
    )
    site = job / "site" / "config" / "config_fed_client.json"
    change(site, lambda config: config["executors"][0]["executor"].update(path="evil.Evil"))
    end_state, progress = submit(network, job)
    assert "FAILED" in end_state
    assert progress["state"] != "finished"
    assert not marker.exists()


@pytest.mark.parametrize("file", ["config_fed_client.json", "config_fed_server.json"])
def test_a_job_that_names_another_class_is_refused(network, job, file):
    """An installed class that would run a command of the job's choosing."""
    extra = {
        "id": "extra",
        "path": "nvflare.app_common.launchers.subprocess_launcher.SubprocessLauncher",
        "args": {"script": "touch /tmp/never"},
    }
    (path,) = job.rglob(file)
    change(path, lambda config: config["components"].append(extra))
    end_state, progress = submit(network, job)
    assert "COMPLETED" not in end_state
    assert progress["state"] != "finished"


def test_a_job_of_another_format_is_refused_by_the_server(network, job):
    """As one that an earlier release exported: nothing in it is read."""
    (path,) = job.rglob("config_fed_server.json")
    change(path, lambda config: config["workflows"][0]["args"].pop("format"))
    end_state, progress = submit(network, job)
    assert "COMPLETED" not in end_state
    assert progress == {"state": "waiting"}  # the run did not begin


def test_the_console_gives_no_shell(network):
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    session = new_secure_session(kit.CONSOLE_NAME, str(network.home / "console"), timeout=PATIENCE)
    try:
        for target in ("va", "server"):
            with pytest.raises(Exception, match=r"(?i)authoriz"):
                session.ls_target(target)
            with pytest.raises(Exception, match=r"(?i)authoriz"):
                session.cat_target(target, file="local/unpooled.json")
    finally:
        session.close()


def test_a_server_that_is_too_busy_to_answer_accepts_a_job_once(network, job, monkeypatch):
    """It is suspended for longer than the console waits, at the submission and at a later question."""
    change(job / "site" / "config" / "config_fed_client.json", lambda config: config.update(executors=[]))
    server, store = network.engine_process("server"), network.home / "server" / "jobs"
    known, session = (
        set(store.iterdir()),
        console.ConsoleSession(network.home / "console", network.home / "server", timeout=PATIENCE),
    )
    submit_job, unanswered = session._session.submit_job, []

    def submitted_to_a_suspended_server(*words, **options):
        try:
            return submit_job(*words, **options)
        except ConnectionError:  # the console has waited in vain, and will try again
            unanswered.append(words)
            server.send_signal(signal.SIGCONT)
            session._session.unset_timeout()
            raise

    monkeypatch.setattr(session._session, "submit_job", submitted_to_a_suspended_server)
    monkeypatch.setattr(console, "_MAX_ATTEMPTS", 100)
    try:
        session._session.set_timeout(1.0)  # in place of 5
        server.send_signal(signal.SIGSTOP)
        number = session.submit(job)
        assert unanswered
        assert [path.name for path in set(store.iterdir()) - known] == [number]
        session._session.set_timeout(1.0)
        server.send_signal(signal.SIGSTOP)
        assert session.end_state(number) is None
        server.send_signal(signal.SIGCONT)
        session._session.unset_timeout()
        until(lambda: session.end_state(number), "the job to end")
    finally:
        server.send_signal(signal.SIGCONT)
        session.close()
    assert [path.name for path in set(store.iterdir()) - known] == [number]
    shutil.rmtree(network.home / "runs" / "tampered", ignore_errors=True)


@pytest.mark.long
def test_a_coordinator_of_another_version_is_declined_by_name(network, job):
    federation = FederationFolder.read(network.home)
    options = Job(
        files=(), ks=(3,), n_init=1, remote=RemoteRunOptions(str(network.home), "tampered", federation.sites)
    )
    run = RemoteRun.from_job(options, federation)
    shutil.rmtree(job)
    object.__setattr__(run.terms, "version", "99.0")
    federation.engine.write_job(job, run.task, run.terms)
    work = ProgressFile(network.home / "runs" / "tampered")
    with submitted_job(network.home / "console", network.home / "server", job, timeout=PATIENCE):
        progress = until(lambda: (p := work.read())["state"] == "failed" and p, "the run to fail")
    shutil.rmtree(work.path.parent)
    assert progress["kind"] == "TooFewAnswersError"
    assert "va (the coordinator has unpooled 99.0, this site " in progress["text"]


def test_a_site_with_other_columns_is_named_with_them(network, tmp_path):
    odd = tmp_path / "odd.csv"
    odd.write_text("age,weight\n" + "".join(f"{40 + i % 30},{60 + i % 25}\n" for i in range(60)))
    policy = f'format = 1\n[protect]\nmode = "raw"\n{STUDIES}'
    other = {"data": str(odd), "reading": {}}
    with network.with_policy("va", policy), network.with_settings("va", **other):
        network.run("odd", *QUICK)
        output = network.finish("odd", code=1)
    assert "weight" in output
    assert "columns differ between sites" in " ".join(output.split())
    assert "40" not in output.splitlines()[-1]
    assert not network.out("odd").exists()


def test_a_message_that_is_larger_than_a_site_allows(asked):
    """The site refuses it, the coordinator names the site, and the others continue."""
    network = asked
    with network.with_policy("va", f"{RAW}[wire]\nmax_message_bytes = 4096\n"):
        network.run("large", "-k", "8", "--restarts", "8", "--seed", "2", "--protect", "raw")
        output = network.finish("large")
    result = RunFolder(network.out("large")).load_result()
    assert all(set(record.silent) <= {"va"} for record in result.run.history)
    assert any("4,096" in record.silent.get("va", "") for record in result.run.history)
    assert "warning: va is missing from" in output


def test_without_the_right_certificate_nobody_connects(network, fitted, tmp_path):
    """Garbage, no certificate, another federation's, one of a name that is not a site: all during a run."""
    network.run("besieged", *QUICK, "--quorum", "1")
    address = ("localhost", network.port)
    for _ in range(20):
        with socket.create_connection(address, timeout=PATIENCE) as connection:
            connection.sendall(secrets.token_bytes(4096))
            connection.shutdown(socket.SHUT_WR)
            assert len(connection.recv(65536)) < 100  # at most a TLS alert
    assert talk_without_certificate(address) == b""

    # another federation of the same name: its sites' certificates are not valid here
    where = f"localhost:{network.port}"
    other = create(tmp_path / "other", "heart", where, ("va",), engine_name="nvflare")
    rows = (
        "--data",
        network.files["va"],
        "--one-row-per-person",
        "--no-sensitive-columns",
        "--allow-second-folder",
    )
    certified_site(other, "va", tmp_path / "impostor", network.files["va"])
    network.start("impostor", "site", "start", tmp_path / "impostor")
    # a site with only the other federation's invitation: its server is another one, so it sends nothing
    network.start("guest", "site", "join", tmp_path / "guest", invite(other, "va"), *rows)
    # a site that was never invited, with a certificate of the right authority
    certified_site(
        FederationFolder.read(network.home), "stranger", tmp_path / "stranger", network.files["va"]
    )
    network.start("stranger", "site", "start", tmp_path / "stranger")
    for name in ("impostor", "guest"):
        until(lambda: "certificate is not of this federation" in network.output(name), f"a reason of {name}")  # noqa: B023
    until(lambda: "accepts the certificate, but refuses this site" in network.output("stranger"), "a reason")
    until(lambda: "refused: stranger" in network.output("server"), "the server's message")
    until(lambda: network.connected() == set(network.files), "all sites, and nobody else")
    for name in ("impostor", "guest", "stranger"):
        network.kill(name)
    network.finish("besieged")
    fit = fitted(*QUICK)
    assert (network.out("besieged") / "model.unpooled").read_bytes() == (fit / "model.unpooled").read_bytes()


def talk_without_certificate(address):
    """The bytes that a server sends to a client without a certificate, after the handshake."""
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    blind.set_alpn_protocols(["h2"])
    received = b""
    try:
        with socket.create_connection(address, timeout=PATIENCE) as plain, blind.wrap_socket(plain) as secure:
            secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            while more := secure.recv(65536):
                received += more
    except (ssl.SSLError, ConnectionError):
        pass
    return received


def test_a_site_sends_no_row_and_no_path(after_a_run, hospital_files):
    """Everything that a site sent is in its log; a row of its table would be found there."""
    network = after_a_run
    logged = (network.site_folder("va") / "log.jsonl").read_text()
    sent = b"".join(
        unpacked(json.loads(line)["payload"]) for line in logged.splitlines() if "payload" in line
    )
    assert b"people in the group" in sent  # the search can find: the table is there
    values = read_table(hospital_files["va"], Reading()).values
    for line in hospital_files["va"].read_bytes().splitlines()[1:]:
        assert line not in sent
    for row in values:
        assert row.tobytes() not in sent
        assert struct.pack(f"<{len(row)}f", *row) not in sent
    at_server = b"".join(data for _, data in contents(network.home / "server"))
    assert str(hospital_files["va"]).encode() not in at_server
