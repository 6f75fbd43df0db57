"""Columns that seem to identify people, some of them in several rows: found by content, and by name.

Three rules find them by content:

- Most other columns depend on the values of an id. A column depends on values if their means differ by more
  than chance, and if the intraclass correlation is not small: between wards or clinics it is mostly below
  0.05, and between people who are measured several times it is 0.1 to 0.9.
- Two other columns, such as age and sex, never change within a value, and a value has few rows.
- Most other columns depend on the combinations of two columns, such as age and sex, and not mainly on one of
  the two.

A value of an ordered column (age, dose) is compared with the line between its neighbours, because other
columns may depend on it smoothly.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.special import fdtr

from unpooled.data.column_kinds import CATEGORY, EMPTY, ID, NUMBER, TEXT
from unpooled.data.readers.cell_text import named_as_id
from unpooled.data.table import Table
from unpooled.typing import FloatArray, IntArray

_PEOPLE = {"patient", "patienten", "pat", "person", "persons", "subject", "proband", "participant", "member"}
_PEOPLE |= {"client", "customer", "insured", "user", "case", "fall"}
_OWN = {"pid", "mrn", "ssn", "svnr", "kvnr", "patnr", "fallnr", "ahv", "uid", "uuid", "guid", "identifier"}
_OWN |= {"fallnummer", "patientennummer", "versichertennummer"}
_MIN_PEOPLE = 20  # from which a whole number for each of them is an id, and not an age

# the rules
_MIN_VALUES = 8  # of a column that is judged by content: a category of fewer may shape all columns
_MIN_REPEATED = 0.05  # share of the rows beyond the first of each value
_CHANCE = 1.64  # standard deviations that a mean exceeds by chance in 5% of the cases
_MIN_ICC = 0.05  # the smallest intraclass correlation that counts
_MOST = 0.6  # share of the other columns; a strong category shapes half of them
_SOME_ROWS = 25  # the most rows per value, if two columns that never change are enough
_MIXED = 0.5  # smallest ratio of variances, of combinations of two columns to each column by itself

# limits of the work
_TARGETS, _PAIR_TARGETS = 16, 8  # columns by which single columns, and pairs, are judged
_PAIRED, _PAIR_VALUES = 12, 200  # columns of which all pairs are judged, and their most values
_PAIR_ROWS = 3  # fewest rows per combination


class PersonColumns(NamedTuple):
    """A column, or a pair of columns, that seems to identify people, some of them in several rows."""

    columns: tuple[str, ...]
    values: int  # different ones
    rows: int  # that have one
    steady: tuple[str, ...] = ()  # columns that never change within a value
    named: bool = False  # the name of the column says that it identifies people

    def __str__(self) -> str:
        each = self.rows / self.values
        text = f"{' with '.join(self.columns)} ({self.values} different values in {self.rows} rows"
        text += f", {each:.0f} rows each" if each >= 1.5 else ""
        if self.steady:
            more = len(self.steady) - 3
            others = f" and {more} more" if more > 0 else ""
            text += f"; within a value {', '.join(self.steady[:3])}{others} never change"
        return text + ")"


def person_columns(table: Table, ignored: Sequence[str] = ()) -> list[PersonColumns]:
    """Return the columns and pairs of columns that seem to identify people in several rows, the surest first.

    ``ignored`` columns are known not to identify people. Pairs are returned only if no single column is.

    >>> visits = {"code": list("aabbccddeeffgghh"), "height": [170.0, 170, 181, 181, 165, 165, 190, 190, 158,
    ...           158, 177, 177, 169, 169, 184, 184], "sex": list("ffmmffmmffmmffff"),
    ...           "pulse": [70.0, 80, 72, 66, 90, 81, 77, 65] * 2}
    >>> print(person_columns(Table.from_columns(visits))[0])
    code (8 different values in 16 rows, 2 rows each; within a value sex, height never change)
    """
    every = _columns(table)
    columns = [one for one in every if one.name not in ignored]
    targets = _some([one for one in every if one.is_target])
    found = []
    for one in columns:
        effects: list[_Effect] = []
        if one.count >= _MIN_VALUES and one.rows - one.count >= max(_MIN_VALUES, _MIN_REPEATED * one.rows):
            values = _Values(one.codes, one.count, one.places)
            effects = [each for target in targets if target is not one and (each := values.effect(target))]
        steady = tuple(
            each.column.name for each in effects if each.steady and not one.is_renamed(each.column)
        )
        few_rows = len(steady) >= 2 and one.rows <= _SOME_ROWS * one.count
        if one.is_named or few_rows or _most_depend(effects, _MIN_ICC):
            found.append(PersonColumns((one.name,), one.count, one.rows, steady, one.is_named))
        one.dependence = float(np.median([each.z for each in effects])) if effects else 0.0
    if not found:
        found = list(_pairs(columns, targets))
    return sorted(found, key=lambda one: (not one.named, -one.values))


class DistinctTexts(NamedTuple):
    """A column of texts of which at least half are different: names, ids or remarks."""

    column: str
    values: int
    rows: int

    def __str__(self) -> str:
        return f"{self.column} ({self.values} different texts in {self.rows} rows)"


def distinct_texts(table: Table, person: str = "") -> list[DistinctTexts]:
    """Return the columns with at least half as many different texts as there are people.

    Every row with a text is a person, unless a column ``person`` identifies people.

    >>> names = Table.from_columns({"name": list("abcdefghijkl"), "sex": list("fmfmfmfmfmfm")})
    >>> [str(one) for one in distinct_texts(names)]
    ['name (12 different texts in 12 rows)']
    """
    found = []
    people = len(np.unique(table.values[:, table.index(person)])) if person else len(table)
    for name, kind in zip(table.names, table.kinds, strict=True):
        if kind not in (TEXT, CATEGORY) or name == person:
            continue
        values = np.asarray(table.values[:, table.index(name)])
        there = values[~np.isnan(values)]
        count = len(np.unique(there))
        if count >= _MIN_VALUES and 2 * count >= min(people, len(there)):
            found.append(DistinctTexts(name, count, len(there)))
    return found


def other_ids(table: Table, person: str) -> tuple[str, ...]:
    """Return the columns of whole numbers that differ between all people, and never within one: other ids.

    >>> ids = [float(i) for i in range(30)]
    >>> other_ids(Table.from_columns({"who": ids, "sid": ids[::-1], "age": [40.0] * 30}), "who")
    ('sid',)
    """
    who = np.unique(table.values[:, table.index(person)], return_inverse=True)[1]
    people = int(who.max()) + 1
    found = []
    for name, kind in zip(table.names, table.kinds, strict=True):
        values = np.asarray(table.values[:, table.index(name)])
        if kind not in (NUMBER, ID) or name == person or people < _MIN_PEOPLE:
            continue
        if np.isnan(values).any() or (values != np.floor(values)).any():
            continue
        distinct, codes = np.unique(values, return_inverse=True)
        if len(distinct) == people == len(np.unique(codes * people + who)):
            found.append(name)
    return tuple(found)


# ---------------------------------------------------------------- columns


@dataclass
class _CodedColumn:
    """A column as codes of its values, -1 where it has none."""

    name: str
    codes: IntArray  # (n,)
    count: int  # different values
    rows: int  # that have one
    places: FloatArray | None  # (count,) the values, if they are numbers in an order
    x: FloatArray  # (n,) ranks, the mean where there is no value
    is_named: bool
    dependence: float = 0.0  # of other columns on this one

    @property
    def is_number(self) -> bool:
        return self.places is not None

    def is_renamed(self, other: "_CodedColumn") -> bool:
        """Return whether the other column, if this one determines it, has another name for each value."""
        return other.count == self.count and not other.is_number

    @property
    def is_target(self) -> bool:
        """True if the column can depend on others: it has repeats, or it is a measurement."""
        return self.count > 1 and (self.is_number or 2 * self.count < self.rows)


def _columns(table: Table) -> list[_CodedColumn]:
    columns = []
    for name, kind in zip(table.names, table.kinds, strict=True):
        if kind == EMPTY:
            continue
        values = np.asarray(table.values[:, table.index(name)])
        there = ~np.isnan(values)
        distinct, inverse, sizes = np.unique(values[there], return_inverse=True, return_counts=True)
        rows = len(inverse)
        if len(distinct) < 2:
            continue
        codes = np.full(len(values), -1, dtype=np.int64)
        codes[there] = inverse
        ordered = kind in (NUMBER, ID)
        by = sizes if ordered else np.sort(sizes)[::-1]
        ranks = (np.cumsum(by) - by / 2) / rows
        if not ordered:  # the most frequent category first
            ranks = ranks[np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")]
        x = np.full(len(values), 0.5)
        x[there] = ranks[inverse]
        x -= x.mean()
        columns.append(
            _CodedColumn(
                name,
                codes,
                len(distinct),
                rows,
                distinct if ordered else None,
                x,
                _is_named(name, len(distinct), rows),
            )
        )
    return columns


def _some(columns: Sequence[_CodedColumn]) -> list[_CodedColumn]:
    """Return the columns by whose dependence others are judged: those with few values, and some more."""
    by_count = sorted(columns, key=lambda one: one.count)
    few, rest = by_count[: _TARGETS // 2], by_count[_TARGETS // 2 :]
    step = max(1, -(-len(rest) // (_TARGETS // 2)))
    return few + rest[::step]


def _is_named(name: str, different: int, rows: int) -> bool:
    """Return whether the name of a column with repeated values says that it identifies people."""
    if different == rows:
        return False
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    named, people = named_as_id(name), bool(words & (_PEOPLE | _OWN)) or words == {"id"}
    if named == "id" and people:
        return True
    return named == "perhaps" and people and different >= max(10, rows / 20)  # a subject may be taught


# ---------------------------------------------------------------- what depends on the values of a column


class _Effect(NamedTuple):
    """How a column depends on the values of another."""

    column: _CodedColumn
    z: float  # standard deviations from chance
    icc: float  # intraclass correlation: share of the variance that is between values
    steady: bool  # the column never changes within a value


def _most_depend(effects: Sequence[_Effect], min_icc: float = 0.0) -> bool:
    depend = sum(each.z >= _CHANCE and each.icc >= min_icc for each in effects)
    return len(effects) >= 2 and depend >= _MOST * len(effects)


class _Means(NamedTuple):
    """The means of a column by the values of another, which ``there`` lists."""

    there: IntArray  # (v,)
    sizes: IntArray  # (v,) rows
    means: FloatArray  # (v,) less the mean of all rows
    inside: FloatArray  # (v,) sums of squares around the means
    total: float  # variance of all rows

    @property
    def within(self) -> float:
        """The variance within values."""
        return float(self.inside.sum() / (self.sizes.sum() - len(self.sizes)))

    @property
    def turning(self) -> float:
        """The probability that three means in a random order are not all equal."""
        shares = np.unique(self.means.round(9), return_counts=True)[1] / len(self.means)
        return 1 - float((shares**3).sum())


@dataclass
class _Values:
    """The values of a column, or the combinations of two columns."""

    codes: IntArray  # (n,) -1 where there is none
    count: int
    places: FloatArray | None  # (count,) the values, if they are numbers in an order
    pair: tuple[IntArray, IntArray] | None = None  # (count,) codes of the two columns

    def effect(self, column: _CodedColumn) -> _Effect | None:
        """Return how a column depends on the values; None if too few rows tell."""
        m = self._means(column)
        if m is None:
            return None
        ordered = self.places is not None
        compared = self._off_neighbours(m) if ordered else self._off_others(m)
        if compared is None:
            return None
        off, spread, free, noise, tau = compared
        ratio = off**2 / np.maximum(noise * spread, 1e-12 * m.total)
        ratio[off**2 < 1e-12 * m.total] = 0.0
        surprise = fdtr(1, free, ratio)  # uniform from 0 to 1 by chance
        # neighbouring comparisons share values, so they count half
        z = float((surprise.mean() - 0.5) * np.sqrt((6 if ordered else 12) * len(surprise)))
        between = max(0.0, float((off**2 - noise * spread).sum() / tau.sum()))
        steady = m.within <= 1e-9 * m.total and float(surprise.mean()) >= 0.5 * m.turning
        if steady:
            z = np.inf  # chance plays no part
        return _Effect(column, z, between / (between + m.within) if between else 0.0, steady)

    def _means(self, column: _CodedColumn) -> _Means | None:
        known = (self.codes >= 0) & (column.codes >= 0)
        codes, x = self.codes[known], column.x[known]
        sizes = np.bincount(codes, minlength=self.count)
        there = np.flatnonzero(sizes)
        sizes = sizes[there]
        if len(codes) - len(there) < _MIN_VALUES:
            return None
        x = x - x.mean()
        means = np.bincount(codes, x, self.count)[there] / sizes
        inside = np.bincount(codes, x * x, self.count)[there] - sizes * means**2
        total = float((x * x).mean())
        inside[inside < 1e-9 * total] = 0.0
        return _Means(there, sizes, means, inside, total) if total > 1e-9 else None

    def _off_others(self, m: _Means) -> tuple[FloatArray, ...] | None:
        """Return how far means are off the mean of all other values, and the variance of that by chance."""
        if len(m.there) < _MIN_VALUES:
            return None
        n, ones = m.sizes.sum(), np.ones(len(m.there))
        off = m.means * n / (n - m.sizes)
        return off, 1 / m.sizes + 1 / (n - m.sizes), (n - len(ones)) * ones, m.within * ones, ones

    def _off_neighbours(self, m: _Means) -> tuple[FloatArray, ...] | None:
        """Return how far means are off the line between their neighbours, and the variance by chance."""
        assert self.places is not None
        at, sizes, means = self.places[m.there], m.sizes, m.means
        middle = np.arange(1, len(at) - 1)
        if self.pair is not None:  # along one column, at equal values of the other
            other = self.pair[1][m.there]
            middle = middle[(other[2:] == other[1:-1]) & (other[:-2] == other[1:-1])]
        free = sizes[middle - 1] + sizes[middle] + sizes[middle + 1] - 3
        middle, free = middle[free > 0], free[free > 0]
        if len(middle) < _MIN_VALUES - 2:
            return None
        before, after = middle - 1, middle + 1
        weight = (at[after] - at[middle]) / (at[after] - at[before])
        off = means[middle] - weight * means[before] - (1 - weight) * means[after]
        spread = 1 / sizes[middle] + weight**2 / sizes[before] + (1 - weight) ** 2 / sizes[after]
        noise = (m.inside[before] + m.inside[middle] + m.inside[after]) / free
        return off, spread, free.astype(np.float64), noise, 1 + weight**2 + (1 - weight) ** 2


# ---------------------------------------------------------------- pairs


def _pairs(columns: Sequence[_CodedColumn], targets: Sequence[_CodedColumn]) -> Iterator[PersonColumns]:
    """Yield the pairs of columns on whose combinations most others depend, beyond each column of the pair."""
    few = [one for one in columns if one.count <= _PAIR_VALUES]
    few = sorted(few, key=lambda one: -one.dependence)[:_PAIRED]
    for a, b in combinations(few, 2):
        if b.is_number and (not a.is_number or b.count > a.count):
            a, b = b, a
        both = np.where((a.codes < 0) | (b.codes < 0), -1, b.codes * a.count + a.codes)
        sizes = np.bincount(both[both >= 0], minlength=a.count * b.count)
        cells = np.flatnonzero(sizes)
        rows = int(sizes.sum())
        if len(cells) - a.count - b.count + 1 < _MIN_VALUES - 1 or rows < _PAIR_ROWS * len(cells):
            continue
        codes = np.where(both < 0, -1, (np.cumsum(sizes > 0) - 1)[both])
        pair = cells % a.count, cells // a.count
        ordered = a.places is not None and a.count >= _MIN_VALUES
        places = a.places[pair[0]] if ordered and a.places is not None else None
        values = _PairValues(codes, len(cells), places, pair)
        others = [one for one in targets if one is not a and one is not b][:_PAIR_TARGETS]
        if _most_depend([each for one in others if (each := values.effect(one))]):
            yield PersonColumns((a.name, b.name), len(cells), rows)


@dataclass
class _PairValues(_Values):
    """The combinations of two columns."""

    _inverses: dict[bytes, FloatArray] = field(default_factory=dict, init=False)

    def effect(self, column: _CodedColumn) -> _Effect | None:
        """Return how a column depends on the combinations: not at all if it depends on one column more."""
        m = self._means(column)
        if m is None:
            return None
        rest, spread = self._rest(m)
        free = float((spread * m.sizes).sum())  # degrees of freedom
        if free < 1:
            return None
        mixed = (m.sizes * rest**2).sum() / free
        single = (m.sizes * (m.means - rest) ** 2).sum() / (len(rest) - 1 - free)
        if mixed < _MIXED * single:
            return _Effect(column, 0.0, 0.0, steady=False)
        return super().effect(column)

    def _off_others(self, m: _Means) -> tuple[FloatArray, ...] | None:
        """Return how far means are off the sum of the effects of the two columns."""
        rest, spread = self._rest(m)
        ones = np.ones(len(rest))
        return rest, spread, (m.sizes.sum() - len(ones)) * ones, m.within * ones, spread * m.sizes

    def _rest(self, m: _Means) -> tuple[FloatArray, FloatArray]:
        """Return the residuals of the means, by least squares on both columns, and their variances.

        The variances are relative to the variance of a row.
        """
        assert self.pair is not None
        first = self.pair[0][m.there]
        second = self.pair[1][m.there] + int(first.max()) + 1
        inverse = self._inverse(first, second, m.sizes)
        sums = np.bincount(np.concatenate([first, second]), np.tile(m.sizes * m.means, 2), len(inverse))
        effects = inverse @ sums
        hat = inverse[first, first] + 2 * inverse[first, second] + inverse[second, second]
        return m.means - effects[first] - effects[second], np.maximum(0.0, 1 / m.sizes - hat)

    def _inverse(self, first: IntArray, second: IntArray, sizes: IntArray) -> FloatArray:
        """Return the inverse of the normal equations; columns without missing values have the same."""
        key = first.tobytes() + second.tobytes() + sizes.tobytes()
        if key not in self._inverses:
            width = int(second.max()) + 1
            normal = np.zeros((width, width))
            normal[first, second] = sizes
            normal += normal.T
            normal[np.diag_indices(width)] = normal.sum(axis=0)  # rows of each value
            self._inverses[key] = np.asarray(np.linalg.pinv(normal, hermitian=True), np.float64)
        return self._inverses[key]
