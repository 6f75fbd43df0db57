"""``python -m unpooled``: the command line."""

from unpooled.cli import app

app(prog_name="unpooled")
