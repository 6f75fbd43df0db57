"""A saved model: the preparation and the centres, in a file without code.

A line of text with the version, a SHA-256 digest, and the codec's bytes.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unpooled import kernels
from unpooled.data import Preparation, Table
from unpooled.data.readers import Reading
from unpooled.errors import CodecError, InputError, ModelError
from unpooled.kernels.observed import nearest_observed
from unpooled.protocol import codec
from unpooled.protocol.messages import Message
from unpooled.storage.atomic_files import write_atomically
from unpooled.typing import FloatArray, IntArray

VERSION = 1
_NAME = b"unpooled model "


class Labels(NamedTuple):
    """The cluster of every row of a table, and its distance to the centre."""

    clusters: IntArray  # (n,) from 1, the largest cluster; 0 for a row that was left out
    distances: FloatArray  # (n,) to the centre, in prepared columns that it has; nan for one left out


@dataclass(frozen=True, eq=False)
class Model(Message):
    """The preparation and the centres: all that assigns a row to a cluster."""

    preparation: Preparation
    centers: FloatArray  # (k, d) in prepared columns, the largest cluster first
    sizes: FloatArray  # (k,) number of rows in each cluster at the fit
    made_by: str  # program and version, method, seed

    def reading(self, fitted: Reading) -> Reading:
        """How new rows are read: as those of the fit, but for the model's columns, whose kinds are known."""
        kinds = self.preparation.kinds
        return replace(
            fitted,
            columns=tuple(kinds),
            exclude=(),
            categorical=tuple(name for name, kind in kinds.items() if kind == "category"),
            numbers=tuple(name for name, kind in kinds.items() if kind == "number"),
        )

    def predict(self, table: Table, *, lacking: bool = False) -> Labels:
        """The nearest centre of every row, by the same preparation as when the model was made.

        A model of rows with missing cells compares by the columns that a row has, and leaves out one
        without any. With ``lacking`` a column that the table lacks is then missing in every row.
        """
        needed = [name for name in self.preparation.kinds if name not in table.names]
        may = lacking and self.preparation.keeps_missing and len(needed) < len(self.preparation.kinds)
        if needed and not may:
            raise InputError(f"the model needs the columns {', '.join(needed)}, which the table lacks")
        clusters, distances = np.zeros(len(table), dtype=np.int64), np.full(len(table), np.nan)
        keep = self.preparation.rows_used(table)
        if keep.any():
            nearest = nearest_observed if self.preparation.keeps_missing else kernels.nearest
            labels, squared = nearest(self.preparation.apply(table), self.centers, threads=2)
            clusters[keep], distances[keep] = labels + 1, np.sqrt(squared)
        return Labels(clusters, distances)


def save(path: Path, model: Model) -> None:
    """Write a model, whole or not at all."""
    body = codec.encode(model)
    write_atomically(
        path, _NAME + str(VERSION).encode() + b"\n" + hashlib.sha256(body).digest() + body, shared=True
    )


def load(path: Path) -> Model:
    """Read a model, or raise ModelError that names the fault."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    head, _, rest = data.partition(b"\n")
    if not head.startswith(_NAME):
        raise ModelError(f"{path}: not a model of unpooled")
    version = head[len(_NAME) :][:20].decode(errors="replace")
    if version != str(VERSION):
        raise ModelError(f"{path}: model of version {version}, this program reads version {VERSION}")
    if hashlib.sha256(rest[32:]).digest() != rest[:32]:
        raise ModelError(f"{path}: the model is truncated or was altered ({len(data)} bytes)")
    try:
        model: Model = codec.decode(rest[32:], expect=Model)
    except CodecError as error:
        raise ModelError(f"{path}: {error}") from error
    return model
