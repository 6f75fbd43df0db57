"""The budget of equations about raw rows that secure sums may open, over all runs and for ever.

A secure sum hides which site a number comes from, and not rows. Every cell that it opens is a linear equation
about rows: their sum over the cell. A row follows from such equations only if its unit vector is in the span
of the cells' indicator vectors, and a space has no more independent unit vectors than its dimension. A set of
k cells that holds all rows adds at most k - 1 dimensions to that of the sum over all rows. Hence linear
algebra gives at most 1 + sum (cells - 1) rows of a site, over all sets that were ever opened, whoever asks,
whatever is known about assignments, and even if all other sites help.

What integer columns or sums of squares add is not counted.
"""

from unpooled.errors import InputError, QueryRefusedError
from unpooled.privacy.secure_sum.stage_messages import asked
from unpooled.protocol.exchange import Part
from unpooled.site.chain import Exchange
from unpooled.site.ledger import Ledger


def opened_equations(part: Part) -> int:
    """Return how many equations about rows a part of a secure sum opens: at least one, so that none is free.

    >>> import numpy as np
    >>> from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments
    >>> questions = AskMoments(), AskClusterSums(np.zeros((1, 8, 2))), AskClusterSums(np.zeros((5, 3, 2)))
    >>> [opened_equations(Part("total", question, None, 0)) for question in questions]
    [1, 7, 10]
    """
    all_rows = part.transform is None or part.transform.keeps_all_rows
    try:
        return max(part.question.equations(all_rows=all_rows), 1)
    except InputError as error:
        raise QueryRefusedError(str(error)) from None


class EquationBudget:
    """The equations that secure sums over the rows of a site may open; the ledger counts them."""

    def __init__(self, ledger: Ledger, max_number: float) -> None:
        self._ledger, self._max = ledger, max_number

    def charge(self, exchange: Exchange) -> None:
        """Record what the masked parts of a request open; QueryRefusedError if the budget is exceeded."""
        masked = [one.part for one in exchange.parts if one.masked]
        if masked:
            number = sum(map(opened_equations, masked))
            self._ledger.open_equations(exchange.request.request_id, asked(masked), number, self._max)
