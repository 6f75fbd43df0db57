"""The two ends and the courier between them, without an engine: what no engine may be trusted with."""

import queue
import random
import threading
from collections import deque
from dataclasses import fields, replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import blobs, split
from studies import approved_terms
from unpooled import Lloyd, Simulation, Site, run
from unpooled.errors import InputError, TooFewAnswersError
from unpooled.federation import retrying_transport
from unpooled.federation.coordinator_run import ProgressFile, RunTask, coordinate
from unpooled.federation.provisioning import follow_run
from unpooled.federation.provisioning.follow_run import _raised, _record, describe_waiting
from unpooled.federation.retrying_transport import NoAnswer, RetryingTransport
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.protocol import codec
from unpooled.protocol.run_loop import run_from_checkpoint
from unpooled.site.session import RunTerms, SiteSession, SiteSettings
from unpooled.site.table_store import SummaryFolder
from unpooled.storage.file_locks import is_locked, locked


@pytest.fixture
def tables():
    return split(blobs(4, n=240)[0], 3, seed=4)


class Clock:
    """A clock that goes on only while a courier waits for what does not come."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    time = monotonic


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Couriers wait by a clock of their own: nothing here depends on how fast this machine is."""
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


def task(tables, **how):
    told = RunTask(run="r", algorithm=Lloyd(k=3), sites=tuple(tables), seed=3, quorum=0.5, deadline=2.0)
    return replace(told, **how)


def transport(tables, fault=lambda site, data, number: None, deadline=2.0):
    """Sites in this process behind a line with faults; how often each was asked is counted."""
    doors = {name: Site(name, X) for name, X in tables.items()}
    asked = dict.fromkeys(tables, 0)

    def post(site, data, answered):
        asked[site] += 1
        wrong = fault(site, data, asked[site])
        answer = doors[site].respond(data)
        answered(answer if wrong is None else wrong)

    return RetryingTransport(tuple(tables), post, deadline=deadline), asked


@pytest.mark.parametrize("seed", range(5))
def test_answers_that_get_lost_change_nothing(tables, tmp_path, seed):
    chance = random.Random(seed)
    line, asked = transport(tables, lambda *_: NoAnswer("lost") if chance.random() < 0.3 else None, 60.0)
    assert coordinate(task(tables), line, tmp_path)
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

    assert coordinate(task(tables), transport(tables, fault)[0], tmp_path)
    history = run_from_checkpoint(tmp_path / "checkpoint", Lloyd(k=3)).history
    assert len(history) > 3
    for record in history:
        assert record.silent == ({gone: "not reached"} if record.round in (1, 2) else {})


def test_too_few_sites_stop_the_run_by_name_and_it_goes_on_later(tables, tmp_path):
    others = sorted(tables)[1:]
    line, _ = transport(
        tables, lambda site, _, n: NoAnswer("declines", retry=False) if site in others and n > 4 else None
    )
    assert not coordinate(task(tables), line, tmp_path)
    failure = _raised(ProgressFile(tmp_path).read())
    assert isinstance(failure, TooFewAnswersError)
    assert f"missing: {others[0]}, {others[1]} (declines)" in str(failure)
    assert coordinate(task(tables), transport(tables)[0], tmp_path)
    done, whole = (
        run_from_checkpoint(tmp_path / "checkpoint", Lloyd(k=3)),
        run(Lloyd(k=3), Simulation.from_rows(tables), seed=3),
    )
    assert np.array_equal(done.state.centers, whole.state.centers)


def test_no_engine_holds_up_a_round():
    """One that raises, one that brings no answer, one that answers at once."""

    def post(site, data, answered):
        if site == "raises":
            raise RuntimeError("row 17: 63.2")
        if site == "well":
            answered(data)

    line = RetryingTransport(("raises", "silent", "well"), post, deadline=0.3)
    came = line.send_and_receive(dict.fromkeys(line.sites, b"x"))
    assert came == {"silent": "no answer", "raises": "the engine failed with RuntimeError", "well": b"x"}
    assert line.unreached == {"raises", "silent"}


