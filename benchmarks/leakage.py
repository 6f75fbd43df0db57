"""docs/leakage.md and docs/leakage.csv: the rows that an attack rebuilds, for every method and protection.

``python -m benchmarks.leakage [--out FOLDER]`` does the runs that FOLDER has not yet and writes both; no
number in them is typed. ``--sets`` and ``--seeds`` are for trials: they write no page.
"""

import argparse
import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from reproduction.output import aligned

from unpooled.app import compare
from unpooled.app.compare import PROTECTIONS, Problem, methods_and_presets
from unpooled.app.compare.measure import PUBLISHED, one, probed
from unpooled.storage.atomic_files import write_atomically

ROOT = Path(__file__).parent.parent
SETS = {"iris": "tabular", "penguins": "tabular"}
PRESETS = ("penguins",)  # sets on which methods run as published too: that takes hundreds of rounds
SEEDS, QUESTIONS, EPSILON = 3, 200, 1.0
ORDER = ("none", "raw", "summary", "dp")


@dataclass(frozen=True)
class Cell:
    """A method under a protection on a set: one number a seed. ``why`` says why there is none."""

    set: str
    method: str
    protection: str
    reconstructed: tuple[int, ...] = ()
    messages: int = 0
    examined: int = 0
    why: str = ""

    @property
    def text(self) -> str:
        """The mean and the worst over seeds; a star where the attack does not read every message.

        >>> Cell("a", "lloyd", "none", (3, 4), 10, 10).said, Cell("a", "ewf", "none", (0, 0), 10, 4).said
        ('3.5, worst 4', '0*')
        >>> Cell("a", "ewf", "dp", why="has no form with noise").said
        '-'
        """
        if not self.reconstructed:
            return "-"
        mean, worst = float(np.mean(self.reconstructed)), max(self.reconstructed)
        star = "*" if self.examined < self.messages else ""
        return f"{mean:g}{star}" if mean == worst else f"{mean:.1f}, worst {worst}{star}"


def methods_of(set_: str) -> tuple[str, ...]:
    """What is run on a set."""
    every = methods_and_presets()
    return every if set_ in PRESETS else tuple(m for m in every if not m.endswith(PUBLISHED))


def problems(names: Iterable[str] = SETS) -> list[Problem]:
    """The sets, those without sites of their own divided over ten by labels."""
    suites = {suite: compare.suite(suite) for suite in dict.fromkeys(SETS[name] for name in names)}
    found = [next(p for p in suites[SETS[name]] if p.name == name) for name in names]
    return [compare.split_of(p, "dirichlet:.3") if p.site is None else p for p in found]


def cell(problem: Problem, method: str, protection: str, seeds: Iterable[int]) -> Cell:
    reconstructed, messages, examined = [], 0, 0
    for seed in seeds:
        done, _ = one(problem, method, protection, seed, EPSILON)
        if done.why:
            return Cell(problem.name, method, protection, why=done.why)
        reconstructed.append(done.reconstructed)
        messages, examined = messages + done.messages, examined + done.examined
    return Cell(problem.name, method, protection, tuple(reconstructed), messages, examined)


def active(problem: Problem, protection: str) -> Cell:
    """One who asks every site what isolates its rows; no method is run."""
    return Cell(
        problem.name,
        f"(active, {QUESTIONS} questions)",
        protection,
        (probed(problem.sites(), protection, EPSILON, QUESTIONS),),
    )


# ---------------------------------------------------------------- page


def table(of: list[Cell]) -> list[list[str]]:
    """Methods by protections, of one set."""
    by = {(c.method, c.protection): c for c in of}
    lines = [["method", *ORDER]]
    for method in dict.fromkeys(c.method for c in of):
        shown = method.replace(PUBLISHED, ", as published")
        lines.append([shown, *(by[method, p].said if (method, p) in by else "-" for p in ORDER)])
    return lines


def summary(cells: list[Cell], rows: dict[str, int]) -> list[list[str]]:
    """The share of rows over all sets and seeds, and the worst of them."""
    lines = [["method", *ORDER]]
    for method in dict.fromkeys(c.method for c in cells):
        line = [method.replace(PUBLISHED, ", as published")]
        for protection in ORDER:
            here = [c for c in cells if (c.method, c.protection) == (method, protection) and c.reconstructed]
            shares = [100 * r / rows[c.set] for c in here for r in c.reconstructed]
            star = "*" if any(c.examined < c.messages for c in here) else ""
            line.append(f"{np.mean(shares):.1f} %, worst {max(shares):.1f} %{star}" if shares else "-")
        lines.append(line)
    return lines


