"""From files to tables: every file a site, or one file split by a column."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unpooled.data import Table
from unpooled.data.readers.csv_file import open_csv
from unpooled.data.readers.numpy_file import open_array
from unpooled.data.readers.parquet_file import open_parquet
from unpooled.data.readers.source import Reading, Source, tables_of
from unpooled.errors import BadInput

__all__ = ["Reading", "open_file", "read_sites", "read_table"]

_OPENERS = {
    ".csv": open_csv,
    ".tsv": open_csv,
    ".txt": open_csv,
    ".parquet": open_parquet,
    ".pq": open_parquet,
    ".npy": open_array,
    ".npz": open_array,
}


def open_file(path: Path, reading: Reading) -> Source:
    """A file by its ending; checks that it can be read and has what is asked for."""
    opener = _OPENERS.get(path.suffix.lower())
    if opener is None:
        raise BadInput(f"{path}: unknown kind of file; known are {', '.join(_OPENERS)}")
    if not path.exists():
        raise BadInput(f"{path}: no such file")
    if not path.is_file():
        raise BadInput(f"{path}: not a file")
    if path.stat().st_size == 0:
        raise BadInput(f"{path}: the file is empty")
    source = opener(path, reading)
    if reading.site_column is not None and reading.site_column not in source.every:
        raise BadInput(f"{path}: no column {reading.site_column}; columns are {_some(source.every)}")
    if not [name for name in source.names if name != reading.site_column]:
        wanted = f"none of {_some(reading.columns)}" if reading.columns else "no other column"
        raise BadInput(f"{path}: {wanted} is in it; columns are {_some(source.every)}")
    return source


def read_sites(paths: Sequence[Path], reading: Reading) -> dict[str, Table]:
    """A table per site: named after its file, or after the values of ``reading.site_column``."""
    tables: dict[str, Table] = {}
    origin: dict[str, Path] = {}
    short = len({path.stem for path in paths}) == len(paths)
    sources = [open_file(path, reading) for path in paths]
    _check_names(sources, reading)
    for path, source in zip(paths, sources, strict=True):
        found = tables_of(source, reading, reading.room // len(paths))
        for name, table in found.items():
            name = name or (path.stem if short else str(path))
            if name in tables:
                raise BadInput(f"site {name} is both in {origin[name]} and in {path}: one file per site")
            tables[name], origin[name] = table, path
    return tables


def read_table(path: Path, reading: Reading) -> Table:
    """All rows of one file."""
    reading = replace(reading, site_column=None)
    (table,) = tables_of(open_file(path, reading), reading, reading.room).values()
    return table


def _check_names(sources: Sequence[Source], reading: Reading) -> None:
    """A column that is named must be in some file: a misspelt name is an error, not a wish."""
    every = list(dict.fromkeys(name for source in sources for name in source.every))
    told = [text.partition("=")[0] for text in reading.na if "=" in text]
    for name in (*(reading.columns or ()), *reading.exclude, *reading.categories, *told):
        if name not in every:
            raise BadInput(f"no file has a column {name}; columns are {_some(every)}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
