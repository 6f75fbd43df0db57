"""Questions that an honest coordinator never asks, and openings that a policy forbids, with the reasons."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from studies import study_of
from unpooled.data import Number, Preparation, Table
from unpooled.data.missing_values import PreparationWithMissing
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.errors import InputError, LedgerError, PolicyError
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.messages import Question, Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments, Moments
from unpooled.protocol.transform import Transform
from unpooled.site.open_site import open_site
from unpooled.site.pinned_keys import pinned_keys
from unpooled.site.policy import parse
from unpooled.site.study_guard import StudyGuard
from unpooled.site.study_store import APPROVED, StudyFolder
from unpooled.site.table_store import SummaryFolder

X = np.random.default_rng(0).normal(size=(60, 2))
TABLE = Table.from_columns({"age": X[:, 0], "bmi": np.where(X[:, 1] > 1, np.nan, X[:, 1])})


def policy(mode: str = "raw", text: str = "", more: str = ""):
    return parse(f'format = 1\n[protect]\nmode = "{mode}"\n{more}\n{text}')


DECLARED = "auto_approve = true\none_row_per_person = true\nno_sensitive_columns = true"
DP = "[dp]\nepsilon_total = 1\n[domain]\nrows = 100\n"
NAMED = '[dp]\nepsilon_total = 1\n[domain]\ncolumns = ["age"]\nlower = [-9]\nupper = [9]\nrows = 100\n'


def answered(site, question, transform=None, verb="total", number=0):
    request = Request(RequestId("r", 0, number, 0), (Part(verb, question, transform, 0),))
    return codec.unwrap(site.respond(codec.wrap(request))).replies[0]


def reason(site, question, **how) -> str:
    reply = answered(site, question, **how)
    assert isinstance(reply, Refusal), reply
    return reply.reason


# ---------------------------------------------------------------- at the site


@dataclass(frozen=True, eq=False)
class Own(Transform, prefix="test_uncommon_refusals"):
    """A transform that somebody installed and that no policy names: rows as they are."""


@dataclass(frozen=True, eq=False)
class Vague(Question, prefix="test_uncommon_refusals"):
    """A question that does not say what its reply is."""

    reads = "rows"

    def answer_all(self, batch):
        return [Moments(np.ones(1), batch.X[0], batch.X[0])]


def test_a_transform_that_is_not_of_the_package_is_refused():
    assert reason(open_site("a", X, policy()), AskMoments(), transform=Own()) == (
        "the policy does not allow the transform test_uncommon_refusals.Own"
    )


def test_a_question_whose_reply_could_be_anything_is_refused():
    assert "does not declare what its reply is (Question[...])" in reason(
        open_site("a", X, policy()), Vague()
    )


def test_more_clusters_than_a_site_has_time_for():
    site = open_site("a", X, policy("summary", more="one_row_per_person = true\nno_sensitive_columns = true"))
    assert "k = 100,001. A site answers at most 100,000." in reason(site, AskLocalMeans(100_001), verb="each")
    assert not isinstance(answered(site, AskLocalMeans(5), verb="each", number=1), Refusal)


def test_a_question_about_whole_rows_is_refused_where_a_transform_leaves_cells_missing():
    transform = PreparationWithMissing(
        (Number("age", 0.0, 0.0, 1.0), Number("bmi", 0.0, 0.0, 1.0)), drop=False
    )
    site = open_site("a", TABLE, policy())
    printed = reason(site, AskClusterSums(np.zeros((1, 1, 2))), transform=transform)
    assert printed == "AskClusterSums cannot be answered where cells are missing"


def test_a_raw_site_has_no_privacy_budget():
    """It has no budget that could pay, so there is no noisy answer that looks private."""
    assert "does not have a privacy budget" in reason(
        open_site("a", X, policy()), AskNoisyMoments(1.0, np.full(2, 9.0))
    )


def test_without_a_part_in_secure_sums_nothing_but_the_schema_leaves_a_site_that_requires_them():
    rules = policy(
        text='[aggregation]\nsecure = "required"',
        more="one_row_per_person = true\nno_sensitive_columns = true",
    )
    site = open_site("a", TABLE, rules)  # no folder, so no keys
    transform = Preparation((Number("age", 0.0, 0.0, 1.0),), True)
    assert answered(site, AskSchema(), verb="each").names == ("age", "bmi")
    assert "secure sums, and this query is not part of one" in reason(
        site, AskMoments(), transform=transform, number=1
    )


def test_a_study_of_secure_sums_alone_is_so_at_a_site_whose_policy_has_none(tmp_path):
    study = replace(study_of(), secure=True)
    place = StudyFolder(tmp_path)
    place.receive("a", study, "")
    place.decide(study.digest, APPROVED, "Dr. Low")
    rules = policy(
        text='[aggregation]\nsecure = "off"', more="one_row_per_person = true\nno_sensitive_columns = true"
    )
    site = open_site("a", TABLE, rules, tmp_path, study=StudyGuard(study, place))
    transform = Preparation((Number("age", 0.0, 0.0, 1.0),), True)
    assert answered(site, AskSchema(), verb="each").names == ("age", "bmi")
    for verb, says in (("total", "not part of one"), ("each", "discloses a single site's answer")):
        printed = reason(site, AskMoments(), transform=transform, verb=verb, number=1)
        assert printed.startswith("the approved study allows only secure sums")
        assert says in printed
    site.close()


def test_a_column_of_which_no_category_is_asked_is_answered_with_none():
    site = open_site("a", Table.from_columns({"sex": ["f", "m"] * 30}), policy())
    reply = answered(site, AskColumns((), np.zeros(0), np.ones(0), ("sex",), ((),), False))
    assert not isinstance(reply, Refusal)


# ---------------------------------------------------------------- openings


OPENED = {
    "people in an array": (
        X,
        DP.replace("[dp]", '[dp]\nprivacy_unit = "person"'),
        'person = "id"',
        "for tables with named",
    ),
    "a table without declared columns": (TABLE, DP, "", r"needs \[domain\] columns"),
    "a column that is not there": (TABLE, NAMED.replace("age", "weight"), "", r"\[domain\] .*weight"),
}


@pytest.mark.parametrize("case", OPENED)
def test_tables_that_a_site_with_dp_is_not_opened_for(case, tmp_path):
    table, text, more, says = OPENED[case]
    with pytest.raises(PolicyError, match=says):
        open_site("a", table, policy("dp", text, more), tmp_path)
    assert not (tmp_path / "log.jsonl").exists()


def test_dp_does_not_go_with_a_summary_table(tmp_path):
    SummaryFolder(tmp_path).make(TABLE, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    with pytest.raises(LedgerError, match=r"the folder has a summary table, and the policy has mode = .dp."):
        open_site("a", TABLE, policy("dp", NAMED), tmp_path)


@pytest.mark.parametrize("mode", ["summary", "raw"])
def test_what_was_spent_binds_a_folder_whose_log_is_gone(tmp_path, mode):
    """The ledger alone knows that noise was sold: no exact answer beside it."""
    site = open_site("a", X, policy("dp", DP), tmp_path)
    assert not isinstance(answered(site, AskNoisyMoments(0.05, np.full(2, 9.0))), Refusal)
    site.close()
    (tmp_path / "log.jsonl").unlink()
    with pytest.raises(LedgerError, match="another mode would void its promise"):
        open_site(
            "a",
            X,
            policy(mode, more=DECLARED),
            tmp_path,
        )
    assert not (tmp_path / "summary").exists()


def consumption(share: float) -> str:
    return f'consumption = ["kwh"]\nmax_share = {share}\n{DECLARED}'


def test_a_summary_table_made_with_a_laxer_share_than_the_policy_asks_for_is_not_answered_from(tmp_path):
    usage = Table.from_columns({"kwh": np.random.default_rng(1).uniform(900, 1100, 90)})
    open_site("a", usage, policy("summary", more=consumption(0.5)), tmp_path).close()
    with pytest.raises(PolicyError, match=r"max_share = 0.25, but the summary table was made with 0.5"):
        open_site("a", None, policy("summary", more=consumption(0.25)), tmp_path)
    open_site("a", None, policy("summary", more=consumption(0.75)), tmp_path).close()


@pytest.mark.parametrize("folder", [True, False])
def test_a_preset_about_shares_needs_the_columns_that_it_is_about(tmp_path, folder):
    rules = policy(
        "summary",
        more='preset = "utility-15-15"\nmin_group_size = 15\n' + DECLARED,
    )
    with pytest.raises(PolicyError, match=r"needs consumption: .* more than 15% of a group's total"):
        open_site("a", TABLE, rules, tmp_path if folder else None)
    assert not (tmp_path / "summary").exists()


def test_a_policy_that_trusts_a_module_that_is_not_installed(tmp_path):
    rules = policy(text='[jobs]\nmodules = ["hospital_methods_of_nobody"]\nalgorithms = ["theirs"]')
    with pytest.raises(PolicyError, match=r"\[jobs\] modules: .*hospital_methods_of_nobody"):
        open_site("a", X, rules, tmp_path)


def test_a_folder_in_which_nothing_was_answered_has_no_keys(tmp_path):
    with pytest.raises(InputError, match="not the folder of a site that has answered a query"):
        pinned_keys(tmp_path)
    assert list(tmp_path.iterdir()) == []
