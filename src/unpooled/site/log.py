"""The log of a site's answers: JSON lines, chained by hashes, on disk before the answer is sent.

``audit_log`` writes the lines. Changing, cutting, inserting or reordering a line breaks the chain from there
on, and a log that is not whole is not opened. A chain cannot show that its own end was cut off. Therefore its
head is sent with every answer, the coordinator keeps and countersigns it (lines of the kind
``countersigned``), and the ledger records it. The first line of every file has the log's format.

A large log is rotated: the file is kept under the name ``log-FIRST-LAST.jsonl``, and a new one goes on with
the same chain. Its first line, of the kind ``continued``, names the file before it and that file's digest.

The log has one writer. A process that answers hands it over to one that waits (``locked_log``).

Payloads bypass the JSON encoder (``Base64Payload``): a line with a payload of 1 MB takes 2 ms instead of 8.
"""

import base64
import binascii
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from unpooled.errors import LedgerError
from unpooled.site.log_files import check_log_format, lines, parsed, protections, segments, tail, tail_of
from unpooled.storage.atomic_files import sync_folder
from unpooled.storage.file_format import FORMAT
from unpooled.storage.file_locks import LockOwner, lock

START = "0" * 64
COUNTERSIGNED = "countersigned"  # the kind of lines that hold a countersigned head
CONTINUED = "continued"  # the kind of the first line of a file that goes on after a rotation
STUDY = "study"  # the kind of lines that hold a decision about a study
MOVED = "moved"  # the kind of lines that hold an officer's confirmation of a moved folder
EXPORT = "export"  # the kind of lines that record a summary file
NOTICE = "notice"  # the kind of lines that record a deletion notice
KINDS = ("opening", "release", "refusal", COUNTERSIGNED, CONTINUED, STUDY, MOVED, EXPORT, NOTICE)
ROTATE_BYTES = 64 << 20  # bytes from which on a log is rotated when it is opened
POLL_SECONDS = 0.2  # between checks whether another process requests the log
FRESH = 2.0  # seconds for which a request for the log, or a sign of work, counts; it is repeated
_CARRIED = (  # by the first line after a rotation
    *("site", "policy", "protection", "summary", "study", "federation", "authority"),
    *("ledger", "registry"),
)


def line_hash(entry: dict[str, Any]) -> str:
    """The hash of a line, over all its fields but the hash itself."""
    return sha256(_canonical(entry)).hexdigest()


def _canonical(entry: dict[str, Any]) -> bytes:
    """The canonical JSON of a line without its hash."""
    rest = {key: value for key, value in entry.items() if key != "hash"}
    return _dumped(rest).encode()


def _dumped(entry: dict[str, Any], default: Callable[[Any], str] | None = None) -> str:
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=default)


class LogInUse(LedgerError):  # noqa: N818
    """A log that another process has open. It is not an error of the site: the caller waits or gives up."""


def lock_owner_file(log: Path) -> Path:
    """The file that names the process that has a log open."""
    return log.with_name(f"{log.name}.owner")


class Base64Payload:
    """Bytes to be written as base64 without passing through the JSON encoder; they are most of a line."""

    def __init__(self, data: bytes) -> None:
        self.text = binascii.b2a_base64(data, newline=False)


_PLACEHOLDER = "\0payload"  # for a Base64Payload in the JSON text


def _spliced(entry: dict[str, Any]) -> bytes:
    """The canonical line of an entry: JSON with placeholders, which the payloads then replace."""
    texts: list[bytes] = []

    def place(value: Base64Payload) -> str:
        texts.append(value.text)  # in the order of the placeholders
        return _PLACEHOLDER

    around = _dumped(entry, place).encode().split(json.dumps(_PLACEHOLDER).encode())
    if len(around) != len(texts) + 1:  # some text contains the placeholder itself
        return _dumped(entry, lambda value: str(value.text.decode("ascii"))).encode()
    pieces = [
        piece for before, text in zip(around, texts, strict=False) for piece in (before, b'"', text, b'"')
    ]
    return b"".join((*pieces, around[-1]))


