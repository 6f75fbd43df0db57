"""The comparison: equal rows, splits and starts for all; ranks by hand; what is written."""

import numpy as np
import pytest

from unpooled import InProcess
from unpooled.experiments import partitions as partition
from unpooled.experiments.papers import compare
from unpooled.experiments.papers.common import round_by_round
from unpooled.experiments.papers.data_sources import Sources
from unpooled.experiments.papers.experiment import Results, seed_of


def made_up(values):
    """Results in which every set, split and run gives a method the same number."""
    found = []
    for s in compare.SETS:
        for p in compare.SPLITS:
            for method, value in values.items():
                numbers = {name: [value, value] for name in compare.NAMES}
                found.append((compare._of(s, p, method), numbers))
    return Results(found)


def test_ranks_by_hand():
    values = {method: 10.0 + i for i, method in enumerate(compare.METHODS)}
    first, second, *_ = compare.METHODS
    values[second] = values[first] * 1.0005  # equal to 0.1 %: they share ranks 1 and 2
    lower = compare.ranked(made_up(values), "inertia / pooled", higher=False)
    assert set(lower[first]) == {1.5}
    assert set(lower[second]) == {1.5}
    last = list(compare.METHODS)[-1]
    assert set(lower[last]) == {len(compare.METHODS)}
    higher = compare.ranked(made_up(values), "ARI", higher=True)
    assert set(higher[last]) == {1.0}
    assert sum(r.mean() for r in lower.values()) == pytest.approx(sum(range(1, len(values) + 1)))


def test_what_is_presented():
    results = made_up(dict.fromkeys(compare.METHODS, 1.0))
    presented = compare._present(results, Sources(), quick=True)
    assert len(presented.tables[1].rows) == len(compare.SETS) * len(compare.SPLITS) * len(compare.METHODS)
    assert all(figure.svg.startswith("<svg") for figure in presented.figures)
    lines = compare.short(results)
    assert [line[0] for line in lines[1:]] == list(compare.METHODS)


def test_methods_that_start_alike_start_from_the_same_centres():
    rng = np.random.default_rng(0)
    X, y, k = compare.rows_of("grid", rng)
    sites = partition.divided(X, compare.site_of_rows("dirichlet 0.1", X, y, rng))
    assert len(InProcess.of(sites).sites) == compare.SITES
    names = ("Lloyd, 1 start", "EWF", "mini-batch")
    starts = [next(iter(round_by_round(compare.METHODS[name](k), sites, 3))) for name in names]
    for other in starts[1:]:
        np.testing.assert_array_equal(starts[0], other)


@pytest.mark.parametrize("set_", ["penguins", "grid, noisy"])
def test_exact_lloyd_is_as_good_as_pooling_whatever_the_split(set_):
    for split in compare.SPLITS:
        got = compare.perform(compare._of(set_, split, "Lloyd"), range(2), Sources())
        assert max(got["inertia / pooled"]) < 1.01
        assert set(got) == set(compare.NAMES)
    worse = compare.perform(compare._of(set_, "by k-means", "EWF"), range(2), Sources())
    assert np.mean(worse["inertia / pooled"]) > 1.01


def test_every_run_has_rows_of_its_own_and_every_method_the_same():
    a, b = (
        np.random.default_rng(seed_of({"set": "grid", "split": "iid"}, number)).random() for number in (0, 1)
    )
    assert a != b
    one = compare.perform(compare._of("penguins", "iid", "k-FED"), range(1), Sources())
    again = compare.perform(compare._of("penguins", "iid", "k-FED"), range(1), Sources())
    for name in compare.NAMES:
        if name != "CPU s":
            assert one[name] == again[name]
