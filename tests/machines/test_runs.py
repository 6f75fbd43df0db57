"""A run between processes is the run in one process, bit for bit, whichever process is killed."""

import contextlib
import csv
import json
import re
import shutil
import threading

import pytest
from typer.testing import CliRunner

from app.browser import browser
from app.review_pages import served_page
from machines.network import STUDIES, eventually, until
from unpooled.app.cli import app
from unpooled.app.run_folder import RunFolder
from unpooled.errors import InputError
from unpooled.federation.file_responder import FileResponder
from unpooled.federation.provisioning import health
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.provisioning.file_membership import FileMembership
from unpooled.federation.recipient import Recipient
from unpooled.privacy.dp.accounting import gdp_mu
from unpooled.site.message_file import INTRODUCTION
from unpooled.site.study_store import StudyFolder

FILES = {
    "checkpoint",
    "history.csv",
    "job.json",
    "model.unpooled",
    "preparation.json",
    "report.html",
    "result.json",
}
WHOLE = ("-k", "2..4", "--seed", "5")
# long enough for processes to be killed in it: sites answer every round from their rows
LONG = ("-k", "24", "--method", "fuzzy", "--restarts", "1", "--max-rounds", "60", "--seed", "1")
LONG += ("--protect", "raw")
EVERY = (*LONG, "--quorum", "1")  # the run waits for every site


def assert_same(run, fit):
    """The same bytes, but for the dates of summary tables: midnight may lie between the two runs."""
    assert {path.name for path in run.iterdir()} == FILES
    for name in ("model.unpooled", "preparation.json", "history.csv"):
        assert (run / name).read_bytes() == (fit / name).read_bytes(), name
    live, whole = (
        re.sub(r'"summary_made": "[0-9-]+"', "", (folder / "result.json").read_text())
        for folder in (run, fit)
    )
    assert live == whole


def points(fit):
    """Three rounds of a run. Many rounds follow the last, so that it is not over when something is killed."""
    with (fit / "history.csv").open() as file:
        rounds = len(list(csv.DictReader(file))) - 1
    assert rounds >= 50, "the run is too short"
    return (1, 15, 30)


def state_of(federation):
    """The state in which ``status`` sees the only run, or None; a run in progress is never a problem."""
    state = health.federation_health(federation)
    assert not [problem for problem in state.problems if problem.code == health.RUN_FAILED]
    assert len(state.runs) <= 1
    return state.runs[0] if state.runs else None


@contextlib.contextmanager
def suspended(process):
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def test_files_at_sites_give_the_model_of_files_in_one_place(network, fitted):
    """Sites answer from their summary tables and do not read their files again; ``status`` sees the run.

    While the run starts it has a folder and no process at the server yet: it does not count as stopped.
    """
    federation, file = FederationFolder.read(network.home), network.files["va"]
    fit, data = fitted(*WHOLE), file.read_bytes()
    health.remove_runs(federation, (), 0.0)  # runs that were refused wait to be resumed, or removed
    before = set((network.home / "runs").iterdir())
    try:
        file.write_bytes(b"age\n" + b"17\n" * 40)
        with suspended(network.engine_process("server")):
            network.run("whole", *WHOLE, "--report", network.folder / "report.html")
            run = until(lambda: state_of(federation), "the run to be seen")
            assert run.state == "starting"
            assert health.remove_runs(federation, (), 0.0) == []
            with pytest.raises(InputError, match=r"is running\. Remove it when it has ended\."):
                health.remove_runs(federation, (run.name,), None)
        until(lambda: (run := state_of(federation)) is None or run.state == "running", "it to begin")
        output = network.finish("whole")
    finally:
        file.write_bytes(data)
    assert_same(network.out("whole"), fit)
    for site in json.loads((network.out("whole") / "result.json").read_text())["sites"]:
        table = (network.site_folder(site["site"]) / "summary" / "table.csv").read_bytes()
        assert site["bytes_sent"] <= 2 * len(table) + 4000
    assert (network.folder / "report.html").stat().st_size > 10_000
    assert "people at 3 sites are described as one group" in output
    assert set((network.home / "runs").iterdir()) == before
    for site in network.files:  # the coordinator recorded the last head of every site's log
        folder = network.site_folder(site)
        done = network.command(
            "site", "log", "--verify", folder, "--log-heads", network.home / "log_heads.jsonl"
        )
        assert "The log is intact" in done.stdout


