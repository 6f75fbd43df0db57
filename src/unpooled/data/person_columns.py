"""Columns that seem to identify people, some of them in several rows: found by content, and by name.

An id of people has many values, and other columns vary less within a value than between values: all of them
a little, as measurements of one person do, or some of them not at all, as age and sex. An ordinary category
(ward, diagnosis, species) has few values, or leaves most columns as they are. A column of ordered numbers
(age, dose) is compared with its neighbouring values, because others may depend on it smoothly.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from unpooled.data.column_kinds import CATEGORY, EMPTY, ID, NUMBER, TEXT
from unpooled.data.readers.cell_text import named_as_id
from unpooled.data.table import Table
from unpooled.typing import FloatArray, IntArray

_PEOPLE = {"patient", "patienten", "pat", "person", "persons", "subject", "proband", "participant", "member"}
_PEOPLE |= {"client", "customer", "insured", "user", "case", "fall"}
_OWN = {"pid", "mrn", "ssn", "svnr", "kvnr", "patnr", "fallnr", "ahv", "uid", "uuid", "guid", "identifier"}
_OWN |= {"fallnummer", "patientennummer", "versichertennummer"}
_MIN_VALUES = 8  # of a column that is judged by content: a category of fewer may shape all columns
_MIN_PEOPLE = 20  # from which a whole number for each of them is an id, and not an age
_MIN_REPEATS, _MIN_REPEATED = 4, 0.05  # rows beyond the first of each value, and their share
_FEW_ROWS, _SOME_ROWS = 4, 25  # per value: a column that hardly changes within values is enough, or counts
_HARDLY = 0.02  # share of the variance within values, of a column that hardly changes
_CHANCE = 1e-6  # that a column hardly changes by accident
_MOST, _HALF = 1.0, 2.5  # standard deviations from chance of four fifths, and of half, of the columns
_MANY, _MOST_OF_MANY, _HALF_OF_MANY = 8, 0.5, 1.5  # the same for many columns
_ROUGH = 1.07, 0.30  # a squared standard normal exceeds the first with the second as probability
_MARGIN = 0.03  # of this probability, because variances are estimated
_CAP, _CAPPED_MEAN, _CAPPED_VARIANCE = 4.0, 0.92, 1.23  # of a squared standard normal, cut at the first
_FEW_TRIPLES = 20  # of neighbouring values: there the share above the limit would tell too little
_MAIN = 0.6  # a pair matters if it explains this much of what its columns explain by themselves
_WINDOW = 10  # values on either side whose variance is compared with
_TURNS = 0.25  # share of values at which a column that hardly changes turns; monotone ones never do
_TARGETS = 8  # columns with few values, and as many others, by which all are judged
_PAIRED, _PAIR_TARGETS = 12, 8  # columns of which all pairs are judged, and by how many others
_PAIR_VALUES = 200  # of a column that is judged in pairs
_PAIR_ROWS = 3  # per pair of values
_PAIR_CELLS = 0.9  # share of all pairs of values that occur; of ordinary categories, all of them do


class PersonColumns(NamedTuple):
    """A column, or a pair of columns, that seems to identify people, some of them in several rows."""

    columns: tuple[str, ...]
    values: int  # different ones
    rows: int  # that have one
    steady: tuple[str, ...] = ()  # columns that hardly change within a value
    named: bool = False  # the name of the column says that it identifies people

    def __str__(self) -> str:
        each = self.rows / self.values
        text = f"{' with '.join(self.columns)} ({self.values} different values in {self.rows} rows"
        text += f", {each:.0f} rows each" if each >= 1.5 else ""
        if self.steady:
            more = len(self.steady) - 3
            others = f" and {more} more" if more > 0 else ""
            text += f"; within a value {', '.join(self.steady[:3])}{others} hardly change"
        return text + ")"


def person_columns(table: Table, ignored: Sequence[str] = ()) -> list[PersonColumns]:
    """Return the columns and pairs of columns that seem to identify people in several rows, the surest first.

    ``ignored`` columns are known not to identify people. Pairs are returned only if no single column is.

    >>> visits = {"code": list("aabbccddeeffgghh"), "height": [170.0, 170, 181, 181, 165, 165, 190, 190, 158,
    ...           158, 177, 177, 169, 169, 184, 184], "pulse": [70.0, 80, 72, 66, 90, 81, 77, 65] * 2}
    >>> print(person_columns(Table.from_columns(visits))[0])
    code (8 different values in 16 rows, 2 rows each; within a value height hardly change)
    """
    every = _columns(table)
    columns = [one for one in every if one.name not in ignored]
    targets = _some([one for one in every if one.is_target])
    found = []
    for one in columns:
        others = [each for each in targets if each is not one]
        effects = _effects(_Values(one.codes, one.count, one.places), others)
        if one.is_named or _identifies(one, effects):
            steady = tuple(each.column.name for each in effects if each.steady)
            found.append(PersonColumns((one.name,), one.count, one.rows, steady, one.is_named))
        one.dependence = _half([each.z for each in effects])
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
    few, rest = by_count[:_TARGETS], by_count[_TARGETS:]
    step = max(1, -(-len(rest) // _TARGETS))
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


class _Values:
    """The values of a column, or of a pair of columns, and the rows that have each."""

    def __init__(
        self,
        codes: IntArray,
        count: int,
        places: FloatArray | None,
        pair: tuple[IntArray, IntArray] | None = None,
    ) -> None:
        self._there = None if codes.min() >= 0 else codes >= 0
        self.codes = codes if self._there is None else codes[self._there]
        self.count, self.rows = count, len(self.codes)
        self.sizes = np.bincount(self.codes, minlength=count)
        self.places, self.pair = places, pair
        self.repeats = self.rows - count

    def of(self, column: _CodedColumn) -> FloatArray:
        return column.x if self._there is None else column.x[self._there]


class _Effect(NamedTuple):
    """How a column depends on the values of another."""

    column: _CodedColumn
    z: float  # standard deviations from chance
    steady: bool  # it hardly changes within a value
    kinds: IntArray  # of a steady column: its value by value of the other


def _effects(values: _Values, targets: Sequence[_CodedColumn]) -> list[_Effect]:
    """Return how columns depend on values, except for those that tell nothing about people.

    These are other names of the same values, smooth functions of them, and numbers of visits: every person
    has each of them.
    """
    effects: list[_Effect] = []
    if values.count < _MIN_VALUES or values.repeats < max(_MIN_REPEATS, _MIN_REPEATED * values.rows):
        return effects
    n, count, sizes = values.rows, values.count, values.sizes
    for one in targets:
        x = values.of(one)
        means = np.bincount(values.codes, x, count) / sizes
        squares = x * x
        center, between = float(x.mean()), sizes * means**2
        total = float(squares.sum()) - n * center**2
        if total <= 1e-9 * n:
            continue
        within = max(0.0, float(squares.sum() - between.sum())) / values.repeats
        steady = within < _HARDLY * total / n
        if steady and one.count == count and not one.is_number:
            continue  # another name
        if steady and values.places is not None and _turns(means) < _TURNS * (count - 2):
            continue  # a function
        noise = max(within, 1e-9 * total / n)
        ratio = float((sizes * (means - center) ** 2).sum()) / (count - 1) / noise
        if ratio < 0.3 and values.repeats > count:
            continue  # visits
        if values.places is not None:
            inside = np.maximum(np.bincount(values.codes, squares, count) - between, 0.0)
            z = _rough(values, means, inside, noise)
        else:
            z = (ratio - 1) / np.sqrt(2 / (count - 1) + 2 / values.repeats)
        kinds = np.zeros(0, dtype=np.int64)
        if steady:
            agree = float(((np.bincount(one.codes[one.codes >= 0]) / one.rows) ** 2).sum())
            steady = agree**values.repeats < _CHANCE
            kinds = np.unique(means.round(9), return_inverse=True)[1]
        effects.append(_Effect(one, float(z), steady, kinds))
    return effects


def _identifies(one: _CodedColumn, effects: Sequence[_Effect]) -> bool:
    """Return whether the values of a column seem to be people, by what depends on them."""
    steady = [each for each in effects if each.steady]
    if steady and one.rows < _SOME_ROWS * one.count:
        rich = any(each.column.is_number and 4 * each.kinds.max() >= min(one.count, 40) for each in steady)
        crossed = _is_crossed([each.kinds for each in steady])
        enough = one.rows < _FEW_ROWS * one.count or (rich and crossed)
        others = _half([each.z for each in effects if not each.steady])
        if (one.is_number or rich or crossed) and (enough or others >= _MOST):
            return True
    changing = [each.z for each in effects if not each.steady]
    return _all_depend(changing if len(changing) > 1 else [each.z for each in effects])


def _all_depend(z: Sequence[float], *, strict: bool = False) -> bool:
    many = len(z) >= _MANY and not strict
    most, half = (_MOST_OF_MANY, _HALF_OF_MANY) if many else (_MOST, _HALF)
    return len(z) >= 2 and _half(z) >= half and float(np.quantile(z, 0.2)) >= most


def _half(z: Sequence[float]) -> float:
    return float(np.median(z)) if z else 0.0


def _is_crossed(kinds: Sequence[IntArray]) -> bool:
    """Return whether two columns cross, as sex and region do, unlike ward and clinic."""
    for a, b in combinations(kinds, 2):
        both = len(np.unique(a * (int(b.max()) + 1) + b))
        if both > max(int(a.max()), int(b.max())) + 1:
            return True
    return False


def _turns(means: FloatArray) -> int:
    """Return how often a sequence changes its direction."""
    steps = np.sign(np.diff(means.round(9)))
    steps = steps[steps != 0]
    return int((steps[1:] != steps[:-1]).sum())


def _rough(values: _Values, means: FloatArray, inside: FloatArray, noise: float) -> float:
    """Return how far means are off the line between their neighbours, in standard deviations from chance."""
    assert values.places is not None
    several = np.flatnonzero(values.sizes > 1)
    if len(several) < _MIN_VALUES:
        return 0.0
    at, mean, size = values.places[several], means[several], values.sizes[several]
    free = np.cumsum(np.concatenate([[0], size - 1]))
    squares = np.cumsum(np.concatenate([[0.0], inside[several]]))
    low = np.maximum(np.arange(len(several)) - _WINDOW, 0)
    high = np.minimum(np.arange(len(several)) + _WINDOW + 1, len(several))
    local = np.maximum((squares[high] - squares[low]) / (free[high] - free[low]), 1e-3 * noise)
    middle = np.arange(1, len(several) - 1)
    if values.pair is not None:  # along one column, at equal values of the other
        other = values.pair[1][several]
        middle = middle[(other[2:] == other[1:-1]) & (other[:-2] == other[1:-1])]
        if len(middle) < _MIN_VALUES - 2:
            return 0.0
    before, after = middle - 1, middle + 1
    weight = (at[after] - at[middle]) / (at[after] - at[before])
    off = mean[middle] - weight * mean[before] - (1 - weight) * mean[after]
    spread = 1 / size[middle] + weight**2 / size[before] + (1 - weight) ** 2 / size[after]
    squared = off**2 / (local[middle] * spread)
    if len(middle) < _FEW_TRIPLES:
        capped = float(np.minimum(squared, _CAP).mean())
        return float((capped - _CAPPED_MEAN) / np.sqrt(1.5 * _CAPPED_VARIANCE / len(middle)))
    limit, chance = _ROUGH
    share = float((squared > limit).mean())
    return float((share - chance - _MARGIN) / np.sqrt(1.5 * chance * (1 - chance) / len(middle)))


# ---------------------------------------------------------------- pairs


def _pairs(columns: Sequence[_CodedColumn], targets: Sequence[_CodedColumn]) -> Iterator[PersonColumns]:
    """Yield the pairs of columns on whose combinations all others depend, beyond each column of the pair."""
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
        if len(cells) > _PAIR_CELLS * a.count * b.count:
            continue
        place = np.cumsum(sizes > 0) - 1
        codes = np.where(both < 0, -1, place[both])
        pair = cells % a.count, cells // a.count
        others = [one for one in targets if one is not a and one is not b][:_PAIR_TARGETS]
        if a.places is not None and a.count >= _MIN_VALUES:
            values = _Values(codes, len(cells), a.places[pair[0]], pair)
            z = [each.z for each in _effects(values, others)]
        else:
            z = _interactions(_Values(codes, len(cells), None, pair), others)
        if _all_depend(z, strict=True):
            yield PersonColumns((a.name, b.name), len(cells), rows)


def _interactions(values: _Values, targets: Sequence[_CodedColumn]) -> list[float]:
    """Return how columns depend on pairs of values beyond each value of a pair, in standard deviations.

    Nothing if they depend far more on one of the two by itself: it is an ordinary category.
    """
    assert values.pair is not None
    sizes, (a, b) = values.sizes, values.pair
    sums = np.bincount(a, sizes), np.bincount(b, sizes)
    free = values.count - int((sums[0] > 0).sum()) - int((sums[1] > 0).sum()) + 1
    ratios, mains = [], []
    for one in targets:
        x = values.of(one)
        means = np.bincount(values.codes, x, values.count) / sizes  # x has mean 0
        inside = float((x * x).sum() - (sizes * means**2).sum())
        noise = max(inside / values.repeats, 1e-9)
        rest = means.copy()
        for _ in range(5):
            for by, weights in ((a, sums[0]), (b, sums[1])):
                rest -= (np.bincount(by, sizes * rest) / np.maximum(weights, 1))[by]
        ratios.append(float((sizes * rest**2).sum()) / free / noise)
        mains.append(float((sizes * (means - rest) ** 2).sum()) / (values.count - 1 - free) / noise)
    if sum(ratios) < _MAIN * sum(mains):
        return []
    spread = np.sqrt(2 / free + 2 / values.repeats)
    pairs = zip(ratios, mains, strict=True)
    return [float((ratio - 1) / spread) if ratio >= _MAIN * main else 0.0 for ratio, main in pairs]
