"""The demo's figure: the clusters, and their rows at every island. Needs matplotlib."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from unpooled.app.demo.penguin_study import PenguinStudy
from unpooled.html.formatting import cluster_letter
from unpooled.storage.atomic_files import write_atomically

COLOURS = ("#0072B2", "#E69F00", "#009E73")  # blue, orange and green that colour-blind people can distinguish
MARKERS = ("o", "^", "s")


def draw(result: PenguinStudy, path: Path) -> None:
    """Write the figure to ``path``."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    FigureCanvasAgg(figure)
    points, bars = figure.subplots(1, 2, width_ratios=(1.35, 1))
    _draw_points(points, result)
    _draw_bars(bars, result)
    ratio = result.from_summaries.inertia / result.pooled.inertia
    figure.suptitle(
        f"{len(result.penguins.X)} penguins clustered without pooling: {ratio:.4f} of the inertia of pooling"
    )
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=150)
    write_atomically(path, drawn.getvalue())


def _draw_points(axes: Any, result: PenguinStudy) -> None:
    penguins, found = result.penguins, result.from_summaries
    x, y = (penguins.columns.index(name) for name in ("bill_length_mm", "flipper_length_mm"))
    for marker, island in zip(MARKERS, result.summaries, strict=True):
        for j, colour in enumerate(COLOURS):
            rows = penguins.X[(penguins.island == island) & (found.labels == j)]
            axes.scatter(rows[:, x], rows[:, y], s=28, c=colour, marker=marker, alpha=0.7, lw=0)
        axes.scatter([], [], c="0.35", marker=marker, label=island)
    moved = penguins.X[found.labels != result.pooled.labels]
    ring = {"s": 75, "fc": "none", "ec": "0.2", "lw": 0.8}
    axes.scatter(moved[:, x], moved[:, y], **ring, label=f"other cluster if pooled ({len(moved)})")
    star = {"s": 260, "marker": "*", "ec": "black", "lw": 1.2}
    axes.scatter(found.centers[:, x], found.centers[:, y], c=COLOURS, **star, zorder=3)
    axes.scatter([], [], c="white", **star, label="cluster centre")
    axes.set(xlabel=_title(penguins.columns[x]), ylabel=_title(penguins.columns[y]))
    axes.set_title("clusters (colour) of the penguins of each island (shape)", fontsize=10)
    axes.legend(loc="upper left", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_bars(axes: Any, result: PenguinStudy) -> None:
    islands, sizes = list(result.summaries), result.sizes()
    for j, colour in enumerate(COLOURS):
        places = np.arange(len(islands)) + (j - 1) * 0.27
        bars = axes.bar(places, sizes[:, j], width=0.25, color=colour, label=f"cluster {cluster_letter(j)}")
        axes.bar_label(bars, padding=2)
    named = [f"{name}\n{row.sum()} penguins" for name, row in zip(islands, sizes, strict=True)]
    axes.set_xticks(range(len(islands)), named)
    axes.set(ylabel="penguins")
    axes.set_title("penguins of each island by cluster", fontsize=10)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _title(column: str) -> str:
    """
    >>> _title("bill_length_mm")
    'bill length (mm)'
    """
    name, _, unit = column.rpartition("_")
    return f"{name.replace('_', ' ')} ({unit})"
