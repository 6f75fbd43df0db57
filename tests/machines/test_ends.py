"""The two ends and the courier between them, without an engine: what no engine may be trusted with."""

import random
import threading
import time
from dataclasses import fields, replace
from datetime import datetime

import numpy as np
import pytest

from helpers import blobs, split
from studies import approved_terms
from unpooled import InProcess, Lloyd, Site, run
from unpooled.core.disk import held, is_held
from unpooled.core.run import recall
from unpooled.errors import BadInput, TooFewAnswers
from unpooled.privacy.copy import CopySettings
from unpooled.runtimes.coordinator_run import ProgressFile, RunTask, coordinate
from unpooled.runtimes.delivery import Delivery, NoAnswer
from unpooled.runtimes.provisioning.follow_run import _raised, _record, waiting_for
from unpooled.site.copy_folder import CopyFolder
from unpooled.site.site_process import RunTerms, SiteEnd, SiteSettings


@pytest.fixture
def tables():
    return split(blobs(4, n=240)[0], 3, seed=4)


def task(tables, **how):
    told = RunTask(run="r", algorithm=Lloyd(k=3), sites=tuple(tables), seed=3, quorum=0.5, deadline=2.0)
    return replace(told, **how)


def courier(tables, fault=lambda site, number: None, deadline=2.0):
    """Sites in this process behind a line with faults; how often each was asked is counted."""
    doors = {name: Site(name, X) for name, X in tables.items()}
    asked = dict.fromkeys(tables, 0)

    def post(site, data, answered):
        asked[site] += 1
        wrong = fault(site, asked[site])
        answer = doors[site].respond(data)
        answered(answer if wrong is None else wrong)

    return Delivery(tuple(tables), post, deadline=deadline), asked


@pytest.mark.parametrize("seed", range(5))
def test_answers_that_get_lost_change_nothing(tables, tmp_path, seed):
    chance = random.Random(seed)
    line, asked = courier(tables, lambda site, number: NoAnswer("lost") if chance.random() < 0.3 else None)
    assert coordinate(task(tables), line, tmp_path)
    done, whole = recall(tmp_path / "checkpoint", Lloyd(k=3)), run(Lloyd(k=3), InProcess.of(tables), seed=3)
    assert np.array_equal(done.state.centers, whole.state.centers)
    assert done.left() == whole.left()
    assert not any(record.silent for record in done.history)
    assert sum(asked.values()) > 3 * whole.exchanges
    assert ProgressFile(tmp_path).read()["state"] == "finished"
    assert done.id == "r"


def test_a_site_that_vanishes_is_named_and_returns(overlapping, tmp_path):
    tables, gone = overlapping, sorted(overlapping)[0]
    line, _ = courier(tables, lambda s, n: NoAnswer("not reached") if s == gone and 3 < n < 9 else None, 0.2)
    assert coordinate(task(tables), line, tmp_path)
    history = recall(tmp_path / "checkpoint", Lloyd(k=3)).history
    assert any(record.silent == {gone: "not reached"} for record in history)
    assert not history[-1].silent


def test_too_few_sites_stop_the_run_by_name_and_it_goes_on_later(tables, tmp_path):
    others = sorted(tables)[1:]
    line, _ = courier(
        tables, lambda s, n: NoAnswer("declines", again=False) if s in others and n > 4 else None
    )
    assert not coordinate(task(tables), line, tmp_path)
    failure = _raised(ProgressFile(tmp_path).read())
    assert isinstance(failure, TooFewAnswers)
    assert f"missing: {others[0]}, {others[1]} (declines)" in str(failure)
    assert coordinate(task(tables), courier(tables)[0], tmp_path)
    done, whole = recall(tmp_path / "checkpoint", Lloyd(k=3)), run(Lloyd(k=3), InProcess.of(tables), seed=3)
    assert np.array_equal(done.state.centers, whole.state.centers)


