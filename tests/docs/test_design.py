"""docs/architecture.md is true: its packages are those of the tree, its order is that of the imports."""

import re
import tomllib

import pytest

from pages import ROOT

pytestmark = pytest.mark.quick

SOURCE = ROOT / "src" / "unpooled"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = re.search(r"^\| package \|.*?\n\|[-|]+\|\n(.*?)\n\n", PAGE, re.M | re.S)[1]
ROWS = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in PACKAGES.splitlines()]


def layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    return [set(layer.split(" | ")) for layer in contracts["contracts"][0]["layers"]]


def test_the_table_of_packages_is_the_order_of_imports():
    assert [set(re.findall(r"`(\w+)`", names)) for names, *_ in ROWS] == layers()[::-1]
    assert len(layers()) <= 12


def test_every_package_of_the_tree_is_in_it():
    existing = {p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert existing - {"__init__", "__main__"} == set().union(*layers())


def test_the_packages_within_packages_are_those_of_the_tree():
    existing = {p.parent.relative_to(SOURCE).as_posix() for p in SOURCE.glob("*/**/__init__.py")}
    named = {name for _, content, _ in ROWS for name in re.findall(r"`(\w+(?:/\w+)+)`", content)}
    assert named == {name for name in existing if "/" in name}


@pytest.mark.parametrize("place", [p for *_, begin in ROWS for p in re.findall(r"`([^`]+)`", begin)])
def test_where_to_begin_is_a_file_of_that_package(place):
    assert (SOURCE / place).is_file()


@pytest.mark.parametrize("place", sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE))))
def test_every_file_that_the_page_names_exists(place):
    assert (SOURCE / place).is_file() or (ROOT / place).is_file()


def test_no_module_lies_loose_at_the_top():
    assert {p.name for p in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py", "errors.py", "typing.py"}


def test_a_class_name_is_one_class():
    names = re.findall(r"^class (\w+)", "\n".join(p.read_text() for p in SOURCE.rglob("*.py")), re.M)
    assert sorted({n for n in names if names.count(n) > 1}) == []
