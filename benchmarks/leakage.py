"""docs/leakage.md and docs/leakage.csv: the rows that an attack reconstructs, by method and protection.

``python -m benchmarks.leakage [--out FOLDER]`` does the runs that FOLDER does not have yet and writes both;
no number in them is typed. ``--sets`` and ``--seeds`` are for trials: they write no page.
"""

import argparse
import csv
import io
import json
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.algorithms import METHODS
from unpooled.app import compare
from unpooled.app.compare import PROTECTIONS, Problem, methods_and_presets
from unpooled.app.compare.comparison_files import aligned_table
from unpooled.app.compare.measure import (
    NO_DP,
    PUBLISHED,
    actively_reconstructed,
    algorithm_for,
    policy_for,
    run_method,
)
from unpooled.federation import LocalFederation
from unpooled.federation.table_transfer import TABLES, TableTransfer
from unpooled.privacy import SecureSums
from unpooled.protocol import run
from unpooled.protocol.algorithm import Asks
from unpooled.protocol.exchange import STAGE, Replies, Request, RequestId
from unpooled.protocol.messages import MaskedElsewhere, Refusal, Reply, SiteId
from unpooled.site import Site
from unpooled.site.audit.known_sums import disclosed_in
from unpooled.site.audit.posterior import determined
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.storage.atomic_files import write_atomically
from unpooled.typing import IntArray

ROOT = Path(__file__).parent.parent
SETS = {"iris": "tabular", "penguins": "tabular"}
PRESETS = ("penguins",)  # sets on which methods run as published too: that takes hundreds of rounds
SEEDS, QUESTIONS, EPSILON = 3, 200, 1.0
SECURE = "raw, secure sums"
ORDER = ("none", "raw", SECURE, "summary", "dp")
NOT_SUMMED = "it needs the answers of single sites, which secure sums do not give"


ANSWERS = {
    "raw": "raw rows",
    "summary": "summary tables",
    "dp": "raw rows, with noise",
}  # by mode of the policy
POLICY = """
format = 1
[protect]
mode = "{}"
auto_approve = true
one_row_per_person = true
no_sensitive_columns = true
[aggregation]
max_equations = 1
"""


@dataclass(frozen=True)
class Cell:
    """A method under a protection on a set: one number per seed, or the reason why it was not run."""

    set: str
    method: str
    protection: str
    reconstructed: tuple[int, ...] = ()
    messages: int = 0
    examined: int = 0
    not_run: str = ""

    @property
    def text(self) -> str:
        """The mean and the worst over seeds, with a star if the attack does not read every message.

        >>> Cell("a", "lloyd", "none", (3, 4), 10, 10).text, Cell("a", "ewf", "none", (0, 0), 10, 4).text
        ('3.5, worst 4', '0*')
        >>> Cell("a", "ewf", "dp", not_run=NO_DP).text
        '-'
        """
        if not self.reconstructed:
            return "-"
        mean, worst = float(np.mean(self.reconstructed)), max(self.reconstructed)
        star = "*" if self.examined < self.messages else ""
        return f"{mean:g}{star}" if mean == worst else f"{mean:.1f}, worst {worst}{star}"


def methods_of(set_: str) -> tuple[str, ...]:
    """Return the methods that are run on a set."""
    every = methods_and_presets()
    return every if set_ in PRESETS else tuple(m for m in every if not m.endswith(PUBLISHED))


def problems(names: Iterable[str] = SETS) -> list[Problem]:
    """Return the sets; those without sites are divided over ten by labels."""
    suites = {suite: compare.suite(suite) for suite in dict.fromkeys(SETS[name] for name in names)}
    found = [next(p for p in suites[SETS[name]] if p.name == name) for name in names]
    return [compare.split_of(p, "dirichlet:.3") if p.site is None else p for p in found]


