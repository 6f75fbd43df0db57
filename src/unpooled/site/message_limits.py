"""The limits on one message, checked before a site computes or charges anything (protocol/limits.py).

They depend on the message and on the names of the site's columns, not on its rows.
"""

from typing import Any

import numpy as np

from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import InputError, QueryRefusedError
from unpooled.protocol import codec
from unpooled.protocol.declarations import Declaration, Length, Scalar, Work, declared_fields, shape_of
from unpooled.protocol.exchange import Part, Request
from unpooled.protocol.limits import MAX_COLUMNS, MAX_NUMBERS, MAX_PARTS, MAX_TRANSFORMS, MAX_WORK
from unpooled.protocol.messages import Question
from unpooled.protocol.transform import Transform
from unpooled.site.chain import Exchange, Guard
from unpooled.typing import Rows

OwnRows = Rows | Table | SummaryTable | None  # None: a relay does not have rows


class MessageLimitsGuard(Guard):
    """Refuse a message beyond the limits, before anything is computed or charged."""

    name = "limits"

    def __init__(self, X: OwnRows) -> None:
        self._X = X

    def check(self, exchange: Exchange) -> None:
        check_message(exchange.request, self._X)


def check_message(request: Request, X: OwnRows) -> None:
    """Raise QueryRefusedError if an answer from ``X`` takes more work, memory or numbers than allowed.

    The reason names the question, what is too large, and the limit.
    """
    if len(request.parts) > MAX_PARTS:
        raise QueryRefusedError(f"a message of {len(request.parts):,} queries. {_at_most(MAX_PARTS)}")
    _check_transforms(request.parts, X)
    work, numbers = 0.0, 0
    for part in request.parts:
        name = codec.name_of(type(part.question))
        check_fields(part.question)
        try:
            numbers += part.question.reply_numbers(_width(part.transform, X))
        except InputError as error:
            raise QueryRefusedError(str(error)) from None
        work += part.question.comparisons()
        if work > MAX_WORK:
            raise QueryRefusedError(
                f"{name}: with it the message compares every row {_formatted(work)} times with a centre. "
                f"{_at_most(MAX_WORK)}"
            )
        if numbers > MAX_NUMBERS:
            raise QueryRefusedError(
                f"{name}: with it the answer would have {_formatted(numbers)} numbers. "
                f"{_at_most(MAX_NUMBERS)}"
            )


def check_fields(question: Question[Any]) -> None:
    """Raise QueryRefusedError if a field of a question is beyond what it declares."""
    name = codec.name_of(type(question))
    for field, declaration, value in declared_fields(question, Declaration):
        if isinstance(declaration, Work):
            if not 0 <= value <= declaration.max_value:
                raise QueryRefusedError(
                    f"{name}: {field} = {_formatted(value)}. {_at_most(declaration.max_value)}"
                )
        elif isinstance(declaration, Length):
            if not 0 <= value <= declaration.max_length:
                raise QueryRefusedError(
                    f"{name}: {field} = {_formatted(value)}. {_at_most(declaration.max_length)}"
                )
        elif not isinstance(declaration, Scalar):
            for axis, length in zip(declaration.axes, shape_of(value), strict=False):
                if not axis.isdigit() and axis != "d" and length > declaration.max_length:
                    raise QueryRefusedError(
                        f"{name}: {field} has {axis} = {length:,}. {_at_most(declaration.max_length)}"
                    )


def _check_transforms(parts: tuple[Part, ...], X: OwnRows) -> None:
    """Raise QueryRefusedError if a message has too many transforms, or one with too many columns."""
    transforms = [part.transform for part in parts if part.transform is not None]
    if (
        len(transforms) > MAX_TRANSFORMS
        and (different := len({codec.encode(transform) for transform in transforms})) > MAX_TRANSFORMS
    ):
        raise QueryRefusedError(
            f"a message with {different:,} different transforms. {_at_most(MAX_TRANSFORMS)}"
        )
    max_columns = max(MAX_COLUMNS, len(X.names) if isinstance(X, Table | SummaryTable) else 0)
    for transform in transforms:
        if (width := _width(transform, X)) > max_columns:
            raise QueryRefusedError(f"a transform with {width:,} columns. {_at_most(max_columns)}")


def _width(transform: Transform | None, X: OwnRows) -> int:
    """The columns of the rows that a question reads; 0 if it reads a table."""
    if transform is not None and transform.names is not None:
        return len(transform.names)
    return int(X.shape[1]) if isinstance(X, np.ndarray) else 0


def _at_most(limit: float) -> str:
    return f"A site answers at most {_formatted(limit)}."


def _formatted(number: float) -> str:
    """A number in a refusal; one of hundreds of digits is not written out.

    >>> _formatted(10**15), _formatted(0.5), _formatted(10**400)
    ('1,000,000,000,000,000', '0.5', 'more than 10^18')
    """
    if number > 10**18:
        return "more than 10^18"
    if number < -(10**18):
        return "less than -10^18"
    return f"{int(number):,}" if number == int(number) else f"{number:g}"
