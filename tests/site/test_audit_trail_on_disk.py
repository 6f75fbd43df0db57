"""The books of a site reach the disk before an answer leaves, and say only what is so."""

import json
import os

import numpy as np
import pytest

from unpooled.errors import LedgerError
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments
from unpooled.site.ledger import Ledger
from unpooled.site.log import Log
from unpooled.site.open_site import open_site
from unpooled.site.people_register import Registry
from unpooled.site.policy import parse

X = np.random.default_rng(0).normal(size=(60, 2))
DP = 'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1\n[domain]\nrows = 500\n'


def test_a_line_of_the_log_is_on_disk_when_its_head_is_given(tmp_path, monkeypatch):
    log, synced, fsync = Log(tmp_path / "log.jsonl"), [], os.fsync

    def noting(file: int) -> None:
        fsync(file)
        synced.append((file, os.fstat(file).st_size))

    monkeypatch.setattr(os, "fsync", noting)
    for number in range(3):
        log.append("release", number=number)
        assert synced[-1] == (log._file, (tmp_path / "log.jsonl").stat().st_size)  # all of it
        assert len(synced) == number + 1
    log.close()


def test_a_line_that_the_disk_does_not_confirm_is_taken_back(tmp_path, monkeypatch):
    log = Log(tmp_path / "log.jsonl")
    log.append("release", number=0)
    before, mark = (tmp_path / "log.jsonl").read_bytes(), log.mark()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(LedgerError, match="the disk did not take the line, so nothing is sent"):
            log.append("release", number=1)
    assert (tmp_path / "log.jsonl").read_bytes() == before
    assert log.mark() == mark
    log.append("release", number=1)
    log.close()


def test_ledger_and_registry_wait_for_the_disk(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite", "a")
    assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)  # full
    assert ledger._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    ledger.close()
    with Registry.open(tmp_path, new=True) as registry:
        assert registry._db.execute("PRAGMA synchronous").fetchone() == (3,)  # extra: its folder, too
    for name in ("ledger.sqlite", "registry.sqlite"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", ["summary", "raw"])
def test_the_log_tells_of_a_budget_only_where_there_is_one(tmp_path, mode):
    rules = parse(
        f'format = 1\n[protect]\nmode = "{mode}"\nauto_approve = true\none_row_per_person = true\n'
        "no_sensitive_columns = true"
    )
    plain = open_site("a", X, rules, tmp_path / "plain")
    plain.answer(Request(RequestId("r", 0, 0, 0), (Part("total", AskMoments(), None, 0),)))
    plain.close()
    noisy = open_site("a", X, parse(DP), tmp_path / "noisy")
    question = AskNoisyMoments(0.1, np.full(2, 9.0))
    noisy.answer(Request(RequestId("r", 0, 0, 0), (Part("total", question, None, 0),)))
    noisy.close()
    last = {
        name: json.loads((tmp_path / name / "log.jsonl").read_text().splitlines()[-1])
        for name in ("plain", "noisy")
    }
    assert [last[name]["kind"] for name in last] == ["release", "release"]
    assert last["plain"]["spent"] is None
    spent = last["noisy"]["spent"]
    assert 0 < spent["epsilon"] < 1
    assert spent["epsilon"] + spent["remaining"] == pytest.approx(1.0)


def test_the_smallest_count_in_the_log_is_of_counts_alone(tmp_path):
    """Not of sums or squares, which may be smaller, and nothing where no count is disclosed."""
    rows = np.concatenate([np.full((20, 1), 0.01), np.full((40, 1), 5.0)])
    site = open_site("a", rows, parse('format = 1\n[protect]\nmode = "raw"'), tmp_path)
    question = AskClusterSums(np.array([[[0.0], [5.1]]]))
    site.answer(Request(RequestId("r", 0, 0, 0), (Part("total", question, None, 0),)))
    site.answer(
        Request(RequestId("r", 0, 1, 0), (Part("total", AskClusterSums(np.zeros((1, 1, 3))), None, 0),))
    )
    site.close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["smallest"]) for line in lines[1:]] == [("release", 20.0), ("refusal", None)]
