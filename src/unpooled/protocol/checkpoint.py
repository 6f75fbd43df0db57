"""Checkpoints: (round, state) of a run, written to disk atomically and checked when read.

A file is a line of text, a SHA-256 digest, and the codec's bytes of a Checkpoint. It is written to a
temporary file in the same folder, flushed to the disk, and renamed in one step, so a killed process leaves
the old file or the new one.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from unpooled.errors import CheckpointError, CodecError
from unpooled.protocol import codec
from unpooled.protocol.algorithm import State
from unpooled.protocol.messages import Message
from unpooled.storage.atomic_files import write_atomically
from unpooled.typing import FloatArray, IntArray

_MAGIC = b"unpooled checkpoint 1\n"


@dataclass(frozen=True, eq=False)
class Checkpoint(Message):
    """The state and history of a run between two rounds."""

    run: str
    algorithm: str  # digest of the algorithm with all its settings
    sites: tuple[str, ...]
    seed: int
    round: int
    state: State
    figures: FloatArray  # (rounds, 2): movement, inertia
    exchanges: IntArray  # (rounds,)
    answered: tuple[tuple[tuple[str, ...], IntArray], ...]  # distinct (sites, (sites, 2) numbers and bytes)
    answered_in: IntArray  # (rounds,) index into answered
    silent: tuple[dict[str, str], ...]  # per round: the sites that did not answer, and why


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write atomically: after a crash the file holds this checkpoint or the one before."""
    body = codec.encode(checkpoint)
    write_atomically(path, _MAGIC + hashlib.sha256(body).digest() + body)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; CheckpointError with the reason if it is not valid."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    if not data.startswith(_MAGIC[:20]):
        raise CheckpointError(f"{path}: not an unpooled checkpoint")
    if not data.startswith(_MAGIC):
        version = data[20:].split(b"\n")[0][:20].decode(errors="replace")
        raise CheckpointError(f"{path}: checkpoint of version {version}, this is version 1")
    start = len(_MAGIC) + 32
    if hashlib.sha256(data[start:]).digest() != data[len(_MAGIC) : start]:
        raise CheckpointError(f"{path}: the checkpoint is truncated or was altered ({len(data)} bytes)")
    try:
        checkpoint: Checkpoint = codec.decode(data[start:], expect=Checkpoint)
    except CodecError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return checkpoint
