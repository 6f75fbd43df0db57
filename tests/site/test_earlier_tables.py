"""What a folder records about earlier summary tables, and what a policy requires of an existing one."""

import numpy as np
import pytest

from unpooled.data import Table
from unpooled.errors import InputError, PolicyError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.site.explain_policy import template
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.table_store import SECOND_TABLE, SummaryFolder

X = np.random.default_rng(0).normal(size=(60, 2))


def test_a_log_that_cannot_be_read_may_name_a_summary_table(tmp_path):
    """Its lines are altered or damaged: earlier tables are unknown, so no summary table is made beside it."""
    open_site("a", X, parse('format = 1\n[protect]\nmode = "raw"'), tmp_path).close()
    place, log = SummaryFolder(tmp_path), tmp_path / "log.jsonl"
    place.check_may_make()  # the log is whole, and tells of none
    log.write_bytes(log.read_bytes().replace(b'"summary":""', b'"summary": ""'))
    with pytest.raises(InputError, match="the log names a summary table that the site answered from"):
        place.make(X, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    assert not place.exists
    place.make(
        X, SummarySettings(one_row_per_person=True, no_sensitive_columns=True), second_table=SECOND_TABLE
    )


def test_a_summary_table_without_the_columns_of_a_preset_is_not_answered_from(tmp_path):
    """It was made before the policy had the preset, or by another policy."""
    rows = Table.from_columns(
        {"kwh": np.exp(np.random.default_rng(1).normal(3, 0.3, 90)), "area": np.arange(90.0)}
    )
    auto = ("auto_approve = false", "auto_approve = true")
    asked = parse(template("", "utility-15-15", consumption=("kwh",)).replace(*auto))
    bare = parse(template("", "utility-15-15").replace(*auto))
    SummaryFolder(tmp_path / "before").make(
        rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True, min_group_size=15)
    )
    for policy in (bare, asked):
        with pytest.raises(PolicyError, match="needs consumption: the columns in which nobody may have more"):
            open_site("a", policy=policy, folder=tmp_path / "before")
    SummaryFolder(tmp_path / "since").make(
        rows,
        SummarySettings(
            one_row_per_person=True, no_sensitive_columns=True, min_group_size=15, consumption=("kwh",)
        ),
    )
    for policy in (asked, bare):
        open_site("a", policy=policy, folder=tmp_path / "since").close()


def test_a_summary_table_with_larger_shares_than_the_policy_allows_is_not_answered_from(tmp_path):
    rows = Table.from_columns(
        {"kwh": np.exp(np.random.default_rng(1).normal(3, 0.3, 90)), "area": np.arange(90.0)}
    )
    rules = (
        "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true\n"
        'consumption = ["kwh"]\nmax_share = {}'
    )
    settings = SummarySettings(
        15, consumption=("kwh",), max_share=0.3, one_row_per_person=True, no_sensitive_columns=True
    )
    SummaryFolder(tmp_path).make(rows, settings)
    with pytest.raises(PolicyError, match=r"max_share = 0.2, but the summary table was made with 0.3"):
        open_site("a", policy=parse(rules.format(0.2)), folder=tmp_path)
    for share in (0.3, 0.4):
        open_site("a", policy=parse(rules.format(share)), folder=tmp_path).close()


def test_no_summary_table_is_left_by_a_policy_that_lacks_the_columns_of_its_preset(tmp_path):
    rows = Table.from_columns(
        {"kwh": np.exp(np.random.default_rng(1).normal(3, 0.3, 90)), "area": np.arange(90.0)}
    )
    with pytest.raises(PolicyError, match="needs consumption"):
        open_site("a", rows, parse(template("", "utility-15-15")), tmp_path)
    assert not SummaryFolder(tmp_path).exists
