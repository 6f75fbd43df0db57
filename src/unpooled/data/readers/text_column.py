"""The texts of a column while it is read: numbers written as text, and categories."""

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.data.column_kinds import CATEGORY, EMPTY, NUMBER
from unpooled.data.readers import cell_text as texts
from unpooled.data.readers.cell_text import Cells
from unpooled.errors import InputError
from unpooled.typing import FloatArray

if TYPE_CHECKING:
    from unpooled.data.readers.source import Source

_ENOUGH = 2000  # cells of the first block that decide the kind of a column


class TextColumn:
    """The part of a column that reads texts; ``Column`` sets the fields, and reads numbers."""

    name: str
    kind: str
    categories: dict[str, int]
    spellings: set[str] | None  # of a recoded column: its categories as the source has them
    seen: int  # rows
    _source: "Source"
    _marks: texts.DecimalMarks
    _na: frozenset[str]
    _na_numbers: list[float]
    _recode: dict[str, str]
    _order: tuple[str, ...]  # the categories of an ordinal column, from the lowest; () of others
    _must: str | None  # the kind that the column must have
    _affix: str | None  # percent or a currency, the same in all cells
    _truths: bool | None  # the texts are true and false; None: none was seen

    def _guess(self, cells: Cells) -> str:
        """NUMBER if at least half of the present cells are numbers: other text is then an error."""
        present = [c for c in cells if not self._lacks(c) and c.strip() not in texts.NO_NUMBER]
        if not present:
            return EMPTY
        present = present[:: max(1, len(present) // _ENOUGH)]
        if all(texts.truth(cell) is not None for cell in present):
            return NUMBER
        mark = self._marks.for_column(self.name)
        kind, unit = texts.kind_of(present, mark)
        if kind == CATEGORY and texts.kind_of(present, "," if mark == "." else ".")[0] == NUMBER:
            kind = NUMBER  # with the other decimal mark: the error names it
        if unit:
            row = self.seen + next(i for i, c in enumerate(cells) if not self._lacks(c))
            raise InputError(
                f"{self._where(row)}: numbers with the unit {unit} in the cell: {present[0].strip()!r}; "
                f"write them without it, or --exclude {self.name} leaves the column out"
            )
        sign = texts.common_sign(present) if kind == CATEGORY else ""
        if sign:
            row = self.seen + next(i for i, c in enumerate(cells) if not self._lacks(c) and sign in c)
            raise InputError(
                f"{self._where(row)}: digits with {sign} in most cells: {present[0].strip()!r}; write them "
                f"as numbers, or --categorical {self.name} takes them as categories, --exclude {self.name} "
                "leaves the column out"
            )
        return kind

    def _lacks(self, cell: str | None) -> bool:
        return cell is None or cell in self._na or cell.strip() in self._na

    def _numbers(self, cells: Cells) -> FloatArray:
        mark = self._marks.for_column(self.name)
        values = texts.plain_numbers(cells, mark) if self._affix in (None, "") else None
        if values is not None and not self._na_numbers:
            self._affix = ""
            return values
        if self._truths is None:
            first = next((cell for cell in cells if not self._lacks(cell)), None)
            self._truths = None if first is None else texts.truth(first) is not None
        values = np.empty(len(cells))
        for i, cell in enumerate(cells):
            if self._lacks(cell) or cell.strip() in texts.NO_NUMBER:
                values[i] = np.nan
                continue
            if self._truths and (truth := texts.truth(cell)) is not None:
                values[i] = truth
                continue
            core, affix = texts.parts(cell)
            number = texts.number(core, mark)
            if number is None:
                raise InputError(self._stray(i, cell))
            if self._affix is None:
                self._affix = affix
            elif affix != self._affix and number != 0:
                raise InputError(
                    f"{self._where(self.seen + i)}: {cell.strip()[:30]!r}, where others have "
                    f"{self._affix or 'no sign'}; a column has one unit (--exclude {self.name} leaves it out)"
                )
            values[i] = number
        if self._na_numbers:
            values[np.isin(values, self._na_numbers)] = np.nan
        return values

    def _categories(self, cells: Cells) -> FloatArray:
        known: dict[Any, float] = {}
        values, mark = np.empty(len(cells)), self._marks.for_categories()
        for i, cell in enumerate(cells):
            if cell not in known:
                lacks = self._lacks(cell)
                known[cell] = np.nan if lacks else self._code(texts.plain_category(cell.strip(), mark))
            values[i] = known[cell]
        return values

    def _code(self, category: str) -> float:
        if self.spellings is not None:
            self.spellings.add(category)
        category = self._recode.get(category, category)
        if self._order and category not in self.categories:
            raise InputError(
                f"{self._source.path}, column {self.name}: {category!r} has no place in the order "
                f"{' < '.join(self._order)}; --ordinal names them all, --na '{category}' takes this one as "
                "missing"
            )
        return float(self.categories.setdefault(category, len(self.categories)))

    def _stray(self, i: int, cell: str) -> str:
        hint = f"--categorical {self.name} takes the column as a category, --na '{cell}' the text as missing"
        other = "," if self._marks.for_column(self.name) == "." else "."
        if self._must:
            hint = f"numbers are needed there, --na '{cell}' takes the text as missing"
        elif texts.number(texts.parts(cell)[0], other) is not None:
            hint = f"other numbers of the column have a decimal {'point' if other == ',' else 'comma'}"
            hint += f" (--decimal {other} reads them all so)"
        return f"{self._where(self.seen + i)}: text in a column of numbers: {cell[:30]!r}; {hint}"

    def _where(self, row: int) -> str:
        return f"{self._source.path}, {self._source.locate(row)}, column {self.name}"
