"""Optima in exact arithmetic: float64 rows are rational numbers, and every partition is tried in them.

Nothing here is rounded, so what it returns is the truth that every printed bound is held to. Nothing of the
solver is used.
"""

from fractions import Fraction
from itertools import combinations
from math import lcm

Box = tuple[list[Fraction], list[Fraction]]


def whole(values) -> tuple[list[int], int]:
    """Integers p and a shift s with value = p / 2^s, for a flat list of floats."""
    pairs = [float(v).as_integer_ratio() for v in values]
    shift = max((q.bit_length() - 1 for _, q in pairs), default=0)
    return [p << (shift - (q.bit_length() - 1)) for p, q in pairs], shift


def optimum(X, k: int, weights=None) -> Fraction:
    """The least inertia of rows X (n, d) with at most k clusters; 3^n steps."""
    n = len(X)
    rows, mass, unit = _integers(X, weights)
    cost = _scatters(rows, mass)
    least = lcm(*{m for m, _ in cost if m})
    price = [t * (least // m) if m else 0 for m, t in cost]  # cost of each subset in 1 / least
    best, full = price, 2**n - 1
    for _ in range(min(k, n) - 1):
        best = [_split(mask, best, price) for mask in range(full + 1)]
    return Fraction(best[full], least) * unit


def optimum_on_a_line(values, k: int) -> Fraction:
    """The same for one column, where the clusters of an optimum are intervals; n^2 k steps."""
    (rows, shift), n = whole(sorted(values)), len(values)
    sums, squares = [0], [0]
    for x in rows:
        sums.append(sums[-1] + x)
        squares.append(squares[-1] + x * x)
    least = lcm(*range(1, n + 1))

    def price(a: int, b: int) -> int:
        return least * (squares[b] - squares[a]) - (least // (b - a)) * (sums[b] - sums[a]) ** 2

    best = [0] + [price(0, b) for b in range(1, n + 1)]
    for _ in range(k - 1):
        best = [0] + [
            min(best[b], *(best[a] + price(a, b) for a in range(b))) if b else 0 for b in range(1, n + 1)
        ]
    return Fraction(best[n], least) / 2 ** (2 * shift)


def inertia(X, labels, weights=None) -> Fraction:
    """The inertia of a clustering about the exact means of its clusters."""
    rows, mass, unit = _integers(X, weights)
    total = Fraction(0)
    for label in set(map(int, labels)):
        at = [i for i, own in enumerate(labels) if own == label]
        m = sum(mass[i] for i in at)
        if m:
            sums = [sum(mass[i] * rows[i][c] for i in at) for c in range(len(rows[0]))]
            squares = sum(mass[i] * x * x for i in at for x in rows[i])
            total += Fraction(m * squares - sum(s * s for s in sums), m)
    return total * unit


def inertia_about(X, centers) -> Fraction:
    """The sum of squared distances to the nearest of given centres."""
    at = [[Fraction(v) for v in center] for center in centers]
    rows = [[Fraction(v) for v in row] for row in X]
    return sum((min(_dot(z, z) for z in _differences(row, at)) for row in rows), Fraction(0))


def priced_optimum(X, k: int, weights, prices, low, high, references=None, cells=None) -> Fraction | None:
    """The least sum of w |x - m|^2 over rows plus p . m over centroids, each in its box and its Voronoi cell.

    None where a box is empty. Clusters may be empty; a row belongs to exactly one.
    """
    n, d = len(X), len(X[0])
    rows = [[Fraction(float(v)) for v in row] for row in X]
    w = [Fraction(float(v)) for v in weights]
    mass, sums, squares = [Fraction(0)], [[Fraction(0)] * d], [Fraction(0)]
    for mask in range(1, 2**n):
        i, rest = mask.bit_length() - 1, mask & ~(1 << (mask.bit_length() - 1))
        mass.append(mass[rest] + w[i])
        sums.append([s + w[i] * x for s, x in zip(sums[rest], rows[i], strict=True)])
        squares.append(squares[rest] + w[i] * sum(x * x for x in rows[i]))
    total: list[Fraction] | None = None
    for j in range(k):
        p = [Fraction(float(v)) for v in prices[j]]
        box = [Fraction(float(v)) for v in low[j]], [Fraction(float(v)) for v in high[j]]
        if any(a > b for a, b in zip(*box, strict=True)):
            return None
        walls = [] if references is None else _walls(references, j if cells is None else int(cells[j]))
        own = []
        for mask in range(2**n):
            slope = [q - 2 * s for q, s in zip(p, sums[mask], strict=True)]
            least = _in_region(mass[mask], slope, box, walls) if walls else _in_box(mass[mask], slope, box)
            if least is None:
                return None
            own.append(squares[mask] + least)
        total = own if total is None else [_split(mask, total, own) for mask in range(2**n)]
    assert total is not None
    return total[-1]


def _integers(X, weights) -> tuple[list[list[int]], list[int], Fraction]:
    """Rows and weights as integers, and the unit that turns w x x into the rows' squares."""
    flat, shift = whole(v for row in X for v in row)
    n, d = len(X), len(X[0])
    mass, heavy = ([1] * n, 0) if weights is None else whole(weights)
    return [flat[i * d : (i + 1) * d] for i in range(n)], mass, Fraction(1, 2 ** (2 * shift + heavy))


def _scatters(rows: list[list[int]], mass: list[int]) -> list[tuple[int, int]]:
    """Of every subset: its mass, and mass times its scatter about the mean."""
    found = [(0, [0] * len(rows[0]), 0)]
    for mask in range(1, 2 ** len(rows)):
        i = mask.bit_length() - 1
        m, sums, squares = found[mask & ~(1 << i)]
        w, x = mass[i], rows[i]
        found.append(
            (m + w, [s + w * v for s, v in zip(sums, x, strict=True)], squares + w * sum(v * v for v in x))
        )
    return [(m, m * q - sum(s * s for s in sums)) for m, sums, q in found]


def _split(mask: int, rest, own):
    """The cheapest way to give a subset of mask to one more cluster."""
    best, part = rest[mask] + own[0], mask
    while part:
        best = min(best, rest[mask ^ part] + own[part])
        part = (part - 1) & mask
    return best


def _in_box(a: Fraction, b: list[Fraction], box: Box) -> Fraction:
    """min a |m|^2 + b . m in a box: one column at a time."""
    total = Fraction(0)
    for slope, lo, hi in zip(b, *box, strict=True):
        free = -slope / (2 * a) if a else (lo if slope > 0 else hi)
        m = min(max(free, lo), hi)
        total += a * m * m + slope * m
    return total


def _walls(references, cell: int) -> list[tuple[list[Fraction], Fraction]]:
    """The half-spaces g . m >= c of the Voronoi cell of references[cell]."""
    at = [[Fraction(float(v)) for v in row] for row in references]
    own, walls = at[cell], []
    for j, other in enumerate(at):
        if j != cell and other != own:
            normal = [a - b for a, b in zip(own, other, strict=True)]
            walls.append(
                (normal, sum((a * a - b * b for a, b in zip(own, other, strict=True)), Fraction(0)) / 2)
            )
    return walls


def _in_region(a: Fraction, b: list[Fraction], box: Box, walls) -> Fraction | None:
    """The same in a box cut by half-spaces: the best point that some set of active constraints fixes."""
    d, best = len(b), None
    unit = [[Fraction(int(c == r)) for c in range(d)] for r in range(d)]
    sides = [(unit[c], box[0][c]) for c in range(d)]
    sides += [([-v for v in unit[c]], -box[1][c]) for c in range(d)] + walls
    for size in range(d + 1):
        if not a and size < d:
            continue  # without curvature a vertex is best
        for active in combinations(sides, size):
            m = _stationary(a, b, active)
            if m is None or any(_dot(g, m) < c for g, c in sides):
                continue
            value = a * _dot(m, m) + _dot(b, m)
            best = value if best is None else min(best, value)
    return best


def _stationary(a: Fraction, b: list[Fraction], active) -> list[Fraction] | None:
    """The point where 2 a m + b = G' t and G m = c, by elimination; None if it is not one point."""
    d, size = len(b), len(active)
    table = [[Fraction(0)] * (d + size + 1) for _ in range(d + size)]
    for r in range(d):
        table[r][r] = 2 * a
        table[r][-1] = -b[r]
        for t, (g, _) in enumerate(active):
            table[r][d + t] = -g[r]
    for t, (g, c) in enumerate(active):
        table[d + t][:d] = g
        table[d + t][-1] = c
    for column in range(d + size):
        pivot = next((r for r in range(column, d + size) if table[r][column]), None)
        if pivot is None:
            return None
        table[column], table[pivot] = table[pivot], table[column]
        lead = table[column][column]
        table[column] = [v / lead for v in table[column]]
        for r in range(d + size):
            if r != column and table[r][column]:
                factor = table[r][column]
                table[r] = [v - factor * u for v, u in zip(table[r], table[column], strict=True)]
    return [table[r][-1] for r in range(d)]


def _differences(row, centers):
    return [[x - c for x, c in zip(row, center, strict=True)] for center in centers]


def _dot(a, b) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))
