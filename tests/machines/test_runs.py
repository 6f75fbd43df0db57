"""A run between processes is the run in one process, bit for bit, whatever is killed on the way."""

import csv
import json
import re
import time

import pytest

from app.browser import browser
from app.desks import desk
from machines.conftest import READING
from machines.network import STUDIES, Network, until
from unpooled.app.run_folder import RunFolder
from unpooled.errors import BadInput
from unpooled.privacy.dp.accounting import mu_of
from unpooled.runtimes.provisioning import health
from unpooled.runtimes.provisioning.federation_folder import FederationFolder
from unpooled.site.study_folder import StudyFolder

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
LONG = ("-k", "6,7", "--method", "fuzzy", "--restarts", "2", "--max-rounds", "30", "--seed", "1")  # to die in


def assert_same(run, fit):
    assert {path.name for path in run.iterdir()} == FILES
    for name in ("model.unpooled", "preparation.json", "history.csv", "result.json"):
        assert (run / name).read_bytes() == (fit / name).read_bytes(), name


def points(fit):
    """Three rounds of a run: its beginning, its middle, and close to its end."""
    with (fit / "history.csv").open() as file:
        rounds = len(list(csv.DictReader(file))) - 1
    assert rounds >= 15, "too short to die in"
    return (1, rounds // 2, rounds - 5)


def looked_at(network, federation, name):
    """The states in which ``status`` sees a run from its beginning to its end; it is never a trouble.

    While it starts it has a folder and no process at the server yet: it is not removed as one that stopped.
    """
    states = []
    while network.processes[name].poll() is None:
        found = health.of_federation(federation)
        assert found.code == 0, found.problems
        assert len(found.runs) <= 1
        states += [run.state for run in found.runs if run.state not in states[-1:]]
        if states == ["starting"]:
            assert health.remove_runs(federation, (), 0.0) == []
            with pytest.raises(BadInput, match="is running; it is removed once it has ended"):
                health.remove_runs(federation, (found.runs[0].name,), None)
        time.sleep(0.05)
    return states


def test_files_at_sites_give_the_model_of_files_in_one_place(network, fitted):
    federation = FederationFolder.read(network.home)
    health.remove_runs(federation, (), 0.0)  # runs that were refused wait to be resumed, or removed
    before = set((network.home / "runs").iterdir())
    network.run("whole", *WHOLE, "--report", network.folder / "report.html")
    assert looked_at(network, federation, "whole")[:2] == ["starting", "running"]
    said = network.finish("whole")
    assert_same(network.out("whole"), fitted(*WHOLE))
    assert (network.folder / "report.html").stat().st_size > 10_000
    assert "3 sites fall into" in said
    assert set((network.home / "runs").iterdir()) == before
    for site in network.files:  # the coordinator kept and signed the end of every site's log
        kept = network.site_folder(site)
        done = network.command("audit", "verify", kept, "--heads", network.home / "heads.jsonl")
        assert "The log is whole" in done.stdout
        assert "times countersigned" in done.stdout


def test_secure_sums_between_processes(network, fitted):
    """Nothing is set up; what comes of it is what comes of it in one process, and all see one fingerprint.

    So is the certificate, to the last bit.
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
    told = json.loads((network.out("secure") / "result.json").read_text())
    assert 0 < told["lower_bound"] <= told["inertia"] * (1 + 1e-9)
    assert told["certificate"].endswith("This is about the sites' copies, not about the rows behind them.")
    said = [network.command("sums", "show", network.site_folder(site)).stdout for site in network.files]
    assert len({text.split("fingerprint ")[1].splitlines()[0] for text in said}) == 1


@pytest.fixture
def noisy(hospital_files, tmp_path):
    """A federation of the same files whose sites answer with noise: they have no copy."""
    policy = tmp_path / "noise.toml"
    policy.write_text(
        'version = 2\n[protect]\nmode = "noise"\n[dp]\nepsilon_total = 4\n[domain]\n'
        'columns = ["age", "trestbps"]\nlower = [0, 50]\nupper = [110, 250]\nrows = 1000\n' + STUDIES
    )
    made = Network(tmp_path / "noisy", hospital_files, reading=(*READING, "--policy", policy), copied=False)
    try:
        yield made.up()
    finally:
        made.close()


def test_a_private_run_is_refused_where_sites_have_a_copy(network):
    options = ("-k", "2", "--epsilon", "4", "--bounds", "age=0:110", "--bounds", "trestbps=50:250")
    network.run("unwanted", *options)
    said = " ".join(network.finish("unwanted", code=1).split())
    assert "answers from a copy and not with noise, and a private run is private for all" in said


def test_noise_is_drawn_where_the_rows_are(noisy):
    """Differential privacy between processes: each site adds its own noise, and the budget is spent once."""
    network = noisy
    network.run("plain", "-k", "2")
    assert "with noise only, and this run is not private" in " ".join(network.finish("plain", code=1).split())
    options = ("-k", "2", "--epsilon", "4", "--bounds", "age=0:110", "--bounds", "trestbps=50:250")
    network.run("private", *options)
    said = network.finish("private")
    assert "(4, 1e-06)-differential privacy" in " ".join(said.split())
    out = network.out("private")
    assert {path.name for path in out.iterdir()} == FILES - {"report.html", "preparation.json"}
    found = json.loads((out / "result.json").read_text())
    assert sum(release["mu_squared"] for release in found["releases"]) == pytest.approx(mu_of(4, 1e-6) ** 2)
    assert found["rows"] == pytest.approx(797, abs=450)  # 32 counts of three sites: sd 78
    assert found["rows"] != round(found["rows"])
    for cluster in found["clusters"]:
        assert 0 <= cluster["center"]["age"] <= 110


def test_a_site_answers_nothing_before_its_copy_is_approved(network):
    """The run goes on without it, and says why; once it is approved the site answers."""
    approval = network.site_folder("va") / "copy" / "approved.json"
    kept = approval.read_bytes()
    approval.unlink()
    log = network.site_folder("va") / "log.jsonl"
    lines = [line for line in log.read_bytes().splitlines() if b'"kind":"study"' not in line]
    try:
        network.run("early", "-k", "2", "--restarts", "1")
        assert "nobody at the site has approved its copy yet" in " ".join(network.finish("early").split())
        assert [line for line in log.read_bytes().splitlines() if b'"kind":"study"' not in line] == lines
    finally:
        approval.write_bytes(kept)
    network.run("late", "-k", "2", "--restarts", "1")
    network.finish("late")
    found = json.loads((network.out("late") / "result.json").read_text())
    assert [site["site"] for site in found["sites"]] == sorted(network.files)


def decided(tab, digest, verb, said=""):
    """What an officer does at the desk: open the study, say a name, press the button."""
    tab.value(f"document.querySelector('a[href=\"study/{digest}/{verb}\"]').click()")
    tab.until("document.querySelector('form #by') !== null")
    tab.value("document.getElementById('by').value = 'Dr. High'")
    if said:
        tab.value(f"document.getElementById('reason').value = {json.dumps(said)}")
    tab.value("document.querySelector('form button').click()")
    tab.until("document.getElementById('decided') !== null")


@pytest.fixture
def pages(network, tmp_path):
    """The desks of a hospital and of the coordinator, each in a browser of its own."""
    with (
        desk(network.site_folder("va"), opened=False) as hospital,
        desk(network.home, opened=False) as center,
        browser(tmp_path / "officer") as officer,
        browser(tmp_path / "coordinator") as coordinator,
    ):
        for tab, page in ((officer, hospital), (coordinator, center)):
            tab.open(page.link)
            tab.until("document.getElementById('news') !== null")
        yield officer, coordinator


def test_a_study_is_approved_in_the_middle_and_withdrawn(network, hospital_files, pages):
    """One hospital's officer is asked: the run waits, goes on with it, and then without it.

    The officer decides at a desk, and the coordinator watches at another one, both in a real browser.
    """
    officer, coordinator = pages
    ask, place = network.folder / "ask.toml", network.site_folder("va")
    ask.write_text("version = 2\n")
    network.leave("va")
    network.join("va", "--policy", ask, data=network.files["va"])
    network.wait_connected()
    log = place / "log.jsonl"
    log.touch()  # of a site that never answered there is none
    before = len(log.read_bytes().splitlines())
    try:
        network.run("studied", *LONG, "--purpose", "to find groups", "--title", "Groups")
        (kept,) = until(StudyFolder(place).waiting, "the study")
        said = until(
            lambda: "waiting for va since" in network.said("studied") and network.said("studied"), "it"
        )
        assert re.search(r"waiting for va since \d+:\d\d to approve the study", said)
        assert "waiting for va since" in network.command("status", network.home).stdout
        waits = network.command("status", place, code=6).stderr
        assert f"the study 'Groups' waits to be approved: unpooled study approve {place}" in waits
        assert len(log.read_bytes().splitlines()) == before  # nothing left, by its own log
        coordinator.until("/waiting for va since/.test(at('answer').textContent)")
        assert "has not decided" in coordinator.value("at('runs').innerText")
        officer.until(f"at('waiting').textContent.includes('{kept.study.digest[:8]}')")
        assert "to find groups" in officer.value("at('waiting').textContent")
        decided(officer, kept.study.digest, "approve")
        network.at_round("studied", 3)
        run_now = network.job_process("server")
        run_now.suspend()  # else the run could end before the officer has decided
        coordinator.until("/is in round [0-9]+: 3 of 3 sites/.test(at('answer').textContent)")
        assert "running" in coordinator.value("at('runs').innerText")
        coordinator.until("document.querySelectorAll('#runs svg').length === 2")
        officer.until("at('left').textContent.includes('the record is whole')")
        decided(officer, kept.study.digest, "withdraw", "a complaint")
        run_now.resume()
        lines = [json.loads(line) for line in log.read_bytes().splitlines()[before:]]
        network.finish("studied")
        coordinator.until("at('past').textContent.includes('Groups')")
        assert coordinator.complaints == officer.complaints == []
        coordinator.value("at('past').querySelector('a.button').removeAttribute('target')")
        coordinator.value("at('past').querySelector('a.button').click()")
        coordinator.until("document.body.textContent.includes('What left each site')")
        late = [json.loads(line) for line in log.read_bytes().splitlines()[before + len(lines) :]]
    finally:
        network.leave("va")
        network.join("va", data=network.files["va"])
        network.wait_connected()
    assert [line.get("decision") for line in (lines[0], lines[-1])] == ["approved", "withdrawn"]
    assert [line.get("by") for line in (lines[0], lines[-1])] == ["Dr. High", "Dr. High"]
    assert lines[1]["study"] == kept.study.digest
    assert {line["run"] for line in lines if line["kind"] == "release"} == {kept.study.run}
    assert {line["kind"] for line in late} <= {"study"}
    rounds = RunFolder(network.out("studied")).load_result().run.history
    assert not rounds[1].silent
    assert rounds[-1].silent == {"va": "the site has withdrawn the study: a complaint"}
    assert "The log is whole" in network.command("audit", "verify", place).stdout


def test_how_a_file_is_read_is_not_the_runs_to_say(network):
    for option, value in (("na", "-9"), ("categories", "cp"), ("exclude", "age"), ("delimiter", ";")):
        said = network.command("run", network.home, "-k", "2", f"--{option}", value, code=1).stderr
        assert f"--{option}: how a file is read is its site's to say" in said


def test_a_changed_file_changes_nothing(network, fitted, tmp_path):
    """Once there is a copy, the file is not read: a site whose file was replaced gives the same bytes."""
    options = ("-k", "3", "--restarts", "2", "--seed", "9")
    file = network.files["va"]
    kept = file.read_bytes()
    fit = fitted(*options)
    try:
        file.write_bytes(b"age\n" + b"17\n" * 40)
        network.run("changed", *options)
        network.finish("changed")
    finally:
        file.write_bytes(kept)
    assert_same(network.out("changed"), fit)


def test_a_site_whose_job_process_is_killed_is_back_in_the_same_job(network, fitted):
    fit = fitted(*LONG)
    network.run("job-killed", *LONG)
    for number in points(fit):
        network.at_round("job-killed", number)
        network.job_process("hungarian").kill()
    server = network.job_process("server")
    network.finish("job-killed")
    assert_same(network.out("job-killed"), fit)
    until(lambda: not server.is_running(), "the only job to end")
    assert "again" not in network.said("job-killed")


def test_the_coordinators_job_is_killed(network, fitted):
    fit = fitted(*LONG)
    network.run("coordinator-killed", *LONG)
    for number in points(fit):
        network.at_round("coordinator-killed", number)
        network.job_process("server").kill()
    network.finish("coordinator-killed")
    assert_same(network.out("coordinator-killed"), fit)


def test_the_whole_server_is_killed(network, fitted):
    """Twice it is finished by itself; the third time whoever waits for it dies too, and resume goes on."""
    fit = fitted(*LONG)
    network.run("server-killed", *LONG)
    first, second, third = points(fit)
    for number in (first, second):
        network.at_round("server-killed", number)
        network.kill("server")
        network.serve()
    network.at_round("server-killed", third)
    network.kill("server")
    network.kill("server-killed")
    network.serve()
    network.start("server-killed", "resume", network.out("server-killed"), where="server")
    network.finish("server-killed")
    assert_same(network.out("server-killed"), fit)
