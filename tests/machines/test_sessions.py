"""Sessions and the transport between them, without an engine: the guarantees that hold with any engine."""

import queue
import random
import threading
from collections import deque
from dataclasses import fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import blobs, split
from studies import approved_terms
from unpooled.algorithms import Lloyd
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.federation import Simulation, retrying_transport
from unpooled.federation.coordinator_run import RunTask, coordinate
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning import follow_run
from unpooled.federation.provisioning.follow_run import _record, describe_waiting, failure_in
from unpooled.federation.retrying_transport import NoAnswer, RetryingTransport
from unpooled.options.reading import Reading
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.protocol import codec, run
from unpooled.protocol.run_loop import run_from_checkpoint
from unpooled.site import Site
from unpooled.site.session import MembershipFile, RunTerms, SiteSession, SiteSettings
from unpooled.site.table_store import SummaryFolder
from unpooled.storage.file_locks import is_locked, locked


@pytest.fixture
def tables():
    return split(blobs(4, n=240)[0], 3, seed=4)


class Clock:
    """A clock that advances only while a transport waits for a response that does not come."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    time = monotonic


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Transports wait by a clock of their own: nothing here depends on how fast this machine is."""
    clock = Clock()

    class Inbox(deque):
        put = deque.append

        def get(self, timeout):
            if not self:
                clock.now += timeout
                raise queue.Empty
            return self.popleft()

    monkeypatch.setattr(retrying_transport, "time", clock)
    monkeypatch.setattr(retrying_transport, "queue", SimpleNamespace(SimpleQueue=Inbox, Empty=queue.Empty))
    return clock


def task(tables):
    return RunTask(run="r", algorithm=Lloyd(k=3), sites=tuple(tables), seed=3, quorum=0.5, deadline=2.0)


def transport(tables, fault=lambda site, data, number: None, deadline=2.0):
    """A transport with faults to sites in this process, and how often each site was asked."""
    sites = {name: Site(name, X) for name, X in tables.items()}
    asked = dict.fromkeys(tables, 0)

    def send(site, data, answered):
        asked[site] += 1
        failure = fault(site, data, asked[site])
        answer = sites[site].respond(data)
        answered(answer if failure is None else failure)

    return RetryingTransport(tuple(tables), send, deadline=deadline), asked


@pytest.mark.parametrize("seed", range(5))
def test_answers_that_get_lost_change_nothing(tables, tmp_path, seed):
    chance = random.Random(seed)
    lossy, asked = transport(tables, lambda *_: NoAnswer("lost") if chance.random() < 0.3 else None, 60.0)
    assert coordinate(task(tables), lossy, tmp_path, home=tmp_path)
    done, whole = (
        run_from_checkpoint(tmp_path / "checkpoint", Lloyd(k=3)),
        run(Lloyd(k=3), Simulation.from_rows(tables), seed=3),
    )
    assert np.array_equal(done.state.centers, whole.state.centers)
    assert done.sent() == whole.sent()
    assert not any(record.silent for record in done.history)
    assert sum(asked.values()) > 3 * whole.exchanges
    assert ProgressFile(tmp_path).read()["state"] == "finished"
    assert done.id == "r"


def test_a_site_that_vanishes_is_named_and_returns(overlapping, tmp_path):
    tables, gone = overlapping, sorted(overlapping)[0]

    def fault(site, data, number):
        away = site == gone and codec.unwrap(data).request_id.round in (1, 2)
        return NoAnswer("not reached") if away else None

    assert coordinate(task(tables), transport(tables, fault)[0], tmp_path, home=tmp_path)
    history = run_from_checkpoint(tmp_path / "checkpoint", Lloyd(k=3)).history
    assert len(history) > 3
    for record in history:
        assert record.silent == ({gone: "not reached"} if record.round in (1, 2) else {})


def test_too_few_sites_stop_the_run_by_name_and_it_continues_later(tables, tmp_path):
    others = sorted(tables)[1:]
    declining, _ = transport(
        tables, lambda site, _, n: NoAnswer("declines", retry=False) if site in others and n > 4 else None
    )
    assert not coordinate(task(tables), declining, tmp_path, home=tmp_path)
    failure = failure_in(ProgressFile(tmp_path).read())
    assert isinstance(failure, TooFewAnswersError)
    assert f"missing: {others[0]}, {others[1]} (declines)" in str(failure)
    assert coordinate(task(tables), transport(tables)[0], tmp_path, home=tmp_path)
    done, whole = (
        run_from_checkpoint(tmp_path / "checkpoint", Lloyd(k=3)),
        run(Lloyd(k=3), Simulation.from_rows(tables), seed=3),
    )
    assert np.array_equal(done.state.centers, whole.state.centers)


