"""The texts of cells: how a column writes numbers, and which columns are dates, ids or codes.

A number may have a decimal point or a decimal comma, groups of three digits, a percent sign or a currency.
``1.234`` alone could be either; another number of the file decides it, or nothing does.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from unpooled.data.column_kinds import CATEGORY, CODE, DATE, ID, NUMBER
from unpooled.errors import InputError
from unpooled.typing import FloatArray

Cells = FloatArray | Sequence[Any]  # of a column: numbers, or texts of which some may be missing
NA = frozenset(
    {
        "",
        "NA",
        "N/A",
        "n/a",
        "na",
        "NaN",
        "nan",
        "NAN",
        "null",
        "NULL",
        "None",
        "?",
        ".",
        "#N/A",
        "#NA",
        "<NA>",
    }
)


def missing_texts(na: Sequence[str], column: str) -> frozenset[str]:
    """Return the texts that mean a missing value in a column; ``na``: more of them, as ``Reading`` has them.

    >>> sorted(missing_texts(("-9", "chol=0", "age=1"), "chol") - NA)
    ['-9', '0']
    """
    own = {text.partition("=")[2] for text in na if text.partition("=")[0] == column and "=" in text}
    return NA | own | {text for text in na if "=" not in text}


NO_NUMBER = frozenset(
    {"-", "--", "\u2013", "#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!"}
)  # missing among numbers
_BLANKS = " \u00a0\u202f\u2009"
_CURRENCY = r"€|\$|£|¥|EUR|USD|GBP|CHF|Fr\.|kr|zł"
_AFFIXED = re.compile(
    rf"(?P<before>{_CURRENCY})?[{_BLANKS}]*(?P<core>[-+\u2212]?[\d.,'\u2019{_BLANKS}]*\d[.,]?(?:[eE][-+]?\d+)?)"
    rf"[{_BLANKS}]*(?P<after>%|‰|{_CURRENCY})?"
)
_FORMS = {
    decimal: re.compile(
        rf"[-+]?(?:\d{{1,3}}(?:([{marks}'\u2019{_BLANKS}])\d{{3}})(?:\1\d{{3}})*|\d*)(?:{re.escape(decimal)}\d*)?(?:[eE][-+]?\d+)?"
    )
    for decimal, marks in ((".", ","), (",", "."))
}
_UNIT = re.compile(rf"[-+]?\d+(?:[.,]\d+)?[{_BLANKS}]*([A-Za-zµ°][A-Za-zµ°/²³0-9]*)")
_TIME = r"(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[AaPp][Mm])?(?:Z|[+-]\d{2}:?\d{2})?)?"
_DATE = re.compile(
    r"(?:\d{4}-\d{1,2}-\d{1,2}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}\.\d{1,2}\.(?:\d{4}|\d{2})|\d{1,2}/\d{1,2}/(?:\d{4}|\d{2})"
    r"|\d{1,2}-\d{1,2}-\d{4}|\d{1,2}[- ][A-Za-z]{3,9}\.?[- ](?:\d{4}|\d{2})|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}"
    r"|(?:19|20)\d{2}[-/](?:0?[1-9]|1[0-2])|(?:0?[1-9]|1[0-2])[-/](?:19|20)\d{2}"
    r"|[A-Za-z]{3,9}\.?[- ](?:19|20)\d{2})" + _TIME + r"|\d{1,2}:\d{2}(?::\d{2})?"
)
_SIGNED = re.compile(r"[^A-Za-z]*\d[^A-Za-z]*")
_SIGNS = "/*<>~\u00b1\u2264\u2265\u2020^#="
_IDS = {"id", "ids", "uid", "pid", "mrn", "uuid", "guid", "identifier", "barcode"}
_IDS |= {
    "svnr",
    "kvnr",
    "patnr",
    "fallnr",
    "ssn",
    "ahv",
    "fallnummer",
    "patientennummer",
    "versichertennummer",
}
_NUMBERED = {"nr", "no", "num", "number", "nummer"}  # an id behind a word for a person or case
_PERSON_WORDS = {
    "pat",
    "patient",
    "patienten",
    "fall",
    "case",
    "subject",
    "proband",
    "person",
    "sv",
    "record",
    "akten",
}
_POST = {"plz", "zip", "zipcode", "postcode", "postleitzahl"}
_PERHAPS_IDS = {
    "key",
    "nr",
    "no",
    "num",
    "number",
    "index",
    "patient",
    "subject",
    "participant",
    "record",
    "case",
}
_SURE = 100  # numbers with a certain decimal mark after which no more are read
_MIN_ROWS = 10  # rows from which a column can be judged to be ids, dates without marks, or codes for missing
LARGEST = 1e100  # of a number: its square, summed over all the rows and columns there can be, is finite
STAND_INS = (-9.0, -99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0)


def parts(text: str) -> tuple[str, str]:
    """Return the digits of a cell, without blanks around them, and its percent sign or currency.

    >>> parts(" 12,5 %"), parts("€ 1.234,56"), parts("-3"), parts("12 kg")
    (('12,5', '%'), ('1.234,56', '€'), ('-3', ''), ('12 kg', ''))
    """
    text = text.strip()
    found = _AFFIXED.fullmatch(text)
    if found is None or (found["before"] and found["after"]):
        return text, ""
    return found["core"].strip().replace("\u2212", "-"), found["before"] or found["after"] or ""


def number(core: str, decimal: str) -> float | None:
    """Return the number in the digits of a cell; None if they are not a finite number.

    >>> number("1.234,56", ","), number("1.234,56", "."), number("1 234", "."), number("12.5", ",")
    (1234.56, None, 1234.0, None)
    """
    found = _FORMS[decimal].fullmatch(core)
    if found is None:
        return None
    digits = core.replace(found[1], "") if found[1] else core
    try:
        value = float(digits.replace(decimal, "."))
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def plain_numbers(cells: Cells, decimal: str) -> FloatArray | None:
    """Return the numbers of cells that have digits and a decimal mark only; None if a cell has others."""
    try:
        if decimal == ",":
            joined = "\n".join(cells)
            if "." in joined or joined.count("\n") != len(cells) - 1:
                return None
            cells = joined.replace(",", ".").split("\n")
        values = np.array(list(map(float, cells)))
    except (ValueError, TypeError):
        return None
    return values if np.isfinite(values).all() else None


def decimal_of(core: str) -> str:
    """Return the decimal mark in the digits of a cell: "." or ","; "?" if it could be either; "" if none.

    >>> [decimal_of(text) for text in ("12,5", "1.234,56", "1,234", "0.123", "1.234.567", "17")]
    [',', ',', '?', '.', ',', '']
    """
    core = core.lstrip("+-").partition("e")[0].partition("E")[0]
    digits = re.sub(rf"['\u2019{_BLANKS}]", "", core)
    marks = [c for c in digits if c in ".,"]
    if not marks:
        return ""
    last, other = marks[-1], "," if marks[-1] == "." else "."
    if other in marks:
        return last if marks.count(last) == 1 else ""
    if len(marks) > 1:
        return other
    before, _, after = digits.partition(last)
    sure = len(after) != 3 or not 1 <= len(before) <= 3 or before.startswith("0")
    return last if sure else "?"


@dataclass
class DecimalMarks:
    """The decimal mark of every column of a file, learnt from unambiguous cells."""

    declared: str | None
    path: Path | str
    usual: str | None  # for an ambiguous number; None: such a number is an error
    found: dict[str, str] = field(default_factory=dict)
    _of_categories: str = ""  # once a category was read

    def learn(self, columns: Iterable[tuple[str, Any]]) -> None:
        """Read the next cells of columns of text; InputError if a column's mark stays ambiguous."""
        if self.declared is not None:
            return
        doubtful: dict[str, str] = {}
        for name, cells in columns:
            if name in self.found:
                continue
            counts, example = _marks_in(cells)
            sure = {mark: counts[mark] for mark in (".", ",") if mark in counts}
            if sure:
                self.found[name] = max(sure, key=lambda mark: sure[mark])
            elif counts.get("?"):
                doubtful[name] = example
        file = set(self.found.values())
        for name, example in doubtful.items():
            if len(file) == 1:
                self.found[name] = next(iter(file))
            elif self.usual and self.usual in example:
                self.found[name] = self.usual
            else:
                mark = "," if "," in example else "."
                other = "." if mark == "," else ","
                raise InputError(
                    f"{self.path}, column {name}: {example} may have a decimal {_called(mark)} or groups of "
                    f"thousands. Choose --decimal {mark} or --decimal {other}"
                )

    def for_column(self, name: str) -> str:
        return self.declared or self.found.get(name, ".")

    def for_categories(self) -> str:
        """Return the mark in categories: that of the numbers of the file, if all have the same."""
        if not self._of_categories:
            found = set(self.found.values())
            self._of_categories = self.declared or (found.pop() if len(found) == 1 else ".")
        return self._of_categories


