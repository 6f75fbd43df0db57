"""A policy, a summary table and a record in sentences: what they say changes with what they are about."""

import numpy as np
import pytest

from unpooled.app.pages.table_page import facts, variance_kept
from unpooled.data import Table
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.presets import PRESETS
from unpooled.site.explain_policy import explain, template
from unpooled.site.policy import parse


def printed(text: str) -> str:
    return " ".join(s for _, sentences in explain(parse(f"format = 1\n{text}")) for s in sentences)


DP = """[protect]
mode = "dp"
person = "id"
[domain]
columns = ["age"]
lower = [0]
upper = [110]
rows = 4000
[dp]
privacy_unit = "person"
epsilon_total = 1
"""


@pytest.mark.parametrize(
    ("text", "sentence", "without"),
    [
        (
            '[jobs]\nmodules = ["hospital_methods"]',
            "The site trusts the methods of these installed modules: hospital_methods.",
            "",
        ),
        (
            '[studies]\napprove = "known"\npurposes = ["to find groups", "to plan beds"]',
            'coordinator for "to find groups" or "to plan beds". The site answers other',
            "",
        ),
        (
            '[studies]\napprove = "known"\npurposes = ["*"]',
            "coordinator for any purpose. The site answers other",
            "",
        ),
        (
            DP,
            "The site uses at most 1 row of each person. Column id identifies people.",
            DP.replace('privacy_unit = "person"', ""),
        ),
        (
            DP + "sites_per_person = 3",
            "A person may have rows at up to 3 sites. The site refuses a study that states fewer, and "
            "charges for all of them.",
            DP,
        ),
        (
            DP + "rows_per_person = 3",
            "The site uses at most 3 rows of each person. Column id identifies people.",
            DP,
        ),
        (
            '[protect]\nmode = "raw"\nmin_cluster_size = 7',
            "The site suppresses the count and the sum of a group of fewer than 7 rows.",
            "",
        ),
        (
            '[protect]\nmode = "raw"',
            "Only the contract with the partners protects single rows.",
            "",
        ),
        (
            '[protect]\nmode = "raw"\n[aggregation]\nsecure = "required"',
            "The site answers only in secure sums, from groups of its rows.",
            '[protect]\nmode = "raw"\n[aggregation]\nsecure = "required"\nmax_equations = 1',
        ),
    ],
)
def test_a_policy_says_what_it_allows(text, sentence, without):
    assert sentence in printed(text)
    assert sentence not in printed(without)


def test_a_policy_without_sums_for_the_report_promises_none():
    assert "sums for the report" in printed("")
    assert "sums for the report" not in printed("[jobs]\ndescribe = false")


def test_a_policy_that_names_a_module_may_name_its_methods_and_importing_waits():
    """Reading a policy that somebody sent imports nothing."""
    assert parse('format = 1\n[jobs]\nmodules = ["not_here"]\nalgorithms = ["theirs"]').jobs.modules == (
        "not_here",
    )


def summarized(settings: SummarySettings):
    rng = np.random.default_rng(0)
    table = Table.from_columns(
        {
            "kwh": rng.uniform(900, 1100, 60),
            "pay": rng.uniform(1, 9, 60),
            "flat": np.where(np.arange(60) < 2, 5.0, 1.0),
            "rare": np.where(np.arange(60) < 2, 1.0, np.nan),
            "sex": rng.choice(["f", "m"], 60).tolist(),
        }
    )
    return microaggregate(table, settings)


SAYS = {
    "study_columns": (
        SummarySettings(study_columns=("kwh",)),
        "The grouping gives more weight to these columns: kwh.",
    ),
    "sensitive": (SummarySettings(sensitive=("pay",)), "The grouping ignores these columns: pay."),
    "log_transform": (
        SummarySettings(log_transform=("pay",)),
        "The table holds only the logarithm of these columns: pay.",
    ),
    "consumption": (
        SummarySettings(consumption=("kwh",), max_share=0.3),
        "A cell of kwh is disclosed only if nobody has more than 30% of the group's total.",
    ),
}


@pytest.mark.parametrize("case", SAYS)
def test_a_summary_table_says_how_it_was_made(case):
    settings, sentence = SAYS[case]
    assert sentence in facts(summarized(settings), settings)
    assert sentence not in facts(summarized(SummarySettings()), SummarySettings())


def test_a_summary_table_says_of_which_columns_little_or_nothing_is_disclosed():
    summary = summarized(SummarySettings())
    text = " ".join(facts(summary, SummarySettings()))
    assert "suppressed, because too few people share a value: rare." in text
    assert "constant except for a few people, and disclosed as their median: flat." in text
    found = {name: (share, released) for name, share, released in variance_kept(summary)}
    assert list(found) == ["kwh", "pay", "flat", "sex"]
    assert np.isnan(found["flat"][0])
    assert 0 < found["kwh"][0] < 1


@pytest.mark.parametrize("preset", ["datashield", "opensafely", "cms"])
def test_the_officer_reads_that_a_preset_sets_a_smaller_group_than_the_default(preset):
    """303 people and 14 columns: the default is 12."""
    rng = np.random.default_rng(0)
    table = Table.from_columns({f"x{j}": rng.normal(size=303) for j in range(14)})
    settings = parse(template("north", preset, one_row_per_person=True)).protect.settings()
    size = PRESETS[preset].min_people
    sentences = " ".join(facts(microaggregate(table, settings), settings))
    assert f"The minimum group size of {size} was set by the policy or an option. The default" in sentences
    assert "columns is 12: smaller groups" in sentences
    for enough in (SummarySettings(), SummarySettings(12), SummarySettings(16)):
        assert "was set by" not in " ".join(facts(microaggregate(table, enough), enough))