def page(cells: list[Cell], sets: list[Problem]) -> str:
    rows = {p.name: len(p.X) for p in sets}
    about = [["set", "rows", "columns", "sites", "rows of the smallest site", "k", "divided by"]]
    for p in sets:
        sizes = [len(x) for x in p.sites().values()]
        by = {"penguins": "island", "heart disease": "hospital"}.get(p.name, "label, Dirichlet .3")
        figures = [f"{n}" for n in (len(p.X), p.X.shape[1], len(sizes), min(sizes), p.k)]
        about.append([p.name, *figures, by])
    reasons: dict[str, dict[str, None]] = {}
    for c in cells:
        if c.why:
            reasons.setdefault(c.why, {})[f"{c.method.removesuffix(PUBLISHED)} on {c.set}"] = None
    no_noise = "has no form with noise"
    other = [f"{', '.join(which)}: {why}" for why, which in reasons.items() if why != no_noise]
    raw = ", ".join(f"{sum(min(len(x), p.k) for x in p.sites().values())} on {p.name}" for p in sets)
    parts = [
        f"""# Rows rebuilt by an attack: every method under every protection

Written by `python -m benchmarks.leakage`, a part of `make results`, from runs; no number on this page is
typed. [leakage.csv](leakage.csv) has every run. To cite it: [CITATION.cff](../CITATION.cff), with the
version.

How much do the messages of federated k-means give away? Holzer, Jacob and Kavane leave it to future work
"to investigate whether one could recover at least parts of the local data by collecting the centroids and
weights over time" (section 2.5). This page counts rows that can be.

**The attack** is that of `unpooled audit`: it sees what the coordinator sees, every message that left a site
in one run and the centres that were asked about, and nothing else. Cells of one row are rows; two sets of
cells that differ by one row give it as a difference of sums, which the sums of squares verify; a row that is
found is subtracted everywhere, until nothing follows any more. Besides, a row counts if an unprotected site
sent it as a centre of its own, of a number of rows that it does not say. Noisy sums are read as if they had
no noise. A row is rebuilt if all its columns are right to 1e-4 standard deviations.

**The protections**: *none*, sites answer from rows; *trusted*, from rows, but hide clusters of fewer than 5;
*copy*, from a table of groups of at least 5 persons, the default between machines; *noise*, differential
privacy with epsilon {EPSILON:g} and delta 1e-6. Every method has its usual settings; on
{" and ".join(PRESETS)} also those with which its authors ran it.

**The numbers** are means over {SEEDS} seeds, and the worst of them where they differ. A star: the attack does
not read every message (the CSV says which part), so that more may follow than is counted. No star is no
promise either: another attack may find more. Only copy and noise promise anything ([privacy](privacy.md)).

{aligned(about, 1)}
## All sets together

The share of all rows.

{aligned(summary(cells, rows), 1)}"""
    ]
    for p in sets:
        here = aligned(table([c for c in cells if c.set == p.name]), 1)
        parts.append(f"## {p.name}: of {len(p.X)} rows\n\n{here}")
    parts.append(
        "Not run (-): with noise all methods but lloyd and fuzzy, which alone have a form with it"
        + "".join(f"; {said}" for said in other)
        + ".\n\nThe active attacker follows no protocol: it asks every site questions of two centres whose "
        "border moves between single rows. One run, whatever the method.\n\n"
        "FKM as published stands here without its authors' first message, which is raw rows, min(n, k) of "
        f"every site: {raw}. This package sends means of at least p rows instead.\n"
    )
    return "\n".join(parts)


def as_csv(cells: list[Cell], rows: dict[str, int]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = ["set", "rows", "method", "protection", "seed", "reconstructed"]
    writer.writerow([*heads, "messages_of_all_seeds", "read_of_all_seeds", "not_run"])
    for c in cells:
        head = [c.set, rows[c.set], c.method, c.protection]
        tail = [c.messages, c.examined]
        if c.why:
            writer.writerow([*head, "", "", "", "", c.why])
        for seed, reconstructed in enumerate(c.reconstructed):
            writer.writerow([*head, seed, reconstructed, *tail, ""])
    return out.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/leakage.md from runs")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "leakage")
    parser.add_argument("--sets", default="", help="only these sets, with commas between; no page")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="other than usual: no page")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    sets = problems([name for name in args.sets.split(",") if name] or SETS)
    cells: list[Cell] = []
    for problem in sets:
        for method in (*methods_of(problem.name), ""):
            for protection in PROTECTIONS:
                name = f"{problem.name} {method} {protection} {args.seeds}".replace(":", "-")
                path = args.out / f"{name}.json"
                if not path.is_file():
                    done = (
                        cell(problem, method, protection, range(args.seeds))
                        if method
                        else active(problem, protection)
                    )
                    write_atomically(path, json.dumps(vars(done)).encode())
                    print(done, flush=True)
                kept = json.loads(path.read_text(encoding="utf-8"))
                cells.append(Cell(**{**kept, "reconstructed": tuple(kept["reconstructed"])}))
    if args.sets or args.seeds != SEEDS:
        return
    rows = {p.name: len(p.X) for p in sets}
    (ROOT / "docs" / "leakage.md").write_text(page(cells, sets), encoding="utf-8")
    (ROOT / "docs" / "leakage.csv").write_text(as_csv(cells, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
