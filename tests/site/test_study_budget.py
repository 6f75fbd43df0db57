"""An approved study spends at most its epsilon, whatever its coordinator asks and however often it asks."""

import multiprocessing
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from studies import answer_and_die, approved_terms, private_study, terms_of
from unpooled.algorithms import Private
from unpooled.data import Number, Preparation
from unpooled.errors import TooFewAnswersError
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import Gaussian, SecureSums
from unpooled.privacy.dp import noise
from unpooled.privacy.dp.accounting import gdp_epsilon, gdp_mu
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.protocol import codec, run
from unpooled.protocol.algorithm import total, transformed
from unpooled.protocol.exchange import Part, Request, RequestId, Response, run_protocol
from unpooled.protocol.messages import Refusal
from unpooled.site.ledger import Ledger
from unpooled.site.session import PendingDecision, SiteSession, SiteSettings

RULES = """
format = 1
[protect]
mode = "dp"
{protect}
[dp]
epsilon_total = 8
{dp}
[domain]
columns = ["x", "y"]
lower = [-30, -30]
upper = [30, 30]
rows = 2000
"""
DELTA, BOX = 1e-6, np.full(2, 30.0)
X = np.concatenate([np.random.default_rng(i).normal(9 * i, 1.0, (300, 2)) for i in (0, 1)])
TRANSFORM = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)


def site_at(folder: Path, name: str = "a", protect: str = "", dp: str = "") -> SiteSettings:
    """A site with a file of rows, whose policy has a budget of epsilon 8; two rows of every person."""
    folder.mkdir(parents=True, exist_ok=True)
    data, policy = folder / "rows.csv", folder / "policy.toml"
    data.write_text("x,y,who\n" + "".join(f"{x},{y},p{i // 2}\n" for i, (x, y) in enumerate(X)))
    policy.write_text(RULES.format(protect=protect, dp=dp))
    return SiteSettings(name, str(data), str(folder / "kept"), str(policy))


@pytest.fixture
def settings(tmp_path):
    return site_at(tmp_path)


def request(question, number=0, exchange=0, name="r") -> bytes:
    return codec.wrap(Request(RequestId(name, 0, number, exchange), (Part("total", question, TRANSFORM, 0),)))


def reply_to(end, data):
    (reply,) = codec.unwrap(end.respond(data), expect=Response).replies
    return reply


def spent(settings, name: str | None = None) -> float:
    ledger = Ledger.open_read_only(Path(settings.folder) / "ledger.sqlite")
    try:
        return ledger.spent(name)
    finally:
        ledger.close()


# ---------------------------------------------------------------- a lying coordinator


def test_one_question_beyond_the_study_is_refused_before_noise_is_drawn(settings, monkeypatch):
    """The policy would pay for it: epsilon 7.9 of 8, where 0.1 was approved."""
    drawn = []
    draw = noise.discrete_gaussian
    monkeypatch.setattr(noise, "discrete_gaussian", lambda *a: (drawn.append(a), draw(*a))[1])
    end = SiteSession(settings, approved_terms(settings, study=private_study(title="Heart patients")))
    reply = reply_to(end, request(AskNoisyMoments(1.516, BOX)))
    assert reply.reason == (
        "the approved study 'Heart patients' may spend epsilon 0.1 at delta 1e-06. It has 0.1 left, and this "
        "query would raise what it has spent from 0 to 7.91. Propose a study with a larger epsilon."
    )
    assert not drawn
    assert spent(settings) == 0
    assert not isinstance(reply_to(end, request(AskNoisyMoments(gdp_mu(0.06, DELTA), BOX), 1)), Refusal)
    assert drawn
    reply = reply_to(end, request(AskNoisyMoments(gdp_mu(0.1, DELTA), BOX), 2))
    assert "It has 0.04 left, and this query would raise what it has spent from 0.06" in reply.reason
    end.close()
    assert spent(settings) == pytest.approx(gdp_mu(0.06, DELTA) ** 2)


