"""Commands of a site that act on several things: how each decides which, and what it refuses."""

import json
import os
import pty
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from studies import study_of
from unpooled.app.cli import app
from unpooled.app.pages.dpia import page, read
from unpooled.federation.provisioning.federation_folder import create
from unpooled.site.policy import load
from unpooled.site.study_store import APPROVED, DECLINED, WITHDRAWN, StudyFolder
from unpooled.site.table_store import SECOND_TABLE, SummaryFolder


def call(*words, entered=None):
    done = CliRunner().invoke(app, [str(word) for word in words], input=entered)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def refused(*words, entered=None):
    """The message of a command that is refused in one line."""
    code, _, err = call(*words, entered=entered)
    assert (code, err.count("\n")) == (1, 1), err
    return err


@pytest.fixture
def patients(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"P{i},{rng.normal(35 if i % 2 else 70, 4):.0f},{rng.normal(25, 3):.1f}" for i in range(80)]
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(["patient,age,bmi", *rows]) + "\n")
    return path


@pytest.fixture
def north(patients, tmp_path):
    """The folder of a site with a summary table that nobody approved."""
    folder = tmp_path / "north"
    assert (
        call(
            "site", "summarize", "--no-sensitive-columns", folder, "--data", patients, "--person", "patient"
        )[0]
        == 0
    )
    return folder


def received(folder, run="r", **how):
    study = study_of(run, **how)
    StudyFolder(folder).receive("a", study, "")
    return study


def states(folder):
    return [one.state for one in StudyFolder(folder).every()]


# ---------------------------------------------------------------- init and policy


def test_a_policy_in_the_folder_of_a_site_is_its_policy(patients, tmp_path):
    north = tmp_path / "north"
    assert call("site", "init", north, "--name", "north", "--person", "patient")[0] == 0
    assert north.stat().st_mode & 0o777 == 0o700
    assert load(north / "policy.toml").protect.person == "patient"
    assert call("site", "summarize", "--no-sensitive-columns", north, "--data", patients)[0] == 0
    assert SummaryFolder(north).settings().person == "patient"
    for path in (north, north / "policy.toml"):
        code, printed, _ = call("site", "policy", path, "--check")
        assert (code, printed.startswith(f"{north / 'policy.toml'}: valid, digest ")) == (0, True)
        assert call("site", "policy", path)[1].endswith(printed)
    (north / "policy.toml").unlink()
    assert "no policy.toml; the default rules apply" in call("site", "policy", north, "--check")[1]


def test_the_rules_of_a_relay_and_the_list_of_presets(tmp_path):
    assert call("site", "init", tmp_path / "relay.toml", "--relay")[0] == 0
    assert (
        "the rules of a federation that joins another" in call("site", "policy", tmp_path / "relay.toml")[1]
    )
    assert "--relay" in refused("site", "init", tmp_path / "other.toml", "--relay", "--name", "north")
    assert "opensafely" in call("site", "init", "--list-presets")[1]
    assert "--list-presets" in refused("site", "init", tmp_path, "--list-presets")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["relay.toml"]


# ---------------------------------------------------------------- summarize


def test_the_same_command_makes_a_table_and_updates_it(patients, tmp_path):
    north = tmp_path / "north"
    words = (
        "site",
        "summarize",
        "--no-sensitive-columns",
        north,
        "--data",
        patients,
        "--person",
        "patient",
        "--study-columns",
        "age",
    )
    for option in (("--keep-changed",), ("--extra-spread", 1), ("--people-out", tmp_path / "who.csv")):
        assert "there is no approved summary table to update" in refused(*words, *option)
    assert not north.exists()
    assert call(*words)[0] == 0
    assert north.stat().st_mode & 0o777 == 0o700  # other users cannot even list it
    assert call("site", "approve", north, "--table", "--yes")[0] == 0
    code, printed, _ = call(*words, "--people-out", tmp_path / "who.csv")
    assert (code, "Nothing changes" in printed) == (0, True)
    assert len((tmp_path / "who.csv").read_text().splitlines()) == 81
    for other in (
        ("--study-columns", "bmi"),
        ("--min-group-size", 8),
        ("--diverse", "bmi"),
        ("--columns", "age"),
    ):
        declared = words if other[0] != "--diverse" else [w for w in words if w != "--no-sensitive-columns"]
        message = refused(*declared, *other)
        assert "made with other settings" in message
        assert SECOND_TABLE in message
    words = ("site", "summarize", "--no-sensitive-columns", north, "--data", patients, "--person", "patient")
    assert call(*words, "--second-table", SECOND_TABLE)[0] == 0
    assert not SummaryFolder(north).approved


