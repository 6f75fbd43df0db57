"""The templates of all pages, in one environment that escapes every value.

A page is a file in ``templates``. It extends ``document.html`` (one file without outside requests: the
report, the pages of a summary table and of a log, the DPIA report) or ``live.html`` (a page that is kept up
to date: review page and monitor); both extend ``layout.html``. Every template can use the filters below, and
the elements of ``elements.html`` as ``e``. An unknown name is an error.

``make lint`` (``tools/check_templates.py``) refuses ``|safe``, ``Markup`` outside of ``svg.py``, and a block
without escaping.
"""

import base64
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from unpooled.html.formatting import cluster_letter, counted, figure, listed, percent, size
from unpooled.html.svg import colour

FOLDER = Path(__file__).parent / "templates"


def render(template: str, /, **values: object) -> str:
    """Return a page."""
    return environment().get_template(template).render(values)


def fragment(template: str, name: str, /, **values: object) -> str:
    """Return a part of a page: the result of a template's macro."""
    macro: Callable[..., str] = getattr(environment().get_template(template).module, name)
    return macro(**values)


def environment(*folders: Path) -> Environment:
    """Return the environment; templates in ``folders`` can extend and use those of the package."""
    return _environment(folders)


@cache
def _environment(folders: tuple[Path, ...]) -> Environment:
    made = Environment(
        loader=FileSystemLoader([*folders, FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        bytes=size,
        clock=_clock,
        cluster_letter=cluster_letter,
        colour=colour,
        counted=counted,
        figure=figure,
        iso=_iso,
        listed=listed,
        percent=percent,
        thousands=_thousands,
        utc=_utc,
    )
    elements: Any = made.get_template("elements.html").module
    made.globals["e"] = elements
    return made


def script_digest() -> str:
    """Return the digest of the report's script, by which a content-security policy admits it alone."""
    return base64.b64encode(hashlib.sha256(render("report.js").encode()).digest()).decode()


def _thousands(value: float) -> str:
    return f"{value:,.0f}"


def _utc(text: str) -> str:
    """Return a date and time for people, in UTC; any other text as it is.

    >>> _utc("2026-11-16T09:12:00+00:00"), _utc("never")
    ('16 Nov 2026, 09:12 UTC', 'never')
    """
    try:
        time = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return text
    return f"{time.day} {time:%b %Y, %H:%M} UTC"


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def _clock(seconds: float) -> str:
    """Return a time of this machine's clock, with the day unless it is today."""
    time = datetime.fromtimestamp(seconds).astimezone()
    day = "" if time.date() == datetime.now().date() else f"{time.day} {time:%b} "
    return f"{day}{time.hour}:{time:%M}"