def _marks_in(cells: Iterable[Any]) -> tuple[dict[str, int], str]:
    """How often each answer of ``decimal_of`` occurs among the numbers, and an ambiguous one."""
    counts: dict[str, int] = {}
    example = ""
    for cell in cells:
        core = parts(cell)[0] if cell and ("." in cell or "," in cell) else ""
        if not core or not any(number(core, mark) is not None for mark in ".,"):
            continue
        mark = decimal_of(core)
        counts[mark] = counts.get(mark, 0) + 1
        example = core if mark == "?" else example
        if counts.get(".", 0) + counts.get(",", 0) >= _SURE:
            break
    return counts, example


def _called(mark: str) -> str:
    return "comma" if mark == "," else "point"


def is_plain_number(text: str) -> bool:
    """Return whether a text is a finite number as programs write it."""
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def truth(text: str) -> float | None:
    """Return 1 for the text true, 0 for false, as programs write them; None for any other text."""
    return {"true": 1.0, "false": 0.0}.get(text.strip().lower())


def plain_category(text: str, decimal: str = ".") -> str:
    """Return the normal form of a category: "6.0" is "6", and an umlaut is one character.

    >>> plain_category("6.0"), plain_category("06b"), plain_category("1,5", ","), plain_category("1,5")
    ('6', '06b', '1.5', '1,5')
    """
    try:
        number = float(text if decimal == "." else text.replace(".", "x").replace(decimal, "."))
    except ValueError:
        return normalize("NFC", text)
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(number)


