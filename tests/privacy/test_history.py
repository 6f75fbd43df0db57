"""The rules of renewal: by hand, then over random histories, with exact linear algebra as the judge.

``pytest -m long tests/privacy/test_history.py`` runs thousands of them.
"""

from fractions import Fraction

import numpy as np
import pytest

from combinations import fewer_than
from unpooled.errors import InputError
from unpooled.privacy.microaggregation.group_history import History, ReleasedGroup, disclosed_columns
from unpooled.privacy.microaggregation.regroup import regroup


def group(text: str, disclosed: int = 1) -> ReleasedGroup:
    return ReleasedGroup(dict.fromkeys(text, 1), disclosed)


def history(g: int, *groups: str) -> History:
    found = History(g)
    for text in groups:
        found.add(group(text))
    return found


# ---------------------------------------------------------------- the judge


def test_the_judge_by_hand():
    assert fewer_than(3, [set("abc"), set("def")]) is None
    assert fewer_than(4, [set("abc"), set("def")]) is not None
    assert alike(
        fewer_than(2, [set("abcd"), set("abcde")]), (-1, 1)
    )  # a new patient: the difference of two runs
    assert alike(fewer_than(3, [set("abcd"), set("cdef"), set("abef")]))  # twice two people, by three sums
    assert fewer_than(2, [set("abcd"), set("cdef"), set("abef")]) is None
    assert fewer_than(3, [set("abc"), set("abc")]) is not None  # the same sum twice combines to nobody
    versions = [
        set("abcdwx"),
        set("cdefwx"),
        set("efghwx"),
        set("ghabwz"),
    ]  # of one group, four people changed
    assert alike(fewer_than(3, versions), (1, -1, 1, -1))  # x and z are left


def alike(found, wanted=None) -> bool:
    """True if the coefficients are the wanted ones, up to a factor; or any at all."""
    if found is None or wanted is None:
        return found is not None
    return all(a * wanted[0] == b * found[0] for a, b in zip(found, wanted, strict=True))


