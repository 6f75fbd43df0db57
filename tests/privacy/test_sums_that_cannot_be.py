"""A secure sum that is not what its question declares is an error, not a result: nobody saw the summands."""

import pytest

from helpers import blobs, split
from unpooled import InProcess, SecureSums
from unpooled.core.exchange import conduct
from unpooled.core.protocol import total
from unpooled.errors import BadReply
from unpooled.questions.clusters import AskMoments, Moments

LIES = {
    "a negative number of rows": lambda said: Moments(-said.mass, said.sums, said.squares),
    "negative squares": lambda said: Moments(said.mass, said.sums, -said.squares),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_no_rows_could_give_is_found_in_the_sum(lie, monkeypatch):
    federation = InProcess.of(split(blobs(0, n=120)[0], 4), secure=SecureSums())
    assert conduct(total(federation.sites, AskMoments()), federation, run="r").n == 120
    honest = AskMoments.answer_all
    monkeypatch.setattr(
        AskMoments, "answer_all", lambda self, stack: list(map(LIES[lie], honest(self, stack)))
    )
    with pytest.raises(BadReply, match="the secure sum cannot be"):
        conduct(total(federation.sites, AskMoments()), federation, run="q")
