"""The log of a server or site, the history of runs, and metrics: for people, collectors and Prometheus."""

import json
import logging
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command
from typer.testing import CliRunner

from machines.network import contents, until
from unpooled.app.answer_events import AnswerEvents
from unpooled.app.cli import app
from unpooled.app.event_log import EventLog
from unpooled.app.server_process import ServerEvents
from unpooled.errors import InputError
from unpooled.federation.nvflare.presence_file import PRESENCE_FILE, seconds_since_contact
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning import health
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.federation.run_history import HISTORY, append_event, read_events
from unpooled.protocol.run_loop import RoundRecord
from unpooled.storage.file_locks import locked

ALERTS = Path(__file__).parents[2] / "docs" / "deployment" / "examples" / "unpooled-alerts.yml"


def samples(text):
    """The samples of a file of metrics, by name and labels, as Prometheus's own client reads them."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_line_has_date_level_and_who_writes_it(capsys):
    log = EventLog("heart")
    log("va connected (1 of 3)")
    log.warn("the disk is full")
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 INFO heart: va connected \(1 of 3\)", first)
    assert second.endswith(" WARNING heart: the disk is full")


def test_lines_as_json_have_the_run(capsys):
    log = EventLog("heart", "json")
    log("run r failed: “late”", level=logging.WARNING, run="r")
    log("the server is up")
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first | {"time": ""} == {
        "time": "",
        "level": "warning",
        "name": "heart",
        "run": "r",
        "message": "run r failed: “late”",
    }
    assert datetime.fromisoformat(first["time"]).utcoffset() == timedelta()
    assert set(second) == {"time", "level", "name", "message"}
    with pytest.raises(InputError, match="--log-format must be text or json, got xml"):
        EventLog("heart", "xml")


def test_a_log_in_a_file_rotates(tmp_path):
    log = EventLog("va", file=tmp_path / "site.log")
    for number in range(60):
        log(f"{number} {'x' * 100_000}")
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site.log", "site.log.1"]
    assert all(path.stat().st_size <= 5_000_000 for path in tmp_path.iterdir())


def test_details_are_written_with_verbose_only(capsys):
    for verbose in (False, True):
        EventLog("va", "json", verbose=verbose).detail("run r, round 3: answered 1 query", run="r")
    (line,) = capsys.readouterr().out.splitlines()
    assert (json.loads(line)["level"], json.loads(line)["run"]) == ("debug", "r")


@pytest.mark.parametrize(
    "words", ["site join", "site start", "site answer", "federation serve", "federation run", "resume"]
)
def test_a_command_that_runs_for_long_takes_verbose(words):
    command = get_command(app)
    for word in words.split():
        command = command.commands[word]
    (option,) = (one for one in command.params if one.name == "verbose")
    assert option.opts == ["--verbose", "-v"]
    assert option.help == "Also log every answer, and the progress of runs."


def test_the_answers_of_a_site_are_details(tmp_path, capsys):
    """They are read from the site's own log, from the end that it had."""
    log = tmp_path / "log.jsonl"
    line = {"kind": "release", "run": "r", "round": 1, "asked": [{"refused": False}], "payload": "AAAA"}

    def write(**changed):
        with log.open("a") as file:
            file.write(json.dumps(line | {"refused": []} | changed) + "\n")

    write(round=0)
    details = AnswerEvents(tmp_path, EventLog("va", verbose=True), {"r"})
    quiet = AnswerEvents(tmp_path, EventLog("va"), {"r"})
    write()
    write(run="of another federation")
    write(kind="study")
    with log.open("a") as file:
        file.write('{"kind": "release", "ru')  # a line that is being written
    for events in (details, quiet, details):
        events()
    (printed,) = capsys.readouterr().out.splitlines()
    assert printed.endswith("DEBUG va: run r, round 1: answered 1 query with 3 B")
    log.write_text("")  # as after a rotation
    write(kind="refusal", round=2, refused=["the study expired"])
    details()
    assert capsys.readouterr().out.endswith("run r, round 2: refused: the study expired\n")