def test_the_judge_against_all_small_coefficients():
    """Every combination with coefficients of at most 2 is about no fewer people than the judge says."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        sums = [set(rng.choice(list("abcdefgh"), rng.integers(2, 6), replace=False)) for _ in range(3)]
        M = np.array([[p in s for p in "abcdefgh"] for s in sums], dtype=int)
        grid = np.stack(np.meshgrid(*[np.arange(-2, 3)] * 3), -1).reshape(-1, 3)
        fewest = (grid[np.any(grid, axis=1)] @ M != 0).sum(axis=1).min()
        for g in range(1, 5):
            found = fewer_than(g, sums)
            assert (found is not None) >= (fewest < g)
            if found is not None:
                totals = [
                    sum((c for c, s in zip(found, sums, strict=True) if p in s), Fraction(0))
                    for p in "abcdefgh"
                ]
                assert any(found)
                assert sum(t != 0 for t in totals) < g


# ---------------------------------------------------------------- the rules by hand


def test_a_group_needs_g_people_in_every_column_that_it_shows():
    found = History(3)
    with pytest.raises(InputError, match="R1"):
        found.check(group("ab"))
    with pytest.raises(InputError, match="R1"):
        found.check(ReleasedGroup({"a": 0b11, "b": 0b11, "c": 0b01}, 0b11))
    found.check(ReleasedGroup({"a": 0b11, "b": 0b11, "c": 0b01}, 0b01))
    assert disclosed_columns([0b11, 0b11, 0b01], 2) == 0b11


def test_who_left_keeps_his_group_and_the_others_return_apart():
    found = history(3, "abc", "def", "ghi")
    with pytest.raises(InputError, match="R3"):
        found.check(group("ajk"))  # a is disclosed
    found.retire(1)
    with pytest.raises(InputError, match="R3"):
        found.check(group("ajk"))  # nobody keeps the group yet
    found.open_groups("abdefghijk")  # c has left
    assert found.withheld == {1: {"c"}}
    with pytest.raises(InputError, match="R2"):
        found.check(group("abj"))
    with pytest.raises(InputError, match="R3"):
        found.check(group("cjk"))  # c comes back, and keeps their group all the same
    assert found.add(group("ajk")) == 4
    assert not found.may_return("a")
    assert found.may_return("b")


def test_one_is_held_back_where_nobody_left_for_the_first_time():
    found = history(3, "abc", "def")
    for number in (1, 2):
        found.retire(number)
    found.open_groups("abcdef")  # two of them changed
    assert [len(withheld) for withheld in found.withheld.values()] == [1, 1]
    assert sum(found.may_return(person) for person in "abcdef") == 4


def test_from_a_group_without_anybody_new_nobody_returns():
    found = history(2, "ab", "cd", "ef")
    for number in (1, 2, 3):
        found.retire(number)
    found.open_groups("ace")  # b, d and f keep their groups
    found.add(group("ac"))
    found.retire(4)
    found.open_groups("ac")
    assert 4 not in found.withheld
    assert not found.may_return("a")
    assert found.may_return("e")


def test_a_withheld_person_has_a_value_in_every_disclosed_column_or_there_are_several():
    found = History(2)
    found.add(ReleasedGroup({"a": 0b011, "b": 0b101, "c": 0b111, "d": 0b111}, 0b111))
    found.retire(1)
    found.open_groups("cd")  # a and b left: together they have both columns
    assert found.withheld[1] == {"a", "b"}
    assert found.may_return("c")


def test_an_erased_person_never_returns():
    found = history(3, "abc", "def")
    found.retire(1)
    found.erased.add("a")
    found.open_groups("abc")
    assert found.withheld[1] == {"a"}
    assert [found.may_return(person) for person in "abc"] == [False, True, True]
    found.erased.add("b")
    assert not found.may_return("b")


# ---------------------------------------------------------------- random histories


def played(seed: int, found: History, months: int = 9) -> list[ReleasedGroup]:
    """All groups of a random history: people come, leave, change, come back, are erased."""
    rng = np.random.default_rng(seed)
    g, columns = found.min_group_size, int(rng.integers(1, 4))
    there = {f"p{i}" for i in range(int(rng.integers(2 * g, 8 * g)))}
    away: set[str] = set()
    number = len(there)
    found.there = there  # for rules that are broken on purpose
    apart = getattr(found, "apart", found.groups_of)
    for month in range(months):
        for _ in range(int(rng.integers(1, 2 * g)) if month else 0):
            kind = rng.integers(4)
            if kind == 0 and len(there) > g:
                person = str(rng.choice(sorted(there)))
                there.discard(person)
                away.add(person)
            elif kind == 1 and away:
                person = str(rng.choice(sorted(away)))
                away.discard(person)
                there.add(person)
            elif kind == 2:
                there.add(f"p{number}")
                number += 1
            elif there:  # changed, or erased
                person = str(rng.choice(sorted(there)))
                if rng.random() < 0.3:
                    found.erased.add(person)
                live = found.live_group(person)
                if live is not None:
                    found.retire(live)
        for live in sorted(found.live):
            if not there.issuperset(found.groups[live].members):
                found.retire(live)
        found.open_groups(there)
        pool = sorted(p for p in there if found.live_group(p) is None and found.may_return(p))
        has = {p: 1 | int(rng.integers(1 << columns)) << 1 for p in pool}
        Z = rng.normal(size=(len(pool), 2))
        for rows in regroup(Z, [apart(p) for p in pool], g) if pool else []:
            members = {pool[i]: has[pool[i]] for i in rows}
            found.add(ReleasedGroup(members, disclosed_columns(members.values(), g)))
    return list(found.groups.values())


def broken(found: list[ReleasedGroup], g: int) -> bool:
    """True if a combination of all sums ever disclosed, of one column, is about fewer than g people."""
    columns = max(one.disclosed.bit_length() for one in found)
    for bit in (1 << i for i in range(columns)):
        sums = [{p for p, has in one.members.items() if has & bit} for one in found if one.disclosed & bit]
        if sums and fewer_than(g, sums) is not None:
            return True
    return False


@pytest.mark.parametrize(
    ("g", "histories"),
    [(2, 60), (3, 40), (4, 12), *(pytest.param(g, 2000, marks=pytest.mark.long) for g in (2, 3, 4))],
)
def test_no_combination_of_all_sums_ever_disclosed_is_about_fewer_than_g_people(g, histories):
    groups = people = returned = 0
    for seed in range(histories):
        history = History(g)
        disclosed = played(seed, history)
        assert not broken(disclosed, g), seed
        groups += len(disclosed)
        people += len(history.people)
        returned += sum(len(history.groups_of(person)) > 1 for person in history.people)
    assert returned > 3 * histories  # histories in which many are disclosed again
    print(f"g {g}: {histories} histories, {groups} groups, {people} people, {returned} disclosed again")


class WithoutWithheld(History):
    """R3 forgotten."""

    def may_return(self, person):
        return person not in self.erased and self.live_group(person) is None


class WithoutWithheldForEver(History):
    """Withheld people may come back."""

    def may_return(self, person):
        return person not in self.erased and all(
            n in self.withheld and n not in self.live for n in self.groups_of(person)
        )


class WithoutCompanions(History):
    """R2 forgotten: people who were together before are put together again."""

    def apart(self, person):
        return ()

    def check(self, group):
        assert len(group.members) >= self.min_group_size
        assert all(map(self.may_return, group.members))


class RenewedInPlace(History):
    """R4 forgotten: a group from which somebody left, or in which somebody changed, is disclosed anew."""

    def retire(self, number):
        super().retire(number)
        members = self.groups[number].members
        stay = {p: has for p, has in members.items() if p in self.there and p not in self.erased}
        if len(stay) >= self.min_group_size:
            disclosed = disclosed_columns(stay.values(), self.min_group_size)
            self.restore(max(self.groups) + 1, ReleasedGroup(stay, disclosed), live=True)


@pytest.mark.parametrize(
    "rules", [WithoutWithheld, WithoutWithheldForEver, WithoutCompanions, RenewedInPlace]
)
def test_the_judge_finds_histories_in_which_a_rule_was_forgotten(rules):
    assert any(broken(played(seed, rules(g), months=14), g) for g in (2, 3) for seed in range(60))


# ---------------------------------------------------------------- the cost of the check


class Counting(dict):
    """A dictionary that counts how many of its entries are looked at."""

    touched = 0

    def __getitem__(self, key):
        self.touched += 1
        return super().__getitem__(key)

    def __contains__(self, key):
        self.touched += 1
        return super().__contains__(key)

    def get(self, key, default=None):
        self.touched += 1
        return super().get(key, default)

    def __iter__(self):
        for key in super().__iter__():
            self.touched += 1
            yield key

    def keys(self):
        return iter(self)

    def items(self):
        return ((key, self[key]) for key in self)

    def values(self):
        return (self[key] for key in self)


@pytest.mark.parametrize("groups", [10, 100, 3000])
def test_a_check_looks_at_the_members_of_a_group_and_not_at_the_history(groups):
    """As many entries are looked at after 3000 groups as after 10, for the same group."""
    found = History(3)
    for i in range(groups):
        found.add(ReleasedGroup({f"{i}{name}": 1 for name in "abc"}, 1))
    for number in (1, 2, 3):
        found.retire(number)
    found.open_groups([f"{i}{name}" for i in range(groups) for name in "ab"])  # every c has left
    found.groups, found.withheld, found._groups_of = map(
        Counting, (found.groups, found.withheld, found._groups_of)
    )
    found.check(ReleasedGroup({"0a": 1, "1a": 1, "2a": 1, "new": 1}, 1))
    touched = found._groups_of.touched, found.withheld.touched, found.groups.touched
    assert touched == (
        8,
        6,
        0,
    )  # of 4 members twice: for R2 and R3; of 3 withheld person: that there are, and whom
    found.add(ReleasedGroup({"0a": 1, "1a": 1, "2a": 1, "new": 1}, 1))
    assert found._groups_of.touched + found.withheld.touched + found.groups.touched < 40
