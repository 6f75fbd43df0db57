"""Tables as Markdown and figures as SVG files, for comparisons and for the papers in ``reproduction``."""

from unpooled.html.rendering import render
from unpooled.html.svg import tag


def aligned_table(cells: list[list[str]], left: int) -> str:
    """Return cells as a Markdown table with columns that are aligned in its source.

    The first row is the heading. The first ``left`` columns are aligned to the left, the others to the right.

    >>> print(aligned_table([["a", "n"], ["longer", "10"]], 1), end="")
    | a      |  n |
    | ------ | -: |
    | longer | 10 |
    """
    width = [max(2, *(len(row[j]) for row in cells)) for j in range(len(cells[0]))]
    lines = []
    for i, row in enumerate(cells):
        padded = [
            c.ljust(w) if j < left else c.rjust(w) for j, (c, w) in enumerate(zip(row, width, strict=True))
        ]
        lines.append("| " + " | ".join(padded) + " |")
        if i == 0:
            marks = ["-" * w if j < left else "-" * (w - 1) + ":" for j, w in enumerate(width)]
            lines.append("| " + " | ".join(marks) + " |")
    return "\n".join(lines) + "\n"


def standalone_svg(svg: str) -> str:
    """Return a drawing as the content of a file of its own, with its style sheet in it."""
    alone = str(svg).replace("<svg ", '<svg style="background: var(--bg)" ', 1)
    at = alone.index(">") + 1
    return f"{alone[:at]}{tag('style', render('style.css'))}{alone[at:]}\n"
