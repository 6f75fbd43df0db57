"""A secure sum that is not what its question declares is an error, not a result: nobody saw the summands."""

import pytest

from helpers import blobs, split
from unpooled.errors import ReplyError
from unpooled.federation import LocalFederation
from unpooled.privacy import SecureSums
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import run_protocol
from unpooled.protocol.questions.cluster_sums import AskMoments, Moments

LIES = {
    "a negative number of rows": lambda printed: Moments(-printed.mass, printed.sums, printed.squares),
    "negative squares": lambda printed: Moments(printed.mass, printed.sums, -printed.squares),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_no_rows_could_give_is_found_in_the_sum(lie, monkeypatch):
    federation = LocalFederation.from_rows(split(blobs(0, n=120)[0], 4), secure=SecureSums())
    assert run_protocol(total(federation.sites, AskMoments()), federation, run="r").n == 120
    honest = AskMoments.answer_all
    monkeypatch.setattr(
        AskMoments, "answer_all", lambda self, batch: list(map(LIES[lie], honest(self, batch)))
    )
    with pytest.raises(ReplyError, match="the secure sum is not possible"):
        run_protocol(total(federation.sites, AskMoments()), federation, run="q")
