"""The comparison of all methods: equal rows, splits and starts; ranks by hand; tables and figures."""

import numpy as np
import pytest
from reproduction import compare_methods
from reproduction.common import round_by_round
from reproduction.data_sources import Sources
from reproduction.experiment import Results, seed_of

from unpooled.data import partitions as partition
from unpooled.federation import Simulation


def made_up(values):
    """Results in which a method has the same number in every set, split and run."""
    results = []
    for s in compare_methods.SETS:
        for p in compare_methods.SPLITS:
            for method, value in values.items():
                numbers = {name: [value, value] for name in compare_methods.NAMES}
                results.append((compare_methods._settings(s, p, method), numbers))
    return Results(results)


def test_ranks_by_hand():
    values = {method: 10.0 + i for i, method in enumerate(compare_methods.METHODS)}
    first, second, *_ = compare_methods.METHODS
    values[second] = values[first] * 1.0005  # equal to 0.1%: they share ranks 1 and 2
    lower = compare_methods.ranked(made_up(values), "inertia / pooled", higher=False)
    assert set(lower[first]) == {1.5}
    assert set(lower[second]) == {1.5}
    last = list(compare_methods.METHODS)[-1]
    assert set(lower[last]) == {len(compare_methods.METHODS)}
    higher = compare_methods.ranked(made_up(values), "ARI", higher=True)
    assert set(higher[last]) == {1.0}
    assert sum(r.mean() for r in lower.values()) == pytest.approx(sum(range(1, len(values) + 1)))


def test_tables_figures_and_the_short_table():
    results = made_up(dict.fromkeys(compare_methods.METHODS, 1.0))
    presented = compare_methods._present(results, Sources(), quick=True)
    assert len(presented.tables[1].rows) == len(compare_methods.SETS) * len(compare_methods.SPLITS) * len(
        compare_methods.METHODS
    )
    assert all(figure.svg.startswith("<svg") for figure in presented.figures)
    lines = compare_methods.short(results)
    assert [line[0] for line in lines[1:]] == list(compare_methods.METHODS)


def test_methods_that_start_alike_start_from_the_same_centres():
    rng = np.random.default_rng(0)
    X, y, k = compare_methods.rows_of("grid", rng)
    sites = partition.split_rows(X, compare_methods.site_of_rows("dirichlet 0.1", X, y, rng))
    assert len(Simulation.from_rows(sites).sites) == compare_methods.SITES
    names = ("Lloyd, 1 start", "EWF", "mini-batch")
    starts = [next(iter(round_by_round(compare_methods.METHODS[name](k), sites, 3))) for name in names]
    for other in starts[1:]:
        np.testing.assert_array_equal(starts[0], other)


@pytest.mark.parametrize("set_", ["penguins", "grid, noisy"])
def test_exact_lloyd_is_as_good_as_pooling_in_every_split(set_):
    for split in compare_methods.SPLITS:
        lloyd = compare_methods.perform(compare_methods._settings(set_, split, "Lloyd"), range(2), Sources())
        assert max(lloyd["inertia / pooled"]) < 1.01
        assert set(lloyd) == set(compare_methods.NAMES)
    worse = compare_methods.perform(compare_methods._settings(set_, "by k-means", "EWF"), range(2), Sources())
    assert np.mean(worse["inertia / pooled"]) > 1.01


def test_runs_differ_in_their_rows_and_methods_do_not():
    a, b = (
        np.random.default_rng(seed_of({"set": "grid", "split": "iid"}, number)).random() for number in (0, 1)
    )
    assert a != b
    one = compare_methods.perform(compare_methods._settings("penguins", "iid", "k-FED"), range(1), Sources())
    again = compare_methods.perform(
        compare_methods._settings("penguins", "iid", "k-FED"), range(1), Sources()
    )
    for name in compare_methods.NAMES:
        if name != "CPU s":
            assert one[name] == again[name]
