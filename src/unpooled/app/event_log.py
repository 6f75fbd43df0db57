"""The lines of commands that run for long: for people, or as JSON for log collectors."""

import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

from unpooled.errors import InputError

_MAX_BYTES, _KEPT = 5_000_000, 3  # of a log in a file: it rotates


def check_form(form: str) -> None:
    """Raise InputError unless ``form`` names a form of lines."""
    if form not in ("text", "json"):
        raise InputError(f"--log-format must be text or json, got {form}")


class EventLog:
    """The log of a server or of a site: a line has the date, the level, who writes it and, if any, the run.

    Parameters
    ----------
    name : str
        The federation, or the site.
    form : {"text", "json"}
        How lines are written.
    file : path, str or None
        The file that takes them; None: the stream.
    verbose : bool
        Whether details are written.
    stream : file or None
        The standard output by default.
    """

    def __init__(
        self,
        name: str,
        form: str = "text",
        file: Path | str | None = None,
        *,
        verbose: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        check_form(form)
        handler: logging.Handler = (
            logging.StreamHandler(stream or sys.stdout)
            if file is None
            else RotatingFileHandler(file, maxBytes=_MAX_BYTES, backupCount=_KEPT, encoding="utf-8")
        )
        handler.setFormatter(_Json() if form == "json" else _Text())
        self.name, self.verbose = name, verbose
        self._log = logging.Logger("unpooled", logging.DEBUG if verbose else logging.INFO)
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

    def detail(self, text: str, *, run: str = "") -> None:
        """Write a line that only ``--verbose`` shows."""
        self(text, level=logging.DEBUG, run=run)


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
