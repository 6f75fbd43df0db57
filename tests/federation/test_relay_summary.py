"""A relay that answers from one summary of its members' groups: the table, the rules, the files."""

import numpy as np
import pytest

from helpers import ONE_ROW_PER_PERSON, Declines, bits
from unpooled.algorithms import METHODS, Lloyd
from unpooled.data import Table
from unpooled.data.schema import AskSchema
from unpooled.data.summary_question import AskSummary, SummaryGroups
from unpooled.errors import (
    InputError,
    QueryRefusedError,
    ReplyError,
    SchemaMismatchError,
    TooFewPeopleError,
)
from unpooled.federation import LocalFederation
from unpooled.federation.relay.members_summary import FOLDER, RECORD
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.privacy import SecureSums
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.microaggregation.combine_summaries import combine_summaries, combine_with_rows
from unpooled.privacy.microaggregation.row_record import RowRecord
from unpooled.protocol import codec, run
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site import Site
from unpooled.site.log import verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

ONE = RelayRules(min_sites=1)
CENTERS = np.array([[-4.0, -4.0], [4.0, 4.0]])


def rows_of(seed, sites="abcd", n=90, d=2):
    rng = np.random.default_rng(seed)
    return {s: rng.normal(size=(n, d)) + rng.choice([-4.0, 4.0], size=(n, 1)) for s in sites}


def hospitals(rows):
    return [open_site(name, X, ONE_ROW_PER_PERSON) for name, X in rows.items()]


def reply_of(relay, question, verb="total", run="r", number=0):
    request = Request(RequestId(run, number, 0, 0), (Part(verb, question, None, 0),))
    (reply,) = codec.unwrap(relay.respond(codec.wrap(request)), expect=Response).replies
    return reply


def mixed(rng, n, missing=0.0):
    """A table of a number, a number with missing values and a category."""
    bmi = np.where(rng.random(n) < missing, np.nan, rng.normal(25, 4, n))
    sex = rng.choice(["f", "m"], n).tolist()
    return Table.from_columns({"age": rng.normal(60, 9, n), "bmi": bmi, "sex": sex})


# ---------------------------------------------------------------- the combined table


def test_a_tiny_case_by_hand():
    one = microaggregate(np.array([[0.0]] * 3 + [[10.0]] * 3), SummarySettings(min_group_size=3))
    two = microaggregate(np.array([[1.0]] * 3 + [[12.0]] * 3), SummarySettings(min_group_size=3))
    three = microaggregate(np.array([[2.0]] * 3 + [[14.0]] * 3), SummarySettings(min_group_size=3))
    both = combine_summaries({"x": one, "y": two, "z": three})
    assert both.means["0"].tolist() == [1.0, 12.0]
    assert both.people.tolist() == [9.0, 9.0]
    assert (both.min_group_size, both.named) == (9, False)


@pytest.mark.parametrize("seed", range(20))
def test_every_cell_is_over_three_groups_and_totals_stay(seed):
    rng = np.random.default_rng(seed)
    missing = rng.choice([0.0, 0.3])
    own = {s: microaggregate(mixed(rng, int(rng.integers(20, 200)), missing)) for s in "abc"}
    both, labels = combine_with_rows(own)
    assert len(labels) == sum(len(table) for table in own.values())
    assert np.bincount(labels).min() >= 3
    assert len(both) == labels.max() + 1
    assert both.people.sum() == sum(table.people.sum() for table in own.values())
    assert (both.people >= both.min_group_size).all()
    for name in both.names:
        there = np.concatenate([table.people_with_value(name) for table in own.values()]) > 0
        assert (both.people_with_value(name) > 0).sum() == (np.bincount(labels[there]) >= 3).sum()
    age = sum(table.people @ table.means["age"] for table in own.values())
    assert both.people @ both.means["age"] == pytest.approx(age)
    women = sum(table.counts["sex"][:, table.categories["sex"].index("f")].sum() for table in own.values())
    assert both.counts["sex"][:, both.categories["sex"].index("f")].sum() == pytest.approx(women)


