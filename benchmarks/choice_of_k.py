"""The choice of k on tables without clusters, and on tables with clusters beside five pooled criteria.

``python -m benchmarks.choice_of_k`` prints two tables, from rows and from summary tables:

- tables without clusters, by kind: how often clusters are claimed, and how often they are called clear.
  The kinds of clinic_tables.py are by another author than the rule;
- tables with clusters: how often k is right. The others use the pooled rows, prepared in the same way:
  silhouette, Calinski-Harabasz and Davies-Bouldin over k-means with ten restarts, the gap statistic of
  Tibshirani, Walther and Hastie (2001) and the prediction strength of Tibshirani and Walther (2005).

Every answer is one line in ``--results``, so a command that was killed goes on where it was. ``--print``
prints the two tables of the lines that are there. Lines of another rule (``unpooled/evaluation``) are not
counted.

``--tables`` is the number of tables without clusters of each kind and size, ``--sets`` the number of those
with clusters, ``--seed`` the first seed. ``--part`` is one of ``without``, ``with``, ``known`` (sets of
known_k.py), and ``ranges``: the k of 15 real tables for three ranges of k, which should not decide about it.
"""

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets, metrics
from sklearn.cluster import KMeans

import unpooled.evaluation
from benchmarks import clinic_tables, made_tables
from benchmarks.known_k import K_MOST, sets
from benchmarks.made_tables import Made
from unpooled.algorithms import METHODS
from unpooled.data import PreparationOptions, Table, agree_schema
from unpooled.data.examples import load_penguins
from unpooled.data.readers import Reading, read_sites
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import TooFewPeopleError
from unpooled.evaluation import Analysis, Choice
from unpooled.federation import Simulation
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol import run
from unpooled.protocol.exchange import run_protocol

KS = range(1, K_MOST + 1)
SIZES = (300, 900)
AUTHORS = {"made": made_tables, "clinic": clinic_tables}
SOURCES = ("rows", "summary")
POOLED = ("silhouette", "Calinski-H.", "Davies-B.", "gap", "pred. strength")
GAP_TABLES = 10
RANGES = (range(2, 9), range(2, 11), range(2, 13))


# ---------------------------------------------------------------- the choice of this package


def tables_of(table: Made) -> dict[str, Table]:
    """The tables of the sites."""
    sites = {}
    for i in np.unique(table.site):
        at = np.flatnonzero(table.site == i)
        columns = {
            name: [values[j] for j in at] if isinstance(values, list) else np.asarray(values)[at]
            for name, values in table.columns.items()
        }
        sites[f"s{i}"] = Table.from_columns(columns)
    return sites


def chosen(tables: dict[str, Table], *, summary: bool = False, ks: range = KS, seed: int = 0) -> Choice:
    """The choice of k at the end of ``-k auto`` over the sites."""
    sites = dict(_summarized(tables)) if summary else tables
    methods = tuple(METHODS["lloyd"](k=k).with_restarts(10) for k in ks)
    analysis = Analysis(PreparationOptions(), methods)
    choice = run(analysis, Simulation.from_rows(sites), seed=seed).state.choice
    assert choice is not None
    return choice


def _summarized(tables: dict[str, Table]) -> Iterator[tuple[str, SummaryTable]]:
    """The summary table of each site that has enough people for one."""
    for name, table in tables.items():
        with suppress(TooFewPeopleError):
            yield name, microaggregate(table)


def claims(choice: Choice) -> bool:
    """Whether the choice claims clusters."""
    return choice.verdict in ("clear", "unclear")


# ---------------------------------------------------------------- pooled criteria


def pooled(X: np.ndarray) -> tuple[int, ...]:
    """The k that each pooled criterion names; those that compare clusters begin at k = 2."""
    fits = {k: KMeans(k, n_init=10, random_state=0).fit(X) for k in KS if k > 1}
    named = []
    for score, sign in (
        (metrics.silhouette_score, 1),
        (metrics.calinski_harabasz_score, 1),
        (metrics.davies_bouldin_score, -1),
    ):
        named.append(max(fits, key=lambda k: sign * score(X, fits[k].labels_)))
    inertias = [float(((X - X.mean(axis=0)) ** 2).sum()), *(fit.inertia_ for fit in fits.values())]
    return (*named, gap(X, np.log(np.maximum(inertias, 1e-300))), prediction_strength(X))


