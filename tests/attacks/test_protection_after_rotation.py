"""How a site answered before is known from the first line of a log that goes on, too."""

import numpy as np
import pytest

from unpooled.errors import LedgerError
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.log_files import segments
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

DP = 'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1\n[domain]\nrows = 500\n'
X = np.random.default_rng(0).normal(size=(90, 2))


@pytest.mark.parametrize("mode", ["summary", "raw"])
def test_the_mode_is_named_where_the_files_before_are_kept_elsewhere(tmp_path, mode):
    site = open_site(
        "a",
        X,
        parse(
            f'format = 1\n[protect]\nmode = "{mode}"\nauto_approve = true\none_row_per_person = true\n'
            "no_sensitive_columns = true"
        ),
        tmp_path,
    )
    for number in range(2):
        site.answer(Request(RequestId("r", 0, number, 0), (Part("total", AskMoments(), None, 0),)))
        if not number:
            kept = site.log._log.rotate()
    site.close()
    kept.unlink()
    assert segments(tmp_path / "log.jsonl") == [tmp_path / "log.jsonl"]
    with pytest.raises(
        LedgerError, match=rf'answered without differential privacy before \(mode = "{mode}"\)'
    ):
        open_site("a", X, parse(DP), tmp_path)
