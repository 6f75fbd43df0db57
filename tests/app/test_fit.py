"""``unpooled fit`` and ``resume``: from files to a folder, equal to pooling; one line for every mistake."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from sklearn.cluster import KMeans
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from unpooled.algorithms import METHODS, Lloyd
from unpooled.app.cli import app
from unpooled.app.run_folder import RunFolder
from unpooled.data import PreparationOptions
from unpooled.data.readers import Reading, read_sites
from unpooled.errors import ModelError
from unpooled.evaluation import Analysis
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol.run_loop import run_from_checkpoint

FILES = {
    "checkpoint",
    "history.csv",
    "job.json",
    "model.unpooled",
    "preparation.json",
    "report.html",
    "result.json",
}


def unpooled(*words):
    """Exit code, stdout and stderr of a command."""
    outcome = CliRunner().invoke(app, [str(word) for word in words])
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome.exit_code, outcome.stdout, outcome.stderr


@pytest.fixture
def clinics(tmp_path):
    """Three files with four clusters, and missing values."""
    rng = np.random.default_rng(1)
    centers = np.array([[0, 0, 0], [9, 0, 0], [0, 9, 3], [4, 4, 12]]) * [1, 10, 100]
    paths = []
    for name, n in (("a", 120), ("b", 200), ("c", 90)):
        X = centers[rng.integers(4, size=n)] + rng.standard_normal((n, 3)) * [1, 10, 100]
        X[rng.random(X.shape) < 0.03] = np.nan
        path = tmp_path / f"{name}.csv"
        cells = [["" if np.isnan(v) else repr(float(v)) for v in row] for row in X]
        path.write_text("x,y,z\n" + "\n".join(map(",".join, cells)) + "\n", encoding="utf-8")
        paths.append(path)
    return paths


def pooled_rows(paths):
    return np.concatenate([np.genfromtxt(path, delimiter=",", skip_header=1) for path in paths])


# ---------------------------------------------------------------- what it makes


def test_one_command_makes_the_folder_and_the_report(clinics, tmp_path):
    code, out, err = unpooled(
        "fit", *clinics, "-k", 4, "--out", tmp_path / "run", "--report", tmp_path / "r.html"
    )
    assert (code, err) == (0, "")
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES
    assert "410 rows at 3 sites fall into 4 clusters" in " ".join(out.split())
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))["k"] == 4


def test_json_is_all_that_is_printed(clinics):
    code, out, err = unpooled("fit", *clinics, "-k", "2..6", "--json")
    printed = json.loads(out)
    assert (code, err, printed["k"], printed["no_clusters"]) == (0, "", 4, False)
    assert [site["site"] for site in printed["sites"]] == ["a", "b", "c"]
    assert sum(cluster["rows"] for cluster in printed["clusters"]) + printed["rows_suppressed"] == 410


def test_timings_name_every_phase_and_leave_the_result_alone(clinics, tmp_path):
    plain = unpooled("fit", *clinics, "-k", "2..4", "--json")[1]
    report = tmp_path / "r.html"
    _, out, err = unpooled("fit", *clinics, "-k", "2..4", "--json", "--timings", "--report", report)
    assert out == plain
    rows = re.findall(r"│ ([a-z ]+?) +│ +([0-9.]+) │", err)
    names = ["reading", "columns and starts", "rounds", "choice of k", "description", "result", "files"]
    assert [name for name, _ in rows] == [*names, "report", "all"]
    seconds = [float(took) for _, took in rows]
    assert sum(seconds[:-1]) == pytest.approx(seconds[-1], abs=0.005)
    assert min(seconds) >= 0 < seconds[0]


def test_the_same_seed_gives_the_same_result_and_threads_do_not_matter(clinics):
    once, again = (unpooled("fit", *clinics, "-k", 3, "--json", "--threads", t)[1] for t in (1, 2))
    assert once == again


@pytest.mark.parametrize("method", [name for name in METHODS if name != "dual"])
@pytest.mark.parametrize("protect", ["none", "summary", "raw"])
def test_every_method_runs_on_files_under_every_protection(clinics, method, protect):
    """With a scan of k; ``dual`` alone does not run where sites answer from raw rows, see below."""
    words = ["-k", "3,4", "--method", method, "--restarts", 2, "--protect", protect, "--json"]
    code, out, _ = unpooled("fit", *clinics, *words)
    printed = json.loads(out)
    assert (code, printed["method"], printed["protect"]) == (0, method, protect)
    assert {site["protection"] for site in printed["sites"]} == {protect}


@pytest.mark.parametrize("protect", ["none", "summary"])
def test_dual_runs_where_nothing_is_suppressed(clinics, protect):
    words = ["-k", "2", "--method", "dual", "--max-rounds", 2, "--protect", protect, "--json"]
    code, out, _ = unpooled("fit", *clinics, *words)
    assert (code, json.loads(out)["method"]) == (0, "dual")


def test_dual_on_raw_sites_names_what_it_lacks(clinics):
    """Sites that hide small groups hide their columns' ranges too, and a proof needs these."""
    code, out, err = unpooled("fit", *clinics, "-k", "3", "--method", "dual", "--protect", "raw")
    assert (code, out) == (1, "")
    assert "do not disclose the range of their columns" in err
    assert err.count("\n") == 1


