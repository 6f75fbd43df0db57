"""The summary table on disk: whole or not there, approved by digest, changed by nobody, made once."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from unpooled.app.pages.table_page import page
from unpooled.data import Table
from unpooled.data.summary_table import to_csv
from unpooled.errors import InputError, LedgerError, NotApprovedError, PolicyError
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.audit.overview import read
from unpooled.site.open_site import open_site
from unpooled.site.policy import Policy, parse
from unpooled.site.table_store import SECOND_TABLE, SummaryFolder

ONE_ROW = parse("format = 1\n[protect]\none_row_per_person = true\nno_sensitive_columns = true")
AUTO = parse(
    "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true"
)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return Table.from_columns(
        {"age": rng.normal(50, 9, 90).round(), "sex": rng.choice(["f", "m"], 90).tolist()}
    )


def test_what_is_read_is_what_was_made(rows, tmp_path):
    place = SummaryFolder(tmp_path / "north")
    settings = SummarySettings(
        one_row_per_person=True, no_sensitive_columns=True, min_group_size=6, study_columns=("age",)
    )
    made = place.make(rows, settings)
    assert place.read().digest == made.digest
    assert place.digest == place.about()["digest"]
    assert place.settings() == settings
    assert (place.path / "table.csv").read_text() == to_csv(made)
    assert not [p for p in (tmp_path / "north").iterdir() if p.name.startswith(".")]


def test_a_second_summary_table_is_refused_unless_the_officer_says_what_it_is(rows, tmp_path):
    place = SummaryFolder(tmp_path)
    first = place.make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    place.approve()
    for printed in ("", "yes", "a further release"):
        with pytest.raises(InputError, match="there is a summary table already"):
            place.make(
                rows,
                SummarySettings(one_row_per_person=True, no_sensitive_columns=True, min_group_size=8),
                second_table=printed,
            )
    assert place.read().digest == first.digest
    second = place.make(
        rows,
        SummarySettings(one_row_per_person=True, no_sensitive_columns=True, min_group_size=8),
        second_table=SECOND_TABLE,
    )
    assert place.read().digest == second.digest != first.digest
    assert place.approved == ""  # an approval is of one summary table
    (kept,) = tmp_path.glob(f"summary-{first.made}-*")
    assert (kept / "table.csv").read_text() == to_csv(first)


def test_a_summary_table_that_nobody_approved_is_replaced(rows, tmp_path):
    place = SummaryFolder(tmp_path)
    place.make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    other = place.make(
        rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True, min_group_size=8)
    )
    assert place.read().digest == other.digest
    assert [path.name for path in tmp_path.iterdir()] == ["summary"]  # nobody has seen the first one
    place.approve()
    place.make(
        rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True), second_table=SECOND_TABLE
    )
    assert not place.approved
    with pytest.raises(InputError, match="there is a summary table already"):  # and the approved one is kept
        place.make(
            rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True, min_group_size=8)
        )


def test_a_summary_table_that_was_answered_from_without_approval_is_not_replaced(rows, tmp_path):
    open_site("north", rows, AUTO, tmp_path).close()
    assert not SummaryFolder(tmp_path).approved
    with pytest.raises(InputError, match="there is a summary table already"):
        SummaryFolder(tmp_path).make(
            rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True, min_group_size=8)
        )


def test_a_summary_table_that_was_taken_away_is_not_forgotten(rows, tmp_path):
    """After a deletion or a kill between two tables, the next one needs the officer's words."""
    place = SummaryFolder(tmp_path)
    open_site("north", rows, AUTO, tmp_path).close()
    place.path.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="the log names a summary table that the site answered from"):
        place.make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    with pytest.raises(InputError, match="the log names a summary table"):
        open_site("north", rows, AUTO, tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / "summary-2026-01-01-1")
    (tmp_path / "log.jsonl").unlink()
    with pytest.raises(InputError, match="there was a summary table, which is kept in the folder"):
        place.make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    place.make(
        rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True), second_table=SECOND_TABLE
    )


