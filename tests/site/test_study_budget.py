"""An approved study spends at most its epsilon, whatever its coordinator asks and however often it asks."""

import multiprocessing
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from studies import answer_and_die, approved_terms, private_study, terms_of
from unpooled import Gaussian, SecureSums, run
from unpooled.algorithms import Private
from unpooled.core import codec
from unpooled.core.exchange import Answer, Envelope, Part, Turn, conduct
from unpooled.core.messages import Refusal
from unpooled.core.protocol import total, viewed
from unpooled.data import Number, Preparation
from unpooled.errors import TooFewAnswers
from unpooled.privacy.dp import noise
from unpooled.privacy.dp.accounting import epsilon_of, mu_of
from unpooled.privacy.dp.cells import AskNoisyCells
from unpooled.privacy.dp.moments import AskNoisyMoments, AskNoisySpread
from unpooled.runtimes.remote import RemoteFederation
from unpooled.site.ledger import Ledger
from unpooled.site.site_process import SiteEnd, SiteSettings, Waiting

RULES = """
version = 2
[protect]
mode = "noise"
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
VIEW = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)


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


def post(question, number=0, exchange=0, name="r") -> bytes:
    return codec.wrap(Envelope(Turn(name, 0, number, exchange), (Part("total", question, VIEW, 0),)))


def reply_to(end, data):
    (reply,) = codec.unwrap(end.respond(data), expect=Answer).replies
    return reply


def spent(settings, name: str | None = None) -> float:
    ledger = Ledger.seen(Path(settings.folder) / "ledger.sqlite")
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
    end = SiteEnd(settings, approved_terms(settings, study=private_study(title="Heart patients")))
    reply = reply_to(end, post(AskNoisyMoments(1.516, BOX)))
    assert reply.reason == (
        "the approved study 'Heart patients' may spend epsilon 0.1 at delta 1e-06. It has 0.1 left, and this "
        "question would raise what it has spent from 0 to 7.91. Propose a study with a larger epsilon."
    )
    assert not drawn
    assert spent(settings) == 0
    assert not isinstance(reply_to(end, post(AskNoisyMoments(mu_of(0.06, DELTA), BOX), 1)), Refusal)
    assert drawn
    reply = reply_to(end, post(AskNoisyMoments(mu_of(0.1, DELTA), BOX), 2))
    assert "It has 0.04 left, and this question would raise what it has spent from 0.06" in reply.reason
    end.close()
    assert spent(settings) == pytest.approx(mu_of(0.06, DELTA) ** 2)


def test_many_questions_of_all_kinds_restarts_and_other_runs_spend_no_more_than_the_study(settings):
    """Small ones that each fit, of several kinds and parts; the site is opened again and again."""
    most, mu = mu_of(0.1, DELTA) ** 2, mu_of(0.1, DELTA) / 4
    kinds = (
        AskNoisyMoments(mu, BOX),
        AskNoisySpread(mu, BOX),
        AskNoisyCells(mu, np.zeros((2, 2)), BOX, np.ones(1), (0.3, 0.6, 0.1)),
        AskNoisyCells(mu, np.zeros((2, 2)), BOX, np.ones(1), (0.3, 0.6, 0.1), m=2.0),
    )
    terms, answered, reasons = approved_terms(settings, study=private_study()), {}, []
    for number in range(12):
        end = SiteEnd(settings, terms)  # as after a restart
        for exchange, question in enumerate(kinds):
            data = post(question, number, exchange)
            reply = reply_to(end, data)
            if isinstance(reply, Refusal):
                reasons.append(reply.reason)
            else:
                answered[data] = codec.encode(reply)
                assert codec.encode(reply_to(end, data)) == answered[data]  # again, and not paid again
        other = codec.unwrap(end.respond(post(kinds[0], name="r2"))).replies[0]
        assert "this is another run" in other.reason
        end.close()
        assert spent(settings) <= most * (1 + 1e-9)
    assert len(answered) == 16
    assert len(reasons) == 32
    assert all(reason.startswith("the approved study") for reason in reasons)
    assert epsilon_of(spent(settings, "r") ** 0.5, DELTA) == pytest.approx(0.1)


def test_parts_of_one_envelope_are_paid_for_together(settings):
    end = SiteEnd(settings, approved_terms(settings, study=private_study()))
    mu = mu_of(0.1, DELTA) * 0.9  # one fits, two do not
    parts = tuple(Part("total", AskNoisyMoments(mu, BOX), VIEW, i) for i in range(2))
    replies = codec.unwrap(end.respond(codec.wrap(Envelope(Turn("r", 0, 0, 0), parts)))).replies
    end.close()
    assert all("may spend epsilon 0.1" in reply.reason for reply in replies)
    assert spent(settings) == 0


@pytest.mark.parametrize(("dies", "charged"), [("keep", 1), ("_link", 0)])
def test_a_site_that_is_killed_forgets_nothing_that_its_study_has_spent(settings, dies, charged):
    """kill -9 between the charge and its answer, and in the middle of the charge."""
    terms, mu = approved_terms(settings, study=private_study()), mu_of(0.1, DELTA) / 2**0.5
    question = AskNoisyMoments(mu, BOX)
    SiteEnd(settings, terms).close()
    context = multiprocessing.get_context("forkserver")
    for number in range(2):
        words = (settings, terms, post(question, number), dies)
        process = context.Process(target=answer_and_die, args=words)
        process.start()
        process.join()
        assert process.exitcode == -9
        ledger = Path(settings.folder) / "ledger.sqlite"
        assert (spent(settings) if ledger.exists() else 0.0) == pytest.approx(mu**2 * charged * (number + 1))
    end = SiteEnd(settings, terms)
    answered = [not isinstance(reply_to(end, post(question, number)), Refusal) for number in (2, 3, 4)]
    end.close()
    assert answered == ([False] * 3 if charged else [True, True, False])
    assert spent(settings) == pytest.approx(mu_of(0.1, DELTA) ** 2)


def test_another_study_of_the_same_run_waits_for_its_own_approval(settings):
    terms = approved_terms(settings, study=private_study())
    question = AskNoisyMoments(mu_of(0.1, DELTA), BOX)
    end = SiteEnd(settings, terms)
    assert not isinstance(reply_to(end, post(question)), Refusal)
    end.close()
    again = SiteEnd(settings, terms_of(replace(terms.study, title="the same, once more")))
    assert isinstance(again.respond(post(question, 1)), Waiting)
    again.close()
    approved = SiteEnd(settings, approved_terms(settings, study=private_study(title="and approved")))
    assert "another study; begin a new run" in reply_to(approved, post(question, 1)).reason
    approved.close()
    assert spent(settings) == pytest.approx(question.spends)


def test_studies_of_two_runs_spend_apart_and_the_policy_limits_both(settings):
    question = AskNoisyMoments(mu_of(6, DELTA), BOX)
    for name in ("r", "q"):
        study = private_study(name, epsilon=6)
        end = SiteEnd(settings, approved_terms(settings, study=study))
        reply = reply_to(end, post(question, name=name))
        end.close()
        if name == "q":
            assert "the privacy budget does not allow it" in reply.reason
    assert spent(settings, "r") == pytest.approx(question.spends)
    assert spent(settings, "q") == 0


def test_a_study_that_spends_nothing_gets_no_noisy_answer(settings):
    """It says that it expects answers from a copy, and lists noisy questions nevertheless."""
    study = private_study(epsilon=0.1, protection="copy")
    end = SiteEnd(settings, approved_terms(settings, study=replace(study, epsilon=0.0)))
    reply = reply_to(end, post(AskNoisyMoments(1e-6, BOX)))
    end.close()
    assert "may spend epsilon 0 at delta 1e-06. It has 0 left" in reply.reason
    assert spent(settings) == 0


@pytest.mark.parametrize("epsilon", [np.nan, np.inf, -1.0, 100.5])
def test_a_study_whose_epsilon_is_not_a_budget_is_shown_to_nobody(settings, epsilon):
    end = SiteEnd(settings, terms_of(replace(private_study(), epsilon=epsilon)))
    said = end.respond(post(AskNoisyMoments(1.0, BOX)))
    end.close()
    assert said == "the study's epsilon is not a number from 0 to 100"


# ---------------------------------------------------------------- honest runs


class Ends:
    """A carrier to the processes of sites."""

    def __init__(self, ends) -> None:
        self._ends, self.sites = ends, tuple(ends)

    def carry(self, posts):
        return {name: self._ends[name].respond(data) for name, data in posts.items()}


@pytest.mark.parametrize(
    ("secure", "rows"), [(False, 1), (True, 1), (False, 2)], ids=["plain", "secure sums", "persons"]
)
def test_an_honest_run_ends_within_its_study_and_nothing_more_is_answered(tmp_path, secure, rows):
    """The epsilon of a study is for a row; a person with two rows costs a site four times as much."""
    study = private_study(epsilon=2.0, secure=secure)
    persons = ('person = "who"', f'unit = "person"\nrows_per_person = {rows}') if rows > 1 else ("", "")
    sites = {name: site_at(tmp_path / name, name, *persons) for name in "abc"}
    terms = {name: approved_terms(own, study=study) for name, own in sites.items()}
    method = Private(k=2, dp=Gaussian(2.0, DELTA, [-30.0] * 2, [30.0] * 2, force=True), columns=("x", "y"))

    @contextmanager
    def federation():
        ends = {name: SiteEnd(own, terms[name]) for name, own in sites.items()}
        yield RemoteFederation(Ends(ends), secure=SecureSums() if secure else None)
        for end in ends.values():
            end.close()

    with federation() as opened:
        done = run(method, opened, seed=0, name="r")
    whole = mu_of(2.0, DELTA) ** 2 * rows**2
    assert done.state.spent * rows**2 == pytest.approx(whole)
    assert [spent(own) for own in sites.values()] == pytest.approx([whole] * 3)
    with federation() as opened:  # a new coordinator, and sites that were started again
        more = viewed(VIEW, total(opened.sites, AskNoisyMoments(0.01, BOX)))
        with pytest.raises(TooFewAnswers, match=r"may spend epsilon 2 at delta 1e-06\. It has 0 left"):
            conduct(more, opened, run="r", number=done.rounds + 1)
    assert [spent(own) for own in sites.values()] == pytest.approx([whole] * 3)
