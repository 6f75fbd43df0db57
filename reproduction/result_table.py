"""Tables of published and recomputed numbers, with the difference of the two and a verdict.

Two means are compared by Welch's test: the error of the difference has parts, our mean's over runs, the
published one's if its spread is known, and the rounding of a printed number, which is uniform over its last
digit; each is known to as many degrees of freedom as it was estimated with. A published number that is of one
drawn data set, where ours are drawn anew in every run, is one draw: ``one_draw`` says so, and the spread over
draws is its error. A verdict is given at the level of 5 % for each number; ``surviving`` holds it over many.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unpooled.typing import FloatArray

LEVEL = 0.05  # of a verdict on one number
FEWEST = 4  # runs: with two or three, Welch's test calls equals different too often


@dataclass(frozen=True)
class Published:
    """A printed number. ``sd`` over ``runs``, if known; ``digits`` after the point."""

    value: float
    sd: float = 0.0
    runs: int = 0
    digits: int = 4

    @property
    def sampled(self) -> float:
        """The standard error of a mean over runs; 0 if the spread is not known."""
        return self.sd / math.sqrt(self.runs) if self.runs else 0.0

    @property
    def rounding(self) -> float:
        return 10.0**-self.digits / math.sqrt(12)

    @property
    def text(self) -> str:
        spread = f" ± {self.sd:.{self.digits}f}" if self.sd else ""
        return f"{self.value:.{self.digits}f}{spread}"


@dataclass(frozen=True)
class Row:
    """A line of a table: the published number, ours, and their difference."""

    what: tuple[str, ...]  # cells that identify the row
    ours: float
    error: float = 0.0  # standard error of ours
    published: Published | None = None
    spread: float = 0.0  # of the published one beyond its own error, estimated from our runs; see one_draw
    note: int = 0  # number of the note about a difference; 0: none
    digits: int = 4
    sd: float = 0.0  # of ours over runs
    unjudged: str = ""  # why there is no verdict; empty: there is one
    runs: int = 0  # of ours; 0: errors are known exactly
    limit: float | None = None  # a bound at which ours and the published one may both have ended
    authors: Published | None = None  # what the authors' own code gives when we run it
    chance: float | None = None  # p of a test other than Welch's
    blind: bool = False  # that test could not have found a difference, whatever ours is
    known: bool = True  # the note shows the cause of a difference; False: it says what was tried
    derived: bool = False  # computed from published numbers that are judged elsewhere: not counted again
    beside: bool = False  # nothing of it was published, but it must be seen beside what was

    @property
    def judged(self) -> bool:
        """Whether a verdict is given."""
        return self.published is not None and not self.unjudged

    @property
    def _parts(self) -> tuple[tuple[float, float], ...]:
        """Variances of the difference, each with the degrees of freedom it is known to."""
        assert self.published is not None
        runs = self.published.runs
        known = self.runs - 1 if self.runs > 1 else runs - 1 if self.runs == 1 and runs > 1 else math.inf
        return (
            (self.error**2 + self.spread**2, known),
            (self.published.sampled**2, runs - 1 if runs > 1 else math.inf),
            (self.published.rounding**2, math.inf),
        )

    @property
    def apart(self) -> float:
        """The standard error of the difference."""
        return math.sqrt(sum(variance for variance, _ in self._parts))

    @property
    def freedom(self) -> float:
        """Welch's degrees of freedom of the difference."""
        below = sum(variance**2 / df for variance, df in self._parts if df < math.inf)
        return self.apart**4 / below if below else math.inf

    @property
    def difference(self) -> float:
        """The difference in standard errors; nan if nothing was published."""
        if self.published is None:
            return float("nan")
        return (self.ours - self.published.value) / self.apart

    @property
    def half(self) -> float:
        """Half the width of the interval that holds the true difference with 95 %."""
        return self.apart * _quantile(1 - LEVEL / 2, self.freedom)

    @property
    def p(self) -> float:
        """The chance of a difference so large between equals."""
        if self.chance is not None:
            return self.chance
        return _two_sided(self.difference, self.freedom)

    @property
    def equal(self) -> bool:
        """True if ours, rounded, is the published number."""
        assert self.published is not None
        return abs(self.ours - self.published.value) <= 0.5 * 10.0**-self.published.digits * (1 + 1e-9)

    @property
    def differs(self) -> bool:
        return self.judged and not self.equal and not self._few and self.p < LEVEL

    @property
    def _few(self) -> bool:
        """Too few runs to measure a difference by; one is enough if the published spread is known."""
        return 1 < self.runs < FEWEST or (self.runs == 1 and not self.error)

    @property
    def _at_limit(self) -> bool:
        assert self.published is not None
        return self.limit is not None and self.ours == self.limit == self.published.value

    @property
    def silent(self) -> bool:
        """True if a verdict says nothing: a difference as large as the number itself could not be seen."""
        if not self.judged or self.differs or self.published is None:
            return False
        wide = self.blind if self.chance is not None else self.half > abs(self.published.value)
        return self._at_limit or wide or (self._few and not self.equal)

    @property
    def verdict(self) -> str:
        if self.published is None:
            return "ours alone"
        if self.unjudged:
            return f"not judged: {self.unjudged}"
        again = "derived: " if self.derived else ""
        if self.silent:
            return f"{again}says nothing" + (": the limit" if self._at_limit else "")
        if not self.differs:
            return f"{again}matches"
        if not self.note:
            return f"{again}differs, open"
        return f"{again}differs, {'' if self.known else 'open: '}note {self.note}"

    @property
    def matches(self) -> bool:
        return self.judged and not self.differs and not self.silent


def _quantile(share: float, df: float) -> float:
    from scipy.stats import norm, t

    return float(norm.ppf(share) if math.isinf(df) else t.ppf(share, df))