def test_an_answer_that_is_here_counts_even_if_its_time_is_over(clock):
    """The courier's own process was too slow to read it: that is not the site's fault."""

    def post(site, data, answered):
        clock.now += 10.0
        answered(data)

    line = RetryingTransport(("a", "b", "c"), post, deadline=5.0)
    assert line.send_and_receive(dict.fromkeys(line.sites, b"x")) == dict.fromkeys(line.sites, b"x")
    assert line.unreached == set()


def test_an_answer_that_comes_late_is_not_taken_for_the_next():
    kept = []

    def post(site, data, answered):
        kept.append(answered)
        if len(kept) > 1:
            kept[0](b"late")
            answered(data)

    line = RetryingTransport(("a",), post, deadline=0.05)
    assert line.send_and_receive({"a": b"first"}) == {"a": "no answer"}
    assert line.send_and_receive({"a": b"second"}) == {"a": b"second"}


def test_a_site_that_reports_itself_is_asked_again_at_once(clock):
    asked = []

    def post(site, data, answered):
        asked.append(clock.now)
        if len(asked) == 1:
            line.ready("a")  # its process has just started, and the first message got lost
        else:
            answered(data)

    line = RetryingTransport(("a",), post, deadline=60.0)
    assert line.send_and_receive({"a": b"x"}) == {"a": b"x"}
    assert asked == [clock.now, clock.now]


def _waits(times, then):
    """A site where somebody decides after so many questions."""
    asked = []

    def post(site, data, answered):
        asked.append(data)
        answered(NoAnswer("not yet", waiting=True) if site == "a" and len(asked) <= times else then)

    return post


def test_a_site_where_somebody_is_to_decide_is_waited_for(clock):
    """Beyond any deadline; who follows the run hears since when."""
    heard, before = [], clock.now
    line = RetryingTransport(("a",), _waits(20, b"yes"), deadline=5.0, approval_timeout=3600.0)
    line.on_wait = lambda waiting: heard.append(dict(waiting))
    assert line.send_and_receive({"a": b"x"}) == {"a": b"yes"}
    assert line.seconds == [pytest.approx(20.0)]
    assert heard == [{"a": before}, {}]
    assert line.unreached == set()


def test_the_wait_for_an_approval_has_an_end_of_its_own():
    line = RetryingTransport(("a",), _waits(10**6, b"yes"), deadline=60.0, approval_timeout=200.0)
    for _ in range(2):  # the second exchange does not wait again
        assert line.send_and_receive({"a": b"x"}) == {"a": "not yet"}
        assert line.unreached == set()  # it is there: to ask again changes nothing
    declined = RetryingTransport(
        ("a",), _waits(3, NoAnswer("declined", retry=False)), deadline=60.0, approval_timeout=3600.0
    )
    assert declined.send_and_receive({"a": b"x"}) == {"a": "declined"}


def test_a_site_that_vanishes_while_it_waits_is_absent():
    heard, asked = [], []

    def post(site, data, answered):
        asked.append(data)
        if len(asked) < 3:
            answered(NoAnswer("not yet", waiting=True))

    line = RetryingTransport(("a",), post, deadline=5.0, approval_timeout=3600.0)
    line.on_wait = lambda waiting: heard.append(dict(waiting))
    assert line.send_and_receive({"a": b"x"}) == {"a": "not yet"}
    assert line.unreached == {"a"}
    assert heard[-1] == {}


def test_progress_says_whom_a_run_waits_for(tables, tmp_path):
    doors, seen = {name: Site(name, X) for name, X in tables.items()}, []
    late = sorted(tables)[0]

    def post(site, data, answered):
        seen.append(ProgressFile(tmp_path).read())
        waits = site == late and len(seen) < 12
        answered(NoAnswer("not yet", waiting=True) if waits else doors[site].respond(data))

    line = RetryingTransport(tuple(tables), post, deadline=5.0, approval_timeout=3600.0)
    assert coordinate(task(tables), line, tmp_path)
    waiting = [said["waiting"] for said in seen if said.get("waiting")]
    assert waiting
    assert all(set(said) == {late} for said in waiting)
    assert not seen[-1].get("waiting")
    assert not any(
        record.silent for record in run_from_checkpoint(tmp_path / "checkpoint", Lloyd(k=3)).history
    )


