"""Private questions that fail are charged once, and those that cannot be answered are not charged at all."""

from pathlib import Path

import numpy as np
import pytest

from helpers import ledger_of
from question_samples import found
from studies import approved_terms, private_study
from unpooled.data import Number, Preparation, Table
from unpooled.errors import InputError
from unpooled.privacy import PrivateQuestion
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.site.ledger import Ledger
from unpooled.site.log import entries
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.session import SiteSession, SiteSettings

RULES = """
format = 1
[protect]
mode = "dp"
[dp]
epsilon_total = 8
[domain]
columns = ["x", "y"]
lower = [-30, -30]
upper = [30, 30]
rows = {rows}
"""
X = np.random.default_rng(0).normal(size=(60, 2))
TRANSFORM = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)
MU = 0.01


def asked(question, transform=TRANSFORM) -> bytes:
    return codec.wrap(Request(RequestId("r", 0, 0, 0), (Part("total", question, transform, 0),)))


def reply_to(site, question, transform=TRANSFORM):
    (reply,) = codec.unwrap(site.respond(asked(question, transform)), expect=Response).replies
    return reply


@pytest.fixture
def settings(tmp_path):
    """A site whose rows are in a file, and whose policy has a budget."""
    data, policy = tmp_path / "patients.csv", tmp_path / "policy.toml"
    data.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in X))
    policy.write_text(RULES.format(rows=100))
    return SiteSettings("a", str(data), str(tmp_path / "kept"), str(policy))


def spent(settings) -> float:
    ledger = Ledger.open_read_only(Path(settings.folder) / "ledger.sqlite")
    try:
        return ledger.spent()
    finally:
        ledger.close()


def test_a_private_question_that_fails_is_computed_and_charged_once(settings, monkeypatch):
    computed = []

    def failing(self, batch):
        computed.append(self)
        raise ZeroDivisionError

    monkeypatch.setattr(AskNoisyMoments, "answer_all", failing)
    end = SiteSession(settings, approved_terms(settings, study=private_study()))
    question = AskNoisyMoments(MU, np.full(2, 30.0))
    reply = reply_to(end, question)
    end.close()
    assert reply.reason == "failed with ZeroDivisionError; the site's own log has the details"
    assert len(computed) == 1
    assert spent(settings) == pytest.approx(question.privacy_cost)
    log = [entry for _, entry in entries(Path(settings.folder) / "log.jsonl")]
    assert [entry["kind"] for entry in log] == ["study", "opening", "refusal"]


# ---------------------------------------------------------------- what public facts refuse


def of_width(kind: type, d: int) -> list:
    """Questions of a kind about d columns; a kind that is not listed here fails the test."""
    box = np.full(d, 30.0)
    centers, radius, shares = np.zeros((2, d)), np.ones(1), (0.3, 0.6, 0.1)
    return {
        AskNoisyMoments: [AskNoisyMoments(MU, box)],
        AskNoisySpread: [AskNoisySpread(MU, box)],
        AskNoisyCells: [
            AskNoisyCells(MU, centers, box, radius, shares),
            AskNoisyCells(MU, centers, box, radius, shares, m=2.0),
        ],
    }[kind]


@pytest.mark.parametrize("kind", found(PrivateQuestion), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("named", [True, False], ids=["table", "array"])
def test_a_question_about_another_number_of_columns_is_refused_and_not_charged(kind, named, tmp_path):
    table = Table.from_columns({"x": X[:, 0], "y": X[:, 1]}) if named else X
    transform = TRANSFORM if named else None
    rules = RULES if named else RULES.replace("columns", "#").replace("lower", "#").replace("upper", "#")
    site = open_site("a", table, parse(rules.format(rows=100)), tmp_path)
    for d in (3, 5):
        for question in of_width(kind, d):
            assert "columns, and the rows have 2" in reply_to(site, question, transform).reason
    assert ledger_of(site).spent() == 0
    (question, *_) = of_width(kind, 2)
    assert not isinstance(reply_to(site, question, transform), Refusal)
    assert ledger_of(site).spent() == pytest.approx(question.privacy_cost)
    site.close()


@pytest.mark.parametrize("kind", found(PrivateQuestion), ids=lambda kind: kind.__name__)
def test_sums_that_would_not_fit_are_refused_and_not_charged(kind, tmp_path):
    table = Table.from_columns({"x": X[:, 0], "y": X[:, 1]})
    for rows in (10**9, 10**11, 10**12):
        site = open_site("a", table, parse(RULES.format(rows=rows)), tmp_path / str(rows))
        for question in of_width(kind, 2):
            reply = reply_to(site, question)
            ledger = ledger_of(site)
            if isinstance(reply, Refusal):
                assert reply.reason.startswith(f"{rows} declared rows are too many")
            assert (ledger.spent() > 0) is not isinstance(reply, Refusal)
            assert isinstance(reply, Refusal) is (rows * MU > 2**30)
        site.close()


def test_a_site_with_noise_has_no_weights():
    with pytest.raises(InputError, match="weights of rows do not go with differential privacy"):
        open_site(
            "a",
            Table.from_columns({"x": X[:, 0], "y": X[:, 1]}),
            parse(RULES.format(rows=100)),
            weights=X[:, 0],
        )
