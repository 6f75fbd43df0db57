"""Attacks across a change of protection, summary table, rules, study or rows within one run.

What was begun under the one is neither repeated nor finished under the other.
"""

import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from attacks.stages import AUTHORITY, SlowCoordinator, request_id
from studies import study_of, terms_of
from unpooled.data import Number, Preparation, Table
from unpooled.data.schema import AskColumns
from unpooled.errors import LedgerError
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, Response
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.chain import refused
from unpooled.site.erase_people import erase
from unpooled.site.log import Log
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.session import SiteSession, SiteSettings
from unpooled.site.study_store import APPROVED, WITHDRAWN, StudyFolder
from unpooled.site.table_store import SECOND_TABLE, SummaryFolder

NEW_RUN = "Start a new run"
RAW = 'format = 1\n[protect]\nmode = "raw"\none_row_per_person = true\nno_sensitive_columns = true\n'
SUMMARY = (
    "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true\n"
)
SECURE = '[aggregation]\nsecure = "required"\n'
DP = 'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1\n[domain]\nrows = 500\n'
X = np.random.default_rng(0).normal(size=(90, 2))
TRANSFORM = Preparation((Number("x", 0.0, 0.0, 1.0),), drop=False)


def asked(site, when, question=None, transform=None):
    request = Request(when, (Part("total", question or AskMoments(), transform, 0),))
    return codec.unwrap(site.respond(codec.wrap(request)), expect=Response).replies[0]


# ---------------------------------------------------------------- repeated requests


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RAW + "min_cluster_size = 2\n", RAW + "min_cluster_size = 20\n"),
        (RAW, RAW + SECURE),
        (SUMMARY, SUMMARY + SECURE),
        (SUMMARY, SUMMARY + '[jobs]\nalgorithms = ["dual"]\ndescribe = false\n'),
        (RAW, SUMMARY),
    ],
)
def test_a_run_that_was_begun_under_other_rules_gets_nothing(tmp_path, before, after):
    site = open_site("a", X, parse(before), tmp_path)
    assert not isinstance(asked(site, request_id()), Refusal)
    site.close()
    site = open_site("a", X, parse(after), tmp_path)
    for exchange in (0, 1):  # the very question again, and another one
        assert NEW_RUN in asked(site, request_id(exchange)).reason
    site.close()
    site = open_site("a", X, parse(before), tmp_path)  # the rules of then: it goes on
    assert not isinstance(asked(site, request_id()), Refusal)
    site.close()


@pytest.mark.parametrize(
    "more", ['[site]\ncontact = "somebody else"\n', "[wire]\nmax_message_bytes = 100000\n"]
)
def test_a_run_goes_on_where_only_the_contact_or_a_limit_changed(tmp_path, more):
    site = open_site("a", X, parse(SUMMARY), tmp_path)
    first = asked(site, request_id())
    site.close()
    site = open_site("a", None, parse(SUMMARY + more), tmp_path)
    assert codec.encode(asked(site, request_id())) == codec.encode(first)
    assert not isinstance(asked(site, request_id(1)), Refusal)
    site.close()


def ended(settings, study):
    return SiteSession(settings, terms_of(study))


def answered(end, exchange, column="age"):
    question = AskColumns((column,), np.zeros(1), np.ones(1), (), (), False)
    request = Request(request_id(exchange), (Part("total", question, None, 0),))
    result = end.respond(codec.wrap(request))
    return codec.unwrap(result).replies[0] if isinstance(result, bytes) else result


@pytest.fixture
def hospital(tmp_path):
    """The settings of a site, whose policy is a file."""
    rows = "".join(f"{40 + i % 31},{20 + i % 9}\n" for i in range(60))
    (tmp_path / "p.csv").write_text("age,bmi\n" + rows)
    policy = tmp_path / "policy.toml"
    policy.write_text(RAW)
    return SiteSettings("a", str(tmp_path / "p.csv"), str(tmp_path / "kept"), str(policy), "")


def test_another_study_of_the_same_run_gets_no_answer_of_the_one_that_was_withdrawn(hospital):
    folder = StudyFolder(Path(hospital.folder))
    studies = [study_of(), study_of(title="another", columns=("bmi",))]
    for number, study in enumerate(studies):
        end = ended(hospital, study)
        answered(end, 0)
        folder.decide(study.digest, APPROVED, "an officer")
        result = answered(end, 0)
        end.close()
        if number == 0:
            assert not isinstance(result, Refusal)
            folder.decide(study.digest, WITHDRAWN, "an officer")
    assert NEW_RUN in result.reason


