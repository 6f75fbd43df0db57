"""Noisy questions at the ends of what they may ask: the last that is taken, and the first that is not.

What is not taken cannot arrive either: it is refused while it is read, before anything is paid for.
"""

import dataclasses

import numpy as np
import pytest

from seeded_noise import SHARES, batch
from unpooled.errors import CodecError, InputError
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells, radius_limits
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.protocol import codec
from unpooled.protocol.messages import Summable

BOX = np.ones(2)
CELLS = AskNoisyCells(0.3, np.zeros((4, 2)), BOX, np.full(4, 0.5), SHARES)
MOMENTS, SPREAD = AskNoisyMoments(0.3, BOX), AskNoisySpread(0.3, BOX)
LEAST, MOST = radius_limits(BOX)
ABOVE = float(np.nextafter(100, 200))

TAKEN = [
    (CELLS, {"mu": 100.0}),
    (CELLS, {"mu": 1e-6}),
    (CELLS, {"centers": np.array([[1.0, -1.0]]), "rho": np.full(1, 0.5)}),
    (CELLS, {"rho": np.full(1, 0.5)}),
    (CELLS, {"rho": np.array([LEAST, MOST, 0.5, 0.5])}),
    (CELLS, {"m": 100.0}),
    (CELLS, {"m": 1.001}),
    (MOMENTS, {"bins": 1}),
    (MOMENTS, {"bins": 4096}),
    (MOMENTS, {"mu": 100.0}),
    (MOMENTS, {"box": np.ones(1)}),
    (SPREAD, {"box": np.full(2, 1e-100)}),
    (SPREAD, {"box": np.full(2, 1e100)}),
    (SPREAD, {"mu": 1e-6}),
]
NOT_TAKEN = [
    *((asked, {"mu": mu}, "mu must be from") for asked in (CELLS, MOMENTS, SPREAD)
      for mu in (0.0, -1.0, 9e-7, ABOVE, np.inf, np.nan)),
    *((asked, {"box": box}, "box must be a positive half width") for asked in (CELLS, MOMENTS, SPREAD)
      for box in (np.array([1.0, 0.0]), np.array([1.0, np.nan]), np.array([1.0, np.inf]), np.zeros(0),
                  np.ones((1, 2)), np.array([1.0, 9e-101]), np.array([1.0, 2e100]))),
    (CELLS, {"shares": (0.4, 0.4, 0.1)}, "shares must be positive and add up to 1"),
    (CELLS, {"shares": (0.6, 0.6, 0.6)}, "shares must be positive and add up to 1"),
    (CELLS, {"shares": (1.5, -0.25, -0.25)}, "shares must be positive and add up to 1"),
    (CELLS, {"centers": np.zeros(2)}, "do not fit 2 columns"),
    (CELLS, {"centers": np.zeros((4, 2, 1))}, "do not fit 2 columns"),
    (CELLS, {"centers": np.zeros((0, 2))}, "do not fit 2 columns"),
    (CELLS, {"centers": np.zeros((4, 1))}, "do not fit 2 columns"),
    (CELLS, {"centers": np.array([[0.0, np.nan]] * 4)}, "not finite, or outside the box"),
    (CELLS, {"centers": np.array([[0.0, np.inf]] * 4)}, "not finite, or outside the box"),
    (CELLS, {"centers": np.array([[0.0, -1.001]] * 4)}, "not finite, or outside the box"),
    (CELLS, {"rho": np.full(3, 0.5)}, "rho must be one radius or 4"),
    (CELLS, {"rho": np.full((4, 1), 0.5)}, "rho must be one radius or 4"),
    (CELLS, {"rho": np.zeros(0)}, "rho must be one radius or 4"),
    (CELLS, {"rho": np.full(4, 0.9 * LEAST)}, "rho must be from"),
    (CELLS, {"rho": np.full(4, 1.1 * MOST)}, "rho must be from"),
    (CELLS, {"rho": np.array([0.5, 0.5, 0.5, np.nan])}, "rho must be from"),
    (CELLS, {"m": 1.0}, "m must be above 1"),
    (CELLS, {"m": ABOVE}, "m must be above 1"),
    (CELLS, {"m": np.nan}, "m must be above 1"),
    (MOMENTS, {"bins": 0}, "bins must be from 1 to 4096"),
    (MOMENTS, {"bins": 4097}, "bins must be from 1 to 4096"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "change"), TAKEN)
def test_the_last_that_is_taken_is_answered_with_as_many_numbers_as_it_says(asked, change):
    question = codec.decode(codec.encode(dataclasses.replace(asked, **change)))
    reply = question.answer(batch(np.zeros((3, 2))))
    assert isinstance(reply, Summable)
    question.check_reply(reply)


@pytest.mark.parametrize(("asked", "change", "says"), NOT_TAKEN)
def test_what_is_beyond_cannot_be_made_nor_arrive(asked, change, says):
    with pytest.raises(InputError, match=says):
        dataclasses.replace(asked, **change)
    bad = dataclasses.replace(asked)
    for name, value in change.items():
        object.__setattr__(bad, name, value)
    with pytest.raises(CodecError, match=says):
        codec.decode(codec.encode(bad))
