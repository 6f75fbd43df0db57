"""Tables of published and recomputed numbers, with the difference of the two and a verdict.

Welch's test compares two means. The variance of the difference has three parts: that of our mean over runs,
that of the published mean if its spread is known, and the rounding of a printed number, which is uniform over
its last digit. Each part has the degrees of freedom of its estimate. If the authors used one random data set
and ours is drawn anew in every run, the published number is one draw (``one_draw``), and its error is the
spread over draws. A verdict is given at the level of 5% for each number; ``surviving`` corrects for many.

A comparison counts only if it had the power to find a difference of half the published number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unpooled.typing import FloatArray

LEVEL = 0.05  # of a verdict on one number
MIN_RUNS = 4  # with two or three runs, Welch's test calls equal means different too often
POWER = 0.5  # of the published number: a smaller difference must be detectable, or the test says nothing
PRINTED, STORED, PICTURE = "printed", "authors' stored file", "read from a picture"
PROVENANCES = (PRINTED, STORED, PICTURE)


@dataclass(frozen=True)
class Published:
    """A published number. ``sd`` over ``runs``, if known; ``digits`` after the point."""

    value: float
    sd: float = 0.0
    runs: int = 0
    digits: int = 4
    provenance: str = PRINTED  # one of PROVENANCES

    @property
    def sampled(self) -> float:
        """The standard error of a mean over runs; 0 if the spread is not known."""
        return self.sd / math.sqrt(self.runs) if self.runs else 0.0

    @property
    def rounding(self) -> float:
        """The standard error of rounding to ``digits``."""
        return 10.0**-self.digits / math.sqrt(12)

    @property
    def text(self) -> str:
        """The number with its standard deviation, as printed."""
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
    unjudged: str = ""  # the reason why there is no verdict; empty: there is one
    runs: int = 0  # of ours; 0: errors are known exactly
    limit: float | None = None  # a bound at which ours and the published one may both have ended
    authors: Published | None = None  # what the authors' own code gives when we run it
    chance: float | None = None  # p of a test other than Welch's
    powerless: bool = False  # that test could not have found a large difference
    known: bool = True  # the note shows the cause of a difference; False: it lists what was tried
    derived: bool = False  # computed from published numbers that are judged elsewhere: not counted again
    beside: bool = False  # not published, but a reader needs it beside a published row
    scale: float = 0.0  # whose half must be detectable, if the published number may be 0; 0: that number

    @property
    def judged(self) -> bool:
        """Whether a verdict is given."""
        return self.published is not None and not self.unjudged

    @property
    def _parts(self) -> tuple[tuple[float, float], ...]:
        """The variances of the difference, each with the degrees of freedom of its estimate."""
        assert self.published is not None
        runs = self.published.runs
        known = self.runs - 1 if self.runs > 1 else runs - 1 if self.runs == 1 and runs > 1 else math.inf
        return (
            (self.error**2 + self.spread**2, known),
            (self.published.sampled**2, runs - 1 if runs > 1 else math.inf),
            (self.published.rounding**2, math.inf),
        )

    @property
    def standard_error(self) -> float:
        """The standard error of the difference."""
        return math.sqrt(sum(variance for variance, _ in self._parts))

    @property
    def degrees_of_freedom(self) -> float:
        """Welch's degrees of freedom of the difference."""
        denominator = sum(variance**2 / df for variance, df in self._parts if df < math.inf)
        return self.standard_error**4 / denominator if denominator else math.inf

    @property
    def difference(self) -> float:
        """The difference in standard errors; nan if nothing was published."""
        if self.published is None:
            return float("nan")
        return (self.ours - self.published.value) / self.standard_error

    @property
    def half_interval(self) -> float:
        """Half the width of the 95% confidence interval of the difference."""
        return self.standard_error * _quantile(1 - LEVEL / 2, self.degrees_of_freedom)

    @property
    def p(self) -> float:
        """The p-value: the probability of a difference at least as large if both means are equal."""
        if self.chance is not None:
            return self.chance
        return _two_sided(self.difference, self.degrees_of_freedom)

    @property
    def equal(self) -> bool:
        """True if ours, rounded, is the published number."""
        assert self.published is not None
        return abs(self.ours - self.published.value) <= 0.5 * 10.0**-self.published.digits * (1 + 1e-9)

    @property
    def differs(self) -> bool:
        """True if the difference is significant."""
        return self.judged and not self.equal and not self._few and self.p < LEVEL

    @property
    def _few(self) -> bool:
        """True if there are too few runs for a test; one is enough if the published spread is known."""
        return 1 < self.runs < MIN_RUNS or (self.runs == 1 and not self.error)

    @property
    def _at_limit(self) -> bool:
        assert self.published is not None
        return self.limit is not None and self.ours == self.limit == self.published.value

    @property
    def detectable(self) -> float:
        """The smallest difference that would have been significant, as a share of the published number.

        For a number whose zero is arbitrary, such as a coordinate, it is a share of ``scale``.
        """
        assert self.published is not None
        value = self.scale or abs(self.published.value)
        return self.half_interval / value if value else math.inf

    @property
    def inconclusive(self) -> bool:
        """True if the test could not have found a difference of half the published number."""
        if not self.judged or self.differs or self.published is None:
            return False
        wide = self.powerless if self.chance is not None else self.detectable > POWER
        return self._at_limit or wide or (self._few and not self.equal)

    @property
    def verdict(self) -> str:
        """The verdict in words, as printed in the table."""
        if self.published is None:
            return "not published"
        if self.unjudged:
            return f"not judged: {self.unjudged}"
        again = "derived: " if self.derived else ""
        if self.inconclusive:
            return f"{again}inconclusive" + (": at the limit" if self._at_limit else "")
        if not self.differs:
            return f"{again}matches"
        if not self.note:
            return f"{again}differs, open"
        return f"{again}differs, {'' if self.known else 'open: '}note {self.note}"

    @property
    def matches(self) -> bool:
        """True if the test could have found a difference, and found none."""
        return self.judged and not self.differs and not self.inconclusive


