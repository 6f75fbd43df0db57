"""Other systems: files, estimators and summary files run without what only Unix has; servers need Linux.

Windows is not here. Its Python is imitated as far as this package can see it: what only Unix has is
gone, ``sys.platform`` says win32, and ``msvcrt`` has a lock that is always free.
"""

import os
import subprocess
import sys

import pytest

IMITATED = """
import asyncio, concurrent.futures, multiprocessing, os, subprocess, sys, tempfile, types
import numpy, scipy.linalg, scipy.optimize, scipy.sparse, sklearn.cluster, sklearn.utils, clarabel
import rich.console, typer
import typer.testing, rich.progress, rich.table, joblib, urllib.request, ssl, uuid, sqlite3, aiohttp.web
import cryptography.hazmat.primitives.asymmetric.ed25519, cryptography.hazmat.primitives.ciphers.aead
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("writev", "pwrite", "pread", "getuid", "geteuid", "fork", "sched_getaffinity",
             "fchmod", "sysconf", "statvfs",
             "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY"):
    if hasattr(os, name):
        delattr(os, name)
os.O_BINARY = 0
sys.modules["msvcrt"] = types.SimpleNamespace(locking=lambda *_: None, LK_LOCK=1, LK_NBLCK=2)
sys.platform = "win32"
from typer.testing import CliRunner
def unpooled(*words):
    from unpooled.app.cli import app
    done = CliRunner().invoke(app, list(words))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output
"""


def on_windows(code: str, folder) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMITATED + code],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "UNPOOLED_KERNELS": "numpy"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_estimators_cluster_and_fit_run_elsewhere(tmp_path):
    code = """
from unpooled import FederatedKMeans, cluster
from unpooled.data.examples import load_penguins
p = load_penguins()
sites = {name: p.X[p.island == name] for name in sorted(set(p.island))}
for protect in (None, "summary"):
    model = FederatedKMeans(n_clusters=3, random_state=0, protect=protect).fit(p.X, sites=p.island)
    print(protect, model.cluster_centers_.shape)
for name, rows in sites.items():
    numpy.savetxt(f"{name}.csv", rows, delimiter=",", header="a,b,c,d", comments="")
print(cluster({name: f"{name}.csv" for name in sites}, n_clusters=3).k)
files = [f"{name}.csv" for name in sites]
code, output = unpooled("fit", *files, "-k", "3", "--out", "run", "--report", "report.html")
print(code, os.path.exists("report.html"))
from unpooled.data.readers import compressed
with open(files[0], "rb") as file:
    print(compressed._Again(file).read() == open(files[0], "rb").read())
print(unpooled("predict", "run", files[0], "--out", "labels.csv")[0], os.path.exists("labels.csv"))
"""
    assert on_windows(code, tmp_path).split("\n")[:6] == [
        "None (3, 4)",
        "summary (3, 4)",
        "3",
        "0 True",
        "True",
        "0 True",
    ]


@pytest.mark.parametrize(
    ("command", "subject"),
    [
        ("site join north heart.json", "site join"),
        ("federation serve f", "federation serve"),
        ("federation init f --name x --address x --site a", "federation init"),
        ("site status north", "site status"),
        ("site keys north", "site keys"),
        ("site backup north x.tar.gz", "site backup"),
        ("federation run f -k 3", "federation run"),
        ("release run --preset strict --out release", "release"),
        ("federation status f", "federation status"),
    ],
)
def test_what_serves_says_in_one_line_that_it_needs_linux(command, subject, monkeypatch, tmp_path):
    from typer.testing import CliRunner

    from unpooled.app.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 1, done.output
    assert done.stderr == (
        f"unpooled: unpooled {subject} needs Linux, and this is darwin. Files (unpooled fit), summary files "
        "(unpooled site export), unpooled.cluster and the estimators run here.\n"
    )
    assert not list(tmp_path.iterdir())


BY_EMAIL = """
def ok(*words):
    code, output = unpooled(*words)
    assert code == 0, output
    return output
ok("federation", "key", "heart")
study = 'title = "T"\\r\\npurpose = "P"\\r\\ncontact = "C"\\r\\nexpires = 2999-01-01\\r\\n'
with open("study.toml", "wb") as file:
    file.write(b"\\xef\\xbb\\xbf" + study.encode())
rng = numpy.random.default_rng(0)
for site in ("North", "south"):
    rows = rng.normal(0, 1, (40, 2)) + rng.integers(0, 2, (40, 1)) * 9
    with open(f"{site}.csv", "wb") as file:
        file.write("".join(["a,b\\r\\n", *(f"{x:.2f},{y:.2f}\\r\\n" for x, y in rows)]).encode())
    ok("site", "init", site)
    ok("site", "summarize", "--no-sensitive-columns", site, "--data", f"{site}.csv", "--one-row-per-person")
    ok("site", "review", site, "--text")
    ok("site", "approve", site, "--yes")
    ok("site", "export", site, "--recipient", "heart/heart-key.json", "--study", "study.toml",
       "-o", f"heart/{site}.UNPOOLED", "--yes")
    assert "left for heart" in " ".join(ok("site", "log", site).split())
    assert "intact" in ok("site", "log", site, "--verify")
    ok("site", "dpia", site)
    with open(f"{site}/log.jsonl", "rb") as file:
        assert b"\\r" not in file.read()
files = ["heart/North.UNPOOLED", "heart/south.UNPOOLED"]
ok("federation", "receive", "heart", *files, "--yes")
ok("fit", *files, "-k", "2", "--out", "run", "--report", "report.html")
ok("predict", "run", "North.csv", "--out", "labels.csv")
ok("export", "run", "--to", "json")
import unpooled.app.pages.listener, unpooled.app.pages.review_page
print("done")
"""


def test_a_federation_by_email_runs_elsewhere(tmp_path):
    """Text files have the line ends and the mark of editors on Windows, and names keep their case."""
    assert on_windows(BY_EMAIL, tmp_path).splitlines()[-1] == "done"


def test_a_site_is_opened_elsewhere(monkeypatch, tmp_path):
    from unpooled.site.open_site import open_site
    from unpooled.site.policy import parse

    monkeypatch.setattr(sys, "platform", "darwin")
    policy = parse(
        "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true"
    )
    site = open_site("north", {"age": list(range(9))}, policy, tmp_path)
    site.close()
    assert (tmp_path / "log.jsonl").read_bytes().endswith(b"}\n")
