"""What must not get in, and what must not get out."""

import json
import secrets
import shutil
import signal
import socket
import ssl
import struct

import numpy as np
import pytest

from machines.network import PATIENCE, STUDIES, certified_site, until
from unpooled.app.job import Job, RemoteRunOptions
from unpooled.app.run_folder import RunFolder
from unpooled.app.run_job import tasks
from unpooled.data.readers import Reading, read_table
from unpooled.federation.coordinator_run import ProgressFile
from unpooled.federation.nvflare import console
from unpooled.federation.nvflare import startup_kit as kit
from unpooled.federation.nvflare.console import submitted_job
from unpooled.federation.provisioning.enrolment import invite
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.site.log import unpacked

QUICK = ("-k", "3", "--restarts", "2", "--seed", "2")


@pytest.fixture
def job(network, tmp_path):
    """A job folder as the coordinator would submit it, to be tampered with."""
    federation = FederationFolder.read(network.home)
    told = Job(
        files=(), ks=(3,), n_init=1, remote=RemoteRunOptions(str(network.home), "tampered", federation.sites)
    )
    folder = tmp_path / "job"
    federation.engine.write_job(folder, *tasks(told, told.remote))
    return folder


def submit(network, job):
    """Hand a job to the server as the coordinator's console would; how it ended, and what its run says."""
    shutil.rmtree(network.home / "runs" / "tampered", ignore_errors=True)
    with submitted_job(network.home / "console", job, timeout=PATIENCE) as ended:
        how = until(ended, "the job to end")
    progress = ProgressFile(network.home / "runs" / "tampered").read()
    shutil.rmtree(network.home / "runs" / "tampered", ignore_errors=True)
    return how, progress


def change(path, edit):
    said = json.loads(path.read_text())
    edit(said)
    path.write_text(json.dumps(said))


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
    change(site, lambda said: said["executors"][0]["executor"].update(path="evil.Evil"))
    how, progress = submit(network, job)
    assert "FAILED" in how
    assert progress["state"] != "finished"
    assert not marker.exists()


@pytest.mark.parametrize("end", ["config_fed_client.json", "config_fed_server.json"])
def test_a_job_that_names_another_class_is_refused(network, job, end):
    """An installed class that would run a command of the job's choosing."""
    extra = {
        "id": "extra",
        "path": "nvflare.app_common.launchers.subprocess_launcher.SubprocessLauncher",
        "args": {"script": "touch /tmp/never"},
    }
    (config,) = job.rglob(end)
    change(config, lambda said: said["components"].append(extra))
    how, progress = submit(network, job)
    assert "COMPLETED" not in how
    assert progress["state"] != "finished"


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


def test_a_server_that_is_too_busy_to_answer_takes_a_job_once(network, job, monkeypatch):
    """It is halted for longer than the console waits: when a job is submitted, and when it is asked of it."""
    change(job / "site" / "config" / "config_fed_client.json", lambda said: said.update(executors=[]))
    server, store = network.engine_process("server"), network.home / "server" / "jobs"
    known, line = set(store.iterdir()), console.ConsoleSession(network.home / "console", timeout=PATIENCE)
    submit_job, unanswered = line._session.submit_job, []

    def submitted_to_a_halted_server(*words, **options):
        try:
            return submit_job(*words, **options)
        except ConnectionError:  # the console has waited in vain, and will try again
            unanswered.append(words)
            server.send_signal(signal.SIGCONT)
            raise

    monkeypatch.setattr(line._session, "submit_job", submitted_to_a_halted_server)
    monkeypatch.setattr(console, "_TRIES", 100)
    try:
        server.send_signal(signal.SIGSTOP)
        number = line.submit(job)
        assert unanswered
        assert [path.name for path in set(store.iterdir()) - known] == [number]
        server.send_signal(signal.SIGSTOP)
        assert line.ended(number) is None
        server.send_signal(signal.SIGCONT)
        until(lambda: line.ended(number), "the job to end")
    finally:
        server.send_signal(signal.SIGCONT)
        line.close()
    assert [path.name for path in set(store.iterdir()) - known] == [number]
    shutil.rmtree(network.home / "runs" / "tampered", ignore_errors=True)


@pytest.mark.long
def test_a_coordinator_of_another_version_is_declined_by_name(network, job):
    federation = FederationFolder.read(network.home)
    told = Job(
        files=(), ks=(3,), n_init=1, remote=RemoteRunOptions(str(network.home), "tampered", federation.sites)
    )
    task, terms = tasks(told, told.remote)
    shutil.rmtree(job)
    object.__setattr__(terms, "version", "99.0")
    federation.engine.write_job(job, task, terms)
    work = ProgressFile(network.home / "runs" / "tampered")
    with submitted_job(network.home / "console", job, timeout=PATIENCE):
        progress = until(lambda: (said := work.read())["state"] == "failed" and said, "the run to fail")
    shutil.rmtree(work.path.parent)
    assert progress["kind"] == "TooFewAnswersError"
    assert "va (the coordinator has unpooled 99.0, this site " in progress["text"]


