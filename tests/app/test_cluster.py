"""``unpooled.cluster``: the job of ``unpooled fit`` from Python, with the same bytes from every source."""

import contextlib
import datetime
import json
import os
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import duckdb
import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
import scipy.sparse
from typer.testing import CliRunner

import unpooled
from unpooled import FederatedKMeans
from unpooled.app.cli import app
from unpooled.data import Database
from unpooled.errors import InputError

SAME = ("model.unpooled", "history.csv", "report.html", "result.json", "preparation.json")
QUERY = "select * from visits order by patient_id"


def visits(rng, n, first):
    """Three clusters, missing cells, a category, a date and an id."""
    kind = rng.integers(3, size=n)
    table = pandas.DataFrame(
        {
            "patient_id": np.arange(first, first + n),
            "age": np.round(45 + 12 * kind + rng.normal(0, 2, n), 2),
            "bmi": np.round(22 + 5 * (kind == 2) + rng.normal(0, 1, n), 3),
            "crp": np.round(4 + 6 * (kind == 1) + rng.normal(0, 1, n), 1),
            "smoker": np.where(rng.random(n) < 0.3, "yes", "no"),
            "seen": pandas.Timestamp("2026-03-01") + pandas.to_timedelta(np.arange(n) % 50, "D"),
        }
    )
    table.loc[rng.random(n) < 0.04, "bmi"] = np.nan
    return table


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(5)
    return {"north": visits(rng, 300, 1000), "south": visits(rng, 220, 5000)}


@pytest.fixture(scope="module")
def fitted(tables, tmp_path_factory):
    """The files of ``unpooled fit`` on CSV."""
    home = tmp_path_factory.mktemp("csv")
    for name, table in tables.items():
        table.to_csv(home / f"{name}.csv", index=False)
    return of_command(home, *(home / f"{name}.csv" for name in tables))


def of_command(home, *words):
    done = CliRunner().invoke(app, ["fit", *map(str, words), "-k", "2..4", "--out", str(home / "run")])
    assert done.exit_code == 0, done.stderr
    return of_folder(home / "run")


def of_folder(run):
    return {name: (run / name).read_bytes() for name in SAME}


# ---------------------------------------------------------------- the same bytes from every source


