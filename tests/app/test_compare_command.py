"""``unpooled compare`` on files: what it prints and writes, and how it fails."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import registered
from unpooled.app.cli import app

runner = CliRunner()


@pytest.fixture
def patients(tmp_path):
    rng = np.random.default_rng(1)
    kinds = np.repeat(["well", "ill"], 30)
    lines = [
        f"{'north' if i % 2 else 'south'},{rng.normal(9 * (kind == 'ill')):.3f},{rng.normal():.3f},{kind}"
        for i, kind in enumerate(kinds)
    ]
    path = tmp_path / "patients.csv"
    path.write_text("clinic,a,b,state\n" + "\n".join(lines) + "\n")
    return path


def compared(*words, env=None):
    return runner.invoke(app, ["compare", *map(str, words)], env={"COLUMNS": "220", **(env or {})})


def test_files_by_a_site_column(patients, tmp_path):
    out = tmp_path / "out"
    words = (patients, "-k", 2, "--site-column", "clinic", "--label", "state", "--out", out)
    done = compared(*words, "--method", "lloyd,k-fed", "--protect", "none,summary")
    assert done.exit_code == 0, done.output
    assert "60 rows, 2 columns, 2 sites, k = 2" in done.stdout
    assert "run 4 of 4, and the attack on it: k-fed, protection summary, seed 0\n" in done.stderr
    (printed,) = json.loads((out / "comparison.json").read_text())
    assert {(r["method"], r["protection"]) for r in printed["runs"]} == {
        (m, p) for m in ("lloyd", "k-fed") for p in ("none", "summary")
    }
    assert all(r["ari"] > 0.6 for r in printed["runs"])
    assert (out / "figure-1.svg").read_text().startswith("<svg")
    assert "figure-1.svg" in (out / "comparison.md").read_text()
    again = compared(*words, "--method", "lloyd", "--protect", "none")
    assert (again.exit_code, "Use --overwrite to replace it" in again.stderr) == (1, True)
    split = compared(
        *words, "--split", "dirichlet:.3", "--sites", 3, "--protect", "none", "--method", "lloyd",
        "--overwrite", "--json", "--runs", 2,
    )  # fmt: skip
    assert split.exit_code == 0, split.output
    (printed,) = json.loads(split.stdout)
    assert (printed["sites"], [r["seed"] for r in printed["runs"]]) == (3, [0, 1])


def test_a_method_of_your_own(patients, tmp_path):
    (tmp_path / "compare_methods.py").write_text(
        "from dataclasses import dataclass\n"
        "from unpooled.algorithms import Lloyd\n\n\n"
        "@dataclass(frozen=True, eq=False, kw_only=True)\n"
        'class Hasty(Lloyd, method="hasty", prefix="compare_methods"):\n'
        '    """Lloyd in a hurry."""\n\n'
        "    max_rounds: int = 2\n"
    )
    words = ("--site-column", "clinic", "--label", "state", "--module", "compare_methods")
    with registered(tmp_path, ["compare_methods"]):
        done = compared(
            patients,
            "-k",
            2,
            *words,
            "--method",
            "hasty",
            "--protect",
            "none,summary,raw",
            "--out",
            tmp_path / "o",
        )
    assert done.exit_code == 0, done.output
    (printed,) = json.loads((tmp_path / "o" / "comparison.json").read_text())
    assert [r["not_run"] for r in printed["runs"]] == [""] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "-k is missing. Set the number of clusters, such as -k 3."),
        (("-k", "2", "--suite", "shapes"), "give files or --suite, not both"),
        (("-k", "2", "--method", "best"), "--method must be one of lloyd, "),
        (("-k", "2", "--protect", "hope"), "--protect must be one of none, summary, raw, dp, got 'hope'"),
        (("-k", "2", "--runs", "0"), "--runs must be at least 1, got 0"),
        (
            ("-k", "2", "--data-folder", "."),
            "--data-folder is a folder with more sets for --suite images or debian; files takes none",
        ),
        (("-k", "2", "--split", "dirichlet"), "this split needs labels, and there are none"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(patients, tmp_path, words, message):
    done = compared(patients, *words, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_suite_by_name(patients, tmp_path):
    done = compared("--suite", "sounds", "--out", tmp_path / "out")
    assert "Use shapes, tabular, images, private, debian, or a folder of tables." in done.stderr
    assert "give files or --suite" in compared("--out", tmp_path / "out").stderr
    for words in (("--suite", "shapes"), (patients, "-k", 2)):
        done = compared(*words, "--data-folder", tmp_path, "--out", tmp_path / "out")
        assert "--data-folder is a folder with more sets for --suite images or debian" in done.stderr
        assert not (tmp_path / "out").exists()
    done = compared("--suite", "debian", "--data-folder", tmp_path, "--out", tmp_path / "out")
    assert (done.exit_code, "apt install r-cran-cluster r-cran-mass" in done.stderr) == (1, True)


def test_a_folder_is_a_suite_of_its_tables(patients, tmp_path):
    """Two sets: k is the number of labels, which differs; other files are not read."""
    sets, out = tmp_path / "sets", tmp_path / "out"
    sets.mkdir()
    lines = patients.read_text().splitlines()
    (sets / "two.csv").write_text(patients.read_text())
    (sets / "three.csv").write_text("\n".join([*lines, *(line[:-1] + "x" for line in lines[1:20])]) + "\n")
    (sets / "NOTES.md").write_text("about these sets")
    words = ("--suite", sets, "--method", "k-fed:published", "--protect", "none", "--out", out)
    done = compared(*words, "--label", "state", "--exclude", "clinic", "--sites", 2, "--split", "iid")
    assert done.exit_code == 0, done.output
    found = json.loads((out / "comparison.json").read_text())
    assert [(m["problem"], m["k"], m["rows"], m["sites"]) for m in found] == [
        ("three", 3, 79, 2),
        ("two", 2, 60, 2),
    ]
    assert [r["method"] for m in found for r in m["runs"]] == ["k-fed:published"] * 2
    done = compared(*words, "--label", "state", "--site-column", "clinic", "-k", 2, "--json", "--overwrite")
    assert [(m["k"], m["sites"]) for m in json.loads(done.stdout)] == [(2, 2), (2, 2)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--suite", "{here}"),
            "the number of clusters is not known. Give -k, or a column of labels with --label.",
        ),
        (("--suite", "{here}/none"), "none: there is no such folder"),
        (("--suite", "{here}/empty", "-k", "2"), "empty: no file is a table. Add files that end in .csv, "),
        (("--suite", "{here}", "--label", "kind"), "kind"),
        (
            ("--suite", "shapes", "-k", "2"),
            "-k is for files or a folder; the sets of --suite shapes",
        ),
        (("--suite", "{here}", "-k", "2", "--method", "lloyd:published"), "--method must be one of lloyd, "),
        (("--suite", "{here}", "-k", "2", "--out", "{here}"), "{here}"),
    ],
)
def test_errors_of_a_folder(patients, tmp_path, words, message):
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.iterdir())
    here = [word.replace("{here}", str(tmp_path)) for word in words]
    done = compared("--out", tmp_path / "out", *here)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
    assert message.replace("{here}", str(tmp_path)) in done.stderr
    assert sorted(tmp_path.iterdir()) == before