def test_no_engine_delays_a_round_beyond_its_deadline():
    """One that raises, one that brings no answer, one that answers at once."""

    def send(site, data, answered):
        if site == "raises":
            raise RuntimeError("row 17: 63.2")
        if site == "works":
            answered(data)

    mixed = RetryingTransport(("raises", "silent", "works"), send, deadline=0.3)
    responses = mixed.send_and_receive(dict.fromkeys(mixed.sites, b"x"))
    assert responses == {
        "silent": "no answer",
        "raises": "the engine failed with RuntimeError",
        "works": b"x",
    }
    assert mixed.unreached == {"raises", "silent"}


def test_an_answer_that_is_here_counts_even_if_its_time_is_over(clock):
    """The transport's own process was too slow to read it: that is not the site's fault."""

    def send(site, data, answered):
        clock.now += 10.0
        answered(data)

    slow = RetryingTransport(("a", "b", "c"), send, deadline=5.0)
    assert slow.send_and_receive(dict.fromkeys(slow.sites, b"x")) == dict.fromkeys(slow.sites, b"x")
    assert slow.unreached == set()


def test_a_late_answer_does_not_count_for_the_next_request():
    callbacks = []

    def send(site, data, answered):
        callbacks.append(answered)
        if len(callbacks) > 1:
            callbacks[0](b"late")
            answered(data)

    late = RetryingTransport(("a",), send, deadline=0.05)
    assert late.send_and_receive({"a": b"first"}) == {"a": "no answer"}
    assert late.send_and_receive({"a": b"second"}) == {"a": b"second"}


def test_a_site_that_reports_itself_is_asked_again_at_once(clock):
    asked = []

    def send(site, data, answered):
        asked.append(clock.now)
        if len(asked) == 1:
            starting.ready("a")  # its process has just started, and the first message got lost
        else:
            answered(data)

    starting = RetryingTransport(("a",), send, deadline=60.0)
    assert starting.send_and_receive({"a": b"x"}) == {"a": b"x"}
    assert asked == [clock.now, clock.now]


def _waits(times, then):
    """A send function to a site where a person decides after ``times`` requests."""
    asked = []

    def send(site, data, answered):
        asked.append(data)
        answered(NoAnswer("not yet", waiting=True) if site == "a" and len(asked) <= times else then)

    return send


def test_a_run_waits_for_a_site_where_a_person_must_decide(clock):
    """Beyond any deadline; ``on_wait`` learns since when."""
    waits, before = [], clock.now
    patient = RetryingTransport(("a",), _waits(20, b"yes"), deadline=5.0, approval_timeout=3600.0)
    patient.on_wait = lambda waiting: waits.append(dict(waiting))
    assert patient.send_and_receive({"a": b"x"}) == {"a": b"yes"}
    assert patient.seconds == [pytest.approx(20.0)]
    assert waits == [{"a": before}, {}]
    assert patient.unreached == set()


def test_the_wait_for_an_approval_has_a_timeout_of_its_own():
    undecided = RetryingTransport(("a",), _waits(10**6, b"yes"), deadline=60.0, approval_timeout=200.0)
    for _ in range(2):  # the second exchange does not wait again
        assert undecided.send_and_receive({"a": b"x"}) == {"a": "not yet"}
        assert undecided.unreached == set()  # it is reachable: another run changes nothing
    declined = RetryingTransport(
        ("a",), _waits(3, NoAnswer("declined", retry=False)), deadline=60.0, approval_timeout=3600.0
    )
    assert declined.send_and_receive({"a": b"x"}) == {"a": "declined"}


def test_a_site_that_vanishes_while_a_run_waits_for_it_counts_as_unreached():
    waits, asked = [], []

    def send(site, data, answered):
        asked.append(data)
        if len(asked) < 3:
            answered(NoAnswer("not yet", waiting=True))

    vanishing = RetryingTransport(("a",), send, deadline=5.0, approval_timeout=3600.0)
    vanishing.on_wait = lambda waiting: waits.append(dict(waiting))
    assert vanishing.send_and_receive({"a": b"x"}) == {"a": "not yet"}
    assert vanishing.unreached == {"a"}
    assert waits[-1] == {}


def test_the_progress_file_names_the_sites_that_a_run_waits_for(tables, tmp_path):
    sites, records = {name: Site(name, X) for name, X in tables.items()}, []
    late = sorted(tables)[0]

    def send(site, data, answered):
        records.append(ProgressFile(tmp_path).read())
        waits = site == late and len(records) < 12
        answered(NoAnswer("not yet", waiting=True) if waits else sites[site].respond(data))

    patient = RetryingTransport(tuple(tables), send, deadline=5.0, approval_timeout=3600.0)
    assert coordinate(task(tables), patient, tmp_path, home=tmp_path)
    waiting = [record["waiting"] for record in records if record.get("waiting")]
    assert waiting
    assert all(set(sites) == {late} for sites in waiting)
    assert not records[-1].get("waiting")
    assert not any(
        record.silent for record in run_from_checkpoint(tmp_path / "checkpoint", Lloyd(k=3)).history
    )