def test_a_study_that_was_withdrawn_is_not_approved_again_where_its_file_is_lost(hospital):
    coordinator = Identity.new()
    rules = RAW + '[studies]\napprove = "known"\npurposes = ["to find groups"]\n'
    Path(hospital.policy).write_text(rules)
    known = SiteSettings(
        "a", hospital.data, hospital.folder, hospital.policy, authority=coordinator.public.hex()
    )
    study = study_of(identity=coordinator)
    end = SiteSession(known, terms_of(study, coordinator))
    assert not isinstance(answered(end, 0), Refusal | str)
    end.close()
    StudyFolder(Path(known.folder)).decide(study.digest, WITHDRAWN, "an officer", "a complaint")
    shutil.rmtree(Path(known.folder) / "studies")
    end = SiteSession(known, terms_of(study, coordinator))
    assert answered(end, 1) == "the site has withdrawn the study: a complaint"
    end.close()


def test_a_running_site_answers_from_no_summary_table_and_under_no_rules_that_were_replaced(hospital):
    Path(hospital.policy).write_text("format = 1\n")
    place, ages = SummaryFolder(Path(hospital.folder)), np.arange(60.0) % 31 + 40
    place.make(
        Table.from_columns({"age": ages, "hiv": (np.arange(60) % 7 == 0) * 1.0}),
        SummarySettings(one_row_per_person=True, no_sensitive_columns=True),
    )
    place.approve("an officer")
    study = study_of()
    end = ended(hospital, study)
    answered(end, 0, "hiv")
    StudyFolder(Path(hospital.folder)).decide(study.digest, APPROVED, "an officer")
    assert not isinstance(answered(end, 0, "hiv"), Refusal)
    place.make(
        Table.from_columns({"age": ages}),
        SummarySettings(one_row_per_person=True, no_sensitive_columns=True),
        second_table=SECOND_TABLE,
    )
    place.approve("an officer")
    for exchange in (0, 1):
        assert NEW_RUN in answered(end, exchange, "hiv").reason
    end.close()


# ---------------------------------------------------------------- secure sums


def three(folder, rules, tables):
    return {
        name: open_site(name, table, parse(rules[name]), folder / name, authority=AUTHORITY.public)
        for name, table in tables.items()
    }


TABLES = {f"s{i}": np.random.default_rng(i).normal(size=(40, 2)) for i in range(3)}
PEOPLE = {
    name: Table.from_columns({"who": [f"P{i}" for i in range(40)], "x": rows[:, 0], "y": rows[:, 1]})
    for name, rows in TABLES.items()
}
WHO = SUMMARY.replace("one_row_per_person = true", 'person = "who"')


def reopened(sites, folder, name, table, rules):
    sites[name].close()
    sites[name] = open_site(name, table, parse(rules), folder / name, authority=AUTHORITY.public)


def test_a_sum_that_was_masked_from_rows_is_not_opened_by_a_site_that_has_a_summary_table_now(tmp_path):
    sites = three(tmp_path, {"s0": RAW, "s1": SUMMARY, "s2": SUMMARY}, TABLES)
    slow = SlowCoordinator(sites)
    slow.begin(request_id(), AskMoments())
    slow.stage(), slow.stage()  # shares, masked replies
    reopened(sites, tmp_path, "s0", TABLES["s0"], SUMMARY)
    assert slow.rest() is None
    assert NEW_RUN in slow.refused["s0"]


def test_a_sum_that_was_masked_with_somebody_is_not_opened_after_his_erasure(tmp_path):
    sites = three(tmp_path, dict.fromkeys(PEOPLE, WHO), PEOPLE)
    slow = SlowCoordinator(sites)
    slow.begin(request_id(), AskMoments(), TRANSFORM)
    slow.stage(), slow.stage()
    erase(SummaryFolder(tmp_path / "s0"), ["P0"], "an officer")
    assert slow.rest() is None
    assert "somebody was erased" in slow.refused["s0"]


def test_one_exchange_is_not_summed_before_and_after_an_erasure(tmp_path):
    sites = three(tmp_path, dict.fromkeys(PEOPLE, WHO + SECURE), PEOPLE)
    slow = SlowCoordinator(sites)
    slow.begin(request_id(), AskMoments(), TRANSFORM)
    assert slow.rest().mass.sum() == 120
    erase(SummaryFolder(tmp_path / "s0"), ["P0"], "an officer")
    reopened(sites, tmp_path, "s0", None, WHO + SECURE)
    slow.begin(request_id(), AskMoments(), TRANSFORM, epoch="later")
    assert NEW_RUN in slow.refused["s0"]


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (RAW + SECURE, "are not those of its earlier secure sums"),
        (RAW + SECURE + "max_equations = 1\n", "another sum of this exchange was unmasked before"),
    ],
)
def test_one_exchange_is_not_summed_from_rows_that_have_changed(tmp_path, rules, reason):
    """The difference of the two sums would be the change at one site; the same rows are summed again."""
    sites = three(tmp_path, dict.fromkeys(TABLES, rules), TABLES)
    slow = SlowCoordinator(sites)
    slow.begin(request_id(), AskMoments())
    first = slow.rest()
    reopened(sites, tmp_path, "s0", TABLES["s0"], rules)
    slow.begin(request_id(), AskMoments(), epoch="later")
    assert codec.encode(slow.rest()) == codec.encode(first)
    changed = TABLES["s0"].copy()
    changed[0] += 1.0
    reopened(sites, tmp_path, "s0", changed, rules)
    slow.begin(request_id(), AskMoments(), epoch="last")
    assert slow.rest() is None
    assert reason in slow.refused["s0"]