def test_no_engine_holds_up_a_round():
    """One that raises, one that brings no answer, one that answers at once."""

    def post(site, data, answered):
        if site == "raises":
            raise RuntimeError("row 17: 63.2")
        if site == "well":
            answered(data)

    line = Delivery(("raises", "silent", "well"), post, deadline=0.3)
    came = line.carry(dict.fromkeys(line.sites, b"x"))
    assert came == {"silent": "no answer", "raises": "the engine failed with RuntimeError", "well": b"x"}
    assert line.absent == {"raises", "silent"}


def test_an_answer_that_comes_late_is_not_taken_for_the_next():
    kept = []

    def post(site, data, answered):
        kept.append(answered)
        if len(kept) > 1:
            kept[0](b"late")
            answered(data)

    line = Delivery(("a",), post, deadline=0.05)
    assert line.carry({"a": b"first"}) == {"a": "no answer"}
    assert line.carry({"a": b"second"}) == {"a": b"second"}


def test_a_site_that_reports_itself_is_asked_again_at_once():
    asked = []

    def post(site, data, answered):
        asked.append(time.monotonic())
        if len(asked) == 1:
            line.ready("a")  # its process has just started, and the first message got lost
        else:
            answered(data)

    line = Delivery(("a",), post, deadline=60.0)
    assert line.carry({"a": b"x"}) == {"a": b"x"}
    assert len(asked) == 2


def _waits(times, then):
    """A site where somebody decides after so many questions."""
    asked = []

    def post(site, data, answered):
        asked.append(data)
        answered(NoAnswer("not yet", waiting=True) if site == "a" and len(asked) <= times else then)

    return post


def test_a_site_where_somebody_is_to_decide_is_waited_for(monkeypatch):
    """Beyond any deadline; who follows the run hears since when."""
    monkeypatch.setattr("unpooled.runtimes.delivery._ASK", 0.02)
    heard, before = [], time.time()
    line = Delivery(("a",), _waits(20, b"yes"), deadline=0.1, approval=3600.0)
    line.on_wait = lambda waiting: heard.append(dict(waiting))
    assert line.carry({"a": b"x"}) == {"a": b"yes"}
    assert line.seconds[0] > 0.3
    assert [list(waiting) for waiting in heard] == [["a"], []]
    assert before <= heard[0]["a"] <= time.time()
    assert line.absent == set()


def test_the_wait_for_an_approval_has_an_end_of_its_own(monkeypatch):
    monkeypatch.setattr("unpooled.runtimes.delivery._ASK", 0.02)
    line = Delivery(("a",), _waits(10**6, b"yes"), deadline=60.0, approval=0.2)
    for _ in range(2):  # the second exchange does not wait again
        assert line.carry({"a": b"x"}) == {"a": "not yet"}
        assert line.absent == set()  # it is there: to ask again changes nothing
    declined = Delivery(("a",), _waits(3, NoAnswer("declined", again=False)), deadline=60.0, approval=3600.0)
    assert declined.carry({"a": b"x"}) == {"a": "declined"}


def test_a_site_that_vanishes_while_it_waits_is_absent(monkeypatch):
    monkeypatch.setattr("unpooled.runtimes.delivery._ASK", 0.02)
    heard, asked = [], []

    def post(site, data, answered):
        asked.append(data)
        if len(asked) < 3:
            answered(NoAnswer("not yet", waiting=True))

    line = Delivery(("a",), post, deadline=0.1, approval=3600.0)
    line.on_wait = lambda waiting: heard.append(dict(waiting))
    assert line.carry({"a": b"x"}) == {"a": "not yet"}
    assert line.absent == {"a"}
    assert heard[-1] == {}