def test_a_summary_table_that_was_changed_is_not_answered_from(rows, tmp_path):
    place = SummaryFolder(tmp_path)
    place.make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    table, about = place.path / "table.csv", place.path / "about.json"
    kept = table.read_text(), about.read_text()
    for change in (
        lambda: table.write_text(kept[0].replace("\n5,", "\n6,", 1)),
        lambda: table.write_text(kept[0][:-5]),
        lambda: table.write_text(""),
        lambda: about.write_text(kept[1].replace('"min_group_size": 5', '"min_group_size": 3')),
        lambda: about.write_text(kept[1].replace('"person": ""', '"person": "id"')),
        lambda: about.write_text("{"),
        lambda: about.write_text(json.dumps({**json.loads(kept[1]), "format": 9})),
        table.unlink,
    ):
        change()
        with pytest.raises(LedgerError):
            open_site("north", policy=AUTO, folder=tmp_path)
        table.write_text(kept[0])
        about.write_text(kept[1])
    open_site("north", policy=AUTO, folder=tmp_path).close()


def test_nothing_is_answered_before_the_summary_table_is_approved(rows, tmp_path):
    with pytest.raises(NotApprovedError, match="unpooled site approve"):
        open_site("north", rows, ONE_ROW, tmp_path)
    with pytest.raises(NotApprovedError):
        open_site("north", folder=tmp_path)
    place = SummaryFolder(tmp_path)
    place.approve("the officer")
    site = open_site("north", folder=tmp_path)
    site.close()
    assert json.loads((place.path / "approved.json").read_text())["by"] == "the officer"
    opening = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])
    assert (opening["protection"], opening["summary"]) == ("summary", place.digest)
    assert read(tmp_path).intact


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("min_group_size = 9", r"min_group_size = 9, but the summary table has groups of 5 people"),
        ('person = "patient"', r"person = 'patient', but the summary table was made with ''"),
        ('sensitive = ["sex"]', r"sensitive = "),
        ('log_transform = ["age"]', r"log_transform = "),
    ],
)
def test_a_summary_table_with_less_protection_than_the_policy_asks_is_not_answered_from(
    rows, tmp_path, rule, says
):
    place = SummaryFolder(tmp_path)
    place.make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    place.approve()
    with pytest.raises(PolicyError, match=says):
        open_site("north", policy=parse(f"format = 1\n[protect]\n{rule}"), folder=tmp_path)


def test_an_approval_of_another_summary_table_is_none(rows, tmp_path):
    place = SummaryFolder(tmp_path)
    place.make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    place.approve()
    note = place.path / "approved.json"
    note.write_text(note.read_text().replace(place.about()["digest"][:8], "00000000"))
    with pytest.raises(NotApprovedError):
        open_site("north", folder=tmp_path)


def test_the_table_is_not_read_where_there_is_a_summary_table(rows, tmp_path):
    open_site("north", rows, AUTO, tmp_path).close()
    other = Table.from_columns({"other": np.arange(50.0)})
    site = open_site("north", other, AUTO, tmp_path)
    assert site.rows.names == ("age", "sex")
    site.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "neither a table nor a folder"),
        ({"table": np.zeros((3, 2)), "policy": ONE_ROW}, "fewer than 5 people"),
        ({"table": np.zeros(30), "policy": ONE_ROW}, "must be an array"),
        ({"table": "rows.csv", "policy": ONE_ROW}, "rows must be a Table"),
        (
            {"table": np.zeros((30, 2)), "weights": np.ones(30)},
            "weights of rows do not go with a summary table",
        ),
        ({"policy": parse('format = 1\n[protect]\nmode = "raw"')}, "answers from rows"),
    ],
)
def test_what_cannot_be_opened(arguments, says):
    with pytest.raises(InputError, match=says):
        open_site("north", **arguments)


def test_tables_of_every_kind():
    pandas = pytest.importorskip("pandas")
    columns = {"a": np.arange(30.0), "b": ["x", "y"] * 15}
    digests = {
        open_site("n", table, ONE_ROW).rows.digest
        for table in (columns, Table.from_columns(columns), pandas.DataFrame(columns))
    }
    assert len(digests) == 1
    assert open_site("n", np.zeros((30, 2)), ONE_ROW).rows.shape[1] == 2


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_no_summary_table_without_a_declaration_of_which_rows_belong_to_one_person(
    rows, named, folder, tmp_path
):
    table, home = rows if named else np.arange(80.0).reshape(-1, 2), tmp_path / "a" if folder else None
    for policy in (None, Policy(), parse("format = 1\n[protect]\nauto_approve = true")):
        with pytest.raises(InputError, match="nobody declared which rows belong to one person"):
            open_site("north", table, policy, home)
    with pytest.raises(InputError, match="nobody declared"):
        SummaryFolder(tmp_path / "b").make(rows, SummarySettings())
    assert not (tmp_path / "a" / "summary").exists()
    assert not (tmp_path / "b").exists()
    site = open_site("north", table, AUTO, home)
    assert site.grouped
    site.close()
    if folder:  # the table has the declaration, so the policy need not repeat it
        SummaryFolder(home).approve()
        open_site("north", folder=home).close()


