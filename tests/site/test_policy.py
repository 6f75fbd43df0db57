"""The policy: what it reads, what it refuses to read, what it says in plain words."""

import re
import tomllib
from dataclasses import fields, replace
from hashlib import sha256

import pytest

from unpooled.algorithms import METHODS
from unpooled.errors import InputError, PolicyError
from unpooled.privacy.presets import PRESETS
from unpooled.site.explain_policy import explain, template, to_toml
from unpooled.site.policy import Policy, load, parse

pytestmark = pytest.mark.quick


def test_the_empty_policy_is_safe():
    policy = parse("format = 1")
    assert policy == Policy()
    assert policy.protect.mode == "summary"
    assert not policy.protect.auto_approve
    assert policy.aggregation.secure == "preferred"


def test_all_keys_are_read():
    policy = parse(
        """
        format = 1
        [site]
        id = "hospital-a"
        contact = "dpo@example.org"
        [jobs]
        algorithms = ["lloyd", "dwf", "fuzzy"]
        max_rounds = 50
        [protect]
        mode = "dp"
        [domain]
        columns = ["age", "bmi"]
        lower = [0, 10]
        upper = [110, 80.5]
        rows = 4000
        [aggregation]
        secure = "required"
        min_sites = 4
        [dp]
        privacy_unit = "row"
        delta = 1e-7
        epsilon_total = 1
        [wire]
        max_message_bytes = 100000
        """
    )
    assert policy.site.id == "hospital-a"
    assert policy.jobs.algorithms == ("lloyd", "dwf", "fuzzy")
    assert policy.domain.upper == (110.0, 80.5)
    assert policy.dp.epsilon_total == 1.0
    assert policy.private
    assert policy.digest != Policy().digest
    printed = " ".join(s for _, sentences in explain(policy) for s in sentences)
    for word in ("lloyd, dwf, fuzzy", "with noise", "at least 4 sites"):
        assert word in printed
    assert "(1, 1e-07)-differential privacy" in printed


WRONG = {
    "min_cluster_sise = 5": r"unknown section or key 'min_cluster_sise'",
    "[protect]\nmin_cluster_sise = 5": r"unknown key in \[protect\] 'min_cluster_sise'; known are mode",
    "[protect]\nmin_cluster_size = 1": r"min_cluster_size must be at least 2, got 1",
    '[protect]\nmin_cluster_size = "5"': r"min_cluster_size must be a whole number, got '5'",
    "[protect]\nmin_cluster_size = true": r"must be a whole number, got True",
    "[protect]\nmin_cluster_size = 5.5": r"must be a whole number, got 5.5",
    '[protect]\nmode = "maybe"': r"mode must be one of summary, dp, raw, got 'maybe'",
    "[protect]\nmin_group_size = 2": r"\[protect\] min_group_size must be 0 \(by people and columns\) or a "
    "whole number of at least 3, got 2",
    '[protect]\nstudy_columns = ["a"]\nsensitive = ["a"]': (
        r"\[protect\] column a is both in study_columns and in sensitive"
    ),
    '[protect]\nmode = "dp"': r"needs a budget: \[dp\] epsilon_total",
    '[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1': r"needs \[domain\] rows: a public upper bound",
    '[dp]\nprivacy_unit = "person"': r"unit = .person. needs \[protect\] person",
    "[dp]\nrows_per_person = 2": r"rows_per_person is for privacy_unit = .person.",
    "[dp]\nrows_per_person = 0": r"rows_per_person must be at least 1",
    "[dp]\nepsilon_total = 1": r"A site has one protection",
    '[jobs]\nalgorithms = "lloyd"': r"\[jobs\] algorithms must be a list",
    '[jobs]\nalgorithms = ["loyd"]': r"\[jobs\] algorithms: unknown 'loyd'; known are lloyd",
    "[jobs]\nmax_rounds = 0": r"max_rounds must be at least 1, got 0",
    '[aggregation]\nsecure = "yes"': r"secure must be one of off, preferred, required, got 'yes'",
    "[aggregation]\nmin_sites = 2": r"min_sites must be at least 3, got 2",
    '[domain]\ncolumns = ["a"]\nlower = [0]': r"names 1 columns, 1 lower and 0 upper bounds",
    '[domain]\ncolumns = ["a"]\nlower = [1]\nupper = [1]': r"a: lower 1 must be below upper 1",
    '[domain]\ncolumns = ["a", "a"]\nlower = [0, 0]\nupper = [1, 1]': r"names a column twice",
    '[domain]\ncolumns = ["a"]\nlower = [-inf]\nupper = [1]': r"both finite",
    "[dp]\ndelta = 0": r"delta must be a number above 0 and below 0.5, got 0",
    "[dp]\nepsilon_total = -1": r"epsilon_total must be a number above 0 and at most 100, got -1",
    "protect = 5": r"protect must be a section, \[protect\]",
    "[protect": r"not TOML",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(text, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(f"format = 1\n{text}", encoding="utf-8")
    with pytest.raises(PolicyError, match=WRONG[text]) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))


