"""What relays cost at eight centres: little beside what the hospitals' own tables cost."""

import pytest

from attacks.cost import of_relays


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["regional", "own"])
def test_eight_clusters_are_found_above_relays(kind, seed):
    assert max(of_relays(seed, kind, 100, 8)) <= 1.03


@pytest.mark.parametrize("seed", range(3))
def test_where_centres_divide_clusters_the_tables_of_hospitals_cost_most(seed):
    """Four clusters and eight centres."""
    hospitals, relays = of_relays(seed, "shared", 100, 8)
    assert relays <= 1.03 * hospitals
