"""The layout of a masked reply, as a site that lies may send it."""

import numpy as np
import pytest

from unpooled.privacy.secure_sum.stage_messages import flatten, is_valid_layout, sites_in, unflatten
from unpooled.protocol import codec
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskMoments, Moments

GOOD = Moments(np.array([3.0]), np.array([1.0, 2.0]), np.array([5.0, 6.0]))
(NAME, SHAPES), *_ = flatten([GOOD])[0]


def test_a_layout_gives_back_what_it_was_made_of():
    layout, values = flatten([GOOD, GOOD])
    assert is_valid_layout(layout, 2)
    assert [codec.encode(reply) for reply in unflatten(layout, values)] == [codec.encode(GOOD)] * 2


@pytest.mark.parametrize(
    "layout",
    [
        (),
        ((NAME, SHAPES), (NAME, SHAPES)),
        (("no.Such", SHAPES),),
        ((codec.name_of(Refusal), ((3,),)),),  # a message, but no sum; as many fields as shapes
        ((codec.name_of(AskMoments), ((3,),)),),
        ((NAME, SHAPES[:-1]),),
        ((NAME, (*SHAPES, (1,))),),
        ((NAME, ((-1,), *SHAPES[1:])),),
        ((NAME, ((2**32,), *SHAPES[1:])),),
        ((NAME, ((1,) * 9, *SHAPES[1:])),),
    ],
)
def test_what_is_no_layout_of_one_sum_is_not_sound(layout):
    assert not is_valid_layout(layout, 1)


def test_the_number_of_sites_in_a_sum_is_whole_and_that_of_its_members():
    def words(low: int, high: int) -> np.ndarray:
        return np.array([[0, low], [0, high]], dtype=np.uint64)

    assert sites_in(words(0, 4), 4, 0) == 4
    for low, high in ((1, 4), (2**63, 4), (0, 3), (0, 5), (0, 2**64 - 1)):
        assert sites_in(words(low, high), 4, 0) is None
    assert sites_in(words(0, 9), 4, 1) == 9  # one of them is a federation
    assert sites_in(words(1, 9), 4, 1) is None
    assert sites_in(words(0, 3), 4, 1) is None