def test_the_command_in_the_report_does_the_same_job(clinics, tmp_path):
    words = ["--exclude", "z", "--missing", "drop", "--seed", 3, "--restarts", 2, "--na", "x=0"]
    words += ["--scale", "min-max", "--bounds", "x=-50:50", "--bounds", "y=-500:500"]
    code, out, _ = unpooled("fit", *clinics, "-k", "2..4", *words, "--json", "--out", tmp_path / "run")
    assert code == 0
    again = shlex.split(RunFolder(tmp_path / "run").load_job().command())
    assert unpooled(*again[1:], "--json")[1] == out


def test_a_pattern_that_the_shell_left_alone(clinics, tmp_path):
    assert unpooled("fit", tmp_path / "*.csv", "-k", 2)[0] == 0


# ---------------------------------------------------------------- equal to pooling


def pipeline(X, k, **settings):
    return make_pipeline(SimpleImputer(), StandardScaler(), KMeans(k, **settings)).fit(X)


@pytest.mark.parametrize("k", [2, 4, 7])
def test_own_starts_reach_the_inertia_of_scikit_learns_pipeline(clinics, k):
    theirs = pipeline(pooled_rows(clinics), k, n_init=10, random_state=0)[-1].inertia_
    _, out, _ = unpooled("fit", *clinics, "-k", k, "--min-cluster-size", 1, "--json")
    ours = json.loads(out)["scores"][0]["inertia"]
    assert ours <= 1.005 * theirs


def test_from_the_same_start_the_centres_are_those_of_the_pooled_pipeline(clinics):
    X = pooled_rows(clinics)
    prepared = make_pipeline(SimpleImputer(), StandardScaler()).fit_transform(X)
    init = prepared[:4]
    theirs = KMeans(4, init=init, n_init=1, tol=0.0, max_iter=500).fit(prepared)
    job = Analysis(PreparationOptions(), (Lloyd(k=4, init=init, n_starts=1, tol=0.0, max_rounds=500),))
    ours = run(job, Simulation.from_rows(read_sites(clinics, Reading()))).state
    np.testing.assert_allclose(ours.chosen.centers, theirs.cluster_centers_, rtol=1e-9, atol=1e-9)
    assert ours.choice.scores[0].inertia == pytest.approx(theirs.inertia_, rel=1e-9)


def test_with_categories_too(tmp_path):
    rng = np.random.default_rng(3)
    label = rng.integers(3, size=300)
    x = np.array([0.0, 5.0, 10.0])[label] + rng.standard_normal(300)
    c = np.where(rng.random(300) < 0.8, np.array(["u", "v", "w"])[label], "u")
    for i, name in enumerate("pq"):
        rows = "".join(f"{a!r},{b}\n" for a, b in zip(x[i::2].tolist(), c[i::2], strict=True))
        (tmp_path / f"{name}.csv").write_text("x,c\n" + rows, encoding="utf-8")
    order = np.concatenate([np.arange(300)[i::2] for i in range(2)])
    hot = (c[order, None] == np.array(["u", "v", "w"])).astype(float)
    prepared = np.column_stack(
        [StandardScaler().fit_transform(x[order, None]), hot / np.sqrt(hot.var(axis=0).sum())]
    )
    theirs = KMeans(3, n_init=10, random_state=0).fit(prepared).inertia_
    _, out, _ = unpooled(
        "fit", tmp_path / "p.csv", tmp_path / "q.csv", "-k", 3, "--min-cluster-size", 1, "--json"
    )
    assert json.loads(out)["scores"][0]["inertia"] <= 1.005 * theirs


