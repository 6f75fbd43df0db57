"""The map of the compiled kernels, native/README.md: every file is on it, and paths are chosen as it says."""

import re
from itertools import product
from math import floor, log
from pathlib import Path

import pytest
from kernel_cases import native, needs_native

from unpooled import kernels

PACKAGE = Path(kernels.__file__).parent
NATIVE = PACKAGE / "native"
TESTS = Path(__file__).parent
README = (NATIVE / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\w+) \| `([^`]+)` \| `([\w/]+\.hpp)` \| `([\w:]+)` \|$", re.MULTILINE)
PATHS = ROW.findall(README)  # (stage, condition, file, function)

DIMENSIONS = (1, 2, 4, 5, 8, 24, 25, 64, 784)
ROWS = (0, 1, 40, 300, 1024, 1025, 1365, 1366, 8192, 8193, 32768, 32769)
CENTERS = (1, 8, 64)
PLANS = ((1, 300, 0), (1, 0, 0), (10, 300, 0), (1, 100, 20))  # n_init, max_iter, swaps


def test_every_file_is_on_the_map() -> None:
    for path in NATIVE.rglob("*"):
        if path.suffix in (".hpp", ".cpp"):
            assert f"`{path.relative_to(NATIVE).as_posix()}`" in README


def test_every_file_on_the_map_exists() -> None:
    places = (NATIVE, TESTS, TESTS.parent.parent)
    names = set(re.findall(r"`((?:\.\./|[\w/])*\w+\.(?:hpp|cpp|py|txt))`", README))
    assert len(names) > 40
    for name in names:
        assert any((place / name).is_file() for place in places), name
    for test in TESTS.glob("test_*.py"):
        assert f"`{test.name}`" in README


def test_functions_are_where_the_map_says() -> None:
    for _, _, file, function in PATHS:
        for name in function.split("::"):
            held_by = (NATIVE / file).read_text(encoding="utf-8")
            # a class may be reopened, never a function: it is defined there, not only called
            assert re.search(rf"\b(class|struct) {name}\b|\b{name}\(.*[{{,]$", held_by, re.MULTILINE), name


@needs_native
@pytest.mark.parametrize("stage", sorted({stage for stage, *_ in PATHS}))
def test_paths_are_chosen_as_the_map_says(stage: str) -> None:
    lines = [(condition, function) for of, condition, _, function in PATHS if of == stage]
    seen = set()
    for n, d, k, weights, cached, plan in product(
        ROWS, DIMENSIONS, CENTERS, (False, True), (False, True), PLANS
    ):
        n_init, max_iter, swaps = plan
        steps = (n_init + swaps) * (2 + floor(log(k)) + min(max_iter, 10))
        shape = {"n": n, "d": d, "k": k, "weights": weights, "cached": cached, "steps": steps}
        true = [function for condition, function in lines if eval(condition, {}, shape)]
        chosen = native()._native.path_name(stage, n, d, k, weights, cached, *plan)
        assert true == [chosen], (stage, shape, plan)
        seen.add(chosen)
    assert seen == {function for _, function in lines}


@needs_native
def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(ValueError, match="no stage is called lunch"):
        native()._native.path_name("lunch", 1, 1, 1, False, False, 1, 1, 0)
