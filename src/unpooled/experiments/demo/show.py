"""Output of the demo: the clusters, the comparison with pooling, and what left each island."""

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_rand_score

from unpooled.experiments.demo.study import MINIMUM, SEEDS, Study


def show(result: Study, console: Console) -> None:
    """Print the clusters, the comparison with pooling, and what left each island."""
    penguins = result.penguins
    console.print(
        f"[bold]{len(penguins.X)} penguins on {len(result.guarded.doors)} islands, clustered without pooling "
        f"them[/bold]\n{penguins.dropped} more lack a measurement and are left out. Every island is a site.\n"
    )
    for table in (_clusters(result), _comparison(result), _left(result)):
        console.print(table)
        console.print()
    guarded, unguarded, pooled = result.guarded, result.open, result.pooled
    same = "those" if np.array_equal(unguarded.labels, pooled.labels) else "not quite those"
    console.print(
        f"[bold]{guarded.sent or 'No'} row left its island.[/bold] What did are counts and sums over "
        f"{guarded.smallest} penguins or more, and zeros for smaller groups. With nothing hidden the "
        f"clusters are {same} of pooling, but {unguarded.sent} rows can be read off, for a group of one is "
        f"a row; so a real site starts from {MINIMUM}. That hid {result.hidden()} penguins at the end, and "
        f"inertia is {guarded.inertia / pooled.inertia:.4f} times pooling's, or "
        f"{result.worst[0] / pooled.inertia:.4f} in the worst of {SEEDS} seeds. Species played no part.\n"
        f"A minimum size is not all: {guarded.deduced} rows follow by subtracting the groups that an "
        "island shows from all its penguins, and many overlapping sums tell more. docs/privacy.md says "
        "what is not yet guarded against."
    )


def _clusters(result: Study) -> Table:
    table = Table(title=f"Clusters found (in brackets: below {MINIMUM}, not shown by the island)")
    table.add_column("cluster")
    islands = list(result.guarded.doors)
    for name in (*islands, "all"):
        table.add_column(name, justify="right")
    table.add_column("mostly")
    for j, sizes in enumerate(result.sizes().T):
        kinds, counts = np.unique(result.penguins.species[result.guarded.labels == j], return_counts=True)
        share = f"{kinds[counts.argmax()]} ({counts.max() / counts.sum():.0%})"
        shown = [f"({n})" if 0 < n < MINIMUM else str(n) for n in sizes]
        table.add_row(str(j + 1), *shown, str(sizes.sum()), share)
    totals = [len(result.guarded.doors[name].rows) for name in islands]
    table.add_section()
    table.add_row("all", *map(str, totals), str(sum(totals)), "")
    return table


def _comparison(result: Study) -> Table:
    pooled, ways = result.pooled, (result.pooled, result.guarded, result.open)
    table = Table(title="Against scikit-learn's StandardScaler and KMeans(n_init=10)")
    for heading in ("", "pooled", f"federated,\nminimum {MINIMUM}", "federated,\nnothing hidden"):
        table.add_column(heading, justify="right" if heading else "left")
    species, row = result.penguins.species, table.add_row
    row("inertia of all rows", *(f"{way.inertia:.3f}" for way in ways))
    row("  times pooling's", *(f"{way.inertia / pooled.inertia:.4f}" for way in ways))
    row(f"  worst of {SEEDS} seeds", "-", *(f"{worst / pooled.inertia:.4f}" for worst in result.worst))
    row("ARI with pooling", *(f"{adjusted_rand_score(pooled.labels, way.labels):.3f}" for way in ways))
    row("ARI with species", *(f"{adjusted_rand_score(species, way.labels):.3f}" for way in ways))
    row("exchanges", *("-" if way is pooled else str(way.exchanges) for way in ways))
    row("smallest group shown", "1", *(str(way.smallest) for way in ways[1:]))
    row("rows that left", str(len(result.penguins.X)), *(str(way.sent) for way in ways[1:]))
    row("  by subtraction", "-", *(str(way.deduced) for way in ways[1:]))
    return table


def _left(result: Study) -> Table:
    table = Table(title=f"What left each island (minimum {MINIMUM}), and how many numbers its rows hold")
    for heading in ("island", "messages", "bytes", "numbers", "not zero", "rows", "its rows hold"):
        table.add_column(heading, justify="left" if heading == "island" else "right")
    for name, door in result.guarded.doors.items():
        counts = (door.messages, door.bytes, door.numbers, door.numbers - door.zeros, len(door.sent))
        table.add_row(name, *(f"{count:,}" for count in counts), f"{door.rows.size:,}")
    return table
