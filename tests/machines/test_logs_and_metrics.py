"""The log of a server or site, the history of runs, and metrics: for people, collectors and Prometheus."""

import json
import logging
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from machines.network import contents, until
from unpooled.app.cli.events import EventLog
from unpooled.errors import InputError
from unpooled.federation.nvflare.presence_file import PRESENCE_FILE, seconds_since_contact
from unpooled.federation.provisioning import health
from unpooled.federation.provisioning.federation_folder import FederationFolder, create
from unpooled.federation.run_history import HISTORY, append_event, read_events

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