@pytest.mark.parametrize(
    "given",
    [
        lambda table: table,
        polars.from_pandas,
        lambda table: pyarrow.Table.from_pandas(table, preserve_index=False),
        lambda table: duckdb.from_df(table),
        lambda table: table.set_index(np.arange(len(table))[::-1]),
    ],
    ids=["pandas", "polars", "arrow", "a stream of Arrow", "pandas with an index"],
)
def test_tables_in_memory_give_the_bytes_of_files(given, tables, fitted, tmp_path):
    sites = {name: given(table) for name, table in tables.items()}
    result = unpooled.cluster(sites, range(2, 5), out=tmp_path / "run")
    assert of_folder(tmp_path / "run") == fitted
    result.report(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_bytes() == fitted["report.html"]


@pytest.mark.parametrize("ending", ["parquet", "duckdb", "sqlite", "csv.gz", "csv.zst", "xlsx"])
def test_files_of_every_kind_give_the_same_bytes(ending, tables, fitted, tmp_path):
    for name, table in tables.items():
        written(table, tmp_path / f"{name}.{ending}")
    paths = [tmp_path / f"{name}.{ending}" for name in tables]
    assert of_command(tmp_path, *paths) == fitted
    unpooled.cluster(dict(zip(tables, paths, strict=True)), "2..4", out=tmp_path / "again")
    assert of_folder(tmp_path / "again") == fitted


def written(table, path):
    """Write a table as a file of the kind of its ending."""
    kind = path.suffix
    if kind == ".parquet":
        table.to_parquet(path, index=False)
    elif kind == ".duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.register("given", table)
            connection.execute("create table visits as select * from given")
    elif kind == ".sqlite":
        with sqlite3.connect(path) as connection:
            table.assign(seen=table.seen.dt.strftime("%Y-%m-%d")).to_sql("visits", connection, index=False)
        connection.close()
    elif kind == ".xlsx":
        table.to_excel(path, index=False)
    else:
        text = table.to_csv(index=False).encode()
        with pyarrow.output_stream(str(path), compression="gzip" if kind == ".gz" else "zstd") as file:
            file.write(text)


def odd_table(rng, n):
    """What programs write in more than one way, and rows without a value, the last one of them too."""
    kind = np.arange(n) % 2
    table = pandas.DataFrame(
        {
            " body  mass ": np.round(60 + 30 * kind + rng.normal(0, 2, n), 1).astype(np.float32),
            "smokes": np.array([bool(i % 3) for i in range(n)], dtype=object),
            "seen": [datetime.time(8 + i % 9, i % 60) for i in range(n)],
            "dose": [f"{1 + i % 7}.{100 + 7 * i}" for i in range(n)],
            "gro\u0308\u00dfe": 150.0 + rng.integers(40, size=n),
        }
    )
    table.loc[[4, 5, n - 1]] = None
    return table


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize(
    "columns", [None, [" body  mass "]], ids=["all columns", "one column with missing values"]
)
def test_odd_tables_give_the_same_bytes(form, columns, tmp_path):
    rng = np.random.default_rng(8)
    tables = {name: odd_table(rng, n)[columns or slice(None)] for name, n in (("a", 60), ("b", 44))}
    unpooled.cluster(tables, 2, n_init=2, out=tmp_path / "run")
    expected = of_folder(tmp_path / "run")
    result = json.loads(expected["result.json"])
    assert result["rows"] == 104 - 2
    left = [(one.get("column", "rows"), one["why"]) for one in result["left_out"]]
    assert ("rows", "at the end of a, without any value") in left
    assert columns or left[0][0] == "seen"
    sites = {name: pyarrow.Table.from_pandas(table, preserve_index=False) for name, table in tables.items()}
    if form != "arrow":
        sites = {name: tmp_path / f"{name}.{form}" for name in tables}
        for name, table in tables.items():
            getattr(table, f"to_{form}")(sites[name], index=False)
        words = ["fit", *map(str, sites.values()), "-k", "2", "--restarts", "2", "--out", tmp_path / "fit"]
        assert CliRunner().invoke(app, list(map(str, words))).exit_code == 0
        assert of_folder(tmp_path / "fit") == expected
    unpooled.cluster(sites, 2, n_init=2, out=tmp_path / "again")
    assert of_folder(tmp_path / "again") == expected


def test_a_postgresql_server_gives_the_same_bytes(tables, fitted, postgresql, tmp_path):
    (tmp_path / "cohort.sql").write_text(QUERY + ";\n")
    for name, table in tables.items():
        postgresql.table(name, "visits", pyarrow.Table.from_pandas(table, preserve_index=False))
    addresses = {name: postgresql.address(name) for name in tables}
    assert of_command(tmp_path, *addresses.values(), "--query", tmp_path / "cohort.sql") == fitted
    sites = {name: Database(address, QUERY) for name, address in addresses.items()}
    unpooled.cluster(sites, "2..4", out=tmp_path / "again")
    assert of_folder(tmp_path / "again") == fitted


def test_protection_is_that_of_the_command(tables, tmp_path):
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    paths = [tmp_path / f"{name}.csv" for name in tables]
    words = ["--protect", "summary", "--person", "patient_id", "--columns", "age,bmi", "--seed", 3]
    fit = of_command(tmp_path, *paths, *words)
    settings = {"protect": "summary", "person": "patient_id", "columns": ["age", "bmi"], "random_state": 3}
    unpooled.cluster(tables, "2..4", out=tmp_path / "again", **settings)
    assert of_folder(tmp_path / "again") == fit
    raw = unpooled.cluster(tables, 3, protect="raw", min_cluster_size=20)
    assert raw.to_dict()["min_cluster_size"] == 20
    with pytest.raises(InputError, match="are options of summary tables"):
        unpooled.cluster(tables, 3, person="patient_id")


# ---------------------------------------------------------------- the result


def test_the_result_has_tables_a_model_and_labels(tables, tmp_path):
    result = unpooled.cluster(tables, 3)
    sizes = result.sizes
    assert result.k == 3
    assert sizes["rows"].sum() == 520
    assert (sizes["north"] + sizes["south"] == sizes["rows"]).all()
    profile = result.profile
    assert set(profile["column"]) == {"age", "bmi", "crp", "smoker"}
    labels = result.predict(tables["north"])
    assert np.bincount(labels).tolist() == sizes["north"].tolist()
    assert result.labels["north"].tolist() == labels.tolist()
    assert sizes["label"].tolist() == [0, 1, 2]
    assert sizes["cluster"].tolist() == ["A", "B", "C"]
    assert sizes["rows"].is_monotonic_decreasing
    first = profile[(profile.label == 0) & (profile.column == "age")]
    everyone = pandas.concat(tables.values())
    mine = result.predict(everyone.reset_index()) == 0
    assert first["value"].item() == pytest.approx(everyone["age"][mine].mean())
    assert result.centers["age"][0] == pytest.approx(first["value"].item(), rel=1e-3)
    page = result._repr_html_()
    assert result.headline.split(";")[0] in page
    assert "what sets it apart" in page
    assert repr(result).startswith(result.headline)
    result.report(tmp_path / "report.html")
    with pytest.raises(InputError, match=r"already exists\. Use overwrite=True"):
        result.report(tmp_path / "report.html")


def test_tables_come_in_the_callers_library(tables):
    settings = {"n_clusters": 2, "columns": ["age", "crp"]}
    sites = {name: polars.from_pandas(table) for name, table in tables.items()}
    assert isinstance(unpooled.cluster(sites, **settings).sizes, polars.DataFrame)
    sites = {name: pyarrow.Table.from_pandas(table) for name, table in tables.items()}
    assert isinstance(unpooled.cluster(sites, **settings).profile, pyarrow.Table)


def test_every_row_that_was_clustered_has_a_label(tables):
    """A row that lacks a value is left out: -1. Every other has the label of the nearest centre."""
    columns = ["age", "bmi"]
    result = unpooled.cluster(tables, 3, columns=columns, missing="drop", scale="none")
    frame = result.to_frame()
    assert list(frame) == ["site", "row", "label", "cluster", "distance"]
    rows = pandas.concat(tables.values())[columns].to_numpy(float)
    centers = result.centers[columns].to_numpy()
    complete = ~np.isnan(rows).any(axis=1)
    assert 0 < complete.sum() < len(rows)
    gaps = np.linalg.norm(rows[:, None] - centers, axis=2)
    assert frame["label"].tolist() == np.where(complete, gaps.argmin(axis=1), -1).tolist()
    assert frame["cluster"][complete].tolist() == ["ABC"[j] for j in frame["label"][complete]]
    assert frame["cluster"][~complete].isna().all()
    assert frame["distance"][complete].tolist() == pytest.approx(gaps.min(axis=1)[complete].tolist())
    assert frame["site"].tolist() == [name for name, table in tables.items() for _ in range(len(table))]
    assert frame["row"].tolist() == [i for table in tables.values() for i in range(len(table))]
    assert {name: list(found) for name, found in result.labels.items()} == {
        name: part["label"].tolist() for name, part in frame.groupby("site")
    }


def test_one_table_has_one_array_of_labels(tables):
    whole = pandas.concat([table.assign(hospital=name) for name, table in tables.items()])
    result = unpooled.cluster(whole, 3, site_column="hospital")
    by_site = unpooled.cluster(tables, 3).labels
    assert result.labels.tolist() == [label for labels in by_site.values() for label in labels]
    assert list(result.to_frame()) == ["row", "label", "cluster", "distance"]


def test_one_table_is_split_by_its_site_column(tables):
    whole = pandas.concat([table.assign(hospital=name) for name, table in tables.items()])
    split = unpooled.cluster(whole, 3, site_column="hospital").to_dict()
    assert split == unpooled.cluster(tables, 3).to_dict()
    with pytest.raises(InputError, match="one table is one site"):
        unpooled.cluster(whole, 3)


def test_dp_gives_sizes_and_centres_and_no_report(tables, tmp_path):
    bounds = {"age": (0.0, 110.0), "bmi": (10.0, 60.0)}
    result = unpooled.cluster(tables, 2, epsilon=50.0, bounds=bounds, accept_noise=True)
    assert list(result.profile["column"]) == ["age", "bmi"] * 2
    assert list(result.centers) == ["label", "cluster", "age", "bmi"]
    assert result.centers["age"].tolist() == result.profile.query("column == 'age'")["value"].tolist()
    assert {int(label) for labels in result.labels.values() for label in labels} <= {-1, 0, 1}
    with pytest.raises(InputError, match="sums without noise"):
        result.report(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_an_array_gives_the_clusters_of_the_estimator(tables):
    X = {name: table[["age", "crp"]].to_numpy() for name, table in tables.items()}
    result = unpooled.cluster(X, 3)
    model = FederatedKMeans(3, n_init=10, scale="standard", random_state=0).fit(X)
    assert result.job_result.inertia == pytest.approx(model.inertia_, rel=1e-6)


def test_a_sparse_matrix_is_a_wide_table_of_zeros_and_ones(tmp_path):
    rng = np.random.default_rng(0)
    dense = (rng.random((200, 300)) < np.where(rng.random((200, 1)) < 0.5, 0.02, 0.2)).astype(float)
    sites = {"a": dense[:80], "b": dense[80:]}
    wide = {name: scipy.sparse.csr_matrix(X) for name, X in sites.items()}
    settings = {"scale": "none", "n_init": 2}
    assert unpooled.cluster(wide, 2, **settings).to_dict() == unpooled.cluster(sites, 2, **settings).to_dict()
    frame = {
        name: pandas.DataFrame.sparse.from_spmatrix(X, columns=[f"x{j}" for j in range(300)])
        for name, X in wide.items()
    }
    found = unpooled.cluster(sites, 2, **settings).to_dict()
    assert unpooled.cluster(frame, 2, **settings).to_dict() == found
    for name, X in wide.items():
        scipy.sparse.save_npz(tmp_path / f"{name}.npz", X)
    words = [
        *(str(tmp_path / f"{name}.npz") for name in wide),
        "-k",
        "2",
        "--scale",
        "none",
        "--restarts",
        "2",
    ]
    done = CliRunner().invoke(app, ["fit", *words, "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(found))


def test_a_run_on_tables_in_memory_is_not_resumed(tables, tmp_path):
    unpooled.cluster(tables, 2, out=tmp_path / "run")
    done = CliRunner().invoke(app, ["resume", str(tmp_path / "run")])
    assert done.exit_code == 1
    assert "table in memory may have changed" in done.stderr
    with pytest.raises(InputError, match=r"already exists .*\. Use overwrite=True"):
        unpooled.cluster(tables, 2, out=tmp_path / "run")
    unpooled.cluster(tables, 2, out=tmp_path / "run", overwrite=True)
    names = tmp_path / "run" / "report.html"
    names.write_text('[columns]\nage = "Age"\n')
    with pytest.raises(InputError, match="an input is never overwritten"):
        unpooled.cluster(tables, 2, out=tmp_path / "run", names=str(names), overwrite=True)
    assert names.read_text() == '[columns]\nage = "Age"\n'


def test_values_of_other_libraries_are_taken(tables):
    plain = unpooled.cluster(tables, 3, columns=["age", "bmi"], na="-9", random_state=4)
    columns = tables["north"].columns[1:3]
    same = unpooled.cluster(tables, np.int64(3), columns=columns, na=[-9], random_state=np.int64(4))
    assert same.to_dict() == plain.to_dict()
    assert unpooled.cluster(tables, [np.int64(2)], columns=np.array(["age"]), na=-9).k == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 3.0}, "n_clusters must be a whole number .*got 3.0"),
        ({"n_clusters": None}, "n_clusters must be a whole number .*got None"),
        ({"n_clusters": [2, "x"]}, "n_clusters must be a whole number"),
        ({"columns": 3}, "columns must be the name of a column, or a list of names, got 3"),
        ({"na": [None]}, "na must be a text or a number"),
        ({"bounds": {"age": 5}}, r'bounds must be a mapping such as {"age": \(0, 110\)}'),
        ({"scales": "log"}, 'scales must be a mapping such as {"income": "log"}'),
        ({"recode": {"smoker": "yes"}}, 'recode must be a mapping such as {"sex": {"M": "male"}}'),
        ({"long": ("a", "b")}, "long must name three columns"),
        ({"random_state": None}, "random_state must be a whole number, got None"),
        ({"n_init": 0}, "n_init"),
        ({"min_category_share": "1 %"}, "min_category_share must be a number, got '1 %'"),
        ({"sheet": 1}, "sheet must be text or None, got 1"),
        ({"sheet": "a"}, "north: sheet is for workbooks"),
        ({"certify": "fast"}, "certify must be one of quick, normal, thorough"),
        ({"exclude": "weight"}, "no file has a column weight"),
        ({"columns": ["age", "seen"]}, "column seen: dates are not measurements"),
        ({"columns": ["age", "patient_id"]}, 'numbers="patient_id" takes it as numbers'),
        ({"missing": "refuse"}, 'missing="keep", fill or drop deals with them'),
        ({"scale": "min-max"}, r'bounds={"age": \(0, 100\)}'),
    ],
)
def test_a_wrong_argument_is_named_as_in_python(settings, message, tables, tmp_path):
    with pytest.raises(InputError, match=message) as wrong:
        unpooled.cluster(tables, **({"n_clusters": 2} | settings), out=tmp_path / "run")
    assert "--" not in str(wrong.value)
    assert list(tmp_path.iterdir()) == []