def cell(problem: Problem, method: str, protection: str, seeds: Iterable[int]) -> Cell:
    """Run a method with every seed, and attack the messages of each run."""
    reconstructed, messages, examined = [], 0, 0
    for seed in seeds:
        done, _ = run_method(problem, method, protection, seed, EPSILON)
        if done.not_run:
            return Cell(problem.name, method, protection, not_run=done.not_run)
        reconstructed.append(done.reconstructed)
        messages, examined = messages + done.messages, examined + done.examined
    return Cell(problem.name, method, protection, tuple(reconstructed), messages, examined)


class RecordedTotals(LocalFederation):
    """A federation of raw rows that records the cells of every total: what secure sums open."""

    def __init__(self, problem: Problem) -> None:
        super().__init__([Site(name, X) for name, X in problem.sites().items()])
        self.X, self.cells = problem.X, list[IntArray]()
        self.totals, self.examined = 0, 0

    def ask(self, request_id: RequestId, asks: Asks) -> list[Replies[Any]]:
        gathered = super().ask(request_id, asks)
        for ask, replies in zip(asks, gathered, strict=True):
            opened = list(disclosed_in(ask.question, replies.total())) if ask.verb == "total" else []
            X = self.X if ask.transform is None else ask.transform.apply(self.X)
            for one in opened:
                distances = [((X - point) ** 2).sum(axis=1) for point in one.points]
                self.cells.append(np.argmin(distances, axis=0))
            self.totals, self.examined = self.totals + 1, self.examined + bool(opened)
        return gathered


def secure_cell(problem: Problem, method: str, seeds: Iterable[int]) -> Cell:
    """Run a method on raw rows with every seed; the attacker has the sums over sites and knows all cells."""
    if METHODS[method.removesuffix(PUBLISHED)].visibility != "totals":
        return Cell(problem.name, method, SECURE, not_run=NOT_SUMMED)
    reconstructed, messages, examined = [], 0, 0
    for seed in seeds:
        federation = RecordedTotals(problem)
        run(algorithm_for(problem, method, "none", EPSILON), federation, seed=seed)
        reconstructed.append(len(determined(federation.cells, len(problem.X)).rows))
        messages, examined = messages + federation.totals, examined + federation.examined
    return Cell(problem.name, method, SECURE, tuple(reconstructed), messages, examined)


class CountedReplies(LocalFederation):
    """A federation that counts the replies that the coordinator can read, and those that it cannot."""

    readable = masked = 0

    def _exchange(self, requests: Mapping[SiteId, Request]) -> dict[SiteId, tuple[Reply, ...]]:
        replies = super()._exchange(requests)
        for site, request in requests.items():
            for part, reply in zip(request.parts, replies[site], strict=True):
                if part.verb != STAGE and not isinstance(reply, Refusal):
                    self.masked += isinstance(reply, MaskedElsewhere)
                    self.readable += not isinstance(reply, MaskedElsewhere)
        return replies


def arrivals(problem: Problem) -> list[list[str]]:
    """Return the answers of single sites to Lloyd's method that the coordinator can read, by protection."""
    lines = [["sites answer from", "without secure sums", "with secure sums", "masked in secure sums"]]
    for protection, words in ANSWERS.items():
        federations = []
        policy = (
            policy_for(protection, EPSILON, len(problem.X))
            if protection == "dp"
            else parse(POLICY.format(protection))
        )
        for secure in (None, SecureSums()):
            with tempfile.TemporaryDirectory() as home, ExitStack() as opened:
                sites = [open_site(name, X, policy, Path(home) / name) for name, X in problem.sites().items()]
                for site in sites:
                    opened.callback(site.close)
                federations.append(CountedReplies(sites, secure=secure))
                transfers = protection == "summary" and secure is None  # as in a default run between machines
                federation = (
                    TableTransfer(federations[-1], (), Path(home) / TABLES) if transfers else federations[-1]
                )
                run(algorithm_for(problem, "lloyd", protection, EPSILON), federation, seed=0)
        plain, summed = federations
        lines.append([words, f"{plain.readable}", f"{summed.readable}", f"{summed.masked}"])
    return lines


