"""The evidence around a log: contradictions are named, and so is what could not be checked."""

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from unpooled.data import Number, Preparation, Table
from unpooled.errors import LedgerError
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol.exchange import Part, Request, RequestId, countersignable
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.audit.overview import read
from unpooled.site.erase_people import erase
from unpooled.site.log import COUNTERSIGNED, Log, encode_line, entries, line_hash
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.table_store import SummaryFolder

PEOPLE = Table.from_columns({"id": [f"P{i}" for i in range(40)], "age": 20.0 + np.arange(40) % 30})
SUMMARY = 'format = 1\n[protect]\nauto_approve = true\nno_sensitive_columns = true\nperson = "id"\n'
RAW = 'format = 1\n[protect]\nmode = "raw"\n'
TRANSFORM = Preparation((Number("age", 0.0, 0.0, 1.0),), True)
AUTHORITY = Identity.new()


def signed(head: str) -> str:
    return f"{head}:{AUTHORITY.sign(countersignable('a', head)).hex()}" if head else ""


def answers(folder, rules, *numbers, authority=None, table=PEOPLE) -> None:
    """A site that is opened, asked in these rounds, and closed; its heads come back signed."""
    known = None if authority is None else authority.public
    site, head = open_site("a", table, parse(rules), folder, authority=known), ""
    for number in numbers:
        request = Request(
            RequestId("r", 0, number, 0),
            (Part("total", AskMoments(), TRANSFORM, 0),),
            countersigned=signed(head),
        )
        head = site.answer(request).head
    site.close()


def faults(folder, **how) -> list[str]:
    return [str(fault) for fault in read(folder, **how).faults]


def unchecked(folder, **how) -> str:
    return "; ".join(read(folder, **how).unchecked)


@pytest.mark.parametrize("only_look", [False, True])
@pytest.mark.parametrize("rules", [SUMMARY, RAW], ids=["summary", "raw"])
def test_a_whole_record_has_no_fault(tmp_path, rules, only_look):
    answers(tmp_path, rules, 0, 1, authority=AUTHORITY)
    (tmp_path / "policy.toml").write_text(rules)
    assert faults(tmp_path, only_look=only_look) == []
    assert "policy" not in unchecked(tmp_path)
    assert faults(tmp_path / "log.jsonl") == []  # the file itself may be named, too


def test_where_there_is_no_log_it_is_reported(tmp_path):
    with pytest.raises(LedgerError, match="there is no log"):
        read(tmp_path)


# ---------------------------------------------------------------- the log


def test_a_file_before_a_rotation_is_checked_by_its_digest_or_missed(tmp_path):
    answers(tmp_path, RAW, 0, 1, authority=AUTHORITY)
    log = Log(tmp_path / "log.jsonl")
    last, kept = log.mark(), log.rotate()
    number, head, signature = signed(last).split(":")
    log.append(COUNTERSIGNED, number=number, head=head, signature=signature)
    log.close()
    answers(tmp_path, RAW, 2, authority=AUTHORITY)
    assert faults(tmp_path) == []
    whole = kept.read_bytes()
    kept.write_bytes(whole.replace(b'"round":1', b'"round":7'))
    assert any(f"names the file {kept.name} with another digest" in text for text in faults(tmp_path))
    kept.unlink()
    assert f"the first {int(number) + 1} lines: their files (log-*.jsonl) are not" in unchecked(tmp_path)
    assert faults(tmp_path) == []  # the last of them is known by the line that goes on after it
    log = Log(tmp_path / "log.jsonl")
    early = json.loads(whole.splitlines()[0])["hash"]
    log.append(COUNTERSIGNED, number="0", head=early, signature="")
    log.close()
    assert faults(tmp_path) == []  # of a line that is elsewhere


@pytest.mark.parametrize("number", ["0", "99", "x"])
def test_a_countersigned_head_of_no_line_is_a_fault(tmp_path, number):
    answers(tmp_path, RAW, 0, authority=AUTHORITY)
    log = Log(tmp_path / "log.jsonl")
    log.append(COUNTERSIGNED, number=number, head="0" * 64, signature="")
    log.close()
    (fault,) = faults(tmp_path)
    assert fault == "line 3: a countersigned head that is not the hash of a line before it"


def test_countersignatures_of_a_key_that_is_not_known_are_reported_as_unchecked(tmp_path):
    answers(tmp_path, RAW, 0, 1, 2)
    assert faults(tmp_path) == []
    assert "2 countersignatures: the authority's key is not known to this site" in unchecked(tmp_path)


def test_a_line_that_is_damaged_or_tells_nothing_is_left_out_of_the_account(tmp_path):
    answers(tmp_path, RAW, 0)
    log = Log(tmp_path / "log.jsonl")
    log.append("release", run="r")  # in the chain, and without what a release holds
    log.close()
    with log.path.open("ab") as file:
        file.write(b"{}\n")
    record = read(tmp_path)
    assert [str(fault) for fault in record.faults] == ["line 4: not a line of this log: altered or damaged"]
    assert (record.lines, record.runs[0].answers) == (4, 1)