def _quantile(share: float, df: float) -> float:
    """The quantile of Student's distribution; the functions of scipy.stats are slow for single numbers."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(share) if math.isinf(df) else stdtrit(df, share))


def _two_sided(difference: float, df: float) -> float:
    from scipy.special import ndtr, stdtr

    return float(2 * (ndtr(-abs(difference)) if math.isinf(df) else stdtr(df, -abs(difference))))


def row(
    what: Sequence[str],
    values: FloatArray,
    published: Published | None = None,
    *,
    one_draw: bool = False,
    note: int = 0,
    digits: int | None = None,
) -> Row:
    """Return the row of a mean over runs.

    >>> row(["k-means"], np.array([2.0, 2.1, 2.2, 2.0]), Published(2.1, digits=1)).verdict
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
    which: str,
    *,
    note: int = 0,
    digits: int | None = None,
) -> Row:
    """Return the row of another statistic than the mean: "min", "max" or a quantile such as "25%".

    A quantile's error is the spread over resampled runs (200 of them, seeded). A minimum or maximum is not
    judged, because it has no useful standard error.
    """
    rng = np.random.default_rng(0)
    drawn = values[rng.integers(0, len(values), (200, len(values)))]
    extreme = which in ("min", "max")
    error = 0.0 if extreme else float(np.std([_value(which, sample) for sample in drawn]))
    places = digits if digits is not None else published.digits if published is not None else 4
    unjudged = "an extreme" if extreme else ""
    ours = _value(which, values)
    return Row(tuple(what), ours, error, published, 0.0, note, places, unjudged=unjudged, runs=len(values))


