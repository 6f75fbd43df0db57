"""``python -m unpooled``: the command line."""

from unpooled.app.cli import app

app(prog_name="unpooled")
