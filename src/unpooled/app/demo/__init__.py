"""``unpooled example penguins --run``: the penguins of three islands, clustered without pooling them.

Every island is a site that answers from its summary table, as a real site would by default. The same job is
done twice more for comparison: by sites that answer from their raw rows, and by scikit-learn on pooled rows.
The numbers of messages come from the islands' own logs, which a reconstruction attack then reads.
"""

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from unpooled.app.demo.penguin_study import compare
from unpooled.app.demo.show import show
from unpooled.errors import install_hint

FIGURE = "penguins.png"


def main(out: Path, console: Console) -> None:
    """Run the demo: print the comparison, and write the figure into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    result = compare()
    show(result, console)
    try:
        from unpooled.app.demo.figure import draw
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "matplotlib":
            raise
        console.print(
            f"\nThere is no figure, because matplotlib is not installed. {escape(install_hint('figures'))}",
            soft_wrap=True,
        )
        return
    draw(result, out / FIGURE)
    console.print(f"\nFigure: {out / FIGURE}", soft_wrap=True)
