"""The log of a site's answers: JSON lines, chained by hashes, on disk before the answer is sent.

A line holds the questions, the answer byte for byte, and how it was protected. Changing, cutting, inserting
or reordering a line breaks the chain from there on. A chain cannot show that its own end was cut off; so its
head goes with every answer, and the coordinator keeps and countersigns it (lines of the kind ``seal``).

Payloads bypass the JSON encoder (``Packed``): a line with 1 MB of payload takes about 2 ms instead of 8.
"""

import base64
import binascii
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.declarations import Count, figures
from unpooled.core.exchange import Answer, Envelope, Turn
from unpooled.core.messages import LeftMasked, Refusal, Reply, SiteId
from unpooled.errors import LedgerError
from unpooled.privacy.dp.accounting import epsilon_of
from unpooled.site.ledger import Ledger
from unpooled.site.policy import Policy
from unpooled.site.site import digest, request_digest

START = "0" * 64
COUNTERSIGNED = "seal"  # the kind, in the file, of lines that hold a countersigned head
KINDS = ("opening", "release", "refusal", COUNTERSIGNED)
_SYNC_LAST = 1 << 16  # bytes read from the end to find the last line


def line_hash(entry: dict[str, Any]) -> str:
    """The hash of a line, over all its fields but the hash itself."""
    return sha256(_canonical(entry)).hexdigest()


def _canonical(entry: dict[str, Any]) -> bytes:
    """The canonical JSON of a line without its hash."""
    rest = {key: value for key, value in entry.items() if key != "hash"}
    return _dumped(rest).encode()


def _dumped(entry: dict[str, Any], default: Callable[[Any], str] | None = None) -> str:
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=default)


class Packed:
    """Bytes to be written as base64 without passing through the JSON encoder; they are most of a line."""

    def __init__(self, data: bytes) -> None:
        self.text = binascii.b2a_base64(data, newline=False)


_PLACE = "\0packed"  # placeholder for a Packed in the JSON text


def _spliced(entry: dict[str, Any]) -> bytes:
    """The canonical line of an entry: JSON with placeholders, which are then replaced by the Packed."""
    texts: list[bytes] = []

    def place(value: Packed) -> str:
        texts.append(value.text)  # in the order of the placeholders
        return _PLACE

    around = _dumped(entry, place).encode().split(json.dumps(_PLACE).encode())
    if len(around) != len(texts) + 1:  # some text contains the placeholder itself
        return _dumped(entry, lambda value: str(value.text.decode("ascii"))).encode()
    pieces = [
        piece for before, text in zip(around, texts, strict=False) for piece in (before, b'"', text, b'"')
    ]
    return b"".join((*pieces, around[-1]))


def _ending(digest: str) -> bytes:
    return f',"hash":{json.dumps(digest)}}}\n'.encode()


def written(entry: dict[str, Any]) -> bytes:
    """A line as written in the file, with its hash last."""
    return _canonical(entry)[:-1] + _ending(entry["hash"])


class Log:
    """The log of one site, open for writing by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise LedgerError(f"{path}: in use by another process of this site") from None
        self._mend()
        self.seq, self.head = self._end()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def append(self, kind: str, **fields: Any) -> str:
        """Write a line and wait until it is on disk; returns the new head. Values may be, or hold, Packed."""
        entry = {
            "seq": self.seq + 1,
            "prev": self.head,
            "utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "kind": kind,
            **fields,
        }
        line = _spliced(entry)
        head = sha256(line).hexdigest()
        ending = _ending(head)
        if os.writev(self._file, (memoryview(line)[:-1], ending)) != len(line) - 1 + len(ending):
            raise LedgerError(f"{self.path}: the disk did not take the line; nothing was sent")
        os.fsync(self._file)
        self.seq, self.head = self.seq + 1, head
        return head

    def _mend(self) -> None:
        """Drop an unfinished last line: a process died while writing it, so its answer was never sent."""
        size = os.fstat(self._file).st_size
        if not size or os.pread(self._file, 1, size - 1) == b"\n":
            return
        data = self.path.read_bytes()
        os.ftruncate(self._file, data.rfind(b"\n") + 1)
        os.fsync(self._file)

    def _end(self) -> tuple[int, str]:
        last = next(tail(self.path), None)
        if last is None:
            return -1, START
        try:
            entry = json.loads(last)
            return int(entry["seq"]), str(entry["hash"])
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerError(f"{self.path}: the last line is not one of a log of unpooled") from error


def tail(path: Path) -> Iterator[bytes]:
    """The lines of a file from the last to the first, read from its end."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        rest = b""
        while position > 0:
            step = min(_SYNC_LAST, position)
            position -= step
            file.seek(position)
            rest = file.read(step) + rest
            first, *whole = rest.split(b"\n")
            yield from (line for line in reversed(whole) if line)
            rest = first
        if rest:
            yield rest