def gap(X: np.ndarray, logs: np.ndarray) -> int:
    """The smallest k whose gap is within an error of the next one's; references fill the principal box."""
    rng = np.random.default_rng(0)
    turned = X @ np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2].T
    low, high = turned.min(axis=0), turned.max(axis=0)
    drawn = np.array([_logs(rng.uniform(low, high, turned.shape)) for _ in range(GAP_TABLES)])
    gaps, errors = drawn.mean(axis=0) - logs, drawn.std(axis=0) * np.sqrt(1 + 1 / GAP_TABLES)
    enough = gaps[:-1] >= gaps[1:] - errors[1:]
    return KS[int(np.argmax(enough))] if enough.any() else KS[-1]


def _logs(X: np.ndarray) -> list[float]:
    return [float(np.log(KMeans(k, n_init=1, random_state=0).fit(X).inertia_)) for k in KS]


def prediction_strength(X: np.ndarray) -> int:
    """The largest k whose prediction strength, over five halvings, is 0.8 or more; else 1."""
    rng = np.random.default_rng(0)
    strengths = {k: [] for k in KS if k > 1}
    for _ in range(5):
        order = rng.permutation(len(X))
        train, test = X[order[: len(X) // 2]], X[order[len(X) // 2 :]]
        for k, found in strengths.items():
            one = KMeans(k, n_init=5, random_state=0).fit(train)
            own = KMeans(k, n_init=5, random_state=0).fit(test).labels_
            given = one.predict(test)
            shares = []
            for j in range(k):
                counts = np.bincount(given[own == j], minlength=k)
                n = counts.sum()
                shares.append((counts * (counts - 1)).sum() / (n * (n - 1)) if n > 1 else 0.0)
            found.append(min(shares))
    return max((k for k, found in strengths.items() if np.mean(found) >= 0.8), default=1)


# ---------------------------------------------------------------- answers, one line each


@dataclass(frozen=True)
class Problem:
    """A table to judge."""

    part: str  # "without", "with" or "known"
    kind: str
    rows: int
    seed: int
    make: Callable[[], Made]

    @property
    def name(self) -> str:
        return self.kind if self.part == "known" else f"{self.kind}, {self.rows} rows, seed {self.seed}"


def problems_of(part: str, authors: Sequence[Any], seeds: range, folder: Path | None) -> Iterator[Problem]:
    """Yield the tables of a part: every kind and size of a seed before the next seed."""
    if part == "known":
        for name, X, k in sets(folder):
            site = np.random.default_rng(0).integers(3, size=len(X))
            yield Problem(part, name, len(X), 0, partial(Made, _named(X), k, site))
        return
    for seed in seeds:
        for author in authors:
            for kind in author.WITHOUT if part == "without" else author.CLUSTERED:
                for n in SIZES:
                    yield Problem(part, kind, n, seed, partial(author.made, kind, n, seed))


def answer(problem: Problem, source: str) -> dict[str, Any]:
    """Return what is named for a table from rows, from summary tables, or by the pooled criteria."""
    made = problem.make()
    sites = tables_of(made)
    if source == "pooled":
        there = Simulation.from_rows(sites)
        preparation = run_protocol(agree_schema(there.sites, PreparationOptions()), there).preparation
        X = np.nan_to_num(np.concatenate([preparation.apply(table) for table in sites.values()]))
        return {"true": made.k, "named": pooled(X)}
    choice = chosen(sites, summary=source == "summary")
    return {
        "true": made.k,
        "k": choice.k,
        "verdict": choice.verdict,
        "reproduced": [j.k for j in choice.judgements if j.k > 1 and j.passes],
        "faults": {j.k: j.fault or j.not_judged for j in choice.judgements if j.k > 1},
        "deviations": {j.k: round(j.deviations, 2) for j in choice.judgements if np.isfinite(j.expected)},
    }


class Answers:
    """The answers in a file of one line each; those of another rule are passed over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        folder = Path(unpooled.evaluation.__file__).parent
        self._rule = hashlib.sha256(b"".join(f.read_bytes() for f in sorted(folder.glob("*.py")))).hexdigest()
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a kill may have cut the last line
        self._cut = len(whole) < len(text)
        lines = [json.loads(line) for line in whole.splitlines() if line]
        self._known = {self._key(line): line for line in lines if line["rule"] == self._rule}

    @staticmethod
    def _key(line: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(line[name] for name in ("part", "kind", "rows", "seed", "source"))

    def of(self, problem: Problem, source: str, *, compute: bool) -> dict[str, Any] | None:
        """Return an answer; None if it is not there and is not to be computed."""
        line = {name: getattr(problem, name) for name in ("part", "kind", "rows", "seed")} | {
            "source": source
        }
        key = self._key(line)
        if key not in self._known and compute:
            line |= {"rule": self._rule} | answer(problem, source)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._cut:
                whole = self._path.read_text()
                self._path.write_text(whole[: whole.rfind("\n") + 1])
                self._cut = False
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            self._known[key] = line
        return self._known.get(key)


# ---------------------------------------------------------------- the two tables


def claimed(line: dict[str, Any]) -> bool:
    """Whether an answer claims clusters."""
    return line["verdict"] in ("clear", "unclear")


def without_clusters(answers: Answers, problems: Sequence[Problem], *, compute: bool) -> None:
    """Print the first table."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for problem in problems:
        both = {source: answers.of(problem, source, compute=compute) for source in SOURCES}
        for source, line in both.items():
            if line is not None:
                found.setdefault((problem.kind, source), []).append(line)
    print("\nTables without clusters: number, claimed to have some, called clear")
    print(f"{'kind':34}" + "".join(f" {source:>9} claimed clear" for source in SOURCES) + "   k claimed")
    for kind in dict.fromkeys(problem.kind for problem in problems):
        print(f"{kind:34}" + _counts(*(found.get((kind, source), []) for source in SOURCES)))
    every = {
        source: [line for (_, of), own in found.items() if of == source for line in own] for source in SOURCES
    }
    print(f"{'all':34}" + _counts(*every.values()))
    for source, own in every.items():
        if own:
            seeds = sorted({line["seed"] for line in own})
            print(f"from {source}, seeds {seeds[0]} to {seeds[-1]}: {_shares(own)}")


def _shares(lines: list[dict[str, Any]]) -> str:
    """The shares of a set of answers, with their one-sided 95% bounds."""
    count, some = len(lines), sum(map(claimed, lines))
    clear = sum(line["verdict"] == "clear" for line in lines)
    none = np.mean([not line["reproduced"] for line in lines])
    return (
        f"claimed {some / count:.1%} (at most {_bound(some, count):.1%}), clear {clear / count:.1%} "
        f"(at most {_bound(clear, count):.1%}), no k reproduced {none:.1%}"
    )


def _counts(*answers: list[dict[str, Any]]) -> str:
    """A line of the first table."""
    text, named = "", []
    for source, lines in zip(SOURCES, answers, strict=True):
        some = [line for line in lines if claimed(line)]
        clear = sum(line["verdict"] == "clear" for line in lines)
        text += f" {len(lines):9} {len(some):7} {clear:5}"
        named += [f"{line['k']} from {source}" for line in some]
    return f"{text}   {', '.join(named[:6])}"


def _bound(found: int, count: int) -> float:
    """The one-sided 95% bound of a share (Clopper-Pearson)."""
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
        i = np.arange(found + 1)
        terms = (
            logs[count] - logs[i] - logs[count - i] + i * np.log(max(p, 1e-300)) + (count - i) * np.log1p(-p)
        )
        low, high = (p, high) if np.exp(terms).sum() > 0.05 else (low, p)
    return high


def with_clusters(answers: Answers, problems: Sequence[Problem], *, compute: bool) -> None:
    """Print the second table: the answers to the same tables from rows, from summary tables, and pooled."""
    print("\nTables with clusters: the k that is named; ! marks a wrong one, * one that is called clear")
    print(f"{'table':48} {'k':>3}" + "".join(f" {name:>14}" for name in (*SOURCES, *POOLED)))
    right, clear, wrong = np.zeros(len(SOURCES) + len(POOLED), dtype=int), [0, 0], [0, 0]
    count, separated, none = 0, [], []
    for problem in problems:
        asked = [answers.of(problem, source, compute=compute) for source in (*SOURCES, "pooled")]
        lines = [line for line in asked if line is not None]
        if len(lines) < len(asked):
            continue
        true = lines[-1]["true"]
        named = [*(line["k"] for line in lines[:-1]), *lines[-1]["named"]]
        is_clear = [line["verdict"] == "clear" for line in lines[:-1]] + [False] * len(POOLED)
        marks = [
            f"{k}{'' if k == true else '!'}{'*' if sure else ''}"
            for k, sure in zip(named, is_clear, strict=True)
        ]
        print(f"{problem.name:48} {true:3}" + "".join(f" {mark:>14}" for mark in marks), flush=True)
        if true == 1:
            none += [lines[:-1]]
            continue
        count += 1
        right += np.array(named) == true
        for i in range(len(SOURCES)):
            clear[i] += is_clear[i]
            wrong[i] += is_clear[i] and named[i] != true
        if problem.kind in made_tables.SEPARATED:
            separated.append([true in line["reproduced"] for line in lines[:-1]])
    for i, name in enumerate((*SOURCES, *POOLED)):
        sure = f"; {clear[i]} are clear, {wrong[i]} of them of a wrong k" if i < len(SOURCES) else ""
        print(f"right of {count}: {name} {right[i]}{sure}")
    for i, source in enumerate(SOURCES):
        if separated:
            share = np.mean([both[i] for both in separated])
            print(f"true k reproduced, {len(separated)} well separated tables, from {source}: {share:.1%}")
        if none:
            some = sum(claimed(both[i]) for both in none)
            print(f"{some} of {len(none)} without clusters claimed from {source}")


# ---------------------------------------------------------------- ranges of k


def real_tables() -> Iterator[tuple[str, dict[str, Table]]]:
    """Fifteen tables that ship with scikit-learn or this package, by site."""
    for name in ("iris", "wine", "breast_cancer", "diabetes", "digits"):
        yield name, _over_three_sites(getattr(datasets, f"load_{name}")().data)
    digits, label = datasets.load_digits(return_X_y=True)
    yield "digits 0, 1, 4", _over_three_sites(digits[np.isin(label, (0, 1, 4))])
    islands = {name: Table.from_columns(_named(X)) for name, X in load_penguins().by_island().items()}
    yield "penguins", islands
    for name, table in islands.items():
        yield f"penguins of {name}", {name: table}
    codes = ("sex", "cp", "fbs", "restecg", "exang", "slope", "ca", "thal")
    reading = Reading(site_column="site", exclude=("num",), categorical=codes)
    hospitals = read_sites([Path(str(files("unpooled.data.examples") / "heart_disease.csv"))], reading)
    yield "heart disease", hospitals
    for name, table in hospitals.items():
        yield f"heart disease, {name}", {name: table}


def _over_three_sites(X: np.ndarray) -> dict[str, Table]:
    site = np.random.default_rng(0).integers(3, size=len(X))
    return tables_of(Made(_named(X), 1, site))


def _named(X: np.ndarray) -> dict[str, np.ndarray]:
    return {f"x{j}": X[:, j] for j in range(X.shape[1])}


def by_range(source: str) -> None:
    """Print the k that each range gives."""
    print(f"\nThe k of real tables by range, from {source}")
    print(f"{'table':34} " + " ".join(f"{f'{r[0]}..{r[-1]}':>22}" for r in RANGES))
    differ = []
    for name, sites in real_tables():
        found = [chosen(sites, summary=source == "summary", ks=ks) for ks in RANGES]
        print(f"{name:34} " + " ".join(f"{f'{c.k} {c.verdict}':>22}" for c in found), flush=True)
        inside = all(c.k in RANGES[0] for c in found)
        if inside and len({c.k for c in found}) > 1:
            differ.append(name)
    print(f"differ by range: {', '.join(differ) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--sets", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7000)
    parser.add_argument("--part", choices=("without", "with", "known", "ranges"), action="append")
    parser.add_argument("--author", choices=AUTHORS, action="append")
    parser.add_argument("--folder", type=Path, help="where G2's own files are")
    parser.add_argument("--results", type=Path, default=Path("build/choice_of_k.jsonl"))
    parser.add_argument("--print", action="store_true", help="compute nothing")
    options = parser.parse_args()
    answers, compute = Answers(options.results), not options.print
    authors = [AUTHORS[name] for name in options.author or AUTHORS]
    for part in options.part or ("without", "with"):
        if part == "ranges":
            for source in SOURCES:
                by_range(source)
            continue
        number = options.tables if part == "without" else options.sets
        seeds = range(options.seed, options.seed + number)
        problems = list(problems_of(part, authors, seeds, options.folder))
        show = without_clusters if part == "without" else with_clusters
        show(answers, problems, compute=compute)


if __name__ == "__main__":
    main()