def test_a_contact_in_the_future_does_not_count(tmp_path):
    """The clock was set back since it was recorded, and the site may not be connected at all."""
    (tmp_path / PRESENCE_FILE).write_text(json.dumps({"time": time.time() + 3600}))
    assert seconds_since_contact(tmp_path) is None
    (tmp_path / PRESENCE_FILE).write_text(json.dumps({"time": time.time() - 3600}))
    assert seconds_since_contact(tmp_path) >= 3600


@pytest.fixture
def federation(tmp_path):
    create(tmp_path / "fed", "heart", "localhost:8002", ("a", "b"), engine_name="nvflare")
    return FederationFolder.read(tmp_path / "fed")


def test_runs_are_counted_after_their_folders_are_gone(federation):
    append_event(federation.path, "r1", "submitted", title="first", contact="Dr. Low")
    append_event(federation.path, "r1", "begun")
    append_event(federation.path, "r1", "failed", cause="1 of 2 sites answered")
    append_event(federation.path, "r1", "begun")
    append_event(federation.path, "r1", "finished", rounds=3, exchanges=7, bytes=900)
    append_event(federation.path, "r2", "begun")
    append_event(federation.path, "r2", "failed", cause="1 of 2 sites answered")
    found = samples(health.metrics([health.federation_health(federation)]))
    common = (("federation", "heart"), ("role", "coordinator"))

    def value(name, **labels):
        return found[name, *sorted([*common, *labels.items()])]

    assert value("unpooled_ended_runs_total", outcome="finished") == 1  # r1 failed first, and then finished
    assert value("unpooled_ended_runs_total", outcome="failed") == 1
    assert value("unpooled_last_run_round_trips") == 7
    assert value("unpooled_last_run_sent_bytes") == 900
    assert value("unpooled_disk_free_bytes") > 0
    assert value("unpooled_runs", state="failed") == 0  # no folder of a run is left


def test_half_a_line_of_the_history_is_read_when_it_is_whole(federation):
    append_event(federation.path, "r", "begun")
    path = federation.path / HISTORY
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:10])
    events, end = read_events(federation.path)
    assert (len(events), end) == (1, len(whole))
    path.write_bytes(whole + whole)
    assert len(read_events(federation.path, end)[0]) == 1


def fires(expression, text):
    """Whether an alert fires for the samples of a file of metrics: for any of the metric that it names."""
    (name,) = re.findall(r"unpooled_\w+", expression)
    values = [value for (sample, *_), value in samples(text).items() if sample == name]
    code = expression.replace("time()", repr(time.time()))
    return any(eval(code.replace(name, repr(value))) for value in values)  # arithmetic of our own file


def test_the_documented_alerts_fire(federation):
    rules = dict(re.findall(r"alert: (\w+)\n +expr: (.+)", ALERTS.read_text()))
    append_event(federation.path, "r", "begun")
    append_event(federation.path, "r", "finished", rounds=1, exchanges=2, bytes=3)
    well = health.federation_health(federation)
    text = health.metrics([well])
    assert not fires(rules["UnpooledNoSuccess"], text)
    later = (federation.path / HISTORY).read_text()
    old = (datetime.now(UTC) - timedelta(days=15)).isoformat(timespec="seconds")
    (federation.path / HISTORY).write_text(re.sub(r'"time": "[^"]+"', f'"time": "{old}"', later))
    assert fires(rules["UnpooledNoSuccess"], health.metrics([health.federation_health(federation)]))

    def site(**values):
        return health.metrics([health.Health("va", "heart", True, {}, (), {}, (), 1, **values)])

    assert fires(rules["UnpooledDiskNearlyFull"], site(free_bytes=10**9))
    assert not fires(rules["UnpooledDiskNearlyFull"], site(free_bytes=10**10))
    assert fires(rules["UnpooledStudyPending"], site(pending=(time.time() - 4 * 86400, time.time())))
    assert not fires(rules["UnpooledStudyPending"], site(pending=(time.time(),)))
    assert not fires(rules["UnpooledStudyPending"], site())


