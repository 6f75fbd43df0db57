"""A group that a rule of renewal forbids does not get into the history, somebody who planned it."""

import pytest

from unpooled.errors import InputError
from unpooled.privacy.microaggregation.group_history import History, ReleasedGroup
from unpooled.privacy.microaggregation.group_means import _FEWEST, too_few


def group(text: str, disclosed: int = 1, has: int = 1) -> ReleasedGroup:
    return ReleasedGroup(dict.fromkeys(text, has), disclosed)


def history() -> History:
    """a, b and c were disclosed together, and are no longer; c holds the group open."""
    found = History(3)
    found.add(group("abc"))
    found.retire(1)
    found.withheld[1] = frozenset("c")
    found.erased.add("z")
    return found


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (group("de"), "R1"),
        (group("def", disclosed=3), "R1"),  # of the second column nobody has a value
        (group("abd"), "R2"),
        (group("cde"), "R3"),
        (group("dez"), "R3"),
    ],
    ids=["too few", "a column of too few", "together before", "held back", "erased"],
)
def test_it_is_refused_by_its_rule_and_nothing_is_kept_of_it(wrong, rule):
    found = history()
    with pytest.raises(InputError, match=f"{rule}: "):
        found.add(wrong)
    assert (list(found.groups), found.live) == ([1], set())
    assert found.groups_of("d") == ()
    assert found.add(group("ade")) == 2
    with pytest.raises(InputError, match="R3: "):
        found.add(group("dfg"))  # d is disclosed now


def test_a_column_needs_as_many_people_as_a_group_and_no_more():
    for g in (3, 8, 20):
        least = max(g, _FEWEST)
        assert too_few(least - 1, g)
        assert not too_few(least, g)
