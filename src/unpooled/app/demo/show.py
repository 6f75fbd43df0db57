"""Output of the demo: the copy, the clusters, the comparison with pooling, and what left each island."""

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_rand_score

from unpooled.app.demo.penguin_study import SEEDS, PenguinStudy

_GROUPS = 5  # of a copy that are printed


def show(result: PenguinStudy, console: Console) -> None:
    """Print a copy, the clusters, the comparison with pooling, and what left each island."""
    penguins, from_summaries, raw = result.penguins, result.from_summaries, result.raw
    console.print(
        f"[bold]{len(penguins.X)} penguins on {len(result.summaries)} islands, clustered without pooling "
        f"them[/bold]\n{penguins.dropped} more lack a measurement and are left out. Every island is a site, "
        "and answers from its copy: one row per group of penguins, and nothing else.\n"
    )
    for table in (_copy(result), _clusters(result), _comparison(result), _sent(result)):
        console.print(table)
        console.print()
    console.print(
        f"[bold]No row left its island.[/bold] The copies are the most that anybody can learn, whatever is "
        f"asked; all messages of this run together give {from_summaries.reconstructed or 'no'} row. Inertia is "
        f"{from_summaries.inertia / result.pooled.inertia:.4f} times pooling's, or "
        f"{result.worst / result.pooled.inertia:.4f} in the worst of {SEEDS} seeds. Species played no part.\n"
        "Sites that trust each other can answer from their rows, with groups below 5 left out. From these "
        f"exact sums {raw.reconstructed} rows can be worked out after one run, and more after every run "
        "that follows. docs/privacy.md says which protection is for whom."
    )


def _copy(result: PenguinStudy) -> Table:
    name, summary = min(result.summaries.items(), key=lambda item: len(item[1]))
    table = Table(title=f"The copy of {name}: {len(summary)} groups, the first {_GROUPS}")
    for heading in ("penguins", *(c.rpartition("_")[0].replace("_", " ") for c in result.penguins.columns)):
        table.add_column(heading, justify="right")
    for row in zip(*(values[:_GROUPS].tolist() for _, values in summary.cells()), strict=True):
        table.add_row(*(f"{value:.6g}" for value in row))
    return table


def _clusters(result: PenguinStudy) -> Table:
    table = Table(title="Clusters found")
    table.add_column("cluster")
    for name in (*result.summaries, "all"):
        table.add_column(name, justify="right")
    table.add_column("mostly")
    sizes = result.sizes()
    for j, by_island in enumerate(sizes.T):
        kinds, counts = np.unique(
            result.penguins.species[result.from_summaries.labels == j], return_counts=True
        )
        share = f"{kinds[counts.argmax()]} ({counts.max() / counts.sum():.0%})"
        table.add_row(str(j + 1), *map(str, by_island), str(by_island.sum()), share)
    totals = sizes.sum(axis=1)
    table.add_section()
    table.add_row("all", *map(str, totals), str(totals.sum()), "")
    return table


def _comparison(result: PenguinStudy) -> Table:
    pooled, ways = result.pooled, (result.pooled, result.from_summaries, result.raw)
    table = Table(title="Against scikit-learn's StandardScaler and KMeans(n_init=10)")
    for heading in ("", "pooled", "federated,\nfrom copies", "federated,\ntrusted"):
        table.add_column(heading, justify="right" if heading else "left")
    species, row = result.penguins.species, table.add_row
    row("inertia of all rows", *(f"{way.inertia:.3f}" for way in ways))
    row("  times pooling's", *(f"{way.inertia / pooled.inertia:.4f}" for way in ways))
    row("ARI with pooling", *(f"{adjusted_rand_score(pooled.labels, way.labels):.3f}" for way in ways))
    row("ARI with species", *(f"{adjusted_rand_score(species, way.labels):.3f}" for way in ways))
    row(
        "rows that can be rebuilt", str(len(result.penguins.X)), *(str(way.reconstructed) for way in ways[1:])
    )
    return table


def _sent(result: PenguinStudy) -> Table:
    table = Table(title="What left each island, by its own log")
    for heading in ("island", "messages", "bytes", "numbers", "groups in its copy", "its rows"):
        table.add_column(heading, justify="left" if heading == "island" else "right")
    for name, left in result.from_summaries.sent.items():
        summary = result.summaries[name]
        counts = (left.messages, left.bytes, left.numbers, len(summary), int(summary.people.sum()))
        table.add_row(name, *(f"{count:,}" for count in counts))
    return table
