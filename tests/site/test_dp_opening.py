"""A site with differential privacy opens and answers alike, whatever its rows are. Its officer is told."""

import logging
import math
from pathlib import Path

import numpy as np
import pytest

from studies import approved_terms, private_study, study_of
from unpooled.data import Number, Preparation, Table
from unpooled.data.schema import AskSchema
from unpooled.privacy.dp import noise
from unpooled.privacy.dp.noisy_moments import AskNoisySpread
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.site import session as session_module
from unpooled.site.endpoint import Endpoint
from unpooled.site.log import entries
from unpooled.site.open_site import DP_INTERVAL, open_site
from unpooled.site.policy import parse
from unpooled.site.session import SiteSession, SiteSettings

DECLARED = 40
RULES = f"""
format = 1
[protect]
mode = "dp"
[dp]
epsilon_total = 8
[domain]
columns = ["x", "y"]
lower = [-30, -30]
upper = [30, 30]
rows = {DECLARED}
"""
BOX = np.full(2, 30.0)
TRANSFORM = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)
FULL = [f"{i % 7},{i % 5}.5" for i in range(DECLARED)]

FILES = {  # rows under the header, and words of the warning that the officer reads
    "as declared": (FULL, ""),
    "one row more": ([*FULL, "1,2"], f"{DECLARED + 1} rows, more than the declared {DECLARED}"),
    "many rows more": (FULL * 50, f"{DECLARED * 50} rows, more than the declared {DECLARED}"),
    "a text": ([*FULL[1:], "high,2"], "column x: 1 cells are not numbers"),
    "only texts": (["high,low"] * DECLARED, f"column y: {DECLARED} cells are not numbers"),
    "a number that is too large": (["1e200,2", *FULL[1:]], "column x: 1 cells are not numbers"),
    "infinity": (["inf,2", *FULL[1:]], "column x: 1 cells are not numbers"),
    "a percentage": (["7 %,2", *FULL[1:]], ""),
    "numbers of rows": ([f"{i},{i}" for i in range(1, DECLARED)], ""),
    "codes": ([f"{i:04d},1" for i in range(1, DECLARED)], ""),
    "a stand-in for missing": (["-999,1", "-999,1", *FULL[2:]], ""),
    "dates": (["2020-01-01,1"] * DECLARED, f"column x: {DECLARED} cells are not numbers"),
    "no value": ([",", *FULL[1:]], ""),
    "one row": (FULL[:1], ""),
    "no row": ([], ""),
}


