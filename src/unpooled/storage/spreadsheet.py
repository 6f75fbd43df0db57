"""Tables for people as CSV text: no cell is a formula for the program that opens it.

A spreadsheet takes a cell for a formula if it begins with one of ``= + - @``, and anybody may have chosen the
name of a column or the text of a category. Every CSV file of unpooled is written by ``csv_text``. The script
``report.js`` has the same rule for the tables that a page saves.
"""

import csv
import io
import re
from collections.abc import Iterable

# the last four signs are the wide forms of the first, which some spreadsheets take for them
_FORMULA = re.compile(r"""[\s'"]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]""")
_NUMBER = re.compile(r"[+-]?([\d.,]*\d[\d.,]*(e[+-]?\d+)?%?|inf|nan)", re.IGNORECASE | re.ASCII)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV, in which no text can be a formula; each line ends with a line feed."""
    text = io.StringIO()
    # with "\r" in its line ends the writer quotes cells that have one, which would begin a line otherwise
    csv.writer(text, lineterminator="\r\n").writerows([neutralised(cell) for cell in row] for row in rows)
    return text.getvalue().replace("\r\n", "\n")


def neutralised(cell: object) -> object:
    """Return a cell, with a quote before it if it could be a formula. Numbers stay numbers.

    >>> [neutralised(cell) for cell in ("age", "=1+1", " @SUM(A1)", "-x", "-1.5", -1.5)]
    ['age', "'=1+1", "' @SUM(A1)", "'-x", '-1.5', -1.5]
    """
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell.strip()):
        return f"'{cell}"
    return cell
