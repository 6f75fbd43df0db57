"""Sums under noise are whole numbers of 64 bits: a question is refused where they might not fit."""

import numpy as np
import pytest

from seeded_noise import SHARES
from unpooled.errors import InputError
from unpooled.privacy.dp.noise import BudgetAccountant, check_room, step_for
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.protocol.site_batch import SiteBatch


class Declared(BudgetAccountant):
    """A accountant of a site that declares its number of rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def _charge(self, price: float) -> None:
        pass


def answer(question, declared: int, present: int = 3):
    rows = np.zeros((present, 1))
    noise = Declared(declared).spend([question.privacy_cost], [1.0])
    return question.answer(SiteBatch(rows, np.array([0, present]), None, np.zeros(1), noise=noise))


@pytest.mark.parametrize(
    "question",
    [
        AskNoisyCells(100.0, np.zeros((1, 1)), np.ones(1), np.ones(1), SHARES),
        AskNoisyMoments(100.0, np.ones(1)),
        AskNoisySpread(100.0, np.ones(1)),
    ],
    ids=lambda question: type(question).__name__,
)
def test_more_rows_than_fit_are_refused_by_what_is_declared_and_not_by_what_is_there(question):
    with pytest.raises(InputError, match="rows are too many for noise this small: sums would not fit"):
        answer(question, 2**40)
    assert answer(question, 1000) is not None
    with pytest.raises(InputError, match="1099511627776 rows are too many"):
        answer(question, 2**40, present=0)


def test_the_largest_sum_leaves_room_for_the_noise():
    step = step_for(1.0)
    check_room(2**32 - 1, 1.0, step)
    with pytest.raises(InputError, match="would not fit in 64 bits"):
        check_room(2**32, 1.0, step)  # 2^62 steps
