"""Tables and figures as files: Markdown, CSV, SVG, and one HTML page that needs no other file."""

import csv
import io
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from unpooled.core.disk import write_atomically
from unpooled.experiments.papers.experiment import Experiment, Presented
from unpooled.experiments.papers.result_table import CLOSE, ResultTable
from unpooled.pages.markup import section, style, whole
from unpooled.pages.markup import table as html_table


@dataclass(frozen=True)
class Finished:
    """A finished experiment with its outcome."""

    experiment: Experiment
    presented: Presented
    runs: str  # number of runs, in words
    seconds: float  # CPU
    data: str  # source of the data, in words

    def counted(self) -> tuple[int, int]:
        """(numbers that match, numbers that could)."""
        pairs = [t.counted() for t in self.presented.tables]
        return sum(a for a, _ in pairs), sum(b for _, b in pairs)


def brief(table: ResultTable) -> ResultTable:
    """The rows that were published, and the fair baseline beside them."""
    kept = [
        r
        for r in table.rows
        if (r.published is not None and r.what[-1] not in ("min", "max")) or _fair(r.what)
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
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = ["published", "published_sd", "ours", "ours_sd", "standard_error", "difference", "verdict"]
    writer.writerow([*table.heads, *heads])
    for r in table.rows:
        value, sd = (r.published.value, r.published.sd) if r.published is not None else ("", "")
        apart = f"{r.difference:.6g}" if r.published is not None and r.judged else ""
        ours = [f"{r.ours:.9g}", f"{r.sd:.6g}", f"{r.error:.6g}"]
        writer.writerow([*r.what, value, sd, *ours, apart, r.verdict])
    return out.getvalue()


def said(done: Finished) -> str:
    """One line: what was run, and how many numbers match."""
    match, all_ = done.counted()
    share = (
        f"{match} of {all_} published numbers are within {CLOSE:g} standard errors"
        if all_
        else ("no published numbers to compare with")
    )
    return f"{done.runs}, {done.data}, {done.seconds:.0f} CPU seconds. {share[0].upper()}{share[1:]}."


def markdown(done: Finished, level: int = 1, figures: str = "", short: bool = False) -> str:
    """An experiment as a part of a Markdown page; ``figures`` is the folder its drawings are linked from."""
    experiment, presented = done.experiment, done.presented
    parts = [
        f"{'#' * level} {experiment.name}: {experiment.title}\n",
        f"{experiment.paper}\n",
        f"{said(done)}\n",
    ]
    for table in (brief(t) if short else t for t in presented.tables):
        if table.rows:
            parts += [f"{table.title}\n", markdown_table(table)]
    if figures:
        parts += [f"![{f.title}]({figures}/{f.name}.svg)\n" for f in presented.figures]
    parts += [f"Note {i}. {note}\n" for i, note in enumerate(presented.notes, start=1)]
    return "\n".join(parts)


def html(done: Finished) -> str:
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
    lead = f"{escape(experiment.paper)}<br>{escape(said(done))}"
    return section(f"{experiment.name}: {experiment.title}", "".join(parts) + notes, lead, experiment.name)


def page(all_done: list[Finished], title: str = "The papers, recomputed") -> str:
    """All experiments on one page: no script, no network request."""
    links = "".join(
        f'<li><a href="#{d.experiment.name}">{escape(d.experiment.name)}</a>: {d.counted()[0]} of '
        f"{d.counted()[1]} match</li>"
        for d in all_done
    )
    body = "\n".join(html(d) for d in all_done)
    lead = (
        f"<p>A number matches where it is within {CLOSE:g} standard errors of what was published; of numbers "
        "that are equal in truth one in twenty is not.</p>"
    )
    return whole(title, f'{lead}<ul class="plain">{links}</ul>\n{body}')


def write(done: Finished, folder: Path) -> Path:
    """Write the files of an experiment under ``folder``/NAME and return the Markdown page."""
    into = folder / done.experiment.name
    into.mkdir(parents=True, exist_ok=True)
    for table in done.presented.tables:
        write_atomically(into / f"{table.name}.csv", csv_table(table).encode())
    for figure in done.presented.figures:
        alone = figure.svg.replace("<svg ", '<svg style="background: var(--bg)" ', 1)
        at = alone.index(">") + 1
        whole = f"{alone[:at]}<style>{escape(style(), quote=False)}</style>{alone[at:]}\n"
        write_atomically(into / f"{figure.name}.svg", whole.encode())
    path = into / f"{done.experiment.name}.md"
    write_atomically(path, (markdown(done, figures=".")).encode())
    return path
