"""Tables of published and recomputed numbers, with the difference of the two.

The unit of the difference is the standard error: of our mean over runs, of the published one if its spread is
known, and of the rounding of a printed number, which is uniform over its last digit. A published number that
is of one drawn data set, where ours are drawn anew in every run, is one draw: ``one_draw`` says so, and the
spread over draws is its error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unpooled.core.arrays import FloatArray

CLOSE = 2.0  # standard errors


@dataclass(frozen=True)
class Published:
    """A printed number. ``sd`` over ``runs``, if known; ``digits`` after the point."""

    value: float
    sd: float = 0.0
    runs: int = 0
    digits: int = 4

    @property
    def error(self) -> float:
        sampled = self.sd / math.sqrt(self.runs) if self.runs else 0.0
        return math.hypot(sampled, 10.0**-self.digits / math.sqrt(12))

    @property
    def said(self) -> str:
        spread = f" ± {self.sd:.{self.digits}f}" if self.sd else ""
        return f"{self.value:.{self.digits}f}{spread}"


@dataclass(frozen=True)
class Row:
    """A line of a table: the published number, ours, and their difference."""

    what: tuple[str, ...]  # cells that identify the row
    ours: float
    error: float = 0.0  # standard error of ours
    published: Published | None = None
    spread: float = 0.0  # of the published one beyond its own error, see one_draw
    note: int = 0  # number of the note that explains a difference; 0: none
    digits: int = 4
    sd: float = 0.0  # of ours over runs
    judged: bool = True  # whether a verdict is given

    @property
    def difference(self) -> float:
        """The difference in standard errors; nan if nothing was published."""
        if self.published is None:
            return float("nan")
        less = self.ours - self.published.value
        error = math.sqrt(self.error**2 + self.published.error**2 + self.spread**2)
        return less / error

    @property
    def verdict(self) -> str:
        if self.published is None:
            return "ours alone"
        if not self.judged:
            return "not judged"
        rounding = 0.5 * 10.0**-self.published.digits
        if abs(self.difference) <= CLOSE or abs(self.ours - self.published.value) <= rounding:
            return "matches"
        return f"differs, note {self.note}" if self.note else "differs"

    @property
    def matches(self) -> bool:
        return self.verdict == "matches"


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

    >>> row(["k-means"], np.array([1.0, 2.0, 3.0]), Published(2.1, digits=1)).verdict
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
    return Row(tuple(what), _value(of, values), error, published, 0.0, note, places, judged=not end)


def _value(of: str, values: FloatArray) -> float:
    share = {"min": 0.0, "max": 1.0}.get(of)
    return float(np.quantile(values, float(of.rstrip(" %")) / 100 if share is None else share))


@dataclass(frozen=True)
class ResultTable:
    """Rows under a heading. ``heads`` name the cells of ``Row.what``."""

    name: str  # of its file
    title: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]

    def cells(self) -> list[list[str]]:
        """Heading and rows as text."""
        out = [[*self.heads, "published", "ours", "standard error", "difference", "verdict"]]
        for r in self.rows:
            known = r.published is not None
            out.append(
                [
                    *r.what,
                    r.published.said if r.published is not None else "-",
                    f"{r.ours:.{r.digits}f}" + (f" ± {r.sd:.{r.digits}f}" if r.sd else ""),
                    f"{r.error:.2g}" if r.error else "-",
                    f"{r.difference:+.1f}" if known and r.judged else "-",
                    r.verdict,
                ]
            )
        return out

    def counted(self) -> tuple[int, int]:
        """(rows that match, rows with a verdict)."""
        compared = [r for r in self.rows if r.published is not None and r.judged]
        return sum(r.matches for r in compared), len(compared)
