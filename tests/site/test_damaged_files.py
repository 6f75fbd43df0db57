"""Files of a site that are damaged, torn or forged: one sentence, nothing is answered or held any more."""

import json
import pwd
import resource
import sys

import numpy as np
import pytest

from unpooled.data import Table
from unpooled.errors import LedgerError, PolicyError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.questions.cluster_sums import AskMoments, AskScatter
from unpooled.site.audit.overview import read
from unpooled.site.log import Log, encode_line, line_hash, verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.table_changes import renew
from unpooled.site.table_store import SummaryFolder
from unpooled.storage.account import account

X = np.random.default_rng(0).normal(size=(60, 2))
SUMMARY = parse(
    "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true"
)


def test_a_rotation_that_the_disk_does_not_take_leaves_the_log_as_it_was(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    for number in range(5):
        log.append("release", run="r", round=number, payload="x" * 50)
    before = (tmp_path / "log.jsonl").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    sys.stdout.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # bytes that a file may have
    try:
        with pytest.raises(LedgerError, match="cannot be rotated: the disk is full"):
            log.rotate()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "log.jsonl").read_bytes() == before
    log.append("release", run="r", round=5, payload="x")
    log.close()
    assert [path.name for path in tmp_path.glob("*.new")] == []
    assert verify(tmp_path / "log.jsonl") == []


def test_an_empty_log_after_a_rotated_file_is_no_new_beginning(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    log.append("release", run="r", round=0, payload="x")
    log.rotate()
    log.close()
    (tmp_path / "log.jsonl").write_bytes(b"")
    with pytest.raises(LedgerError, match=r"is empty, and .* comes before it"):
        Log(tmp_path / "log.jsonl")


@pytest.mark.parametrize("damage", [lambda raw: raw[:-40] + b"\n", lambda raw: b"garbage\n" + raw])
def test_a_damaged_file_before_the_log_is_one_sentence_and_the_log_is_let_go(tmp_path, damage):
    site = open_site("a", X, SUMMARY, tmp_path)
    site.answer(Request(RequestId("r", 0, 0, 0), (Part("total", AskMoments(), None, 0),)))
    site.close()
    log = Log(tmp_path / "log.jsonl")
    rotated = log.rotate()
    log.close()
    whole = rotated.read_bytes()
    rotated.write_bytes(damage(whole))
    with pytest.raises(LedgerError, match="another program changed a line"):
        open_site("a", None, SUMMARY, tmp_path)
    rotated.write_bytes(whole)
    open_site("a", None, SUMMARY, tmp_path).close()


def test_a_first_line_without_a_number_is_refused_and_reported_by_the_audit(tmp_path):
    entry = {"format": 1, "kind": "continued", "site": "a"}
    (tmp_path / "log.jsonl").write_bytes(encode_line({**entry, "hash": line_hash(entry)}))
    with pytest.raises(LedgerError, match="another program changed its first line"):
        Log(tmp_path / "log.jsonl")
    assert read(tmp_path).faults


@pytest.mark.parametrize("budget", ["epsilon_total = 200", "epsilon_total = 1\ndelta = 0.7"])
def test_a_budget_out_of_range_is_refused_when_the_policy_is_read(budget):
    rules = f'format = 1\n[protect]\nmode = "dp"\n[domain]\nrows = 100\n[dp]\n{budget}'
    with pytest.raises(PolicyError, match=r"policy\.toml: \[dp\] (epsilon_total|delta) must be"):
        parse(rules, "policy.toml")


def test_a_summary_table_whose_description_is_damaged_is_not_renewed(tmp_path):
    table = Table.from_columns({"id": [f"p{i}" for i in range(60)], "x": X[:, 0]})
    place = SummaryFolder(tmp_path)
    place.make(table, SummarySettings(person="id", no_sensitive_columns=True))
    place.approve("an officer")
    about = place.path / "about.json"
    values = json.loads(about.read_text())
    del values["settings"]
    about.write_text(json.dumps(values))
    with pytest.raises(LedgerError, match=r"about\.json: not the description of a summary table, or damaged"):
        renew(place, table)


def test_a_question_about_no_centre_is_refused_with_its_reason():
    site = open_site("a", X, SUMMARY)
    request = Request(RequestId("r", 0, 0, 0), (Part("total", AskScatter(np.zeros((0, 2))), None, 0),))
    (reply,) = codec.unwrap(site.respond(codec.wrap(request))).replies
    assert reply.reason == "AskScatter has no centre"


def test_an_account_without_a_name_is_no_error(monkeypatch):
    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert account() == ""
