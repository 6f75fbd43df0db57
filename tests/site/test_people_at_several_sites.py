"""A person with rows at several sites: the query states at how many, and each site charges for them all."""

import re
from dataclasses import replace

import numpy as np
import pytest

from helpers import ledger_of
from studies import approved_terms, private_study
from unpooled.data import Number, Preparation, Table
from unpooled.errors import LedgerError, PolicyError
from unpooled.federation import LocalFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.sum_member import Member
from unpooled.protocol import codec
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import Part, Request, RequestId, Response, run_protocol
from unpooled.protocol.messages import Refusal
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.session import SiteSession, SiteSettings
from unpooled.site.study import sentences

X = np.random.default_rng(0).normal(0, 1, (40, 2))
TABLE = Table.from_columns({"x": X[:, 0], "y": X[:, 1], "who": [f"p{i // 2}" for i in range(40)]})
RULES = """
format = 1
[protect]
mode = "dp"
person = "who"
[dp]
epsilon_total = 8
{dp}
[domain]
columns = ["x", "y"]
lower = [-5, -5]
upper = [5, 5]
rows = 100
"""
MU = 0.01
TRANSFORM = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)


def asked(stated: int) -> AskNoisyMoments:
    return AskNoisyMoments(MU, np.full(1, 5.0), sites_per_person=stated)


def request(stated: int, transform: Preparation | None = None) -> Request:
    return Request(RequestId("r", 0, 0, 0), (Part("total", asked(stated), transform, 0),))


def opened(dp: str = ""):
    rules = RULES.format(dp=dp).replace('person = "who"', "") if "person" not in dp else RULES.format(dp=dp)
    return open_site(
        "a", TABLE if "privacy_unit" in dp else X, parse(rules), member=Member("a", Identity.new())
    )


@pytest.mark.parametrize("stated", [1, 2, 3, 5])
def test_a_site_charges_for_all_sites_of_a_person(stated):
    site = opened()
    (reply,) = site.answer(request(stated)).replies
    assert not isinstance(reply, Refusal)
    assert ledger_of(site).spent() == pytest.approx((stated * MU) ** 2)


@pytest.mark.parametrize(
    ("dp", "stated", "says"),
    [
        ("sites_per_person = 3", 1, "at 1 of the sites, .* at 3 .* Run with --sites-per-person 3"),
        ("sites_per_person = 3", 2, "at 2 of the sites, .* at 3"),
        ('privacy_unit = "person"\nrows_per_person = 2', 2, "one row at each of up to 2 sites"),
    ],
)
def test_a_query_about_other_people_than_those_of_the_policy_is_refused_and_costs_nothing(dp, stated, says):
    site = opened(dp)
    (reply,) = site.answer(request(stated, TRANSFORM if "privacy_unit" in dp else None)).replies
    assert isinstance(reply, Refusal)
    assert pytest.approx(0.0) == ledger_of(site).spent()
    assert re.search(says, reply.reason)


@pytest.mark.parametrize("stated", [3, 4])
def test_a_query_that_states_as_many_sites_as_the_policy_or_more_is_answered(stated):
    (reply,) = opened("sites_per_person = 3").answer(request(stated)).replies
    assert not isinstance(reply, Refusal)


def test_all_sites_of_a_sum_charge_for_the_same_people():
    """One site states more sites per person than the query: the sum is refused before anything is charged."""
    honest = 'honest_sites = 3\n[aggregation]\nsecure = "required"'
    sites = []
    for i in range(3):
        dp = honest if i else f"sites_per_person = 2\n{honest}"
        rules = parse(RULES.format(dp=dp).replace('person = "who"', ""))
        sites.append(open_site(f"s{i}", X, rules, member=Member(f"s{i}", Identity.new())))
    federation = LocalFederation(sites, secure=SecureSums(), tolerate_failures=True)
    done = run_protocol(total(federation.sites, asked(2)), federation, run="r")
    assert done.noise[0] == pytest.approx(1.0)  # one noise, shared
    assert [ledger_of(site).spent() for site in sites] == pytest.approx([(2 * MU) ** 2] * 3)


def test_one_policy_cannot_count_several_rows_at_several_sites():
    both = 'privacy_unit = "person"\nrows_per_person = 2\nsites_per_person = 2'
    with pytest.raises(PolicyError, match="cannot both be above 1"):
        parse(RULES.format(dp=both))
    with pytest.raises(PolicyError, match=r"\[dp\] sites_per_person must be at least 1"):
        parse(RULES.format(dp="sites_per_person = 0"))


def test_charges_for_one_site_are_not_taken_for_charges_for_several(tmp_path):
    rules = {
        n: parse(RULES.format(dp=f"sites_per_person = {n}").replace('person = "who"', "")) for n in (1, 2)
    }
    site = open_site("a", X, rules[1], tmp_path)
    site.answer(request(1))
    site.close()
    with pytest.raises(LedgerError, match=r"charges are for a row, and .* is a row at each of up to 2 sites"):
        open_site("a", X, rules[2], tmp_path)
    open_site("a", X, rules[1], tmp_path).close()


# ---------------------------------------------------------------- the study


def test_a_study_states_at_how_many_sites_a_person_has_rows():
    one, three = private_study(), private_study(sites_per_person=3)
    assert "epsilon 0.1 for each row;" in dict(sentences(one))["protection"]
    says = "epsilon 0.1 for each person, with one row at each of up to 3 sites;"
    assert says in dict(sentences(three))["protection"]
    assert codec.decode(codec.encode(three), expect=type(three)).sites_per_person == 3
    assert replace(three, sites_per_person=0).fault()


@pytest.mark.parametrize("stated", [1, 3])
def test_a_query_must_count_people_as_the_approved_study_does(tmp_path, stated):
    data, policy = tmp_path / "rows.csv", tmp_path / "policy.toml"
    data.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in X))
    policy.write_text(RULES.format(dp="").replace('person = "who"', ""))
    settings = SiteSettings("a", str(data), str(tmp_path / "kept"), str(policy))
    session = SiteSession(settings, approved_terms(settings, study=private_study(sites_per_person=2)))
    for states, says in ((stated, f"at up to {stated} sites, and the approved study at up to 2"), (2, "")):
        response = codec.unwrap(session.respond(codec.wrap(request(states, TRANSFORM))), expect=Response)
        refused = isinstance(response.replies[0], Refusal)
        assert refused is bool(says)
        assert not refused or says in response.replies[0].reason
    session.close()
