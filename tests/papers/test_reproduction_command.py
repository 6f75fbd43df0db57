"""``python -m reproduction``: what it lists, runs, writes and refuses."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from reproduction import command_line, compare_methods
from reproduction.catalogue import COMPARE, NAMES
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
NAME = "triebe-epochs"


def call(*words):
    result = CliRunner().invoke(command_line.app, [*map(str, words)], env={"COLUMNS": "160"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_the_module_lists_the_experiments():
    listed = subprocess.run(
        [sys.executable, "-m", "reproduction", "--list"],
        cwd=ROOT,
        env={"COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [name for name in (*NAMES, COMPARE) if f" {name} " not in listed.stdout] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "No experiment is named. python -m reproduction --list lists them."),
        (("garst-fig2",), "There is no experiment 'garst-fig2'. The experiments are garst-fig1,"),
        ((NAME, "--runs", "0"), "the number of runs must be at least 1. It is 0."),
        (
            ("holzer-mnist",),
            "The data set mnist is missing. Name a folder that holds mnist_train_writers.npz",
        ),
        (("holzer-mnist", "--data", "{here}"), "there is no mnist_train_writers.npz, the data set mnist."),
        ((NAME, "--data", "{here}/none"), "none: there is no such folder. Check the path."),
        ((COMPARE, "--data", "{here}"), "compare reads no data folder. Run it without --data."),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(tmp_path, words, message):
    here = [word.replace("{here}", str(tmp_path)) for word in words]
    result = call(*here, "--out", tmp_path / "out")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("python -m reproduction: ")
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_contents_and_inputs_are_not_written_to(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(command_line, "finish", lambda *_, **__: ran.append(1) or [])
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    for name in (NAME, COMPARE):
        result = call(name, "--out", other)
        assert (result.exit_code, ran) == (1, [])
        assert f"{other} is not empty, and not a folder of results" in result.stderr
    results = tmp_path / "out" / "results" / NAME
    results.mkdir(parents=True)
    result = call(NAME, "--data", tmp_path / "out", "--out", tmp_path / "out")
    assert (result.exit_code, ran) == (1, [])
    assert "an input" in result.stderr
    assert call(NAME, "--out", tmp_path / "out").exit_code == 0  # its own folder: the run continues
    assert ran == [1]


def test_compare_prints_one_line_for_every_method(tmp_path, monkeypatch):
    monkeypatch.setattr(compare_methods, "SETS", ("penguins",))
    monkeypatch.setattr(compare_methods, "SPLITS", ("iid", "power law"))
    result = call(COMPARE, "--quick", "--runs", 1, "--jobs", 1, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    for method in compare_methods.METHODS:
        assert f" {method} " in result.stdout
    folder = tmp_path / "out" / COMPARE
    assert {path.suffix for path in folder.iterdir()} == {".md", ".csv", ".svg"}
    assert str(folder / "compare.md") in result.stdout


# ---------------------------------------------------------------- outside of the package


def test_the_package_does_not_import_the_reproduction():
    for path in sorted((ROOT / "src" / "unpooled").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.partition(".")[0] == "reproduction"], path


def test_no_two_modules_have_the_same_name():
    paths = [*(ROOT / "src" / "unpooled").rglob("*.py"), *(ROOT / "reproduction").rglob("*.py")]
    names = [path.stem for path in paths if not path.stem.startswith("__")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_the_wheel_has_only_the_package():
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["scikit-build"]
    assert built["wheel"]["packages"] == ["src/unpooled"]
    assert "reproduction" not in built["sdist"]["exclude"]