def test_the_server_logs_every_run(after_a_run):
    ended = r" INFO heart: run \S+ finished after \d+ rounds and \d+ round trips; "
    until(lambda: re.search(ended, after_a_run.output("server")), "the end of the run in the log")
    output = after_a_run.output("server")
    assert re.search(r" INFO heart: run \S+ was submitted: study '.+', contact ", output)
    assert re.search(r" INFO heart: run \S+ began", output)


def test_the_engines_logs_have_no_warning_that_every_run_causes(after_a_run):
    logs = [data for path, data in contents(after_a_run.folder) if path.name.startswith("log.txt")]
    assert sum(b" INFO nvflare." in data for data in logs) > 4  # of the server, of sites, of their jobs
    for harmless in (b"dead-job", b"untracked job/client", b"unknown aux message", b"no waiter for req"):
        assert not any(harmless in data for data in logs)


def test_the_progress_of_runs_is_a_detail(federation, capsys):
    record = RoundRecord(3, 0.5, 9.0, 1, {"a": (4, 32)}, {"b": "no answer"})
    quiet, verbose = (ServerEvents(federation.path, EventLog("heart", verbose=how)) for how in (False, True))
    folder = federation.runs / "r"
    folder.mkdir()
    progress = ProgressFile(folder)

    def logged():
        for one in (quiet, verbose, verbose):
            one()
        return capsys.readouterr().out.splitlines()

    progress.record(record)
    assert logged() == []  # no process has the run
    with locked(folder):
        (line,) = logged()
        assert line.endswith(" DEBUG heart: run r: round 3; 1 of 2 sites answered, 32 bytes")
        progress.record_waiting({"b": 0.0})
        (line,) = logged()
        assert line.endswith(" DEBUG heart: run r waits for b to approve the study")


def stop_server(network):
    network.command("federation", "serve", network.home, "--stop")
    network.processes["server"].wait()


def test_every_line_and_every_metric_of_a_real_run_is_read(after_a_run):
    """A site and the server write JSON with details for one run; their metrics are read by Prometheus."""
    network, words = after_a_run, ("--log-format", "json", "--verbose")
    va = network.site_folder("va")
    network.stop("va")
    stop_server(network)
    files = {name: network.folder / f"{name}.json" for name in ("server", "va")}
    try:
        log = ("--log-file", files["server"])
        network.start("server", "federation", "serve", network.home, *words, *log)
        network.command("site", "start", va, "--background", *words, "--log-file", files["va"])
        until(lambda: set(network.files) <= network.connected(), "the sites to connect")
        network.run("json", "-k", "3", "--restarts", "2", "--seed", "4", "--quorum", "1", "-v")
        printed = network.finish("json")
        until(lambda: " finished after " in files["server"].read_text(), "the end of the run in the log")
        until(lambda: " query with " in files["va"].read_text(), "the answer in the log")
        prom = network.folder / "unpooled.prom"
        for command in (("federation", "status", network.home), ("site", "status", va)):
            CliRunner().invoke(app, [*map(str, command), "--metrics", str(prom)])  # runs of other tests stay
            found = {name for name, *_ in samples(prom.read_text())}
            lines = [line for line in prom.read_text().splitlines() if not line.startswith("#")]
            assert len(lines) == len(samples(prom.read_text()))
            assert "unpooled_up" in found
    finally:
        network.command("site", "stop", va)
        stop_server(network)
        network.serve()
        network.join("va")
        network.wait_connected()
    run = json.loads((network.out("json") / "job.json").read_text())["job"]["remote"]["run"]
    for name, level, text in (
        ("server", "info", " finished after "),
        ("va", "debug", "answered 1 query with "),
    ):
        lines = [json.loads(line) for line in files[name].read_text().splitlines()]
        assert all({"time", "level", "name", "message"} <= line.keys() for line in lines)
        of_run = [line for line in lines if line.get("run") == run]
        assert any(line["level"] == level and text in line["message"] for line in of_run), of_run
    assert " DEBUG json: handing the run to the server" in printed
