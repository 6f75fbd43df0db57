"""The README: its example runs and prints what it shows, and its commands exist."""

import re
import tomllib

import pytest

from pages import ROOT, blocks, printed

pytestmark = pytest.mark.quick

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


def test_the_example_prints_the_output_on_the_page():
    (block,) = blocks(README)
    assert block.output, "the example shows no output"
    assert printed(README) == [block.output]


def test_the_example_has_ten_lines_and_equals_pooling():
    (block,) = blocks(README)
    assert len([line for line in block.code.splitlines() if line]) <= 10
    federated, pooled = map(float, re.findall(r"\d+\.\d+", block.output))
    assert federated <= pooled * 1.0001


def test_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^make (\w+)", TEXT, re.M)
    assert commands[:2] == ["demo", "test"]
    for target in [*commands, *re.findall(r"`make (\w+)`", TEXT)]:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_extras_named_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in re.findall(r"\.\[(\w+)\]", TEXT):
        assert extra in project["optional-dependencies"]