FORMATS = {
    "": "policy.toml: the policy has no format, and this release reads format = 1",
    "[protect]": "policy.toml: the policy has no format, and this release reads format = 1",
    "format = 0": "policy.toml: the policy has format 0, and this release reads format 1",
    "format = 2": "policy.toml: the policy has format 2, and this release reads format 1",
    "format = '1'": "policy.toml: format must be a whole number, got '1'",
    "format = true": "policy.toml: format must be a whole number, got True",
    "format = 1.0": "policy.toml: format must be a whole number, got 1.0",
}


@pytest.mark.parametrize("text", FORMATS)
def test_another_format_is_refused_in_one_sentence_that_names_the_file(text):
    with pytest.raises(PolicyError) as caught:
        parse(text, "policy.toml")
    assert str(caught.value) == FORMATS[text]


RENAMED = {
    "version = 2": "version is now format = 1",
    "format = 1\n[protect]\ng = 5": "[protect] g is now min_group_size",
    "format = 1\n[protect]\nlargest_share = 0.1": "[protect] largest_share is now max_share",
    "format = 1\n[protect]\nauto = true": "[protect] auto is now auto_approve",
    "format = 1\n[dp]\nunit = 'row'": "[dp] unit is now privacy_unit",
    "format = 1\n[protect]\nmode = 'copy'": '[protect] mode = "copy" is now mode = "summary"',
    "format = 1\n[protect]\nmode = 'trusted'": '[protect] mode = "trusted" is now mode = "raw"',
    "format = 1\n[protect]\nmode = 'noise'": '[protect] mode = "noise" is now mode = "dp"',
    "version = 2\n[protect]\nmode = 'copy'\ng = 5": "version is now format = 1; [protect] g is now "
    'min_group_size; [protect] mode = "copy" is now mode = "summary"',
}


@pytest.mark.parametrize("text", RENAMED)
def test_a_name_of_an_earlier_format_is_an_error_that_names_its_replacement(text):
    with pytest.raises(PolicyError) as caught:
        parse(text, "policy.toml")
    assert str(caught.value) == f"policy.toml: {RENAMED[text]}"


def test_every_unknown_key_is_an_error_in_every_section():
    for section in fields(Policy):
        text = f"format = 1\n[{section.name}]\nx = 1" if section.name != "format" else "format = 1\nx = 1"
        with pytest.raises(PolicyError, match=r"unknown (key in \[\w+\]|section or key) 'x'"):
            parse(text)
    with pytest.raises(PolicyError, match="unknown section or key 'protekt'"):
        parse("format = 1\n[protekt]\nmode = 'raw'")


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "p.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolicyError, match="not a text file"):
        load(tmp_path / "p.toml")


def test_the_template_is_the_default_policy():
    policy = parse(template("north"))
    assert policy.site.id == "north"
    assert policy.jobs == Policy().jobs
    assert policy.protect == Policy().protect
    assert policy.jobs.algorithms == tuple(METHODS)


def test_a_written_policy_says_the_same(tmp_path):
    policy = parse(
        """
        format = 1
        [protect]
        min_group_size = 8
        person = "id"
        study_columns = ["age", "bmi"]
        sensitive = ["hiv"]
        log_transform = ["pay"]
        auto_approve = true
        """
    )
    assert parse(to_toml(policy)) == policy
    printed = " ".join(s for _, sentences in explain(policy) for s in sentences)
    for word in (
        "at least 8 people, i.e. k-anonymity with k = 8",
        "Column id",
        "age, bmi",
        "hiv",
        "only the logarithm of these columns: pay",
        "nobody approved",
    ):
        assert word in printed


