"""The benchmarks can be imported, so that none is found broken when it is needed."""

import importlib
import pkgutil

import benchmarks
import pytest

MODULES = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__"]


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_is_importable(name):
    importlib.import_module(f"benchmarks.{name}")
