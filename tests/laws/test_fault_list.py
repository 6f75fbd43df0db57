"""Every fault of the matrix names tests that exist."""

import ast
from pathlib import Path

import pytest
from tests.fault_list import FAULTS

pytestmark = pytest.mark.quick
ROOT = Path(__file__).parents[2]


def test_every_fault_names_tests_that_exist():
    for fault in FAULTS:
        for test in fault.tests:
            file, _, name = test.partition("::")
            parsed = ast.parse((ROOT / file).read_text())
            found = {one.name for one in parsed.body if isinstance(one, ast.FunctionDef)}
            assert not name or name in found, test