def test_many_questions_of_all_kinds_restarts_and_other_runs_spend_no_more_than_the_study(settings):
    """Small ones that each fit, of several kinds and parts; the site is opened again and again."""
    most, mu = gdp_mu(0.1, DELTA) ** 2, gdp_mu(0.1, DELTA) / 4
    kinds = (
        AskNoisyMoments(mu, BOX),
        AskNoisySpread(mu, BOX),
        AskNoisyCells(mu, np.zeros((2, 2)), BOX, np.ones(1), (0.3, 0.6, 0.1)),
        AskNoisyCells(mu, np.zeros((2, 2)), BOX, np.ones(1), (0.3, 0.6, 0.1), m=2.0),
    )
    terms, answered, reasons = approved_terms(settings, study=private_study()), {}, []
    for number in range(12):
        end = SiteSession(settings, terms)  # as after a restart
        for exchange, question in enumerate(kinds):
            data = request(question, number, exchange)
            reply = reply_to(end, data)
            if isinstance(reply, Refusal):
                reasons.append(reply.reason)
            else:
                answered[data] = codec.encode(reply)
                assert codec.encode(reply_to(end, data)) == answered[data]  # again, and not paid again
        other = codec.unwrap(end.respond(request(kinds[0], name="r2"))).replies[0]
        assert "this is another run" in other.reason
        end.close()
        assert spent(settings) <= most * (1 + 1e-9)
    assert len(answered) == 16
    assert len(reasons) == 32
    assert all(reason.startswith("the approved study") for reason in reasons)
    assert gdp_epsilon(spent(settings, "r") ** 0.5, DELTA) == pytest.approx(0.1)


def test_parts_of_one_request_are_paid_for_together(settings):
    end = SiteSession(settings, approved_terms(settings, study=private_study()))
    mu = gdp_mu(0.1, DELTA) * 0.9  # one fits, two do not
    parts = tuple(Part("total", AskNoisyMoments(mu, BOX), TRANSFORM, i) for i in range(2))
    replies = codec.unwrap(end.respond(codec.wrap(Request(RequestId("r", 0, 0, 0), parts)))).replies
    end.close()
    assert all("may spend epsilon 0.1" in reply.reason for reply in replies)
    assert spent(settings) == 0


@pytest.mark.parametrize(("dies", "charged"), [("keep", 1), ("_link", 0)])
def test_a_site_that_is_killed_forgets_nothing_that_its_study_has_spent(settings, dies, charged):
    """kill -9 between the charge and its answer, and in the middle of the charge."""
    terms, mu = approved_terms(settings, study=private_study()), gdp_mu(0.1, DELTA) / 2**0.5
    question = AskNoisyMoments(mu, BOX)
    SiteSession(settings, terms).close()
    context = multiprocessing.get_context("forkserver")
    for number in range(2):
        words = (settings, terms, request(question, number), dies)
        process = context.Process(target=answer_and_die, args=words)
        process.start()
        process.join()
        assert process.exitcode == -9
        ledger = Path(settings.folder) / "ledger.sqlite"
        assert (spent(settings) if ledger.exists() else 0.0) == pytest.approx(mu**2 * charged * (number + 1))
    end = SiteSession(settings, terms)
    answered = [not isinstance(reply_to(end, request(question, number)), Refusal) for number in (2, 3, 4)]
    end.close()
    assert answered == ([False] * 3 if charged else [True, True, False])
    assert spent(settings) == pytest.approx(gdp_mu(0.1, DELTA) ** 2)


def test_another_study_of_the_same_run_waits_for_its_own_approval(settings):
    terms = approved_terms(settings, study=private_study())
    question = AskNoisyMoments(gdp_mu(0.1, DELTA), BOX)
    end = SiteSession(settings, terms)
    assert not isinstance(reply_to(end, request(question)), Refusal)
    end.close()
    again = SiteSession(settings, terms_of(replace(terms.study, title="the same, once more")))
    assert isinstance(again.respond(request(question, 1)), PendingDecision)
    again.close()
    approved = SiteSession(settings, approved_terms(settings, study=private_study(title="and approved")))
    assert "another study. Start a new run" in reply_to(approved, request(question, 1)).reason
    approved.close()
    assert spent(settings) == pytest.approx(question.privacy_cost)


