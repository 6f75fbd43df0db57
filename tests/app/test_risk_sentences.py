"""The sentences on measured risks that an officer signs."""

import pytest

from unpooled.app.pages import risk_sentences
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.disclosure_risk import MembershipRisk

FOUND = {5: 0.08, 8: 0.04, 11: 0.02}


@pytest.mark.parametrize(
    ("in_use", "found", "advice"),
    [
        (5, FOUND, "Proposal: --min-group-size 8, the smallest of these sizes"),
        (
            8,
            FOUND,
            "8 is the smallest of these sizes at which at most 5.0% are found; that of this table is 8.",
        ),
        (
            14,
            FOUND,
            "8 is the smallest of these sizes at which at most 5.0% are found; that of this table is 14.",
        ),
        (5, {5: 0.3, 8: 0.2}, "At each of these sizes more than 5.0% are found: disclose fewer columns"),
    ],
)
def test_no_size_below_the_one_in_use_is_proposed(in_use, found, advice, monkeypatch):
    risks = tuple(MembershipRisk(size, 0.7, share) for size, share in found.items())
    monkeypatch.setattr(risk_sentences, "membership_by_size", lambda table, settings: risks)
    monkeypatch.setattr(risk_sentences, "clustering_cost", lambda *words: (1.01, float("nan")))
    (sentence,) = risk_sentences._group_sizes(None, SummarySettings(), in_use)
    assert advice in sentence
    assert "5: 8.0%, 1.010, -;" in sentence or "5: 30%, 1.010, -;" in sentence
