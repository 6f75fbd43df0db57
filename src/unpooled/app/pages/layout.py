"""The frame of the desk's pages, and small pieces of HTML that both roles use."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from importlib.resources import files

from unpooled.html.html import style, table

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
GOOD, PENDING, BAD, QUIET = "good", "pending", "bad", "quiet"
_SIGNS = {GOOD: "&#9679;", PENDING: "&#9680;", BAD: "&#9650;", QUIET: "&#9675;"}  # no meaning by colour alone


def style_sheet() -> str:
    """The report's style, and what the desk adds."""
    return style() + (files("unpooled.app.pages") / "desk.css").read_text(encoding="utf-8")


def script() -> str:
    """The one script: it shows what changed."""
    return (files("unpooled.app.pages") / "desk.js").read_text(encoding="utf-8")


def mark(html: str) -> str:
    """What tells two versions of a part apart."""
    return sha256(html.encode()).hexdigest()[:16]


def frame(title: str, where: str, heading: str, body: str, *, live: bool = False, home: str = "./") -> str:
    """A complete page; ``live``: it is kept up to date."""
    code = '<script src="desk.js" defer></script>\n' if live else ""
    lost = "The desk does not answer. If it was ended, start it again: what is shown may be old."
    changes = (
        '<p id="changes" class="unseen" role="status" aria-live="polite"></p>\n'
        f'<p id="lost" class="warn" role="alert" hidden data-said="{escape(lost)}"></p>\n'
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<link rel="stylesheet" href="{home}style.css">
{code}</head>
<body class="desk">
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><a class="name" href="{home}"><b>unpooled</b> desk</a><p id="where">{where}</p></header>
<main id="main" tabindex="-1">
<h1 id="heading">{escape(heading)}</h1>
{changes if live else ""}{body}
</main>
<footer class="foot">On this machine only, and read from the folder: closing the page loses nothing.</footer>
</body>
</html>
"""


def parts(sections: dict[str, str]) -> str:
    """The sections of a page that is kept up to date; an empty one is hidden until it says something."""
    return "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-heading" data-v="{mark(html)}"'
        f"{'' if html else ' hidden'}>{html}</section>"
        for name, html in sections.items()
    )


def headed(name: str, title: str, body: str, lead: str = "") -> str:
    """The inside of a section; ``body`` and ``lead`` are HTML already."""
    said = f'<p class="soft">{lead}</p>' if lead else ""
    return f'<h2 id="{name}-heading">{escape(title)}</h2>{said}{body}'


def pill(kind: str, text: str, *, live: bool = False) -> str:
    """A state in a word or two, with a sign; ``live``: it goes on."""
    sign = f'<span aria-hidden="true">{_SIGNS[kind]}</span>'
    return f'<span class="pill {kind}{" live" if live else ""}">{sign} {escape(text)}</span>'


def figures(values: Iterable[tuple[str, str]]) -> str:
    """Large figures with what they count."""
    shown = "".join(f"<div><b>{value}</b>{escape(name)}</div>" for value, name in values)
    return f'<div class="figures">{shown}</div>'


def warned(texts: Sequence[str], title: str) -> str:
    """What is not well, and what to do about it."""
    if not texts:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<div class="warn"><b>{escape(title)}</b><ul>{items}</ul></div>'


def scrolled(
    label: str, head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)
) -> str:
    """A table of HTML cells that a keyboard can scroll where it is wider than the page."""
    made = table(head, rows, left)
    return made.replace(
        '<div class="', f'<div tabindex="0" role="region" aria-label="{escape(label)}" class="', 1
    )


def facts(items: Iterable[tuple[str, str]]) -> str:
    """Names and values; values are HTML already."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in items) + "</dl>"


def link(href: str, text: str, *, kind: str = "", label: str = "", new: bool = False) -> str:
    """A link, as a button if it has a kind; ``label`` is for screen readers, where the text is not enough."""
    said = f' aria-label="{escape(label)}"' if label else ""
    shape = f' class="button {kind}"' if kind else ""
    opens = ' target="_blank" rel="noopener"' if new else ""
    hint = '<span class="unseen"> (in a new tab)</span>' if new and not label else ""
    return f'<a href="{escape(href)}"{shape}{said}{opens}>{escape(text)}{hint}</a>'


def when(text: str) -> str:
    """A date and time for people, in UTC.

    >>> when("2026-11-16T09:12:00+00:00")
    '<time datetime="2026-11-16T09:12:00+00:00">16 Nov 2026, 09:12 UTC</time>'
    """
    try:
        said = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return escape(text)
    return f'<time datetime="{escape(text)}">{said.day} {said:%b %Y, %H:%M} UTC</time>'


def clock(seconds: float) -> str:
    """A time of this machine's clock.

    >>> clock(0.0).startswith("<time datetime=")
    True
    """
    said = datetime.fromtimestamp(seconds).astimezone()
    day = "" if said.date() == datetime.now().date() else f"{said.day} {said:%b} "
    return f'<time datetime="{said.isoformat(timespec="seconds")}">{day}{said.hour}:{said:%M}</time>'


def duration(seconds: float) -> str:
    """A time that is left, roughly.

    >>> duration(0.2), duration(42), duration(200), duration(9000)
    ('seconds', '40 s', '3 min', '2.5 h')
    """
    if seconds < 8:
        return "seconds"
    if seconds < 90:
        return f"{round(seconds, -1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.2g} h"