# ---------------------------------------------------------------- review


def test_review_prints_or_writes_one_thing(north, tmp_path):
    study = received(north)
    code, printed, _ = call("site", "review", north, "--text")
    assert code == 0
    assert "not approved yet: the site answers nothing" in printed
    table = SummaryFolder(north).read()
    assert f"the first 4 groups of {len(table)}; --csv FILE writes all:\n" in printed
    ages = [f"{age:.6g}" for age in table.means["age"][:4]]
    assert ["age", *ages] in [line.split() for line in printed.splitlines()]
    assert study.digest in printed
    assert study.purpose in printed
    code, printed, _ = call("site", "review", north, "1")
    assert (code, study.digest in printed, "approved yet" in printed) == (0, True, False)
    assert call("site", "review", north, study.digest[:8])[1] == printed
    html, csv = ("--html", tmp_path / "page.html"), ("--csv", tmp_path / "table.csv")
    for words in (("1", "--text"), (*html, *csv), (*csv, "--text"), ("1", *html)):
        assert "exclude each other" in refused("site", "review", north, *words)
    assert "--current needs" in refused("site", "review", north, "--current")
    assert "--port is for the page" in refused("site", "review", north, "--text", "--port", 8000)
    assert "--overwrite needs" in refused("site", "review", north, "--overwrite")


def test_the_folder_of_a_federation_is_for_other_commands(tmp_path):
    heart = tmp_path / "heart"
    create(heart, "heart", "localhost", ("a", "b"), engine_name="nvflare")
    for command, other in (
        ("review", "federation watch"),
        ("approve", "federation watch"),
        ("status", "federation status"),
        ("start", "federation serve"),
        ("stop", "federation serve"),
    ):
        assert f"unpooled {other} {heart}" in refused("site", command, heart)
    (tmp_path / "empty").mkdir()
    assert "not the folder of a site" in refused("site", "review", tmp_path / "empty")


def test_the_folder_of_a_site_is_for_other_commands(north):
    assert f"unpooled site review {north}" in refused("federation", "watch", north)
    assert f"unpooled site status {north}" in refused("federation", "status", north)


# ---------------------------------------------------------------- approve


def test_approve_takes_what_is_pending(north):
    code, _, err = call("site", "approve", north, entered="n\n")
    assert (code, SummaryFolder(north).approved) == (1, ""), err
    study = received(north)
    code, printed, _ = call("site", "approve", north, entered="y\nn\n")
    assert code == 1
    assert "80 people in" in printed
    assert SummaryFolder(north).digest in printed
    assert study.purpose in printed
    assert (SummaryFolder(north).approved, states(north)) == ("", ["pending"])
    code, printed, _ = call("site", "approve", north, "--by", "Dr. Low", entered="y\ny\n")
    assert code == 0
    assert printed.count("approved: ") == 2
    assert SummaryFolder(north).approved
    assert StudyFolder(north).every()[0].decisions[-1].by == "Dr. Low"
    message = refused("site", "approve", north)
    assert "there is no study to approve, and the summary table is approved" in message


def test_the_figures_and_risks_of_a_table_are_shown_before_it_is_approved(north):
    code, printed, _ = call("site", "approve", north, entered="n\n")
    assert code == 1
    assert "80 people in 16 groups of at least 5" in printed
    assert "Membership inference: " in printed
    assert printed.index("Membership inference: ") < printed.index("Approve the summary table?")


def test_at_a_terminal_the_name_of_the_person_is_asked_for(north):
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, b"y\nDr. Low\n")
        words = [sys.executable, "-m", "unpooled", "site", "approve", str(north)]
        done = subprocess.run(words, stdin=terminal, capture_output=True, text=True, timeout=120)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert done.returncode == 0, done.stderr
    assert json.loads((north / "summary" / "approved.json").read_text())["by"] == "Dr. Low"


