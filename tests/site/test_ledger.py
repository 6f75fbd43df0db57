"""The ledger: charged once a turn and request, whatever happens, and never beyond its limits."""

import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from unpooled.core.exchange import Turn
from unpooled.errors import LedgerError, Refused
from unpooled.site.ledger import Ledger, RunLimits

WIDE = RunLimits(runs=10, rounds=10, spent=1.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


def turn(run="r", number=0, exchange=0):
    return Turn(run, 0, number, exchange)


def test_a_repeated_turn_is_free(path):
    ledger = Ledger(path, "a")
    for computed in (b"first", b"second", b"third"):  # noise that was drawn anew does not leave
        assert ledger.charge(turn(), "x", 0.3, WIDE, computed) == b"first"
    assert ledger.spent() == 0.3
    assert ledger.paid(turn(), "x") == b"first"
    assert ledger.paid(turn(), "y") is None
    ledger.charge(turn(), "another request", 0.3, WIDE)
    assert ledger.spent() == 0.6


def test_the_limits(path):
    ledger = Ledger(path, "a")
    ledger.charge(turn("1"), "x", 0.9, WIDE)
    with pytest.raises(
        Refused, match=r"budget does not allow it: 90.0% is spent, this would cost another 20.0%"
    ):
        ledger.charge(turn("1", 1), "x", 0.2, WIDE)
    ledger.charge(turn("1", 1), "x", 0.1, WIDE)
    with pytest.raises(Refused, match="allows 1 runs, and 1 were made"):
        ledger.charge(turn("2"), "x", 0.0, RunLimits(1, 10, 1.0))
    with pytest.raises(Refused, match="allows 10 rounds a run, this is round 11"):
        ledger.charge(turn("1", 11), "x", 0.0, WIDE)
    assert ledger.spent() == pytest.approx(1.0)
    assert ledger.runs() == 1
    assert ledger.latest("1") == 1
    assert ledger.latest("2") == -1


def test_it_survives_and_belongs_to_one_site(path):
    Ledger(path, "a").charge(turn(), "x", 0.5, WIDE)
    assert Ledger(path, "a").spent() == 0.5
    with pytest.raises(LedgerError, match="the ledger of site a, opened as b"):
        Ledger(path, "b")
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_another_file(path):
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(LedgerError, match="not a ledger of unpooled"):
        Ledger(path, "a")


def test_many_hands_charge_once(path):
    """Eight threads with connections of their own, the same twenty turns: each is charged once."""

    given: dict[int, set[bytes]] = {i: set() for i in range(20)}

    def work(hand):
        ledger = Ledger(path, "a")
        for i in range(20):
            given[i].add(ledger.charge(turn(number=i), "x", 0.01, RunLimits(1, 100, 1.0), b"of %d" % hand))

    Ledger(path, "a")
    threads = [threading.Thread(target=work, args=(hand,)) for hand in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Ledger(path, "a").spent() == pytest.approx(0.2)
    assert all(len(answers) == 1 for answers in given.values())  # all hands give the answer of the first


KILLED = """
import sys
from pathlib import Path
from unpooled.protocol import Turn
from unpooled.site.ledger import Ledger, RunLimits
ledger = Ledger(Path(sys.argv[1]), "a")
print("open", flush=True)
for i in range(10**6):
    ledger.charge(Turn("r", 0, i, 0), "x", 1e-9, RunLimits(1, 10**9, 1.0))
    print(i, flush=True)
"""


def test_what_was_charged_before_a_kill_stays_charged(path):
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    said = [child.stdout.readline().strip() for _ in range(30)]
    child.kill()
    child.communicate()
    last = int(said[-1])
    assert Ledger(path, "a").latest("r") >= last
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
