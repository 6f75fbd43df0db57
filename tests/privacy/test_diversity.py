"""Diverse columns of summary tables: no value is too frequent in a group, in first tables and later ones."""

import numpy as np
import pytest
from test_renewals import Registered
from tests.amounts import amounts

from combinations import fewer_than
from unpooled.data import Table
from unpooled.errors import InputError
from unpooled.kernels.grouping import ClassLimits
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.microaggregation.distributed.whole_site import facts_of
from unpooled.privacy.microaggregation.regroup import regroup
from unpooled.privacy.microaggregation.summarize import make_first_summary

LIMITS = np.array([0.8, 0.8])  # each class has half of the people, and a group may have 0.3 more


def within(values: np.ndarray, everybody: np.ndarray, by: float) -> bool:
    """Whether no value is more frequent here than among everybody, by more than a bound."""
    here, all_of = values[values != ""], everybody[everybody != ""]
    return all((here == v).mean() <= (all_of == v).mean() + by + 1e-9 for v in np.unique(here))


def drawn(seed: int) -> tuple[Table, SummarySettings]:
    """A table with a category that follows from x, a number, missing values; and settings."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 400))
    x, y = rng.normal(size=n), np.exp(rng.normal(size=n))
    kind = np.where(x + rng.normal(0, rng.choice([0.1, 1.0, 9.0]), n) > 0.3, "a", "b").astype(object)
    kind[rng.random(n) < 0.1] = "c"
    kind[rng.random(n) < rng.choice([0.0, 0.2])] = None
    y[rng.random(n) < rng.choice([0.0, 0.1])] = np.nan
    table = Table.from_columns({"x": x, "y": y, "flag": (x > 1).astype(float), "kind": kind.tolist()})
    diverse = (("kind",), ("kind", "y"), ("kind", "y", "flag"))[seed % 3]
    g = int(rng.integers(3, min(12, n // 3) + 1))
    return table, SummarySettings(g, diverse=diverse, diverse_by=float(rng.choice([0.1, 0.2, 0.3, 0.4])))


def test_by_hand_a_group_of_carriers_is_mixed() -> None:
    """Carriers are at one end of x. Half are carriers: with 0.3 more, at most four of a group of five are."""
    rows = Table.from_columns({"x": np.arange(10.0), "hiv": ["no"] * 5 + ["yes"] * 5})
    plain = microaggregate(rows, SummarySettings(5, sensitive=("hiv",)))
    diverse = microaggregate(rows, SummarySettings(5, diverse=("hiv",)))
    assert sorted(plain.counts["hiv"].tolist()) == [[0, 5], [5, 0]]
    assert sorted(diverse.counts["hiv"].tolist()) == [[1, 4], [4, 1]]


@pytest.mark.parametrize("tables", amounts(40, 4000))
def test_no_group_of_a_first_table_exceeds_the_bound(tables: int) -> None:
    for seed in range(tables):
        table, settings = drawn(seed)
        first = make_first_summary(table, settings)
        by, counts = settings.diverse_by, first.summary.counts.get("kind")
        shares = dict(
            zip(first.scales.categories["kind"].names, first.scales.diverse["kind"].limits, strict=True)
        )
        assert all(len(rows) >= settings.min_group_size for rows in first.members)
        if counts is not None:  # what is disclosed, by its own shares
            known = first.summary.people_with_value("kind")
            limits = np.array(list(shares.values()))
            assert (counts <= limits * known[:, None] + 1e-9).all(), seed
        for name, limits in first.scales.diverse.items():
            if not limits.borders:
                continue
            of = limits.classes(first.people.number(name)).astype(str)
            of[of == "-1"] = ""
            assert all(within(of[rows], of, by) for rows in first.members), (seed, name)


def test_somebody_with_several_rows_counts_with_one_category() -> None:
    ids = np.repeat(np.arange(12), 3)
    kind = ["a", "a", "b"] * 6 + ["b", "b", "a"] * 6
    table = Table.from_columns({"id": ids.astype(float), "x": np.arange(36.0), "kind": kind})
    summary = microaggregate(table, SummarySettings(4, person="id", diverse=("kind",), diverse_by=0.25))
    assert summary.counts["kind"].sum(axis=0).tolist() == [6, 6]
    assert summary.counts["kind"].max() <= 3


class Diverse(Registered):
    """A registry whose groups have diverse values."""

    def settings_for(self, g: int) -> SummarySettings:
        return SummarySettings(max(g, 3), "id", diverse=("kind", "y"))


@pytest.mark.parametrize("histories", amounts(12, 200))
@pytest.mark.parametrize("g", [3, 4])
def test_new_groups_keep_the_bound_and_the_theorem_of_renewals_holds(g: int, histories: int) -> None:
    added = returned = 0
    for seed in range(histories):
        site = Diverse(seed, g, people=30)
        checked = set(site.history.groups)
        released = {number: classes_in(site, number) for number in checked}
        for month in range(6):
            if month == 4:  # the shares drift: everybody who comes has the same kind
                for _ in range(15):
                    site.come()
                    site.rows[f"P{site.next - 1}"] = (*site.rows[f"P{site.next - 1}"][:2], "a")
            site.month()
            site.renew()
            for number in set(site.history.groups) - checked:
                checked.add(number)
                added += 1
                assert len(site.history.groups[number].members) >= g
                released[number] = classes_in(site, number)
                for name, of in released[number].items():
                    limits = site.scales.diverse[name]
                    counts = np.bincount(list(of.values()), minlength=len(limits.limits))
                    assert (counts <= np.array(limits.limits) * counts.sum() + 1e-9).all(), (seed, number)
                    assert counts.tolist() == site.history.groups[number].classes[name]
        returned += check_together(site, released)
        for column in range(4):
            sums = site.sums(column)
            assert not sums or fewer_than(g, sums) is None, (seed, column)
    assert added > histories
    assert returned > histories


def classes_in(site: Diverse, number: int) -> dict[str, dict[str, int]]:
    """The class of everybody in a group who has one, by diverse column."""
    values, found = site.values(), {}
    for name, limits in site.scales.diverse.items():
        found[name] = of = {}
        for person in site.history.groups[number].members:
            _, y, kind = values[person]
            if limits.borders and y == y:
                of[person] = int(limits.classes(np.array([y]))[0])
            elif not limits.borders and kind is not None:
                categories = site.scales.categories[name]
                of[person] = categories.names.index(kind) if kind in categories.names else categories.rest
    return found


def check_together(site: Diverse, released: dict[int, dict[str, dict[str, int]]]) -> int:
    """Check what all groups of a person say together, by Bayes' rule; return how many people were checked."""
    checked = 0
    for person in site.history.people:
        groups = site.history.groups_of(person)
        if len(groups) < 2:
            continue
        for name, limits in site.scales.diverse.items():
            if person not in released[groups[-1]][name]:
                continue
            share = np.array(limits.limits) - site.settings.diverse_by
            weights = share.copy()
            for number in groups:
                counts = np.bincount(list(released[number][name].values()), minlength=len(share))
                weights *= counts / counts.sum() / np.maximum(share, 1e-6)
            assert (weights <= (np.array(limits.limits) + 1e-6) * weights.sum()).all(), (person, name)
            checked += 1
    return checked


