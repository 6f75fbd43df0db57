"""What is done with a finished run: predict, export, report, and the examples."""

import csv
import json
import os
import re

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.app import model as models
from unpooled.app.cli import app
from unpooled.app.export import _as_arrays, export, probe
from unpooled.app.export.json_model import from_json
from unpooled.app.export.sklearn_model import built
from unpooled.app.model import Model
from unpooled.app.run_folder import RunFolder
from unpooled.data import Category, Number, Preparation, Table
from unpooled.errors import ModelError


def unpooled(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def heart(tmp_path):
    """A run on the heart disease table."""
    assert unpooled("example", "heart", "-o", tmp_path / "heart.csv")[0] == 0
    words = [
        "--site-column",
        "site",
        "--exclude",
        "num",
        "--categorical",
        "cp,restecg,slope,thal",
        "--na",
        "chol=0",
    ]
    code, _, err = unpooled("fit", tmp_path / "heart.csv", "-k", 3, *words, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    return tmp_path


def labels(path):
    with path.open(encoding="utf-8") as file:
        return [row["label"] for row in csv.DictReader(file)]


# ---------------------------------------------------------------- predict


def test_predict_gives_the_clusters_that_the_run_counted(heart):
    code, out, _ = unpooled("predict", heart / "run", heart / "heart.csv", "-o", heart / "labels.csv")
    assert (code, out.startswith("920 rows: ")) == (0, True)
    result = json.loads((heart / "run" / "result.json").read_text(encoding="utf-8"))
    found = labels(heart / "labels.csv")
    sizes = [found.count(str(c["label"])) for c in result["clusters"]]
    disclosed = [c["rows"] for c in result["clusters"]]
    assert sum(sizes) == 920
    assert all(
        0 <= size - rows <= result["rows_suppressed"] for size, rows in zip(sizes, disclosed, strict=True)
    )


def test_predict_does_not_depend_on_the_order_of_columns_or_on_further_ones(heart):
    with (heart / "heart.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [*reversed(rows[0]), "more"]
    with (heart / "turned.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, restval="text")
        writer.writeheader()
        writer.writerows(rows)
    for name in ("heart", "turned"):
        assert unpooled("predict", heart / "run", heart / f"{name}.csv", "-o", heart / f"{name}.out")[0] == 0
    assert (heart / "heart.out").read_text() == (heart / "turned.out").read_text()


def test_predict_refuses_what_the_model_cannot_take(heart):
    for name, text, says in (
        ("lacks.csv", "age,sex\n61,1\n", "the model needs the columns cp, trestbps, chol"),
        (
            "text.csv",
            (heart / "heart.csv").read_text().replace("cleveland,63,", "cleveland,old,", 1),
            "line 2, column age",
        ),
        ("empty.csv", "", "the file is empty"),
    ):
        (heart / name).write_text(text, encoding="utf-8")
        code, _, err = unpooled("predict", heart / "run", heart / name, "-o", heart / "no.csv")
        assert (code, says in err) == (1, True), err
        assert not (heart / "no.csv").exists()
    assert unpooled("predict", heart / "run", heart / "heart.csv", "-o", heart / "gone" / "x.csv")[0] == 1


def test_rows_that_lack_a_value_have_no_cluster_where_rows_are_dropped(tmp_path):
    rng = np.random.default_rng(0)
    rows = "".join(f"{a:.3f},{b:.3f}\n" for a, b in rng.normal(size=(60, 2)))
    (tmp_path / "a.csv").write_text("x,y\n" + rows + "1,\n", encoding="utf-8")
    assert (
        unpooled("fit", tmp_path / "a.csv", "-k", 2, "--missing", "drop", "--out", tmp_path / "run")[0] == 0
    )
    _, out, _ = unpooled("predict", tmp_path / "run", tmp_path / "a.csv", "-o", tmp_path / "l.csv")
    assert "1 have a missing value" in out
    assert labels(tmp_path / "l.csv")[-1] == "-1"


# ---------------------------------------------------------------- export


@pytest.mark.parametrize("to", ["json", "sklearn", "onnx"])
def test_exports_are_read_back(heart, to):
    code, out, err = unpooled("export", heart / "run", "--to", to)
    assert (code, err) == (0, "")
    assert "the same clusters for 2000 rows" in out


def test_the_exported_pipeline_labels_a_data_frame_like_predict(heart):
    unpooled("export", heart / "run", "--to", "sklearn", "-o", heart / "m.py")
    unpooled("predict", heart / "run", heart / "heart.csv", "-o", heart / "labels.csv")
    pipeline = built((heart / "m.py").read_bytes())
    model = RunFolder(heart / "run").load_model()
    with (heart / "heart.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    X = np.empty((len(rows), len(model.preparation.columns)), dtype=object)
    for j, column in enumerate(model.preparation.columns):
        cells = [row[column.name] for row in rows]
        if isinstance(column, Number):
            X[:, j] = [
                np.nan if c == "" or (column.name == "chol" and float(c) == 0) else float(c) for c in cells
            ]
        else:
            X[:, j] = [None if c == "" else str(int(float(c))) for c in cells]
    assert [str(label) for label in pipeline.predict(X)] == labels(heart / "labels.csv")


def test_the_exported_pipeline_takes_the_table_as_pandas_loads_it(heart):
    unpooled("export", heart / "run", "--to", "sklearn", "-o", heart / "m.py")
    unpooled("predict", heart / "run", heart / "heart.csv", "-o", heart / "labels.csv")
    pipeline, found = built((heart / "m.py").read_bytes()), labels(heart / "labels.csv")
    frame = pd.read_csv(heart / "heart.csv")
    frame["chol"] = frame["chol"].where(frame["chol"] != 0)
    for table in (frame, frame[frame.columns[::-1]], frame.assign(more="text"), frame.convert_dtypes()):
        assert [str(label) for label in pipeline.predict(table)] == found
    with pytest.raises(ValueError, match="lacks the columns age, sex"):
        pipeline.predict(frame.drop(columns=["age", "sex"]))


def test_a_model_of_whole_numbers_is_exported(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.integers(0, 9, (30, 2)), rng.integers(30, 39, (30, 2))])
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{a},{b}\n" for a, b in rows), encoding="utf-8")
    unpooled("fit", tmp_path / "a.csv", "-k", 2, "--out", tmp_path / "run")
    assert unpooled("export", tmp_path / "run", "--to", "sklearn", "-o", tmp_path / "m.py")[0] == 0
    unpooled("predict", tmp_path / "run", tmp_path / "a.csv", "-o", tmp_path / "labels.csv")
    frame = pd.DataFrame(rows[:, ::-1], columns=["y", "x"])
    done = built((tmp_path / "m.py").read_bytes()).predict(frame)
    assert [str(label) for label in done] == labels(tmp_path / "labels.csv")
    assert np.array_equal(built((tmp_path / "m.py").read_bytes()).predict(rows), done)


def test_columns_with_a_shape_are_exported(tmp_path):
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(3, 1.5, (80, 3)))
    (tmp_path / "a.csv").write_text("x,y,z\n" + "".join(f"{a:.3f},{b:.3f},{c:.3f}\n" for a, b, c in X))
    words = (
        "fit",
        tmp_path / "a.csv",
        "-k",
        2,
        "--scale",
        "x=log,y=rank,z=robust",
        "--json",
        "--out",
        tmp_path / "run",
    )
    code, out, err = unpooled(*words)
    assert code == 0, err
    assert {trait["column"] for trait in json.loads(out)["clusters"][0]["profile"]} == {
        "log(x)",
        "rank(y)",
        "z",
    }
    for to in ("sklearn", "json"):
        assert unpooled("export", tmp_path / "run", "--to", to)[0] == 0
    code, _, err = unpooled("export", tmp_path / "run", "--to", "onnx")
    assert (code, "column y: ONNX has no rank" in err) == (1, True)
    assert unpooled("predict", tmp_path / "run", tmp_path / "a.csv", "-o", tmp_path / "labels.csv")[0] == 0
    done = built((tmp_path / "run/model_sklearn.py").read_bytes()).predict(pd.read_csv(tmp_path / "a.csv"))
    assert [str(label) for label in done] == labels(tmp_path / "labels.csv")
    (tmp_path / "a.csv").write_text((tmp_path / "a.csv").read_text() + "0,1,1\n")
    code, _, err = unpooled("predict", tmp_path / "run", tmp_path / "a.csv", "-o", tmp_path / "l.csv")
    assert (code, "column x has a value that is not above 0" in err) == (1, True)


def test_labels_can_be_joined(tmp_path):
    text = "patient;weight;note\n" + "".join(f'00{i};{60 + 30 * (i % 2)},5;"a; {i}"\n' for i in range(20))
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    code, _, err = unpooled(
        "fit", tmp_path / "a.csv", "-k", 2, "--exclude", "patient,note", "--out", tmp_path / "run"
    )
    assert code == 0, err
    words = ("predict", tmp_path / "run", tmp_path / "a.csv", "-o", tmp_path / "labels.csv")
    assert unpooled(*words, "--id", "patient", "--keep", "weight,note")[0] == 0
    table = pd.read_csv(tmp_path / "labels.csv", dtype={"patient": str})
    assert table.columns.tolist() == ["patient", "weight", "note", "row", "label", "distance"]
    assert table["patient"].tolist() == [f"00{i}" for i in range(20)]
    assert table["note"][3] == "a; 3"
    assert table["weight"][1] == "90,5"  # as it is in the file
    assert table.groupby("weight")["label"].nunique().tolist() == [1, 1]
    code, _, err = unpooled(*words, "--id", "name", "--keep", "note,size", "--overwrite")
    assert (code, "no column name or size" in err) == (1, True)


def test_labels_have_the_rows_of_the_file(tmp_path):
    """A line of delimiters only is a row, also at the end: nothing moves up."""
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{9 * (i % 2)},{i}.5\n" for i in range(20)))
    assert (
        unpooled("fit", tmp_path / "a.csv", "-k", 2, "--missing", "keep", "--out", tmp_path / "run")[0] == 0
    )
    (tmp_path / "new.csv").write_text("x,y\n0,1\n,\n9,4\n\n,\n")
    code, out, _ = unpooled("predict", tmp_path / "run", tmp_path / "new.csv", "-o", tmp_path / "l.csv")
    assert (code, "4 rows" in out) == (0, True)
    table = pd.read_csv(tmp_path / "l.csv")
    assert table["row"].tolist() == [1, 2, 3, 4]
    assert (table["label"] >= 0).tolist() == [True, False, True, False]


def test_files_to_pass_on_can_be_read_by_others(heart):
    unpooled("predict", heart / "run", heart / "heart.csv", "-o", heart / "labels.csv")
    unpooled("export", heart / "run", "--to", "json")
    usual = 0o666 & ~os.umask(os.umask(0o022))
    for name in ("labels.csv", "run/report.html", "run/result.json", "run/model.json", "run/model.unpooled"):
        assert (heart / name).stat().st_mode & 0o777 == usual, name
    for name in ("run/job.json", "run/checkpoint"):
        assert (heart / name).stat().st_mode & 0o777 == 0o600, name


def test_the_json_is_a_whole_model(heart):
    unpooled("export", heart / "run", "--to", "json", "-o", heart / "m.json")
    ours, back = RunFolder(heart / "run").load_model(), from_json((heart / "m.json").read_bytes())
    np.testing.assert_array_equal(ours.centers, back.centers)
    assert [c.name for c in ours.preparation.columns] == [c.name for c in back.preparation.columns]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 2, "kind": "unpooled model"}', "a model of format 2, and this release reads format 1"),
        ('{"format": "unpooled model", "version": 1}', "a model of an unknown or earlier format"),
        ('{"format": 1, "kind": "a result"}', "not a model in JSON, but of kind 'a result'"),
        ('{"format": 1, "kind": "unpooled model"}', "not a model in JSON: 'columns'"),
        ("[1]", "not a model in JSON"),
        ("{", "not a model in JSON"),
    ],
)
def test_other_json_is_not_a_model(text, message):
    with pytest.raises(ModelError, match=re.escape(message)):
        from_json(text.encode())