@contextlib.contextmanager
def by_key(network, folder):
    """A coordinator without a server, whose key the sites join for a while, and the shared folder."""
    coordinator, shared = Recipient.create(folder / "by-files"), folder / "share"
    members = [FileMembership(network.site_folder(site), site, coordinator.key) for site in network.files]
    over, responders = threading.Event(), []
    for member in members:
        member.write()
        (shared / member.site).mkdir(parents=True)
        responders.append(FileResponder(member, shared / member.site))
        assert responders[-1].introduce()
    coordinator.receive([coordinator.open(path) for path in shared.glob(f"*/{INTRODUCTION}")])

    def answer(responder):
        while not over.is_set():
            responder.answer_all()
            over.wait(0.01)
        responder.close()

    threads = [threading.Thread(target=answer, args=(responder,)) for responder in responders]
    for thread in threads:
        thread.start()
    try:
        yield coordinator.folder, shared
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for member in members:
            shutil.rmtree(member.path)


def test_secure_sums_between_processes(network, fitted, tmp_path):
    """Without any setup the result is that of one process, and all sites see one fingerprint.

    A run of the same sites over files has the same bits as the one over the engine, round by round.
    """
    options = (
        "-k",
        "3",
        "--restarts",
        "2",
        "--seed",
        "6",
        "--secure",
        "--missing",
        "fill",
        "--certify",
        "quick",
    )
    network.run("secure", *options)
    network.finish("secure")
    assert_same(network.out("secure"), fitted(*options))
    with by_key(network, tmp_path) as (home, shared):
        words = ("federation", "run", home, "--files", shared, "--out", tmp_path / "run", "--deadline", 600)
        network.command(*words, *options)
    assert_same(tmp_path / "run", network.out("secure"))
    result = json.loads((network.out("secure") / "result.json").read_text())
    assert 0 < result["lower_bound"] <= result["inertia"] * (1 + 1e-9)
    assert result["certificate"].endswith("It covers the sites' summary tables, not the rows behind them.")
    for site in network.files:  # each question brings the head of the answer before, signed
        done = network.command("site", "log", "--verify", network.site_folder(site))
        assert "times countersigned" in done.stdout
    outputs = [network.command("site", "keys", network.site_folder(site)).stdout for site in network.files]
    assert len({text.split("fingerprint ")[1].splitlines()[0] for text in outputs}) == 1


@pytest.fixture
def private_network(network, tmp_path):
    """The sites with differential privacy for a while, in other folders without a summary table."""
    policy = (
        'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 4\n[domain]\n'
        'columns = ["age", "trestbps"]\nlower = [0, 50]\nupper = [110, 250]\nrows = 1000\n' + STUDIES
    )
    log_heads = network.home / "log_heads.jsonl"  # of the logs in the sites' usual folders
    with contextlib.ExitStack() as stack:
        for site in network.files:
            (tmp_path / site).mkdir()
            shutil.copy(network.site_folder(site) / "settings.json", tmp_path / site)
            (tmp_path / site / "policy.toml").write_text(policy)
            stack.enter_context(network.with_settings(site, folder=str(tmp_path / site)))
        before = log_heads.read_bytes() if log_heads.exists() else b""
        log_heads.unlink(missing_ok=True)
        yield network
        log_heads.write_bytes(before)


def test_a_private_run_is_refused_once_if_sites_have_a_summary_table(network):
    """A site that declines will decline again: one submission, one error."""
    jobs = set((network.home / "server" / "jobs").iterdir())
    options = ("-k", "2", "--epsilon", "4", "--bounds", "age=0:110", "--bounds", "trestbps=50:250")
    network.run("declined", *options)
    output = " ".join(network.finish("declined", code=1).split())
    assert (
        "answers from a summary table and not with differential privacy, and a private run needs it" in output
    )
    assert "asking again" not in output
    assert len(set((network.home / "server" / "jobs").iterdir()) - jobs) == 1