if sys.platform == "win32":
    _BINARY = os.O_BINARY  # lines end with a line feed there, too

    def _write(file: int, *parts: "memoryview | bytes") -> int:
        return os.write(file, b"".join(parts))
else:
    _BINARY = 0

    def _write(file: int, *parts: "memoryview | bytes") -> int:
        return os.writev(file, parts)  # a long line is not copied


def _ending(digest: str) -> bytes:
    return f',"hash":{json.dumps(digest)}}}\n'.encode()


_ENDING = len(_ending(START))


def encode_line(entry: dict[str, Any]) -> bytes:
    """A line as written in the file, with its hash last."""
    return _canonical(entry)[:-1] + _ending(entry["hash"])


class Log:
    """The log of one site, open for writing by one process at a time.

    The operating system releases the lock when the process ends. While it is held, the file
    ``log.jsonl.owner`` names the process and ``what`` it does.
    """

    def __init__(self, path: Path, what: str = "another program") -> None:
        self.path = path
        self._file = self._locked()
        try:
            check_log_format(path)
            self._name(LockOwner.me(what))
            self._mend()
            self.seq, self.head = self._end()
            self._size = os.fstat(self._file).st_size
            if self._size > ROTATE_BYTES:
                self.rotate()
        except BaseException:
            self.close()
            raise

    def _locked(self) -> int:
        """The open file, locked; not one that was rotated between the two."""
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _BINARY, 0o600)
            try:
                lock(file)
            except OSError:
                os.close(file)
                who = f": {lock_owner}" if (lock_owner := LockOwner.read(lock_owner_file(self.path))) else ""
                raise LogInUse(f"{self.path}: in use by another process of this site{who}") from None
            with contextlib.suppress(FileNotFoundError):
                # Windows lets nobody replace a file that is open
                if sys.platform == "win32" or os.path.samestat(os.fstat(file), os.stat(self.path)):
                    return file
            os.close(file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _name(self, lock_owner: LockOwner) -> None:
        """Write the name of the lock's owner. A full disk without room for it is not an error here."""
        with contextlib.suppress(OSError):
            file = os.open(lock_owner_file(self.path), os.O_RDWR | os.O_CREAT | _BINARY, 0o600)
            try:
                lock_owner.write(file)
            finally:
                os.close(file)

    def append(self, kind: str, **fields: Any) -> str:
        """Write a line and wait until it is on disk; returns the new head. Values may be a Base64Payload."""
        entry = {
            "seq": self.seq + 1,
            "prev": self.head,
            "utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "kind": kind,
            **({} if self._size else {"format": FORMAT}),
            **fields,
        }
        line = _spliced(entry)
        head = sha256(line).hexdigest()
        ending = _ending(head)
        length = len(line) - 1 + len(ending)
        if os.fstat(self._file).st_size != self._size:
            raise LedgerError(f"{self.path}: another program changed the log. Nothing is sent.")
        try:
            taken = _write(self._file, memoryview(line)[:-1], ending)
            if taken == length:
                os.fsync(self._file)
        except OSError as error:
            self._take_back()
            raise LedgerError(
                f"{self.path}: the disk did not take the line, so nothing is sent: {error}"
            ) from error
        if taken != length:
            self._take_back()
            raise LedgerError(f"{self.path}: the disk is full, so nothing is sent")
        self.seq, self.head, self._size = self.seq + 1, head, self._size + length
        return head

    def mark(self) -> str:
        """The head, as it is sent with answers: "number:hash"; "" if the log is empty."""
        return f"{self.seq}:{self.head}" if self.seq >= 0 else ""

    def _take_back(self) -> None:
        """Remove what was written of a line that did not fit on the disk."""
        os.ftruncate(self._file, self._size)

    def hash_at(self, number: int) -> str:
        """The hash of the line of this number; "" if there is none."""
        if number == self.seq:
            return self.head
        for line in tail(self.path) if 0 <= number < self.seq else ():
            entry = json.loads(line)
            if entry["seq"] == number + 1:
                return str(entry["prev"])
        return ""

    def rotate(self) -> Path | None:
        """Continue in a new file; returns the path of the file so far, None if it has no answer.

        The file so far gets a second name, then the new one takes its first name: a kill between the two
        leaves the log as it was.
        """
        lines = [json.loads(line) for line in self.path.read_bytes().splitlines()]
        if not any(entry["kind"] in ("release", "refusal", EXPORT) for entry in lines):
            return None
        kept = self.path.with_name(f"{self.path.stem}-{lines[0]['seq']:09}-{self.seq:09}.jsonl")
        carried = {name: entry[name] for entry in lines for name in _CARRIED if name in entry}
        first = {
            "seq": self.seq + 1,
            "prev": self.head,
            "utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "kind": CONTINUED,
            "format": FORMAT,
            **carried,
            "protections": sorted(protections(lines)),
            "file": kept.name,
            "digest": sha256(self.path.read_bytes()).hexdigest(),
        }
        first["hash"] = line_hash(first)
        new = self.path.with_name(f".{self.path.name}.new")
        new.unlink(missing_ok=True)
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | _BINARY, 0o600)
        try:
            lock(file, wait=True)
            line = encode_line(first)
            if os.write(file, line) != len(line):
                raise OSError("the disk is full")
            os.fsync(file)
            kept.unlink(missing_ok=True)  # of a rotation that was cut off
            os.link(self.path, kept)
            os.replace(new, self.path)
        except OSError as error:
            os.close(file)
            new.unlink(missing_ok=True)
            raise LedgerError(f"{self.path}: cannot be rotated: {error}") from error
        sync_folder(self.path.parent)
        os.close(self._file)
        self._file, self._size = file, os.fstat(file).st_size
        self.seq, self.head = self.seq + 1, str(first["hash"])
        return kept

    def _mend(self) -> None:
        """Remove an unfinished last line: a process died while writing it, so its answer was never sent."""
        size = os.fstat(self._file).st_size
        data = self.path.read_bytes() if size and unended(self.path) else b""
        if not data:
            return
        os.ftruncate(self._file, data.rfind(b"\n") + 1)
        os.fsync(self._file)

    def _end(self) -> tuple[int, str]:
        """The number and the hash of the last line; LedgerError unless every line follows the one before."""
        seq, head = self._begin()
        with self.path.open("rb") as file:
            for line in file:
                seq += 1
                content, ending = line[:-_ENDING] + b"}", line[-_ENDING:]
                found = sha256(content).hexdigest()
                follows = f'"prev":"{head}"'.encode() in content and f'"seq":{seq},'.encode() in content
                if ending != _ending(found) or not follows:
                    raise LedgerError(
                        f"{self.path}: another program changed line {seq + 1}. Nothing is answered. "
                        f"unpooled site log {self.path} --verify checks every line."
                    )
                head = found
        return seq, head

    def _begin(self) -> tuple[int, str]:
        """The number and the hash of the line before the first one of this file.

        Where the file before it is here, it must end with that line.
        """
        with self.path.open("rb") as file:
            line = file.readline()
        try:
            first = json.loads(line) if line else {}
        except ValueError:
            first = {}
        before, *_ = (*segments(self.path)[-2:-1], None)
        if not line and before is not None:
            raise LedgerError(f"{self.path}: is empty, and {before} comes before it. Nothing is answered.")
        if not isinstance(first, dict) or first.get("kind") != CONTINUED:
            return -1, START
        if not isinstance(first.get("seq"), int):
            raise LedgerError(f"{self.path}: another program changed its first line. Nothing is answered.")
        if before is not None:
            last = parsed(next(tail_of(before), b"{}"), before)
            if last.get("hash") != first.get("prev"):
                raise LedgerError(
                    f"{self.path} does not continue {before}. Nothing is answered. Put the file there that "
                    "it continues."
                )
        return int(first["seq"]) - 1, str(first.get("prev"))


