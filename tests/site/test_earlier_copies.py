"""What a folder tells of earlier copies, and what a copy that was made before must have for a policy."""

import numpy as np
import pytest

from unpooled.data import Table
from unpooled.errors import BadInput, PolicyError
from unpooled.privacy.copy import CopySettings
from unpooled.site.copy_folder import FURTHER, CopyFolder
from unpooled.site.explain_policy import template
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

X = np.random.default_rng(0).normal(size=(60, 2))


def test_a_log_that_cannot_be_read_may_tell_of_a_copy(tmp_path):
    """Its lines are altered or damaged: what it told of is not known, so no copy is made beside it."""
    open_site("a", X, parse('version = 2\n[protect]\nmode = "trusted"'), tmp_path).close()
    place, log = CopyFolder(tmp_path), tmp_path / "log.jsonl"
    place.check_may_make()  # the log is whole, and tells of none
    log.write_bytes(log.read_bytes().replace(b'"copy":""', b'"copy": ""'))
    with pytest.raises(BadInput, match="the log tells of a copy that was answered from"):
        place.make(X, CopySettings())
    assert not place.exists
    place.make(X, CopySettings(), further=FURTHER)


def test_a_copy_without_the_columns_of_a_preset_is_not_answered_from(tmp_path):
    """It was made before the policy had the preset, or by another policy."""
    rows = Table.of({"kwh": np.exp(np.random.default_rng(1).normal(3, 0.3, 90)), "area": np.arange(90.0)})
    auto = ("auto = false", "auto = true")
    asked = parse(template("", "utility-15-15", consumption=("kwh",)).replace(*auto))
    bare = parse(template("", "utility-15-15").replace(*auto))
    CopyFolder(tmp_path / "before").make(rows, CopySettings(g=15))
    for policy in (bare, asked):
        with pytest.raises(PolicyError, match="needs consumption: the columns of which nobody may have more"):
            open_site("a", policy=policy, folder=tmp_path / "before")
    CopyFolder(tmp_path / "since").make(rows, CopySettings(g=15, consumption=("kwh",)))
    for policy in (asked, bare):
        open_site("a", policy=policy, folder=tmp_path / "since").close()


def test_a_copy_with_larger_shares_than_the_policy_allows_is_not_answered_from(tmp_path):
    rows = Table.of({"kwh": np.exp(np.random.default_rng(1).normal(3, 0.3, 90)), "area": np.arange(90.0)})
    rules = 'version = 2\n[protect]\nauto = true\nconsumption = ["kwh"]\nlargest_share = {}'
    CopyFolder(tmp_path).make(rows, CopySettings(g=15, consumption=("kwh",), largest_share=0.3))
    with pytest.raises(PolicyError, match=r"largest_share = 0.2, but the copy was made with 0.3"):
        open_site("a", policy=parse(rules.format(0.2)), folder=tmp_path)
    for share in (0.3, 0.4):
        open_site("a", policy=parse(rules.format(share)), folder=tmp_path).close()


def test_no_copy_is_left_by_a_policy_that_lacks_the_columns_of_its_preset(tmp_path):
    rows = Table.of({"kwh": np.exp(np.random.default_rng(1).normal(3, 0.3, 90)), "area": np.arange(90.0)})
    with pytest.raises(PolicyError, match="needs consumption"):
        open_site("a", rows, parse(template("", "utility-15-15")), tmp_path)
    assert not CopyFolder(tmp_path).exists