def test_approve_takes_only_what_is_named(north):
    first, second = received(north, "r"), received(north, "s", ks=(4, 5))
    message = refused("site", "approve", north, "--yes")
    assert "2 studies are possible. Name one by its number: 1. " in message
    assert not SummaryFolder(north).approved
    number = [one.study.digest for one in StudyFolder(north).every()].index(second.digest) + 1
    code, _, err = call("site", "approve", north, number, "--yes")
    assert code == 0
    assert f"the summary table is not approved yet: unpooled site approve {north} --table" in err
    assert StudyFolder(north).read(second.digest).state == APPROVED
    assert StudyFolder(north).read(first.digest).is_pending
    assert call("site", "approve", north, "--table", "--yes")[0] == 0
    assert SummaryFolder(north).approved
    assert StudyFolder(north).read(first.digest).is_pending
    assert call("site", "approve", north, first.digest[:12], "--table", "--yes")[1].count("approved: ") == 1
    assert StudyFolder(north).read(first.digest).state == APPROVED
    assert "--wait waits for a study" in refused("site", "approve", north, "--table", "--wait", 1)


def test_only_the_table_that_was_reviewed_is_approved(north, patients, monkeypatch):
    words = [
        "site",
        "summarize",
        "--no-sensitive-columns",
        north,
        "--data",
        patients,
        "--person",
        "patient",
        "--exclude",
        "bmi",
    ]

    def while_asked(*_, **__):
        assert call(*words)[0] == 0

    monkeypatch.setattr("unpooled.app.cli.review_commands.typer.confirm", while_asked)
    assert "changed while it was reviewed" in refused("site", "approve", north, "--table")
    assert not SummaryFolder(north).approved


def test_a_second_approval_of_one_table_changes_nothing(north):
    assert call("site", "approve", north, "--table", "--yes", "--by", "Dr. Low")[0] == 0
    first = SummaryFolder(north).approval()
    code, printed, _ = call("site", "approve", north, "--table", "--yes", "--by", "Dr. High")
    assert code == 0
    assert printed == f"{north / 'summary'} was approved at {first['utc']} by Dr. Low; nothing changes\n"
    SummaryFolder(north).approve(by="Dr. High")
    assert SummaryFolder(north).approval() == first == {"by": "Dr. Low", "utc": first["utc"]}
    report = page(read(north))
    assert ("Dr. Low" in report, "Dr. High" in report) == (True, False)


def test_the_page_beside_the_table_is_of_that_table(north, patients):
    """Made, replaced before anybody approved it, approved, updated, and after an erasure."""
    page = north / "summary" / "page.html"
    assert "Not approved yet: the site answers nothing." in page.read_text()
    words = ("site", "summarize", north, "--data", patients)
    made = (*words, "--no-sensitive-columns", "--person", "patient", "--min-group-size", "9")
    code, printed, _ = call(*made)
    assert (code, f"written: {page}: open it to review the table\n" in printed) == (0, True)
    assert SummaryFolder(north).digest in page.read_text()
    assert call("site", "approve", "--table", "--yes", north)[0] == 0
    assert f"Approved at {SummaryFolder(north).approved} UTC." in page.read_text()
    patients.write_text("\n".join(patients.read_text().splitlines()[:-12]) + "\n")
    update = north / "renewal" / "page.html"
    code, printed, _ = call(*words)
    assert (code, f"written: {update}: open it to review the update\n" in printed) == (0, True)
    assert "Not approved yet: the site answers from the old table." in update.read_text()
    assert call("site", "approve", "--table", "--yes", north)[0] == 0
    assert SummaryFolder(north).digest in page.read_text()
    assert call("site", "erase", north, "P3", "--yes")[0] == 0
    assert SummaryFolder(north).digest in page.read_text()


