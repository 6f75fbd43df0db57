"""The officer's tutorial as it is written: its commands run in their order; the run itself in one process.

The officer's page quotes the risks of the tutorial's first table.
"""

import re
import shlex
import subprocess

import pytest
from typer.testing import CliRunner

from pages import ROOT
from tutorials import example_risks, with_risks
from unpooled.algorithms import Lloyd
from unpooled.app.cli import app
from unpooled.data import PreparationOptions
from unpooled.evaluation import Analysis
from unpooled.federation import LocalFederation
from unpooled.privacy.presets import PRESETS
from unpooled.protocol.run_loop import run
from unpooled.site.open_site import open_site

PAGE = (ROOT / "docs" / "officer.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorials" / "officer.md").read_text(encoding="utf-8")
RELEASE = (ROOT / "docs" / "release.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", TUTORIAL, re.M | re.S)
CODES = ("--site-column", "site", "--exclude", "num,ca,thal", "--categorical", "cp,restecg,slope")


def call(words):
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def between_processes(here):
    """Make what the section on the run leaves behind: answers in the logs, and the folder of the run."""
    sites = [open_site(name, folder=here / name) for name in ("north", "south")]
    run(
        Analysis(PreparationOptions(), (Lloyd(k=2, max_rounds=1, n_starts=1),)),
        LocalFederation(sites),
        seed=0,
    )
    for site in sites:
        site.close()
    rows = (here / "heart_disease.csv").read_text().splitlines()
    some = [row for row in rows if row.startswith(("site", "cleveland", "hungarian"))]
    (here / "both.csv").write_text("\n".join(some) + "\n")
    call(
        [
            "fit",
            "both.csv",
            *CODES,
            "-k",
            "2",
            "--protect",
            "summary",
            "--min-group-size",
            "8",
            "--out",
            "run",
        ]
    )


def test_the_commands_run_as_they_are_written(here):
    commands = []
    for block in BLOCKS:
        if "unpooled federation serve" in block:
            between_processes(here)
            continue
        for line in block.splitlines():
            if line.startswith("awk"):
                subprocess.run(line, shell=True, check=True)
                continue
            program, *words = shlex.split(line)
            assert program == "unpooled"
            call(words)
            commands.append(" ".join(words[:2]))
    assert {"site review", "site approve", "site log", "site dpia", "release run"} <= set(commands)
    assert {"site summarize", "site erase"} <= set(commands)
    text = (here / "north" / "dpia.html").read_text()
    assert "approved by your name on" in text
    assert "1 person was erased" in text
    assert "The last update had 301 people in its file: still disclosed: " in text
    assert "opensafely" in (here / "release" / "context.txt").read_text()
    table = [line for line in RELEASE.splitlines() if line.startswith("| `")]
    files = re.findall(r"`(\w+\.(?:csv|svg|txt|json))`", "".join(table))
    assert len(files) == 9
    for name in files:
        assert (here / "release" / name).exists(), name


def test_the_officers_page_quotes_the_risks_of_the_first_table(here):
    assert with_risks(PAGE, example_risks()) == PAGE
    linked = re.search(r"^> Linkability: .* for (\d+)% .* and for (\d+)% ", PAGE, re.M)
    assert int(linked[1]) - int(linked[2]) > 5  # "High: by more, as here"


def test_the_commands_of_the_run_have_these_options(here):
    """Those that start processes: they are parsed, and stop where a file or a folder is missing."""
    block = next(block for block in BLOCKS if "unpooled federation serve" in block)
    lines = [line for line in block.splitlines() if line.startswith("unpooled ")]
    for line in sorted(lines, key=lambda line: "federation init" in line):  # the federation last: none runs
        _, *words = shlex.split(line.replace("> serve.log", "").removesuffix("&"))
        done = CliRunner().invoke(app, words)
        harmless = words[:2] == ["federation", "init"]
        assert done.exit_code == (0 if harmless else 1), line  # 2 would be a wrong option


def test_the_table_has_every_preset_and_its_number():
    for name, rule in PRESETS.items():
        row = next(line for line in RELEASE.splitlines() if line.startswith(f"| `{name}` |"))
        assert row.split("|")[2].strip() == (str(rule.min_people) if rule.min_people else "")