def test_a_site_with_other_columns_is_named_with_them(network, tmp_path):
    odd = tmp_path / "odd.csv"
    odd.write_text("age,weight\n" + "".join(f"{40 + i % 30},{60 + i % 25}\n" for i in range(60)))
    trusted = tmp_path / "trusted.toml"
    trusted.write_text(f'format = 1\n[protect]\nmode = "raw"\n{STUDIES}')
    other = {"data": str(odd), "policy": str(trusted), "categorical": [], "na": []}
    with network.with_settings("va", **other):
        network.run("odd", *QUICK)
        said = network.finish("odd", code=1)
    assert "weight" in said
    assert "columns differ between sites" in " ".join(said.split())
    assert "40" not in said.splitlines()[-1]
    assert not network.out("odd").exists()


def test_a_message_that_is_larger_than_a_site_takes(network):
    """The site refuses by name, and the others go on."""
    with network.with_policy("va", f"format = 1\n[wire]\nmax_message_bytes = 4096\n{STUDIES}"):
        network.run("large", "-k", "8", "--restarts", "8", "--seed", "2")
        said = network.finish("large")
    result = RunFolder(network.out("large")).load_result()
    assert all(set(record.silent) <= {"va"} for record in result.run.history)
    assert any("4,096" in record.silent.get("va", "") for record in result.run.history)
    assert "warning: va is missing from" in said


def test_whoever_lacks_the_right_certificate_gets_nothing(network, fitted, tmp_path):
    """Garbage, no certificate, another federation's, one signed for nobody: all while a run goes on."""
    network.run("besieged", *QUICK, "--quorum", "1")
    address = ("localhost", network.port)
    for _ in range(20):
        with socket.create_connection(address, timeout=PATIENCE) as line:
            line.sendall(secrets.token_bytes(4096))
            line.shutdown(socket.SHUT_WR)
            assert len(line.recv(65536)) < 100  # at most a TLS alert
    assert talk_without_certificate(address) == b""

    # another federation of the same name: its sites' certificates are worth nothing here
    where = f"localhost:{network.port}"
    other = create(tmp_path / "other", "heart", where, ("va",), engine_name="nvflare")
    rows = ("--data", network.files["va"])
    certified_site(other, "va", tmp_path / "impostor", network.files["va"])
    network.start("impostor", "site", "start", tmp_path / "impostor")
    # one that has only the invitation: the server is not the one that it names, so nothing is sent
    network.start("guest", "site", "join", invite(other, "va"), "--folder", tmp_path / "guest", *rows)
    # a site that was never invited, with a certificate of the right authority
    certified_site(
        FederationFolder.read(network.home), "stranger", tmp_path / "stranger", network.files["va"]
    )
    network.start("stranger", "site", "start", tmp_path / "stranger")
    for name in ("impostor", "guest"):
        until(lambda: "certificate is not of this federation" in network.output(name), f"a reason of {name}")  # noqa: B023
    until(lambda: "does not let this site in" in network.output("stranger"), "a reason")
    until(lambda: "refused: stranger" in network.output("server"), "the server's word")
    until(lambda: network.connected() == set(network.files), "all sites, and nobody else")
    for name in ("impostor", "guest", "stranger"):
        network.kill(name)
    network.finish("besieged")
    fit = fitted(*QUICK)
    assert (network.out("besieged") / "model.unpooled").read_bytes() == (fit / "model.unpooled").read_bytes()


def talk_without_certificate(address):
    """What a server says to a client that has no certificate, after the handshake."""
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    blind.set_alpn_protocols(["h2"])
    heard = b""
    try:
        with socket.create_connection(address, timeout=PATIENCE) as line, blind.wrap_socket(line) as secure:
            secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            while more := secure.recv(65536):
                heard += more
    except (ssl.SSLError, ConnectionError):
        pass
    return heard


def test_no_row_is_in_what_left_and_paths_stay_at_the_site(after_a_run, hospital_files):
    """Everything that left a site is in its log; a row of its table in any of it would be found."""
    network = after_a_run
    logged = (network.site_folder("va") / "log.jsonl").read_text()
    left = b"".join(
        unpacked(json.loads(line)["payload"]) for line in logged.splitlines() if "payload" in line
    )
    assert len(left) > 10_000
    values = read_table(hospital_files["va"], Reading()).values
    for row in values:
        assert row.tobytes() not in left
        assert struct.pack(f"<{len(row)}f", *row) not in left
    assert (
        np.float64(values.shape[0]).tobytes() in left
    )  # what is looked for would be found: a count is there
    kept = (network.home / "server").rglob("*")
    texts = b"".join(path.read_bytes() for path in kept if path.is_file())
    assert str(hospital_files["va"]).encode() not in texts
