"""Rules for outputs: none is overwritten without ``--overwrite``, and an input is never overwritten.

A command that writes to a path from its user calls ``check`` before it does any work.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unpooled.errors import InputError

if TYPE_CHECKING:  # not imported at run time, so that --help is fast
    from unpooled.app.run_folder import RunFolder

_Key = str | tuple[int, int]  # the real path of a file, or its device and inode


@dataclass(frozen=True)
class FolderOutput:
    """A folder that a command fills."""

    path: Path
    what: str  # description of the filled folder: "the folder of a run"
    own: bool  # the existing contents are of this kind, so they may be replaced
    files: tuple[Path, ...] = ()  # files that the command writes
    resumed: bool = False  # the command continues with the existing files and replaces none
    holds: str = ""  # description of what would be lost


def run_output(folder: "RunFolder") -> FolderOutput:
    """The folder of a run as an output."""
    state = "a finished run" if folder.result.exists() else "a run that is not finished"
    return FolderOutput(
        folder.path,
        "the folder of a run",
        own=folder.job.exists(),
        files=folder.files,
        holds=f" (it holds {state}; unpooled resume continues it)",
    )


def beside_run(report: Path | None, folder: "RunFolder | None") -> Path | None:
    """The report, or None if it is the run's own report, which is written anyway."""
    if report is None or folder is None:
        return report
    return None if os.path.abspath(report) == os.path.abspath(folder.report) else report


def inputs_of_table(folder: Path, *outputs: Path | None) -> list[Path]:
    """Return the files of a site's summary tables; InputError if an output is the file one was made from.

    A summary table does not name that file. A file with all its columns that is not an exported summary table
    is taken for it.
    """
    tables = [
        path.parent for path in sorted(folder.glob("*/about.json")) if path.with_name("table.csv").exists()
    ]
    for table in tables:
        about = json.loads((table / "about.json").read_text(encoding="utf-8"))
        exported = _columns(table / "table.csv")
        for path in outputs:
            columns = _columns(path) if path is not None else ()
            if columns and columns != exported and set(about.get("names", [""])) <= set(columns):
                raise InputError(
                    f"{path} has the columns of the summary table's own input: an input is never overwritten"
                )
    return [table / name for table in tables for name in ("table.csv", "about.json")]


def _columns(path: Path) -> tuple[str, ...]:
    """Return the columns of a table, whatever its file name; none if the file is not a table."""
    from unpooled.data.readers.csv_file import open_csv
    from unpooled.data.readers.source import open_source
    from unpooled.options.reading import Reading

    for opened in (open_source, open_csv) if path.is_file() else ():
        with suppress(InputError):
            return opened(path.resolve(), Reading()).every
    return ()


def check(
    *outputs: Path | FolderOutput | None,
    inputs: Iterable[str | Path | None] = (),
    overwrite: bool = False,
    make_folders: bool = False,
) -> None:
    """Raise InputError unless all outputs may be written. Call it before any work is done."""
    chosen = [output for output in outputs if output is not None]
    read = [Path(path) for path in inputs if path is not None]
    known = {key: path for path in reversed(read) for key in _keys(path)}  # messages use the first name
    seen: set[_Key] = set()
    for output in chosen:
        paths = (output.path, *output.files) if isinstance(output, FolderOutput) else (output,)
        for path in paths:
            _check_no_input(path, known)
            if not seen.isdisjoint(_keys(path)):
                raise InputError(f"{path} is named for two outputs")
        seen.update(key for path in paths for key in _keys(path))
    folders_made = {
        key for output in chosen if isinstance(output, FolderOutput) for key in _keys(output.path)
    }
    for output in chosen:
        if isinstance(output, FolderOutput):
            _check_folder(output, overwrite)
        else:
            _check_file(output, overwrite, make_folders, folders_made)


def _keys(path: Path) -> set[_Key]:
    """Return keys of a file or folder: all its names and links have a key in common."""
    keys: set[_Key] = {os.path.realpath(path)}
    try:
        status = path.stat()
    except OSError:  # it does not exist
        return keys
    return {*keys, (status.st_dev, status.st_ino)}


def _check_no_input(path: Path, inputs: dict[_Key, Path]) -> None:
    for key in _keys(path) & inputs.keys():
        which = "an input" if path == inputs[key] else f"the input {inputs[key]}"
        raise InputError(f"{path} is {which}: an input is never overwritten")


def _check_file(path: Path, overwrite: bool, make_folders: bool, folders_made: set[_Key]) -> None:
    if path.is_dir():
        raise InputError(f"{path}: there is a folder of that name")
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path} is not a regular file, so it is not replaced"
        )  # a device would become a file
    if os.path.lexists(path) and not overwrite:  # a broken link exists, too
        raise InputError(f"{path} already exists. Use --overwrite to replace it.")
    if folders_made.isdisjoint(_keys(path.parent)):
        _check_writable(path, path.parent, make_folders)


def _check_folder(folder: FolderOutput, overwrite: bool) -> None:
    path = folder.path
    if os.path.lexists(path) and not path.is_dir():
        raise InputError(f"{path}: there is a file of that name")
    if not path.exists():
        _check_writable(path, path.parent, make_folders=True)
        return
    # of a process that was killed while it wrote a file, or checked that it can
    unfinished = (".unpooled.", *(f".{file.name}." for file in folder.files))
    if any(not entry.name.startswith(unfinished) for entry in path.iterdir()):
        if not folder.own:
            raise InputError(f"{path} is not empty, and not {folder.what}")
        if not folder.resumed and not overwrite:
            raise InputError(f"{path} already exists{folder.holds}. Use --overwrite to replace it.")
    _check_writable(path, path, make_folders=False)


def _check_writable(path: Path, folder: Path, make_folders: bool) -> None:
    """Raise InputError if no file can be created in ``folder``, or in the nearest folder above it."""
    while make_folders and not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: there is a file of that name")
    if not folder.is_dir():
        raise InputError(f"{path}: there is no folder {folder}")
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=".unpooled.")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    os.close(handle)
    os.unlink(name)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; it replaces ``path`` once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as beside:
        new, old = Path(beside) / "new" / path.name, Path(beside) / "old"
        new.mkdir(parents=True)
        yield new
        if path.exists():
            path.rename(old)
        new.rename(path)