def test_the_day_is_said_unless_it_is_today(monkeypatch):
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
    def refused(thread):
        raise AssertionError("a thread was started")

    monkeypatch.setattr(threading.Thread, "start", refused)
    sites, callers = tuple(f"s{number}" for number in range(1000)), set()

    def post(site, data, answered):
        callers.add(threading.get_ident())
        answered(data)

    assert (
        len(RetryingTransport(sites, post, deadline=5.0).send_and_receive(dict.fromkeys(sites, b"x"))) == 1000
    )
    assert callers == {threading.get_ident()}


def test_one_process_at_a_time_works_on_a_run(tmp_path):
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(InputError, match="is working on it"), locked(tmp_path, patience=0.2):
            pass
    assert not is_locked(tmp_path)


def test_a_record_survives_the_way_through_the_file(tables, tmp_path):
    seen = []
    run(Lloyd(k=3), Simulation.from_rows(tables), seed=1, progress=seen.append)
    for record in seen:
        ProgressFile(tmp_path).record(record)
        back = _record(ProgressFile(tmp_path).read()["record"])
        assert (back.sent, back.silent, back.round) == (record.sent, record.silent, record.round)


# ---------------------------------------------------------------- a site's end


@pytest.fixture
def settings(tmp_path):
    data = tmp_path / "patients.csv"
    data.write_text("id,age,bmi\n" + "".join(f"{i},{40 + i % 31},{20 + i % 9}\n" for i in range(60)))
    policy = tmp_path / "policy.toml"
    policy.write_text('format = 1\n[protect]\nmode = "raw"\n')
    return SiteSettings("a", str(data), str(tmp_path / "kept"), str(policy), exclude=("id",))


@pytest.fixture
def terms(settings):
    """Terms of a run whose study is approved."""
    approved = approved_terms(settings)
    return lambda **how: replace(approved, **how)


def test_settings_survive_the_way_through_their_file(settings, tmp_path):
    settings.write(tmp_path / "s.json")
    assert SiteSettings.read(tmp_path / "s.json") == settings


def test_how_a_file_is_read_is_the_sites(settings):
    assert settings.table().names == ("age", "bmi")
    only = SiteSettings("a", settings.data, settings.folder, columns=("bmi",))
    assert only.table().names == ("bmi",)
    assert not {"columns", "exclude", "na", "categorical"} & {f.name for f in fields(RunTerms)}


def test_a_copy_that_nobody_approved_is_not_answered_from(settings, terms, tmp_path):
    copied = replace(settings, policy=None, data="")
    assert "cannot open" in SiteSession(copied, terms()).respond(b"anything")
    SummaryFolder(tmp_path / "kept").make(settings.table(), SummarySettings())
    assert (
        SiteSession(copied, terms()).respond(b"any")
        == "nobody at the site has approved its summary table yet"
    )
    SummaryFolder(tmp_path / "kept").approve()
    (tmp_path / "patients.csv").unlink()  # the rows are not needed any more
    assert "not a message" in SiteSession(copied, terms()).respond(b"anything")


def test_what_a_site_cannot_open_it_declines_without_a_word_of_its_data(settings, terms, tmp_path):
    (tmp_path / "patients.csv").write_text("age,bmi\n" + "41,20\n" * 40 + "secret text,20\n")
    said = SiteSession(settings, terms()).respond(b"anything")
    assert said == "the site cannot open its data for this run; Its own log has the reason"
    assert "99.0" in SiteSession(settings, terms(version="99.0")).respond(b"anything")


def test_garbage_is_no_message(settings, terms):
    end = SiteSession(settings, terms())
    for data in (b"", b"x" * 100, bytes(range(256)) * 100):
        assert str(end.respond(data)).startswith("not a message for this site")
