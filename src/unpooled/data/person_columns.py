"""Columns that seem to identify people, some of them in several rows: found by content, and by name.

By content, a column or a pair of columns is weighed by how the other columns depend on its values (one-way
analysis of variance on ranks). Two explanations are compared:

- The values are people. Most other columns depend on them, with an intraclass correlation (ICC, the share of
  the variance that is between values) of 0.1 to 0.9, as between people who are measured several times.
- The values are a category, such as a ward. Few columns depend on it so much, and the others hardly: the ICC
  between wards or clinics is mostly below 0.05.

Every other column adds the logarithm of how much more probable the first explanation makes what it shows: at
most 0.8, and down to -1 for a column that does not depend on the values. A column of a small table adds
little. Two columns that never change within a value, such as age and sex, add more.

A value of an ordered column (age, dose) is compared with the line between its neighbours, because other
columns may depend on it smoothly. The combinations of two columns, such as age and sex, are compared with the
sum of the effects of both.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np

from unpooled.data.column_kinds import CATEGORY, EMPTY, ID, TEXT, has_mean
from unpooled.data.readers.cell_text import named_as_id
from unpooled.data.table import Table
from unpooled.typing import FloatArray, IntArray

_PEOPLE = {"patient", "patienten", "pat", "person", "persons", "subject", "proband", "participant", "member"}
_PEOPLE |= {"client", "customer", "insured", "user", "case", "fall"}
_OWN = {"pid", "mrn", "ssn", "svnr", "kvnr", "patnr", "fallnr", "ahv", "uid", "uuid", "guid", "identifier"}
_OWN |= {"fallnummer", "patientennummer", "versichertennummer"}
_MIN_PEOPLE = 20  # from which a whole number for each of them is an id, and not an age

# the two explanations
_PEOPLE_ICC = (0.1, 0.3, 0.6, 0.9)  # of a column that depends on the person
_OTHER_ICC = (0.0, 0.02, 0.04)  # of a column that does not, or hardly, depend on a category
_PEOPLE_SHARE = 0.75  # share of the columns that depend on the person; the others are dates, visits, staff
_OTHER_SHARE = 0.35  # share of the columns that depend on a category as much as on a person
_TWO_STEADY = 6.0  # how much more often two columns never change within a person than within a category
_BALANCED = -4.0  # standard deviations below chance: a column is arranged by person, as visits 1, 2, 3 are
_ENOUGH = 0.25  # evidence: people are 1.3 times as probable as a category
_ENOUGH_ALONE = 3.0  # log of the likelihood ratio, if a pair leaves only one other column

# what is compared
_MIN_VALUES = 8  # of a column that is judged by content: fewer show no difference from a category
_MIN_REPEATED = 0.05  # share of the rows beyond the first of each value
_PERSON_ROWS = 5  # of each person, if two columns identify people
_MIXED = 0.5  # smallest ratio of variances, of combinations of two columns to each column by itself

# limits of the work
_TARGETS, _PAIR_TARGETS = 16, 8  # columns by which single columns, and pairs, are judged
_PAIRED, _PAIR_VALUES = 12, 200  # columns of which all pairs are judged, and their most values
_PAIR_ROWS = 3  # fewest rows per combination
_INDICATORS = 4  # most categories of a column that are looked at


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
            others = (target for target in targets if target is not one)
            effects = [each for target in others if (each := values.effect(target))]
            effects = [each for each in effects if not (each.steady and one.is_renamed(each.column))]
        one.evidence = _evidence(effects)
        if one.is_named or (len(effects) > 1 and one.evidence >= _ENOUGH):
            steady = tuple(each.column.name for each in effects if each.steady)
            found.append(PersonColumns((one.name,), one.count, one.rows, steady, one.is_named))
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
        if not (has_mean(kind) or kind == ID) or name == person or people < _MIN_PEOPLE:
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
    x: FloatArray  # (c, n) ranks of numbers, or which of the most frequent categories a row has
    squares: FloatArray  # (n,) sums of x * x
    is_named: bool
    evidence: float = 0.0  # that the values are people

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
        ordered = has_mean(kind) or kind == ID
        x = np.zeros((1, len(values)))
        if ordered:
            x[0, there] = ((np.cumsum(sizes) - sizes / 2) / rows)[inverse] - 0.5
        else:
            frequent = np.argsort(-sizes, kind="stable")[:_INDICATORS]
            x = (codes == frequent[:, None]).astype(np.float64)
        columns.append(
            _CodedColumn(
                name,
                codes,
                len(distinct),
                rows,
                distinct if ordered else None,
                x,
                (x * x).sum(axis=0),
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
    likelihood: float  # log of the ratio: that it depends as on people, to that it hardly does
    steady: bool  # the column never changes within a value


def _evidence(effects: Sequence[_Effect]) -> float:
    """Return the log of how much more probable the effects are of people than of a category."""
    ratios = np.exp(np.clip([each.likelihood for each in effects], -50, 50))
    people = _PEOPLE_SHARE * ratios + 1 - _PEOPLE_SHARE
    evidence = float(np.log(people / (_OTHER_SHARE * ratios + 1 - _OTHER_SHARE)).sum())
    return evidence + (np.log(_TWO_STEADY) if sum(each.steady for each in effects) >= 2 else 0.0)


class _Variance(NamedTuple):
    """The variance of a column between values, relative to that within them."""

    ratio: float  # 1 by chance
    free: float  # degrees of freedom of the variance between values
    free_within: float
    rows: float  # of a value: the ratio is 1 + rows * ICC / (1 - ICC)

    def deviation(self, icc: float) -> float:
        """Return how far the ratio is off that of an ICC, in standard deviations."""
        expected = 1 + self.rows * icc / (1 - icc)
        spread = np.sqrt(2 / self.free + 2 / self.free_within)
        return float((np.log(self.ratio) - np.log(expected)) / spread)

    @property
    def likelihood(self) -> float:
        """The log of the likelihood ratio: of the ICCs of people, to those of other values."""
        return self._fit(_PEOPLE_ICC) - self._fit(_OTHER_ICC)

    def _fit(self, iccs: Sequence[float]) -> float:
        fits = [-(self.deviation(icc) ** 2) / 2 for icc in iccs]
        return float(np.logaddexp.reduce(fits) - np.log(len(iccs)))


class _Means(NamedTuple):
    """The means of a column by the values of another, which ``there`` lists."""

    there: IntArray  # (v,)
    sizes: IntArray  # (v,) rows
    means: FloatArray  # (v, c) less the mean of all rows
    inside: FloatArray  # (v,) sums of squares around the means
    total: float  # variance of all rows

    @property
    def free(self) -> int:
        """Degrees of freedom of the variance within values."""
        return int(self.sizes.sum()) - len(self.sizes)

    @property
    def within(self) -> float:
        """The variance within values, above 0."""
        return max(float(self.inside.sum()) / self.free, 1e-9 * self.total)


@dataclass
class _Values:
    """The values of a column, or the combinations of two columns."""

    codes: IntArray  # (n,) -1 where there is none
    count: int
    places: FloatArray | None = None  # (count,) the values, if they are numbers in an order

    def effect(self, column: _CodedColumn) -> _Effect | None:
        """Return how a column depends on the values; None if too few rows tell."""
        m = self._means(column)
        found = None if m is None else self._variance(m)
        if m is None or found is None:
            return None
        likelihood = np.inf if found.deviation(0) < _BALANCED else found.likelihood
        return _Effect(column, likelihood, steady=not m.inside.any())

    def _means(self, column: _CodedColumn) -> _Means | None:
        codes, x, squares = self.codes, column.x, column.squares
        known = (codes >= 0) & (column.codes >= 0)
        if not known.all():
            codes, x, squares = codes[known], x[:, known], squares[known]
        sizes = np.bincount(codes, minlength=self.count)
        there = np.flatnonzero(sizes)
        sizes = sizes[there]
        if len(codes) - len(there) < _MIN_VALUES:
            return None
        sums = np.column_stack([np.bincount(codes, each, self.count) for each in x])[there]
        means, mean = sums / sizes[:, None], sums.sum(axis=0) / len(codes)
        inside = np.bincount(codes, squares, self.count)[there] - sizes * (means**2).sum(axis=1)
        total = float(squares.sum() / len(codes) - (mean**2).sum())
        inside[inside < 1e-9 * total * sizes] = 0.0
        return _Means(there, sizes, means - mean, inside, total) if total > 1e-9 else None

    def _variance(self, m: _Means) -> _Variance | None:
        """Return the variance between values: around the mean, or around the line between neighbours."""
        if self.places is not None:
            return self._variance_off_neighbours(m, self.places[m.there])
        if len(m.there) < _MIN_VALUES:
            return None
        n, free = int(m.sizes.sum()), len(m.there) - 1
        between = float((m.sizes * (m.means**2).sum(axis=1)).sum()) / free
        rows = (n - float((m.sizes**2).sum()) / n) / free
        return _Variance(max(between / m.within, 1e-9), free, m.free, rows)

    def _variance_off_neighbours(self, m: _Means, at: FloatArray) -> _Variance | None:
        sizes, means, inside = m.sizes, m.means, m.inside
        free = sizes[:-2] + sizes[1:-1] + sizes[2:] - 3
        middle = np.flatnonzero(free > 0) + 1
        if len(middle) < _MIN_VALUES - 2:
            return None
        free, before, after = free[middle - 1], middle - 1, middle + 1
        weight = (at[after] - at[middle]) / (at[after] - at[before])
        off = means[middle] - weight[:, None] * means[before] - (1 - weight)[:, None] * means[after]
        spread = 1 / sizes[middle] + weight**2 / sizes[before] + (1 - weight) ** 2 / sizes[after]
        between = float(((off**2).sum(axis=1) / spread).mean())
        noise = float(((inside[before] + inside[middle] + inside[after]) / free).mean())
        rows = float(((1 + weight**2 + (1 - weight) ** 2) / spread).mean())
        ratio = max(between / max(noise, 1e-9 * m.total), 1e-9)
        return _Variance(ratio, len(middle) / 2, float(free.sum()) / 3, rows)  # neighbours share values


# ---------------------------------------------------------------- pairs


def _pairs(columns: Sequence[_CodedColumn], targets: Sequence[_CodedColumn]) -> Iterator[PersonColumns]:
    """Yield the pairs of columns whose combinations are people rather than categories."""
    few = [one for one in columns if one.count <= _PAIR_VALUES]
    few = sorted(few, key=lambda one: -one.evidence)[:_PAIRED]
    for a, b in combinations(few, 2):
        both = np.where((a.codes < 0) | (b.codes < 0), -1, b.codes * a.count + a.codes)
        sizes = np.bincount(both[both >= 0], minlength=a.count * b.count)
        cells = np.flatnonzero(sizes)
        rows = int(sizes.sum())
        if len(cells) - a.count - b.count + 1 < _MIN_VALUES - 1 or rows < _PAIR_ROWS * len(cells):
            continue
        codes = np.where(both < 0, -1, (np.cumsum(sizes > 0) - 1)[both])
        values = _PairValues(codes, len(cells), pair=(cells % a.count, cells // a.count))
        others = [one for one in targets if one is not a and one is not b][:_PAIR_TARGETS]
        effects = [each for one in others if (each := values.effect(one))]
        alone = len(effects) == 1 and effects[0].likelihood >= _ENOUGH_ALONE
        if alone or (len(effects) > 1 and _evidence(effects) >= _ENOUGH):
            yield PersonColumns((a.name, b.name), len(cells), rows)


@dataclass
class _PairValues(_Values):
    """The combinations of two columns."""

    pair: tuple[IntArray, IntArray] = field(kw_only=True)  # (count,) codes of the two columns
    _inverses: dict[bytes, FloatArray] = field(default_factory=dict, init=False)

    def _variance(self, m: _Means) -> _Variance | None:
        """Return the variance between combinations, around the sum of the effects of the two columns.

        If the column depends mainly on one of the two, the ratio is that of chance.
        """
        rest, spread = self._rest(m)
        free = float((spread * m.sizes).sum())  # degrees of freedom
        if free < 1:
            return None
        mixed = float((m.sizes * (rest**2).sum(axis=1)).sum()) / free
        single = float((m.sizes * ((m.means - rest) ** 2).sum(axis=1)).sum()) / (len(rest) - 1 - free)
        ratio = mixed / m.within if mixed >= _MIXED * single else min(1.0, mixed / m.within)
        return _Variance(max(ratio, 1e-9), free, m.free, _PERSON_ROWS)

    def _rest(self, m: _Means) -> tuple[FloatArray, FloatArray]:
        """Return the residuals of the means, by least squares on both columns, and their variances.

        The variances are relative to the variance of a row.
        """
        first = self.pair[0][m.there]
        second = self.pair[1][m.there] + int(first.max()) + 1
        inverse = self._inverse(first, second, m.sizes)
        both = np.concatenate([first, second])
        totals = np.tile((m.sizes[:, None] * m.means).T, 2)  # (c, 2v)
        effects = inverse @ np.column_stack([np.bincount(both, each, len(inverse)) for each in totals])
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
            normal[np.diag_indices(width)] += 1e-6  # only the sum of both effects is determined
            self._inverses[key] = np.asarray(np.linalg.inv(normal), np.float64)
        return self._inverses[key]