def active(problem: Problem, protection: str) -> Cell:
    """Attack every site with queries that isolate its rows; no method is run."""
    return Cell(
        problem.name,
        f"(active, {QUESTIONS} queries)",
        protection,
        (actively_reconstructed(problem.sites(), protection, EPSILON, QUESTIONS),),
    )


# ---------------------------------------------------------------- page


def table(cells: list[Cell]) -> list[list[str]]:
    """Return methods by protections, of one set."""
    by = {(c.method, c.protection): c for c in cells}
    lines = [["method", *ORDER]]
    for method in dict.fromkeys(c.method for c in cells):
        name = method.replace(PUBLISHED, ", as published")
        lines.append([name, *(by[method, p].text if (method, p) in by else "-" for p in ORDER)])
    return lines


def shares(cells: list[Cell], rows: dict[str, int]) -> list[list[str]]:
    """Return the share of rows over all sets and seeds, and the worst of them."""
    lines = [["method", *ORDER]]
    for method in dict.fromkeys(c.method for c in cells):
        line = [method.replace(PUBLISHED, ", as published")]
        for protection in ORDER:
            here = [c for c in cells if (c.method, c.protection) == (method, protection) and c.reconstructed]
            percent = [100 * r / rows[c.set] for c in here for r in c.reconstructed]
            star = "*" if any(c.examined < c.messages for c in here) else ""
            line.append(f"{np.mean(percent):.1f}%, worst {max(percent):.1f}%{star}" if percent else "-")
        lines.append(line)
    return lines


