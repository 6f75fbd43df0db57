"""The frame of the review page and of the monitor, and HTML elements that both use."""

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
_SIGNS = {GOOD: "&#9679;", PENDING: "&#9680;", BAD: "&#9650;", QUIET: "&#9675;"}  # colour alone means nothing


def style_sheet() -> str:
    """Return the style sheet of both pages: that of the report, with additions."""
    return style() + (files("unpooled.app.pages") / "pages.css").read_text(encoding="utf-8")


def script() -> str:
    """Return the only script of both pages: it shows what changed."""
    return (files("unpooled.app.pages") / "pages.js").read_text(encoding="utf-8")


def mark(html: str) -> str:
    """Return a digest that distinguishes two versions of a section."""
    return sha256(html.encode()).hexdigest()[:16]


def frame(
    name: str, title: str, where: str, heading: str, body: str, *, live: bool = False, home: str = "./"
) -> str:
    """Return a complete page, part of the review page or the monitor (``name``).

    ``where`` and ``body`` are HTML. With ``live`` the script keeps the page up to date.
    """
    code = '<script src="pages.js" defer></script>\n' if live else ""
    lost = f"The {name} does not answer, and this page may be out of date. Start the {name} again."
    changes = (
        '<p id="changes" class="unseen" role="status" aria-live="polite"></p>\n'
        f'<p id="lost" class="warn" role="alert" hidden data-text="{escape(lost)}"></p>\n'
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
<body class="pages">
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><a class="name" href="{home}"><b>unpooled</b> {name}</a><p id="where">{where}</p></header>
<main id="main" tabindex="-1">
<h1 id="heading">{escape(heading)}</h1>
{changes if live else ""}{body}
</main>
<footer class="foot">Only this machine can open this page. Closing it loses nothing.</footer>
</body>
</html>
"""


def parts(sections: dict[str, str]) -> str:
    """Return the sections of a page that is kept up to date; empty ones are invisible."""
    return "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-heading" data-v="{mark(html)}"'
        f"{'' if html else ' hidden'}>{html}</section>"
        for name, html in sections.items()
    )


def headed(name: str, title: str, body: str, lead: str = "") -> str:
    """Return the inside of a section; ``body`` and ``lead`` are HTML."""
    caption = f'<p class="soft">{lead}</p>' if lead else ""
    return f'<h2 id="{name}-heading">{escape(title)}</h2>{caption}{body}'


def pill(kind: str, text: str, *, live: bool = False) -> str:
    """Return a state in a word or two, with a sign; ``live`` marks one that is in progress."""
    sign = f'<span aria-hidden="true">{_SIGNS[kind]}</span>'
    return f'<span class="pill {kind}{" live" if live else ""}">{sign} {escape(text)}</span>'


def figures(values: Iterable[tuple[str, str]]) -> str:
    """Return large figures with their names."""
    boxes = "".join(f"<div><b>{value}</b>{escape(name)}</div>" for value, name in values)
    return f'<div class="figures">{boxes}</div>'


def warned(texts: Sequence[str], title: str) -> str:
    """Return a box with problems and what to do about them; "" if there are none."""
    if not texts:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<div class="warn"><b>{escape(title)}</b><ul>{items}</ul></div>'


def scrolled(
    label: str, head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)
) -> str:
    """Return a table of HTML cells that the keyboard can scroll if it is wider than the page."""
    made = table(head, rows, left)
    return made.replace(
        '<div class="', f'<div tabindex="0" role="region" aria-label="{escape(label)}" class="', 1
    )


def facts(items: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values; values are HTML."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in items) + "</dl>"


def link(href: str, text: str, *, kind: str = "", label: str = "", new: bool = False) -> str:
    """Return a link, as a button if it has a kind; ``label`` is a longer text for screen readers."""
    spoken = f' aria-label="{escape(label)}"' if label else ""
    shape = f' class="button {kind}"' if kind else ""
    opens = ' target="_blank" rel="noopener"' if new else ""
    hint = '<span class="unseen"> (in a new tab)</span>' if new and not label else ""
    return f'<a href="{escape(href)}"{shape}{spoken}{opens}>{escape(text)}{hint}</a>'


def when(text: str) -> str:
    """Return a date and time for people, in UTC.

    >>> when("2026-11-16T09:12:00+00:00")
    '<time datetime="2026-11-16T09:12:00+00:00">16 Nov 2026, 09:12 UTC</time>'
    """
    try:
        time = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return escape(text)
    return f'<time datetime="{escape(text)}">{time.day} {time:%b %Y, %H:%M} UTC</time>'


def clock(seconds: float) -> str:
    """Return a time of this machine's clock.

    >>> clock(0.0).startswith("<time datetime=")
    True
    """
    time = datetime.fromtimestamp(seconds).astimezone()
    day = "" if time.date() == datetime.now().date() else f"{time.day} {time:%b} "
    return f'<time datetime="{time.isoformat(timespec="seconds")}">{day}{time.hour}:{time:%M}</time>'


def duration(seconds: float) -> str:
    """Return a rough duration.

    >>> duration(0.2), duration(42), duration(200), duration(9000)
    ('seconds', '40 s', '3 min', '2.5 h')
    """
    if seconds < 8:
        return "seconds"
    if seconds < 90:
        return f"{round(seconds, -1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.2g} h"
