"""Output of the demo: a summary table, the clusters, the comparison with pooling, and what islands sent."""

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_rand_score

from unpooled.app.demo.penguin_study import SEEDS, PenguinStudy
from unpooled.html.formatting import cluster_letter

_GROUPS = 5  # of a summary table that are printed


def show(result: PenguinStudy, console: Console) -> None:
    """Print a summary table, the clusters, the comparison with pooling, and what each island sent."""
    penguins, from_summaries, raw = result.penguins, result.from_summaries, result.raw
    smallest = min(int(table.people.min()) for table in result.summaries.values())
    console.print(
        f"[bold]{len(penguins.X)} penguins on {len(result.summaries)} islands, clustered without pooling "
        f"them[/bold]\n{penguins.dropped} more lack a measurement and are left out. Every island is a site. "
        "It answers from its summary table only (microaggregation): every row is the average of a group of "
        f"at least {smallest} penguins.\n"
    )
    for table in (_summary_table(result), _clusters(result), _comparison(result), _sent(result)):
        console.print(table)
        console.print()
    console.print(
        "[bold]No row left its island.[/bold] All queries together reveal at most the summary tables. From "
        f"the messages of this run a reconstruction attack finds {from_summaries.reconstructed or 'no'} row. "
        f"Inertia is {from_summaries.inertia / result.pooled.inertia:.4f} times that of pooling, and "
        f"{result.worst / result.pooled.inertia:.4f} times in the worst of {SEEDS} seeds. The species were "
        "not used.\n"
        "Partners bound by contract can answer from their raw rows instead, and suppress clusters of fewer "
        f"than 5. From these exact sums the attack reconstructs {raw.reconstructed} rows after one run, and "
        "more after every further run. docs/privacy.md compares the protections."
    )


def _summary_table(result: PenguinStudy) -> Table:
    name, summary = min(result.summaries.items(), key=lambda item: len(item[1]))
    table = Table(title=f"The summary table of {name}: the first {_GROUPS} of {len(summary)} groups")
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
        table.add_row(cluster_letter(j), *map(str, by_island), str(by_island.sum()), share)
    totals = sizes.sum(axis=1)
    table.add_section()
    table.add_row("all", *map(str, totals), str(totals.sum()), "")
    return table


def _comparison(result: PenguinStudy) -> Table:
    pooled, ways = result.pooled, (result.pooled, result.from_summaries, result.raw)
    table = Table(title="Against scikit-learn's StandardScaler and KMeans(n_init=10)")
    for heading in ("", "pooled", "federated,\nsummary", "federated,\nraw"):
        table.add_column(heading, justify="right" if heading else "left")
    species, row = result.penguins.species, table.add_row
    row("inertia of all rows", *(f"{way.inertia:.3f}" for way in ways))
    row("  times that of pooling", *(f"{way.inertia / pooled.inertia:.4f}" for way in ways))
    row("ARI with pooling", *(f"{adjusted_rand_score(pooled.labels, way.labels):.3f}" for way in ways))
    row("ARI with species", *(f"{adjusted_rand_score(species, way.labels):.3f}" for way in ways))
    row("rows reconstructed", str(len(result.penguins.X)), *(str(way.reconstructed) for way in ways[1:]))
    return table


def _sent(result: PenguinStudy) -> Table:
    table = Table(title="What each island sent, by its own log")
    for heading in ("island", "messages", "bytes", "numbers", "groups", "penguins"):
        table.add_column(heading, justify="left" if heading == "island" else "right")
    for name, sent in result.from_summaries.sent.items():
        summary = result.summaries[name]
        counts = (sent.messages, sent.bytes, sent.numbers, len(summary), int(summary.people.sum()))
        table.add_row(name, *(f"{count:,}" for count in counts))
    return table
