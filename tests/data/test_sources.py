"""Sources of rows: databases by a query, workbooks, packed files, stdin, the long format, and mistakes."""

import gzip
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import duckdb
import numpy as np
import openpyxl
import pyarrow
import pytest
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.data import Database
from unpooled.data.readers import Reading, open_source, read_sites, read_table
from unpooled.data.readers.read_tables import tables_of
from unpooled.errors import InputError
from unpooled.site.session import SiteSettings
from unpooled.site.table_store import SummaryFolder

CSV = "age,sex\n61.5,f\n48,m\n,f\n"


def command(*words, **more):
    cells = CliRunner().invoke(app, [str(word) for word in words], **more)
    if cells.exception is not None and not isinstance(cells.exception, SystemExit):
        raise cells.exception
    return cells.exit_code, cells.stdout, cells.stderr


def same(one, two):
    assert one.names == two.names
    assert one.kinds == two.kinds
    assert one.categories == two.categories
    np.testing.assert_array_equal(one.values, two.values)


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text(CSV)
    return read_table(path, Reading())


@pytest.fixture(scope="module")
def server(postgresql):
    postgresql.run("create database clinic")
    postgresql.run("create table visits (age float8, sex text)", "clinic")
    postgresql.run("insert into visits values (61.5, 'f'), (48, 'm'), (null, 'f')", "clinic")
    postgresql.run("grant select on visits to reader", "clinic")
    return postgresql


# ---------------------------------------------------------------- files


def test_packed_csv_is_read_as_if_it_were_not(plain, tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CSV.encode("utf-16")))
    with pyarrow.output_stream(str(tmp_path / "b.csv.zst"), compression="zstd") as file:
        file.write(CSV.replace(",", ";").encode())
    for name in ("a.csv.gz", "b.csv.zst"):
        same(read_table(tmp_path / name, Reading()), plain)
    assert list(read_sites([tmp_path / "a.csv.gz"], Reading())) == ["a"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv.gz", gzip.compress(CSV.encode() * 2000, mtime=0)[:-40], "a.csv.gz: cannot be unpacked"),
        ("a.csv.gz", CSV.encode(), "a.csv.gz: cannot be unpacked"),
        ("a.csv.zst", CSV.encode(), "a.csv.zst: cannot be unpacked"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), "a.csv.gz: the file is empty"),
        ("a.parquet.gz", gzip.compress(b"x", mtime=0), "only CSV is read; unpack it first"),
        ("a.xlsx", b"PK", "a.xlsx: not a workbook"),
        ("a.db", b"x" * 100, "a.db: neither a SQLite nor a DuckDB database"),
        ("a.csv", CSV.encode(), None),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    if message is None:
        read_table(tmp_path / name, Reading())
        with pytest.raises(InputError, match="--query is for databases"):
            read_table(tmp_path / name, Reading(query="cohort.sql"))
        return
    code, _, err = command("fit", tmp_path / name, "-k", 2, "--out", tmp_path / "run")
    assert (code, err.count("\n")) == (1, 1)
    assert message in err
    assert not (tmp_path / "run").exists()


def test_rows_by_stdin(tmp_path):
    rows = "x,y\n" + "".join(f"{i % 7},{i % 3 + 10 * (i % 2)}\n" for i in range(60))
    (tmp_path / "stdin.csv").write_text(rows)
    code, out, _ = command("fit", "-", "-k", 2, "--json", input=rows)
    assert code == 0
    assert out == command("fit", tmp_path / "stdin.csv", "-k", 2, "--json")[1]
    code, _, err = command("fit", "-", "-k", 2, input="")
    assert (code, err) == (1, "unpooled: stdin: the file is empty\n")


