"""The process of a site in several federations: it keeps a process for each of them alive."""

from pathlib import Path
from typing import Any

from unpooled.app import site_process
from unpooled.app.event_log import EventLog
from unpooled.app.lasting_process import call, words
from unpooled.federation import die_with_parent
from unpooled.federation.provisioning.supervisor import supervise_all


def main(folder: str, memberships: list[dict[str, Any]]) -> None:
    """Run the processes of a site's memberships until SIGTERM or SIGINT.

    ``memberships`` are values of ``site_process.main``. A log in a file has one writer, so the processes
    print theirs.
    """
    log = EventLog(memberships[0]["site"], **memberships[0]["log"])
    commands = {}
    for one in memberships:
        printing = one | {"log": one["log"] | {"file": None}}
        commands[one["address"][0]] = die_with_parent.command(*words(site_process.__name__, printing))
    supervise_all(commands, Path(folder), log)


if __name__ == "__main__":
    call(main)