def test_parquet_and_csv_give_the_same_result(clinics):
    parquets = []
    for path in clinics:
        X = np.genfromtxt(path, delimiter=",", skip_header=1)
        columns = {n: pyarrow.array(X[:, j], from_pandas=True) for j, n in enumerate("xyz")}
        parquets.append(path.with_suffix(".parquet"))
        pyarrow.parquet.write_table(pyarrow.table(columns), parquets[-1])
    one, two = (json.loads(unpooled("fit", *some, "-k", "2..4", "--json")[1]) for some in (clinics, parquets))
    assert one == two


# ---------------------------------------------------------------- larger than memory


def test_data_larger_than_memory_gives_the_same_result(tmp_path):
    """A run that may hold a fraction of the rows in memory, and one that may hold all."""
    rng = np.random.default_rng(0)
    for name, rows in (("small-a", 50), ("small-b", 50), ("a", 300_000), ("b", 300_000)):
        X = rng.normal(size=(rows, 16)) + 3 * rng.integers(2, size=(rows, 1))
        np.save(tmp_path / f"{name}.npy", X)
    code = (
        "import contextlib, io, resource, sys\n"
        "from unpooled.app.cli import app\n"
        "more, options = int(sys.argv[1]), sys.argv[2:]\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"  # a first run loads the modules that a run needs
        "    app(['fit', 'small-a.npy', 'small-b.npy', *options], standalone_mode=False)\n"
        "status = open('/proc/self/status').read()\n"
        "held = int(status.split('VmData:')[1].split()[0]) << 10\n"
        "more and resource.setrlimit(resource.RLIMIT_DATA, (held + more, held + more))\n"
        "app(['fit', 'a.npy', 'b.npy', *options])\n"
    )
    options = ("-k", "2", "--restarts", "2", "--threads", "1", "--json")
    found = []
    for limit, memory in ((0, ""), (45 << 20, "1")):  # the rows are 77 MB, and at most 47 MB more may be had
        env = {**os.environ, "UNPOOLED_MEMORY": memory, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code, str(limit), *options],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]


# ---------------------------------------------------------------- killed and resumed


@pytest.fixture
def slow(tmp_path):
    """Rows without clusters, on which k-means takes many rounds."""
    rng = np.random.default_rng(0)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", rng.uniform(size=(20_000, 4)))
    return [tmp_path / "a.npy", tmp_path / "b.npy"]


STRUCK = """
import os, signal, sys
number, when, left = getattr(signal, sys.argv.pop(1)), sys.argv.pop(1), int(sys.argv.pop(1))
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
replace = os.replace
def struck(source, target):
    global left
    left -= os.path.basename(target) == "checkpoint"
    if left == 0 and when == "before":
        os.kill(os.getpid(), number)
    replace(source, target)
    if left == 0 and when == "after":
        os.kill(os.getpid(), number)
os.replace = struck
from unpooled.app.cli import app
app()
"""


def struck(number, when, count, *words):
    """A command that gets a signal just before or after it replaces the checkpoint for the nth time."""
    words = [sys.executable, "-c", STRUCK, number, when, str(count), *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True)


