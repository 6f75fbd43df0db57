"""Every command that a message, a docstring or the documentation names exists, with its options."""

import ast
import re
from pathlib import Path

import pytest
import typer

from pages import ROOT
from unpooled.app.cli import app

COMMANDS = typer.main.get_command(app).commands
TOP = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "conda/recipe.yaml")
TEXTS = [
    *(ROOT / name for name in TOP),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs/deployment/examples").iterdir()),
    *sorted((ROOT / ".github").rglob("*.yml")),
]
SOURCES = sorted((ROOT / "src/unpooled").rglob("*.py"))

_NAME = re.compile(r"(?<![\w./@-])unpooled\s+([a-z][a-z-]*)(?![\w.=/-])")
_SECOND = re.compile(r"\s+([a-z][a-z-]*)(?![\w.=/-])")
_REST = re.compile(r"(?:(?! unpooled |[.,;:)](?:\s|$)| or | and | then )[^`\n|<])*")  # up to the next clause
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
_LINE = re.compile(r"^(unpooled .*)$", re.M)
_CODE = re.compile(r"`(unpooled\s[^`]+)`")


def literals(path: Path) -> list[tuple[int, str]]:
    """The texts of a module with their line numbers; the values in an f-string are replaced by X."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in joined for part in ast.walk(node)}
    texts = [
        (node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values))
        for node in joined
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            texts.append((node.lineno, node.value))
    return texts


def unknown(text: str) -> list[str]:
    """Commands of a group that do not exist, and options that a command does not have."""
    errors = []
    for match in _NAME.finditer(text):
        name, end = match[1], match.end()
        command = COMMANDS.get(name)
        if command is None:
            continue  # prose: "unpooled reads", or an error of ``not_commands``
        if hasattr(command, "commands"):
            second = _SECOND.match(text, end)
            if second is None:
                continue
            name, end = f"{name} {second[1]}", second.end()
            if second[1] not in command.commands:
                errors.append(f"unpooled {name}")
                continue
            command = command.commands[second[1]]
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        rest = _REST.match(text, end)[0]
        errors += [f"unpooled {name} {option}" for option in _OPTION.findall(rest) if option not in options]
    return errors


def not_commands(text: str) -> list[str]:
    """Texts that are written as a command, in backticks or in a block of commands, and are none."""
    commands = _CODE.findall(text) + [line for block in _BLOCK.findall(text) for line in _LINE.findall(block)]
    commands += re.findall(r"^ExecStart=\S*/(unpooled .*)$", text, re.M)
    return [line for line in commands if (found := _NAME.match(line)) and found[1] not in COMMANDS]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_texts_exist(path):
    text = path.read_text(encoding="utf-8")
    assert unknown(text) + not_commands(text) == []


def test_commands_in_messages_and_docstrings_exist():
    every = [(f"{path}:{line}", text) for path in SOURCES for line, text in literals(path)]
    assert sum(bool(_NAME.search(text)) for _, text in every) > 100
    assert {where: errors for where, text in every if (errors := unknown(text) + not_commands(text))} == {}


def test_a_command_that_does_not_exist_is_found():
    assert unknown("use unpooled site copy north") == ["unpooled site copy"]
    assert unknown("unpooled site approve X --with-copy") == ["unpooled site approve --with-copy"]
    assert unknown("run unpooled site review X, then unpooled site approve X --table.") == []
    assert not_commands("`unpooled join X` and unpooled reads it") == ["unpooled join X"]
    assert not_commands("```sh\nunpooled leave north\n```") == ["unpooled leave north"]
