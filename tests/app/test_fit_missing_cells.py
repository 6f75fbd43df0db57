"""Files with many missing cells, and sites that lack columns: fit, report, predict, export, refusals."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.app.model import load
from unpooled.app.run_folder import RunFolder
from unpooled.data import Table
from unpooled.errors import InputError

NAMES = ("north", "south", "west")


def unpooled(*words):
    """Exit code, stdout and stderr of a command."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, " ".join(done.stdout.split()), " ".join(done.stderr.split())


def drawn(n: int = 450):
    rng = np.random.default_rng(4)
    centers = np.array([[0, 0, 0, 0], [6, 0, 0, 6], [0, 6, 6, 0]])
    labels = rng.integers(3, size=n)
    return centers[labels] + rng.standard_normal((n, 4)), rng


def write(folder, X, lacking=None):
    """Three files; a site lacks the columns that ``lacking`` names."""
    paths = []
    for i, name in enumerate(NAMES):
        take = [j for j in range(4) if j not in (lacking or {}).get(name, ())]
        rows = [["" if v != v else f"{v:.6f}" for v in row[take]] for row in X[i::3]]
        text = "\n".join(",".join(cells) for cells in [[f"c{j}" for j in take], *rows])
        path = folder / f"{name}.csv"
        path.write_text(text + "\n")
        paths.append(path)
    return paths


@pytest.fixture
def with_missing(tmp_path):
    X, rng = drawn()
    X = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    return write(tmp_path, X)


def test_many_missing_values_are_kept_and_reported(with_missing, tmp_path):
    code, out, _ = unpooled(
        "fit", *with_missing, "-k", "2..5", "--out", tmp_path / "run", "--report", tmp_path / "r.html"
    )
    assert code == 0
    assert "fall into 3 clusters" in out
    assert "are kept: rows are compared by the values that they have (--missing fill fills them)" in out
    page = (tmp_path / "r.html").read_text()
    assert (
        "and they stay missing. A row is compared to the centres by the columns in which it has a value"
        in page
    )
    assert "Missing cells by site" in page
    assert (
        json.loads((tmp_path / "run" / "preparation.json").read_text())["rows_with_missing_values"] == "kept"
    )
    result = RunFolder(tmp_path / "run").load_result()
    assert result.keeps_missing
    again = tmp_path / "again"
    assert unpooled("fit", *with_missing, "-k", "2..5", "--missing", "keep", "--out", again)[0] == 0
    np.testing.assert_array_equal(
        load(again / "model.unpooled").centers, load(tmp_path / "run" / "model.unpooled").centers
    )
    (again / "result.json").unlink()
    before = (again / "model.unpooled").read_bytes()
    assert unpooled("resume", again, "--overwrite")[0] == 0
    assert (again / "model.unpooled").read_bytes() == before
    _, out, _ = unpooled("fit", *with_missing, "-k", 3, "--missing", "fill")
    assert "are filled: by the mean over all sites" in out


def test_a_row_without_any_value_is_left_out_by_number(tmp_path):
    X, rng = drawn()
    X = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    X[:, 3] = 1.0 + np.arange(450)  # a constant would be left out; this one is not used
    code, out, _ = unpooled("fit", *write(tmp_path, X), "-k", 3, "--columns", "c0,c1,c2", "--json")
    left_out = json.loads(out)["left_out"]
    lost = int(np.isnan(X[:, :3]).all(axis=1).sum())
    assert code == 0
    assert lost > 3
    assert {"rows": lost, "why": "they have no value in any column"} in left_out
    assert json.loads(out)["rows"] == 450 - lost


def test_predict_and_exports_compare_by_the_cells_of_a_row(with_missing, tmp_path):
    assert unpooled("fit", *with_missing, "-k", 3, "--out", tmp_path / "run")[0] == 0
    model = load(tmp_path / "run" / "model.unpooled")
    centers = model.preparation.undo(model.centers)
    nan = np.nan
    table = Table.from_columns(
        {f"c{j}": [*centers[:, j], nan, centers[1, j] if j < 2 else nan] for j in range(4)}
    )
    found = model.predict(table)
    assert found.labels[:4].tolist() == [0, 1, 2, -1]
    assert np.isnan(found.distances[3])
    part = Table.from_columns({f"c{j}": centers[:, j] for j in range(3)})  # without a column
    assert model.predict(part, lacking=True).labels.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="needs the columns c3"):
        model.predict(part)
    for to, name in (("json", "m.json"), ("sklearn", "m.py"), ("onnx", "m.onnx")):
        if to == "onnx":
            pytest.importorskip("onnxruntime")
        code, _, err = unpooled("export", tmp_path / "run", "--to", to, "--out", tmp_path / name)
        assert code == 0, err


def test_a_site_that_lacks_columns_takes_part(tmp_path):
    X, _ = drawn()
    paths = write(tmp_path, X, {"west": (0, 2)})
    code, _, err = unpooled("fit", *paths, "-k", 3)
    assert code == 1
    assert "columns differ between sites: west lacks c0, c2" in err
    assert "--columns any takes all" in err
    code, out, _ = unpooled("fit", *paths, "-k", 3, "--columns", "any", "--out", tmp_path / "run")
    assert code == 0
    assert "c0 at west: no value at all; rows there are compared by their other columns" in out
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [round(c["rows"]) for c in found["clusters"]] == sorted(
        (round(c["rows"]) for c in found["clusters"]), reverse=True
    )
    assert found["sites"][2]["missing_cells"] == {"c0": 150, "c1": 0, "c2": 150, "c3": 0}
    assert "--columns any" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("how", [("--protect", "summary"), ("--protect", "raw"), ("--secure",)])
def test_every_protection_keeps_missing_cells(with_missing, how):
    code, out, _ = unpooled("fit", *with_missing, "-k", 3, *how)
    assert code == 0
    assert "are kept: rows are compared by the values that they have" in out
    assert "fall into 3 clusters" in out


def test_refusals_name_what_and_what_to_do(with_missing, tmp_path):
    code, _, err = unpooled("fit", *with_missing, "-k", 3, "--method", "fuzzy", "--missing", "keep")
    assert (code, err) == (
        1,
        "unpooled: --missing keep needs --method lloyd, got fuzzy. Use --missing fill or --missing drop",
    )
    bounds = [word for j in range(4) for word in ("--bounds", f"c{j}=-9:15")]
    code, _, err = unpooled("fit", *with_missing, "-k", 3, "--missing", "keep", "--epsilon", 1, *bounds)
    assert (code, err) == (
        1,
        "unpooled: --missing keep counts cells without noise. With --epsilon use fill or drop.",
    )
    assert unpooled("fit", *with_missing, "-k", 3, "--out", tmp_path / "run")[0] == 0
    code, _, err = unpooled("certify", tmp_path / "run")
    assert code == 1
    assert "a certificate needs rows without them. Fit with --missing fill or drop" in err
