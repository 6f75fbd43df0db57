"""Transforms: how a site prepares its rows before a question reads them. Those in use are in data/."""

from typing import Any, ClassVar

import numpy as np

from unpooled.errors import QueryRefusedError
from unpooled.protocol import codec
from unpooled.protocol.messages import Message, Question
from unpooled.typing import FloatArray, Rows


class Transform(Message, abstract=True):
    """A transformation of a site's rows before a question reads them, e.g. a scaling agreed by all sites."""

    keeps_missing: ClassVar[bool] = (
        False  # True if missing cells stay missing: NaN in the rows that it returns
    )

    @property
    def keeps_all_rows(self) -> bool:
        """True if no row is left out because of its values."""
        return False

    def check(self, X: object) -> None:
        """Raise QueryRefusedError unless it suits the columns of ``X``: single rows must not make it fail."""

    def apply(self, X: Rows) -> Rows:
        """Return the transformed rows, (n, d) -> (n, d'); the input stays unchanged."""
        return X

    def apply_weighted(
        self, X: Any, weights: FloatArray | None, within: FloatArray | None
    ) -> tuple[Rows, FloatArray | None, FloatArray | None]:
        """Return a site's transformed rows, their weights, and the variance within rows that are groups."""
        return self.apply(X), weights, None if within is None else within / self.scaling()[1] ** 2

    def undo(self, Z: FloatArray) -> FloatArray:
        """Return rows, or centres, in the columns' own units: (m, d') -> (m, d')."""
        return Z

    def scaling(self) -> tuple[FloatArray, FloatArray]:
        """Return the shift of each column, (d',), and the divisor applied after it, (d',)."""
        return np.zeros(0), np.zeros(0)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The column behind each output column; None: the columns of the rows, in their order."""
        return None


def reads_missing(transform: Transform | None, question: Question[Any]) -> bool:
    """Return whether a question reads missing cells after a transform.

    Raises
    ------
    QueryRefusedError
        If the question cannot be answered from rows with missing cells.
    """
    if transform is None or not transform.keeps_missing:
        return False
    if not question.supports_missing:
        raise QueryRefusedError(f"{codec.name_of(type(question))} cannot be answered where cells are missing")
    return True