def test_sites_draw_their_own_noise(private_network):
    """Differential privacy between processes: each site adds its own noise, and the budget is spent once."""
    network = private_network
    options = ("-k", "2", "--epsilon", "4", "--bounds", "age=0:110", "--bounds", "trestbps=50:250")
    network.run("private", *options, "--quorum", "1")
    output = network.finish("private")
    assert "(4, 1e-06)-differential privacy" in " ".join(output.split())
    out = network.out("private")
    assert {path.name for path in out.iterdir()} == FILES - {"report.html", "preparation.json"}
    result = json.loads((out / "result.json").read_text())
    assert sum(release["mu_squared"] for release in result["releases"]) == pytest.approx(gdp_mu(4, 1e-6) ** 2)
    assert result["rows"] == pytest.approx(797, abs=620)  # 32 counts of three sites: sd 78, so 8 of them
    assert result["rows"] != round(result["rows"])
    for cluster in result["clusters"]:
        assert 0 <= cluster["center"]["age"] <= 110


@pytest.mark.long
def test_a_site_answers_nothing_before_its_summary_table_is_approved(network):
    """The run continues without it, and reports the reason."""
    approval = network.site_folder("va") / "summary" / "approved.json"
    approved = approval.read_bytes()
    approval.unlink()
    log = network.site_folder("va") / "log.jsonl"
    lines = [line for line in log.read_bytes().splitlines() if b'"kind":"study"' not in line]
    try:
        network.run("early", "-k", "2", "--restarts", "1")
        assert "nobody at the site has approved its summary table yet" in " ".join(
            network.finish("early").split()
        )
        assert [line for line in log.read_bytes().splitlines() if b'"kind":"study"' not in line] == lines
    finally:
        approval.write_bytes(approved)
    result = json.loads((network.out("early") / "result.json").read_text())
    assert [site["site"] for site in result["sites"]] == sorted({*network.files} - {"va"})


def decide(tab, digest, verb, reason=""):
    """Decide as an officer on the review page: open the study, enter a name, press the button."""
    tab.value(f"document.querySelector('a[href=\"study/{digest}/{verb}\"]').click()")
    tab.until("document.querySelector('form #by') !== null")
    tab.value("document.getElementById('by').value = 'Dr. High'")
    if reason:
        tab.value(f"document.getElementById('reason').value = {json.dumps(reason)}")
    tab.value("document.querySelector('form button').click()")
    tab.until("document.getElementById('decided') !== null")


@pytest.fixture
def pages(network, tmp_path):
    """The review page of a hospital and the monitor, each in a browser of its own."""
    with (
        served_page(network.site_folder("va"), opened=False) as hospital,
        served_page(network.home, opened=False) as center,
        browser(tmp_path / "officer") as officer,
        browser(tmp_path / "coordinator") as coordinator,
    ):
        for tab, page in ((officer, hospital), (coordinator, center)):
            tab.open(page.link)
            tab.until("document.getElementById('changes') !== null")
        yield officer, coordinator


