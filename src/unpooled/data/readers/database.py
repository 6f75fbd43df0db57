"""Databases: SQLite and DuckDB files, and PostgreSQL servers, each by the site's own query, read-only.

Rows come in batches, and the driver never holds all of them. A password comes from PGPASSWORD or ~/.pgpass,
as for PostgreSQL's own programs. An address with a password is refused, because addresses are written to
files.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from unpooled.data.readers.arrow_cells import batch_source, pyarrow_for, rows_at_a_time
from unpooled.data.readers.cell_text import Cells
from unpooled.data.readers.source import Source, is_address
from unpooled.errors import InputError, install_hint
from unpooled.options.reading import Reading

_DRIVER_MESSAGE = re.compile(
    r"(?:ERROR|FATAL|failed|Error): (?!FATAL|ERROR)(.*?)"
    r"(?:,? LINE \d|Query was:|\. SQLSTATE|This probably means|Is the server running|Candidate bindings|$)"
)
_SERVERS = ("postgresql", "postgres")
_TABLES = {
    "SQLite": "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%'",
    "DuckDB": "select table_name from information_schema.tables where table_schema = 'main'",
}


@dataclass(frozen=True)
class Database:
    """A database and the query that selects a site's rows.

    Parameters
    ----------
    address : str or path
        The address of a server, or the file of a SQLite or DuckDB database.
    query : str, path or None
        SQL, or the ``Path`` of an SQL file. None takes the only table of the file.

    Examples
    --------
    >>> from unpooled.data import Database
    >>> Database("postgresql://reader@host/clinic", "select age, bmi from visits order by id").query
    'select age, bmi from visits order by id'
    """

    address: str | Path  # of a server, or the file of a SQLite or DuckDB database
    query: str | Path | None = None


def open_database(path: Path, reading: Reading) -> Source:
    """Open a SQLite or DuckDB file with the query that ``reading`` names."""
    return open_query(Database(path, Path(reading.query) if reading.query is not None else None), reading)


def open_server(address: str, reading: Reading) -> Source:
    """Open a PostgreSQL server with the query that ``reading`` names."""
    return open_query(Database(address, Path(reading.query) if reading.query is not None else None), reading)


def open_query(database: Database, reading: Reading) -> Source:
    """Return the rows that a query selects. The query runs at once, so that its errors appear at once."""
    sql, named = _sql(database.query), f" {database.query}" if isinstance(database.query, Path) else ""
    if is_address(str(database.address)):
        _check_address(str(database.address))
        if sql is None:
            raise InputError(f"{database.address}: which rows? --query cohort.sql names the site's query")
        return _postgresql(str(database.address), sql, named, reading)
    path = Path(database.address)
    kind = _kind(path)
    opened = _sqlite if kind == "SQLite" else _duckdb
    return opened(path, sql, named, reading)


def _sql(query: str | Path | None) -> str | None:
    """The text of a query without what ends it."""
    if isinstance(query, Path):
        try:
            query = query.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise InputError(f"{query}: {reason}") from error
    sql = None if query is None else query.strip().rstrip(";").rstrip()
    if sql == "":
        raise InputError("the query is empty")
    return sql


def _check_address(address: str) -> None:
    """Raise InputError for another server than PostgreSQL, and for a password in the address."""
    try:
        parts = urlsplit(address)
    except ValueError as error:
        where = address.rpartition("@")[2]  # without a password
        raise InputError(f"{where}: not the address of a server ({error})") from error
    if parts.scheme not in _SERVERS:
        raise InputError(f"{parts.scheme}://: servers are addressed by postgresql://user@host/database")
    if parts.password is not None or "password" in parse_qs(parts.query):
        raise InputError(
            f"{parts.scheme}://{parts.hostname or ''}{parts.path}: a password in the address would be "
            "written to files. Use PGPASSWORD or ~/.pgpass"
        )


def _kind(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with path.open("rb") as file:
        head = file.read(16)
    if head == b"SQLite format 3\0":
        return "SQLite"
    if head[8:12] == b"DUCK":
        return "DuckDB"
    raise InputError(f"{path}: neither a SQLite nor a DuckDB database")


def _only_table(path: Path, names: list[str]) -> str:
    if len(names) != 1:
        tables = f"tables are {', '.join(sorted(names)[:20])}" if names else "it has no table"
        raise InputError(f"{path}: which rows? {tables}; --query cohort.sql names the site's query")
    quoted = names[0].replace('"', '""')
    return f'select * from "{quoted}"'  # noqa: S608  the name is quoted


def _line(error: BaseException) -> str:
    """The message of a driver on one line, without the driver's own words around it."""
    text = " ".join(str(error).split())
    match = _DRIVER_MESSAGE.search(text)
    text = match[1].strip() if match else text
    return text if len(text) <= 300 else text[:297] + "..."


# ---------------------------------------------------------------- PostgreSQL, by its ADBC driver