def declared_number(text: str, decimal: str) -> float:
    """Return the number in a cell of a column that is declared to hold numbers; NaN for any other text.

    It depends on this cell only, unlike in other columns, where the first cells decide what is read.

    >>> [declared_number(text, ".") for text in ("12.5", "1,234", "7 %", "true", "high", "1e999")]
    [12.5, 1234.0, 7.0, 1.0, nan, nan]
    """
    value = truth(text)
    if value is None:
        value = number(parts(text)[0], decimal)
    return np.nan if value is None or abs(value) > LARGEST else value


# ---------------------------------------------------------------- columns that are not measurements


def kind_of(present: Sequence[str], mark: str) -> tuple[str, str]:
    """Return the kind of a column by its first cells, and the unit that is written in all of them, if any.

    NUMBER if at least half of them are numbers: other text is then an error.
    """
    if are_codes(present):
        return CODE, ""
    if are_dates(present):
        return DATE, ""
    if 2 * sum(number(parts(cell)[0], mark) is not None for cell in present) >= len(present):
        return NUMBER, ""
    return CATEGORY, common_unit(present)


def are_dates(present: Sequence[str]) -> bool:
    """Return whether at least half of the cells are dates or times of day."""
    return 2 * sum(_DATE.fullmatch(cell.strip()) is not None for cell in present) >= len(present) > 0


