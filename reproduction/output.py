"""Tables and figures as files: Markdown, CSV, SVG, and one HTML page that needs no other file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from reproduction.experiment import Experiment, Presentation
from reproduction.result_table import LEVEL, ResultTable, Row, Verdicts, surviving
from unpooled.html.html import html_page, section, style
from unpooled.html.html import table as html_table
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.spreadsheet import csv_text


@dataclass(frozen=True)
class FinishedExperiment:
    """A finished experiment with its outcome."""

    experiment: Experiment
    presented: Presentation
    runs: str  # number of runs, in words
    seconds: float  # CPU
    data: str  # source of the data, in words

    def counted(self) -> Verdicts:
        return sum((table.counted() for table in self.presented.tables), Verdicts())

    @property
    def rows(self) -> list[Row]:
        return [r for table in self.presented.tables for r in table.rows]


def brief(table: ResultTable) -> ResultTable:
    """The rows that were published, those that must stand beside them, and the fair baseline."""
    kept = [
        r
        for r in table.rows
        if (r.published is not None and r.what[-1] not in ("min", "max")) or r.beside or _fair(r.what)
    ]
    return replace(table, rows=tuple(kept))


def _fair(what: tuple[str, ...]) -> bool:
    return any(cell == "unpooled" or "n_init 10" in cell for cell in what)


def markdown_table(table: ResultTable) -> str:
    """A table as Markdown, with aligned columns so that it is readable as text too."""
    return aligned(table.cells(), len(table.heads))


def aligned(cells: list[list[str]], left: int) -> str:
    """Cells as a Markdown table, the first ``left`` columns to the left.

    >>> print(aligned([["a", "n"], ["longer", "10"]], 1), end="")
    | a      |  n |
    | ------ | -: |
    | longer | 10 |
    """
    width = [max(2, *(len(row[j]) for row in cells)) for j in range(len(cells[0]))]
    lines = []
    for i, row in enumerate(cells):
        padded = [
            c.ljust(w) if j < left else c.rjust(w) for j, (c, w) in enumerate(zip(row, width, strict=True))
        ]
        lines.append("| " + " | ".join(padded) + " |")
        if i == 0:
            marks = ["-" * w if j < left else "-" * (w - 1) + ":" for j, w in enumerate(width)]
            lines.append("| " + " | ".join(marks) + " |")
    return "\n".join(lines) + "\n"


def csv_table(table: ResultTable) -> str:
    """A table with all its digits, for programs."""
    heads = ["published", "published_sd", "authors_code", "authors_code_sd", "authors_code_runs"]
    heads += [
        "ours",
        "ours_sd",
        "runs",
        "standard_error",
        "degrees_of_freedom",
        "half_interval",
        "p",
        "verdict",
    ]
    rows: list[list[object]] = [[*table.heads, *heads]]
    for r in table.rows:
        value, sd = (r.published.value, r.published.sd) if r.published is not None else ("", "")
        known = r.judged and r.chance is None
        tested = [f"{r.freedom:.6g}", f"{r.half:.6g}"] if known else ["", ""]
        a = r.authors
        theirs = (a.value, a.sd, a.runs) if a is not None else ("", "", "")
        ours = [f"{r.ours:.9g}", f"{r.sd:.6g}", r.runs, f"{r.error:.6g}"]
        p = f"{r.p:.6g}" if r.judged else ""
        rows.append([*r.what, value, sd, *theirs, *ours, *tested, p, r.verdict])
    return csv_text(rows)


def verdict_text(done: FinishedExperiment) -> str:
    """One line: what was run, and how many numbers match."""
    share = done.counted().text
    return f"{done.runs}, {done.data}, {done.seconds:.0f} CPU seconds. {share[0].upper()}{share[1:]}."


def together(all_done: Sequence[FinishedExperiment]) -> str:
    """All verdicts in words, with what comparing so many numbers does to them."""
    counts = sum((done.counted() for done in all_done), Verdicts())
    return in_words(counts, len(surviving([r for done in all_done for r in done.rows])))


def in_words(counts: Verdicts, still: int) -> str:
    """Verdicts in words; ``still`` differ when all numbers are held to the level together."""
    by_chance = LEVEL * counts.judged
    held = f"Held to {100 * LEVEL:g} % over all of them together (Holm), {still} differ."
    return (
        f"{counts.text[0].upper()}{counts.text[1:]}. A verdict is given at {100 * LEVEL:g} % for each: of "
        f"{counts.judged} that are equal in truth about {by_chance:.0f} would be called different, and "
        f"{counts.differs} are. {held}"
    )


def markdown(done: FinishedExperiment, level: int = 1, figures: str = "", short: bool = False) -> str:
    """An experiment as a part of a Markdown page; ``figures`` is the folder its drawings are linked from."""
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


def html(done: FinishedExperiment) -> str:
    """An experiment as a section of an HTML page."""
    experiment, presented = done.experiment, done.presented
    parts = []
    for table in presented.tables:
        left = tuple(range(len(table.heads)))
        head, *rows = [
            [escape(cell if j in left else cell.replace(" ", "\u00a0")) for j, cell in enumerate(line)]
            for line in table.cells()
        ]
        parts.append(f"<h3>{escape(table.title)}</h3>" + html_table(head, rows, left=left))
    drawn = "".join(f"<div><h3>{escape(f.title)}</h3>{f.svg}</div>" for f in presented.figures)
    parts.append(f'<div class="grid">{drawn}</div>' if drawn else "")
    notes = "".join(f"<p>Note {i}. {escape(n)}</p>" for i, n in enumerate(presented.notes, start=1))
    lead = f"{escape(experiment.paper)}<br>{escape(verdict_text(done))}"
    return section(f"{experiment.name}: {experiment.title}", "".join(parts) + notes, lead, experiment.name)


def page(all_done: list[FinishedExperiment], title: str = "The papers, recomputed") -> str:
    """All experiments on one page: no script, no network request."""
    links = "".join(
        f'<li><a href="#{d.experiment.name}">{escape(d.experiment.name)}</a>: {escape(d.counted().text)}</li>'
        for d in all_done
    )
    body = "\n".join(html(d) for d in all_done)
    lead = f"<p>{escape(together(all_done))}</p>"
    return html_page(title, f'{lead}<ul class="plain">{links}</ul>\n{body}')


def standing_alone(svg: str) -> str:
    """A drawing as a file of its own, with its colours in it."""
    alone = svg.replace("<svg ", '<svg style="background: var(--bg)" ', 1)
    at = alone.index(">") + 1
    return f"{alone[:at]}<style>{escape(style(), quote=False)}</style>{alone[at:]}\n"


def write(done: FinishedExperiment, folder: Path) -> Path:
    """Write the files of an experiment under ``folder``/NAME and return the Markdown page."""
    into = folder / done.experiment.name
    into.mkdir(parents=True, exist_ok=True)
    for table in done.presented.tables:
        write_atomically(into / f"{table.name}.csv", csv_table(table).encode())
    for figure in done.presented.figures:
        write_atomically(into / f"{figure.name}.svg", standing_alone(figure.svg).encode())
    path = into / f"{done.experiment.name}.md"
    write_atomically(path, (markdown(done, figures=".")).encode())
    return path
