"""Table 1 of a run, names of columns and clusters, and the match of two runs."""

import csv
import io
import json
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unpooled.app.cli import app


def patients(shift: float = 0.0, seed: int = 0, n: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    return pd.DataFrame(
        {
            "site": np.array(["a", "b"])[rng.integers(2, size=n)],
            "age": rng.normal(40, 3, n) + 20 * group + shift,
            "bmi": rng.normal(22, 1, n) + 5 * (group == 1),
            "smokes": (rng.random(n) < 0.2 + 0.3 * group).astype(float),
            "died": (rng.random(n) < 0.1 + 0.2 * group).astype(float),
        }
    )


def fitted(tmp_path, name, frame, *words):
    file, run = tmp_path / f"{name}.csv", tmp_path / name
    frame.to_csv(file, index=False)
    given = [
        "fit",
        str(file),
        "--site-column",
        "site",
        "--outcomes",
        "died",
        "-o",
        str(run),
        *map(str, words),
    ]
    done = CliRunner().invoke(app, given, env={"COLUMNS": "250"})
    assert done.exit_code == 0, done.output
    return run, done.output


def ran(*words):
    return CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "250"})


def test_table_1_has_the_figures_of_pandas_in_three_formats(tmp_path):
    frame = patients()
    run, _ = fitted(tmp_path, "run", frame, "-k", "3")
    clusters = tmp_path / "clusters.csv"
    assert ran("predict", run, tmp_path / "run.csv", "-o", clusters).exit_code == 0
    labels = pd.read_csv(clusters).iloc[:, 1]
    by_cluster = [frame[labels == label] for label in sorted(labels.unique())]
    tables = {}
    for ending in ("csv", "md", "html"):
        path = tmp_path / f"t.{ending}"
        assert ran("export", run, "--to", "table", "-o", path).exit_code == 0
        tables[ending] = cells_of(path.read_text(), ending)
    head, age, bmi, smokes, heading, died = tables["csv"]
    assert [cell.partition("n = ")[2] for cell in head[1:-1]] == [
        f"{len(part)})" for part in (*by_cluster, frame)
    ]
    assert age[1:5] == [f"{p.age.mean():.1f} ± {p.age.std(ddof=0):.2f}" for p in by_cluster] + [
        f"{frame.age.mean():.1f}"
    ]
    means = [p.bmi.mean() for p in by_cluster]
    assert float(bmi[-1]) == pytest.approx((max(means) - min(means)) / frame.bmi.std(ddof=0), abs=0.006)
    assert smokes[0] == "smokes = 1, %"
    assert [float(c.rstrip("%")) for c in smokes[1:4]] == pytest.approx(
        [100 * p.smokes.mean() for p in by_cluster], abs=0.51
    )
    assert heading[0].startswith("Outcomes")
    assert died[0] == "died = 1, %"
    assert tables["csv"] == tables["md"] == tables["html"]
    assert ran("export", run, "--to", "table", "-o", tmp_path / "t.docx").exit_code == 1
    assert not (tmp_path / "t.docx").exists()


def cells_of(text, ending):
    if ending == "csv":
        return list(csv.reader(io.StringIO(text)))
    if ending == "md":
        lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    parser = Cells()
    parser.feed(text)
    return parser.rows


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self._inside = [], False

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._inside = True

    def handle_endtag(self, tag):
        self._inside = False if tag in ("td", "th") else self._inside

    def handle_data(self, data):
        if self._inside:
            self.rows[-1][-1] += data


def test_a_column_that_rows_lack_has_the_numbers_behind_it(tmp_path):
    frame = patients()
    frame.loc[::3, "bmi"] = None
    run, output = fitted(tmp_path, "run", frame, "-k", "2")
    assert "have a value)" in output
    ran("export", run, "--to", "table")
    table = list(csv.reader((run / "table1.csv").read_text().splitlines()))
    (known,) = (row for row in table if row[0] == "bmi, n with a value")
    assert int(known[3]) == frame["bmi"].count()
    profile = json.loads((run / "result.json").read_text())["clusters"][0]["profile"]
    assert {t["column"]: t["n"] for t in profile}["bmi"] == int(known[1])


def test_text_of_a_file_is_text_in_every_format(tmp_path):
    frame = patients().rename(columns={"age": "<b>|a`\\ge", "bmi": "=1+1"})
    run, _ = fitted(tmp_path, "run", frame, "-k", "2")
    for ending in ("csv", "md", "html"):
        ran("export", run, "--to", "table", "-o", tmp_path / f"t.{ending}")
    assert "<b>" not in (tmp_path / "t.html").read_text()
    assert "'=1+1" in (tmp_path / "t.csv").read_text()
    assert r"<b>\|a`\\ge" in (tmp_path / "t.md").read_text()


