"""Renewals over three years: how many persons are still shown, what the copy costs, how long a renewal takes.

``python -m benchmarks.bench_renewal [seeds]``: 1000 persons, of whom 1 % leave every month and as many come;
36 renewals of one copy. The cost is the inertia of all persons at the centres found from the copy, over
that of k-means on the persons. The design had .90 and .59 of the persons shown after 12 and 36 months, at a
cost of 1.009 and 1.022; it does not say for which g.
"""

import sys
import time
from hashlib import blake2b

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.bench_summary_table import clear, overlapping, overlapping_8
from unpooled.data import Table
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.group_history import History
from unpooled.privacy.microaggregation.renew import (
    CANNOT_RETURN,
    DISCLOSED,
    NEW_PENDING,
    PENDING,
    WITHHELD,
    first_groups,
    plan_renewal,
)
from unpooled.privacy.microaggregation.summarize import make_first_summary

PERSONS, MONTHS, CHURN, K = 1000, 36, 0.01, 5
DESIGN = {12: (0.90, 1.009), 36: (0.59, 1.022)}


def digest(data: bytes) -> str:
    return blake2b(data, key=b"benchmark", digest_size=16).hexdigest()


def table(rows: dict[str, np.ndarray]) -> Table:
    X = np.array(list(rows.values()))
    return Table.from_columns({"id": list(rows), **{f"x{j}": X[:, j] for j in range(X.shape[1])}})


def cost(rows: dict[str, np.ndarray], copy) -> float:
    X = np.array(list(rows.values()))
    M = np.stack([copy.means[name] for name in copy.names], axis=1)
    pooled = KMeans(K, n_init=10, random_state=0).fit(X)
    found = KMeans(K, n_init=10, random_state=0).fit(M, sample_weight=copy.people)
    return -float(found.score(X)) / float(pooled.inertia_)


def rows_cost(rows: dict[str, np.ndarray], states: dict[str, str]) -> float:
    """The same cost without groups: of k-means on the rows of those who are shown."""
    X = np.array(list(rows.values()))
    shown = np.array([rows[person] for person, state in states.items() if state in DISCLOSED])
    pooled, found = (KMeans(K, n_init=10, random_state=0).fit(x) for x in (X, shown))
    return -float(found.score(X)) / float(pooled.inertia_)


def history(
    shape, g: int, seed: int, months: int = MONTHS, people: int = PERSONS
) -> dict[int, dict[str, float]]:
    """By month: the share shown, those who wait, are held back or cannot return, the cost, CPU seconds."""
    rng = np.random.default_rng([seed, g])
    drawn = iter(shape(rng, people + int(months * CHURN * people) + months)[0])
    rows = {f"P{i}": next(drawn) for i in range(people)}
    settings = SummarySettings(min_group_size=g, person="id")
    first = make_first_summary(table(rows), settings)
    kept, scales, number = History(first.scales.min_group_size), first.scales, people
    for group in first_groups(table(rows), first, digest):
        kept.add(group)
    at_first = cost(rows, first.summary)
    out = {0: {"shown": 1.0, "wait": 0, "held": 0, "shut": 0, "cost": at_first, "rows": 1.0, "seconds": 0.0}}
    for month in range(1, months + 1):
        for person in rng.choice(list(rows), int(CHURN * people), replace=False):
            del rows[str(person)]
            rows[f"P{number}"] = next(drawn)
            number += 1
        start = time.process_time()
        found = plan_renewal(kept, scales, settings, table(rows), digest)
        took = time.process_time() - start
        states = list(found.states.values())
        out[month] = {
            "shown": sum(map(states.count, DISCLOSED)) / len(rows),
            "wait": states.count(PENDING) + states.count(NEW_PENDING),
            "held": states.count(WITHHELD),
            "shut": states.count(CANNOT_RETURN),
            "cost": cost(rows, found.summary) if month in DESIGN else float("nan"),
            "rows": rows_cost(rows, found.states) if month in DESIGN else float("nan"),
            "seconds": took,
        }
    return out


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{PERSONS} persons, {CHURN:.0%} leave and come a month; means over {seeds} seeds; CPU seconds")
    for month, (shown, price) in DESIGN.items():
        print(f"  the design, month {month}: shown {shown:.2f}, cost {price:.3f}")
    for g in (5, 8, 11):
        for shape in (clear, overlapping, overlapping_8):
            runs = [history(shape, g, seed) for seed in range(seeds)]
            slowest = max(one["seconds"] for run in runs for one in run.values())
            line = f"  g {g:2}, {shape.__name__:13} cost at first {np.mean([r[0]['cost'] for r in runs]):.3f}"
            for month in DESIGN:
                mean = {name: float(np.mean([run[month][name] for run in runs])) for name in runs[0][month]}
                line += (
                    f"; month {month}: shown {mean['shown']:.2f}, cost {mean['cost']:.3f} "
                    f"(of their rows {mean['rows']:.3f}), wait {mean['wait']:.0f}, "
                    f"held back {mean['held']:.0f}, cannot return {mean['shut']:.0f}"
                )
            print(f"{line}; a renewal takes at most {slowest:.2f} s", flush=True)


if __name__ == "__main__":
    main()