def test_a_sheet_of_a_workbook(plain, tmp_path):
    book = openpyxl.Workbook()
    book.active.title = "notes"
    sheet = book.create_sheet("rows")
    for row in (["age", "sex", None], [61.5, "f"], [48, "m"], [None, "f"]):
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    same(read_table(tmp_path / "a.xlsx", Reading(sheet="rows")), plain)
    sheet.insert_rows(3, 2)  # rows without a value are rows, but for those at the end
    sheet.append([None, " "])
    book.save(tmp_path / "a.xlsx")
    blank = []
    table = read_table(tmp_path / "a.xlsx", Reading(sheet="rows"), on_blank_rows=blank.append)
    np.testing.assert_array_equal(table.values[:, 0], [61.5, np.nan, np.nan, 48, np.nan])
    assert blank == [1]
    sheet["C6"] = 7.5
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(InputError, match=r"a\.xlsx, row 6: '7\.5' in column 3, which has no name in row 1"):
        read_table(tmp_path / "a.xlsx", Reading(sheet="rows"))
    for sheet, message in ((None, "which sheet\\? --sheet names one of notes, rows"), ("x", "no sheet x")):
        with pytest.raises(InputError, match=message):
            read_table(tmp_path / "a.xlsx", Reading(sheet=sheet))


# ---------------------------------------------------------------- the long format


