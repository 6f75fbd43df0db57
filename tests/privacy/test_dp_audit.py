"""An audit from outside: run a question often on two tables that differ in one row, and see how well the
replies tell them apart. What is seen bounds the real mu from below, whatever the code says of itself.

A test that tells two mu-GDP outcomes apart has a true positive rate of at most Phi(Phi^-1(false positives) +
mu). Both rates are bounded by Clopper-Pearson with an error of 1e-8 each, so an honest mechanism fails one of
these tests with a probability below 1e-6.
"""

import numpy as np
import pytest
from scipy.stats import beta, norm

from noisy import SHARES, stack, whitened
from unpooled.privacy.dp import spending
from unpooled.privacy.dp.accounting import epsilon_of
from unpooled.privacy.dp.cells import AskNoisyCells
from unpooled.privacy.dp.moments import AskNoisyMoments, AskNoisySpread

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


def audit(question, monkeypatch, factor):
    """What is seen of a question's price when its noise is made ``factor`` times what it should be."""
    few = np.array([[0.1, 0.0], [0.0, -0.2]])
    more = np.vstack([few, BOX])  # a row in the corner adds as much as a row can
    honest = spending.noisy

    def replies(rows, noisy, runs):
        with monkeypatch.context() as patch:
            patch.setattr(spending, "noisy", noisy)
            return np.array([whitened(question, question.answer(stack(rows)), 2) for _ in range(runs)])

    def silent(sums, step, sd):
        return sums * step

    shift = replies(more, silent, 1)[0] - replies(few, silent, 1)[0]
    drawn = [
        replies(rows, lambda sums, step, sd: honest(sums, step, sd * factor), RUNS) for rows in (more, few)
    ]
    return seen_mu(*drawn, shift / np.linalg.norm(shift))


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_audit_passes_the_honest_and_catches_half_the_noise(name, monkeypatch):
    question = QUESTIONS[name]
    said = epsilon_of(question.spends**0.5, DELTA)
    assert epsilon_of(max(audit(question, monkeypatch, 1.0), 1e-3), DELTA) <= said
    assert epsilon_of(max(audit(question, monkeypatch, 0.5), 1e-3), DELTA) > said
