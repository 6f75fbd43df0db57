"""A process that dies while it makes a summary table: at every file that it opens, moves or removes."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from unpooled.data import Table
from unpooled.errors import InputError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.table_store import TABLE, SummaryFolder

AUTO = parse('format = 1\n[protect]\nmode = "summary"\nauto_approve = true')
STEPS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "sqlite3.connect")
ROWS = np.random.default_rng(0).normal(size=(40, 2))
NAMED = Table.from_columns({"id": [f"P{i}" for i in range(40)], "x": ROWS[:, 0], "y": ROWS[:, 1]})
BY_ID = SummarySettings(person="id", no_sensitive_columns=True)


def dies(folder: Path, table, settings: SummarySettings, last: int) -> bool:
    """Make a summary table in a process that dies at its step ``last``; False if it has fewer steps."""
    pid = os.fork()
    if pid == 0:
        steps = 0

        def step(event: str, args: tuple) -> None:
            nonlocal steps
            if event in STEPS and str(folder) in str(args[0]):
                steps += 1
                if steps > last:
                    os._exit(9)  # at once, as with kill -9: nothing is cleaned up

        sys.addaudithook(step)
        try:
            SummaryFolder(folder).make(table, settings)
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.parametrize(
    ("table", "settings"),
    [(ROWS, SummarySettings(one_row_per_person=True, no_sensitive_columns=True)), (NAMED, BY_ID)],
    ids=["rows", "ids"],
)
def test_a_summary_table_is_there_whole_or_not_at_all_wherever_its_maker_dies(tmp_path, table, settings):
    none = whole = 0
    for last in range(200):
        folder = tmp_path / str(last)
        killed = dies(folder, table, settings, last)
        place = SummaryFolder(folder)
        if place.exists:
            whole += 1
            assert place.read().people.sum() == 40
            site = open_site("north", policy=AUTO, folder=folder)
            assert site.rows.shape[1] == 2 if isinstance(table, np.ndarray) else site.rows.people.sum() == 40
            site.close()
        else:
            none += 1
            assert not (place.path / TABLE).exists()
            with pytest.raises(InputError, match="there is no summary table"):
                open_site("north", policy=AUTO, folder=folder)
            SummaryFolder(folder).make(table, settings)  # and the next one is made without a word
            assert SummaryFolder(folder).read().people.sum() == 40
        assert not list(folder.glob(".summary.*")) or killed
        if not killed:
            break
    assert not killed
    assert none > 5
    assert whole


def test_what_a_killed_maker_left_goes_with_the_next_summary_table(tmp_path):
    (tmp_path / ".summary.left").mkdir()
    (tmp_path / ".summary.left" / TABLE).write_text("half\n")
    SummaryFolder(tmp_path).make(ROWS, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    assert not (tmp_path / ".summary.left").exists()