def test_killed_again_and_again_and_resumed_it_ends_as_if_it_never_had_been(slow, tmp_path):
    words = ["fit", *slow, "-k", "9,10", "--out"]
    assert unpooled(*words, tmp_path / "whole")[0] == 0
    words.append(tmp_path / "run")
    folder, rounds = RunFolder(tmp_path / "run"), []
    for when, count in (("after", 1), ("before", 4), ("after", 2)):
        assert struck("SIGKILL", when, count, *words).returncode == -signal.SIGKILL
        assert not folder.result.exists()
        rounds.append(run_from_checkpoint(folder.checkpoint, folder.load_job().algorithm).rounds)
        words = ["resume", tmp_path / "run"]
    assert rounds == [0, 3, 5]
    code, _, err = unpooled("predict", tmp_path / "run", slow[0], "-o", tmp_path / "labels.csv")
    assert (code, "unpooled resume" in err) == (1, True)
    assert unpooled("resume", tmp_path / "run")[0] == 0
    for name in ("result.json", "model.unpooled", "preparation.json", "history.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES


def test_a_file_changed_in_between_is_noticed(clinics, tmp_path):
    assert unpooled("fit", *clinics, "-k", 2, "--out", tmp_path / "run")[0] == 0
    clinics[0].write_text(clinics[0].read_text(encoding="utf-8") + "1,2,3\n", encoding="utf-8")
    code, _, err = unpooled("resume", tmp_path / "run")
    assert (code, "was changed since the run began" in err) == (1, True)


def test_stopped_by_hand_it_says_how_to_go_on(slow, tmp_path):
    done = struck("SIGINT", "after", 2, "fit", *slow, "-k", "9,10", "--out", tmp_path / "run")
    assert done.returncode != 0
    assert f"Continue the run with unpooled resume {tmp_path / 'run'}." in done.stderr


def test_one_live_line_on_a_terminal(slow, tmp_path):
    """Round, movement, inertia and sites answering, to the terminal; the result goes to stdout."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "unpooled", "fit", *map(str, slow), "-k", "8..12"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    command += ["--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=env)
    os.close(theirs)
    screen = b""
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while data := os.read(ours, 65536):
            screen += data
    os.close(ours)
    out = process.communicate()[0]
    assert process.returncode == 0
    assert re.search(r"round \d+ · movement \S+ · inertia \S+ · 2 of 2 sites answered", screen.decode())
    assert "40,000 rows at 2 sites are described as one group" in " ".join(out.decode().split())


# ---------------------------------------------------------------- mistakes


def mistakes(folder):
    def put(name, text):
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    good = put("good.csv", "x,y\n" + "".join(f"{i},{i % 7}\n" for i in range(40)))
    other = put("other.csv", "u,v\n" + "".join(f"{i},{i % 7}\n" for i in range(40)))
    text = put("text.csv", "x,y\n" + "1,2\n" * 30 + "3,oops\n")
    lone = put("lone.csv", "x,y\n" + "1,\n2,\n3,\n" * 10)
    return [
        ([folder / "gone.csv", "-k", 2], "gone.csv: no such file"),
        ([folder / "no*.csv", "-k", 2], "no file matches"),
        ([put("empty.csv", ""), "-k", 2], "empty.csv: the file is empty"),
        ([put("ragged.csv", "x,y\n1,2\n3\n"), "-k", 2], "ragged.csv, line 3: 1 fields"),
        ([good, "-k", 2, "--delimiter", ";"], "one column when split at ';'"),
        ([text, "-k", 2], "text.csv, line 32, column y: text in a column of numbers: 'oops'"),
        ([good, other, "-k", 2], "columns differ between sites"),
        ([good, other, "-k", 2, "--columns", "common"], "no column is common to all 2 sites"),
        ([lone, "-k", 2, "--columns", "x,y"], "column y has no value at any site"),
        ([good, "-k", 2, "--columns", "x,zz"], "no file has a column zz"),
        ([good, "-k", 41], "k=41 clusters from 40 rows"),
        ([good, "-k", 0], "k must be at least 1"),
        ([good, "-k", "five"], "k must be a number"),
        ([good, "-k", "5..2"], "k must be at least 1, each k once, and a range must increase"),
        ([good, "-k", 2, "--report", folder / "nowhere" / "r.html"], "there is no folder"),
        ([good, "-k", 2, "--report", folder], "there is a folder of that name"),
        ([good, "-k", 2, "--method", "kmeans"], "method must be one of"),
        ([good, "-k", 2, "--scale", "cube"], "scale must be one of"),
        ([good, "-k", 2, "--scale", "min-max"], "min-max needs declared bounds"),
        ([good, "-k", 2, "--bounds", "x=1"], "--bounds must have the form column=low:high"),
        ([good, "-k", 2, "--site-column", "zz"], "no column zz"),
        ([good, good, "-k", 2], "is given twice"),
        ([text, "-k", 2, "--out", good], "there is a file of that name"),
        ([good, "-k", 2, "--out", folder], "is not empty, and not the folder of a run"),
        ([lone, "-k", 2, "--missing", "drop"], "no column is left"),
        ([good, "-k", 2, "--exclude", "x", "--outcomes", "x"], "--exclude and --outcomes both name x"),
    ]


@pytest.mark.parametrize("number", range(26))
def test_a_mistake_is_one_line_and_leaves_nothing_behind(tmp_path, number):
    words, says = mistakes(tmp_path)[number]
    before = sorted(tmp_path.rglob("*"))
    words = [*words] if "--out" in words else [*words, "--out", tmp_path / "run"]
    code, out, err = unpooled("fit", *words)
    if number == 24:
        assert code == 0  # y is empty everywhere: left out by name, and x is complete
        return
    assert (code, out) == (1, "")
    assert says in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("unpooled: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_differences_between_sites_are_one_line(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("x,z\n1,2\n3,4\n", encoding="utf-8")
    _, _, err = unpooled("fit", tmp_path / "a.csv", tmp_path / "b.csv", "-k", 2)
    assert err == (
        "unpooled: columns differ between sites: a lacks z; b lacks y; --columns common takes the 1 that all "
        "have, --columns any takes all\n"
    )


def test_a_folder_that_cannot_be_written(clinics, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):  # root may write anywhere, but not into this one
        locked = Path("/proc/self")
    for option, name in (("--report", "r.html"), ("--out", "run")):
        code, out, err = unpooled("fit", *clinics, "-k", 2, option, locked / name)
        assert (code, out, "cannot be written" in err) == (1, "", True)


def test_a_run_is_not_overwritten_by_accident(clinics, tmp_path):
    words = ["fit", *clinics, "-k", 2, "--out", tmp_path / "run"]
    assert unpooled(*words)[0] == 0
    code, _, err = unpooled(*words)
    assert (code, "holds a finished run" in err) == (1, True)
    assert unpooled(*words, "--overwrite")[0] == 0


def test_a_warning_names_site_and_column(tmp_path):
    rng = np.random.default_rng(0)
    for name, unit in (("a", 1.0), ("b", 1.0), ("c", 0.01)):
        X = np.column_stack([unit * rng.normal(170, 8, 50), rng.normal(size=50)])
        rows = "".join(f"{v!r},{w!r}\n" for v, w in X.tolist())
        (tmp_path / f"{name}.csv").write_text("height,w\n" + rows, encoding="utf-8")
    _, out, _ = unpooled("fit", tmp_path / "*.csv", "-k", 2)
    assert "warning: height at c: values about 100 times smaller than elsewhere" in " ".join(out.split())


def test_fuzzy_clusters_and_the_rows_between_them(tmp_path):
    """Two clusters far apart and a bridge between them: the bridge is borderline, and the report says so."""
    rng = np.random.default_rng(0)
    for site in "ab":
        ends = rng.normal(size=(60, 2)) * 0.3 + np.repeat([[0.0, 0.0], [10.0, 0.0]], 30, axis=0)
        bridge = np.column_stack([rng.uniform(4.4, 5.6, 20), rng.normal(size=20)])
        table = "\n".join(f"{x},{y}" for x, y in np.concatenate([ends, bridge]))
        (tmp_path / f"{site}.csv").write_text("x,y\n" + table + "\n")
    page = tmp_path / "r.html"
    files = [str(tmp_path / f"{site}.csv") for site in "ab"]
    done = CliRunner().invoke(app, ["fit", *files, "-k", "2", "--method", "fuzzy", "--report", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "Borderline rows" in text
    shares = re.findall(r"(\d+)%</td>", text.partition("Borderline rows")[2].partition("</table>")[0])
    assert len(shares) == 4
    assert all(10 <= int(share) <= 40 for share in shares)


def test_fuzzy_centres_that_fell_together_are_a_warning(tmp_path):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 30))
    names = ",".join(f"c{i}" for i in range(30))
    (tmp_path / "a.csv").write_text(names + "\n" + "\n".join(",".join(map(str, r)) for r in rows) + "\n")
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "a.csv"), "-k", "3", "--method", "fuzzy"])
    assert done.exit_code == 0
    assert "every row is borderline" in done.output.replace("\n", " ")


def test_a_hostile_site_is_named_by_the_robust_method(tmp_path):
    rng = np.random.default_rng(2)
    for i in range(6):
        rows = rng.normal(size=(80, 2)) + 8 * rng.integers(2, size=(80, 1)) + (4.0 if i == 3 else 0.0)
        table = "\n".join(f"{x},{y}" for x, y in rows)
        (tmp_path / f"s{i}.csv").write_text("x,y\n" + table + "\n")
    files = [str(tmp_path / f"s{i}.csv") for i in range(6)]
    done = CliRunner().invoke(app, ["fit", *files, "-k", "2", "--method", "robust", "--restarts", "1"])
    assert done.exit_code == 0, done.output
    assert "warning: s3: sums far from those of all other sites" in done.output


def test_sites_are_listed_in_natural_order(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"site-{i}" for i in range(1, 12)]
    for i, name in enumerate(names):
        rows = rng.normal(size=(i + 3, 2)) + 9 * (np.arange(i + 3) % 2)[:, None]
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"{a:.3f},{b:.3f}\n" for a, b in rows))
    files = [str(tmp_path / f"{name}.csv") for name in names]
    result = json.loads(CliRunner().invoke(app, ["fit", *files, "-k", "2", "--json"]).stdout)
    assert [site["site"] for site in result["sites"]] == names
    assert [site["rows"] for site in result["sites"]] == list(range(3, 14))
    assert [*result["clusters"][0]["rows_by_site"]] == names
    both = [sum(cluster["rows_by_site"][name] for cluster in result["clusters"]) for name in names]
    assert both == list(range(3, 14))


def test_a_site_that_is_left_out_is_in_the_result_with_the_reason(tmp_path):
    rng = np.random.default_rng(0)
    for name, n in (("north", 60), ("south", 60), ("west", 3)):
        rows = rng.normal(size=(n, 2)) + 9 * (np.arange(n) % 2)[:, None]
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"{a:.3f},{b:.3f}\n" for a, b in rows))
    (tmp_path / "east.csv").write_text("x,y\n")
    files = [str(tmp_path / f"{name}.csv") for name in ("east", "north", "south", "west")]
    words = ["fit", *files, "-k", "2", "--protect", "summary", "--json", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, words)
    left = json.loads(done.stdout)["left_out"]
    assert [one["site"] for one in left] == ["east", "west"]
    assert "no rows" in left[0]["why"]
    assert "fewer than 5 people" in left[1]["why"]
    kept = RunFolder(tmp_path / "run").load_result()  # also when the report is made again
    assert kept.left_out == left
    assert "east is left out" in done.stderr


def test_facts_that_a_run_learns_are_in_its_result_and_its_job_is_what_was_asked_for(tmp_path):
    rows = "".join(f"{i % 3 * 9 + i / 10},{i}\n" for i in range(7))
    (tmp_path / "north.csv").write_text("x,y\n" + rows + ",\n,\n")
    (tmp_path / "east.csv").write_text("x,y\n")
    files = [str(tmp_path / f"{name}.csv") for name in ("east", "north")]
    done = CliRunner().invoke(app, ["fit", *files, "-k", "auto", "--json", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.stderr
    assert "k is compared from 1 to 7 only: there are 7 rows" in done.stderr
    assert json.loads(done.stdout)["reading"] == {
        "left_out": {"east": "no rows under the header of its file"},
        "blank_rows": {"north": 2},
        "ks": [1, 2, 3, 4, 5, 6, 7],
    }
    folder = RunFolder(tmp_path / "run")
    assert "-k auto" in folder.load_job().command()
    assert not {"absent", "blank", "left_out"} & set(json.loads(folder.job.read_text())["job"])
    kept = folder.load_result()
    assert kept.ks == (1, 2, 3, 4, 5, 6, 7)
    assert kept.to_dict() == json.loads(done.stdout)
    folder.result.unlink()
    with pytest.raises(ModelError, match="Continue it with unpooled resume"):
        folder.load_result()
    before = folder.report.read_bytes()
    assert CliRunner().invoke(app, ["resume", str(tmp_path / "run")]).exit_code == 0
    assert folder.report.read_bytes() == before
    assert folder.load_result().to_dict() == json.loads(done.stdout)
