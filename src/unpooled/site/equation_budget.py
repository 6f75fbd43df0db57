"""The budget of equations about raw rows that secure sums may open, over all runs and for ever.

A secure sum hides which site a number comes from, and not rows. Every cell that it opens is a linear equation
about rows: their sum over the cell. A row follows from such equations only if its unit vector is in the span
of the cells' indicator vectors, and a space has no more independent unit vectors than its dimension. A set of
k cells that holds all rows adds at most k - 1 dimensions to that of the sum over all rows. Hence linear
algebra gives at most 1 + sum (cells - 1) rows of a site, over all sets that were ever opened, whoever asks,
whatever is known about assignments, and even if all other sites help.

A site that answers only in secure sums answers from groups of at least g rows, and only exact rounds read its
rows (protocol/questions/exact_sums.py). The sums of the groups are then known besides. Of m rows that follow
from groups and E equations, at most m / g fill groups of their own, and the other m (g - 1) / g follow from
the equations: m is at most E g / (g - 1). Groups of other rows, or other groups, would be equations as well.
The site therefore answers from one set of groups for ever.

Where values are missing, the cells of a column hold the rows with a value, so the bound is for each column.

What integer columns or sums of squares add is not counted.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256

import numpy as np

from unpooled.data.summary_table import SummaryTable
from unpooled.data.table import Table
from unpooled.errors import InputError, QueryRefusedError
from unpooled.protocol.exchange import Part, parts_digest
from unpooled.site.chain import AskedPart, Exchange
from unpooled.site.ledger import Ledger
from unpooled.typing import Rows


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


def rows_digest(rows: Rows | Table | SummaryTable) -> str:
    """Return a digest of the rows of a site.

    >>> import numpy as np
    >>> rows_digest(np.zeros((2, 1))) == rows_digest(np.zeros((2, 1))) != rows_digest(np.zeros((3, 1)))
    True
    """
    if isinstance(rows, SummaryTable):
        return rows.digest
    about = (rows.names, rows.kinds, rows.categories) if isinstance(rows, Table) else ()
    digest = sha256(repr((rows.shape, *about)).encode())
    for chunk in rows.chunks() if isinstance(rows, Table) else [rows]:
        digest.update(np.ascontiguousarray(chunk, dtype=np.float64).data)
    return digest.hexdigest()


class EquationBudget:
    """The equations that secure sums over the rows of a site may open; the ledger counts them.

    Parameters
    ----------
    max_number
        Of equations, over all runs and federations.
    digest
        Returns the digest of the rows, and of the groups of them that other questions are answered from.
    grouped
        Whether there are such groups. They are made once: other groups, of the same or of other rows, would
        be equations, too, so that nothing is answered from them.
    """

    def __init__(
        self, ledger: Ledger, max_number: float, digest: Callable[[], str], *, grouped: bool = False
    ) -> None:
        self._ledger, self._max, self._digest_of, self._grouped = ledger, max_number, digest, grouped

    @cached_property
    def _digest(self) -> str:
        return self._digest_of()

    def allows(self, exchange: Exchange, exact: Sequence[AskedPart]) -> bool:
        """Return whether these parts of a request may read the rows; a repeated request may again."""
        number = sum(opened_equations(one.part) for one in exact)
        queries = parts_digest([one.part for one in exact])
        return not exact or self._ledger.allows_equations(
            exchange.request.request_id, queries, number, self._max
        )

    def charge(self, exchange: Exchange) -> None:
        """Record what the masked parts of a request open; QueryRefusedError if the budget is exceeded."""
        masked = [one for one in exchange.parts if one.masked]
        if not masked:
            return
        self._ledger.bind_rows(self._digest, alone=self._grouped)
        exact = [one.part for one in masked if not one.grouped]
        if exact:
            number = sum(map(opened_equations, exact))
            self._ledger.open_equations(exchange.request.request_id, parts_digest(exact), number, self._max)
