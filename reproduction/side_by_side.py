"""The papers' tables in their own layout, published numbers beside ours, and the standard deviations of both.

A layout says which columns of a recorded CSV file become rows and columns of a table on the page of a paper.
Nothing is computed here but the comparison of standard deviations: the numbers are those of the record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from reproduction.result_table import LEVEL
from unpooled.app.compare.comparison_files import aligned_table

Line = dict[str, str]
Tables = Mapping[str, Mapping[str, Sequence[Line]]]
"""Experiment -> table -> its lines."""
ABSENT = "-"
OUR_DIGITS = 4  # of a column without a published number


@dataclass(frozen=True)
class Layout:
    """A table of a page, in the rows and columns of the paper.

    ``show``: "published" shows published numbers with ours beside them, "both" also those that only we have,
    and "ours" our numbers alone.
    """

    title: str
    experiment: str
    tables: Mapping[str, str]  # name of a recorded table -> its name in the first column
    rows: tuple[str, ...]  # columns of the recorded table that identify a row
    columns: tuple[str, ...]  # and those that identify a column
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)  # column -> values that are shown
    show: str = "published"
    ordered: bool = False  # whether rows are sorted, because methods were recorded for different ones

    def table(self, recorded: Tables) -> str:
        """Return the table as Markdown; it is empty if nothing is recorded."""
        cells: dict[tuple[str, ...], dict[tuple[str, ...], Line]] = {}
        digits: dict[tuple[str, ...], int] = {}  # of every column, in the order of the columns
        for name, label in self.tables.items():
            for line in recorded.get(self.experiment, {}).get(name, ()):
                if not self._shown(line):
                    continue
                row = (*([label] if len(self.tables) > 1 else []), *(line[head] for head in self.rows))
                column = tuple(line[head] for head in self.columns)
                digits[column] = max(digits.get(column, 0), _places(line["published"]))
                cells.setdefault(row, {})[column] = line
        if not cells:
            return ""
        first = (["table"] if len(self.tables) > 1 else []) + list(self.rows)
        head = [*first, *(", ".join(column) or "ours" for column in digits)]
        rows = sorted(cells) if self.ordered else cells
        body = [
            [*row, *(self._cell(cells[row].get(column), places) for column, places in digits.items())]
            for row in rows
        ]
        return aligned_table([head, *body], len(first))

    def _shown(self, line: Line) -> bool:
        if self.show == "published" and not line["published"]:
            return False
        return all(line[head] in values for head, values in self.only.items())

    def _cell(self, line: Line | None, digits: int) -> str:
        """Published / ours, with a mark if they differ at 5%; or ours alone."""
        if line is None:
            return ABSENT
        if self.show == "ours":
            return f"{float(line['ours']):.{OUR_DIGITS}g}"
        published, mark = line["published"], "*" if line["verdict"].startswith("differs") else ""
        places = _places(published) if published else digits
        return f"{published or ABSENT} / {float(line['ours']):.{places or OUR_DIGITS}f}{mark}"


def _places(number: str) -> int:
    """The number of digits after the point."""
    return len(number.partition(".")[2])


_MEANS = {"of runs": ("mean",)}
_HOLZER = {"table1": "1, score", "table2": "2, accuracy", "table3": "3, v-measure"}
_POINT = ("score", "alpha")
_FEDERATED = {"alpha": ("decay", "momentum")}

LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "garst": (
        Layout("ARI by noise (figures 1 and 3)", "garst-fig3", {"fig3": ""}, ("beta", "noise"), ("method",)),
        Layout("ARI with 100 and 200 rows of a cluster (figure 6)", "garst-fig6", {"fig6": ""},
               ("rows of a cluster", "beta", "noise"), ("method",)),
        Layout("ARI if sites have 16, 1, 3, 10 and 7 clusters (figure 4)", "garst-fig4", {"fig4": ""},
               ("method",), ("ARI",)),
        Layout("FEMNIST (figure 5)", "garst-fig5", {"fig5": ""},
               ("method",), ("score",), show="both"),
    ),
    "holzer": tuple(
        Layout(f"{set_} (tables 1 to 3)", f"holzer-{set_.lower()}", _HOLZER, ("split",), ("method",), _MEANS,
               show="both")
        for set_ in ("Synthetic", "MNIST", "FEMNIST")
    ),
    "triebe": (
        Layout("By the share C of sites (figures 1 to 3)", "triebe-fraction", {"fraction": ""},
               ("figure", "C"), _POINT, _FEDERATED),
        Layout("Central k-means from a random start (figures 1 to 3)", "triebe-fraction", {"fraction": ""},
               ("figure",), ("score",), {"settings": ("central",)}),
        Layout("By local epochs E (figure 4)", "triebe-epochs", {"epochs": ""}, ("figure", "E"), _POINT),
        Layout("By the client rate beta (figure 5)", "triebe-rate", {"rate": ""}, ("figure", "beta"), _POINT),
    ),
    "yfantis": (
        Layout("Iterations and gaps by kind of problem (table 3)", "dual-tables", {"dual-table3": ""},
               ("problems",), ("method", "score"), {"score": ("iterations", "gap in %")}, ordered=True),
        Layout("Means over 90 problems (table 2)", "dual-tables", {"dual-table2": ""}, ("method",),
               ("score",), {"score": ("iterations", "gap in %", "problems with a bound above the optimum")},
               show="both"),
    ),
    "stallmann": (
        Layout("Cases 1 to 3 (tables 2 to 4)", "stallmann-cases", {"cases": ""}, ("case", "method"),
               ("score",)),
        Layout("Centres of case 1 (table 2)", "stallmann-claims", {"centres": ""}, ("method", "centre"),
               ("coordinate",)),
        Layout("Normalised gap on the G2 sets (table 5)", "stallmann-g2", {"g2": ""}, ("method",),
               ("quantile",)),
    ),
}  # fmt: skip
"""The published tables and figures of every paper, beside ours."""

OURS: dict[str, tuple[Layout, ...]] = {
    "garst": (
        Layout("Real tables", "garst-real", {"real": ""}, ("set", "method"), ("score",), show="ours"),
    ),
    "holzer": (
        Layout("A round in which a client is absent (figure 1)", "holzer-fig1", {"fig1": ""},
               ("weights", "empty clusters"), ("score",), show="ours"),
        Layout("Score by the number of sites in a round (figures 4 and 7)", "holzer-participation",
               {"participation": ""}, ("set", "split", "sites"), ("method",), {"score": ("score",)},
               show="ours"),
        Layout("Rounded weights", "holzer-rounding", {"rounding": ""}, ("split", "weights"), ("score",),
               show="ours"),
    ),
    "triebe": (
        Layout("Distance by round (figures 6 and 7)", "triebe-progress", {"progress": ""}, ("figure",),
               ("round",), show="ours"),
    ),
    "yfantis": (
        Layout("Problem 2N2D4K3 (figure 6)", "dual-tables", {"dual-fig6": ""}, ("score",), ("method",),
               show="ours"),
        Layout("Problem 4N4D4K3 (figure 8)", "dual-tables", {"dual-fig8": ""}, ("method",), ("score",),
               show="ours"),
        Layout("CPU seconds by kind of problem (section 5)", "dual-tables", {"dual-section5": ""},
               ("problems",), ("method",), show="ours", ordered=True),
    ),
    "stallmann": (
        Layout("G2 sets (figure 4)", "stallmann-g2", {"figure4": ""},
               ("figure", "standard deviation or columns"), ("method",), show="ours"),
        Layout("Statements without a table", "stallmann-claims", {"claims": ""}, ("case", "method", "score"),
               (), show="ours"),
        Layout("Real tables", "stallmann-real", {"real": ""}, ("set", "method"), ("score",), show="ours"),
    ),
}  # fmt: skip
"""What has no published number."""


def dual_means(tables: Mapping[str, Sequence[Line]]) -> str:
    """Return the means over kinds of problems (table 3), published / ours, as Markdown.

    Both are over the kinds that are recorded for a method; every kind has five problems.
    """
    scores = ("iterations", "gap in %")
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for line in tables.get("dual-table3", ()):
        if line["published"] and line["score"] in scores:
            of_method = found.setdefault(line["method"], {})
            of_method.setdefault(line["score"], []).append((float(line["published"]), float(line["ours"])))
    lines = [["method", "problems", *scores]]
    for method, by_score in found.items():
        cells = [" / ".join(f"{mean:.2f}" for mean in np.mean(by_score[score], axis=0)) for score in scores]
        lines.append([method, str(5 * len(by_score[scores[0]])), *cells])
    return aligned_table(lines, 1) if found else ""


# ---------------------------------------------------------------- standard deviations

PUBLISHED_RUNS: dict[str, dict[str, int]] = {
    **{f"holzer-{s}": {"table1": 100, "table2": 50, "table3": 50} for s in ("synthetic", "mnist", "femnist")},
    **{f"garst-{f}": {f: 200} for f in ("fig1", "fig3", "fig4", "fig6")},
    **{f"triebe-{n}": {n: 10} for n in ("fraction", "epochs", "rate")},
}
"""Runs behind a published standard deviation, by experiment and table."""


@dataclass(frozen=True)
class Spread:
    """A published standard deviation and ours."""

    published: float
    ours: float
    p: float  # of the F test, after the rounding of both

    @property
    def ratio(self) -> float:
        """Ours over the published one."""
        return self.ours / self.published


def spreads(experiment: str, tables: Mapping[str, Sequence[Line]]) -> list[Spread]:
    """Return every published standard deviation of a judged mean beside ours."""
    found = []
    for name, runs in PUBLISHED_RUNS.get(experiment, {}).items():
        for line in tables.get(name, ()):
            judged = line["verdict"].startswith(("matches", "differs", "inconclusive"))
            if judged and line["published_sd"] and float(line["ours_sd"]) > 0 and int(line["runs"]) > 1:
                found.append(spread(line["published_sd"], runs, line["ours_sd"], int(line["runs"])))
    return found


def spread(published: str, published_runs: int, ours: str, runs: int) -> Spread:
    """Compare two standard deviations, given as text with their digits, by a two-sided F test.

    Both are rounded. The test takes the values within the rounding that are nearest to each other.

    >>> spread("0.0003", 50, "0.0004", 50).p, spread("0.010", 100, "0.020", 100).p < 0.001
    (1.0, True)
    """
    from scipy.special import fdtrc

    (low, high), (our_low, our_high) = _rounded(published), _rounded(ours)
    if our_low <= high and low <= our_high:
        return Spread(float(published), float(ours), 1.0)
    larger, smaller, df = (
        (our_low, high, (runs - 1, published_runs - 1))
        if our_low > high
        else (low, our_high, (published_runs - 1, runs - 1))
    )
    return Spread(float(published), float(ours), float(min(1.0, 2 * fdtrc(*df, (larger / smaller) ** 2))))


def _rounded(text: str) -> tuple[float, float]:
    """The interval of the numbers that round to ``text``."""
    mantissa, _, power = text.partition("e")
    half = 0.5 * 10.0 ** (int(power or 0) - _places(mantissa))
    return float(text) - half, float(text) + half


def spreads_table(experiments: Mapping[str, Mapping[str, Sequence[Line]]]) -> str:
    """Return how many published standard deviations ours differ from, as Markdown; empty without any."""
    lines = [["experiment", "standard deviations", "differ", "median of ours / published"]]
    for name, tables in experiments.items():
        found = spreads(name, tables)
        if found:
            differ = sum(s.p < LEVEL for s in found)
            lines.append([name, str(len(found)), str(differ), f"{np.median([s.ratio for s in found]):.2f}"])
    return aligned_table(lines, 1) if len(lines) > 1 else ""
