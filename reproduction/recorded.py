"""The recorded results: CSV files of this repository, and the pages of docs/ that are written from them.

``results/EXPERIMENT/TABLE.csv`` has every number of a table; ``results/EXPERIMENT/notes.csv`` the notes that
verdicts name; ``results/runs.csv`` the runs and CPU seconds of every experiment. ``items.csv`` lists every
item of the papers with its verdict. A run replaces the rows that it computes and keeps all others, so that an
experiment of hours need not be repeated when another one changes. No number on the pages is typed.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from reproduction.catalogue import NAMES, PAPERS, find
from reproduction.data_sources import FILES, Sources
from reproduction.experiment import Experiment, Presentation, Results, Settings
from reproduction.output import NUMBER_COLUMNS, FinishedExperiment, csv_table, in_words
from reproduction.result_store import Store
from reproduction.result_table import LEVEL, PROVENANCES, Verdicts
from reproduction.side_by_side import LAYOUTS, OURS, Layout, Tables, dual_means, spreads_table
from unpooled.app.compare.comparison_files import aligned_table
from unpooled.errors import InputError
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.spreadsheet import csv_text
from unpooled.typing import FloatArray

RECORD = Path(__file__).parent / "results"
ITEMS = Path(__file__).parent / "items.csv"
DOCS = Path(__file__).parent.parent / "docs"
Line = dict[str, str]
KINDS = ("matches", "differs", "inconclusive")
ITEM_VERDICTS = ("faithful", "differs, stated", "missing", "impossible here")
"""The verdicts of items. An item that differs is stated in docs/; one that is missing has its reason."""


# ---------------------------------------------------------------- files


def read_csv(path: Path) -> list[Line]:
    """Return the lines of a CSV file by its heading."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def record(done: FinishedExperiment, folder: Path = RECORD) -> None:
    """Write the tables and notes of an experiment, and its runs.

    A row whose configuration was not run (nan) keeps what is recorded; without a record it is left out, and
    counted as missing. If some rows were not run, recorded rows that this run does not have at all stay as
    well, because a table may leave out what it cannot compute. Notes with a number that was not computed keep
    what is recorded. The CPU seconds of a part of an experiment are added to the recorded ones if the part
    has rows that no run had before.
    """
    name, into = done.experiment.name, folder / done.experiment.name
    into.mkdir(parents=True, exist_ok=True)
    unknown = sum(bool(np.isnan(r.ours)) for r in done.rows)
    missing = filled = 0
    for table in done.presented.tables:
        path, left = into / f"{table.name}.csv", len(table.heads)
        head, *new = csv.reader(io.StringIO(csv_table(table)))
        known = [list(line.values()) for line in read_csv(path)] if path.exists() else []
        old = {tuple(line[:left]): line for line in known}
        lines: list[list[str]] = [head]
        for line in new:
            if line[head.index("ours")] == "nan":
                missing += tuple(line[:left]) not in old
                lines += [old[tuple(line[:left])]] if tuple(line[:left]) in old else []
            else:
                filled += tuple(line[:left]) not in old
                lines.append(line)
        if unknown:
            keys = {tuple(line[:left]) for line in new}
            lines += [line for key, line in old.items() if key not in keys]
        write_atomically(path, _written(lines).encode())
    runs = {line["experiment"]: line for line in read_csv(folder / "runs.csv")} if _has_runs(folder) else {}
    notes = [["note", "text"], *([str(i), note] for i, note in enumerate(done.presented.notes, start=1))]
    if not any(re.search(r"\bnan\b", text) for _, text in notes):
        write_atomically(into / "notes.csv", csv_text(notes).encode())
    seconds = round(done.seconds)
    if not unknown or name not in runs:  # otherwise the runs are those of the whole experiment
        data = done.data.removeprefix("data: ").removeprefix("data ")
        runs[name] = dict(zip(RUN_COLUMNS, (name, str(done.runs), data, "0", ""), strict=True))
    elif filled:
        seconds += int(runs[name]["cpu_seconds"])
    runs[name]["cpu_seconds"] = str(max(int(runs[name]["cpu_seconds"]), seconds))
    runs[name]["missing"] = str(missing)
    ordered = [runs[known_name] for known_name in NAMES if known_name in runs]
    table_of_runs = [RUN_COLUMNS, *([line[column] for column in RUN_COLUMNS] for line in ordered)]
    write_atomically(folder / "runs.csv", csv_text(table_of_runs).encode())