# ---------------------------------------------------------------- the hand-over to another process


def handover_file(folder: Path) -> Path:
    """The file that a process touches while it waits for the log."""
    return folder / "log.jsonl.handover"


def request_handover(folder: Path) -> None:
    """Ask for the log. On a full disk the request fails, and only the end of the other process helps."""
    with contextlib.suppress(OSError):
        handover_file(folder).touch()


def handover_requested(folder: Path) -> bool:
    """True if another process waits for the log."""
    return is_fresh(handover_file(folder))


def is_fresh(file: Path) -> bool:
    """True if a process has just touched a file, to request the log or to signal that it is at work."""
    try:
        return time.time() - file.stat().st_mtime < FRESH
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def locked_log(folder: Path, what: str, patience: float = 15.0) -> Iterator[Log]:
    """The site's log, for a few lines; a process that answers hands it over. LogInUse if it is not free."""
    until = time.monotonic() + patience
    while True:
        try:
            log = Log(folder / "log.jsonl", what)
            break
        except LogInUse:
            if time.monotonic() > until:
                raise
            request_handover(folder)
            time.sleep(POLL_SECONDS / 2)
    handover_file(folder).unlink(missing_ok=True)
    try:
        yield log
    finally:
        log.close()


# ---------------------------------------------------------------- checks of the chain