def test_studies_of_two_runs_spend_apart_and_the_policy_limits_both(settings):
    question = AskNoisyMoments(gdp_mu(6, DELTA), BOX)
    for name in ("r", "q"):
        study = private_study(name, epsilon=6)
        end = SiteSession(settings, approved_terms(settings, study=study))
        reply = reply_to(end, request(question, name=name))
        end.close()
        if name == "q":
            assert "the privacy budget does not allow it" in reply.reason
    assert spent(settings, "r") == pytest.approx(question.privacy_cost)
    assert spent(settings, "q") == 0


def test_a_study_that_spends_nothing_gets_no_noisy_answer(settings):
    """It says that it expects answers from a summary table, and lists noisy questions nevertheless."""
    study = private_study(epsilon=0.1, protection="summary")
    end = SiteSession(settings, approved_terms(settings, study=replace(study, epsilon=0.0)))
    reply = reply_to(end, request(AskNoisyMoments(1e-6, BOX)))
    end.close()
    assert "may spend epsilon 0 at delta 1e-06. It has 0 left" in reply.reason
    assert spent(settings) == 0


@pytest.mark.parametrize("epsilon", [np.nan, np.inf, -1.0, 100.5])
def test_a_study_whose_epsilon_is_not_a_budget_is_refused_before_anybody_decides(settings, epsilon):
    end = SiteSession(settings, terms_of(replace(private_study(), epsilon=epsilon)))
    printed = end.respond(request(AskNoisyMoments(1.0, BOX)))
    end.close()
    assert printed == "the study's epsilon is not a number from 0 to 100"


# ---------------------------------------------------------------- honest runs


class Ends:
    """A carrier to the processes of sites."""

    def __init__(self, ends) -> None:
        self._ends, self.sites = ends, tuple(ends)

    def send_and_receive(self, requests):
        return {name: self._ends[name].respond(data) for name, data in requests.items()}


@pytest.mark.parametrize(
    ("secure", "rows"), [(False, 1), (True, 1), (False, 2)], ids=["plain", "secure sums", "people"]
)
def test_an_honest_run_ends_within_its_study_and_nothing_more_is_answered(tmp_path, secure, rows):
    """The epsilon of a study is for a row; a person with two rows costs a site four times as much."""
    study = private_study(epsilon=2.0, secure=secure)
    people = (
        ('person = "who"', f'privacy_unit = "person"\nrows_per_person = {rows}') if rows > 1 else ("", "")
    )
    sites = {name: site_at(tmp_path / name, name, *people) for name in "abc"}
    terms = {name: approved_terms(own, study=study) for name, own in sites.items()}
    method = Private(
        k=2, dp=Gaussian(2.0, DELTA, [-30.0] * 2, [30.0] * 2, accept_noise=True), columns=("x", "y")
    )

    @contextmanager
    def federation():
        ends = {name: SiteSession(own, terms[name]) for name, own in sites.items()}
        yield TransportFederation(Ends(ends), secure=SecureSums() if secure else None)
        for end in ends.values():
            end.close()

    with federation() as opened:
        done = run(method, opened, seed=0, name="r")
    whole = gdp_mu(2.0, DELTA) ** 2 * rows**2
    assert done.state.spent * rows**2 == pytest.approx(whole)
    assert [spent(own) for own in sites.values()] == pytest.approx([whole] * 3)
    with federation() as opened:  # a new coordinator, and sites that were started again
        more = transformed(TRANSFORM, total(opened.sites, AskNoisyMoments(0.01, BOX)))
        with pytest.raises(TooFewAnswersError, match=r"may spend epsilon 2 at delta 1e-06\. It has 0 left"):
            run_protocol(more, opened, run="r", number=done.rounds + 1)
    assert [spent(own) for own in sites.values()] == pytest.approx([whole] * 3)
