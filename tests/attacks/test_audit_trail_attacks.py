"""Attacks on the books of a site: its ledger edited, its protection or unit changed, heads that are lost."""

import json
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import ledger_of, mask_of
from unpooled.app.cli import app
from unpooled.data import Number, Preparation, Table
from unpooled.errors import LedgerError
from unpooled.federation.log_heads import append_log_heads, last_log_heads
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol import codec
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import Part, Request, RequestId, Response, run_protocol
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.audit.overview import read
from unpooled.site.ledger import Ledger, RunLimits
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.table_store import SECOND_TABLE, SummaryFolder

DP = 'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1\n[domain]\nrows = 500\n'
RAW = 'format = 1\n[protect]\nmode = "raw"\n'
SUMMARY = (
    "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true\n"
)
X = np.random.default_rng(0).normal(size=(90, 2))
CHEAP = AskNoisyMoments(0.01, np.full(2, 5.0), 4)


def asked(site, request_id: RequestId, question) -> Response:
    request = Request(request_id, (Part("total", question, None, 0),))
    return codec.unwrap(site.respond(codec.wrap(request)), expect=Response)


# ---------------------------------------------------------------- protection


@pytest.mark.parametrize("rules", [RAW, SUMMARY], ids=["raw", "summary"])
def test_a_folder_that_answered_without_noise_does_not_answer_with_it(tmp_path, rules):
    """Also where the summary table that it answered from was removed, and after a rotation of the log."""
    site = open_site("a", X, parse(rules), tmp_path)
    asked(site, RequestId("r", 0, 0, 0), AskMoments())
    site.log._log.rotate()
    site.close()
    shutil.rmtree(tmp_path / "summary", ignore_errors=True)
    with pytest.raises(
        LedgerError, match=r"answered without differential privacy before \(mode = \".*\"\), and differential"
    ):
        open_site("a", X, parse(DP), tmp_path)


@pytest.mark.parametrize("rotated", [False, True])
def test_an_answer_from_rows_is_not_given_again_by_a_site_that_answers_from_a_summary_table(
    tmp_path, rotated
):
    ids = [RequestId("r", 0, 0, exchange) for exchange in range(3)]
    site = open_site("a", X, parse(RAW), tmp_path)
    for request_id in ids[:2]:
        exact = asked(site, request_id, AskMoments()).replies[0]
    site.close()
    site = open_site("a", X, parse(RAW), tmp_path)
    again = asked(site, ids[0], AskMoments())
    assert again.head.startswith("1:")  # of a site that answers as before: the line of then
    if rotated:
        site.log._log.rotate()
    site.close()
    site = open_site("a", X, parse(SUMMARY), tmp_path)
    grouped = [codec.encode(asked(site, request_id, AskMoments()).replies[0]) for request_id in ids]
    assert len(set(grouped)) == 1
    assert codec.encode(exact) not in grouped
    site.close()


def test_an_answer_from_a_summary_table_is_not_given_again_from_another_summary_table(tmp_path):
    request_id = RequestId("r", 0, 0, 0)
    answers = []
    for rows in (X, X + 1.0):
        SummaryFolder(tmp_path).make(
            rows,
            SummarySettings(one_row_per_person=True, no_sensitive_columns=True),
            second_table=SECOND_TABLE,
        )
        for _ in range(2):  # the second time from the log
            site = open_site("a", None, parse(SUMMARY), tmp_path)
            answers.append(codec.encode(asked(site, request_id, AskMoments()).replies[0]))
            site.close()
    assert answers[0] == answers[1] != answers[2] == answers[3]


def test_a_folder_that_answered_nothing_may_change_its_protection(tmp_path):
    open_site("a", X, parse(RAW), tmp_path).close()
    open_site("a", X, parse(DP), tmp_path).close()
    open_site("a", X, parse(RAW), tmp_path).close()


# ---------------------------------------------------------------- the ledger's content