def test_a_line_of_another_kind_or_without_a_number_is_named(tmp_path):
    answers(tmp_path, RAW, 0)
    log = Log(tmp_path / "log.jsonl")
    log.append("gossip", run="r")
    log.close()
    assert faults(tmp_path) == ["line 3: unknown kind 'gossip'"]
    entry = {"kind": "release", "seq": "four", "utc": ""}
    with log.path.open("ab") as file:
        file.write(encode_line({**entry, "hash": line_hash(entry)}))
    assert "line 4: number four where 3 belongs: altered" in faults(tmp_path)
    assert read(tmp_path).runs[0].answers == 1


# ---------------------------------------------------------------- the ledger


@pytest.mark.parametrize("only_look", [False, True])
def test_a_ledger_that_is_none_is_a_fault(tmp_path, only_look):
    answers(tmp_path, RAW, 0)
    (tmp_path / "ledger.sqlite").write_bytes(b"no database, however long it is looked at" * 50)
    (fault,) = faults(tmp_path, only_look=only_look)
    assert "ledger.sqlite: not a ledger of unpooled, or damaged" in fault


@pytest.mark.parametrize("only_look", [False, True])
def test_a_ledger_and_a_log_of_different_days_are_distinguished(tmp_path, only_look):
    answers(tmp_path, RAW, 0)
    ledger, log = tmp_path / "ledger.sqlite", tmp_path / "log.jsonl"
    old = ledger.read_bytes(), log.read_bytes()
    answers(tmp_path, RAW, 1)
    new = ledger.read_bytes(), log.read_bytes()
    ledger.write_bytes(old[0])
    (fault,) = faults(tmp_path, only_look=only_look)
    assert fault == "line 4: names an entry that the ledger lacks: it is an older ledger"
    ledger.write_bytes(new[0])
    log.write_bytes(old[1])
    (fault,) = faults(tmp_path, only_look=only_look)
    assert fault == "the ledger names line 3, and the log lacks it: it was cut"


def test_a_ledger_of_another_format_is_refused_in_one_sentence(tmp_path):
    answers(tmp_path, RAW, 0)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db, db:
        db.execute("PRAGMA user_version = 0")  # as every file of an earlier format
    whole = (tmp_path / "ledger.sqlite").read_bytes()
    with pytest.raises(LedgerError, match=r"ledger\.sqlite: the ledger has an unknown or earlier format"):
        answers(tmp_path, RAW, 1)
    (fault,) = faults(tmp_path, only_look=True)
    assert "the ledger has an unknown or earlier format, and this release reads format 1" in fault
    assert (tmp_path / "ledger.sqlite").read_bytes() == whole


# ---------------------------------------------------------------- registry, summary table, policy


def test_a_registry_that_is_lost_damaged_or_of_another_day_is_a_fault(tmp_path):
    answers(tmp_path, SUMMARY, 0)
    early = (tmp_path / "log.jsonl").read_bytes()
    answers(tmp_path, SUMMARY, 1, table=None)
    erase(SummaryFolder(tmp_path), ["P3"])  # names the last line of the log
    registry, log = tmp_path / "registry.sqlite", tmp_path / "log.jsonl"
    whole, late = registry.read_bytes(), log.read_bytes()
    assert faults(tmp_path) == []
    log.write_bytes(early)
    assert faults(tmp_path) == ["the registry names line 4, and the log lacks it: it was cut"]
    log.write_bytes(late)
    registry.write_bytes(b"no database, however long it is looked at" * 50)
    (fault,) = faults(tmp_path)
    assert "registry.sqlite: not a registry of unpooled, or damaged" in fault
    registry.unlink()
    (fault,) = faults(tmp_path)
    assert fault == "line 4: names an entry of the registry, and there is no registry next to the log"
    registry.write_bytes(whole)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(log, alone)
    assert faults(alone) == []
    for what in (
        "the registry of people: the log is not in",
        "the summary table that the site answered from: it is",
    ):
        assert what in unchecked(alone)


def test_a_summary_table_that_was_changed_after_it_was_answered_from_is_a_fault(tmp_path):
    answers(
        tmp_path,
        SUMMARY.replace('person = "id"', "one_row_per_person = true"),
        0,
        table=Table.from_columns({"age": np.arange(40.0)}),
    )
    assert faults(tmp_path) == []
    table = tmp_path / "summary" / "table.csv"
    table.write_text(table.read_text()[:-4])
    (fault,) = faults(tmp_path)
    assert f"{table.parent}: the summary table" in fault


@pytest.mark.parametrize(
    ("text", "noted"),
    [(RAW, False), (RAW + "# a remark\n", False), ("format = 1\n", True), ("version = 3\n", True)],
)
def test_the_policy_next_to_a_log_is_that_of_its_last_opening_or_it_is_reported(tmp_path, text, noted):
    answers(tmp_path, RAW, 0)
    (tmp_path / "policy.toml").write_text(text)
    assert faults(tmp_path) == []
    assert ("the policy that the site last answered under: another one" in unchecked(tmp_path)) is noted


def test_every_line_of_these_logs_is_of_one_chain(tmp_path):
    answers(tmp_path, SUMMARY, 0, 1, 2, authority=AUTHORITY)
    kinds = [entry["kind"] for _, entry in entries(tmp_path / "log.jsonl")]
    assert kinds == ["opening", "release", "countersigned", "release", "countersigned", "release"]