def test_the_day_is_named_unless_it_is_today(monkeypatch):
    noon = datetime(2020, 1, 3, 12)
    today = SimpleNamespace(now=lambda: noon, fromtimestamp=datetime.fromtimestamp)
    monkeypatch.setattr(follow_run, "datetime", today)
    when = datetime(2020, 1, 2, 9, 12)
    assert (
        describe_waiting({"north": when.timestamp()})
        == "waiting for north since 02 Jan 9:12 to approve the study"
    )
    when += timedelta(days=1)
    assert (
        describe_waiting({"north": when.timestamp()}) == "waiting for north since 9:12 to approve the study"
    )


def test_a_thousand_sites_need_no_thread_of_ours(monkeypatch):
    def refuse(thread):
        raise AssertionError("a thread was started")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    sites, callers = tuple(f"s{number}" for number in range(1000)), set()

    def send(site, data, answered):
        callers.add(threading.get_ident())
        answered(data)

    assert (
        len(RetryingTransport(sites, send, deadline=5.0).send_and_receive(dict.fromkeys(sites, b"x"))) == 1000
    )
    assert callers == {threading.get_ident()}


def test_one_process_at_a_time_works_on_a_run(tmp_path):
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(InputError, match="is working on it"), locked(tmp_path, patience=0.2):
            pass
    assert not is_locked(tmp_path)


def test_a_record_is_the_same_after_writing_and_reading(tables, tmp_path):
    records = []
    run(Lloyd(k=3), Simulation.from_rows(tables), seed=1, progress=records.append)
    for record in records:
        ProgressFile(tmp_path).record(record)
        back = _record(ProgressFile(tmp_path).read()["record"])
        assert (back.sent, back.silent, back.round) == (record.sent, record.silent, record.round)


# ---------------------------------------------------------------- a site's session


@pytest.fixture
def settings(tmp_path):
    data = tmp_path / "patients.csv"
    data.write_text("id,age,bmi\n" + "".join(f"{i},{40 + i % 31},{20 + i % 9}\n" for i in range(60)))
    policy = tmp_path / "policy.toml"
    policy.write_text('format = 1\n[protect]\nmode = "raw"\n')
    return SiteSettings("a", str(data), str(tmp_path / "site"), str(policy), reading=Reading(exclude=("id",)))


@pytest.fixture
def terms(settings):
    """Terms of a run whose study is approved."""
    approved = approved_terms(settings)
    return lambda **changed: replace(approved, **changed)


def test_settings_are_the_same_after_writing_and_reading(settings, tmp_path):
    folder = Path(settings.folder)
    folder.mkdir(exist_ok=True)
    settings.write()
    MembershipFile("a", "ab", str(folder), str(folder / "federations" / "f")).write(folder / "m.json")
    own = {"authority": "ab", "membership": str(folder / "federations" / "f")}
    expected = replace(settings, policy=str(folder / "policy.toml"), **own)
    assert SiteSettings.read(folder / "m.json") == expected


def test_a_site_that_joined_with_its_summary_table_alone_names_no_data_file(tmp_path):
    SiteSettings("", "", str(tmp_path)).write()
    assert SiteSettings.of_folder(tmp_path).data == ""


def test_the_site_decides_how_its_file_is_read(settings):
    assert settings.table().names == ("age", "bmi")
    only = SiteSettings("a", settings.data, settings.folder, reading=Reading(columns=("bmi",)))
    assert only.table().names == ("bmi",)
    assert not {"columns", "exclude", "na", "categorical"} & {f.name for f in fields(RunTerms)}


def test_a_site_does_not_answer_from_a_summary_table_that_nobody_approved(settings, terms, tmp_path):
    by_summary = replace(settings, policy=None, data="")
    assert "cannot open" in SiteSession(by_summary, terms()).respond(b"anything")
    SummaryFolder(tmp_path / "site").make(
        settings.table(), SummarySettings(one_row_per_person=True, no_sensitive_columns=True)
    )
    assert (
        SiteSession(by_summary, terms()).respond(b"any")
        == "nobody at the site has approved its summary table yet"
    )
    SummaryFolder(tmp_path / "site").approve()
    (tmp_path / "patients.csv").unlink()  # the rows are not needed any more
    assert "not a message" in SiteSession(by_summary, terms()).respond(b"anything")


def test_a_site_that_cannot_open_its_data_declines_without_disclosing_it(settings, terms, tmp_path):
    (tmp_path / "patients.csv").write_text("age,bmi\n" + "41,20\n" * 40 + "secret text,20\n")
    reason = SiteSession(settings, terms()).respond(b"anything")
    assert reason == "the site cannot open its data for this run. Its own log has the reason."
    assert "99.0" in SiteSession(settings, terms(version="99.0")).respond(b"anything")


def test_garbage_is_not_a_message(settings, terms):
    session = SiteSession(settings, terms())
    for data in (b"", b"x" * 100, bytes(range(256)) * 100):
        assert str(session.respond(data)).startswith("not a message for this site")
