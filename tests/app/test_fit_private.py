"""``unpooled fit --epsilon``: files to a folder with noise on everything; what is not covered is refused."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.app.job import Job, RemoteRunOptions
from unpooled.app.propose_study import propose_study
from unpooled.app.run_folder import RunFolder
from unpooled.data import PreparationOptions

BOUNDS = ("--bounds", "age=0:110", "--bounds", "bmi=10:80")


def unpooled(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def clinics(tmp_path):
    """Two files with three clusters, a column of text, and missing ages."""
    rng = np.random.default_rng(0)
    paths = []
    for name in "ab":
        label = rng.integers(3, size=5000)
        age = np.array([30, 50, 70])[label] + rng.normal(0, 4, 5000)
        bmi = np.array([22, 35, 26])[label] + rng.normal(0, 2, 5000)
        lines = [
            f"{'' if i % 500 == 0 else f'{a:.1f}'},{b:.2f},p{i}"
            for i, (a, b) in enumerate(zip(age, bmi, strict=True))
        ]
        paths.append(tmp_path / f"{name}.csv")
        paths[-1].write_text("age,bmi,id\n" + "\n".join(lines) + "\n")
    return paths


def test_a_site_that_is_left_out_is_in_the_result(clinics, tmp_path):
    (tmp_path / "c.csv").write_text("age,bmi,id\n")
    code, out, err = unpooled("fit", *clinics, tmp_path / "c.csv", "-k", 3, "--epsilon", 1, *BOUNDS, "--json")
    assert code == 0, err
    assert json.loads(out)["left_out"] == [{"site": "c", "why": "no rows under the header of its file"}]


@pytest.mark.parametrize(
    "more", [(), ("--scale", "min-max"), ("--scale", "none", "--missing", "drop"), ("--method", "fuzzy")]
)
def test_clusters_of_files(clinics, tmp_path, more):
    folder = tmp_path / "run"
    code, out, err = unpooled("fit", *clinics, "-k", 3, "--epsilon", 1, *BOUNDS, "--out", folder, *more)
    assert (code, err) == (0, "")
    assert "(1, 1e-06)-differential privacy" in " ".join(out.split())
    printed = json.loads((folder / "result.json").read_text())
    found = np.sort([c["center"]["age"] for c in printed["clusters"]])
    assert found == pytest.approx([30, 50, 70], abs=2)
    assert printed["epsilon"] == pytest.approx(1, rel=1e-6)
    assert not (folder / "report.html").exists()
    code, out, _ = unpooled("predict", folder, clinics[0], "-o", tmp_path / "labels.csv")
    assert code == 0
    labels = np.genfromtxt(tmp_path / "labels.csv", delimiter=",", skip_header=1, usecols=1)
    ages = np.genfromtxt(clinics[0], delimiter=",", skip_header=1, usecols=0)
    near = [np.nanmean(ages[labels == j]) for j in (0, 1, 2)]
    assert np.sort(near) == pytest.approx([30, 50, 70], abs=3)


def test_resume_shows_the_same_and_pays_nothing(clinics, tmp_path):
    folder = tmp_path / "run"
    unpooled("fit", *clinics, "-k", 3, "--epsilon", 1, *BOUNDS, "--out", folder)
    before = (folder / "result.json").read_bytes()
    assert unpooled("resume", folder)[0] == 0
    assert (folder / "result.json").read_bytes() == before
    code, _, err = unpooled("export", "--to", "html", folder)
    assert code != 0
    assert "a private run has no report" in err
    assert "--epsilon 1.0" in RunFolder(folder).load_job().command()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--epsilon needs the bounds of every column"),
        (("--bounds", "0:1"), "Name them with --columns"),
        (("--bounds", "age=9:1"), "bounds of age must be two rising numbers"),
        (("--bounds", "age=0:110", "--columns", "age,bmi"), "In one only: bmi"),
        ((*BOUNDS, "--categorical", "bmi"), "the list of categories would be learnt from rows"),
        ((*BOUNDS, "--missing", "refuse"), "would disclose whether a value is missing"),
        ((*BOUNDS, "-k", "2..4"), "Give one k"),
        ((*BOUNDS, "--method", "dwf"), "--method lloyd or fuzzy"),
        ((*BOUNDS, "--report", "r.html"), "--report needs sums without noise"),
        ((*BOUNDS, "--delta", "0"), "delta must be"),
        ((*BOUNDS, "--rows", "100"), "would obscure"),
        ((*BOUNDS, "--sites-per-person", "0"), "sites_per_person must be a whole number >= 1"),
        ((*BOUNDS, "--bounds", "id=0:1"), "id"),
        ((*BOUNDS, "--bounds", "height=0:3"), "height"),
    ],
)
def test_one_line_for_every_mistake(clinics, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    code, out, err = unpooled("fit", *clinics, "-k", 3, "--epsilon", 1, "--out", "run", *words)
    assert code != 0
    assert says in " ".join(err.split())
    assert out == ""
    assert not (tmp_path / "run").exists()


def test_people_at_two_files_are_protected_by_more_noise(clinics):
    words = ("fit", *clinics, "-k", 3, "--epsilon", 1, *BOUNDS)
    code, out, _ = unpooled(*words, "--sites-per-person", 2, "--json")
    assert code == 0
    printed = json.loads(out)
    assert "for each person, with one row at each of up to 2 sites" in printed["headline"]
    assert printed["sites_per_person"] == 2
    assert printed["epsilon"] == pytest.approx(1, rel=1e-6)
    alone = json.loads(unpooled(*words, "--json")[1])
    assert printed["expected_excess"] > alone["expected_excess"]
    code, _, err = unpooled("fit", *clinics, "-k", 3, "--sites-per-person", 2)
    assert code != 0
    assert "--sites-per-person is for differential privacy. Add --epsilon." in err


def test_the_study_and_the_command_of_a_job_state_the_sites_of_a_person(clinics):
    bounds = PreparationOptions(bounds=(("age", 0.0, 110.0), ("bmi", 10.0, 80.0)))
    remote = RemoteRunOptions("", "r", ("a", "b"), purpose="to find groups")
    job = Job((), (3,), epsilon=1.0, preparation_options=bounds, sites_per_person=2, remote=remote)
    assert propose_study(job)[0].sites_per_person == 2
    assert "--sites-per-person 2" in job.command()
    assert Job.from_json(job.to_json()).sites_per_person == 2


def test_bounds_from_a_policy(clinics, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('format = 1\n[domain]\ncolumns = ["age", "bmi"]\nlower = [0, 10]\nupper = [110, 80]\n')
    code, out, _ = unpooled("fit", *clinics, "-k", 3, "--epsilon", 1, "--bounds", policy, "--json")
    assert code == 0
    assert json.loads(out)["columns"] == ["age", "bmi"]
