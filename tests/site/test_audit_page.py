"""The account of a site's log: what it says depends on how the site answered."""

import numpy as np
import pytest

from studies import study_of
from unpooled.app.pages.audit_page import lines, page
from unpooled.federation import LocalFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.protocol.algorithm import each, total
from unpooled.protocol.exchange import run_protocol
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.audit.overview import read
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.study_store import APPROVED, StudyFolder

X = np.random.default_rng(0).normal(size=(120, 2))
RULES = {
    "summary": "[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true",
    "dp": '[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1\n[domain]\nrows = 100',
    "raw": '[protect]\nmode = "raw"',
}
SAYS = {
    "summary": "The site answered from its summary table (digest ",
    "dp": "The site answered from its rows, with noise that was charged to the privacy budget.",
    "raw": "rows",
}


def account(folder) -> tuple[str, str]:
    """What the terminal and the page say."""
    record = read(folder)
    assert record.intact
    return " ".join(text for _, printed in lines(record) for text in printed), page(record)


@pytest.fixture
def opened(tmp_path):
    made = []

    def of(mode, secure=None):
        made.extend(
            open_site(name, X[i::3], parse(f"format = 1\n{RULES[mode]}"), tmp_path / name)
            for i, name in enumerate("abc")
        )
        return LocalFederation(made, secure=secure)

    yield of
    for site in made:
        site.close()


@pytest.mark.parametrize("mode", RULES)
def test_it_says_how_the_site_answered_and_in_no_other_way(opened, tmp_path, mode):
    federation = opened(mode)
    question = AskNoisyMoments(0.05, np.full(2, 9.0)) if mode == "dp" else AskMoments()
    run_protocol(total(federation.sites, question), federation, run="r")
    for text in account(tmp_path / "a"):
        assert SAYS[mode] in text
        assert ("Differential privacy: epsilon" in text) is (mode == "dp")
        assert not any(SAYS[other] in text for other in ("summary", "dp") if other != mode)
        assert "left masked" not in text


def test_it_counts_what_could_be_read_singly_and_what_left_masked(opened, tmp_path):
    federation = opened("summary", SecureSums())
    run_protocol(total(federation.sites, AskMoments()), federation, run="sums")
    for text in account(tmp_path / "a"):
        assert "1 answer left masked: only sums over sites are readable. 4 further messages held keys" in text
        assert "read singly" not in text
    run_protocol(each(federation.sites, AskMoments()), federation, run="single")
    for text in account(tmp_path / "a"):
        assert "1 answer could be read singly by the coordinator, not only in a sum." in text
        assert "how many rows there are, and of every column the sum and the sum of squares" in text


def test_it_names_the_decisions_about_studies_and_says_where_nothing_left(tmp_path):
    place, study = StudyFolder(tmp_path), study_of()
    open_site("a", X, parse(f"format = 1\n{RULES['raw']}"), tmp_path).close()
    terminal, html = account(tmp_path)
    assert "Nothing was asked yet. Nothing has left." in terminal
    for text in (terminal, html):
        assert "Nothing has left." in text
        assert "approved by" not in text
    place.receive("a", study, "")
    place.decide(study.digest, APPROVED, "Dr. <Low>")
    terminal, html = account(tmp_path)
    assert "approved by Dr. <Low>" in terminal
    assert "approved by Dr. &lt;Low&gt;" in html