def test_a_cell_of_which_only_two_groups_have_a_value_is_suppressed():
    rng = np.random.default_rng(0)
    full = [microaggregate(Table.from_columns({"x": rng.normal(size=30)})) for _ in range(2)]
    more = microaggregate(Table.from_columns({"x": rng.normal(size=10), "y": rng.normal(size=10)}))
    assert len(more) == 2
    both = combine_summaries({"a": full[0], "b": full[1], "c": more}, "any")
    assert (both.people_with_value("y") == 0).all()
    assert both.kinds == ("number", "empty")
    assert AskSchema().from_summary(both).kinds == ("number", "empty")
    assert SummaryGroups.from_table(both).table().digest == both.digest
    assert (both.people_with_value("x") == both.people).all()


def test_the_table_depends_neither_on_names_nor_on_the_order_of_members():
    rng = np.random.default_rng(1)
    a, b, c = (microaggregate(mixed(rng, 80)) for _ in range(3))
    assert (
        combine_summaries({"a": a, "b": b, "c": c}).digest
        == combine_summaries({"z": c, "y": a, "x": b}).digest
    )


def test_tables_that_do_not_fit_and_too_few_groups_are_errors():
    one = microaggregate(Table.from_columns({"x": np.arange(10.0)}))
    with pytest.raises(SchemaMismatchError):
        combine_summaries({"a": one, "b": microaggregate(Table.from_columns({"y": np.arange(10.0)}))})
    with pytest.raises(TooFewPeopleError, match="fewer than 3 groups"):
        combine_summaries({"a": one})


# ---------------------------------------------------------------- the question for it


def test_a_site_gives_its_table_and_one_without_a_table_refuses():
    table = mixed(np.random.default_rng(2), 60)
    site = open_site("a", table, ONE_ROW_PER_PERSON)
    assert reply_of(site, AskSummary(), "each").table().digest == site.rows.digest
    some = reply_of(site, AskSummary(("age",)), "each").table()
    assert (some.names, len(some)) == (("age",), len(site.rows))
    assert "none of the study's columns" in reply_of(site, AskSummary(("height",)), "each").reason
    raw = Site("b", table)
    assert "does not answer from a summary table" in reply_of(raw, AskSummary(), "each").reason


@pytest.mark.parametrize("wrong", ["{}", "[]", '{"names": 3}', "", "nan"])
def test_a_forged_table_is_not_used(wrong):
    good = SummaryGroups.from_table(microaggregate(mixed(np.random.default_rng(3), 60)))
    with pytest.raises(ReplyError, match="cannot be used"):
        AskSummary().check_reply(SummaryGroups((wrong,), good.lines, good.sites))
    with pytest.raises(ReplyError, match="whole number"):
        AskSummary().check_reply(SummaryGroups(good.about, good.lines, np.array([0.5])))
    fewer = tuple(line.replace(line.split(",")[0], "1", 1) for line in good.lines[1:])
    with pytest.raises(ReplyError, match="fewer than"):
        AskSummary().check_reply(SummaryGroups(good.about, (good.lines[0], *fewer), good.sites))


# ---------------------------------------------------------------- the relay


def test_all_answers_are_those_of_a_site_with_the_combined_table():
    rows = rows_of(0)
    relay = Relay("north", hospitals(rows))
    own = {name: microaggregate(X) for name, X in rows.items()}
    site = Site(
        "north",
        (table := combine_summaries(own)).matrix(),
        table.people,
        grouped=True,
        within=np.nan_to_num(table.within),
    )
    question = AskClusterSums(CENTERS[None])
    assert bits(reply_of(relay, question)) == bits(reply_of(site, question))
    assert bits(reply_of(relay, question, "each")) == bits(reply_of(site, question, "each"))


