"""A finished job as one HTML page that needs nothing else: no script, no request; light, dark, on paper."""

from html import escape
from importlib.resources import files

from unpooled.outcome import Outcome
from unpooled.report import how, what, where

_SECTIONS = (
    what.answer,
    what.profiles,
    where.places,
    where.memberships,
    where.fit,
    where.spread_map,
    how.choice,
    how.convergence,
    how.preparation,
    how.left,
    how.method,
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(outcome: Outcome) -> str:
    """The report. It only reads: nothing is computed from rows here, for there are none."""
    sites = len(outcome.sites)
    title = f"{outcome.k} clusters over {sites} {'site' if sites == 1 else 'sites'}"
    style = (files(__name__) / "style.css").read_text(encoding="utf-8")
    body = "\n".join(make(outcome) for make in _SECTIONS)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{style}</style>
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
