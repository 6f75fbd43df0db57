"""docs/results.md and the comparison in docs/methods.md, written from runs: no number in them is typed.

``python -m benchmarks.results --out FOLDER [--data FOLDER]`` runs the experiments that FOLDER does not have
yet; PLAN has the number of runs of each. The page lists the experiments that were left out because their data
are missing. ``--only`` computes some experiments anew, with ``--where method=k-FED k_local=16`` some of their
configurations, and keeps the others as they are on the page.
"""

import argparse
import os
import re
from pathlib import Path

from reproduction.catalogue import find
from reproduction.compare_methods import EXPERIMENT, short
from reproduction.data_sources import Sources
from reproduction.output import in_words, markdown, write
from reproduction.result_store import Store
from reproduction.runner import finish

from benchmarks.kept_results import Section, counted, merged, only_some, sections, still_differing
from unpooled.app.compare.comparison_files import aligned_table

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
    """Return the page of these sections, and of the names of experiments that were left out."""
    lines = [["experiment", "runs", "matches", "differs", "inconclusive", "CPU seconds"]]
    for part in parts:
        counts = counted(part.verdicts)
        figures = [f"{n}" if n else "-" for n in (counts.matches, counts.differs, counts.inconclusive)]
        lines.append([part.name, part.runs, *figures, part.seconds])
    verdicts = [pair for part in parts for pair in part.verdicts]
    missing = f" Not run: {', '.join(left_out)}." if left_out else ""
    head = f"""# Results: the papers, recomputed

`make results` writes this page from runs; no number on it is typed. [The papers, recomputed](reproduce.md)
explains how to run an experiment.

Every table has these columns:

- *published*, and *ours* with its standard deviation over runs;
- the *difference* with its 95% confidence interval, and *p*, the probability of a difference at least as
  large if both are equal (Welch's test);
- the *verdict*. A number *matches* if the difference is not significant at 5%. A number that *differs* has a
  note with an experiment that shows the cause, or the cause is *open*. A verdict is *inconclusive* if the
  test could not have found a difference as large as the number itself, if there are fewer than four runs, or
  if both numbers are the limit of iterations. Each published number is judged once, in the first table that
  has it.

"central, n_init 10" or "k-means, n_init 10" is the fair baseline, pooled k-means with ten restarts;
"unpooled" is this package's default. The tables have the published rows, these two, and the rows needed
beside them; `python -m reproduction` writes all rows, and the figures. An experiment or a row that was not
computed anew is as an earlier run of `make results` wrote it.

{in_words(counted(verdicts), still_differing(verdicts))}{missing}

{aligned_table(lines, 1)}"""
    return head + "\n" + "\n".join(part.text.rstrip("\n") + "\n" for part in parts)


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description="Write docs/results.md from runs")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "results")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--without", default="", help="names with commas between them: these are not run")
    parser.add_argument("--only", default="", help="names with commas between them: the others are kept")
    parser.add_argument("--where", nargs="+", default=(), help="with --only: settings, as method=unpooled")
    args = parser.parse_args()
    sources, path = Sources(args.data), ROOT / "docs" / "results.md"
    old = sections(path.read_text(encoding="utf-8"))
    only, without = ({name for name in names.split(",") if name} for names in (args.only, args.without))
    where = tuple(args.where)
    if where and not only:
        parser.error("--where needs --only")
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
    block = f"<!-- compared: make results -->\n{aligned_table(lines, 1)}<!-- end -->"
    text = re.sub(r"<!-- compared: make results -->.*?<!-- end -->", lambda _: block, text, flags=re.S)
    methods.write_text(text, encoding="utf-8")
    ranks = next(f for f in done.presented.figures if f.name == "ranks-inertia")
    write(done, out)
    drawn = (out / "compare" / f"{ranks.name}.svg").read_text(encoding="utf-8")
    (ROOT / "docs" / "ranks.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
