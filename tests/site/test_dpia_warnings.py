"""The DPIA report of a site where something is missing or does not match: its first page names it."""

import numpy as np
import pytest

from unpooled.app.pages.dpia import page, read
from unpooled.data import Number, Preparation, Table
from unpooled.errors import InputError
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.log import Log
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.table_changes import renew
from unpooled.site.table_store import SummaryFolder

AUTO = 'format = 1\n[protect]\nauto_approve = true\nno_sensitive_columns = true\nperson = "id"\n'
RAW = 'format = 1\n[protect]\nmode = "raw"\n'
DP = 'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1\n[domain]\nrows = 100\n'
X = np.random.default_rng(0).normal(size=(60, 2))
TRANSFORM = Preparation((Number("age", 0.0, 0.0, 1.0),), True)


def people(count: int) -> Table:
    ages = [20.0 + 7 * (i % 9) + 0.1 * i for i in range(count)]
    return Table.from_columns({"id": [f"P{i}" for i in range(count)], "age": np.array(ages)})


def answers(folder, rules, table, question=None, transform=None) -> None:
    site = open_site("a", table, parse(rules), folder)
    asked = AskMoments() if question is None else question
    site.answer(Request(RequestId("r", 0, 0, 0), (Part("total", asked, transform, 0),)))
    site.close()


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(InputError, match="neither a summary table nor a log"):
        read(tmp_path)


def test_without_its_policy_the_protection_is_as_the_log_tells(tmp_path):
    answers(tmp_path, RAW, X)
    site = read(tmp_path)
    assert (site.policy, site.mode) == (None, "raw")
    text = page(site)
    assert text.count("not in the folder; the log names digest") >= 2  # a warning, and in place of the rules
    (tmp_path / "policy.toml").write_text(RAW)
    assert "not in the folder" not in page(read(tmp_path))


def test_another_policy_than_the_site_answered_under_is_a_warning(tmp_path):
    answers(tmp_path, RAW, X)
    (tmp_path / "policy.toml").write_text(RAW + "min_cluster_size = 9\n")
    assert "The site last answered under another policy (digest " in page(read(tmp_path))


def test_what_was_spent_is_among_the_figures(tmp_path):
    answers(tmp_path, DP, X, AskNoisyMoments(0.05, np.full(2, 9.0)))
    (tmp_path / "policy.toml").write_text(DP)
    assert "privacy budget" in page(read(tmp_path))


def test_a_summary_table_that_nobody_approved_a_renewal_that_waits_and_a_summary_table_that_is_gone(tmp_path):
    answers(tmp_path, AUTO, people(40), transform=TRANSFORM)
    (tmp_path / "policy.toml").write_text(AUTO)
    warned = "the site answers from a summary table that nobody approved"
    waits = "An update of the summary table is pending"
    assert warned in page(read(tmp_path))
    assert waits not in page(read(tmp_path))
    renew(SummaryFolder(tmp_path), people(67))
    assert waits in page(read(tmp_path))
    (tmp_path / "erasures.json").write_text("{")
    assert "not a list of erasures, or damaged" in page(read(tmp_path))
    (tmp_path / "summary").rename(tmp_path / "elsewhere")
    assert "There is no summary table in the folder." in page(read(tmp_path))


def test_a_log_that_cannot_be_attacked_is_not_reported_to_be_safe(tmp_path):
    """A release whose payload is none: the chain is whole, and nobody knows what left."""
    answers(tmp_path, RAW, X)
    (tmp_path / "policy.toml").write_text(RAW)
    assert "The log is damaged: it could not be attacked." not in page(read(tmp_path))
    log = Log(tmp_path / "log.jsonl")
    log.append("release", run="r", asked=[], payload="no base64")
    log.close()
    site = read(tmp_path)
    assert site.attack is None
    text = page(site)
    assert "The log is damaged: it could not be attacked." in text
    assert "<b>?</b>rows found by attack" in text