def page(cells: list[Cell], sets: list[Problem]) -> str:
    """Return docs/leakage.md."""
    rows = {p.name: len(p.X) for p in sets}
    about = [["set", "rows", "columns", "sites", "rows of the smallest site", "k", "divided by"]]
    for p in sets:
        sizes = [len(x) for x in p.sites().values()]
        by = {"penguins": "island", "heart disease": "hospital"}.get(p.name, "label, Dirichlet 0.3")
        figures = [f"{n}" for n in (len(p.X), p.X.shape[1], len(sizes), min(sizes), p.k)]
        about.append([p.name, *figures, by])
    reasons: dict[str, dict[str, None]] = {}
    for c in cells:
        if c.not_run:
            reasons.setdefault(c.not_run, {})[f"{c.method.removesuffix(PUBLISHED)} on {c.set}"] = None
    other = [
        f"- {', '.join(which)}: {reason}"
        for reason, which in reasons.items()
        if reason not in (NO_DP, NOT_SUMMED)
    ]
    sent_rows = ", ".join(f"{sum(min(len(x), p.k) for x in p.sites().values())} on {p.name}" for p in sets)
    parts = [
        f"""# Reconstruction attack: every method under every protection

`python -m benchmarks.leakage`, a part of `make results`, writes this page from runs; no number on it is
typed. [leakage.csv](leakage.csv) has every run. To cite it, use [CITATION.cff](../CITATION.cff) with the
version.

How much do the messages of federated k-means reveal? Holzer, Jacob and Kavane leave it to future work
"to investigate whether one could recover at least parts of the local data by collecting the centroids and
weights over time" (section 2.5). Breaking Privacy in Federated Clustering (TAR, arXiv:2511.07073, 2025)
reconstructs exact rows from the sums of all rounds. This page counts the rows that an attack reconstructs.

## The attack

The attack is that of `unpooled site log --attack`. It reads what the coordinator receives in one run, every
message of every site, and the centres of the queries, and nothing else:

- A cluster of one row at a site is that row.
- If two sets of clusters differ by one row, the difference of their sums is that row, and the sums of
  squares verify it.
- A row that is found is subtracted from all other sums, until no more rows follow.
- A row also counts if an unprotected site sent it as a centre of its own.

Noisy sums are read as if they had no noise. A row counts as reconstructed if all its columns are right to
1e-4 standard deviations.

For *raw, secure sums* the attacker is a stronger one: it has the sums over all sites and knows which rows are
in which cluster, and counts the rows that follow by linear algebra, among the rows of all sites together
(`unpooled.site.audit.posterior`). The sites have no
[equation budget](secure-sums.md#raw-rows-and-the-equation-budget); with the default budget they answer such
runs from groups of rows.

## The protections

| protection | sites answer from |
|---|---|
| none | their rows |
| raw | their rows, and suppress clusters of fewer than 5 |
| {SECURE} | their rows; the coordinator reads only sums over all sites |
| summary | a summary table (microaggregation): every row is the average of at least 5 people |
| dp | their rows, with differential privacy: epsilon {EPSILON:g}, delta 1e-6 |

Between machines *summary* is the default. Every method has its default settings; on
{" and ".join(PRESETS)} also those of its authors ("as published").

## What arrives at the coordinator

Lloyd's method needs only totals. Without secure sums the coordinator adds them up itself, so it receives each
site's answer; a site with a summary table sends one, the table. With secure sums the coordinator reads only
the sum over all sites. These are the answers of single sites in one run on
{sets[-1].name}, {len(sets[-1].sites())} sites:

{aligned_table(arrivals(sets[-1]), 1)}
In both cases the coordinator receives from each site the names and kinds of its columns and its number of
people, if rows have names of columns.

## The numbers

The numbers are means over {SEEDS} seeds, with the worst of them if they differ. A star means that the attack
does not read every message (the CSV has the share that it reads), so that more rows may follow than are
counted. Another attack may find more rows even without a star. Only summary and dp give a guarantee: see
[privacy](privacy.md).

{aligned_table(about, 1)}
## All sets together

The share of all rows.

{aligned_table(shares(cells, rows), 1)}"""
    ]
    for p in sets:
        here = aligned_table(table([c for c in cells if c.set == p.name]), 1)
        parts.append(f"## {p.name}: of {len(p.X)} rows\n\n{here}")
    parts.append(
        "A dash means that the method was not run:\n\n"
        "- under dp all methods except lloyd and fuzzy: only these have a differentially private variant\n"
        f"- under {SECURE} all methods except those that need only totals: the others need the answers of "
        "single sites\n"
        + "\n".join(other)
        + "\n\nThe active attacker follows no method. It sends every site queries with two centres, and "
        "moves the border between them across single rows. It has one run.\n\n"
        "FKM as published is listed without its authors' first message, which is raw rows, min(n, k) of "
        f"every site: {sent_rows}. This package sends means of at least p rows instead.\n"
    )
    return "\n".join(parts)


def as_csv(cells: list[Cell], rows: dict[str, int]) -> str:
    """Return docs/leakage.csv: one line for every seed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = ["set", "rows", "method", "protection", "seed", "reconstructed"]
    writer.writerow([*heads, "messages_of_all_seeds", "read_of_all_seeds", "not_run"])
    for c in cells:
        head = [c.set, rows[c.set], c.method, c.protection]
        tail = [c.messages, c.examined]
        if c.not_run:
            writer.writerow([*head, "", "", "", "", c.not_run])
        for seed, reconstructed in enumerate(c.reconstructed):
            writer.writerow([*head, seed, reconstructed, *tail, ""])
    return out.getvalue()


def main() -> None:
    """Do the runs that are missing, and write the page and the CSV."""
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
            for protection in (*PROTECTIONS, *((SECURE,) if method else ())):
                name = f"{problem.name} {method} {protection} {args.seeds}".replace(":", "-")
                path = args.out / f"{name}.json"
                if not path.is_file():
                    if protection == SECURE:
                        done = secure_cell(problem, method, range(args.seeds))
                    elif method:
                        done = cell(problem, method, protection, range(args.seeds))
                    else:
                        done = active(problem, protection)
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
