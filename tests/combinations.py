"""Exact linear algebra on disclosed sums: the fewest people that any combination of them is about.

A sum is a set of people. A combination with rational coefficients is about the people whose coefficients do
not cancel. People with the same sums are alike, so only the number of each kind matters.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction


def fewer_than(g: int, sums: list[set[str]]) -> tuple[Fraction, ...] | None:
    """Coefficients, not all 0, of a combination about fewer than g persons; None if there is none."""
    kinds = Counter(
        frozenset(i for i, group in enumerate(sums) if person in group) for person in set().union(*sums)
    )
    for left in _few(g - 1, [(kind, n) for kind, n in kinds.items() if n < g]):
        found = _cancelling(len(sums), [kind for kind in kinds if kind not in left])
        if found is not None:
            return found
    return None


def _few(room: int, kinds: list[tuple[frozenset[int], int]]) -> Iterator[set[frozenset[int]]]:
    """Sets of kinds of people, at most ``room`` people together, to which no other kind can be added."""

    def chosen(start: int, room: int, so_far: set[frozenset[int]]) -> Iterator[set[frozenset[int]]]:
        if not any(n <= room and kind not in so_far for kind, n in kinds):
            yield so_far
        for i in range(start, len(kinds)):
            if kinds[i][1] <= room:
                yield from chosen(i + 1, room - kinds[i][1], so_far | {kinds[i][0]})

    yield from chosen(0, room, set())


def _cancelling(count: int, kinds: list[frozenset[int]]) -> tuple[Fraction, ...] | None:
    """Coefficients of the sums, not all 0, with which everybody of these kinds cancels."""
    open_sums = set(range(count))
    while True:  # somebody in one open sum alone cancels only if its coefficient is 0
        alone = {next(iter(kind & open_sums)) for kind in kinds if len(kind & open_sums) == 1}
        if not alone:
            break
        open_sums -= alone
    columns = sorted(open_sums)
    return _solution(count, columns, {kind & open_sums for kind in kinds}) if columns else None


def _solution(
    count: int, columns: list[int], equations: Iterable[frozenset[int]]
) -> tuple[Fraction, ...] | None:
    """A solution, not 0, of equations "these coefficients add up to 0", by elimination in fractions."""
    solved: dict[int, dict[int, Fraction]] = {}  # a coefficient as a combination of free ones
    for equation in equations:
        row: dict[int, Fraction] = {}
        for column in equation:
            for free, factor in solved.get(column, {column: Fraction(1)}).items():
                row[free] = row.get(free, Fraction(0)) + factor
        row = {column: value for column, value in row.items() if value}
        if not row:
            continue
        pivot = min(row)
        rest = {column: -value / row[pivot] for column, value in row.items() if column != pivot}
        for other, found in solved.items():
            if pivot in found:
                factor = found.pop(pivot)
                for column, value in rest.items():
                    found[column] = found.get(column, Fraction(0)) + factor * value
                solved[other] = {column: value for column, value in found.items() if value}
        solved[pivot] = rest
    unsolved = [column for column in columns if column not in solved]
    if not unsolved:
        return None
    values = {unsolved[0]: Fraction(1)}
    for column, found in solved.items():
        values[column] = found.get(unsolved[0], Fraction(0))
    return tuple(values.get(i, Fraction(0)) for i in range(count))