def test_a_study_is_approved_in_the_middle_and_withdrawn(asked, hospital_files, pages):
    """One hospital's officer is asked: the run waits, continues with it, and then without it.

    The officer decides on the review page, and the coordinator watches the monitor, both in a real browser.
    """
    officer, coordinator, network = *pages, asked
    folder = network.site_folder("va")
    log = folder / "log.jsonl"
    log.touch()  # a site that never answered has none
    before = len(log.read_bytes().splitlines())
    with network.with_policy("va", 'format = 1\n[protect]\nmode = "raw"\n'):
        network.run("studied", *LONG, "--purpose", "to find groups", "--title", "Groups")
        (pending,) = until(StudyFolder(folder).pending, "the study")
        until(lambda: "waiting for va since" in network.output("studied"), "the run to wait")
        assert re.search(r"waiting for va since \d+:\d\d to approve the study", network.output("studied"))
        words = ("federation", "status", network.home)
        status = eventually(lambda: network.command(*words, code=6), "a run that waits for a person")
        assert "waiting for va since" in status.stdout
        status = eventually(lambda: network.command("site", "status", folder, code=6), "the pending study")
        assert f"the study 'Groups' waits to be approved. Approve it with unpooled site approve {folder}" in (
            " ".join(status.stderr.split())
        )
        assert len(log.read_bytes().splitlines()) == before  # by its own log the site sent nothing
        coordinator.until("/waiting for va since/.test(at('overview').textContent)")
        assert "has not decided" in coordinator.value("at('runs').innerText")
        officer.until(f"at('pending').textContent.includes('{pending.study.digest[:8]}')")
        assert "to find groups" in officer.value("at('pending').textContent")
        decide(officer, pending.study.digest, "approve")
        network.at_round("studied", 3)
        with suspended(network.job_process("server")):  # else the run could end before the officer decides
            coordinator.until("/is in round [0-9]+: 3 of 3 sites/.test(at('overview').textContent)")
            assert "running" in coordinator.value("at('runs').innerText")
            coordinator.until("document.querySelectorAll('#runs svg').length === 2")
            officer.until("at('sent').textContent.includes('the log is intact')")
            decide(officer, pending.study.digest, "withdraw", "a complaint")
            lines = [json.loads(line) for line in log.read_bytes().splitlines()[before:]]
        network.finish("studied")
        coordinator.until("at('past').textContent.includes('Groups')")
        assert coordinator.complaints == officer.complaints == []
        coordinator.value("at('past').querySelector('a.button').removeAttribute('target')")
        coordinator.value("at('past').querySelector('a.button').click()")
        coordinator.until("document.body.textContent.includes('Numbers sent by each site')")
        late = [json.loads(line) for line in log.read_bytes().splitlines()[before + len(lines) :]]
    assert [line.get("decision") for line in (lines[0], lines[-1])] == ["approved", "withdrawn"]
    assert [line.get("by") for line in (lines[0], lines[-1])] == ["Dr. High", "Dr. High"]
    assert lines[1]["study"] == pending.study.digest
    assert {line["run"] for line in lines if line["kind"] == "release"} == {pending.study.run}
    assert {line["kind"] for line in late} <= {"study"}
    rounds = RunFolder(network.out("studied")).load_result().run.history
    assert not rounds[1].silent
    assert rounds[-1].silent == {"va": "the site has withdrawn the study: a complaint"}
    assert "The log is intact" in network.command("site", "log", "--verify", folder).stdout


def test_a_run_cannot_decide_how_a_site_reads_its_file(network):
    for option, value in (("na", "-9"), ("categorical", "cp"), ("exclude", "age"), ("delimiter", ";")):
        words = ["federation", "run", str(network.home), "-k", "2", f"--{option}", value]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 1
        assert f"--{option}: only a site decides how its file is read" in result.stderr


def test_a_run_continues_whichever_of_its_processes_is_killed(asked, fitted):
    """Its process at a site is back in the same job. The coordinator's job is submitted again.

    If the server and the process that follows the run die, ``unpooled resume`` continues.
    """
    fit, network = fitted(*LONG), asked
    first, second, third = points(fit)
    network.run("killed", *EVERY)
    network.at_round("killed", first)
    network.job_process("hungarian").kill()
    network.at_round("killed", second)
    assert "again" not in network.output("killed")
    network.job_process("server").kill()
    network.at_round("killed", third)
    network.kill("server")
    network.kill("killed")
    network.serve()
    network.start("killed", "resume", network.out("killed"), where="server")
    network.finish("killed")
    assert_same(network.out("killed"), fit)


@pytest.mark.long
def test_a_run_is_finished_by_itself_after_its_server_was_killed(asked, fitted):
    fit, network = fitted(*LONG), asked
    network.run("server-killed", *EVERY)
    for number in points(fit):
        network.at_round("server-killed", number)
        network.kill("server")
        network.serve()
    network.finish("server-killed")
    assert_same(network.out("server-killed"), fit)


@pytest.mark.long
@pytest.mark.parametrize("who", ["hungarian", "server"])
def test_a_job_that_is_killed_three_times_gives_the_same_bits(asked, fitted, who):
    fit, name, network = fitted(*LONG), f"killed-at-{who}", asked
    network.run(name, *EVERY)
    for number in points(fit):
        network.at_round(name, number)
        network.job_process(who).kill()
    server = network.job_process("server")
    network.finish(name)
    assert_same(network.out(name), fit)
    until(lambda: not server.is_running(), "the job to end")
