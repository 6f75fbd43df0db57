"""The consistency of a site's folder: log, ledger, registry of people and summary table name each other.

Every line of the log names the last link of the ledger and of the registry, and their links name the head of
the log (``chained_file``). The registry names the summary table and every erasure. A file that was lost, cut,
edited or replaced by an older one is therefore found by another one, and the site does not answer. Before
anything is read, ``check_folder_format`` refuses a folder of another format, which nobody may take for an
empty one.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unpooled.errors import LedgerError
from unpooled.site.chained_file import ChainedFile, check_file_format
from unpooled.site.erasures import Erasures
from unpooled.site.ledger import Ledger
from unpooled.site.log import CONTINUED, Log
from unpooled.site.log_files import check_log_format, lines, parsed, protections, segments, tail
from unpooled.site.people_register import Registry, entries_back
from unpooled.site.study_store import check_approved
from unpooled.storage.file_format import format_error

_EARLIER = ("copy*/about.json", "engine/startup")  # files before format 1: summary table, federation
_CHAINED = {"ledger.sqlite": "ledger", "registry.sqlite": "registry"}


def check_folder_format(folder: Path) -> None:
    """Raise LedgerError if a file in the folder has another format, or is where this release does not look.

    The descriptions of summary tables and the studies are checked when they are read.
    """
    if any(found for pattern in _EARLIER for found in folder.glob(pattern)):
        raise LedgerError(f"{folder}: the folder of a site has {format_error(None)}")
    for file in segments(folder / "log.jsonl"):
        if file.exists():
            check_log_format(file)
    for name, what in _CHAINED.items():
        if (folder / name).exists():
            check_file_format(folder / name, what)


def check_site_folder(
    folder: Path,
    log: Log,
    ledger: Ledger,
    registry: Registry | None = None,
    *,
    mode: str,
    table: str = "",
    study: str = "",
) -> None:
    """Raise LedgerError unless the files in a folder belong together and allow answers in this mode.

    A site checks this when it is opened, with its log locked, before it answers anything. The ledger is
    written before the log has the answer, so it may be ahead by what a kill cut off. From here on its links
    name the head of the log.

    Parameters
    ----------
    folder
        The folder of a site or a relay.
    log, ledger, registry
        Its open files; it does not have a registry if people have no ids.
    mode
        The protection of its answers: "summary", "raw", "dp", or "sums" of a relay.
    table
        The digest of the summary table that it answers from, if people are in the registry.
    study
        The digest of the study that must be approved; "": the run is not one between machines.
    """
    _check_protection(folder, log, ledger, mode)
    if registry is not None:
        check_registry(folder, registry, table)
    _check_marks(folder, log, ledger, registry)
    ledger.log_head = log.mark
    try:
        ledger.check()
    except LedgerError as error:
        raise LedgerError(f"{folder}: {error}. Nothing is answered.") from None
    if study:
        check_approved(log, study)


def check_registry(folder: Path, registry: Registry | None, table: str = "") -> None:
    """Raise LedgerError if the log or erasures.json name an entry that the registry (None: lost) lacks.

    With ``table`` the registry must name the summary table of this digest. Another process may be writing the
    log: the process that opens the site checks again, with the log locked.
    """
    if table and registry is not None and registry.current != table:
        raise LedgerError(
            f"{folder}: the summary table is not the one that the registry names: one of them was "
            "lost, or is an older one. Nothing is answered."
        )
    for entry in entries_back(folder / "log.jsonl", b'"registry":'):
        if (mark := entry.get("registry")) is None:
            continue
        if registry is None or not registry.has(mark):
            raise LedgerError(
                f"{folder}: the registry of people is lost, or older than the log: line {entry['seq'] + 1} "
                "of the log names an entry that the registry lacks. Nothing is answered or updated."
            )
        break
    Erasures(folder).check(() if registry is None else registry.erasures())


def line_that_log_lacks(chain: ChainedFile, hash_at: Callable[[int], str]) -> int | None:
    """Return the number of the line that a file names and the log lacks; None: the log has it.

    ``hash_at`` gives the hash of a line of the log; "" if there is none.
    """
    number, _, head = chain.last_log_head.partition(":")
    return int(number) if head and hash_at(int(number)) != head else None


def _check_marks(folder: Path, log: Log, ledger: Ledger, registry: Registry | None) -> None:
    """Raise LedgerError unless log, ledger and registry have the entries by which each names another."""
    files: dict[str, ChainedFile | None] = {"ledger": ledger, "registry": registry}
    for file, chain in files.items():
        if chain is not None and (lacking := line_that_log_lacks(chain, log.hash_at)) is not None:
            raise LedgerError(
                f"{log.path}: the log is lost, or older than the {file}: its line {lacking + 1} is not "
                f"the one that the {file} names. Nothing is answered."
            )
    for line in tail(log.path):
        entry = parsed(line, log.path)
        for name in [name for name in files if name in entry]:
            chain = files.pop(name)
            if chain is None or not chain.has(entry[name]):
                file = "registry of people" if name == "registry" else name
                raise LedgerError(
                    f"{folder}: the {file} is lost, or older than the log: line {entry['seq'] + 1} "
                    f"of the log names an entry that the {name} lacks. Nothing is answered."
                )
        if "ledger" in entry and entry["kind"] != CONTINUED:  # it names all files that there were
            return


def _check_protection(folder: Path, log: Log, ledger: Ledger, mode: str) -> None:
    """Raise LedgerError if the protection of earlier answers does not go with ``mode``.

    Differential privacy after exact answers promises nothing, and exact answers afterwards void its promise.
    """
    for before in sorted(protections(_protecting_lines(log.path))):
        if (before == "dp") != (mode == "dp"):
            how = "with" if before == "dp" else "without"
            why = (
                "another mode would void the promise of differential privacy"
                if before == "dp"
                else "differential privacy would promise nothing any more"
            )
            raise LedgerError(
                f"{folder}: the site answered {how} differential privacy before "
                f'(mode = "{before}"), and {why}. Set the mode back in the policy.'
            )
    if mode != "dp" and ledger.spent():
        raise LedgerError(
            f"{folder}: the site answered with differential privacy before, and another mode would void its "
            'promise. Set the policy back to mode = "dp".'
        )


def _protecting_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log that name a protection, from the first; an unfinished last line is not read."""
    for line in lines(path):
        if b'"kind":"release"' in line:  # not read in full: it may be long
            yield {"kind": "release", "spent": b'"spent":null' not in line}
        elif b'"kind":"export"' in line:
            yield {"kind": "export"}
        elif b'"kind":"opening"' in line or b'"kind":"continued"' in line:
            with contextlib.suppress(ValueError):
                yield json.loads(line)