def test_an_export_that_gives_other_labels_is_not_written(tmp_path, monkeypatch):
    model = Model(
        Preparation((Number("x", 0.0, 0.0, 1.0),), False), np.array([[-1.0], [1.0]]), np.ones(2), "test"
    )
    other = Model(model.preparation, model.centers[::-1], model.sizes, "test")
    from unpooled.app import export as exporting

    monkeypatch.setattr(exporting, "to_json", lambda _: exporting.json_model.to_json(other))
    with pytest.raises(ModelError, match="another cluster"):
        export(model, "json", tmp_path / "m.json")
    assert not (tmp_path / "m.json").exists()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("to", ["json", "sklearn", "onnx"])
def test_exports_agree_on_models_of_every_make(tmp_path, to, seed):
    rng = np.random.default_rng(seed)
    columns = []
    for j in range(rng.integers(1, 5)):
        if rng.random() < 0.5:
            columns.append(Number(f"n{j}", *rng.normal(size=2), float(rng.uniform(0.5, 3))))
        else:
            categories = tuple(f"category {i}" for i in range(rng.integers(2, 5)))
            other = bool(rng.random() < 0.5)
            fill = int(rng.integers(len(categories) + other))
            columns.append(Category(f"c{j}", categories, other, fill, float(rng.uniform(0.5, 1))))
    transform = Preparation(tuple(columns), bool(seed % 2))
    model = Model(
        transform, rng.normal(size=(int(rng.integers(1, 6)), transform.width)), np.ones(1), "made for a test"
    )
    assert export(model, to, tmp_path / "out") > 100


