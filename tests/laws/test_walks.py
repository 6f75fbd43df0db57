"""A call passes through few files: what a reader who follows it has to open. benchmarks/walks.py counts."""

import pytest
from benchmarks.walks import MOST, WALKS


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_is_short(name):
    WALKS[name]()
    found = WALKS[name]()
    assert 5 < len(found) <= MOST[name], sorted(found)