def are_codes(present: Sequence[str]) -> bool:
    """Return whether cells are digits of one length and some begin with 0, as post codes do.

    >>> are_codes(["01234", "99423"]), are_codes(["0", "7"]), are_codes(["0.5", "12.25"])
    (True, False, False)
    """
    cells = [cell.strip() for cell in present]
    return (
        len({len(cell) for cell in cells}) == 1
        and len(cells[0]) > 1
        and all(cell.isdecimal() for cell in cells)
        and any(cell[0] == "0" for cell in cells)
    )


def common_sign(present: Sequence[str]) -> str:
    """Return the sign that most cells have beside their digits, as in 120/80 or 62*, or ""."""
    cells = {cell.strip() for cell in present}
    if len(cells) <= 5:
        return ""
    for sign in _SIGNS:
        if 2 * sum(sign in cell and _SIGNED.fullmatch(cell) is not None for cell in cells) > len(cells):
            return sign
    return ""


def common_unit(present: Sequence[str]) -> str:
    """Return the unit that is written in every cell behind a number, or ""."""
    found = [_UNIT.fullmatch(cell.strip()) for cell in present]
    units = {match[1] if match else "" for match in found}
    return units.pop() if len(units) == 1 and len(set(present)) > 5 else ""


def named_as_id(name: str) -> str:
    """Return "id" if the name means an id, "perhaps" if it may, else "".

    >>> [named_as_id(name) for name in ("patient_id", "PatientID", "pat_nr", "Fallnummer", "Nr.", "age")]
    ['id', 'id', 'id', 'id', 'perhaps', '']
    """
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]
    if words and (words[-1] in _IDS or words[0] in _IDS):
        return "id"
    if len(words) > 1 and words[-1] in _NUMBERED and words[-2] in _PERSON_WORDS:
        return "id"
    return "perhaps" if words and words[-1] in _PERHAPS_IDS else ""


def named_as_post_code(name: str) -> bool:
    """Return whether the name means post codes: plz, zip_code."""
    words = re.findall(r"[a-z]+", name.lower())
    return bool(words) and bool(_POST & {words[0], words[-1]})


def may_be_odd(name: str, low: float, high: float) -> bool:
    """Return whether whole numbers from low to high could be ids, post codes or dates."""
    return named_as_post_code(name) or bool(named_as_id(name)) or (low >= 19000101 and high <= 21001231)


def odd_numbers(name: str, values: FloatArray, counting: bool) -> str:
    """Return the kind of whole numbers that are not measurements: ID, CODE or DATE; "" for measurements.

    ``counting``: each number is above the one before it, as the numbers of rows and of visits are.
    """
    there, named = values[~np.isnan(values)], named_as_id(name)
    if named == "id":
        return ID
    if named_as_post_code(name):
        return CODE
    if len(there) < _MIN_ROWS:
        return ""
    if there.min() >= 19000101 and there.max() <= 21001231:
        month, day = (there // 100) % 100, there % 100
        if ((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all():
            return DATE
    return ID if counting or (named and len(np.unique(there)) == len(there)) else ""


def stand_in(values: FloatArray) -> float | None:
    """Return a number such as -999 that occurs at least twice, far from all others, and may mean missing."""
    there = values[~np.isnan(values)]
    if len(there) < _MIN_ROWS:
        return None
    for end in (float(there.min()), float(there.max())):
        if end not in STAND_INS:
            continue
        rest = there[there != end]
        if len(there) - len(rest) < 2 or len(rest) < _MIN_ROWS // 2:
            continue
        span = float(rest.max() - rest.min())
        gap = float(rest.min() - end if end < 0 else end - rest.max())
        if gap > max(span, 1.0):
            return end
    return None