def test_a_long_table_is_the_wide_one(tmp_path):
    wide = "person,age,sex,crp\n7,61.5,f,3\n9,48,m,\n12,,f,1.5\n"
    long = "feature,person,value\n" + "".join(
        f"{feature},{person},{value}\n"
        for person, *values in (row.split(",") for row in wide.splitlines()[1:])
        for feature, value in zip(("age", "sex", "crp"), values, strict=True)
        if value
    )
    (tmp_path / "wide.csv").write_text(wide)
    (tmp_path / "long.csv").write_text(long)
    three = ("person", "feature", "value")
    one = read_table(tmp_path / "long.csv", Reading(long=three, exclude=("person",)))
    same(one, read_table(tmp_path / "wide.csv", Reading(exclude=("person",))))
    known = read_table(tmp_path / "long.csv", Reading(long=three))
    assert known.kinds[0] == "id"  # nobody clusters by whose row it is
    codes = read_table(tmp_path / "long.csv", Reading(long=three, categorical=("person",)))
    assert codes.categories["person"] == ("7", "9", "12")
    numbers = pyarrow.table({"p": [1, 1, 2], "f": ["a", "b", "b"], "v": [0.5, 2.0, 3.0]})
    table = read_table(numbers, Reading(long=("p", "f", "v"), columns=("a", "b")))
    np.testing.assert_array_equal(table.values, [[0.5, 2.0], [np.nan, 3.0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p,f,v\n1,a,2\n1,a,3\n", "line 3: a second value of a for person 1"),
        ("p,f,v\n1,a,2\n,a,3\n", "line 3: no p"),
        ("p,f,w\n1,a,2\n", "no column v"),
        ("p,f,v\n1,p,2\n", "both the person column and a feature"),
    ],
)
def test_a_wrong_long_table_is_named(text, message, tmp_path):
    (tmp_path / "long.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "long.csv", Reading(long=("p", "f", "v")))


# ---------------------------------------------------------------- databases


def sqlite(path):
    with sqlite3.connect(path) as connection:
        connection.execute("create table visits (age real, sex text)")
        connection.executemany("insert into visits values (?, ?)", [(61.5, "f"), (48, "m"), (None, "f")])
    connection.close()


def duck(path):
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table visits (age double, sex varchar)")
        connection.execute("insert into visits values (61.5, 'f'), (48, 'm'), (null, 'f')")


@pytest.mark.parametrize(("name", "make"), [("a.sqlite", sqlite), ("a.duckdb", duck), ("b.db", duck)])
def test_a_database_in_a_file(name, make, plain, tmp_path):
    make(tmp_path / name)
    same(read_table(tmp_path / name, Reading()), plain)
    (tmp_path / "cohort.sql").write_text("select age, sex\nfrom visits\nwhere age > 50;\n")
    assert len(read_table(tmp_path / name, Reading(query=str(tmp_path / "cohort.sql")))) == 1
    for query, message in (
        ("select nothing from visits", "the query failed: .*nothing"),
        ("delete from visits", "the query failed: .*read.?only"),
        ("select 1 as a, x'00' as b" if make is sqlite else "select 1 as a, [1] as b", "column b: .*neither"),
        ("   ;", "the query is empty"),
    ):
        with pytest.raises(InputError, match=message) as failed:
            read_table(Database(tmp_path / name, query), Reading())
        assert "\n" not in str(failed.value)
    same(read_table(tmp_path / name, Reading()), plain)  # nothing was deleted, nothing is held


def test_a_database_of_several_tables_needs_a_query(tmp_path):
    sqlite(tmp_path / "a.sqlite")
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute("create table people (a real)")
    connection.close()
    with pytest.raises(InputError, match="which rows\\? tables are people, visits; --query"):
        read_table(tmp_path / "a.sqlite", Reading())


def test_a_server_by_its_query(plain, server, tmp_path, monkeypatch):
    query = "select age, sex from visits"
    same(read_table(Database(server.address("clinic"), query), Reading()), plain)
    reader = Database(server.address("clinic", "reader"), query)
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    with pytest.raises(InputError, match=r"no password supplied. Use PGPASSWORD or ~/\.pgpass"):
        read_table(reader, Reading())
    (tmp_path / "pgpass").write_text("*:*:clinic:reader:secret\n")
    (tmp_path / "pgpass").chmod(0o600)
    same(read_table(reader, Reading()), plain)
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(InputError, match="password authentication failed"):
        read_table(reader, Reading())


def test_types_of_a_server(server):
    query = """
        select 1.25::numeric as n, true as b, '2026-03-01'::date as d, now() as t, 'x'::varchar as v,
            gen_random_uuid() as u, 3::smallint as i from generate_series(1, 30)"""
    table = read_table(Database(server.address("clinic"), query), Reading(categorical=("v",)))
    assert table.kinds == ("number", "number", "date", "date", "category", "category", "number")
    assert table.values[0, [0, 1, 6]].tolist() == [1.25, 1.0, 3.0]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select nothing from visits", 'the query {query} failed: column "nothing" does not exist'),
        ("delete from visits returning *", "cannot execute DELETE in a read-only transaction"),
        ("select '{}'::json as j, age from visits", "column j: .*json.* is neither number nor text"),
        ("select array[1] as a, age from visits", "column a: list.* is neither number nor text"),
        (
            "select 1.0::float8 / (9000 - g) as x from generate_series(1, 9999) g",
            "no more rows .*division by zero",
        ),
        ("select age from visits where age < 0", "no rows"),
    ],
)
def test_a_wrong_query_is_one_line_and_nothing_is_written(query, message, server, tmp_path):
    (tmp_path / "q.sql").write_text(query)
    words = ["--query", tmp_path / "q.sql"]
    address = server.address("clinic")
    for code, _, err in (
        command("fit", address, "-k", 2, "--out", tmp_path / "run", *words),
        command("site", "summarize", "--no-sensitive-columns", tmp_path / "site", "--data", address, *words),
    ):
        assert (code, err.count("\n")) == (1, 1)
        assert re.search(message.format(query=tmp_path / "q.sql"), err), err
    assert [path.name for path in tmp_path.iterdir()] == ["q.sql"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://reader:hush@host/clinic", "a password in the address would be written to files"),
        ("postgresql://host/clinic?password=hush", "a password in the address would be written to files"),
        ("mysql://host/clinic", "servers are addressed by postgresql://"),
        ("postgresql://127.0.0.1:1/clinic", "no connection: "),
        ("postgresql://reader:hush@[::1/clinic", "[::1/clinic: not the address of a server"),
    ],
)
def test_a_wrong_address_is_one_line_without_a_password(address, message, tmp_path):
    (tmp_path / "q.sql").write_text("select 1 as a")
    code, _, err = command("fit", address, "-k", 2, "--query", tmp_path / "q.sql", "--out", tmp_path / "run")
    assert (code, err.count("\n")) == (1, 1)
    assert message in err
    assert "hush" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["q.sql"]