def test_a_sum_over_fewer_sites_than_the_minimum_of_now_is_not_masked(tmp_path):
    sites = three(tmp_path, dict.fromkeys(TABLES, SUMMARY), TABLES)
    slow = SlowCoordinator(sites)
    slow.begin(request_id(), AskMoments())
    slow.stage()
    reopened(sites, tmp_path, "s0", None, SUMMARY + "[aggregation]\nmin_sites = 5\n")
    assert slow.rest() is None
    assert slow.refused["s0"] == "a sum over 3 sites, and this site's minimum is 5"


# ---------------------------------------------------------------- relays


class Switch:
    """A member that falls silent."""

    def __init__(self, site):
        self.site, self.off = site, False

    def __getattr__(self, name):
        return getattr(self.site, name)

    def receive(self, data):
        if self.off:
            return codec.wrap(refused(codec.unwrap(data, expect=Request), LedgerError("not now")))
        return self.site.receive(data)

    respond = receive


def members():
    rng = np.random.default_rng
    return [Switch(open_site(f"m{i}", rng(i).normal(size=(12, 2)), parse(SUMMARY))) for i in range(3)]


@pytest.mark.parametrize("restart", [False, True])
def test_with_one_set_a_run_keeps_its_members_while_another_run_is_asked(tmp_path, restart):
    rules, below = RelayRules(exact=True, min_sites=2, fixed_membership=True), members()
    relay = Relay("north", below, rules, folder=tmp_path)
    assert asked(relay, request_id(run="first")).sites == 3
    asked(relay, request_id(run="second"))
    if restart:
        relay.close()
        relay = Relay("north", below, rules, folder=tmp_path)
    below[2].off = True
    assert "not all sites of this run's first sum answered" in asked(relay, request_id(1, run="first")).reason
    relay.close()


def test_with_one_set_the_sites_of_a_relay_below_are_counted_after_a_restart(tmp_path):
    below, rules = members(), RelayRules(exact=True, min_sites=2)
    regions = [Relay("low", below, rules), Relay("other", members(), rules)]
    above = Relay("up", regions, RelayRules(exact=True, min_sites=2, fixed_membership=True), folder=tmp_path)
    assert asked(above, request_id()).sites == 6
    above.close()
    above = Relay("up", regions, RelayRules(exact=True, min_sites=2, fixed_membership=True), folder=tmp_path)
    below[2].off = True
    assert "not all sites of this run's first sum answered" in asked(above, request_id(1)).reason
    above.close()


def test_a_relay_gives_no_sum_of_a_run_that_was_begun_under_other_rules(tmp_path):
    below = members()
    relay = Relay("north", below, RelayRules(exact=True, min_sites=2), folder=tmp_path)
    assert asked(relay, request_id()).sites == 3
    relay.close()
    for stricter in (
        RelayRules(exact=True, min_sites=3),
        RelayRules(exact=True, min_sites=2, min_people=100),
    ):
        relay = Relay("north", below, stricter, folder=tmp_path)
        for exchange in (0, 1):
            assert NEW_RUN in asked(relay, request_id(exchange)).reason
        relay.close()


# ---------------------------------------------------------------- archives


def test_noise_does_not_begin_where_the_file_with_exact_answers_was_archived(tmp_path):
    folder = tmp_path / "a"

    def rotated():
        with closing(Log(folder / "log.jsonl")) as log:
            assert log.rotate() is not None
        return sorted(folder.glob("log-*.jsonl"))[-1]

    site = open_site("a", X, parse(SUMMARY), folder)
    asked(site, request_id())
    site.close()
    first = rotated()
    site = open_site("a", None, parse(SUMMARY), folder)
    assert isinstance(asked(site, request_id(1), AskNoisyMoments(0.01, np.full(2, 5.0), 4)), Refusal)
    site.close()
    rotated()
    first.rename(tmp_path / "archived.jsonl")  # as the command says
    first = json.loads((folder / "log.jsonl").read_text().splitlines()[0])
    assert first["protections"] == ["summary"]
    shutil.rmtree(folder / "summary")
    with pytest.raises(LedgerError, match="answered without differential privacy"):
        open_site("a", X, parse(DP), folder)
