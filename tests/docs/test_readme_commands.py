"""The README's commands, letter by letter: all that can run in one process run here, in their order."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pages import ROOT
from unpooled.app.cli import app

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = [
    line.partition("#")[0].strip()
    for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S)
    for line in block.splitlines()
]
INSTALLED = {"make demo", "make test", "pip install ."}  # the workflows run them
WAITING = {"unpooled site join north north.json", "unpooled site approve north"}
"""Commands that need a coordinator: tests between machines run them, and here they are parsed."""
STAYING = {"unpooled site review north"}  # until it is stopped


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for number, name in enumerate(("hospital-a.csv", "hospital-b.csv", "patients.csv")):
        ages = rng.choice([30, 70], 40) + rng.normal(0, 3, 40).round()
        rows = [f"P{number}-{i},{a:.0f},{rng.normal(130, 9):.0f}" for i, a in enumerate(ages)]
        rows = [f"{row},{'AB'[i % 2]}" for i, row in enumerate(rows)]
        Path(name).write_text("\n".join(["patient_id,age,pressure,diagnosis", *rows, ""]))
    return tmp_path


def served_until_stopped(words):
    """Run a command that serves a page: it prints the link, and ends without an error once it is stopped."""
    command = [sys.executable, "-m", "unpooled", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        try:
            printed = [running.stdout.readline() for _ in range(3)]
            assert "http://127.0.0.1:" in printed[1], printed
            assert "Ctrl-C closes the review page" in printed[2], printed
            running.send_signal(signal.SIGINT)
            assert running.wait() == 0
        finally:
            running.kill()


def test_the_readme_has_no_command_that_is_not_run():
    own = [line for line in LINES if line not in INSTALLED]
    assert all(line.startswith("unpooled ") for line in own), own
    assert set(LINES) >= INSTALLED | WAITING
    workflows = "".join(path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml"))
    for line in sorted(INSTALLED):
        assert line in workflows, line
    machines = "".join(path.read_text() for path in (ROOT / "tests/machines").glob("*.py"))
    for line in sorted(WAITING):
        _, group, command, *_ = line.split()
        assert f'"{group}", "{command}"' in machines, line


def test_the_commands_run_as_they_are_written(here):
    ran = []
    for line in LINES:
        if line in INSTALLED:
            continue
        words = [
            str(name)
            for word in shlex.split(line)[1:]
            for name in (sorted(path.name for path in here.glob(word)) if "*" in word else [word])
        ]
        if line in STAYING:
            served_until_stopped(words)
            ran.append(line)
            continue
        done = CliRunner().invoke(app, words, input="y\n")
        expected = 1 if line in WAITING else 0  # without a federation: one line, and not a wrong option (2)
        assert done.exit_code == expected, (line, done.output)
        assert expected == 0 or done.output.count("\n") == 1, (line, done.output)
        ran.append(line)
    assert len(ran) >= 6
    assert (here / "report.html").exists()
    assert (here / "run" / "model.unpooled").exists()
