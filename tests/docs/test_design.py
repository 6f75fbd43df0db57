"""docs/architecture.md is true: its rooms are those of the tree, its order that of the imports."""

import re
import tomllib

import pytest

from pages import ROOT

pytestmark = pytest.mark.quick

SOURCE = ROOT / "src" / "unpooled"
ROWS = re.findall(r"^\| (`[^|]+`) \|[^|]*\|([^|]*)\|$", (ROOT / "docs" / "architecture.md").read_text(), re.M)


def layers():
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [set(layer.split(" | ")) for layer in said[0]["layers"]]


def test_the_table_of_rooms_is_the_order_of_imports():
    assert [set(re.findall(r"`(\w+)`", rooms)) for rooms, _ in ROWS] == layers()[::-1]
    assert len(layers()) <= 12


def test_every_room_of_the_tree_is_in_it():
    there = {p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert there - {"__init__", "__main__"} == set().union(*layers())


@pytest.mark.parametrize("place", [p for _, begin in ROWS for p in re.findall(r"`([^`]+)`", begin)])
def test_where_to_begin_is_a_file(place):
    assert (SOURCE / place).exists()


def test_no_module_lies_loose_at_the_top():
    assert {p.name for p in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py", "errors.py"}


def test_a_class_name_is_one_class():
    names = re.findall(r"^class (\w+)", "\n".join(p.read_text() for p in SOURCE.rglob("*.py")), re.M)
    assert sorted({n for n in names if names.count(n) > 1}) == []
