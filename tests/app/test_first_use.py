"""What a stranger met with files of his own: huge numbers, unnamed columns, folders, and hints that work."""

import re
import warnings

import numpy as np
import openpyxl
import pandas
import pytest
from typer.testing import CliRunner

import unpooled
from unpooled.app.cli import app
from unpooled.app.result import _places
from unpooled.data.readers import Reading, read_table
from unpooled.data.readers.cell_text import LARGEST
from unpooled.errors import InputError, UnpooledError
from unpooled.evaluation import Description


def command(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def table(seed, n=60):
    rng = np.random.default_rng(seed)
    age = rng.choice([30.0, 55.0, 75.0], n) + rng.normal(0, 2, n)
    return pandas.DataFrame({"age": age.round(1), "bmi": rng.normal(24, 2, n).round(1)})


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("ab"):
        table(seed).to_csv(f"{name}.csv", index=False)
    return tmp_path


# ---------------------------------------------------------------- huge numbers


@pytest.mark.parametrize("value", [1.7976931348623157e308, -1e300, 1e160, 1.1 * LARGEST])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_huge_number_is_one_error_with_its_place(value, mixed, tmp_path):
    rows = table(0)
    rows.loc[7, "bmi"] = value
    if mixed:
        rows["sex"] = "f"
    printed = rf"row 8, column bmi: {re.escape(repr(value))} is too large"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=f"site a, {printed}"):
            unpooled.cluster({"a": rows, "b": table(1)}, n_clusters=2)
        path = tmp_path / "a.csv"
        rows.to_csv(path, index=False)
        with pytest.raises(InputError, match=printed.replace("row 8", "line 9")) as error:
            read_table(path, Reading())
        hint = re.search(r"--na (\S+) takes", str(error.value))[1]
        assert np.isnan(read_table(path, Reading(na=(hint,))).values[7, 1])


def test_a_number_at_the_limit_is_clustered_and_printed_short():
    rows, limit = table(0), LARGEST
    rows.loc[7, "bmi"] = limit
    for scale in ("standard", "none", "log", "rank"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = unpooled.cluster({"a": rows, "b": table(1)}, n_clusters="2..3", scale=scale)
        assert not re.search(r"\d{20}", repr(result) + result.job_result.report())
    assert "1e+100" in repr(unpooled.cluster({"a": rows, "b": table(1)}, n_clusters=4))


# ---------------------------------------------------------------- tables as pandas and Excel write them


def test_the_row_numbers_of_pandas_are_left_out_of_every_kind_of_file(files):
    table(0).to_csv("north.csv")
    table(1).to_excel("south.xlsx")
    code, printed, _ = command("fit", "north.csv", "south.xlsx", "-k", 2)
    assert code == 0
    assert "column 1 is left out: looks like row numbers; with a name in the file, --numbers" in printed
    assert "column column" not in printed


def test_a_header_of_merged_cells_is_reported(tmp_path):
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"], sheet["C1"] = "Person", "Vitals"
    sheet.merge_cells("A1:B1")
    sheet.append(["age", "bmi", "bp"])
    sheet.append([1, 2, 3])
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(InputError, match=r"row 1: column 2 has no name.*merged"):
        read_table(tmp_path / "a.xlsx", Reading())


def test_values_without_a_name_are_reported_in_a_workbook_too(tmp_path):
    book = openpyxl.Workbook()
    for row in (["age", None, "bmi"], [1, 2.5, 3], [4, 7.5, 6]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(InputError, match=r"a\.xlsx, row 1: column 2 has no name"):
        read_table(tmp_path / "a.xlsx", Reading())


def test_a_folder_is_called_one(tmp_path):
    with pytest.raises(InputError, match=r"is a folder; name the files in it"):
        read_table(tmp_path, Reading())


# ---------------------------------------------------------------- messages


def test_a_site_that_is_left_out_is_reported_once(files):
    (files / "empty.csv").write_text("age,bmi\n")
    code, printed, err = command("fit", "a.csv", "b.csv", "empty.csv", "-k", 2)
    assert code == 0
    assert (printed + err).count("empty is left out") == 1


def test_a_range_of_k_beyond_the_rows_is_named_as_it_was_typed(files):
    code, _, err = command("fit", "a.csv", "b.csv", "-k", "2..1000")
    assert (code, err) == (
        1,
        "unpooled: k = 2 to 1000 is too many for 120 rows. Use a k of at most 120.\n",
    )


def test_predict_names_the_file_and_the_way_out(files):
    assert command("fit", "a.csv", "b.csv", "-k", 2, "--out", "run")[0] == 0
    (files / "less.csv").write_text("age\n50\n")
    (files / "text.csv").write_text("age,bmi\n50,unknown\n60,22\n")
    assert (
        "less.csv: the model needs the columns bmi" in command("predict", "run", "less.csv", "-o", "p.csv")[2]
    )
    assert "--na 'unknown'" in command("predict", "run", "text.csv", "-o", "p.csv")[2]
    assert command("predict", "run", "text.csv", "-o", "p.csv", "--na", "unknown")[0] == 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "data has no site"),
        (
            {"a": table(0), "b": table(1)[["age"]]},
            'columns="common" takes the 1 that all have, columns="any" takes all',
        ),
        (
            {"a": table(0).astype(object).replace({"bmi": {table(0).bmi[3]: "unknown"}})},
            "site a, row 4, column bmi: text in a column of numbers: 'unknown'",
        ),
        ({"a": table(0).assign(z=1j)}, "site a, column z, index 0: complex is neither number nor text"),
    ],
)
def test_what_cluster_says_has_a_place(data, says):
    with pytest.raises(UnpooledError, match=re.escape(says)):
        unpooled.cluster(data, n_clusters=2)


def test_the_usual_spelling_is_kept(files):
    for name, sex in (("north", "male"), ("south", "Male"), ("west", "male")):
        pandas.DataFrame(table(0).assign(sex=["female", sex] * 30)).to_csv(f"{name}.csv", index=False)
    _, _, err = command("fit", "north.csv", "south.csv", "west.csv", "-k", 2)
    assert "--recode sex:Male=male reads" in err


def test_clusters_of_the_same_sites_are_described_together():
    sizes = np.array([[5.0, 4.0, 3.0, 2.0], [0.0, 4.0, 0.0, 1.0]])
    d = Description.__new__(Description)
    object.__setattr__(d, "sites", ("a", "b"))
    object.__setattr__(d, "sizes", sizes)
    assert _places(d, 4, [1, 3], ()) == "clusters A and C only at a"


def test_a_dash_is_explained_where_there_is_one(files):
    report = unpooled.cluster({"a": table(0), "b": table(1)}, n_clusters=3).job_result.report()
    assert "\N{EN DASH}: none" not in report
    far = table(2).assign(age=900.0)
    assert (
        "\N{EN DASH}: none" in unpooled.cluster({"a": table(0), "b": far}, n_clusters=2).job_result.report()
    )


def test_the_report_of_a_result_does_not_overwrite_its_rows(files):
    before = (files / "a.csv").read_bytes()
    with pytest.raises(InputError, match="an input is never overwritten"):
        unpooled.cluster({"a": "a.csv", "b": table(1)}, n_clusters=2).report("a.csv", overwrite=True)
    assert (files / "a.csv").read_bytes() == before


def test_the_deciding_figures_are_named_and_the_first_command_fits_its_table(files):
    _, printed, _ = command("fit", "a.csv", "b.csv", "-k", "2..4")
    assert "Deciding figures: gain (" in printed
    assert "--categorical cp,restecg,slope,thal" in " ".join(command("--help")[1].split())
