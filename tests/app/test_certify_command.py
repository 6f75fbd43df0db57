"""``unpooled certify``: how far a run's clustering is from the best possible."""

import json
import re

import numpy as np
import pytest
from reproduction.dual_problems import dual_problem
from typer.testing import CliRunner

from unpooled.app.cli import app


def unpooled(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def run_on(folder, nodes, k, *options):
    files = []
    for name, rows in nodes.items():
        files.append(folder / f"{name}.csv")
        np.savetxt(files[-1], rows, delimiter=",", header="a,b", comments="")
    code, _, printed = unpooled(
        "fit", *files, "-k", k, "--min-cluster-size", 1, "--out", folder / "run", *options
    )
    assert code == 0, printed
    return folder / "run"


@pytest.fixture
def small(tmp_path):
    return run_on(tmp_path, dual_problem("2N2D3K1"), 3)


def test_a_small_run_is_proved(small):
    code, printed, _ = unpooled("certify", small)
    assert code == 0
    assert "k = 3, 30 rows at 2 sites" in printed
    assert "Proved: no 3 centres go below" in printed
    assert "No clustering into 3 groups can be more than" in printed
    assert "This clustering is within 0.01% of the best possible." in printed
    proof = json.loads(unpooled("certify", small, "--json")[1])
    assert proof["proved"]
    assert proof["gap"] <= 1e-4
    assert proof["lower_bound"] <= proof["inertia"] * (1 + 1e-9)


def test_a_larger_run_says_how_much_better_another_could_be(tmp_path):
    rng = np.random.default_rng(0)
    run = run_on(tmp_path, {s: rng.uniform(size=(150, 2)) for s in "ab"}, 4)
    code, printed, _ = unpooled("certify", run, "--effort", "quick")
    assert code == 0
    found = re.search(r"No clustering into 4 groups can be more than ([0-9.]+)% better\.", printed)
    assert found is not None
    assert 0.1 < float(found[1]) < 12
    assert "A tighter bound may be found with --effort thorough." in printed
    again = [json.loads(unpooled("certify", run, "--effort", "quick", "--json")[1]) for _ in range(2)]
    assert again[0]["lower_bound"] == again[1]["lower_bound"]  # every bit
    assert "effort must be one of" in unpooled("certify", run, "--effort", "long")[2]


@pytest.mark.parametrize("protect", ["none", "summary"])
def test_fit_puts_the_sentence_in_its_report(tmp_path, protect):
    rng = np.random.default_rng(1)
    rows = {s: rng.normal(size=(100, 2)) + 4 * rng.integers(3, size=(100, 1)) for s in "ab"}
    options = ("--protect", protect, "--certify", "quick", "--report", tmp_path / "page.html")
    run = run_on(tmp_path, rows, 3, *options)
    sentence = json.loads((run / "result.json").read_text())["certificate"]
    assert sentence.startswith("No clustering into 3 groups can be more than")
    assert sentence.endswith("not the rows behind them.") == (protect == "summary")
    for page in (run / "report.html", tmp_path / "page.html"):
        assert sentence.split("% better")[0] in page.read_text()
    assert sentence == json.loads(unpooled("certify", run, "--effort", "quick", "--json")[1])["sentence"]


def certificate_in(run):
    """The certificate as the files of a run tell it: the sentence, and the bound to the last bit."""
    printed = json.loads((run / "result.json").read_text())
    assert printed["certificate"].split("% better")[0] in (run / "report.html").read_text()
    return printed["certificate"], printed["lower_bound"]


def many(seed, n=150):
    rng = np.random.default_rng(seed)
    return {s: rng.normal(size=(n, 2)) + 4 * rng.integers(3, size=(n, 1)) for s in "abc"}


# of many rows, from parts in the run; of few, by prices after it; of raw rows, after it
WAYS = {
    "parts": (many(2), ("--certify", "quick")),
    "secure": (many(2), ("--certify", "quick", "--secure")),
    "prices": (dual_problem("2N2D3K1"), ("--certify", "normal", "--scale", "none")),
    "raw": (many(2), ("--certify", "quick", "--protect", "raw")),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_certificate_outlives_resume_and_report(tmp_path, way):
    rows, options = WAYS[way]
    run = run_on(tmp_path, rows, 3, *options)
    before = certificate_in(run)
    assert unpooled("export", "--to", "html", run, "-o", tmp_path / "again.html")[0] == 0
    assert before[0].split("% better")[0] in (tmp_path / "again.html").read_text()
    assert unpooled("resume", run)[0] == 0
    assert certificate_in(run) == before
    (run / "certificate").unlink(missing_ok=True)  # as if it had been killed before it was kept
    assert unpooled("resume", run)[0] == 0
    assert certificate_in(run) == before


def test_every_runtime_has_the_same_bound(tmp_path):
    found = {}
    for way in ("parts", "secure", "raw"):
        (tmp_path / way).mkdir()
        found[way] = certificate_in(run_on(tmp_path / way, WAYS[way][0], 3, *WAYS[way][1]))
    assert len({bound for _, bound in found.values()}) == 1


def test_another_run_in_the_folder_does_not_keep_the_certificate(tmp_path):
    run = run_on(tmp_path, *(WAYS["prices"][0], 3), *WAYS["prices"][1])
    assert (run / "certificate").exists()
    assert unpooled("fit", tmp_path / "node-1.csv", "-k", 3, "--out", run, "--overwrite")[0] == 0
    assert not (run / "certificate").exists()
    assert "certificate" not in json.loads((run / "result.json").read_text())


def test_no_certificate_is_no_reason_to_lose_a_clustering(tmp_path):
    """More columns than bounds are made in, and cells that stay missing: the run ends, and says why."""
    rng = np.random.default_rng(0)
    wide, missing = tmp_path / "wide.csv", tmp_path / "missing.csv"
    names = [f"c{j}" for j in range(65)]
    np.savetxt(wide, rng.normal(size=(30, 65)), delimiter=",", header=",".join(names), comments="")
    lines = [
        f"{x:.3f},{'' if i % 5 == 0 else f'{y:.3f}'}" for i, (x, y) in enumerate(rng.normal(size=(40, 2)))
    ]
    missing.write_text("a,b\n" + "\n".join(lines) + "\n")
    for file, why in (
        (wide, "65 columns: exact solving is out of reach beyond 64"),
        (missing, "kept missing values"),
    ):
        code, printed, _ = unpooled("fit", file, "-k", 2, "--certify", "quick", "--out", tmp_path / file.stem)
        assert code == 0
        assert why in " ".join(printed.split())
        result = json.loads((tmp_path / file.stem / "result.json").read_text())
        assert "certificate" not in result
        assert any(why in warning for warning in result["warnings"])


def test_fit_refuses_an_effort_that_there_is_not(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    code, _, printed = unpooled(
        "fit", tmp_path / "a.csv", "-k", 1, "--certify", "yes", "--out", tmp_path / "run"
    )
    assert code == 1
    assert "--certify must be one of quick, normal, thorough, got 'yes'" in printed
    assert not (tmp_path / "run").exists()


def test_better_centres_are_not_taken_for_the_given_ones(tmp_path):
    """A one-shot method leaves room; the search finds better centres, and says of which it speaks."""
    rng = np.random.default_rng(3)
    run = run_on(tmp_path, {s: rng.uniform(size=(10, 2)) for s in "ab"}, 3, "--method", "k-fed")
    printed = unpooled("certify", run)[1]
    assert "The search found better centres, of inertia" in printed
    proof = json.loads(unpooled("certify", run, "--json")[1])
    assert proof["proved"]
    assert proof["gap"] <= 1e-4 < 1e-3 < proof["input_gap"]
    assert proof["inertia"] < proof["input_inertia"]


def test_a_changed_file_and_a_missing_run_are_refused(small, tmp_path):
    assert "no such folder" in unpooled("certify", tmp_path / "nowhere")[2]
    with (tmp_path / "node-1.csv").open("a") as file:
        file.write("0,0\n")
    code, _, printed = unpooled("certify", small)
    assert code == 1
    assert "was changed since the run began" in printed