@pytest.mark.parametrize("seed", range(3))
def test_all_methods_run_and_lose_little(seed):
    """Eight hospitals of 90 rows in two regions: at most 1.03 of the inertia of pooling."""
    rows = rows_of(seed, "abcdefgh")
    regions = {"north": "abcd", "south": "efgh"}
    every = np.concatenate(list(rows.values()))
    relays = [Relay(r, hospitals({s: rows[s] for s in some})) for r, some in regions.items()]

    def inertia(centers):
        return ((every[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum()

    pooled = inertia(run(Lloyd(k=2), LocalFederation([Site("all", every)]), seed=1).state.centers)
    for name in ("lloyd", "k-fed", "fkm", "dwf"):
        done = run(METHODS[name](k=2), LocalFederation(relays), seed=1)
        assert inertia(done.state.centers) <= 1.03 * pooled, name
    above = Relay("country", relays)
    assert inertia(run(Lloyd(k=2), LocalFederation([above]), seed=1).state.centers) <= 1.03 * pooled


def test_relays_sum_securely_with_each_other():
    rows = rows_of(5, "abcdefghi")
    names = sorted(rows)

    def relays():
        return [
            Relay(
                f"r{i}", hospitals({s: rows[s] for s in names[3 * i : 3 * i + 3]}), RelayRules(secure=secure)
            )
            for i in range(3)
        ]

    secure = False
    plain = run(Lloyd(k=2), LocalFederation(relays(), exact_sums=True), seed=1)
    secure = True
    masked = run(Lloyd(k=2), LocalFederation(relays(), secure=SecureSums()), seed=1)
    assert np.allclose(plain.state.centers, masked.state.centers, rtol=1e-12)
    alone = reply_of(relays()[0], AskClusterSums(CENTERS[None]))
    assert isinstance(alone, Refusal)


def test_members_are_asked_once_and_later_absences_and_changes_do_not_matter(tmp_path):
    rows = rows_of(6)
    members = hospitals(rows)
    relay = Relay("north", members, folder=tmp_path)
    first = reply_of(relay, AskClusterSums(CENTERS[None]))
    relay.close()
    others = hospitals(rows_of(7))  # every member has another table, and two do not answer
    others[:2] = [Site(name, rows[name], guards=[Declines()]) for name in "ab"]
    again = Relay("north", others, folder=tmp_path)
    assert bits(reply_of(again, AskClusterSums(CENTERS[None]), number=1)) == bits(first)
    again.close()
    assert verify(tmp_path / "log.jsonl") == []
    (kept,) = (tmp_path / FOLDER).glob("*.bin")
    kept.unlink()  # another table in the same run is refused
    changed = Relay("north", hospitals(rows_of(7)), folder=tmp_path)
    reason = reply_of(changed, AskClusterSums(CENTERS[None]), number=2).reason
    assert reason == "this run began from another summary of its members"
    assert not isinstance(reply_of(changed, AskClusterSums(CENTERS[None]), run="s"), Refusal)
    changed.close()


def test_a_record_of_rows_that_is_lost_or_old_keeps_the_relay_from_making_a_table(tmp_path):
    def answers(seed, run):
        relay = Relay("north", hospitals(rows_of(seed)), folder=tmp_path)
        found = reply_of(relay, AskClusterSums(CENTERS[None]), run=run)
        relay.close()
        return found

    assert not isinstance(answers(6, "r"), Refusal)
    folder = tmp_path / FOLDER
    first = (folder / RECORD).read_bytes()
    (folder / "table.bin").unlink()
    assert not isinstance(answers(7, "s"), Refusal)  # the tables of all members are new
    (folder / "table.bin").unlink()
    (folder / RECORD).write_bytes(first)
    assert answers(8, "t").reason == "failed with LedgerError; its own log has the details"
    (folder / RECORD).unlink()
    assert answers(8, "u").reason == "failed with LedgerError; its own log has the details"
    (folder / RECORD).write_text('{"format": 1, "rows": [["x"]]}')
    assert answers(8, "v").reason == "failed with LedgerError; its own log has the details"


def columns_of(seed, *names):
    rng = np.random.default_rng(seed)
    values = {name: rng.normal(size=90) for name in ("a", "b", "c", "d")}
    return Table.from_columns({name: values[name] for name in names})


def test_a_study_about_other_columns_than_those_of_an_earlier_table():
    own = {s: microaggregate(columns_of(i, "a", "b", "c", "d")) for i, s in enumerate("xyz")}
    record = RowRecord()

    def combined(*names):
        return combine_summaries({s: t.only(names) for s, t in own.items()}, record=record)

    both = combined("a", "b")
    one = combined("b")  # the same rows, with some of the columns
    np.testing.assert_array_equal(np.sort(one.means["b"]), np.sort(both.means["b"]))
    with pytest.raises(QueryRefusedError, match="its table has the columns a, b, and this study is about"):
        combined("b", "c")
    assert combined("c", "d").names == ("c", "d")  # no column in common


def test_a_relay_that_would_leave_out_too_many_people_refuses(tmp_path):
    rows = rows_of(6)
    first = Relay("north", hospitals(rows), folder=tmp_path)
    assert not isinstance(reply_of(first, AskClusterSums(CENTERS[None])), Refusal)
    first.close()
    (tmp_path / FOLDER / "table.bin").unlink()  # another study, of which one member is not part
    fewer = hospitals({s: rows[s] for s in "abc"})
    second = Relay("north", fewer, RelayRules(quorum=0.9), folder=tmp_path)
    reason = reply_of(second, AskClusterSums(CENTERS[None]), run="s").reason
    assert "of its people can be described without disclosing single groups" in reason
    assert "its rules require 90%" in reason
    second.close()


def test_rules_about_sites_people_and_quorum():
    rows = rows_of(8)
    away = [*hospitals({s: rows[s] for s in "ab"}), *(Site(s, rows[s], guards=[Declines()]) for s in "cd")]
    question = AskClusterSums(CENTERS[None])
    assert "2 of its sites answered, and north answers for 3 or more" in reply_of(
        Relay("north", away), question
    ).reason  # fmt: skip
    assert not isinstance(reply_of(Relay("north", away, RelayRules(min_sites=2)), question), Refusal)
    strict = Relay("north", away, RelayRules(min_sites=2, quorum=0.75))
    assert "2 of 4 members sent a summary table, 3 needed" in reply_of(strict, question).reason
    many = Relay("north", hospitals(rows), RelayRules(min_people=361))
    assert "answers for 361 people or more" in reply_of(many, question).reason
    inner = Relay("inner", hospitals({s: rows[s] for s in "ab"}), RelayRules(min_sites=2))
    outer = Relay("outer", [inner, *hospitals({"c": rows["c"]})])  # three sites below two members
    assert not isinstance(reply_of(outer, question), Refusal)
    assert reply_of(outer, AskSummary(), "each").sites.tolist() == [3.0]


def test_tables_with_different_columns_by_the_rule():
    rng = np.random.default_rng(9)
    members = [open_site(s, mixed(rng, 60), ONE_ROW_PER_PERSON) for s in "ab"] + [
        open_site("c", Table.from_columns({"age": rng.normal(60, 9, 60)}), ONE_ROW_PER_PERSON)
    ]
    refused = reply_of(Relay("north", members), AskSchema(), "each").reason
    assert refused == "its sites have different columns: bmi, sex not at all of them"
    common = reply_of(Relay("north", members, RelayRules(columns="common")), AskSchema(), "each")
    assert (common.names, common.protection[0], common.rows[0]) == (("age",), "summary", 180)


@pytest.mark.parametrize(
    "rules", [{"min_contributors": 2}, {"fixed_membership": True}, {"forwarded": ("AskClusterSums",)}]
)
def test_rules_about_sums_need_exact(rules):
    with pytest.raises(InputError, match="Set exact = true, or leave"):
        RelayRules(**rules)


def test_members_that_sum_securely_need_exact():
    with pytest.raises(InputError, match="its members sum securely"):
        Relay("north", LocalFederation.from_rows(rows_of(0, "abc"), secure=True))


def test_a_refusal_does_not_name_members():
    rows = rows_of(10, ("hospital-x", "hospital-y", "hospital-z"))
    relay = Relay("north", [Site(s, X) for s, X in rows.items()])
    reason = reply_of(relay, AskClusterSums(CENTERS[None])).reason
    assert reason == "0 of 3 members sent a summary table, 2 needed"


def test_a_site_that_requires_secure_sums_gives_its_table_to_nobody():
    rules = parse(
        "format = 1\n[protect]\none_row_per_person = true\n"
        'no_sensitive_columns = true\n[aggregation]\nsecure = "required"\n'
    )
    site = open_site("a", mixed(np.random.default_rng(5), 60), rules)
    assert "the policy allows only secure sums" in reply_of(site, AskSummary(), "each").reason