@dataclass(frozen=True)
class Fault:
    """Something wrong with a log, at a line (from 1; 0: with the log as a whole)."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}" if self.line else self.what


def entries(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """(line number, entry) of every line; None for a line that is damaged or not canonical."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            whole = isinstance(entry, dict) and "hash" in entry and line == written(entry)
            yield number, entry if whole else None


def verify(path: Path, heads: dict[int, str] | None = None) -> list[Fault]:
    """All faults of a log; an empty list means that it is whole.

    ``heads`` are line hashes by seq that someone else kept, e.g. the coordinator: they show a cut end.
    """
    faults: list[Fault] = []
    heads = dict(heads or {})
    before, seq, number = START, -1, 0
    for number, entry in entries(path):
        if entry is None:
            faults.append(Fault(number, "not a line of this log: altered or damaged"))
            before, seq = "", seq + 1
            continue
        if entry.get("hash") != line_hash(entry):
            faults.append(Fault(number, "its content does not fit its hash: altered"))
        if entry.get("seq") != seq + 1:
            faults.append(
                Fault(number, f"number {entry.get('seq')} where {seq + 1} belongs: {_moved(entry, seq)}")
            )
        elif before and entry.get("prev") != before:
            faults.append(Fault(number, "does not follow the line before it: altered, inserted or cut"))
        if entry.get("kind") not in KINDS:
            faults.append(Fault(number, f"unknown kind {entry.get('kind')!r}"))
        kept = heads.pop(seq + 1, None)
        if kept is not None and kept != entry.get("hash"):
            faults.append(
                Fault(number, "not the line whose hash the coordinator kept: the chain was rewritten")
            )
        before = str(entry.get("hash"))
        seq = entry["seq"] if isinstance(entry.get("seq"), int) else seq + 1
    if heads:
        lost = max(heads) - seq
        faults.append(
            Fault(
                number + 1, f"the end is cut off: at least {lost} lines are lost, up to number {max(heads)}"
            )
        )
    return faults


def _moved(entry: dict[str, Any], seq: int) -> str:
    number = entry.get("seq")
    if not isinstance(number, int):
        return "altered"
    return "lines before it are missing" if number > seq + 1 else "inserted, repeated or out of order"