def test_auto_compares_no_more_k_than_there_are_rows(tables, capsys):
    few = {"north": tables["north"].head(11)[["age", "crp"]]}
    result = unpooled.cluster(few)
    assert [score["k"] for score in result.to_dict()["scores"]] == list(range(1, 12))
    assert "k is compared from 1 to 11 only: there are 11 rows" in capsys.readouterr().err
    two = pandas.DataFrame({"age": [40.0, 60.0] * 20, "crp": [1.0, 9.0] * 20})
    assert "You asked for 5, and only 2 have any rows." in unpooled.cluster({"north": two}, 5).headline


@pytest.mark.parametrize("verbose", [True, False])
def test_progress_is_a_line_on_a_terminal(verbose, tables, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    with ThreadPoolExecutor(1) as reader, open(theirs, "w") as terminal:
        printed = reader.submit(all_of, ours)
        with contextlib.redirect_stderr(terminal):
            unpooled.cluster(tables, 2, n_init=1, verbose=verbose)
        terminal.close()
        text = printed.result().decode()
    assert bool(re.search(r"\x1b\[.*writing", text, re.DOTALL)) == verbose  # the last that is done
    assert bool(text) == verbose


def all_of(terminal):
    """All that is written to a terminal until its other end is closed."""
    found = b""
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while data := os.read(terminal, 65536):
            found += data
    os.close(terminal)
    return found


def test_progress_is_not_printed_without_a_terminal(tables, capfd):
    unpooled.cluster(tables, 2, n_init=1, verbose=True)
    assert capfd.readouterr() == ("", "")


def test_a_certificate_is_that_of_the_command(tables, tmp_path):
    words = ["--columns", "age,crp", "--certify", "quick"]
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    fit = of_command(tmp_path, *(tmp_path / f"{name}.csv" for name in tables), *words)
    settings = {"columns": ["age", "crp"], "certify": "quick"}
    result = unpooled.cluster(tables, "2..4", out=tmp_path / "again", **settings)
    assert of_folder(tmp_path / "again") == fit
    assert result.headline.endswith(json.loads(fit["result.json"])["certificate"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"north": pandas.Series([1.0, 2.0])}, "site north: a Series is one column, not a table"),
        ({"north": pandas.DataFrame({"": [1.0, 2.0]})}, "site north: column 1 has no name"),
        ({"north": 7}, "site north: int is not a table"),
        (
            {"north": pandas.DataFrame({"a": [1, "x", b"y"]})},
            "site north, column a, index 2: bytes is neither",
        ),
        ({"north": pandas.DataFrame({"a": [[1], [2]]})}, "site north, column a: list"),
        ({"north": pandas.DataFrame([[1, 2]], columns=["a", "a"])}, "site north: two columns are named a"),
        ({"north": pandas.DataFrame({"a": []})}, "no rows"),
        ({"north": np.zeros(3)}, "site north: the array has shape"),
        ({"north": np.array([[1j]])}, "site north, column x0: complex128"),
        ({3.5: pandas.DataFrame({"a": [1]})}, "a site's name must be text or a whole number"),
        ({3: pandas.DataFrame({"a": [1]}), "3": pandas.DataFrame({"a": [1]})}, "two sites are named 3"),
    ],
)
def test_a_wrong_table_is_named(wrong, message, tmp_path):
    with pytest.raises(InputError, match=message):
        unpooled.cluster(wrong, 2, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