def _postgresql(address: str, sql: str, named: str, reading: Reading) -> Source:
    arrow = pyarrow_for(f"{address}: PostgreSQL")
    try:
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi
    except ModuleNotFoundError as missing:
        raise InputError(f"{address}: PostgreSQL needs its driver. {install_hint('postgresql')}") from missing
    try:
        connection = dbapi.connect(address, autocommit=True)
    except Error as error:
        reason = _line(error)
        hint = ". Use PGPASSWORD or ~/.pgpass" if "no password supplied" in reason else ""
        raise InputError(f"{address}: no connection: {reason}{hint}") from error
    try:
        cursor = connection.cursor()
        cursor.execute("set default_transaction_read_only = on")
        cursor.execute(sql)
        reader = cursor.fetch_record_batch()
    except (Error, arrow.ArrowException, OSError) as error:
        connection.close()
        raise InputError(f"{address}: the query{named} failed: {_line(error)}") from error

    def close() -> None:
        cursor.close()
        connection.close()

    failures = (Error, arrow.ArrowException, OSError)
    batches = _streamed(address, reader, close, failures)
    return batch_source(address, reader.schema.names, batches, reading, usual=".")


def _streamed(
    where: Path | str, reader: Any, close: Callable[[], None], failures: tuple[type[BaseException], ...]
) -> Callable[[tuple[str, ...]], Iterator[Any]]:
    """The batches of a reader; InputError names the row after which a database failed."""

    def batches(names: tuple[str, ...]) -> Iterator[Any]:
        rows = 0
        try:
            for batch in reader:
                rows += batch.num_rows
                yield batch
        except failures as error:
            raise InputError(f"{where}: no more rows after {rows}: {_line(error)}") from error
        finally:
            reader.close()  # first: DuckDB opens no file anew while a reader holds it
            close()

    return batches


# ---------------------------------------------------------------- DuckDB


def _duckdb(path: Path, sql: str | None, named: str, reading: Reading) -> Source:
    arrow = pyarrow_for(f"{path}: DuckDB")
    try:
        import duckdb
    except ModuleNotFoundError as missing:
        raise InputError(f"{path}: DuckDB needs its package. {install_hint('duckdb')}") from missing
    try:
        connection = duckdb.connect(str(path), read_only=True)
    except duckdb.Error as error:
        raise InputError(f"{path}: cannot be opened: {_line(error)}") from error
    try:
        if sql is None:
            tables = connection.execute(_TABLES["DuckDB"]).fetchall()
            sql = _only_table(path, [name for (name,) in tables])
        reader: Any = connection.sql(sql).to_arrow_reader(rows_at_a_time(8))
    except duckdb.Error as error:
        connection.close()
        raise InputError(f"{path}: the query{named} failed: {_line(error)}") from error
    except BaseException:
        connection.close()
        raise
    failures = (duckdb.Error, arrow.ArrowException, OSError)
    batches = _streamed(path, reader, connection.close, failures)
    return batch_source(path, reader.schema.names, batches, reading, usual=".")


# ---------------------------------------------------------------- SQLite, by Python's own module


def _sqlite(path: Path, sql: str | None, named: str, reading: Reading) -> Source:
    import sqlite3

    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        if sql is None:
            tables = connection.execute(_TABLES["SQLite"]).fetchall()
            sql = _only_table(path, [name for (name,) in tables])
        cursor = connection.execute(sql)
        every = tuple(column[0] for column in cursor.description or ())
        first = cursor.fetchmany(rows_at_a_time(len(every)))
    except (sqlite3.Error, sqlite3.Warning) as error:
        connection.close()
        raise InputError(f"{path}: the query{named} failed: {_line(error)}") from error
    except BaseException:
        connection.close()
        raise
    take = [j for j, name in enumerate(every) if reading.selects(name)]

    def blocks() -> Iterator[list[Cells]]:
        rows = 0
        try:
            for block in chain([first], iter(lambda: cursor.fetchmany(rows_at_a_time(len(every))), [])):
                rows += len(block)
                columns = list(zip(*block, strict=True))
                if block:
                    yield [_cells(columns[j], path, every[j]) for j in take]
        except sqlite3.Error as error:
            raise InputError(f"{path}: no more rows after {rows}: {_line(error)}") from error
        finally:
            connection.close()

    names = tuple(every[j] for j in take)
    return Source(path, every, names, blocks, lambda row: f"row {row + 1}", usual=".")


def _cells(column: tuple[Any, ...], path: Path, name: str) -> Cells:
    """The cells of a column of SQLite, whose values have types of their own."""
    kinds = {type(value) for value in column}
    if bytes in kinds:
        raise InputError(
            f"{path}, column {name}: blob is neither number nor text; --exclude {name} leaves it out"
        )
    if str not in kinds:
        return np.array([np.nan if value is None else value for value in column], dtype=np.float64)
    return [value if value is None or isinstance(value, str) else repr(value) for value in column]