# ---------------------------------------------------------------- presets


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_policy_that_keeps_to_it_and_names_its_source(name):
    rule = PRESETS[name]
    text = template("north", name, consumption=("kwh",) if rule.max_share else ())
    policy = parse(text)
    assert rule.where in text
    assert rule.rule in text
    assert policy.protect.mode == rule.mode
    assert policy.protect.min_group_size == (rule.min_people if rule.mode == "summary" else 0)
    assert policy.dp.epsilon_total == rule.epsilon
    printed = " ".join(line for _, lines in explain(policy) for line in lines)
    assert f"The policy follows the preset {name}" in printed
    assert to_toml(policy) == text


def test_every_rule_has_a_line_in_the_file():
    """A rule with a default that lacks a line would be in force without being shown."""
    dp = """
        format = 1
        protect.mode = "dp"
        dp.epsilon_total = 1.0
        domain = {columns = ["age"], lower = [0.0], upper = [99.0], rows = 100}
        """
    written = tomllib.loads(to_toml(parse(dp)))
    assert set(written) == {rule.name for rule in fields(Policy)}
    for name, rules in written.items():
        if name != "format":
            assert set(rules) == {rule.name for rule in fields(getattr(Policy(), name))}


@pytest.mark.parametrize("mode", ["summary", "raw"])
@pytest.mark.parametrize("name", ["opensafely", "cms", "datashield"])
def test_a_policy_does_not_claim_what_only_a_release_does(name, mode):
    """A site suppresses and rounds no counts: a preset sets the fewest people of a group there."""
    rule = PRESETS[name]
    text = f'format = 1\n[protect]\npreset = "{name}"\nmode = "{mode}"\n'
    text += "min_group_size = 11\nmin_cluster_size = 11\n"
    printed = " ".join(line for _, lines in explain(parse(text)) for line in lines)
    assert rule.asks not in printed
    group = {"summary": f"every group of the summary table has at least {rule.min_people} people."}
    group["raw"] = f"no group of fewer than {rule.min_people} rows is disclosed."
    assert f"The policy follows the preset {name}: {group[mode]}" in printed
    assert f"`unpooled release RUN --preset {name}` suppresses" in printed


def test_the_presets_are_those_of_the_published_rules():
    assert {name: rule.min_people for name, rule in PRESETS.items() if rule.mode == "summary"} == {
        "opensafely": 8,
        "cms": 11,
        "datashield": 5,
        "utility-15-15": 15,
    }
    assert PRESETS["utility-15-15"].max_share == 0.15
    assert PRESETS["strict"].mode == "dp"


@pytest.mark.parametrize(
    ("rules", "printed"),
    [
        ('preset = "hospital"', "unknown preset 'hospital'. The presets are opensafely, cms"),
        (
            'preset = "opensafely"\nmin_group_size = 5',
            "needs groups of at least 8 people, got min_group_size = 5",
        ),
        ('preset = "opensafely"', "needs groups of at least 8 people, got min_group_size = 0"),
        ('preset = "cms"\nmode = "raw"\nmin_cluster_size = 10', "got min_cluster_size = 10"),
        (
            'preset = "utility-15-15"\nmode = "raw"\nmin_cluster_size = 15',
            'limits shares of totals, which mode = "raw" does not check',
        ),
        (
            'preset = "utility-15-15"\nmin_group_size = 15\nmax_share = 0.2',
            "max_share of at most 0.15, got 0.2",
        ),
        ('preset = "strict"', 'needs mode = "dp", and mode is "summary"'),
        ('mode = "raw"\nconsumption = ["kwh"]', 'consumption is for mode = "summary"'),
        ("max_share = 0", "max_share must be above 0"),
    ],
)
def test_a_policy_that_is_weaker_than_its_preset_is_refused(rules, printed):
    with pytest.raises(PolicyError, match=re.escape(printed)):
        parse(f"format = 1\n[protect]\n{rules}")


def test_an_unknown_preset_is_named():
    with pytest.raises(InputError, match="unknown preset 'x'"):
        template("north", "x")


def test_the_digest_counts_every_rule_and_a_new_rule_only_where_it_is_used():
    plain, ruled = parse("format = 1"), parse(template("", "opensafely"))
    assert plain.digest == sha256(repr(plain).encode()).hexdigest()
    for rules in ('consumption = ["kwh"]', "max_share = 0.1", "min_group_size = 8"):
        assert parse(f"format = 1\n[protect]\n{rules}").digest != plain.digest
    without = replace(ruled, protect=replace(ruled.protect, preset=""))
    assert without.digest != ruled.digest
