"""A PostgreSQL server of the tests' own: unprivileged, on a socket in a temporary folder."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LOGIN = """\
local all postgres trust
local all reader scram-sha-256
"""


def program() -> Path | None:
    """The folder of PostgreSQL's programs, or None if there is none."""
    found = shutil.which("initdb")
    known = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    path = Path(found).resolve() if found else known[-1] if known else None
    return path.parent if path is not None else None


@dataclass
class Server:
    """A server that is up."""

    home: Path
    process: "subprocess.Popen[bytes]"

    def address(self, database: str, user: str = "postgres") -> str:
        return f"postgresql:///{database}?host={self.home}&user={user}"

    def run(self, sql: str, database: str = "postgres") -> None:
        from adbc_driver_postgresql import dbapi

        with (
            dbapi.connect(self.address(database), autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)

    def table(self, database: str, name: str, frame: object) -> None:
        """A new database with a table of these rows."""
        from adbc_driver_postgresql import dbapi

        self.run(f"create database {database}")
        with (
            dbapi.connect(self.address(database), autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.adbc_ingest(name, frame, mode="create")


@contextlib.contextmanager
def served() -> Iterator[Server]:
    """A server with the users postgres (no password) and reader (password secret), ended at the end."""
    import pwd  # Unix only; pytest imports this file on every system

    programs = program()
    assert programs is not None
    home = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short, and open to another user
    owner = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else os.getuid()  # it refuses to run as root
    os.chown(home, owner, -1)
    as_owner: dict[str, object] = {"user": owner, "cwd": home} if os.getuid() == 0 else {"cwd": home}
    words = [programs / "initdb", "-D", home / "data", "-U", "postgres", "-A", "trust", "--no-sync"]
    words += ["-E", "UTF8", "--locale=C"]
    subprocess.run(words, check=True, capture_output=True, **as_owner)  # type: ignore[call-overload]
    (home / "data" / "pg_hba.conf").write_text(_LOGIN)
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(home),
        "fsync": "off",
        "timezone": "UTC",
    }
    words = [programs / "postgres", "-D", home / "data"]
    words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    process = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **as_owner,  # type: ignore[call-overload]
    )
    try:
        server = Server(home, process)
        _ready(server)
        server.run("create role reader login password 'secret'")
        yield server
    finally:
        process.send_signal(signal.SIGINT)  # it ends without waiting for those who are connected
        process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _ready(server: Server) -> None:
    from adbc_driver_manager import Error

    for _ in range(6000):
        assert server.process.poll() is None, "the server ended"
        try:
            server.run("select 1")
            return
        except Error:
            time.sleep(0.1)
    raise TimeoutError("the server does not answer")
