"""Studies in damaged files, studies that nobody could read, and a log that is not free to note them."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from studies import study_of, terms_of
from unpooled.app.cli import app
from unpooled.data.schema import AskSchema
from unpooled.errors import InputError, LedgerError
from unpooled.options.reading import Reading
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.site import session
from unpooled.site.log import Log, LogInUse, entries
from unpooled.site.session import SiteSession, SiteSettings
from unpooled.site.study_store import APPROVED, WITHDRAWN, StudyFolder, check_approved
from unpooled.site.table_store import SummaryFolder


def asked(number: int = 0) -> bytes:
    return codec.wrap(Request(RequestId("r", 0, number, 0), (Part("each", AskSchema(), None, 0),)))


SCHEMA = asked()


@pytest.fixture
def site(tmp_path):
    data, policy = tmp_path / "patients.csv", tmp_path / "policy.toml"
    data.write_text("age,bmi\n" + "".join(f"{40 + i % 31},{20 + i % 9}\n" for i in range(60)))
    policy.write_text('format = 1\n[protect]\nmode = "raw"\n')
    (tmp_path / "kept").mkdir()
    return SiteSettings("a", str(data), str(tmp_path / "kept"), str(policy))


@pytest.fixture
def place(site):
    return StudyFolder(Path(site.folder))


def approved(place, study):
    place.receive("a", study, "")
    place.decide(study.digest, APPROVED, "Dr. Low")
    return study


def officer(site, *words):
    verb, *rest = words
    return CliRunner().invoke(app, ["site", verb, site.folder, *rest])


# ---------------------------------------------------------------- what nobody could judge


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"columns": ("c",) * 10_001}, "too many columns or questions"),
        ({"questions": (("q", 1),) * 1001}, "too many columns or questions"),
        (
            {"created": "2026-01-01T00:00:00"},
            "not a date with a time zone",
        ),  # of no time zone: nobody could say when it ends
        ({"expires": "2999-01-01T00:00:00"}, "not a date with a time zone"),
    ],
)
def test_a_study_that_nobody_could_judge_is_refused(site, place, change, says):
    assert says in SiteSession(site, terms_of(study_of(**change))).respond(SCHEMA)
    assert place.every() == []
    (line,) = (entry for _, entry in entries(Path(site.folder) / "log.jsonl"))
    assert (line["decision"], says in line["reason"]) == ("refused", True)


def test_the_most_that_a_study_may_name_can_be_approved():
    most = study_of(columns=("c",) * 10_000, questions=(("q", 1),) * 1000)
    assert most.fault() == ""


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not a study, or damaged"),
        ("[]", "not a study, or damaged"),
        ('{"format": 1}', "not a study, or damaged"),
        ('{"format": 2}', "the study has format 2, and this release reads format 1"),
    ],
)
def test_a_damaged_study_is_one_sentence_and_nothing_is_answered(site, place, content, says):
    study = approved(place, study_of())
    place.file(study.digest).write_text(content)
    with pytest.raises(LedgerError, match=says):
        place.read(study.digest)
    printed = officer(site, "status")
    assert printed.exit_code == 1
    assert printed.output.count("\n") < 5
    assert says in printed.output.replace("\n", " ")


def test_the_last_word_of_the_log_counts_and_not_an_older_file(site, place, monkeypatch):
    """Putting back the file of an approval that was withdrawn approves nothing."""
    monkeypatch.setattr(session, "FRESH", 0.1)
    study, other = approved(place, study_of()), approved(place, study_of("another"))
    before = place.file(study.digest).read_bytes()
    place.decide(study.digest, WITHDRAWN, "Dr. Low")
    place.file(study.digest).write_bytes(before)
    assert place.read(study.digest).state == APPROVED
    printed = SiteSession(site, terms_of(study)).respond(SCHEMA)
    assert isinstance(printed, str)
    assert "cannot open its data" in printed or "withdrawn" in printed
    assert not any(entry["kind"] == "release" for _, entry in entries(place.folder / "log.jsonl"))
    log = Log(Path(site.folder) / "log.jsonl")
    log.append("opening", site="a")  # a line between that decides nothing
    with pytest.raises(LedgerError, match=f"the log has no approval of the study {study.digest[:16]}"):
        check_approved(log, study.digest)
    check_approved(log, other.digest)
    log.close()


def test_a_study_is_named_by_its_number_or_not_at_all(site, place):
    with pytest.raises(InputError, match="the site has not received a study yet"):
        place.find("1")
    study = approved(place, study_of())
    assert place.find("1").study.digest == place.find(study.digest[:6]).study.digest == study.digest
    for wrong in ("0", "2"):
        printed = officer(site, "review", wrong)
        assert printed.exit_code == 1
        assert f"there is no study {wrong}. unpooled site status" in printed.output.replace("\n", " ")


# ---------------------------------------------------------------- a process that answers


def test_the_person_column_is_read_as_text_and_empty_rows_at_the_end_are_reported(site, caplog):
    Path(site.policy).write_text('format = 1\n[protect]\nperson = "id"\n')
    Path(site.data).write_text("id,age,bmi\n" + "".join(f"{i:03},{i},{i}\n" for i in range(9)) + ",,\n" * 3)
    for columns in (None, ("age",), ("age", "id")):
        table = replace(site, reading=Reading(columns=columns)).table()
        assert table.categories["id"][:2] == ("0", "1")  # texts, and no numbers to be averaged
        assert set(table.names) == ({"id", "age", "bmi"} if columns is None else {"id", "age"})
    assert "3 rows have no value and are left out" in caplog.text


def test_a_message_that_is_none_gets_a_reason_and_no_answer(site, place):
    end = SiteSession(site, terms_of(approved(place, study_of())))
    assert end.respond(b"garbage").startswith("not a message for this site: the checksum")
    assert isinstance(end.respond(SCHEMA), bytes)
    end.close()
    assert end.respond(SCHEMA) == "the run is over"


def test_a_question_that_fails_gets_an_answer_that_quotes_nothing(site, place, monkeypatch, caplog):
    end = SiteSession(site, terms_of(approved(place, study_of())))
    assert codec.unwrap(end.respond(SCHEMA)).replies[0].names == ("age", "bmi")

    def fails(self, batch):
        raise ZeroDivisionError("of the patient Miller")

    monkeypatch.setattr(AskSchema, "answer_all", fails)
    (reply,) = codec.unwrap(end.respond(asked(1))).replies
    assert reply.reason == "failed with ZeroDivisionError; the site's own log has the details"
    assert "Miller" in caplog.text  # of the site itself
    end.close()


def test_another_version_is_reported_before_anything_is_opened(site, place):
    terms = replace(terms_of(approved(place, study_of())), version="9.9")
    printed = SiteSession(site, terms).respond(SCHEMA)
    assert printed.startswith("the coordinator has unpooled 9.9, this site ")
    assert not any(e["kind"] == "opening" for _, e in entries(Path(site.folder) / "log.jsonl"))


@pytest.mark.parametrize("version", ["0.0.7", "0.1.5", "0.2.0"])
def test_a_coordinator_one_minor_version_older_or_newer_is_answered(site, place, version):
    terms = replace(terms_of(approved(place, study_of())), version=version)
    end = SiteSession(site, terms)
    assert codec.unwrap(end.respond(SCHEMA)).replies[0].names == ("age", "bmi")
    end.close()


def test_a_summary_table_that_nobody_approved_is_reported_to_the_coordinator_without_its_path(site, place):
    Path(site.policy).write_text("format = 1\n")
    SummaryFolder(place.folder).make(
        site.table(), SummarySettings(one_row_per_person=True, no_sensitive_columns=True)
    )
    end = SiteSession(site, terms_of(approved(place, study_of())))
    assert end.respond(SCHEMA) == "nobody at the site has approved its summary table yet"


def test_a_log_that_another_program_keeps_open_is_reported_after_a_while(site, place, monkeypatch):
    monkeypatch.setattr(session, "_WAIT", (0.2, 0.3))
    study = approved(place, study_of())
    other = Log(place.folder / "log.jsonl", "a backup")
    end = SiteSession(site, terms_of(study))
    says = "another program at the site has its log open. The site's own log names it."
    assert end.respond(SCHEMA) == says
    other.close()
    assert end.respond(SCHEMA) == says  # for this run it stays so
    assert isinstance(SiteSession(site, terms_of(study)).respond(SCHEMA), bytes)


def test_a_decision_waits_for_the_log_and_then_says_who_has_it(site, place, caplog):
    study = study_of()
    place.receive("a", study, "")
    other = Log(place.folder / "log.jsonl", "a backup")
    with pytest.raises(LogInUse, match=r"process \d+ \(a backup\)"):
        place.decide(study.digest, APPROVED, "Dr. Low", patience=0.0)
    assert place.read(study.digest).decisions == ()  # an approval counts once the log has it
    bad = SiteSession(site, terms_of(study_of(purpose="")))
    assert "lacks a" in bad.respond(SCHEMA)
    assert "the refusal of a study is not in the log" in caplog.text
    other.close()
    assert "lacks a" in bad.respond(SCHEMA)  # and is noted as soon as it can be
    (line,) = (entry for _, entry in entries(place.folder / "log.jsonl"))
    assert line["decision"] == "refused"