EDITS = {
    "spent is forgotten": ["DELETE FROM releases", "DELETE FROM responses"],
    "a charge is lowered": ["UPDATE releases SET spent = 0"],
    "one charge is gone": ["DELETE FROM releases WHERE rowid = 2"],
    "an answer is exchanged": ["UPDATE responses SET answer = x'00' WHERE rowid = 1"],
    "an answer is gone": ["DELETE FROM responses WHERE rowid = 1"],
    "a charge is moved to another run": ["UPDATE releases SET run = 'other' WHERE rowid = 1"],
    "the state of a sum is gone": ["DELETE FROM sums"],
    "a key is pinned": ["INSERT INTO pinned VALUES ('', 'b', x'00')"],
    "a link is gone": ["DELETE FROM chain WHERE seq = 3"],
    "a link tells otherwise": ["UPDATE chain SET entry = replace(entry, '0.0001', '0.0')"],
    "links as of an earlier version": [
        "DELETE FROM releases",
        "DELETE FROM responses",
        "UPDATE chain SET entry = ''",
    ],
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_ledger_that_was_edited_is_found_and_nothing_is_answered(tmp_path, edit):
    site = open_site("a", X, parse(DP), tmp_path)
    for number in range(3):
        asked(site, RequestId(f"r{number}", 0, 0, 0), CHEAP)
    with ledger_of(site).transaction():
        mask_of(site)._member._store.keep("r0", b"state")
    site.close()
    open_site("a", X, parse(DP), tmp_path).close()
    assert read(tmp_path).faults == []
    db = sqlite3.connect(tmp_path / "ledger.sqlite")
    for statement in EDITS[edit]:
        assert db.execute(statement).rowcount
    db.commit()
    db.close()
    with pytest.raises(LedgerError, match=r"another program changed the ledger.*\. Nothing is answered"):
        open_site("a", X, parse(DP), tmp_path)
    assert any("another program changed the ledger" in str(fault) for fault in read(tmp_path).faults)


def test_a_ledger_is_checked_in_one_pass_over_its_tables(tmp_path):
    """The cost of an opening: not a query for every charge."""
    ledger = Ledger(tmp_path / "ledger.sqlite", "a")
    with ledger.transaction():
        for number in range(500):
            ledger.charge(RequestId("r", 0, number, 0), "request", 1e-9, RunLimits(10, 10**6, 1.0))
    statements = []
    ledger._db.set_trace_callback(statements.append)
    ledger.check()
    assert len(statements) < 10
    assert ledger.spent() == pytest.approx(5e-7)
    ledger.close()


# ---------------------------------------------------------------- whom a charge is for

DECLARED = (
    'format = 1\n[protect]\nmode = "dp"\nperson = "who"\n[dp]\nepsilon_total = 1\n{unit}'
    '[domain]\ncolumns = ["x", "y"]\nlower = [-5, -5]\nupper = [5, 5]\nrows = 500\n'
)
TABLE = Table.from_columns({"who": [f"p{i // 3}" for i in range(90)], "x": X[:, 0], "y": X[:, 1]})
UNITS = {
    "a row": "",
    "a person with up to 2 rows": 'privacy_unit = "person"\nrows_per_person = 2\n',
    "a person with up to 3 rows": 'privacy_unit = "person"\nrows_per_person = 3\n',
}


@pytest.mark.parametrize("first", UNITS)
@pytest.mark.parametrize("then", UNITS)
def test_charges_for_rows_are_not_taken_for_charges_for_people(tmp_path, first, then):
    """A person's rows cost the square of their number: another unit would make old charges wrong."""
    rules = {name: parse(DECLARED.format(unit=text)) for name, text in UNITS.items()}
    open_site("a", TABLE, rules[then], tmp_path).close()
    site = open_site("a", TABLE, rules[first], tmp_path)  # nothing was charged yet
    transform = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)
    answer = site.answer(Request(RequestId("r", 0, 0, 0), (Part("total", CHEAP, transform, 0),)))
    assert not isinstance(answer.replies[0], Refusal)
    site.close()
    if first == then:
        open_site("a", TABLE, rules[then], tmp_path).close()
        return
    lines = (tmp_path / "log.jsonl").read_text()
    for _ in range(2):  # the log is not left locked
        with pytest.raises(LedgerError, match=f"charges are for {first}, and the policy's .* is {then}"):
            open_site("a", TABLE, rules[then], tmp_path)
    assert (tmp_path / "log.jsonl").read_text() == lines
    open_site("a", TABLE, rules[first], tmp_path).close()


