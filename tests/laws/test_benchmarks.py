"""The benchmarks can be imported, and the updates of a summary table are measured as requested."""

import importlib
import pkgutil

import benchmarks
import pytest
from benchmarks import bench_renewal

MODULES = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__"]


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_is_importable(name):
    importlib.import_module(f"benchmarks.{name}")


def test_updates_are_measured_for_the_given_months_and_people():
    found = bench_renewal.history(bench_renewal.clear, 5, seed=0, months=3, people=200)
    assert sorted(found) == [0, 1, 2, 3]
    assert found[0]["disclosed"] == 1
    disclosed = [one["disclosed"] for one in found.values()]
    assert all(round(share * 200, 6) == round(share * 200) for share in disclosed), "of 200 people"
    assert 0.5 < disclosed[-1] < 1
    for month in (1, 2, 3):
        one = found[month]
        others = one["pending"] + one["withheld"] + one["barred"]
        assert one["disclosed"] + others / 200 == pytest.approx(1)