@pytest.mark.parametrize("mode", ["summary", "dp", "raw"])
def test_the_last_screen_of_a_terminal_shows_what_an_officer_decides_on(north, mode, monkeypatch):
    """Of 80 columns and 24 lines: purpose, contact, limits and risk, at the question about a study."""
    if mode != "summary":
        columns = 'columns = ["age", "bmi"]\nlower = [0, 9]\nupper = [110, 60]\nrows = 100\n'
        private = f"[dp]\nepsilon_total = 2\n[domain]\n{columns}" if mode == "dp" else ""
        (north / "policy.toml").write_text(f'format = 1\n[protect]\nmode = "{mode}"\n{private}')
    names = tuple(f"column{number}" for number in range(40))
    received(north, title="Kinds of patients", contact="Dr. Low, low@example.org", columns=names)
    monkeypatch.chdir(north.parent)  # a short path, wherever the tests run
    done = CliRunner().invoke(app, ["site", "approve", north.name, "1"], input="n\n", env={"COLUMNS": "80"})
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= 80
    (question,) = (i for i, line in enumerate(lines) if line.startswith("Approve the study?"))
    assert question < 24  # nothing is above the screen
    screen = " ".join(" ".join(lines).split())
    for text in (
        "Kinds of patients",
        "purpose to find groups",
        "contact Dr. Low, low@example.org",
        "column11 and 28 more",
        "at most 304 rounds",
        "expires ",
        {
            "summary": "the answers disclose no more than the summary table, whatever is asked",
            "dp": "someone who has all other rows learns of a row what epsilon 2 allows",
            "raw": "rows can be reconstructed from exact answers",
        }[mode],
    ):
        assert text in screen, text


def test_the_review_of_a_study_begins_with_what_an_officer_decides_on(north):
    """The command that ``site approve`` names prints all columns and queries, after purpose and contact."""
    names = tuple(f"column{number}" for number in range(40))
    study = received(north, contact="Dr. Low, low@example.org", columns=names)
    printed = call("site", "approve", north, "1", entered="n\n")[1]
    command = f"unpooled site review {north} {study.digest[:16]}"
    assert command in printed
    code, review, _ = call(*command.split()[1:])
    assert code == 0
    assert all(name in review for name in names)
    order = [review.index(text) for text in ("Dr. Low", "risk ", "run ", "it may ask for:")]
    assert order == sorted(order)
    assert review.index(study.purpose) < order[0]


def test_the_last_screen_shows_the_risks_of_a_table(north, monkeypatch):
    monkeypatch.chdir(north.parent)
    done = CliRunner().invoke(
        app, ["site", "approve", north.name, "--table"], input="n\n", env={"COLUMNS": "80"}
    )
    lines = [piece for line in done.output.splitlines() for piece in textwrap.wrap(line, 80)]
    screen = " ".join(lines[-24:])
    for text in ("Membership inference: ", "80 people in", SummaryFolder(north).digest, "columns: age, bmi"):
        assert text in screen, text


# ---------------------------------------------------------------- decline


def test_decline_declines_what_is_pending_and_withdraws_what_is_approved(north):
    study = received(north)
    code, printed, _ = call("site", "decline", north, "--reason", "no agreement", "--by", "Dr. Low")
    assert (code, printed.startswith("declined: ")) == (0, True)
    assert states(north) == [DECLINED]
    assert "is declined" in refused("site", "decline", north, "1")
    assert "there is no study to decline or withdraw" in refused("site", "decline", north)
    assert call("site", "approve", north, "1", "--yes")[0] == 0
    code, printed, _ = call("site", "decline", north)
    assert (code, printed.startswith("withdrawn: ")) == (0, True)
    assert StudyFolder(north).read(study.digest).state == WITHDRAWN
    received(north, "s")
    received(north, "t")
    assert "2 studies are possible" in refused("site", "decline", north)


# ---------------------------------------------------------------- status


def test_status_of_a_site_that_has_not_joined(north):
    code, printed, _ = call("site", "status", north)
    assert code == 6
    assert "NOT APPROVED" in printed
    assert "the site has not received a study yet" in printed
    assert call("site", "approve", north, "--yes")[0] == 0
    assert call("site", "status", north)[0] == 0
    study = received(north)
    code, printed, _ = call("site", "status", north)
    assert code == 6
    assert f"1. pending: {study.title} ({study.purpose})" in printed
    values = json.loads(call("site", "status", north, "--json")[1])
    assert (values["code"], values["mode"]) == (6, "summary")
    assert [(one["number"], one["state"], one["digest"]) for one in values["studies"]] == [
        (1, "pending", study.digest)
    ]
    assert "--metrics needs a site that has joined" in refused(
        "site", "status", north, "--metrics", north / "m"
    )
    assert call("site", "decline", north)[0] == 0
    assert call("site", "status", north)[0] == 0


def test_an_expired_study_needs_no_decision(north):
    past = (datetime.now(UTC) - timedelta(days=2)).isoformat(timespec="seconds")
    received(north, created=past, expires=past)
    assert "1. expired: " in call("site", "status", north)[1]
    assert call("site", "approve", north, "--table", "--yes")[0] == 0
    assert call("site", "status", north)[0] == 0