NAMES = '[columns]\nage = "Age, years"\n[clusters]\nA = "Young"\nC = "Old"\n'


def test_names_are_in_the_table_and_later_runs_keep_those_of_clusters_that_match(tmp_path):
    run, _ = fitted(tmp_path, "run", patients(), "-k", "3")
    names = tmp_path / "names.toml"
    names.write_text(NAMES)
    assert ran("names", run, names).exit_code == 0
    # the smallest cluster becomes the largest one
    frame = pd.concat([patients(seed=1), *[patients(seed=1)[lambda f: f.age > 70]] * 5])
    later, _ = fitted(tmp_path, "later", frame, "-k", "3", "--names", run)
    named = json.loads((later / "result.json").read_text())["names"]
    assert named["columns"] == {"age": "Age, years"}
    assert {name: key for key, name in named["clusters"].items()} == {"Old": "A", "Young": "B"}
    ran("export", later, "--to", "table")
    head, age, *_ = csv.reader((later / "table1.csv").read_text().splitlines())
    assert [cell.partition(" (")[0] for cell in head[1:4]] == ["Old", "Young", "C"]
    assert age[0] == "Age, years, mean ± SD"
    again = json.loads(ran("compare-runs", run, later, "--json").output)
    assert {(m["old"], m["new"]) for m in again["matched"]} == {(0, 1), (1, 2), (2, 0)}
    assert max(m["distance"] for m in again["matched"]) < 0.5
    printed = ran("compare-runs", run, later).output
    assert "Clusters of the two runs" in printed


def test_a_cluster_without_a_counterpart_is_named(tmp_path):
    frame = patients()
    three, _ = fitted(tmp_path, "three", frame, "-k", "3")
    two, _ = fitted(tmp_path, "two", frame.drop(columns="smokes"), "-k", "2")
    found = json.loads(ran("compare-runs", three, two, "--json").output)
    assert (len(found["matched"]), len(found["only_old"]), found["only_new"]) == (2, 1, [])
    assert found["columns"] == ["age", "bmi"]
    assert "no counterpart" in ran("compare-runs", three, two).output
    other, _ = fitted(tmp_path, "other", frame[["site", "smokes", "died"]].assign(x=frame.bmi), "-k", "2")
    alone = ran("compare-runs", two, other)
    assert alone.exit_code == 1
    assert "no column in common" in alone.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[columns]\nheight = 'h'\n", "the run has no column height; it has age"),
        ("[clusters]\nD = 'h'\n", "the run has no cluster D; it has A, B, C"),
        ("[column]\nage = 'h'\n", "there is no section 'column'"),
        ("[columns]\nage = 3\n", "the name of age must be one line"),
        ("[columns]\nage = 'h'\nbmi = 'h'\n", "two columns have the same name"),
        ("columns = 3\n", "columns is a section"),
        ("age = ", "not a file of names"),
    ],
)
def test_a_wrong_file_of_names_is_one_clear_error(text, message, tmp_path):
    run, _ = fitted(tmp_path, "run", patients(), "-k", "3")
    names, before = tmp_path / "names.toml", {p: p.read_bytes() for p in run.iterdir()}
    names.write_text(text)
    done = ran("names", run, names)
    assert done.exit_code == 1
    assert message in " ".join(done.output.split())
    assert {p: p.read_bytes() for p in run.iterdir()} == before


def test_a_run_cannot_begin_with_names_of_clusters(tmp_path):
    names, file = tmp_path / "names.toml", tmp_path / "a.csv"
    names.write_text(NAMES)
    patients().to_csv(file, index=False)
    done = ran("fit", file, "--site-column", "site", "-k", "2", "--names", names, "-o", tmp_path / "run")
    assert done.exit_code == 1
    assert "a run has none before it ends" in " ".join(done.output.split())
    assert not (tmp_path / "run").exists()


def test_memberships_of_fuzzy_clusters_are_in_every_output(tmp_path):
    run, printed = fitted(tmp_path, "run", patients(), "-k", "3", "--method", "fuzzy")
    assert "borderline" in printed
    clusters = json.loads((run / "result.json").read_text())["clusters"]
    assert all(0 <= c["borderline_share"] <= 1 for c in clusters)
    ran("predict", run, tmp_path / "run.csv", "-o", tmp_path / "c.csv")
    table = pd.read_csv(tmp_path / "c.csv")
    shares = table[["membership_0", "membership_1", "membership_2"]].to_numpy()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-8)
    borderline = [(shares[shares.argmax(axis=1) == j].max(axis=1) < 0.6).mean() for j in range(3)]
    assert [c["borderline_share"] for c in clusters] == pytest.approx(borderline, abs=1e-9)
    ran("export", run, "--to", "json")
    assert json.loads((run / "model.json").read_text())["fuzzifier"] == 2.0
