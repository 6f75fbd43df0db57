"""The other commands: status, stop, a site in the background, and a job for another console."""

import contextlib
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import unpooled
from machines.network import PATIENCE, eventually, reserved_port, until
from unpooled.app.cli import app
from unpooled.federation.nvflare.console import submitted_job
from unpooled.federation.progress_file import ProgressFile
from unpooled.site.study_store import StudyFolder
from unpooled.storage.file_locks import is_locked

OPTIONS = ("-k", "3", "--restarts", "2", "--seed", "4")


def unpooled_command(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def test_status_lists_the_connected_sites(network):
    def status():
        unpooled_command("federation", "remove", network.home, "--older-than", "0")  # runs of other tests
        return unpooled_command("federation", "status", network.home)

    network.wait_connected()
    output = eventually(status, "all to be connected")
    assert output.splitlines()[:3] == ["cleveland: connected", "hungarian: connected", "va: connected"]
    assert re.search(r"^runs that ended: \d+ finished, \d+ failed", output, re.M)
    for who in ("server", *network.files):
        assert re.search(rf"^certificate of {who} in heart: [1-9]\d\d+ days left$", output, re.M)
    assert re.search(r"^free disk: \d+\.\d GB$", output, re.M)
    site = network.site_folder("va")
    output = eventually(lambda: unpooled_command("site", "status", site), "it to be connected")
    assert output.splitlines()[0] == "va in heart: connected"
    assert "200 people" in output
    assert "approved at" in output
    assert "already in use" in unpooled_command("site", "start", site, code=1)


@pytest.fixture
def exported(network, tmp_path):
    """A job for another console: its folder, the folder of its results, and that of its run at the server."""
    job, out = tmp_path / "job", tmp_path / "run"
    sites = [word for site in network.files for word in ("--site", site)]
    output = unpooled_command("federation", "export-job", job, *sites, *OPTIONS, "--out", out)
    assert not list(job.rglob("*.py"))
    work = network.home / "runs" / re.search(r"runs/(\S+)/checkpoint", output).group(1)
    yield job, out, work
    until(lambda: not is_locked(work), "its process at the server to end")
    shutil.rmtree(work, ignore_errors=True)


@pytest.mark.long
def test_a_job_of_another_console_is_refused_by_sites_with_an_authority(network, exported):
    job, _, work = exported
    with submitted_job(network.home / "console", network.home / "server", job, timeout=PATIENCE):
        progress = until(lambda: (p := ProgressFile(work).read())["state"] == "failed" and p, "the refusal")
    assert "the study is not signed by the authority of this federation" in progress["text"]


def test_a_job_for_another_console(network, fitted, exported):
    job, out, work = exported
    assert "another console's" in unpooled_command("resume", out, code=1)
    with contextlib.ExitStack() as stack:
        for site in network.files:  # another engine's federation has no authority: officers decide
            stack.enter_context(network.with_settings(site, authority=""))
        with submitted_job(network.home / "console", network.home / "server", job, timeout=PATIENCE):
            for site in network.files:
                folder = network.site_folder(site)
                until(StudyFolder(folder).pending, f"the study at {site}")
                unpooled_command("site", "approve", folder, "--yes")
            until(lambda: ProgressFile(work).read()["state"] == "finished", "the job to finish")
    shutil.copy(work / "checkpoint", out / "checkpoint")
    unpooled_command("resume", out)
    fit = fitted(*OPTIONS)
    assert (out / "model.unpooled").read_bytes() == (fit / "model.unpooled").read_bytes()
    assert (out / "report.html").exists()


def test_a_site_in_the_background_reports_why_it_is_not_connected(network, hospital_files, tmp_path):
    home = tmp_path / "alone"
    where = f"localhost:{reserved_port()}"
    unpooled_command("federation", "init", home, "--name", "alone", "--address", where, "--site", "va")
    invitation = home / "invitations" / "va.json"
    folder = tmp_path / "va"
    words = (
        "--data",
        hospital_files["va"],
        "--one-row-per-person",
        "--no-sensitive-columns",
        "--allow-second-folder",
        "--background",
    )
    network.command("site", "join", folder, invitation, *words)
    try:
        assert "va in alone: awaiting admission" in unpooled_command("site", "status", folder, code=6)
        until(
            lambda: "nothing listens there" in (folder / "federations" / "alone" / "start.log").read_text(),
            "the reason",
        )
    finally:
        assert unpooled_command("site", "stop", folder) == "stopped\n"
    assert unpooled_command("site", "stop", folder) == "was not running\n"
    assert "va in alone: stopped" in unpooled_command("site", "status", folder, code=3)
    assert "the server is not up" in unpooled_command("federation", "status", home, code=3)
    output = unpooled_command(
        "federation", "run", home, "-k", "2", "--wait", "0", "--out", tmp_path / "out", code=1
    )
    assert "unpooled federation serve" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--quorum", "0"), "quorum must be a share above 0 and up to 1, got 0"),
        (("--deadline", "-1"), "deadline must be between 0 and 86400 seconds, got -1"),
        (("--method", "none"), "method must be one of"),
    ],
)
def test_invalid_options_of_a_run_are_refused(network, tmp_path, options, message):
    output = unpooled_command(
        "federation", "run", network.home, "-k", "2", "--out", tmp_path / "out", *options, code=1
    )
    assert message in output
    assert not (tmp_path / "out").exists()


def test_one_package_imports_the_engine():
    root = Path(unpooled.__file__).parent
    importers = {
        path.relative_to(root).parts[:2]
        for path in root.rglob("*.py")
        if re.search(r"^\s*(import|from) nvflare\b", path.read_text(encoding="utf-8"), re.M)
    }
    assert importers == {("federation", "nvflare")}
