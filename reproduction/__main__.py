"""``python -m reproduction``: list the experiments of the papers, and run them."""

from reproduction.command_line import PROGRAM, app

app(prog_name=PROGRAM)
