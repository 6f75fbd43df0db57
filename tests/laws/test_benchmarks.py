"""The benchmarks can be imported, so that none is found broken when it is needed."""

import importlib
import pkgutil

import benchmarks
import pytest
from benchmarks import bench_renewal

MODULES = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__"]


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_is_importable(name):
    importlib.import_module(f"benchmarks.{name}")


def test_renewals_are_measured_for_the_months_and_persons_that_are_asked_for():
    found = bench_renewal.history(bench_renewal.clear, 5, seed=0, months=3, people=200)
    assert sorted(found) == [0, 1, 2, 3]
    assert found[0]["shown"] == 1
    shown = [one["shown"] for one in found.values()]
    assert all(round(share * 200, 6) == round(share * 200) for share in shown), "of 200 persons"
    assert 0.5 < shown[-1] < 1
    for month in (1, 2, 3):
        one = found[month]
        assert one["shown"] + (one["wait"] + one["held"] + one["shut"]) / 200 == pytest.approx(1)
