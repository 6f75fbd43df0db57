"""Options of the log of a command that runs for long."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from unpooled.app.cli.options import Options
from unpooled.app.event_log import EventLog, check_form


def _of_log(text: str, *names: str) -> Any:
    """Return an option of the log, under its own name or others."""
    return typer.Option(*names, help=text, rich_help_panel="Log")


Verbose = Annotated[bool, _of_log("Also log every answer, and the progress of runs.", "--verbose", "-v")]


@dataclass(frozen=True)
class LogOptions(Options):
    """Options of the log of a command that runs for long."""

    log_format: Annotated[str, _of_log("Lines of the log: text, or json for log collectors.")] = "text"
    log_file: Annotated[
        Path | None,
        _of_log(
            "File for the log; it rotates at 5 MB and three older files are kept (default: print the log)."
        ),
    ] = None
    verbose: Verbose = False

    def opened(self, name: str) -> EventLog:
        """Return the log of a federation or of a site."""
        return EventLog(name, **self.values)

    @property
    def values(self) -> dict[str, Any]:
        """The arguments of an EventLog."""
        check_form(self.log_format)
        file = None if self.log_file is None else str(self.log_file.absolute())
        return {"form": self.log_format, "file": file, "verbose": self.verbose}

    @property
    def words(self) -> list[str]:
        """The options but the file, for a process that this one starts."""
        return ["--log-format", self.log_format, *(["--verbose"] if self.verbose else [])]