def _two_sided(difference: float, df: float) -> float:
    from scipy.stats import norm, t

    return float(2 * (norm.sf(abs(difference)) if math.isinf(df) else t.sf(abs(difference), df)))


def row(
    what: Sequence[str],
    values: FloatArray,
    published: Published | None = None,
    *,
    one_draw: bool = False,
    note: int = 0,
    digits: int | None = None,
) -> Row:
    """The row of a mean over runs.

    >>> row(["k-means"], np.array([1.0, 2.0, 3.0, 2.0]), Published(2.1, digits=1)).verdict
    'matches'
    """
    n, sd = len(values), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    places = digits if digits is not None else published.digits if published is not None else 4
    error = sd / math.sqrt(n)
    if n == 1 and published is not None:
        error = published.sd  # one run is one draw from the published distribution
    return Row(
        tuple(what),
        float(np.mean(values)),
        error,
        published,
        sd if one_draw else 0.0,
        note,
        places,
        sd,
        runs=n,
    )


def statistic(
    what: Sequence[str],
    values: FloatArray,
    published: Published | None,
    of: str,
    *,
    note: int = 0,
    digits: int | None = None,
) -> Row:
    """The row of another statistic than the mean: "min", "max" or a quantile as "25 %".

    A quantile's error is the spread over resampled runs (200 of them, seeded). A least or largest value is
    not judged: it has no useful standard error.
    """
    rng = np.random.default_rng(0)
    drawn = values[rng.integers(0, len(values), (200, len(values)))]
    end = of in ("min", "max")
    error = 0.0 if end else float(np.std([_value(of, sample) for sample in drawn]))
    places = digits if digits is not None else published.digits if published is not None else 4
    unjudged = "an extreme" if end else ""
    ours = _value(of, values)
    return Row(tuple(what), ours, error, published, 0.0, note, places, unjudged=unjudged, runs=len(values))


def share(what: Sequence[str], ours: tuple[int, int], published: tuple[int, int], *, note: int = 0) -> Row:
    """The row of a count: so many of so many, by Fisher's exact test.

    If not even none or all of ours would have differed, the counts say nothing.

    >>> share(["a"], (9, 20), (10, 20)).verdict, share(["a"], (0, 5), (2, 5)).verdict
    ('matches', 'says nothing')
    """
    from scipy.stats import fisher_exact

    def chance(count: int) -> float:
        table = [[count, ours[1] - count], [published[0], published[1] - published[0]]]
        return float(fisher_exact(table)[1])

    return Row(
        tuple(what),
        ours[0] / ours[1],
        published=Published(published[0] / published[1], digits=2),
        note=note,
        digits=2,
        runs=ours[1],
        chance=chance(ours[0]),
        blind=min(chance(0), chance(ours[1])) >= LEVEL,
    )


def _value(of: str, values: FloatArray) -> float:
    part = {"min": 0.0, "max": 1.0}.get(of)
    return float(np.quantile(values, float(of.rstrip(" %")) / 100 if part is None else part))


def surviving(rows: Sequence[Row]) -> list[Row]:
    """The rows that differ even when all of them are held to the level together: Holm's method."""
    said = [r for r in rows if r.judged and not r.silent and not r.derived]
    judged = sorted(said, key=lambda r: 1.0 if r.equal else r.p)
    kept: list[Row] = []
    for i, r in enumerate(judged):
        if not r.differs or r.p > LEVEL / (len(judged) - i):
            break
        kept.append(r)
    return kept


@dataclass(frozen=True)
class Verdicts:
    """How many published numbers were compared, each once, and how they came out."""

    matches: int = 0
    differs: int = 0
    silent: int = 0

    def __add__(self, other: "Verdicts") -> "Verdicts":
        return Verdicts(
            self.matches + other.matches, self.differs + other.differs, self.silent + other.silent
        )

    @property
    def judged(self) -> int:
        """Those of which a verdict says something."""
        return self.matches + self.differs

    @property
    def text(self) -> str:
        """The counts in words."""
        if not self.judged and not self.silent:
            return "no published number is judged"
        nothing = f"; of {self.silent} more nothing can be said" if self.silent else ""
        return f"{self.matches} of {self.judged} published numbers match{nothing}"


@dataclass(frozen=True)
class ResultTable:
    """Rows under a heading. ``heads`` name the cells of ``Row.what``."""

    name: str  # of its file
    title: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]

    def cells(self) -> list[list[str]]:
        """Heading and rows as text."""
        own = any(r.authors is not None for r in self.rows)
        out = [
            [
                *self.heads,
                "published",
                *(["authors' code"] if own else []),
                "ours",
                "difference",
                "p",
                "verdict",
            ]
        ]
        for r in self.rows:
            line = [*r.what, r.published.text if r.published is not None else "-"]
            if own:
                line.append(r.authors.text if r.authors is not None else "-")
            line.append(f"{r.ours:.{r.digits}f}" + (f" ± {r.sd:.{r.digits}f}" if r.sd else ""))
            out.append([*line, *_compared(r), r.verdict])
        return out

    def counted(self) -> Verdicts:
        judged = [r for r in self.rows if r.judged and not r.derived]
        return Verdicts(
            sum(r.matches for r in judged), sum(r.differs for r in judged), sum(r.silent for r in judged)
        )


def _compared(r: Row) -> list[str]:
    """The difference with its interval of 95 %, and p."""
    if r.published is None or r.unjudged:
        return ["-", "-"]
    less = f"{r.ours - r.published.value:+.{r.digits}f}"
    if r.chance is not None:
        return [less, f"{r.p:.2g}"]
    return [f"{less} ± {r.half:.{r.digits}f}", f"{r.p:.2g}"]
