"""An audit from outside: ask a site often about two tables that differ in one row, or in one person, and see
how well its replies tell them apart. They come through real sites, of a site that has a budget: what is seen
bounds from below the real mu that its ledger must have charged, whatever the code says of itself.

A test that tells two mu-GDP outcomes apart has a true positive rate of at most Phi(Phi^-1(false positives) +
mu). Both rates are bounded by Clopper-Pearson with an error of 1e-8 each, so an honest mechanism fails one of
these tests with a probability below 1e-6. The bits of the noise come from a seed here, so that a test gives
the same each time.
"""

import numpy as np
import pytest
from scipy.stats import beta, norm

from helpers import ledger_of
from seeded_noise import SHARES, whitened
from unpooled.data import Number, Preparation, Table
from unpooled.privacy.dp.accounting import gdp_epsilon
from unpooled.privacy.dp.noise import Noise
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

RUNS, ERROR, DELTA, MU, BOX = 500, 1e-8, 1e-6, 2.0, np.ones(2)
QUESTIONS = {
    "cells": AskNoisyCells(MU, np.zeros((1, 2)), BOX, np.ones(1), SHARES),
    "fuzzy": AskNoisyCells(MU, np.array([[0.0, 0.0], [-1.0, -1.0]]), BOX, np.ones(1), SHARES, m=1.2),
    "moments": AskNoisyMoments(MU, BOX, bins=2),
    "spread": AskNoisySpread(MU, BOX),
}


def seen_mu(with_row, without, direction):
    """A lower bound of mu from replies (runs, numbers) in units of their noise."""
    a, b = with_row @ direction, without @ direction
    edge = (np.median(a) + np.median(b)) / 2
    hits, alarms = int((a > edge).sum()), int((b > edge).sum())
    low = beta.ppf(ERROR, hits, len(a) - hits + 1) if hits else 0.0
    high = beta.ppf(1 - ERROR, alarms + 1, len(b) - alarms) if alarms < len(b) else 1.0
    return norm.ppf(low) - norm.ppf(high)


RULES = """
format = 1
[protect]
mode = "dp"
person = "who"
[dp]
privacy_unit = "person"
rows_per_person = {most}
epsilon_total = 90
[domain]
columns = ["x", "y"]
lower = [-1, -1]
upper = [1, 1]
rows = 10
"""
TRANSFORM = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)


def asked(rows, who, question, most, runs):
    """Replies through real sites, as bytes, and the charge of each; a new site where a budget is spent."""
    table = Table.from_columns({"who": who, "x": rows[:, 0], "y": rows[:, 1]})
    replies, site = [], None
    while len(replies) < runs:
        site = site or open_site("a", table, parse(RULES.format(most=most)))
        before = ledger_of(site).spent()
        request = Request(RequestId(f"run {len(replies)}", 0, 0, 0), (Part("total", question, TRANSFORM, 0),))
        (reply,) = codec.unwrap(site.respond(codec.wrap(request)), expect=Response).replies
        if isinstance(reply, Refusal):
            assert "the privacy budget does not allow it" in reply.reason
            site.close()
            site = None
            continue
        charged = ledger_of(site).spent() - before
        replies.append(whitened(question, reply, 2))
    return np.array(replies), charged


def audit(question, monkeypatch, factor, most=1, own=1):
    """What is seen of a question's price, its noise ``factor`` times what it should be, and the charge.

    One table has a person more, with ``own`` rows, of which ``most`` are to count.
    """
    few = np.array([[0.1, 0.0], [0.0, -0.2]])
    more = np.vstack([few, *[BOX] * own])  # a row in the corner adds as much as a row can
    tables = ((more, ["a", "b"] + ["c"] * own), (few, ["a", "b"]))
    honest = Noise.added

    def replies(rows, who, noisy, runs):
        with monkeypatch.context() as patch:
            patch.setattr(Noise, "added", noisy)
            return asked(rows, who, question, most, runs)[0]

    def silent(self, sums, step, sd):
        return sums * step

    def scaled(self, sums, step, sd):
        return honest(self, sums, step, sd * factor)

    shift = replies(*tables[0], silent, 1)[0] - replies(*tables[1], silent, 1)[0]
    drawn = [replies(*table, scaled, RUNS) for table in tables]
    return seen_mu(*drawn, shift / np.linalg.norm(shift)), asked(*tables[0], question, most, 1)[1] ** 0.5


@pytest.fixture(autouse=True)
def _seeded(seeded_noise):
    """The noise of all tests here is drawn from a seed."""


@pytest.mark.parametrize(
    "name",
    [
        "cells",
        "moments",
        pytest.param("fuzzy", marks=pytest.mark.long),
        pytest.param("spread", marks=pytest.mark.long),
    ],
)
def test_the_audit_passes_the_honest_and_catches_half_the_noise(name, monkeypatch):
    question = QUESTIONS[name]
    seen, charged = audit(question, monkeypatch, 1.0)
    assert charged == pytest.approx(MU)
    assert gdp_epsilon(max(seen, 1e-3), DELTA) <= gdp_epsilon(charged, DELTA)
    half, _ = audit(question, monkeypatch, 0.5)
    assert gdp_epsilon(max(half, 1e-3), DELTA) > gdp_epsilon(charged, DELTA)


def test_a_person_with_many_rows_costs_and_counts_as_many_as_the_policy_says(monkeypatch):
    """Four rows of one person, of which three count: three times mu is charged, and no more is seen."""
    question = QUESTIONS["cells"]
    seen, charged = audit(question, monkeypatch, 1.0, most=3, own=4)
    assert charged == pytest.approx(3 * MU)
    assert MU < seen <= charged  # more than one row's, as it must be
