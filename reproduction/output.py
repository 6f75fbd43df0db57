"""Tables and figures as files: Markdown, CSV, SVG, and one self-contained HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reproduction.experiment import Experiment, Presentation
from reproduction.result_table import LEVEL, ResultTable, Row, Verdicts, surviving
from unpooled.app.compare.comparison_files import aligned_table, standalone_svg
from unpooled.html.rendering import environment
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.spreadsheet import csv_text


@dataclass(frozen=True)
class FinishedExperiment:
    """A finished experiment with its outcome."""

    experiment: Experiment
    presented: Presentation
    runs: int  # of each configuration
    seconds: float  # CPU
    data: str  # source of the data, in words

    @property
    def runs_text(self) -> str:
        """The number of runs in words."""
        return f"{self.runs} run{'s' if self.runs > 1 else ''} of each configuration"

    def counted(self) -> Verdicts:
        """Return the numbers of verdicts of all tables."""
        return sum((table.counted() for table in self.presented.tables), Verdicts())

    @property
    def rows(self) -> list[Row]:
        """The rows of all tables."""
        return [r for table in self.presented.tables for r in table.rows]


def brief(table: ResultTable) -> ResultTable:
    """Return the table with its published rows, those needed beside them, and the fair baselines."""
    kept = [
        r
        for r in table.rows
        if (r.published is not None and r.what[-1] not in ("min", "max")) or r.beside or _fair(r.what)
    ]
    return replace(table, rows=tuple(kept))


def _fair(what: tuple[str, ...]) -> bool:
    """True for pooled k-means with ten restarts, and for this package's default."""
    return any(cell == "unpooled" or "n_init 10" in cell for cell in what)


def markdown_table(table: ResultTable) -> str:
    """Return a table as Markdown that is readable as text too."""
    return aligned_table(table.cells(), len(table.heads))


NUMBER_COLUMNS = (
    "published",
    "published_sd",
    "provenance",
    "authors_code",
    "authors_code_sd",
    "authors_code_runs",
    "ours",
    "ours_sd",
    "runs",
    "standard_error",
    "degrees_of_freedom",
    "half_interval",
    "detectable",
    "p",
    "verdict",
)
"""The columns of a table's CSV after those that identify a row."""


def csv_table(table: ResultTable) -> str:
    """Return a table as CSV, with all digits."""
    rows: list[list[object]] = [[*table.heads, *NUMBER_COLUMNS]]
    for r in table.rows:
        given = r.published
        value = f"{given.value:.{given.digits}f}" if given is not None else ""  # with the digits of the paper
        published = (value, given.sd or "", given.provenance) if given is not None else ("", "", "")
        known = r.judged and r.chance is None
        tested = (
            [f"{x:.6g}" for x in (r.degrees_of_freedom, r.half_interval, r.detectable)] if known else [""] * 3
        )
        a = r.authors
        theirs = (a.value, a.sd, a.runs) if a is not None else ("", "", "")
        ours = [f"{r.ours:.9g}", f"{r.sd:.6g}", r.runs, f"{r.error:.6g}"]
        p = f"{r.p:.6g}" if r.judged else ""
        rows.append([*r.what, *published, *theirs, *ours, *tested, p, r.verdict])
    return csv_text(rows)


def verdict_text(done: FinishedExperiment) -> str:
    """Return one line about the runs, the data, the time and the number of matches."""
    share = done.counted().text
    return f"{done.runs_text}, {done.data}, {done.seconds:.0f} CPU seconds. {share[0].upper()}{share[1:]}."


def overall_text(all_done: Sequence[FinishedExperiment]) -> str:
    """Return all verdicts in words, with and without a correction for multiple tests."""
    counts = sum((done.counted() for done in all_done), Verdicts())
    return in_words(counts, len(surviving([r for done in all_done for r in done.rows])))


def in_words(counts: Verdicts, corrected: int) -> str:
    """Return verdicts in words; ``corrected`` numbers differ after a correction for multiple tests."""
    level, by_chance = f"{100 * LEVEL:g}%", LEVEL * counts.judged
    return (
        f"{counts.text[0].upper()}{counts.text[1:]}. Each number is tested at the level of {level}: of "
        f"{counts.judged} equal numbers about {by_chance:.0f} would differ by chance, and "
        f"{counts.differs} differ. At {level} over all of them together (Holm's method), {corrected} differ."
    )


def markdown(done: FinishedExperiment, level: int = 1, figures: str = "", short: bool = False) -> str:
    """Return an experiment as a part of a Markdown page; ``figures`` is the folder of its figures."""
    experiment, presented = done.experiment, done.presented
    parts = [
        f"{'#' * level} {experiment.name}: {experiment.title}\n",
        f"{experiment.paper}\n",
        f"{verdict_text(done)}\n",
    ]
    for table in (brief(t) if short else t for t in presented.tables):
        if table.rows:
            parts += [f"{table.title}\n", markdown_table(table)]
    if figures:
        parts += [f"![{f.title}]({figures}/{f.name}.svg)\n" for f in presented.figures]
    parts += [f"Note {i}. {note}\n" for i, note in enumerate(presented.notes, start=1)]
    return "\n".join(parts)


def page(all_done: list[FinishedExperiment], title: str = "The papers, recomputed") -> str:
    """Return all experiments on one page without scripts and network requests."""
    template = environment(Path(__file__).parent / "templates").get_template("papers.html")
    return template.render(
        title=title, overall=overall_text(all_done), experiments=list(map(_shown, all_done))
    )


def _shown(done: FinishedExperiment) -> dict[str, Any]:
    """Return an experiment as the page shows it."""
    return {
        "name": done.experiment.name,
        "title": done.experiment.title,
        "paper": done.experiment.paper,
        "counted": done.counted().text,
        "verdict": verdict_text(done),
        "tables": [_table(table) for table in done.presented.tables],
        "figures": done.presented.figures,
        "notes": done.presented.notes,
    }


def _table(table: ResultTable) -> dict[str, Any]:
    left = range(len(table.heads))
    head, *rows = [
        [cell if j in left else cell.replace(" ", "\u00a0") for j, cell in enumerate(line)]
        for line in table.cells()
    ]
    return {"title": table.title, "head": head, "rows": rows, "left": left}


def write(done: FinishedExperiment, folder: Path) -> Path:
    """Write the files of an experiment under ``folder``/NAME and return the Markdown page."""
    into = folder / done.experiment.name
    into.mkdir(parents=True, exist_ok=True)
    for table in done.presented.tables:
        write_atomically(into / f"{table.name}.csv", csv_table(table).encode())
    drawn = tuple(figure for figure in done.presented.figures if figure.svg)  # not those without any point
    done = replace(done, presented=replace(done.presented, figures=drawn))
    for figure in drawn:
        write_atomically(into / f"{figure.name}.svg", standalone_svg(figure.svg).encode())
    path = into / f"{done.experiment.name}.md"
    write_atomically(path, (markdown(done, figures=".")).encode())
    return path