def test_a_server_that_goes_away(server):
    endless = "select g::float8 as x, sin(g) as y from (select generate_series(1, 20000000) as g) s"
    source = open_source(Database(server.address("clinic"), endless), Reading())
    blocks = source.blocks()
    next(blocks)
    server.run(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where query like '%20000000%' and pid <> pg_backend_pid()"
    )
    with pytest.raises(
        InputError, match=r"clinic.*: no more rows after \d+: .*(terminating|closed the) connection"
    ):
        list(blocks)


ENDED = """do $$ begin
for i in 1..30000 loop
    perform pg_stat_clear_snapshot();
    if (select count(pg_terminate_backend(pid)) from pg_stat_activity
        where wait_event = 'PgSleep' and query like '%pg_sleep(86400)%' and pid <> pg_backend_pid()) > 0
    then return; end if;
    perform pg_sleep(0.02);
end loop;
raise exception 'nobody asked';
end $$"""  # a connection that waits within a query is ended


@pytest.mark.parametrize(
    "words",
    [("fit", "{}", "-k", 2, "--out"), ("site", "summarize", "--no-sensitive-columns", "--data", "{}")],
)
def test_a_server_that_goes_away_is_one_line_and_nothing_is_written(words, server, tmp_path):
    (tmp_path / "q.sql").write_text(
        "select g::float8 as x, case when g < 5000 then sin(g) "
        "else (select 0.5::float8 from pg_sleep(86400)) end as y from generate_series(1, 5000) g"
    )
    words = [str(word).format(server.address("clinic")) for word in words]
    with ThreadPoolExecutor(1) as aside:
        ended = aside.submit(server.run, ENDED)
        code, _, err = command(*words, tmp_path / "new", "--query", tmp_path / "q.sql")
        ended.result()
    assert (code, err.count("\n")) == (1, 1)
    assert re.search(r"clinic.*: no more rows after \d+: .*(terminating|closed the) connection", err), err
    assert [path.name for path in tmp_path.iterdir()] == ["q.sql"]


def test_rows_beyond_memory_go_to_disk(server):
    """The batches of a server go where the rows of large files go: into a spool."""
    query = "select g::float8 as x, (g % 7)::float8 as y from generate_series(1, 30000) g order by g"
    reading = Reading(columns=("x", "y"), numbers=("x",))
    held, spooled = (
        tables_of(open_source(Database(server.address("clinic"), query), reading), reading, limit)[""]
        for limit in (1 << 30, 0)
    )
    assert isinstance(spooled.values, np.memmap)
    same(held, spooled)


def test_a_site_makes_its_summary_table_of_a_query(server, tmp_path):
    server.run(
        "create table cohort as select g as person, (g * 7 % 50)::float8 as age, (g % 11)::float8 as crp "
        "from generate_series(1, 200) g",
        "clinic",
    )
    (tmp_path / "q.sql").write_text("select person, age, crp from cohort order by person")
    code, out, err = command(
        "site", "summarize", "--no-sensitive-columns", tmp_path / "north", "--data", server.address("clinic"),
        "--query", tmp_path / "q.sql", "--person", "person",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "200 people" in out
    assert SummaryFolder(tmp_path / "north").read().names == ("age", "crp")


def test_the_settings_of_a_site_keep_its_query(tmp_path):
    settings = SiteSettings(
        "north",
        "postgresql://reader@host/clinic",
        str(tmp_path),
        policy=str(tmp_path / "policy.toml"),
        reading=Reading(query="/q.sql", long=("p", "f", "v"), sheet="s"),
    )
    settings.write()
    assert replace(SiteSettings.of_folder(tmp_path), site="north") == settings
    reading = settings.reading
    assert (reading.query, reading.long, reading.sheet) == ("/q.sql", ("p", "f", "v"), "s")
