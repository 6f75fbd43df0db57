"""The contributor threshold: a relay's sum leaves out what would disclose one site's numbers."""

import numpy as np
import pytest

from unpooled.errors import TooFewAnswersError
from unpooled.protocol.declarations import figures
from unpooled.protocol.partial_sum import partial_sum
from unpooled.protocol.questions.cluster_sums import ClusterSums, Moments
from unpooled.protocol.questions.sums_with_missing import ObservedSums

pytestmark = pytest.mark.quick


def moments(n: float) -> Moments:
    return Moments(np.array([n]), np.full(2, n), np.full(2, n))


def clusters(*mass: float) -> ClusterSums:
    n = np.array([mass])
    return ClusterSums(*(np.ones((1, len(mass), 2)) * n[..., None] if f == "sums" else n for f in FIELDS))


FIELDS = ClusterSums.__match_args__


def disclosed(replies, min_contributors) -> list[float]:
    return partial_sum([replies], min_contributors).reply().mass[0].tolist()


def test_rows_of_one_site_alone_are_not_disclosed_by_its_relay():
    with pytest.raises(TooFewAnswersError, match="1 of its sites have rows"):
        partial_sum([[moments(5.0), moments(0.0), moments(0.0)]], 2)
    assert partial_sum([[moments(5.0), moments(4.0), moments(0.0)]], 2).reply().n == 9
    assert partial_sum([[moments(0.0)] * 3], 2).reply().n == 0  # nobody's rows are nobody's secret


def test_where_one_site_has_all_rows_no_cell_is_left():
    """No other cell could protect its own, and the search for one ends."""
    assert disclosed([clusters(5, 4, 3), clusters(0, 0, 0), clusters(0, 0, 0)], 2) == [0, 0, 0]
    assert disclosed([clusters(5, 4, 0), clusters(2, 0, 3), clusters(0, 1, 3)], 2) == [7, 5, 6]
    # the third cell is one site's; the smallest of the others protects it, since the total is known
    assert disclosed([clusters(9, 4, 3), clusters(9, 4, 0), clusters(9, 0, 0)], 2) == [27, 0, 0]


def test_a_relay_counts_in_a_sum_above_as_many_sites_as_its_own_rule_asks_for():
    two = partial_sum([[clusters(5, 4), clusters(3, 6), clusters(1, 1)]], 2)
    assert two.min_contributors == 2
    assert disclosed([two, clusters(1, 0)], 3) == [
        0,
        0,
    ]  # 2 and 1 behind one cell, 2 behind the other: both are suppressed
    assert disclosed([two, clusters(1, 1)], 3) == [10, 12]
    one = partial_sum([[clusters(5, 4), clusters(3, 6), clusters(1, 1)]])
    assert disclosed([one, clusters(1, 1)], 3) == [0, 0]  # without a rule it may be one site's own


def test_a_minimum_of_one_row_suppresses_nothing():
    whole = partial_sum([[clusters(1, 9), clusters(0, 3)]])
    assert whole.suppress_below(figures(ClusterSums), 1.0) is whole
    assert whole.suppress_below(figures(ClusterSums), 5.0).reply().mass.tolist() == [[0.0, 12.0]]


def observed(known) -> ObservedSums:
    """Two clusters of two columns; ``known`` says how many rows of each have a value."""
    known = np.array([known], dtype=np.float64)
    mass = known.max(axis=2)
    return ObservedSums(known.copy(), known, mass, mass)


def test_a_column_of_a_suppressed_cluster_is_suppressed_with_it():
    """All three have the second column of a cluster whose suppression protects another."""
    replies = [observed([[9, 9], [4, 4]]), observed([[9, 9], [0, 0]]), observed([[9, 9], [0, 0]])]
    replies += [observed([[0, 0], [0, 0]])]
    result = partial_sum([replies], 2).reply()
    assert result.mass.tolist() == [[0.0, 0.0]]
    assert result.known.tolist() == [[[0.0, 0.0], [0.0, 0.0]]]
    assert not result.sums.any()
    open_to_all = partial_sum([[observed([[9, 9], [4, 4]]), observed([[9, 0], [4, 4]])]], 2).reply()
    assert open_to_all.mass.tolist() == [[18.0, 8.0]]
    assert open_to_all.known.tolist() == [[[18.0, 0.0], [8.0, 8.0]]]
