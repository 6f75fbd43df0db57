"""Small pieces of HTML that all pages share, and their style."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from unpooled.pages.svg import colour

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def style() -> str:
    """The style sheet of all pages, light and dark."""
    return (files("unpooled.pages") / "style.css").read_text(encoding="utf-8")


def whole(title: str, body: str) -> str:
    """A page that needs nothing else: no script, no request."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{style()}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
<footer>Made by unpooled: clusters of data that cannot be pooled.</footer>
</main>
</body>
</html>
"""


def section(title: str, body: str, lead: str = "", anchor: str = "") -> str:
    """A part of the page; ``lead`` and ``body`` are HTML already."""
    said = f'<p class="soft">{lead}</p>' if lead else ""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>{said}{body}</section>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """A table of HTML cells, the columns ``left`` aligned to the left; a cell may be a whole <td>."""

    def cell(j: int, said: str, name: str) -> str:
        if said.startswith("<td"):
            return said
        return f'<{name} class="left">{said}</{name}>' if j in left else f"<{name}>{said}</{name}>"

    top = "".join(cell(j, said, "th") for j, said in enumerate(head))
    body = "".join(
        "<tr>" + "".join(cell(j, said, "td") for j, said in enumerate(row)) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def chip(cluster: int) -> str:
    """The number of a cluster on its colour."""
    return f'<span class="chip {colour(cluster)}">{cluster + 1}</span>'


def soft(said: str) -> str:
    return f'<span class="soft">{said}</span>'


def small(said: str) -> str:
    return f'<p class="small soft">{said}</p>'


def listed(names: Sequence[str], most: int = 6) -> str:
    """Some names, and how many more.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return escape(", ".join(names[:most])) + more


def percent(share: float) -> str:
    """
    >>> percent(0.521), percent(0.0123)
    ('52&thinsp;%', '1.2&thinsp;%')
    """
    digits = 0 if share >= 0.095 or share == 0 else 1
    return f"{100 * share:.{digits}f}&thinsp;%"


def size(n: float) -> str:
    """
    >>> size(900), size(123_456), size(2_000_000)
    ('900 B', '123 kB', '2.0 MB')
    """
    if n < 1000:
        return f"{n:.0f} B"
    return f"{n / 1e3:.0f} kB" if n < 1e6 else f"{n / 1e6:.1f} MB"


def sentence(parts: Iterable[str]) -> str:
    """
    >>> sentence(["one blob would do", "restarts disagree"])
    'One blob would do; restarts disagree.'
    """
    said = "; ".join(parts)
    return escape(said[:1].upper() + said[1:]) + "."