def test_onnx_takes_one_input_per_column(heart):
    unpooled("export", heart / "run", "--to", "onnx", "-o", heart / "m.onnx")
    session = onnxruntime.InferenceSession(heart / "m.onnx", providers=["CPUExecutionProvider"])
    model = RunFolder(heart / "run").load_model()
    assert [i.name for i in session.get_inputs()] == [c.name for c in model.preparation.columns]


# ---------------------------------------------------------------- the model and the folder


def test_a_model_of_another_format_or_altered_is_refused(heart):
    path = heart / "run" / "model.unpooled"
    good = path.read_bytes()
    for data, says in (
        (
            good.replace(b"format 1\n", b"format 7\n", 1),
            "a model of format 7, and this release reads format 1",
        ),
        (
            good.replace(b"format 1\n", b"1\n", 1),  # as before the first release
            "a model of an unknown or earlier format, and this release reads format 1",
        ),
        (good[:-3], "truncated or was altered"),
        (good[:200] + bytes([good[200] ^ 1]) + good[201:], "truncated or was altered"),
        (b"pickle", "not a model of unpooled"),
    ):
        path.write_bytes(data)
        code, _, err = unpooled("predict", heart / "run", heart / "heart.csv", "-o", heart / "l.csv")
        assert (code, says in err) == (1, True), err
        with pytest.raises(ModelError):
            models.load(path)