def test_no_summary_table_of_a_site_without_a_declaration_of_sensitive_columns(tmp_path):
    """Whatever makes it. Without a folder nobody answers for a site, and nothing is written."""
    table = Table.from_columns({"age": np.arange(60.0), "num": ["no", "yes"] * 30})
    rules = "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\n"
    home = tmp_path / "a"
    with pytest.raises(InputError, match="nobody declared which columns are sensitive"):
        open_site("north", table, parse(rules), home)
    with pytest.raises(InputError, match="nobody declared which columns are sensitive"):
        SummaryFolder(home).make(table, SummarySettings(one_row_per_person=True))
    assert not (home / "summary").exists()
    assert open_site("north", table, parse(rules)).grouped
    declarations = ("no_sensitive_columns = true", 'sensitive = ["num"]', 'diverse = ["num"]')
    for number, declared in enumerate(declarations):
        open_site("north", table, parse(rules + declared), tmp_path / str(number)).close()
        assert SummaryFolder(tmp_path / str(number)).settings().sensitive_declared
    with pytest.raises(PolicyError, match="column num is sensitive, and the site is declared to"):
        parse(f"{rules}{declarations[0]}\n{declarations[1]}")


def test_a_policy_and_a_table_must_declare_the_same(tmp_path):
    ids = [f"p{i}" for i in range(60)]
    table = Table.from_columns({"id": ids, "age": np.arange(60.0)})
    SummaryFolder(tmp_path).make(table, SummarySettings(person="id", no_sensitive_columns=True))
    with pytest.raises(PolicyError, match="one_row_per_person = True, but the summary table was made with"):
        open_site("north", policy=AUTO, folder=tmp_path)
    with pytest.raises(PolicyError, match="Declare only one of person and one_row_per_person"):
        parse('format = 1\n[protect]\nperson = "id"\none_row_per_person = true\nno_sensitive_columns = true')


CHILD = """
import sys
import numpy as np
from pathlib import Path
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.site.table_store import SummaryFolder
X = np.random.default_rng(0).normal(size=(30000, 6))
print("ready", flush=True)
SummaryFolder(Path(sys.argv[1])).make(X, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
print("done", flush=True)
"""


def test_kill_9_while_a_summary_table_is_made_leaves_none_or_all_of_it(tmp_path):
    chance = random.Random(3)
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 1.0))  # somewhere within; what must hold holds at any time
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        place = SummaryFolder(folder)
        if place.exists:
            assert place.read().people.sum() == 30000
        else:
            assert not place.path.exists()
            with pytest.raises(InputError, match="there is no summary table"):
                open_site("north", folder=folder)
    folder.mkdir(exist_ok=True)
    (folder / ".summary.left").mkdir()  # what a killed process left goes with the next summary table
    if not SummaryFolder(folder).exists:
        SummaryFolder(folder).make(
            np.random.default_rng(0).normal(size=(40, 2)),
            SummarySettings(one_row_per_person=True, no_sensitive_columns=True),
        )
        assert not (folder / ".summary.left").exists()


def test_the_page_shows_the_very_table_and_what_it_does_not_promise(rows, tmp_path):
    place = SummaryFolder(tmp_path)
    summary = place.make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    html = page(summary, place.settings(), "", place.digest)
    for value in summary.means["age"]:
        assert f"<td>{value:.6g}</td>" in html
    assert html.count("<tr>") >= len(summary)
    for words in (
        "Not approved yet",
        "does not promise",
        ">Cost<",
        place.digest,
        "Risks, measured on this site",
        "minimum group size (5)",
    ):
        assert words in html
    assert "Approved at" in page(summary, place.settings(), "2026-01-01T00:00:00", "")


def test_a_site_without_a_folder_answers_from_a_summary_table_too():
    X = np.random.default_rng(0).normal(size=(100, 2))
    site = open_site("north", X, ONE_ROW)
    assert site.grouped
    assert site.rows.shape[0] < 25
    assert site.weights.sum() == 100
    summary = microaggregate(X)
    assert np.array_equal(site.rows, summary.matrix())
    assert AskMoments().reads == "rows"
