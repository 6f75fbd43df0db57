"""A study that an officer could not read is not brought before her."""

from dataclasses import replace

import pytest

from studies import study_of
from unpooled.protocol import codec
from unpooled.site.study import Study
from unpooled.site.study_store import StudyFolder

STUDY = study_of()
TEXTS = ("federation", "run", "title", "purpose", "contact", "method", "protection")


def test_a_usual_study_is_in_order():
    assert STUDY.fault() == ""
    assert codec.decode(codec.encode(STUDY)).digest == STUDY.digest


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_too_long_or_invisible_is_found_wherever_it_is(name):
    assert replace(STUDY, **{name: "a" * 500}).fault() == ""
    for text in ("a" * 501, "seen\u202edees", "a\x00b", "a\x1b[2J", "a\u200bb"):
        assert "too long, or has invisible characters" in replace(STUDY, **{name: text}).fault()


def test_names_of_columns_and_questions_are_texts_too():
    for text in ("a" * 501, "a\u202eb"):
        assert "too long, or has" in replace(STUDY, columns=("x", text)).fault()
        assert "too long, or has" in replace(STUDY, questions=((text, 2),)).fault()
        assert "too long, or has" in replace(STUDY, work=((text, "steps", 2),)).fault()
        assert "too long, or has" in replace(STUDY, work=(("q", text, 2),)).fault()


@pytest.mark.parametrize("name", ["run", "title", "purpose", "contact", "ks"])
def test_what_a_study_lacks_is_reported(name):
    assert (
        "lacks a run, title, purpose, contact or k"
        in replace(STUDY, **{name: type(getattr(STUDY, name))()}).fault()
    )


def test_more_columns_or_questions_than_anybody_reads():
    assert replace(STUDY, columns=tuple(f"c{i}" for i in range(10_000))).fault() == ""
    assert "too many columns" in replace(STUDY, columns=tuple(f"c{i}" for i in range(10_001))).fault()
    questions = tuple((f"q{i}", 2) for i in range(1001))
    assert replace(STUDY, questions=questions[:1000]).fault() == ""
    assert "too many columns or questions" in replace(STUDY, questions=questions).fault()
    work = tuple((f"q{i}", "steps", 2) for i in range(1001))
    assert "too many columns or questions" in replace(STUDY, work=work).fault()


@pytest.mark.parametrize("name", ["created", "expires"])
@pytest.mark.parametrize("text", ["never", "", "2026-11-17T10:00:00"])  # the last has no time zone
def test_a_date_without_a_zone_is_no_date(name, text):
    assert replace(STUDY, **{name: text}).fault() == "a date of the study is not a date with a time zone"


def test_a_study_that_expired_waits_for_nobody(tmp_path, monkeypatch):
    place = StudyFolder(tmp_path)
    place.receive("a", STUDY, "")
    assert (place.read(STUDY.digest).is_pending, place.read(STUDY.digest).display_state) == (True, "pending")
    monkeypatch.setattr(Study, "expired", True)
    assert (place.read(STUDY.digest).is_pending, place.read(STUDY.digest).display_state) == (False, "expired")