def _written(lines: Sequence[Sequence[str]]) -> str:
    """Lines that ``csv_text`` has made safe for spreadsheets already, as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


RUN_COLUMNS = ("experiment", "runs", "data", "cpu_seconds", "missing")


def _has_runs(folder: Path) -> bool:
    return (folder / "runs.csv").is_file()


@dataclass(frozen=True)
class RecordedExperiment:
    """An experiment as it is recorded."""

    name: str
    tables: Mapping[str, Sequence[Line]]
    notes: Mapping[str, str]
    runs: int
    data: str
    seconds: int
    missing: int  # rows that have not been computed yet

    @property
    def judged(self) -> list[Line]:
        """The lines with a verdict that counts: each published number once."""
        return [line for lines in self.tables.values() for line in lines if kind_of(line["verdict"]) in KINDS]


def recorded(folder: Path = RECORD) -> list[RecordedExperiment]:
    """Return all recorded experiments, in the order of the catalogue."""
    out = []
    for line in read_csv(folder / "runs.csv"):
        name = line["experiment"]
        notes = {note["note"]: note["text"] for note in read_csv(folder / name / "notes.csv")}
        paths = sorted(path for path in (folder / name).glob("*.csv") if path.name != "notes.csv")
        tables = {path.stem: read_csv(path) for path in paths}
        seconds, missing = int(line["cpu_seconds"]), int(line["missing"])
        out.append(RecordedExperiment(name, tables, notes, int(line["runs"]), line["data"], seconds, missing))
    return out


# ---------------------------------------------------------------- counts


def kind_of(verdict: str) -> str:
    """Return the kind of a verdict.

    >>> kind_of("differs, note 1"), kind_of("inconclusive: at the limit"), kind_of("derived: matches")
    ('differs', 'inconclusive', 'derived')
    """
    return verdict.split(",")[0].split(":")[0]


def counted(lines: Iterable[Line]) -> Verdicts:
    """Return the number of verdicts of each kind."""
    kinds = Counter(kind_of(line["verdict"]) for line in lines)
    return Verdicts(*(kinds[kind] for kind in KINDS))


def surviving(lines: Iterable[Line]) -> list[Line]:
    """Return the lines that differ at the level over all of them together (Holm's method)."""
    conclusive = [line for line in lines if kind_of(line["verdict"]) in ("matches", "differs")]
    differ = kind_of
    ordered = sorted(conclusive, key=lambda line: (differ(line["verdict"]) == "matches", float(line["p"])))
    kept: list[Line] = []
    for i, line in enumerate(ordered):
        if differ(line["verdict"]) == "matches" or float(line["p"]) > LEVEL / (len(ordered) - i):
            break
        kept.append(line)
    return kept


# ---------------------------------------------------------------- pages


def numbers_table(experiments: Sequence[RecordedExperiment]) -> str:
    """Return the counts of verdicts by experiment, as Markdown."""
    lines = [["experiment", "runs", *KINDS, "rows not run", "CPU seconds"]]
    for e in experiments:
        counts = counted(e.judged)
        figures = [f"{n}" if n else "-" for n in (counts.matches, counts.differs, counts.inconclusive)]
        lines.append([e.name, str(e.runs), *figures, str(e.missing or "-"), str(e.seconds)])
    return aligned_table(lines, 1)


def earlier_rows(experiments: Sequence[RecordedExperiment]) -> str:
    """Return a sentence on judged rows of an earlier version, which kept no degrees of freedom."""
    counts = []
    for e in experiments:
        earlier = sum(bool(line["half_interval"]) and not line["degrees_of_freedom"] for line in e.judged)
        counts += [f"{e.name} ({earlier} of {len(e.judged)})"] if earlier else []
    if not counts:
        return ""
    return (
        "Judged rows that an earlier version of the command recorded, with at most four decimals, and that "
        f"have not been run again: {', '.join(counts)}."
    )


def provenance_table(experiments: Sequence[RecordedExperiment]) -> str:
    """Return the counts of verdicts by provenance, as Markdown."""
    judged = [line for e in experiments for line in e.judged]
    lines = [["provenance of the published number", *KINDS]]
    for provenance in PROVENANCES:
        counts = counted(line for line in judged if line["provenance"] == provenance)
        lines.append([provenance, *map(str, (counts.matches, counts.differs, counts.inconclusive))])
    return aligned_table(lines, 1)


def items_table(items: Sequence[Line]) -> str:
    """Return the number of items by paper and verdict, as Markdown."""
    lines = [["paper", "items", *ITEM_VERDICTS]]
    for paper in (*PAPERS, "all"):
        of_paper = [item for item in items if paper in (item["paper"], "all")]
        counts = Counter(item["verdict"] for item in of_paper)
        title = paper if paper == "all" else f"[{PAPERS[paper].title}](papers/{paper}.md)"
        lines.append([title, str(len(of_paper)), *(str(counts[verdict] or "-") for verdict in ITEM_VERDICTS)])
    return aligned_table(lines, 1)


def summary(experiments: Sequence[RecordedExperiment], items: Sequence[Line]) -> str:
    """Return docs/results.md."""
    judged = [line for e in experiments for line in e.judged]
    text = in_words(counted(judged), len(surviving(judged)))
    hours = sum(e.seconds for e in experiments) / 3600
    others = ", ".join(e.name for e in experiments if not e.judged)
    earlier = earlier_rows(experiments)
    return f"""# Results: the papers, recomputed

This page summarises what was recomputed of the five papers behind the methods. `python -m reproduction
all --record` writes it; no number on it is typed. Each paper has a page: what it proposes, what we run, what
differs, and what we found. See [recompute](reproduce.md) for the command, the data and the statistics.

## Every item of the papers

Equations, steps of algorithms, parameters, data sets, tables, figures, claims and plans for future work:
each is a line of `reproduction/items.csv`, with its verdict, its place in this repository, its test, and
the difference or the reason.

{items_table(items)}
- *faithful*: as in the paper, or beyond it; of a table, a figure or a claim, ours agrees up to chance;
- *differs, stated*: the page of the paper states the difference;
- *missing*: not built or not run; the page of the paper has the reason;
- *impossible here*: the paper's data or results are not available.

An item with several parts counts by its worst part.

## Published numbers beside ours

{text}

{provenance_table(experiments)}
- *printed*: a number in a table or in the text of a paper;
- *authors' stored file*: a mean over the runs in the authors' repository, because the paper has only a
  figure;
- *read from a picture*: read by pixels from the authors' picture, to about 0.001. Each point of a picture
  counts once.

A number *matches* if the difference is not significant at 5%. A verdict is *inconclusive* if the
comparison had no power: a difference of half the published number would not have been significant, there
are fewer than four runs, or both numbers are the limit of iterations. Numbers that we derive from
published ones, such as a share that follows from a mean, are marked *derived* and are not counted.

{numbers_table([e for e in experiments if e.judged])}
{others} have no published number that can be judged: see the pages of the papers.

*Rows not run* are configurations that take long and have not been computed yet; the same command continues
with them. All experiments together took {hours:.1f} CPU hours; a repetition may need half or twice as long,
depending on the machine and its load. The tables with every number are CSV files,
`reproduction/results/EXPERIMENT/TABLE.csv`: the published number, its standard deviation and provenance, the
result of the authors' own code if we could run it, ours with its standard deviation and number of runs, the
half-width of the 95% confidence interval of the difference, the smallest detectable difference as a share
of the published number, p, and the verdict.{" " if earlier else ""}{earlier}

## Where ours differ

These differences remain at 5% over all numbers together (Holm's method). The pages of the papers list all
differences, with notes.

{surviving_table(experiments, surviving(judged))}"""


def surviving_table(experiments: Sequence[RecordedExperiment], lines: Sequence[Line]) -> str:
    """Return the differences that remain, as Markdown."""
    return _differences([(e.name, line) for e in experiments for line in e.judged if line in lines])


def _differences(found: Sequence[tuple[str, Line]]) -> str:
    out = [["experiment", "row", "published", "ours", "p", "verdict"]]
    for name, line in found:
        what = ", ".join(value for key, value in line.items() if key not in NUMBER_COLUMNS)
        published = line["published"]
        digits = len(published.partition(".")[2])
        ours, p = f"{float(line['ours']):.{max(digits, 2)}f}", f"{float(line['p']):.2g}"
        out.append([name, what, published, ours, p, line["verdict"]])
    return aligned_table(out, 2)


def results_block(paper: str, experiments: Sequence[RecordedExperiment]) -> str:
    """Return what a paper's page has between its markers: counts, tables, differences and notes."""
    own = {e.name: e for e in experiments if e.name in PAPERS[paper].experiments}
    tables = {name: e.tables for name, e in own.items()}
    shown = "".join(_shown((*LAYOUTS[paper], *OURS[paper]), tables))
    unpooled = " *unpooled* is the default of this package." if "unpooled" in shown else ""
    parts = [
        numbers_table(list(own.values())),
        *([f"{earlier}\n"] if (earlier := earlier_rows(list(own.values()))) else []),
        "### The paper's tables\n\nEach cell is published / ours; * marks a number that differs at 5%. "
        f"The others match, are inconclusive or are not judged.{unpooled}\n",
        *_shown(LAYOUTS[paper], tables),
    ]
    if "dual-tables" in tables:
        parts.append(
            "Means of table 3 over the problems that are recorded for a method, published / ours:\n\n"
            + dual_means(tables["dual-tables"])
        )
    spreads = spreads_table(tables)
    if spreads:
        parts.append(
            "Published standard deviations beside ours. *Differ*: at 5% by an F test, which assumes a normal "
            f"distribution; they do not count among the published numbers.\n\n{spreads}"
        )
    differ = [
        (name, line) for name, e in own.items() for line in e.judged if kind_of(line["verdict"]) == "differs"
    ]
    if differ:
        parts.append(
            "### Differences\n\nNumbers that differ at 5%, each tested alone:\n\n" + _differences(differ)
        )
    parts += ["### Results without a published number\n", *_shown(OURS[paper], tables)]
    notes: dict[str, list[str]] = {}
    for name, e in own.items():
        for number, text in e.notes.items():
            notes.setdefault(text, []).append(f"{name} {number}")
    parts.append("### Notes\n\n" + "".join(f"- **{', '.join(of)}:** {text}\n" for text, of in notes.items()))
    return "\n".join(parts)


def _shown(layouts: Sequence[Layout], tables: Tables) -> list[str]:
    """The tables that have recorded numbers, each under its title."""
    found = [(layout.title, layout.table(tables)) for layout in layouts]
    return [f"{title}:\n\n{table}" for title, table in found if table]


def experiments_table(experiments: Sequence[RecordedExperiment]) -> str:
    """Return the table of docs/reproduce.md: what an experiment has, needs, writes, and how long it took."""
    lines = [["experiment", "content", "its tables, as CSV", "needs in `--data`", "runs", "CPU seconds"]]
    for e in experiments:
        found = find(e.name)
        tables = ", ".join(f"`{name}`" for name in e.tables)
        needs = ", ".join(f"`{FILES[needed]}`" for needed in found.needs)
        lines.append([f"`{e.name}`", found.title, tables, needs, str(e.runs), str(e.seconds)])
    return aligned_table(lines, 4)


RESULTS = ("<!-- results -->", "<!-- end of results -->")
EXPERIMENTS = ("<!-- experiments: python -m reproduction pages -->", "<!-- end -->")


def pages(folder: Path = RECORD, docs: Path = DOCS) -> dict[Path, str]:
    """Return every page that is written from the record, by its path."""
    experiments, items = recorded(folder), read_csv(ITEMS)
    found = {docs / "results.md": summary(experiments, items)}
    for paper in PAPERS:
        path = docs / "papers" / f"{paper}.md"
        found[path] = _with_block(path, RESULTS, results_block(paper, experiments))
    path = docs / "reproduce.md"
    found[path] = _with_block(path, EXPERIMENTS, experiments_table(experiments))
    return found


def _with_block(path: Path, markers: tuple[str, str], block: str) -> str:
    """Return a page with a block between its two markers."""
    begin, end = markers
    text = path.read_text(encoding="utf-8")
    if begin not in text or end not in text.partition(begin)[2]:
        raise InputError(f"{path} has no lines '{begin}' and '{end}'. Add them.")
    before, _, rest = text.partition(f"{begin}\n")
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{block}{end}{after}"


def write_pages(folder: Path = RECORD, docs: Path = DOCS) -> list[Path]:
    """Write the pages, and return their paths."""
    found = pages(folder, docs)
    for path, text in found.items():
        write_atomically(path, text.encode())
    return list(found)


# ---------------------------------------------------------------- some configurations only


class _Some(Results):
    """Results of some configurations; those of the others are nan."""

    def __init__(self, found: Results) -> None:
        super().__init__([])
        self._by = found._by

    def values(self, settings: Settings, name: str) -> FloatArray:
        return super().values(settings, name) if self.has(settings, name) else np.array([np.nan])


def only_some(experiment: Experiment, where: Sequence[str]) -> Experiment:
    """Return the experiment with some of its configurations; the numbers of the others are nan.

    ``where`` has settings as text, "method=unpooled"; several values of one setting are alternatives, and a
    configuration without a setting is not left out because of it.
    """
    allowed: dict[str, set[str]] = {}
    for setting in where:
        name, _, value = setting.partition("=")
        allowed.setdefault(name, set()).add(value)

    def configurations(sources: Sources, quick: bool) -> list[Settings]:
        return [s for s in experiment.configurations(sources, quick) if _fits(s, allowed)]

    def present(results: Results, sources: Sources, quick: bool) -> Presentation:
        with np.errstate(all="ignore"):
            return experiment.present(_Some(results), sources, quick)

    return replace(experiment, configurations=configurations, present=present)


def only_stored(experiment: Experiment, store: Store, sources: Sources, *, runs: int | None) -> Experiment:
    """Return the experiment with the configurations of which all runs are saved; the others are nan."""
    saved: dict[str, bool] = {}
    for task in experiment.tasks(sources, False, runs):
        key = json.dumps(task.settings, sort_keys=True)
        saved[key] = saved.get(key, True) and store.has(task)

    def configurations(sources: Sources, quick: bool) -> list[Settings]:
        every = experiment.configurations(sources, quick)
        return [s for s in every if saved[json.dumps(s, sort_keys=True)]]

    return replace(only_some(experiment, ()), configurations=configurations)


def _fits(settings: Settings, allowed: dict[str, set[str]]) -> bool:
    """
    >>> _fits({"method": "k-FED", "beta": 1.0}, {"method": {"k-FED"}, "beta": {"1", "10"}, "k_local": {"16"}})
    True
    >>> _fits({"method": "k-FED", "beta": 0.1}, {"method": {"k-FED"}, "beta": {"1", "10"}})
    False
    """
    texts = {name: f"{v:g}" if isinstance(v, float) else str(v) for name, v in settings.items()}
    return all(texts[name] in values for name, values in allowed.items() if name in texts)
