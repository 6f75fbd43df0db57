"""Private questions: their replies have noise, and the noise has a privacy cost that a site can charge.

Noise is drawn within ``answer_all``, so such a reply never exists without it, and it is drawn from the Noise
that the site charged (``SiteBatch.noise``), so it never exists without a charge. A row changes the reply by
at most a known amount for any centres and transform, because the site itself cuts rows and residuals to a
fixed length. A site's rules only have to check the cost (``privacy_cost``) and the size of the reply
(``check``).

A question states at how many sites one person may have a row. Sites of a secure sum may share one noise, and
the rows of one person at s of them shift that sum s times as far as one row, which costs s^2 as much. The
number is part of the question because a secure sum is over answers to the same question: every site charges
for the same people.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic

import numpy as np

from unpooled.errors import InputError, QueryRefusedError
from unpooled.privacy.dp.noise import Noise, check_room, step_for
from unpooled.protocol.declarations import Setting
from unpooled.protocol.limits import MAX_SITES
from unpooled.protocol.messages import A, Question
from unpooled.protocol.site_batch import SiteBatch
from unpooled.typing import FloatArray, IntArray

_MAX_ROWS = 2.0**30  # times mu: a row adds less than mu 2^32 steps to a number, and 2^62 steps fit


@dataclass(frozen=True)
class PrivateQuestionLimits:
    """A site's limits for a private question."""

    remaining: float  # mu^2 of the remaining budget
    numbers: int = 10_000_000  # in one reply
    rows: int = 0  # the declared upper bound


@dataclass(frozen=True, eq=False)
class PrivateQuestion(Question[A], Generic[A], abstract=True):
    """A question whose reply is noisy: mu-GDP with ``mu`` for one row more or less."""

    mu: Annotated[float, Setting()]
    # the most sites at which one person has a row
    sites_per_person: Annotated[int, Setting()] = field(default=1, kw_only=True)

    @property
    def privacy_cost(self) -> float:
        """mu^2 for a person, with a row at every such site: costs add up over questions, however chosen."""
        return (self.mu * self.sites_per_person) ** 2

    @property
    @abstractmethod
    def numbers(self) -> int:
        """The number of values in the reply."""

    def check(self, limits: PrivateQuestionLimits) -> None:
        """Raise QueryRefusedError if the question costs more, or has a larger reply, than the site allows."""
        if self.privacy_cost > limits.remaining * (1 + 1e-9):
            raise QueryRefusedError(
                f"privacy budget: the query costs mu^2 = {self.privacy_cost:.4g}, and "
                f"{limits.remaining:.4g} is left"
            )
        if self.numbers > limits.numbers:
            raise QueryRefusedError(
                f"an answer of {self.numbers} noisy numbers. At most {limits.numbers} are allowed."
            )
        if limits.rows * self.mu >= _MAX_ROWS:
            raise QueryRefusedError(
                f"{limits.rows} declared rows are too many for mu = {self.mu:g}: "
                "sums would not fit in 64 bits"
            )


def check_price(question: PrivateQuestion[Any], shares: tuple[float, ...]) -> None:
    """Raise InputError unless the price is in range and the shares of a reply's parts are positive and sum
    to 1."""
    name = type(question).__name__
    if not 1e-6 <= question.mu <= 100:
        raise InputError(f"{name}: mu must be from 1e-6 to 100, got {question.mu}")
    if not 1 <= question.sites_per_person <= MAX_SITES:
        raise InputError(
            f"{name}: sites_per_person must be from 1 to {MAX_SITES}, got {question.sites_per_person}"
        )
    if not (all(share > 0 for share in shares) and abs(sum(shares) - 1) < 1e-9):
        raise InputError(f"{name}: the shares must be positive and add up to 1, got {shares}")


_WIDTHS = 1e-100, 1e100  # of a box: outside, squares underflow, and a row is longer than it seems


def check_box(box: FloatArray, name: str) -> None:
    """Raise InputError unless the box has a half width for every column whose square is a normal number."""
    if box.ndim != 1 or not len(box) or not ((box >= _WIDTHS[0]) & (box <= _WIDTHS[1])).all():
        raise InputError(f"{name}: box must be a positive half width for every column, from 1e-100 to 1e100")


def columns_of(box: FloatArray) -> dict[str, int]:
    """Return the length of the axis d, if the bounds give it: one bound holds for any number of columns."""
    return {"d": len(box)} if len(box) > 1 else {}


def broadcast_box(box: FloatArray, batch: SiteBatch) -> FloatArray:
    """Return (d,) half widths; one for all columns is repeated."""
    return np.broadcast_to(box, (batch.X.shape[1],)).copy() if len(box) == 1 else box


def charged_noise(batch: SiteBatch) -> Noise:
    """Return the noise that the site charged for this answer; QueryRefusedError if there is none."""
    if len(batch.noise) != 1:
        raise QueryRefusedError("this query is answered with noise, and no noise was charged")
    noise: Noise = batch.noise[0]
    return noise


class NoisyArray:
    """One array of a noisy reply: the sum over rows, in whole steps, and its noise.

    ``length``: the largest norm of one row's contribution. ``mu``: this part's share of the cost.
    """

    def __init__(self, shape: tuple[int, ...], length: float, mu: float, local: SiteBatch) -> None:
        self.sd, self._noise = length / mu, charged_noise(local)
        self.step = step_for(self.sd)
        check_room(self._noise.rows or len(local.X), length, self.step)
        self.sums: IntArray = np.zeros(shape, dtype=np.int64)

    def add(self, whole: FloatArray) -> None:
        """Add sums of whole steps over some thousand rows; they are floats, but exact."""
        self.sums += whole.astype(np.int64)

    def out(self) -> FloatArray:
        """Return the array with its noise."""
        return self._noise.added(self.sums, self.step, self.sd)


def bounded_rows(batch: SiteBatch, box: FloatArray, at_once: int) -> Iterator[FloatArray]:
    """Yield the rows of one site, cut to the box, in blocks; rows with a missing value are left out."""
    if batch.weights is not None:
        raise QueryRefusedError(
            "rows with weights do not have differential privacy: a weight would scale what a row adds"
        )
    if batch.X.shape[1] != len(box):
        raise QueryRefusedError(f"the bounds have {len(box)} columns, and the rows have {batch.X.shape[1]}")
    for a in range(0, len(batch.X), max(1, at_once)):
        rows = np.clip(np.asarray(batch.X[a : a + max(1, at_once)], dtype=np.float64), -box, box)
        whole = np.isfinite(rows).all(axis=1)
        yield rows if whole.all() else rows[whole]
