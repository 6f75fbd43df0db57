"""The command line: what it prints, and how it fails."""

import json
import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from unpooled import __version__
from unpooled.algorithms.registry import citation, list_methods
from unpooled.app.cli import app
from unpooled.errors import EXTRAS, InputError

runner = CliRunner()
ANALYSE = ["fit", "predict", "export", "names", "compare-runs", "certify", "resume", "release"]
COMMANDS = [*ANALYSE, "site", "federation", "compare", "methods", "example"]


def test_help_names_the_commands():
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    panels = ("Analyse", "Site", "Coordinate", "Research")
    titles = [
        word for line in result.stdout.splitlines() for word in panels if line.startswith(f"╭─ {word} ─")
    ]
    assert titles == list(panels)
    assert re.findall(r"^│ ([a-z][a-z-]*) ", result.stdout, re.M) == COMMANDS


def every_command(group, *path):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, *path, name)
        else:
            yield (*path, name), command


COMMAND_LIST = dict(every_command(get_command(app)))


@pytest.mark.parametrize("path", COMMAND_LIST, ids=" ".join)
def test_the_help_of_a_command_fits_80_columns_and_names_no_type_of_python(path):
    result = runner.invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert not re.search(r"<(str|int|float|bool|path|list)|[{}]", result.stdout)
    usage = next(line for line in result.stdout.splitlines() if line.startswith(" Usage:"))
    assert re.fullmatch(r" Usage: [a-z- ]+\[OPTIONS\]( \[?[A-Z-]+(\.\.\.)?\]?)* *", usage)


def options_shown(text):
    return set(re.findall(r"^│[ *]+(--[a-z-]+|-k)", text, re.M))


def test_fit_lists_its_common_options_and_all_of_them_on_request():
    common = options_shown(runner.invoke(app, ["fit", "--help"]).stdout)
    every = options_shown(runner.invoke(app, ["fit", "--help-all"]).stdout)
    assert len(common) <= 24
    assert common < every
    options = {max(one.opts, key=len) for one in COMMAND_LIST["fit",].params if one.opts[0].startswith("-")}
    assert every == options | {"--help"}
    assert options_shown(runner.invoke(app, ["fit", "--help"]).stdout) == common  # again


def test_bash_completes_commands_and_options():
    def complete(words, position):
        environment = {"_UNPOOLED_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": position}
        code = "import sys; sys.argv[0] = 'unpooled'; from unpooled.app.cli import app; app()"
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True
        )
        return done.stdout.split()

    assert complete("unpooled fe", "1") == ["federation"]
    assert complete("unpooled site su", "2") == ["summarize"]
    assert "--method" in complete("unpooled fit --me", "2")


WITHOUT_EXTRAS = """
import json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
from typer.testing import CliRunner
from unpooled.app.cli import app
done = [CliRunner().invoke(app, words) for words in json.loads(sys.argv[2])]
print(json.dumps([[one.exit_code, one.stderr, repr(one.exception)] for one in done]))
"""


def test_commands_without_the_packages_of_extras_end_in_one_line(tmp_path):
    """Every argument is an empty folder: the commands fail, and never with a traceback."""
    every = []
    for number, (path, command) in enumerate(COMMAND_LIST.items()):
        (folder := tmp_path / str(number)).mkdir()
        arguments = [str(folder) for one in command.params if not one.opts[0].startswith("-")]
        every.append([*path, *arguments])
    words = [sys.executable, "-c", WITHOUT_EXTRAS, json.dumps([*EXTRAS]), json.dumps(every)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    for command, (code, stderr, exception) in zip(every, json.loads(done.stdout), strict=True):
        assert exception == "None" or exception.startswith("SystemExit("), (command, exception)
        if code == 1:
            assert stderr.startswith("unpooled: ") or stderr == "Aborted.\n", command  # it asks first
            assert stderr.count("\n") == 1, command


@pytest.mark.parametrize("group", ["site", "federation"])
def test_the_help_of_a_group_lists_its_commands(group):
    result = runner.invoke(app, [group, "--help"])
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    listed = re.findall(r"^│ ([a-z][a-z-]*) ", result.stdout, re.M)
    assert sorted(listed) == sorted(path[1] for path in COMMAND_LIST if path[0] == group)


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
    heavy = {"numpy", "sklearn", "scipy", "matplotlib", "jinja2", "markupsafe"}
    code = f"import sys, unpooled.app.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_citation_of_an_unknown_method_names_the_known_ones():
    with pytest.raises(InputError, match="lloyd, dual, dwf, ewf"):
        citation("average linkage")
