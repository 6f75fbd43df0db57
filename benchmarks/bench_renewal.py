"""Updates of a summary table over three years: people disclosed, cost in inertia, seconds of an update.

``python -m benchmarks.bench_renewal [seeds]``: 1000 people, of whom 1% leave every month and as many come; 36
updates of one summary table. The cost is the inertia of all people at the centres found from the table, over
that of k-means on the people.
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

PEOPLE, MONTHS, CHURN, K = 1000, 36, 0.01, 5
PRINTED = (12, 36)  # months


def digest(data: bytes) -> str:
    return blake2b(data, key=b"benchmark", digest_size=16).hexdigest()


def table(rows: dict[str, np.ndarray]) -> Table:
    X = np.array(list(rows.values()))
    return Table.from_columns({"id": list(rows), **{f"x{j}": X[:, j] for j in range(X.shape[1])}})


def cost(rows: dict[str, np.ndarray], summary) -> float:
    """The inertia of all people at the centres of k-means on the summary table, over that on the people."""
    X = np.array(list(rows.values()))
    M = np.stack([summary.means[name] for name in summary.names], axis=1)
    pooled = KMeans(K, n_init=10, random_state=0).fit(X)
    found = KMeans(K, n_init=10, random_state=0).fit(M, sample_weight=summary.people)
    return -float(found.score(X)) / float(pooled.inertia_)


def rows_cost(rows: dict[str, np.ndarray], states: dict[str, str]) -> float:
    """The same cost without groups: of k-means on the rows of the people who are disclosed."""
    X = np.array(list(rows.values()))
    disclosed = np.array([rows[person] for person, state in states.items() if state in DISCLOSED])
    pooled, found = (KMeans(K, n_init=10, random_state=0).fit(x) for x in (X, disclosed))
    return -float(found.score(X)) / float(pooled.inertia_)


def history(
    shape, g: int, seed: int, months: int = MONTHS, people: int = PEOPLE
) -> dict[int, dict[str, float]]:
    """By month: the share disclosed, the people pending, withheld and barred, the costs, CPU seconds."""
    rng = np.random.default_rng([seed, g])
    drawn = iter(shape(rng, people + int(months * CHURN * people) + months)[0])
    rows = {f"P{i}": next(drawn) for i in range(people)}
    settings = SummarySettings(min_group_size=g, person="id")
    first = make_first_summary(table(rows), settings)
    past, scales, number = History(first.scales.min_group_size), first.scales, people
    for group in first_groups(table(rows), first, digest):
        past.add(group)
    nobody = {"pending": 0, "withheld": 0, "barred": 0}
    out = {0: {"disclosed": 1.0, **nobody, "cost": cost(rows, first.summary), "rows": 1.0, "seconds": 0.0}}
    for month in range(1, months + 1):
        for person in rng.choice(list(rows), int(CHURN * people), replace=False):
            del rows[str(person)]
            rows[f"P{number}"] = next(drawn)
            number += 1
        start = time.process_time()
        found = plan_renewal(past, scales, settings, table(rows), digest)
        took = time.process_time() - start
        states = list(found.states.values())
        out[month] = {
            "disclosed": sum(map(states.count, DISCLOSED)) / len(rows),
            "pending": states.count(PENDING) + states.count(NEW_PENDING),
            "withheld": states.count(WITHHELD),
            "barred": states.count(CANNOT_RETURN),
            "cost": cost(rows, found.summary) if month in PRINTED else float("nan"),
            "rows": rows_cost(rows, found.states) if month in PRINTED else float("nan"),
            "seconds": took,
        }
    return out


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{PEOPLE} people, {CHURN:.0%} leave and come per month; means over {seeds} seeds; CPU seconds")
    for g in (5, 8, 11):
        for shape in (clear, overlapping, overlapping_8):
            runs = [history(shape, g, seed) for seed in range(seeds)]
            slowest = max(one["seconds"] for run in runs for one in run.values())
            line = f"  g {g:2}, {shape.__name__:13} cost at first {np.mean([r[0]['cost'] for r in runs]):.3f}"
            for month in PRINTED:
                mean = {name: float(np.mean([run[month][name] for run in runs])) for name in runs[0][month]}
                line += (
                    f"; month {month}: disclosed {mean['disclosed']:.2f}, cost {mean['cost']:.3f} "
                    f"(of their rows {mean['rows']:.3f}), pending {mean['pending']:.0f}, "
                    f"withheld {mean['withheld']:.0f}, cannot return {mean['barred']:.0f}"
                )
            print(f"{line}; an update takes at most {slowest:.2f} s", flush=True)


if __name__ == "__main__":
    main()