def test_progress_says_whom_a_run_waits_for(tables, tmp_path, monkeypatch):
    monkeypatch.setattr("unpooled.runtimes.delivery._ASK", 0.01)
    doors, seen = {name: Site(name, X) for name, X in tables.items()}, []
    late = sorted(tables)[0]

    def post(site, data, answered):
        seen.append(ProgressFile(tmp_path).read())
        waits = site == late and len(seen) < 12
        answered(NoAnswer("not yet", waiting=True) if waits else doors[site].respond(data))

    line = Delivery(tuple(tables), post, deadline=0.5, approval=60.0)
    assert coordinate(task(tables), line, tmp_path)
    waiting = [said["waiting"] for said in seen if said.get("waiting")]
    assert waiting
    assert all(set(said) == {late} for said in waiting)
    assert not seen[-1].get("waiting")
    assert not any(record.silent for record in recall(tmp_path / "checkpoint", Lloyd(k=3)).history)
    when = datetime(2020, 1, 2, 9, 12).timestamp()
    assert waiting_for({"north": when}) == "waiting for north since 02 Jan 9:12 to approve the study"
    now = datetime.now().replace(hour=9, minute=12)
    assert waiting_for({"north": now.timestamp()}) == "waiting for north since 9:12 to approve the study"


def test_a_thousand_sites_need_no_thread_of_ours():
    before = threading.active_count()
    seen = []

    def post(site, data, answered):
        seen.append(threading.active_count())
        answered(data)

    sites = tuple(f"s{number}" for number in range(1000))
    assert len(Delivery(sites, post, deadline=5.0).carry(dict.fromkeys(sites, b"x"))) == 1000
    assert max(seen) == before


def test_one_process_at_a_time_works_on_a_run(tmp_path):
    assert not is_held(tmp_path)
    with held(tmp_path):
        assert is_held(tmp_path)
        with pytest.raises(BadInput, match="is working on it"), held(tmp_path, patience=0.2):
            pass
    assert not is_held(tmp_path)


def test_a_record_survives_the_way_through_the_file(tables, tmp_path):
    seen = []
    run(Lloyd(k=3), InProcess.of(tables), seed=1, progress=seen.append)
    for record in seen:
        ProgressFile(tmp_path).record(record)
        back = _record(ProgressFile(tmp_path).read()["record"])
        assert (back.left, back.silent, back.round) == (record.left, record.silent, record.round)


# ---------------------------------------------------------------- a site's end


@pytest.fixture
def settings(tmp_path):
    data = tmp_path / "patients.csv"
    data.write_text("id,age,bmi\n" + "".join(f"{i},{40 + i % 31},{20 + i % 9}\n" for i in range(60)))
    policy = tmp_path / "policy.toml"
    policy.write_text('version = 2\n[protect]\nmode = "trusted"\n')
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
    assert not {"columns", "exclude", "na", "categories"} & {f.name for f in fields(RunTerms)}


def test_a_copy_that_nobody_approved_is_not_answered_from(settings, terms, tmp_path):
    copied = replace(settings, policy=None, data="")
    assert "cannot open" in SiteEnd(copied, terms()).respond(b"anything")
    CopyFolder(tmp_path / "kept").make(settings.table(), CopySettings())
    assert SiteEnd(copied, terms()).respond(b"any") == "nobody at the site has approved its copy yet"
    CopyFolder(tmp_path / "kept").approve()
    (tmp_path / "patients.csv").unlink()  # the rows are not needed any more
    assert "not a message" in SiteEnd(copied, terms()).respond(b"anything")


def test_what_a_site_cannot_open_it_declines_without_a_word_of_its_data(settings, terms, tmp_path):
    (tmp_path / "patients.csv").write_text("age,bmi\n" + "41,20\n" * 40 + "secret text,20\n")
    said = SiteEnd(settings, terms()).respond(b"anything")
    assert said == "the site cannot open its data for this run; its own log says why"
    assert "99.0" in SiteEnd(settings, terms(version="99.0")).respond(b"anything")


def test_garbage_is_no_message(settings, terms):
    end = SiteEnd(settings, terms())
    for data in (b"", b"x" * 100, bytes(range(256)) * 100):
        assert str(end.respond(data)).startswith("not a message for this site")