def test_a_run_of_another_format_is_refused_in_one_sentence(heart):
    job = heart / "run" / "job.json"
    good = job.read_text(encoding="utf-8")
    for mark, text in (('"format": 9', "format 9"), ('"version": 1', "an unknown or earlier format")):
        job.write_text(good.replace('"format": 1', mark), encoding="utf-8")
        for words in (["resume"], ["export", "--to", "html"], ["certify"]):
            code, _, err = unpooled(*words, heart / "run")
            expected = f"unpooled: {heart / 'run'}: a run of {text}, and this release reads format 1\n"
            assert (code, err) == (1, expected)


def test_folders_that_are_no_runs(tmp_path):
    for folder, says in ((tmp_path / "gone", "no such folder"), (tmp_path, "not the folder of a run")):
        for words in (
            ["resume", folder],
            ["export", "--to", "html", folder],
            ["export", folder, "--to", "json"],
        ):
            code, _, err = unpooled(*words)
            assert (code, says in err) == (1, True)


def test_the_report_is_made_again_from_the_folder(heart):
    first = (heart / "run" / "report.html").read_text(encoding="utf-8")
    (heart / "run" / "report.html").unlink()
    assert unpooled("export", "--to", "html", heart / "run")[0] == 0
    assert (heart / "run" / "report.html").read_text(encoding="utf-8") == first


def test_a_saved_model_predicts_the_same(heart):
    model = RunFolder(heart / "run").load_model()
    models.save(heart / "again", model)
    columns = probe(model, 50)
    table = Table.from_columns(_as_arrays(model, columns))
    np.testing.assert_array_equal(
        model.predict(table).labels, models.load(heart / "again").predict(table).labels
    )


def test_examples(tmp_path):
    code, out, _ = unpooled("example", "penguins", "-o", tmp_path / "p.csv")
    assert (code, "Gorman" in out) == (0, True)
    assert "Janosi" in unpooled("example", "heart", "-o", tmp_path / "h.csv")[1]
    assert unpooled("example", "iris", "-o", tmp_path / "i.csv")[0] == 1