@dataclass(frozen=True)
class LogFault:
    """Something wrong with a log, at a line (from 1; 0: with the log as a whole)."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}" if self.line else self.what


def entries(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """(line number, entry) of every line; None for a line that is damaged or not canonical."""
    for number, line in enumerate(lines(path), 1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        whole = isinstance(entry, dict) and "hash" in entry and line == encode_line(entry)
        yield number, entry if whole else None


def verify(path: Path, log_heads: dict[int, str] | None = None) -> list[LogFault]:
    """Return all faults of a log; an empty list means that it is whole.

    ``log_heads`` are line hashes by seq that someone else kept, e.g. the coordinator: they show a cut end.
    LedgerError if the log has another format.
    """
    faults: list[LogFault] = []
    log_heads = dict(log_heads or {})
    before, seq, number = START, -1, 0
    for number, entry in entries(path):
        if entry is None and unfinished(path, number):
            continue  # its answer was not sent, and the next opening removes it
        if entry is None:
            faults.append(LogFault(number, "not a line of this log: altered or damaged"))
            before, seq = "", seq + 1
            continue
        if number == 1 and entry.get("kind") == CONTINUED and isinstance(entry.get("seq"), int):
            before, seq = str(entry.get("prev")), entry["seq"] - 1  # the files before it are elsewhere
            if log_heads.get(seq, before) != before:
                faults.append(
                    LogFault(number, "continues another line than the one that the coordinator kept")
                )
            log_heads = {at: head for at, head in log_heads.items() if at > seq}
        if entry.get("hash") != line_hash(entry):
            faults.append(LogFault(number, "its content does not fit its hash: altered"))
        if entry.get("seq") != seq + 1:
            faults.append(
                LogFault(number, f"number {entry.get('seq')} where {seq + 1} belongs: {_moved(entry, seq)}")
            )
        elif before and entry.get("prev") != before:
            faults.append(LogFault(number, "does not follow the line before it: altered, inserted or cut"))
        if entry.get("kind") not in KINDS:
            faults.append(LogFault(number, f"unknown kind {entry.get('kind')!r}"))
        kept = log_heads.pop(seq + 1, None)
        if kept is not None and kept != entry.get("hash"):
            faults.append(
                LogFault(number, "not the line whose hash the coordinator kept: the chain was rewritten")
            )
        before = str(entry.get("hash"))
        seq = entry["seq"] if isinstance(entry.get("seq"), int) else seq + 1
    if log_heads:
        lost = max(log_heads) - seq
        faults.append(
            LogFault(
                number + 1,
                f"the end is cut off: at least {lost} lines are lost, up to line {max(log_heads) + 1}",
            )
        )
    return faults


def unfinished(path: Path, number: int) -> bool:
    """True if the line of this number is the last and has no end: a kill or a full disk cut it off."""
    return unended(path) and sum(1 for _ in lines(path)) == number


def unended(path: Path) -> bool:
    """True if the last line of a file that is not empty has no end."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _moved(entry: dict[str, Any], seq: int) -> str:
    number = entry.get("seq")
    if not isinstance(number, int):
        return "altered"
    return "lines before it are missing" if number > seq + 1 else "inserted, repeated or out of order"


def unpacked(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