def share(what: Sequence[str], ours: tuple[int, int], published: tuple[int, int], *, note: int = 0) -> Row:
    """Return the row of a proportion, given as (count, total), compared by Fisher's exact test.

    The verdict is inconclusive unless every proportion of ours that is 0.5 or more away would have differed.

    >>> share(["a"], (9, 20), (10, 20)).verdict, share(["a"], (0, 5), (0, 5)).verdict
    ('matches', 'inconclusive')
    """
    from scipy.stats import fisher_exact

    def chance(count: int) -> float:
        table = [[count, ours[1] - count], [published[0], published[1] - published[0]]]
        return float(fisher_exact(table)[1])

    theirs = published[0] / published[1]
    away = [count for count in range(ours[1] + 1) if abs(count / ours[1] - theirs) >= POWER]
    return Row(
        tuple(what),
        ours[0] / ours[1],
        published=Published(theirs, digits=2),
        note=note,
        digits=2,
        runs=ours[1],
        chance=chance(ours[0]),
        powerless=not away or max(map(chance, away)) >= LEVEL,
    )


def _value(which: str, values: FloatArray) -> float:
    part = {"min": 0.0, "max": 1.0}.get(which)
    return float(np.quantile(values, float(which.rstrip("%")) / 100 if part is None else part))


def surviving(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that differ at the level over all of them together (Holm's method)."""
    conclusive = [r for r in rows if r.judged and not r.inconclusive and not r.derived]
    judged = sorted(conclusive, key=lambda r: 1.0 if r.equal else r.p)
    kept: list[Row] = []
    for i, r in enumerate(judged):
        if not r.differs or r.p > LEVEL / (len(judged) - i):
            break
        kept.append(r)
    return kept


@dataclass(frozen=True)
class Verdicts:
    """The numbers of verdicts of each kind; every published number is counted once."""

    matches: int = 0
    differs: int = 0
    inconclusive: int = 0

    def __add__(self, other: "Verdicts") -> "Verdicts":
        return Verdicts(
            self.matches + other.matches,
            self.differs + other.differs,
            self.inconclusive + other.inconclusive,
        )

    @property
    def judged(self) -> int:
        """The number of conclusive verdicts."""
        return self.matches + self.differs

    @property
    def text(self) -> str:
        """The counts in words."""
        if not self.judged and not self.inconclusive:
            return "no published number is judged"
        more = f"; {self.inconclusive} more are inconclusive" if self.inconclusive > 1 else ""
        more = "; 1 more is inconclusive" if self.inconclusive == 1 else more
        return f"{self.matches} of {self.judged} published numbers match{more}"


@dataclass(frozen=True)
class ResultTable:
    """Rows under a heading. ``heads`` name the cells of ``Row.what``."""

    name: str  # of its file
    title: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]

    def cells(self) -> list[list[str]]:
        """Return the heading and the rows as text."""
        own = any(r.authors is not None for r in self.rows)
        out = [
            [
                *self.heads,
                "published",
                "provenance",
                *(["authors' code"] if own else []),
                "ours",
                "difference",
                "p",
                "verdict",
            ]
        ]
        for r in self.rows:
            given = r.published
            line = [*r.what, *((given.text, given.provenance) if given is not None else ("-", "-"))]
            if own:
                line.append(r.authors.text if r.authors is not None else "-")
            line.append(f"{r.ours:.{r.digits}f}" + (f" ± {r.sd:.{r.digits}f}" if r.sd else ""))
            out.append([*line, *_compared(r), r.verdict])
        return out

    def counted(self) -> Verdicts:
        """Return the numbers of verdicts, without those of derived numbers."""
        judged = [r for r in self.rows if r.judged and not r.derived]
        return Verdicts(
            sum(r.matches for r in judged),
            sum(r.differs for r in judged),
            sum(r.inconclusive for r in judged),
        )


def _compared(r: Row) -> list[str]:
    """The difference with its 95% confidence interval, and p."""
    if r.published is None or r.unjudged:
        return ["-", "-"]
    difference = f"{r.ours - r.published.value:+.{r.digits}f}"
    if r.chance is not None:
        return [difference, f"{r.p:.2g}"]
    return [f"{difference} ± {r.half_interval:.{r.digits}f}", f"{r.p:.2g}"]
