"""The options for reading a site's files, each declared once.

A field of ``Reading`` with an ``option`` is an option of the commands that read files, an argument of
``unpooled.cluster``, a word of the command that repeats a run, a key of a job's and of a site's JSON, and a
line of the documentation of all of them. A new option needs its field here, its line in ``ReadingArguments``
for type checkers, and the reader that obeys it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from unpooled.options.declaration import COLUMNS, OptionGroup, option, tuples
from unpooled.options.values import (
    CharacterValue,
    ColumnsValue,
    ColumnValue,
    DecimalMarkValue,
    EncodingValue,
    OrdersValue,
    SpellingsValue,
    TextsValue,
    TextValue,
    ThreeColumnsValue,
    plain_name,
)


@dataclass(frozen=True)
class Reading(OptionGroup):
    """The options for reading files, databases and tables in memory."""

    columns: tuple[str, ...] | None = None  # None: all of them
    exclude: tuple[str, ...] = option(
        (),
        ColumnsValue(),
        help="Columns to leave out: id,date",
        doc="The columns that are not read.",
        panel=COLUMNS,
    )
    categorical: tuple[str, ...] = option(
        (),
        ColumnsValue(),
        help="Columns whose numbers are codes: cp,thal",
        doc="The columns whose numbers are codes of categories.",
        panel=COLUMNS,
    )
    ordinal: tuple[tuple[str, tuple[str, ...]], ...] = option(
        (),
        OrdersValue(),
        help="Categories with an order, quoted for the shell: 'grade:low<mid<high'. Their positions are "
        "clustered as numbers.",
        doc='The order of categories, by column: ``{"grade": ["low", "mid", "high"]}``.',
    )
    numbers: tuple[str, ...] = option(
        (),
        ColumnsValue(),
        help="Columns that are numbers even if they look like ids or codes: dose_no",
        doc="The columns that are numbers even if they look like ids or codes.",
    )
    na: tuple[str, ...] = option(
        (),
        TextsValue(),
        help="A text that means missing: -9, or chol=0 for one column.",
        doc='Texts or numbers that mean missing, for all columns, or for one: ``-9``, ``["chol=0"]``.',
        panel=COLUMNS,
    )
    delimiter: str | None = option(
        None,
        CharacterValue(),
        help="Delimiter of CSV files (default: detect).",
        doc="The delimiter of CSV files; None detects it.",
    )
    decimal: str | None = option(
        None,
        DecimalMarkValue(),
        help="Decimal mark in CSV files, . or , (default: detect by column).",
        doc="The decimal mark in CSV files; None detects it, column by column.",
    )
    encoding: str | None = option(
        None,
        EncodingValue(),
        help="Encoding of CSV files, such as cp1252 (default: detect).",
        doc="The encoding of CSV files; None detects UTF-8, UTF-16 with its mark, and cp1252.",
    )
    recode: tuple[tuple[str, str, str], ...] = option(
        (),
        SpellingsValue(),
        help="Spellings of one category: sex:M=male,F=female",
        doc='The spellings of a category, by column: ``{"sex": {"M": "male", "F": "female"}}``.',
    )
    site_column: str | None = option(
        None,
        ColumnValue(),
        help="Split the rows by this column: each value is a site.",
        doc="The column whose values are the sites, if ``data`` is one table.",
        panel=COLUMNS,
        of_site=False,
    )
    query: str | None = option(
        None,
        TextValue(),
        help="File with the site's own query, for databases: cohort.sql",
        doc="The file with the site's own query, for databases.",
        of_file=True,
    )
    sheet: str | None = option(
        None,
        TextValue(),
        help="Sheet to read, in a workbook with several.",
        doc="The sheet to read, in a workbook with several.",
        of_file=True,
    )
    long: tuple[str, str, str] | None = option(
        None,
        ThreeColumnsValue(),
        help="Read a long table with one value per row; the columns of person, feature and value: "
        "person_id,concept,value",
        doc="The columns of person, feature and value, if a table has one value in each row.",
        of_file=True,
    )
    raw: bool = False  # cells of text as they are written, also where they are numbers
    buffer_bytes: int | None = None  # bytes of raw rows kept in memory; None: up to 64 MB, the rest on disk

    def selects(self, name: str) -> bool:
        """Return whether a column is read."""
        name = plain_name(name)
        if name == self.site_column:
            return True
        return name not in self.exclude and (self.columns is None or name in self.columns)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Reading":
        """Return the options from their JSON, which has lists for tuples."""
        return cls(**{name: tuples(value) for name, value in content.items()})


class ReadingArguments(TypedDict, total=False):
    """The options as arguments of ``cluster``, for type checkers; a query belongs to a ``Database``."""

    exclude: str | Sequence[str]
    categorical: str | Sequence[str]
    ordinal: Mapping[str, Sequence[str]] | None
    numbers: str | Sequence[str]
    na: object
    delimiter: str | None
    decimal: str | None
    encoding: str | None
    recode: Mapping[str, Mapping[str, str]] | None
    site_column: str | None
    sheet: str | None
    long: tuple[str, str, str] | None


OPTIONS = Reading.declared()