# ---------------------------------------------------------------- erase and log


def test_erase_asks_first(north):
    assert call("site", "approve", north, "--table", "--yes")[0] == 0
    before = SummaryFolder(north).digest
    code, printed, _ = call("site", "erase", north, "P3", entered="n\n")
    assert (code, "Erase 1 person" in printed) == (1, True)
    assert "1 group with 5 people would be withdrawn; 75 people would stay disclosed" in printed
    assert SummaryFolder(north).digest == before
    code, printed, _ = call("site", "erase", north, "P3", "X9", "--block-unknown", entered="n\n")
    assert "X9: nothing was ever disclosed" in printed
    assert call("site", "erase", north, "P3", entered="y\n")[0] == 0
    assert SummaryFolder(north).digest != before


def test_a_log_is_shown_verified_or_attacked(tmp_path):
    log = tmp_path / "log.jsonl"
    for words in (("--verify", "--attack"), ("--verify", "--html", tmp_path / "page.html")):
        assert "exclude each other" in refused("site", "log", log, *words)
    assert "no effect on --attack" in refused("site", "log", log, "--attack", "--log-heads", log)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- federation


@pytest.fixture
def heart(tmp_path):
    create(tmp_path / "heart", "heart", "localhost", ("a", "b", "c"), engine_name="nvflare")
    return tmp_path / "heart"


def test_remove_takes_a_site_or_runs(heart):
    assert "say what to remove" in refused("federation", "remove", heart)
    assert "two commands" in refused("federation", "remove", heart, "c", "--older-than", 30)
    assert call("federation", "remove", heart, "--older-than", 30)[1] == "nothing to remove\n"
    assert "the sites are a, b" in call("federation", "remove", heart, "c")[1]


def test_admit_again_needs_a_reason_and_a_known_site(heart):
    for words, message in (
        ((heart, "--again", "--reason", "disk lost"), "--again needs a SITE and a --reason"),
        ((heart, "a", "--again"), "--again needs a SITE and a --reason"),
        ((heart, "a", "--reason", "disk lost"), "--reason needs --again"),
        ((heart, "a", "--again", "--reason", "x", "--wait", 1), "leave out --fingerprint and --wait"),
        ((heart, "z", "--again", "--reason", "x"), "z is not in the federation"),
    ):
        assert message in refused("federation", "admit", *words)


def test_a_server_that_does_not_run_is_stopped(heart):
    assert call("federation", "serve", heart, "--stop")[1] == "was not running\n"
    assert "exclude each other" in refused("federation", "serve", heart, "--stop", "--listen", "127.0.0.1")


# ---------------------------------------------------------------- join and start


def test_join_takes_a_folder_and_an_invitation_and_start_a_folder(north, tmp_path):
    invitation = Path(tmp_path / "north.json")
    assert "no such file" in refused("site", "join", north, invitation)
    invitation.write_text("{}")
    assert f"unpooled site join {north} {invitation}" in refused("site", "join", invitation, north)
    assert f"unpooled site join FOLDER {invitation}" in refused("site", "start", invitation)
    assert f"unpooled site join {north} INVITATION" in refused("site", "start", north)
    missing = tmp_path / "missing"
    assert f"{missing}: no such folder. Give the folder" in refused("site", "join", missing, invitation)
    assert not missing.exists()


# ---------------------------------------------------------------- examples and exports


def test_only_the_penguins_have_a_run(tmp_path):
    assert "example heart has no run; penguins has" in refused("example", "heart", "--run", "--out", tmp_path)
    assert "the examples are heart, penguins" in refused("example", "irises")


def test_formats_of_an_export_are_listed(tmp_path):
    assert "--to must be one of json, sklearn, onnx, html" in refused("export", tmp_path, "--to", "pdf")


# ---------------------------------------------------------------- log


def test_the_log_of_a_site_that_nobody_has_asked(north, tmp_path):
    for option in ((), ("--verify",), ("--attack",), ("--html", tmp_path / "log.html")):
        code, printed, _ = call("site", "log", north, *option)
        assert (code, printed) == (0, f"{north}: nothing was asked yet\n")
    assert not (tmp_path / "log.html").exists()
    (north / "ledger.sqlite").touch()  # something was charged: the log is lost
    assert "there is no log" in refused("site", "log", north)
