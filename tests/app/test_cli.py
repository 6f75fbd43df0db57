"""The command line: what it prints, and how it fails."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from unpooled import __version__
from unpooled.algorithms.registry import citation, list_methods
from unpooled.app.cli import app
from unpooled.errors import InputError

runner = CliRunner()
ANALYSE = ["fit", "predict", "export", "certify", "resume", "release"]
COMMANDS = [*ANALYSE, "site", "federation", "compare", "methods", "example"]


def test_help_names_the_commands():
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    panels = ("Analyse", "Site", "Coordinate", "Research")
    titles = [
        word for line in result.stdout.splitlines() for word in panels if line.startswith(f"╭─ {word} ─")
    ]
    assert titles == list(panels)
    assert re.findall(r"^│ ([a-z]+) ", result.stdout, re.M) == COMMANDS


def test_version():
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"unpooled {__version__}\n")


def test_methods_lists_every_method_and_its_paper():
    result = runner.invoke(app, ["methods"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for entry in list_methods():
        assert entry.method in result.stdout
        assert entry.citation in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [["no-such-command"], ["example", "penguins", "--run", "--no-such-option"], ["methods", "too", "many"]],
)
def test_wrong_usage_is_exit_code_2(arguments):
    assert runner.invoke(app, arguments).exit_code == 2


def test_an_error_of_ours_is_one_line_on_stderr_and_exit_code_1(monkeypatch, tmp_path):
    def fails(out, console):
        raise InputError("k=16 clusters from 10 rows")

    monkeypatch.setattr("unpooled.app.demo.main", fails)
    result = runner.invoke(app, ["example", "penguins", "--run", "--out", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "unpooled: k=16 clusters from 10 rows\n"


def test_a_folder_that_cannot_be_made_is_one_line_and_exit_code_1(tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    result = runner.invoke(app, ["example", "penguins", "--run", "--out", str(taken)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"unpooled: {taken}: there is a file of that name\n"


def test_other_errors_keep_their_traceback(monkeypatch, tmp_path):
    monkeypatch.setattr("unpooled.app.demo.main", lambda out, console: 1 // 0)
    result = runner.invoke(app, ["example", "penguins", "--run", "--out", str(tmp_path)])
    assert isinstance(result.exception, ZeroDivisionError)


def test_help_loads_nothing_heavy():
    heavy = {"numpy", "sklearn", "scipy", "matplotlib"}
    code = f"import sys, unpooled.app.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_citation_of_an_unknown_method_names_the_known_ones():
    with pytest.raises(InputError, match="lloyd, dual, dwf, ewf"):
        citation("average linkage")
