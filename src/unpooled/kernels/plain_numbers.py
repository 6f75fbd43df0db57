"""Lines of plain numbers to an array: the fast way through a CSV file, where the kernels are compiled."""

import importlib
from typing import NamedTuple

import numpy as np

from unpooled import kernels

from .results import Floats


class PlainNumbers(NamedTuple):
    """A block of numbers, and what its decimal points tell."""

    values: Floats  #: (n, width)
    pointed: bool  #: some number has digits on both sides of a point
    sure: bool  #: some such point cannot divide thousands, as that of 1.234 can


def plain_numbers(text: bytes, delimiter: str, width: int) -> PlainNumbers | None:
    """The cells of whole lines; None if any is no plain number, or without compiled kernels.

    A plain number is made of digits, with a sign, a point and an exponent or without; there are no spaces, no
    quotes, no zero before another digit, and each line has ``width`` cells.

    >>> plain_numbers(b"1,x\\n", ",", 2), plain_numbers(b"007\\n", ",", 1), plain_numbers(b"1\\n\\n", ",", 1)
    (None, None, None)
    """
    if kernels.BACKEND != "native":
        return None
    native = importlib.import_module("._native", __package__)
    values = np.empty((text.count(b"\n") + 1, width))
    rows, pointed, sure = native.plain_numbers(text, delimiter, values)
    return None if rows < 0 else PlainNumbers(values[:rows], pointed, sure)
