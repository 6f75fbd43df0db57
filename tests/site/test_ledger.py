"""The ledger: every price is paid, every paid answer kept, never beyond its limits; a chain of all writes."""

import gc
import os
import re
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from unpooled.errors import LedgerError, QueryRefusedError
from unpooled.protocol.exchange import RequestId
from unpooled.site.ledger import Ledger, RunLimits

WIDE = RunLimits(runs=10, rounds=10, spent=1.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


def request_id(run="r", number=0, exchange=0):
    return RequestId(run, 0, number, exchange)


def test_a_price_is_paid_each_time_and_a_request_without_one_counts_once(path):
    ledger = Ledger(path, "a")
    ledger.charge(request_id(), "x", 0.3, WIDE)
    assert ledger.cached_response(request_id(), "x") is None
    ledger.keep(request_id(), "x", b"answer")
    assert ledger.cached_response(request_id(), "x") == b"answer"
    assert ledger.cached_response(request_id(), "y") is None
    ledger.charge(request_id(), "x", 0.3, WIDE)  # somebody who has no answer pays again
    assert ledger.spent() == 0.6
    before = ledger.mark
    for _ in range(3):
        ledger.charge(request_id(number=1), "free", 0.0, WIDE)
    assert int(ledger.mark.split(":")[0]) == int(before.split(":")[0]) + 1


def test_every_write_is_a_link_that_names_the_head_of_the_log(path):
    ledger = Ledger(path, "a")
    assert (ledger.mark, ledger.last_log_head) == ("", "")
    assert ledger.has("")
    marks = []
    for number in range(4):
        ledger.log_head = lambda number=number: f"{number}:hash"
        ledger.charge(request_id(number=number), "x", 0.1, WIDE)
        marks.append(ledger.mark)
    assert ledger.last_log_head == "3:hash"
    assert all(ledger.has(mark) for mark in marks)
    assert not ledger.has(marks[3].replace("4:", "3:"))
    assert not ledger.has("5:abc")
    with pytest.raises(QueryRefusedError):
        ledger.charge(request_id(number=11), "x", 0.1, WIDE)
    assert ledger.mark == marks[3]  # a refusal writes nothing
    other = Ledger(path.with_name("other.sqlite"), "a")
    for number in range(4):
        other.log_head = lambda number=number: f"{number}:hash"
        other.charge(request_id(number=number), "x", 0.1 if number else 0.2, WIDE)
    assert not other.has(marks[3])  # another past


def test_a_ledger_that_is_left_without_closing_lets_go_of_its_file(path):
    ledger = Ledger(path, "a")
    db = ledger._db
    del ledger
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        db.execute("SELECT 1")


def test_a_full_disk_is_reported_and_nothing_is_counted(path):
    ledger = Ledger(path, "a")
    ledger.charge(request_id(), "x", 0.1, WIDE)
    (pages,) = ledger._db.execute("PRAGMA page_count").fetchone()
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")
    why = f"cannot be written, so nothing is sent: database or disk is full ({path})"
    with pytest.raises(LedgerError, match=re.escape(why)):
        ledger.keep(request_id(), "x", bytes(10**6))
    assert ledger.cached_response(request_id(), "x") is None
    ledger._db.execute("PRAGMA max_page_count = 1000000")
    ledger.keep(request_id(), "x", bytes(10**6))


def test_the_limits(path):
    ledger = Ledger(path, "a")
    ledger.charge(request_id("1"), "x", 0.9, WIDE)
    with pytest.raises(
        QueryRefusedError, match=r"budget does not allow it: 90.0% is spent, this would cost another 20.0%"
    ):
        ledger.charge(request_id("1", 1), "x", 0.2, WIDE)
    ledger.charge(request_id("1", 1), "x", 0.1, WIDE)
    with pytest.raises(QueryRefusedError, match="allows 1 runs, and the site answered 1"):
        ledger.charge(request_id("2"), "x", 0.0, RunLimits(1, 10, 1.0))
    with pytest.raises(QueryRefusedError, match="allows 10 rounds a run, this is round 11"):
        ledger.charge(request_id("1", 11), "x", 0.0, WIDE)
    assert ledger.spent() == pytest.approx(1.0)
    assert ledger.runs() == 1
    assert ledger.latest("1") == 1
    assert ledger.latest("2") == -1


def test_it_survives_and_belongs_to_one_site(path):
    Ledger(path, "a").charge(request_id(), "x", 0.5, WIDE)
    assert Ledger(path, "a").spent() == 0.5
    with pytest.raises(LedgerError, match="the ledger of site a, opened as b"):
        Ledger(path, "b")
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_another_file(path):
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(LedgerError, match="not a ledger of unpooled"):
        Ledger(path, "a")


def test_many_hands_lose_no_charge(path):
    """Eight threads with connections of their own, twenty prices each: all are counted, in one chain."""

    def work(hand):
        ledger = Ledger(path, "a")
        for i in range(20):
            ledger.charge(request_id(number=i), f"of {hand}", 0.001, RunLimits(1, 100, 1.0))

    Ledger(path, "a")
    threads = [threading.Thread(target=work, args=(hand,)) for hand in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Ledger(path, "a").spent() == pytest.approx(0.16)
    assert Ledger(path, "a").mark.startswith("160:")


KILLED = """
import sys
from pathlib import Path
from unpooled.protocol.exchange import RequestId
from unpooled.site.ledger import Ledger, RunLimits
ledger = Ledger(Path(sys.argv[1]), "a")
print("open", flush=True)
for i in range(10**6):
    ledger.charge(RequestId("r", 0, i, 0), "x", 1e-9, RunLimits(1, 10**9, 1.0))
    print(i, flush=True)
"""


def test_what_was_charged_before_a_kill_stays_charged(path):
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    printed = [child.stdout.readline().strip() for _ in range(30)]
    child.kill()
    child.communicate()
    last = int(printed[-1])
    assert Ledger(path, "a").latest("r") >= last
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
