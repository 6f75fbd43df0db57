"""Every crafted attack against the three protections: nothing beyond the table, nothing under noise."""

import numpy as np
import pytest

from attacks.crafted_queries import ATTACKS, NAMES, asking, numbers, people_found, rows_of
from unpooled.data import Table
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site import Site
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

PROTECTED = {
    "summary": "[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true",
    "dp": '[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1\n[domain]\nrows = 500\n'
    'columns = ["x", "y", "lab"]\nlower = [-20, -20, 0]\nupper = [20, 20, 10]\n',
    "raw": '[protect]\nmode = "raw"',
}
BLIND = {  # attacks that find nothing even without a rule, and why they are kept
    "affine transforms of the table",  # a table refuses such a transform
}


def opened(mode: str, table: Table) -> Site:
    if mode == "none":
        return Site("target", table)
    return open_site("target", table, parse(f"format = 1\n{PROTECTED[mode]}"))


def attacked(name: str, mode: str, seed: int = 0) -> int:
    """How many people an attack finds."""
    table = rows_of(seed)
    site = opened(mode, table)
    ask = asking(site)
    ask.site = site
    return people_found(ATTACKS[name](ask, np.random.default_rng(seed)), table)


@pytest.mark.parametrize("name", ATTACKS)
def test_nobody_beyond_the_summary_table(name):
    assert attacked(name, "summary") == 0


@pytest.mark.parametrize("name", ATTACKS)
def test_nobody_under_noise(name):
    assert attacked(name, "dp") == 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if name == "an honest scan" else name  # 6 seconds
        for name in ATTACKS
        if name not in BLIND
    ],
)
def test_the_attack_is_an_attack(name):
    """The control: without protection it finds somebody."""
    assert attacked(name, "none") > 0


# ---------------------------------------------------------------- people, time, a dominating person


def test_six_visits_of_one_patient_are_one_person():
    rng = np.random.default_rng(0)
    who = [*(f"P{i}" for i in range(60)), *["far"] * 6]
    x = np.concatenate([rng.normal(0, 1, 60), np.full(6, 50.0) + rng.normal(0, 0.1, 6)])
    table = Table.from_columns({"who": who, "x": x, "y": np.zeros(66)})
    cell = AskClusterSums(np.array([[[0.0, 0.0], [50.0, 0.0]]]))
    from attacks.crafted_queries import PLAIN

    disclosed = asking(opened("raw", table))(cell, PLAIN)
    assert disclosed.mass[0, 1] == 6  # a minimum of rows shows the patient
    summarized = open_site("target", table, parse("format = 1\n[protect]\nperson = 'who'"))
    assert asking(summarized)(cell, PLAIN).mass[0, 1] == 0


def test_a_row_that_is_added_changes_nothing_until_a_new_summary_table(tmp_path):
    table = rows_of(1)
    rules = parse(f"format = 1\n{PROTECTED['summary']}")
    cell = AskClusterSums(np.array([[[0.0, 0.0], [9.0, 9.0]]]))
    from attacks.crafted_queries import PLAIN

    site = open_site("target", table, rules, tmp_path)
    before = asking(site)(cell, PLAIN)
    site.close()
    more = Table(NAMES, table.kinds, table.categories, np.vstack([table.values, [[7.0, 7.0, 5.0, 0.0]]]))
    site = open_site("target", more, rules, tmp_path)
    after = asking(site)(cell, PLAIN, seed=1)
    site.close()
    assert np.array_equal(before.sums, after.sums)
    raw = [asking(opened("raw", t))(cell, PLAIN) for t in (table, more)]
    change = (raw[1].sums - raw[0].sums).sum(axis=(0, 1)) + 7 - 7
    assert np.abs(change).max() > 1  # where rows are asked, the difference is the new person


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9])
def test_a_dominating_person_cannot_be_read_off(far):
    """One person at a million: neither their value nor its size follows from any cell."""
    rng = np.random.default_rng(2)
    x = rng.normal(50, 10, 300)
    x[17] = far
    summary = microaggregate(np.stack([x, rng.normal(size=300)], axis=1), SummarySettings(min_group_size=5))
    assert np.abs(summary.means["0"] - 50).max() < 100
    others = microaggregate(
        np.stack([np.where(x == far, 2 * far, x), np.zeros(300)], axis=1), SummarySettings(min_group_size=5)
    )
    assert np.abs(others.means["0"] - 50).max() < 100


def test_what_is_found_of_a_summary_table_are_means_of_groups():
    """The strongest attack on a summary table returns that table: every value found is one of its rows."""
    table = rows_of(3)
    site = opened("summary", table)
    ask = asking(site)
    found = np.asarray(ATTACKS["seeds of a local clustering"](ask, np.random.default_rng(0)))
    summary = microaggregate(table)
    groups = np.stack([summary.means["x"], summary.means["y"]], axis=1)
    near = np.abs(found[:, None] - groups[None]).max(axis=2).min(axis=1)
    assert near.max() < 1e-9
    assert people_found(found, table) == 0
    assert len(numbers(table)) == 200
