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
    (ratio,) = map(float, re.findall(r"\d+\.\d+", block.output))
    assert ratio <= 1.0001


def test_it_is_short():
    assert len(TEXT.split()) <= 600


def test_its_numbers_are_those_of_the_pages():
    """The pages are written by the commands in the table."""
    pages = [
        (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("speed", "leakage", "methods")
    ]
    speed, leakage, methods = pages
    table = speed.partition("## The default fit")[2].partition("##")[0]
    lines = re.findall(r"^\|.*?(\d+)(k|M|) x \d+, k \d+ \|(.*)$", table, re.M)
    rows = [int(count) * {"": 1, "k": 1000, "M": 1_000_000}[unit] for count, unit, _ in lines]
    shares = [float(rest.split("|")[3]) for (*_, rest), n in zip(lines, rows, strict=True) if n >= 20_000]
    assert len(shares) == 10
    assert f"one pooled scikit-learn start; {20_000:,} to {max(rows):,} rows |" in TEXT
    assert f"| {min(shares):.2f} to {max(shares):.2f} (" in TEXT
    protections, lloyd = (
        [cell.strip() for cell in re.search(rf"^\| {name} +\|(.*)$", leakage, re.M)[1].split("|")]
        for name in ("method", "lloyd")
    )
    by_protection = dict(zip(protections, lloyd, strict=True))
    unprotected, summary = (by_protection[name].partition(",")[0] for name in ("none", "summary"))
    assert f"| {unprotected}, {summary} (" in TEXT
    (inertia,) = re.findall(r"^lloyd +summary +(\d\.\d+) ", methods, re.M)
    assert f"| {inertia} (" in TEXT


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
