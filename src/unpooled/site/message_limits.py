"""The limits on one message, checked before a site computes anything or pays for noise (core/limits.py).

They depend on the message and on the names of the site's columns, never on its rows: a refusal tells nothing.
"""

from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.declarations import Declaration, Length, Scalar, Work, sent, shape_of
from unpooled.core.exchange import Envelope, Part
from unpooled.core.limits import (
    MOST_COLUMNS,
    MOST_NUMBERS,
    MOST_PARTS,
    MOST_VIEWS,
    MOST_WORK,
)
from unpooled.core.messages import Question
from unpooled.core.protocol import View
from unpooled.data.copy import Copy
from unpooled.data.table import Table
from unpooled.errors import BadInput, Refused


def check_message(post: Envelope, X: Any) -> None:
    """Raise Refused if an answer from ``X`` would take more work, memory or numbers than one message may ask.

    The reason names the question, what is too large, and the limit.
    """
    if len(post.parts) > MOST_PARTS:
        raise Refused(f"a message of {len(post.parts):,} questions. {_at_most(MOST_PARTS)}")
    _check_views(post.parts, X)
    work, numbers = 0.0, 0
    for part in post.parts:
        name = codec.name_of(type(part.question))
        check_fields(part.question)
        try:
            numbers += part.question.reply_numbers(_width(part.view, X))
        except BadInput as error:
            raise Refused(str(error)) from None
        work += part.question.comparisons()
        if work > MOST_WORK:
            raise Refused(
                f"{name}: with it the message compares every row {_shown(work)} times with a centre. "
                f"{_at_most(MOST_WORK)}"
            )
        if numbers > MOST_NUMBERS:
            raise Refused(
                f"{name}: with it the answer would hold {_shown(numbers)} numbers. {_at_most(MOST_NUMBERS)}"
            )


def check_fields(question: Question[Any]) -> None:
    """Raise Refused if a field of a question is beyond what it declares."""
    name = codec.name_of(type(question))
    for field, declaration, value in sent(question, Declaration):
        if isinstance(declaration, Work):
            if not 0 <= value <= declaration.most:
                raise Refused(f"{name}: {field} = {_shown(value)}. {_at_most(declaration.most)}")
        elif isinstance(declaration, Length):
            if not 0 <= value <= declaration.longest:
                raise Refused(f"{name}: {field} = {_shown(value)}. {_at_most(declaration.longest)}")
        elif not isinstance(declaration, Scalar):
            for axis, length in zip(declaration.axes, shape_of(value), strict=False):
                if not axis.isdigit() and axis != "d" and length > declaration.longest:
                    raise Refused(f"{name}: {field} has {axis} = {length:,}. {_at_most(declaration.longest)}")


def _check_views(parts: tuple[Part, ...], X: Any) -> None:
    """Raise Refused if rows under the views of a message have too many columns, or are held too often."""
    views = [part.view for part in parts if part.view is not None]
    if len(views) > MOST_VIEWS and (different := len({codec.encode(view) for view in views})) > MOST_VIEWS:
        raise Refused(f"a message with {different:,} different views. {_at_most(MOST_VIEWS)}")
    most = max(MOST_COLUMNS, len(X.names) if isinstance(X, Table | Copy) else 0)
    for view in views:
        if (width := _width(view, X)) > most:
            raise Refused(f"a view with {width:,} columns. {_at_most(most)}")


def _width(view: View | None, X: Any) -> int:
    """The columns of the rows that a question sees; 0 where it sees a table."""
    if view is not None and view.names is not None:
        return len(view.names)
    return int(X.shape[1]) if isinstance(X, np.ndarray) else 0


def _at_most(most: float) -> str:
    return f"A site answers at most {_shown(most)}."


def _shown(number: float) -> str:
    """A number in a refusal; one of hundreds of digits is not written out.

    >>> _shown(10**15), _shown(0.5), _shown(10**400)
    ('1,000,000,000,000,000', '0.5', 'more than 10^18')
    """
    if number > 10**18:
        return "more than 10^18"
    if number < -(10**18):
        return "less than -10^18"
    return f"{int(number):,}" if number == int(number) else f"{number:g}"
