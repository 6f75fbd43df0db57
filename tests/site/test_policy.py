"""The policy: what it reads, what it refuses to read, what it says in plain words."""

import pytest

from unpooled.algorithms import METHODS
from unpooled.errors import PolicyError
from unpooled.site.explain_policy import explain, template
from unpooled.site.policy import Policy, load, parse


def test_the_empty_policy_is_safe():
    policy = parse("version = 1")
    assert policy == Policy()
    assert policy.disclosure.min_cluster_size == 5
    assert policy.aggregation.secure == "preferred"


def test_all_keys_are_read():
    policy = parse(
        """
        version = 1
        [site]
        id = "hospital-a"
        contact = "dpo@example.org"
        [jobs]
        algorithms = ["lloyd", "dwf", "fuzzy"]
        max_rounds = 50
        max_parameters_per_row = 0.33
        [disclosure]
        min_cluster_size = 7
        min_site_rows = 50
        round_counts_to = 5
        differencing = "refuse"
        [domain]
        columns = ["age", "bmi"]
        lower = [0, 10]
        upper = [110, 80.5]
        [aggregation]
        secure = "required"
        min_sites = 4
        [dp]
        unit = "row"
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
    said = " ".join(s for _, sentences in explain(policy) for s in sentences)
    for word in (
        "lloyd, dwf, fuzzy",
        "fewer than 7 rows",
        "age 0 to 110",
        "multiples of 5",
        "at least 4 sites",
    ):
        assert word in said
    assert "(1, 1e-07)-differential privacy" in said


WRONG = {
    "min_cluster_sise = 5": r"unknown section or key 'min_cluster_sise'",
    "[disclosure]\nmin_cluster_sise = 5": r"unknown key in \[disclosure\] 'min_cluster_sise'; known are min",
    "[disclosure]\nmin_cluster_size = 1": r"min_cluster_size must be at least 2, got 1",
    '[disclosure]\nmin_cluster_size = "5"': r"min_cluster_size must be a whole number, got '5'",
    "[disclosure]\nmin_cluster_size = true": r"must be a whole number, got True",
    "[disclosure]\nmin_cluster_size = 5.5": r"must be a whole number, got 5.5",
    '[disclosure]\ndifferencing = "maybe"': r"differencing must be one of off, warn, refuse, got 'maybe'",
    '[jobs]\nalgorithms = "lloyd"': r"\[jobs\] algorithms must be a list",
    '[jobs]\nalgorithms = ["loyd"]': r"\[jobs\] algorithms: unknown 'loyd'; known are lloyd",
    "[jobs]\nmax_rounds = 0": r"max_rounds must be at least 1, got 0",
    '[aggregation]\nsecure = "yes"': r"secure must be one of off, preferred, required, got 'yes'",
    "[aggregation]\nmin_sites = 2": r"min_sites must be at least 3, got 2",
    '[domain]\ncolumns = ["a"]\nlower = [0]': r"names 1 columns, 1 lower and 0 upper bounds",
    '[domain]\ncolumns = ["a"]\nlower = [1]\nupper = [1]': r"a: lower 1 must be below upper 1",
    '[domain]\ncolumns = ["a", "a"]\nlower = [0, 0]\nupper = [1, 1]': r"names a column twice",
    '[domain]\ncolumns = ["a"]\nlower = [-inf]\nupper = [1]': r"both finite",
    "[dp]\ndelta = 0": r"delta must be between 0 and 1, got 0",
    "[dp]\nepsilon_total = -1": r"epsilon_total must be 0 or more, got -1",
    "disclosure = 5": r"disclosure must be a section, \[disclosure\]",
    "[disclosure": r"not TOML",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(text, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(f"version = 1\n{text}", encoding="utf-8")
    with pytest.raises(PolicyError, match=WRONG[text]) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("text", ["", "version = 2", "version = '1'"])
def test_versions(text):
    with pytest.raises(PolicyError, match="version"):
        parse(text)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "p.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolicyError, match="not a text file"):
        load(tmp_path / "p.toml")


def test_the_template_is_the_default_policy():
    policy = parse(template("north"))
    assert policy.site.id == "north"
    assert policy.jobs == Policy().jobs
    assert policy.disclosure == Policy().disclosure
    assert policy.jobs.algorithms == tuple(METHODS)