def test_by_hand_two_groups_of_one_person_add_up() -> None:
    """Half have the class, and four of five in the first group: two such groups give odds of 16, or 0.94."""
    limits = ClassLimits(np.array([[0], [0], [0], [0], [1]], np.int32), np.array([0, 2], np.int32), LIMITS)
    Z, past = np.arange(5.0)[:, None], [(1,), (), (), (), ()]
    assert regroup(Z, past, 5, limits=limits) == [[0, 1, 2, 3, 4]]
    odds = np.array([[0.8 / 0.5, 0.2 / 0.5], *([[1.0, 1.0]] * 4)])
    assert regroup(Z, past, 5, limits=limits, odds=odds) == []
    balanced = limits._replace(classes=np.array([[0], [0], [1], [1], [1], [0]], np.int32))
    Z, past, odds = np.arange(6.0)[:, None], [*past, ()], np.concatenate([odds, [[1.0, 1.0]]])
    # of the five nearest two have the class: odds of 4 * 2 / 3, which is 0.73
    assert regroup(Z, past, 5, limits=balanced, odds=odds) == [[0, 1, 2, 3, 4]]


def test_somebody_of_an_erased_group_does_not_return() -> None:
    limits = ClassLimits(np.array([[0], [1], [0], [1]], np.int32), np.array([0, 2], np.int32), LIMITS)
    odds = np.array([[np.nan, np.nan], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    past = [(1,), (), (), ()]
    assert regroup(np.arange(4.0)[:, None], past, 3, limits=limits, odds=odds) == [[1, 2, 3]]


def test_partitions_cannot_have_diverse_columns() -> None:
    with pytest.raises(InputError, match="in partitions"):
        next(facts_of(SummarySettings(diverse=("kind",))))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"diverse": ("a",), "study_columns": ("a",)}, "both in study_columns and in diverse"),
        ({"diverse": ("a",), "no_sensitive_columns": True}, "column a is sensitive"),
        ({"diverse_by": 0.0}, "diverse_by must be at least"),
        ({"diverse": ("id",), "person": "id"}, "identifies people"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message) -> None:
    with pytest.raises(InputError, match=message):
        SummarySettings(**settings)
