"""Questions that a command asks before it acts, and the name of the person who decides."""

import sys
from typing import Annotated

import typer

By = Annotated[
    str,
    typer.Option(
        help="Name of the person who decides (default: unpooled asks at a terminal, and else takes the "
        "account's name)."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
YesCompared = Annotated[
    bool, typer.Option("--yes", help="Do not ask. The fingerprints were compared by telephone.")
]


def confirm(question: str, yes: bool) -> None:
    """Ask a question and end the command unless the answer is yes; with ``--yes`` ask nothing."""
    if not yes:
        typer.confirm(question, abort=True)


def decided_by(by: str, yes: bool) -> str:
    """Return the name of the person who decides: as given, as asked for at a terminal, or the account's."""
    from unpooled.storage.account import account

    if by or yes or sys.stdin is None or not sys.stdin.isatty():
        return by or account()
    return str(typer.prompt("Name of the person who decides, for the log", default=account() or None))