def unpacked(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def check_ledger(log: Log, ledger: Ledger) -> None:
    """Raise LedgerError if the ledger is older than the log, or the log is gone: a budget must not come back.

    The ledger is charged before the log has the answer, so it may be ahead by what a kill cut off.
    """
    if log.seq < 0 and ledger.runs():
        raise LedgerError(f"{log.path}: the ledger counts releases, and the log is gone: nothing is answered")
    for line in tail(log.path):
        spent = json.loads(line).get("spent")
        if spent:
            now = epsilon_of(ledger.spent() ** 0.5, float(spent["delta"]))
            if now < float(spent["epsilon"]) * (1 - 1e-9):
                raise LedgerError(
                    f"{log.path.parent}: the ledger is lost, or older than the log: it counts {now:.4g}, "
                    f"the log {float(spent['epsilon']):.4g}: nothing is answered"
                )
            return


class AuditLog:
    """The audit of a site: writes every answer into the log before it leaves, and returns the last ones."""

    def __init__(
        self, name: SiteId, policy: Policy, ledger: Ledger | None, log: Log | None, copy: str = ""
    ) -> None:
        self._name, self._ledger, self._log = name, ledger, log
        self._policy, self._budget = policy.digest, policy.dp if policy.private else None
        self._countersigned = ""
        self._views: set[str] = set()
        if log is not None:
            log.append(
                "opening",
                site=name,
                policy=policy.digest,
                protection=policy.protect.mode,
                copy=copy,  # the digest of the copy that it answers from
                version=version("unpooled"),
            )

    def __call__(self, post: Envelope, answer: Answer) -> str:
        """Log an answer; the new head of the log, or "" without a log."""
        if self._log is None:
            return ""
        if post.countersigned and post.countersigned != self._countersigned:
            number, head, signature = (*post.countersigned.split(":"), "", "")[:3]
            self._log.append(COUNTERSIGNED, number=number, head=head, signature=signature)
            self._countersigned = post.countersigned
        refused = [r.reason for r in answer.replies if isinstance(r, Refusal)]
        payload = codec.encode(replace(answer, head=""))
        head = self._log.append(
            "refusal" if len(refused) == len(answer.replies) else "release",
            run=post.turn.run,
            seed=post.turn.seed,
            round=post.turn.round,
            exchange=post.turn.exchange,
            request=request_digest(post),
            asked=[
                {
                    "question": codec.name_of(type(part.question)),
                    "verb": part.verb,
                    "payload": Packed(codec.encode(part.question)),
                    "view": None if part.view is None else digest(part.view),
                }
                for part in post.parts
            ],
            views=self._new_views(post),
            refused=refused,
            shapes=[_shapes(reply) for reply in answer.replies],
            masked=any(isinstance(reply, LeftMasked) for reply in answer.replies),
            smallest=_smallest(answer.replies),
            spent=self._spent(),
            policy=self._policy,
            digest=sha256(payload).hexdigest(),
            payload=Packed(payload),
        )
        return f"{self._log.seq}:{head}"

    def _new_views(self, post: Envelope) -> dict[str, Packed]:
        """The views of this envelope that the log does not hold yet; later lines give only their digests."""
        new = {digest(part.view): part.view for part in post.parts if part.view is not None}
        new = {name: view for name, view in new.items() if name not in self._views}
        self._views |= set(new)
        return {name: Packed(codec.encode(view)) for name, view in new.items()}

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
        if self._log is not None:
            self._log.close()

    def _spent(self) -> dict[str, float] | None:
        if self._budget is None or self._ledger is None:
            return None
        delta = self._budget.delta
        spent = epsilon_of(self._ledger.spent() ** 0.5, delta)
        return {"epsilon": spent, "left": max(self._budget.epsilon_total - spent, 0.0), "delta": delta}

    def answered(self) -> dict[tuple[Turn, str], Answer]:
        """The answers of the latest round in the log, which a restarted coordinator may ask for again."""
        found: dict[tuple[Turn, str], Answer] = {}
        if self._log is None:
            return found
        latest: tuple[str, int] | None = None
        for line in tail(self._log.path):
            entry = json.loads(line)
            if entry["kind"] not in ("release", "refusal"):
                continue
            if latest is None:
                latest = (entry["run"], entry["round"])
            if (entry["run"], entry["round"]) != latest:
                break
            turn = Turn(entry["run"], entry["seed"], entry["round"], entry["exchange"])
            answer: Answer = codec.decode(unpacked(entry["payload"]), expect=Answer)
            found[turn, entry["request"]] = replace(answer, head=f"{entry['seq']}:{entry['hash']}")
        return found


def _shapes(reply: Reply) -> dict[str, list[int]]:
    return {
        name: list(value.shape)
        for name in codec.field_names(type(reply))
        if isinstance(value := getattr(reply, name), np.ndarray)
    }


def _smallest(replies: tuple[Reply, ...]) -> float | None:
    """The smallest count in any reply; None if no reply shows a count."""
    counts: list[Any] = [
        value[value > 0]
        for reply in replies
        for name, figure in figures(type(reply)).items()
        if isinstance(figure, Count) and (value := getattr(reply, name)).size
    ]
    shown = np.concatenate([c.ravel() for c in counts]) if counts else np.zeros(0)
    return float(shown.min()) if len(shown) else None
