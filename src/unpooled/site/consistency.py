"""The consistency of a site's folder: log, ledger and registry of people name each other's entries."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unpooled.errors import LedgerError
from unpooled.site.chained_file import ChainedFile
from unpooled.site.ledger import Ledger
from unpooled.site.log import CONTINUED, Log
from unpooled.site.log_files import lines, parsed, protections, tail


def check_audit_trail(log: Log, ledger: Ledger, registry: ChainedFile | None = None) -> None:
    """Raise LedgerError unless log, ledger and registry have the entries by which each names another.

    The ledger is written before the log has the answer, so it may be ahead by what a kill cut off. From here
    on its links name the head of the log.
    """
    _check_marks(log, ledger, registry)
    ledger.log_head = log.mark
    _check_contents(log, ledger)


def _check_marks(log: Log, ledger: Ledger, registry: ChainedFile | None) -> None:
    for file, chain in (("ledger", ledger), ("registry", registry)):
        number, _, head = ("" if chain is None else chain.last_log_head).partition(":")
        if head and log.hash_at(int(number)) != head:
            raise LedgerError(
                f"{log.path}: the log is lost, or older than the {file}: its line {int(number) + 1} is not "
                f"the one that the {file} names. Nothing is answered."
            )
    audit_trail: dict[str, ChainedFile | None] = {"ledger": ledger, "registry": registry}
    for line in tail(log.path):
        entry = parsed(line, log.path)
        for name in [name for name in audit_trail if name in entry]:
            chain = audit_trail.pop(name)
            if chain is None or not chain.has(entry[name]):
                file = "registry of people" if name == "registry" else name
                raise LedgerError(
                    f"{log.path.parent}: the {file} is lost, or older than the log: line {entry['seq'] + 1} "
                    f"of the log names an entry that the {name} lacks. Nothing is answered."
                )
        if "ledger" in entry and entry["kind"] != CONTINUED:  # it names all files that there were
            return


def _check_contents(log: Log, ledger: Ledger) -> None:
    """Raise LedgerError unless the ledger holds what it wrote."""
    try:
        ledger.check()
    except LedgerError as error:
        raise LedgerError(f"{log.path.parent}: {error}. Nothing is answered.") from None


def check_protection(path: Path, mode: str) -> None:
    """Raise LedgerError if the protection of earlier answers does not go with ``mode``.

    Differential privacy after exact answers promises nothing, and exact answers afterwards void its promise.
    """
    if not path.exists():
        return
    for before in sorted(protections(_read(path))):
        if (before == "dp") != (mode == "dp"):
            how = "with" if before == "dp" else "without"
            why = (
                "another mode would void the promise of differential privacy"
                if before == "dp"
                else "differential privacy would promise nothing any more"
            )
            raise LedgerError(
                f"{path.parent}: the site answered {how} differential privacy before "
                f'(mode = "{before}"), and {why}. Use a folder of its own.'
            )


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log that name a protection, from the first; an unfinished last line is not read."""
    for line in lines(path):
        if b'"kind":"release"' in line:  # not read in full: it may be long
            yield {"kind": "release", "spent": b'"spent":null' not in line}
        elif b'"kind":"opening"' in line or b'"kind":"continued"' in line:
            with contextlib.suppress(ValueError):
                yield json.loads(line)