# ---------------------------------------------------------------- small things


@pytest.mark.parametrize("mode", [DP, RAW, SUMMARY], ids=["dp", "raw", "summary"])
@pytest.mark.parametrize("place", [(2**63, 0), (0, 2**63), (-1, 0), (0, -1), (2**200, 2**200)])
def test_a_round_that_is_none_is_refused(tmp_path, mode, place):
    site = open_site("a", X, parse(mode), tmp_path)
    (reply,) = asked(site, RequestId("r", 0, *place), CHEAP if mode == DP else AskMoments()).replies
    reasons = ("the round or the exchange of the request", "not a message for this site")
    assert reply.reason.startswith(reasons)
    site.close()


def test_a_key_that_nobody_pinned_is_not_forgotten_and_nothing_is_written(tmp_path):
    open_site("a", X, parse(SUMMARY), tmp_path).close()
    files = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    done = CliRunner().invoke(app, ["site", "keys", str(tmp_path), "--forget", "nobody"])
    assert done.exit_code
    assert "no key of nobody is pinned" in done.output + str(done.exception)
    ledger = Ledger(tmp_path / "ledger.sqlite", "a")
    assert ledger.mark == ""
    ledger.close()
    assert files[tmp_path / "log.jsonl"] == (tmp_path / "log.jsonl").read_bytes()


def test_every_head_is_kept_after_every_exchange_whatever_the_answer_is(tmp_path):
    """Of a reply that cannot be, and of a run that ends with its coordinator in the middle of a round."""
    authority, kept = Identity.new(), tmp_path / "log_heads.jsonl"
    sites = {
        f"s{i}": open_site(f"s{i}", X[i::4], parse(SUMMARY), tmp_path / f"s{i}", authority=authority.public)
        for i in range(4)
    }

    class KilledError(Exception):
        pass

    class Transport:
        sites = ("s0", "s1", "s2", "s3")
        exchanges = 0

        def send_and_receive(self, requests):
            self.exchanges += 1
            if self.exchanges == 4:
                raise KilledError
            came = {name: sites[name].respond(request) for name, request in requests.items()}
            if "s3" in came:  # it is left out after its first answer
                bad = codec.unwrap(came["s3"], expect=Response)
                came["s3"] = codec.wrap(replace(bad, replies=(*bad.replies, *bad.replies)))
            came["s2"] = codec.wrap(replace(codec.unwrap(came["s2"], expect=Response), head="7:junk"))
            return came

    federation = TransportFederation(
        Transport(),
        sign=authority.sign,
        secure=SecureSums(),
        on_new_heads=lambda new: append_log_heads(kept, new),
    )
    with pytest.raises(KilledError):  # in the stage of signatures
        run_protocol(total(federation.sites, AskMoments()), federation, run="r")
    for name in ("s0", "s1"):
        sites[name].close()
        lines = [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        sent = [f"{line['seq']}:{line['hash']}" for line in lines if line["kind"] == "release"]
        assert len(sent) == 3
        found = [json.loads(line) for line in kept.read_text().splitlines()]
        assert [one["head"] for one in found if one["site"] == name] == sent
    assert set(last_log_heads(kept)) == {"s0", "s1", "s3"}  # of the one whose answers could not be used, too
