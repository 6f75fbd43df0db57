"""The lines that ``federation serve`` and ``site start`` write: for people, or as JSON for log collectors."""

import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated

import typer

from unpooled.errors import InputError

_MAX_BYTES, _KEPT = 5_000_000, 3  # of a log in a file: it rotates

LogFormat = Annotated[
    str, typer.Option(help="Lines of the log: text, or json for log collectors.", rich_help_panel="Log")
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        help="File for the log; it rotates at 5 MB and three older files are kept (default: print the log).",
        rich_help_panel="Log",
    ),
]


class EventLog:
    """The log of a server or of a site: a line has the date, the level, who writes it and, if any, the run.

    Parameters
    ----------
    name : str
        The federation, or the site.
    form : {"text", "json"}
        How lines are written.
    file : path or None
        The file that takes them; None: the standard output.
    """

    def __init__(self, name: str, form: str = "text", file: Path | None = None) -> None:
        if form not in ("text", "json"):
            raise InputError(f"--log-format must be text or json, got {form}")
        handler: logging.Handler = (
            logging.StreamHandler(sys.stdout)
            if file is None
            else RotatingFileHandler(file, maxBytes=_MAX_BYTES, backupCount=_KEPT, encoding="utf-8")
        )
        handler.setFormatter(_Json() if form == "json" else _Text())
        self.name, self._log = name, logging.Logger("unpooled")
        self._log.addHandler(handler)

    def __call__(self, text: str, *, level: int = logging.INFO, run: str = "") -> None:
        """Write a line."""
        self._log.log(level, text, extra={"subject": self.name, "run": run})

    def close(self) -> None:
        """Close the file of the log."""
        for handler in self._log.handlers:
            handler.close()

    def warn(self, text: str) -> None:
        """Write a line about a problem."""
        self(text, level=logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {record.levelname} {vars(record)['subject']}: {record.getMessage()}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = vars(record)
        values = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "name": fields["subject"],
            **({"run": fields["run"]} if fields["run"] else {}),
            "message": record.getMessage(),
        }
        return json.dumps(values, ensure_ascii=False)