def site_at(folder: Path, rows: list[str]) -> SiteSettings:
    folder.mkdir()
    (folder / "rows.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    (folder / "policy.toml").write_text(RULES)
    return SiteSettings("a", str(folder / "rows.csv"), str(folder / "kept"), str(folder / "policy.toml"))


def visible(settings: SiteSettings) -> list[object]:
    """All that a run of two requests discloses, apart from the numbers that have noise."""
    session = SiteSession(settings, approved_terms(settings, study=private_study()))
    found: list[object] = []
    for number, question in enumerate((AskSchema(), AskNoisySpread(0.01, BOX))):
        transform = None if number == 0 else TRANSFORM
        asked = Request(RequestId("r", 0, number, 0), (Part("total", question, transform, 0),))
        answer = session.respond(codec.wrap(asked))
        assert isinstance(answer, bytes), answer
        (reply,) = codec.unwrap(answer, expect=Response).replies
        values = {name: getattr(reply, name) for name in reply.__dataclass_fields__}
        found += [
            len(answer),
            type(reply).__name__,
            {name: np.shape(v) if number else codec.encode(reply) for name, v in values.items()},
        ]
    session.close()
    return [*found, [entry["kind"] for _, entry in entries(Path(settings.folder) / "log.jsonl")]]


def test_no_row_decides_whether_a_site_opens_or_what_the_coordinator_sees_of_it(tmp_path, caplog):
    seen = {}
    for number, (case, (rows, warning)) in enumerate(FILES.items()):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            seen[case] = visible(site_at(tmp_path / str(number), rows))
        assert warning in caplog.text, case
        assert bool(warning) == bool(caplog.records), (case, caplog.text)
    for case, found in seen.items():
        assert found == seen["as declared"], case


class Clock:
    """A clock for the session alone: only work and waiting take time."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(("mode", "interval"), [("dp", DP_INTERVAL), ("raw", 0.0)])
def test_the_time_of_an_answer_does_not_disclose_the_number_of_rows(mode, interval, tmp_path, monkeypatch):
    """Reading the file and answering may take any time: the answer leaves at a multiple of the interval."""
    settings = site_at(tmp_path / "a", FULL)
    if mode == "raw":
        (tmp_path / "a/policy.toml").write_text('format = 1\n[protect]\nmode = "raw"\n')
    study = private_study() if mode == "dp" else study_of()
    clock, work = Clock(), {"open": 0.0, "answer": 0.0}

    def taking(name, act):
        def slow(*given):
            clock.sleep(work[name])
            return act(*given)

        return slow

    monkeypatch.setattr(SiteSettings, "open", taking("open", SiteSettings.open))
    monkeypatch.setattr(Endpoint, "answer", taking("answer", Endpoint.answer))
    monkeypatch.setattr(SiteSession, "_watch", lambda _: None)
    session = SiteSession(settings, approved_terms(settings, study=study))
    monkeypatch.setattr(session_module, "time", clock)
    for number, (work["open"], work["answer"]) in enumerate([(0.3, 0.1), (9.0, 0.001), (9.0, 0.26)]):
        began = clock.now
        asked = Request(RequestId("r", 0, number, 0), (Part("total", AskSchema(), None, 0),))
        assert isinstance(session.respond(codec.wrap(asked)), bytes)
        took = clock.now - began
        spent = work["answer"] + (work["open"] if number == 0 else 0.0)
        assert took == pytest.approx(max(1, math.ceil(spent / interval)) * interval if interval else spent)
    session.close()


@pytest.fixture
def silent(monkeypatch):
    """Answers without their noise."""
    monkeypatch.setattr(noise, "discrete_gaussian", lambda count, scale: np.zeros(count, dtype=np.int64))


def sums(table) -> tuple[float, list[float]]:
    """The count and the sums of a table, through a site."""
    site = open_site("a", table, parse(RULES))
    asked = Request(RequestId("r", 0, 0, 0), (Part("total", AskNoisySpread(0.01, BOX), TRANSFORM, 0),))
    (reply,) = site.answer(asked).replies
    return round(float(reply.count[0]), 3), np.round(reply.sums * BOX, 3).tolist()


def test_a_row_beyond_the_declared_number_adds_itself_and_pushes_no_other_row_out(silent):
    """A table that is cut would lose another row: the sum would move by 60, and noise is charged for 30."""
    rows = np.full((DECLARED, 2), -30.0)
    one, two = (sums({"x": X[:, 0], "y": X[:, 1]}) for X in (rows, np.vstack([[[30.0, 30.0]], rows])))
    assert one == (DECLARED, [-30.0 * DECLARED] * 2)
    assert two == (DECLARED + 1, [-30.0 * (DECLARED - 1)] * 2)


@pytest.mark.parametrize("seed", range(20))
def test_a_cell_changes_only_its_own_row(silent, tmp_path, seed):
    """Cells of every kind: a row more shifts the count by at most 1 and a sum by at most its bound."""
    rng = np.random.default_rng(seed)
    cells = ("1", "2.5", "-7", "1,5", "1.234", "1_000", "high", "", "3 %", "007", "true", "1e300", "1/2/2020")
    rows = [f'"{rng.choice(cells)}";"{rng.choice(cells)}"' for _ in range(rng.integers(0, 30))]
    more = list(rows)
    more.insert(int(rng.integers(0, len(rows) + 1)), f'"{rng.choice(cells)}";"{rng.choice(cells)}"')
    settings = site_at(tmp_path / "site", [])
    found = []
    for lines in (rows, more):
        Path(settings.data).write_text("\n".join(["x;y", *lines]) + "\n")
        found.append(sums(settings.table()))
    (n, before), (m, after) = found
    assert abs(m - n) <= 1
    assert (np.abs(np.subtract(after, before)) <= 30.0 + 1e-3).all()


def test_tables_in_memory_are_read_cell_by_cell_too(silent):
    texts = Table.from_columns({"x": ["1", "high", "2"], "y": ["5", "5", ""], "z": ["a", "b", "c"]})
    assert sums(texts) == (3.0, [3.0, 10.0])  # a missing number counts as 0, the middle
    blank = Table.from_columns({"x": [1.0, np.nan, 2.0], "y": [5.0, np.nan, 5.0]})
    assert sums(blank) == (2.0, [3.0, 10.0])
