"""docs/results.md and the comparison in docs/methods.md, written from runs: no number in them is typed.

``python -m benchmarks.results --out FOLDER [--data FOLDER]`` runs what FOLDER has not yet; PLAN says how many
runs of each experiment. What needs data that are not at hand is left out, and the page says so. ``--only``
computes some experiments anew, with ``--where method=k-FED k_local=16`` some of their configurations, and
keeps what the page has of the others.
"""

import argparse
import os
import re
from pathlib import Path

from reproduction.catalogue import find
from reproduction.compare_methods import EXPERIMENT, short
from reproduction.data_sources import Sources
from reproduction.output import aligned, in_words, markdown, write
from reproduction.result_store import Store
from reproduction.runner import finish

from benchmarks.kept_results import Section, counted, merged, only_some, sections, still_differing

ROOT = Path(__file__).parent.parent
PLAN: dict[str, int | str | None] = {  # runs; None: as many as the paper
    "garst-fig1": None,
    "garst-fig3": None,
    "garst-fig4": None,
    "garst-fig5": 4,
    "holzer-synthetic": None,
    "holzer-mnist": 10,
    "holzer-femnist": 8,
    "holzer-participation": "quick",
    "triebe-fraction": 30,
    "triebe-epochs": 30,
    "triebe-rate": 30,
    "stallmann-cases": None,
    "stallmann-g2": 4,
    "dual-tables": None,
    "dual-held-out": None,
}
COMPARED = 3


def page(parts: list[Section], left_out: list[str]) -> str:
    lines = [["experiment", "runs", "matches", "differs", "says nothing", "CPU seconds"]]
    for part in parts:
        counts = counted(part.verdicts)
        figures = [f"{n}" if n else "-" for n in (counts.matches, counts.differs, counts.silent)]
        lines.append([part.name, part.runs, *figures, part.seconds])
    verdicts = [pair for part in parts for pair in part.verdicts]
    missing = f" Not run: {', '.join(left_out)}." if left_out else ""
    head = f"""# Results: the papers, recomputed

Written by `make results`, from runs; no number on this page is typed. Every table has the published number,
ours with its standard deviation over runs, the difference with the interval that holds the true one with
95 %, and p, the chance of such a difference between equals (Welch's test). A number that *matches* does not
differ at 5 %. A verdict *says nothing* where a difference as large as the number itself could not have been
seen, where runs are fewer than four, or where both are the limit of iterations. What differs has a note with
an experiment that shows why, or is *open*. Each published number is judged once, where it is first shown.
[How to run it](reproduce.md) says more.

"central, n_init 10" or "k-means, n_init 10" is the fair baseline, pooled k-means with ten restarts;
"unpooled" is this package's default. Only rows that were published, these two, and what must be seen beside
them are shown: `python -m reproduction` writes all rows, and the figures. An experiment or a row that was not
computed anew is as an earlier run of the generator wrote it.

{in_words(counted(verdicts), still_differing(verdicts))}{missing}

{aligned(lines, 1)}"""
    return head + "\n" + "\n".join(part.text.rstrip("\n") + "\n" for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/results.md from runs")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "results")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--without", default="", help="names with commas between them: not run, and named so")
    parser.add_argument("--only", default="", help="names with commas between them: the others are kept")
    parser.add_argument("--where", nargs="+", default=(), help="with --only: settings, as method=unpooled")
    args = parser.parse_args()
    sources, path = Sources(args.data), ROOT / "docs" / "results.md"
    old = sections(path.read_text(encoding="utf-8"))
    only, without = ({name for name in said.split(",") if name} for said in (args.only, args.without))
    where = tuple(args.where)
    if where and not only:
        parser.error("--where goes with --only")
    parts, left_out = [], []
    for name, runs in PLAN.items():
        experiment = find(name)
        if only and name not in only:
            parts += [old[name]] if name in old else []
            left_out += [] if name in old else [name]
            continue
        if name in without or any(not sources.has(needed) for needed in experiment.needs):
            left_out.append(name)
            continue
        quick, count = runs == "quick", runs if isinstance(runs, int) else None
        some = only_some(experiment, where) if where else experiment
        (done,) = finish([some], sources, args.out, quick=quick, runs=count, jobs=args.jobs)
        new = Section(markdown(done, 2, short=True))
        if not where:
            write(done, args.out)
        parts.append(merged(new, old[name]) if where else new)
    path.write_text(page(parts, left_out), encoding="utf-8")
    if not only:
        _compared(args.out, args.jobs)


def _compared(out: Path, jobs: int) -> None:
    """The table and the figure of docs/methods.md."""
    (done,) = finish([EXPERIMENT], Sources(), out, runs=COMPARED, jobs=jobs)
    tasks = EXPERIMENT.tasks(Sources(), False, COMPARED)
    lines = short(Store(out).results(tasks))
    methods = ROOT / "docs" / "methods.md"
    text = methods.read_text(encoding="utf-8")
    block = f"<!-- compared: make results -->\n{aligned(lines, 1)}<!-- end -->"
    text = re.sub(r"<!-- compared: make results -->.*?<!-- end -->", lambda _: block, text, flags=re.S)
    methods.write_text(text, encoding="utf-8")
    ranks = next(f for f in done.presented.figures if f.name == "ranks-inertia")
    write(done, out)
    drawn = (out / "compare" / f"{ranks.name}.svg").read_text(encoding="utf-8")
    (ROOT / "docs" / "ranks.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
