"""A saved model: the preparation and the centres, in a file without code.

The file is a line of text with the format, a SHA-256 digest, and the codec's bytes.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unpooled import kernels
from unpooled.data import Preparation, Table
from unpooled.data.column_kinds import has_mean
from unpooled.data.readers import Reading
from unpooled.data.schema import some
from unpooled.data.transforms import Category
from unpooled.errors import CodecError, InputError, ModelError
from unpooled.html.formatting import counted
from unpooled.kernels.observed import nearest_observed
from unpooled.kernels.steps import memberships
from unpooled.protocol import codec
from unpooled.protocol.messages import Message
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_format import FORMAT, format_error
from unpooled.typing import FloatArray, IntArray

_NAME, _FORMAT = b"unpooled model ", "format "


class Labels(NamedTuple):
    """The label of every row of a table, and its distance to the centre."""

    labels: IntArray  # (n,) from 0, the largest cluster; -1 for a row that is left out
    distances: FloatArray  # (n,) to the centre, over the prepared columns that the row has; nan if left out


@dataclass(frozen=True, eq=False)
class Model(Message):
    """The preparation and the centres, which assign a row to a cluster."""

    preparation: Preparation
    centers: FloatArray  # (k, d) in prepared columns, the largest cluster first
    sizes: FloatArray  # (k,) number of rows in each cluster at the fit
    made_by: str  # program and version, method, seed
    fuzzifier: float | None = None  # of fuzzy clusters, whose memberships it decides; None: a row is in one

    def reading(self, fitted: Reading) -> Reading:
        """Return the options to read new rows: those of the fit, for the model's columns and their kinds."""
        kinds = self.preparation.kinds
        return replace(
            fitted,
            columns=tuple(kinds),
            exclude=(),
            categorical=tuple(name for name, kind in kinds.items() if not has_mean(kind)),
            numbers=tuple(name for name, kind in kinds.items() if has_mean(kind)),
        )

    def predict(self, table: Table, *, lacking: bool = False) -> Labels:
        """Return the nearest centre of every row, after the preparation of the fit.

        A model that keeps missing values compares a row by the columns that it has, and leaves out a row
        without any. With ``lacking``, such a model treats a column that the table lacks as missing in every
        row.
        """
        absent = [name for name in self.preparation.kinds if name not in table.names]
        may_lack = lacking and self.preparation.keeps_missing and len(absent) < len(self.preparation.kinds)
        if absent and not may_lack:
            raise InputError(f"the model needs the columns {', '.join(absent)}, which the table lacks")
        labels, distances = np.full(len(table), -1, dtype=np.int64), np.full(len(table), np.nan)
        keep = self.preparation.rows_used(table)
        if keep.any():
            nearest = nearest_observed if self.preparation.keeps_missing else kernels.nearest
            labels[keep], squared = nearest(self.preparation.apply(table), self.centers, threads=2)
            distances[keep] = np.sqrt(squared)
        return Labels(labels, distances)

    def memberships(self, table: Table) -> FloatArray:
        """Return the memberships (n, k) of every row in fuzzy clusters; nan for a row that is left out.

        Raises
        ------
        InputError
            The clusters are not fuzzy, so that every row is in one.
        """
        if self.fuzzifier is None:
            raise InputError("the clusters are not fuzzy: every row is in one. Fit with --method fuzzy.")
        found = np.full((len(table), len(self.centers)), np.nan)
        keep = self.preparation.rows_used(table)
        if keep.any():
            rows = self.preparation.apply(table)
            found[keep] = memberships(rows, self.centers, self.fuzzifier, threads=2)
        return found


def unknown_categories(model: Model, table: Table) -> list[str]:
    """Return a sentence on every column in which rows have categories that the model does not know.

    Such a category counts as "other" where the fit merged rare ones, and else as far from every category.
    """
    sentences = []
    for column in model.preparation.columns:
        if not isinstance(column, Category) or column.name not in table.names:
            continue
        own = table.categories.get(column.name, ())
        unknown = [i for i, category in enumerate(own) if category not in column.categories]
        codes = table.values[:, table.index(column.name)]
        rows = np.isin(codes, unknown)
        if rows.any():
            names = [own[i] for i in unknown if (codes == i).any()]
            how = "other" if column.other else "none of the known ones"
            known = some(list(column.categories))
            sentences.append(
                f"{column.name}: {counted(int(rows.sum()), 'row')} with {some(names)}, which the fit did not "
                f"have ({known}); counted as {how}"
            )
    return sentences


def save(path: Path, model: Model) -> None:
    """Write a model atomically."""
    body = codec.encode(model)
    head = _NAME + f"{_FORMAT}{FORMAT}\n".encode()
    write_atomically(path, head + hashlib.sha256(body).digest() + body, shared=True)


def load(path: Path) -> Model:
    """Return the model in a file; raise ModelError, with the reason, if the file is not one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    head, _, rest = data.partition(b"\n")
    if not head.startswith(_NAME):
        raise ModelError(f"{path}: not a model of unpooled")
    number = head[len(_NAME) :][:20].decode(errors="replace").removeprefix(_FORMAT)
    is_marked = head.startswith(_NAME + _FORMAT.encode()) and number.isdecimal()
    if wrong := format_error(int(number) if is_marked else None):
        raise ModelError(f"{path}: a model of {wrong}")
    if hashlib.sha256(rest[32:]).digest() != rest[:32]:
        raise ModelError(f"{path}: the model is truncated or was altered ({len(data)} bytes)")
    try:
        model: Model = codec.decode(rest[32:], expect=Model)
    except CodecError as error:
        raise ModelError(f"{path}: {error}") from error
    return model
