"""Data sets of installed R packages, read without R.

Debian's R packages (r-cran-cluster, r-cran-mlbench) hold their data frames in R's own formats: one file for
each (``Glass.rda``), or one for all with an index (``Rdata.rdb``, ``Rdata.rdx``). Both are compressed R
serialisation (R Internals, section 1.8, versions 2 and 3, in network byte order). The reader accepts the
types of data frames (numbers, text, factors, lists) and refuses all others.
"""

import bz2
import gzip
import lzma
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.errors import InputError

LIBRARIES = (Path("/usr/lib/R/site-library"), Path("/usr/lib/R/library"))
_MISSING = -(2**31)  # of whole numbers

_NULL, _REF, _SYMBOL, _PAIRS, _CHAR, _LOGICAL, _INTEGER, _REAL = 254, 255, 1, 2, 9, 10, 13, 14
_TEXT, _LIST, _COMPACT = 16, 19, 238


@dataclass(frozen=True, eq=False)
class Vector:
    """An R vector with its attributes: names, levels, class."""

    values: Any  # an array, or a list
    attributes: dict[str, Any] = field(default_factory=dict)


class _Reader:
    """One serialised value after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.known: list[str] = []  # symbols, which are written once
        if self._bytes(2) != b"X\n":
            raise ValueError("not in network byte order")
        version = self._int()
        self._int(), self._int()
        if version == 3:
            self._bytes(self._int())  # the encoding
        elif version != 2:
            raise ValueError(f"version {version} of R's format is not supported")

    def _bytes(self, n: int) -> bytes:
        if not 0 <= n <= len(self.data) - self.at:
            raise ValueError("cut off")
        self.at += n
        return self.data[self.at - n : self.at]

    def _int(self) -> int:
        return int(struct.unpack(">i", self._bytes(4))[0])

    def item(self) -> Any:
        flags = self._int()
        kind, has_attributes, has_tag = flags & 0xFF, bool(flags & 0x200), bool(flags & 0x400)
        if kind in (241, 242, 253, _NULL):  # the built-in environments, and NULL
            return None
        if kind == _REF:
            return self.known[(flags >> 8 or self._int()) - 1]
        if kind == _SYMBOL:
            self.known.append(str(self.item()))
            return self.known[-1]
        if kind == _CHAR:
            n = self._int()
            return None if n < 0 else self._bytes(n).decode("utf-8", errors="replace")
        if kind == _PAIRS:
            return self._pairs(has_attributes, has_tag)
        if kind == _COMPACT:
            return self._compact()
        values = self._values(kind)
        attributes = self.item() if has_attributes else None
        return Vector(values, dict(attributes or ()))

    def _values(self, kind: int) -> Any:
        if kind not in (_LOGICAL, _INTEGER, _REAL, _TEXT, _LIST):
            raise ValueError(f"a value has R's type {kind}, which data frames do not have")
        n = self._int()
        if kind in (_TEXT, _LIST):
            return [self.item() for _ in range(n)]
        size, letter = (8, "d") if kind == _REAL else (4, "i")
        found = np.frombuffer(self._bytes(size * n), dtype=f">{letter}{size}".replace("d8", "f8"))
        if kind == _REAL:
            return found.astype(np.float64)
        return np.where(found == _MISSING, np.nan, found.astype(np.float64))

    def _pairs(self, has_attributes: bool, has_tag: bool) -> list[tuple[str, Any]]:
        """A list of pairs (tag, value), as attributes are."""
        out: list[tuple[str, Any]] = []
        while True:
            if has_attributes:
                self.item()
            tag = str(self.item()) if has_tag else ""
            out.append((tag, self.item()))
            flags = self._int()
            if flags & 0xFF == _NULL:
                return out
            if flags & 0xFF != _PAIRS:
                raise ValueError("a list that does not end")
            has_attributes, has_tag = bool(flags & 0x200), bool(flags & 0x400)

    def _compact(self) -> Any:
        """A compact vector: a sequence of numbers, or a wrapped vector."""
        info, state, _ = self.item(), self.item(), self.item()
        name = info[0][1]
        if name in ("compact_intseq", "compact_realseq"):
            n, first, step = state.values
            return Vector(first + step * np.arange(int(n)))
        if name.startswith("wrap_"):
            return state.values[0] if isinstance(state, Vector) else state[0][1]
        raise ValueError(f"a compact vector of the kind {name} is not supported")


def _unpacked(data: bytes) -> bytes:
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    if data[:3] == b"BZh":
        return bz2.decompress(data)
    return lzma.decompress(data) if data[:6] == b"\xfd7zXZ\x00" else data


def _chunk(data: bytes, kind: int) -> bytes:
    """A compressed value of a file for all data frames: four bytes with its length, then the value."""
    body = data[4:]
    if kind == 1:
        return zlib.decompress(body)
    if body[:1] == b"2":
        return bz2.decompress(body[1:])
    if body[:1] == b"Z":
        return lzma.decompress(body[1:], lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}])
    return body[1:]


def read_frame(package: str, name: str, libraries: tuple[Path, ...] = LIBRARIES) -> dict[str, Any] | None:
    """Return the columns of a data frame by name: numbers as (n,) arrays, others as lists.

    Returns None if the package is not installed.
    """
    for library in libraries:
        folder = library / package / "data"
        if (folder / "Rdata.rdx").is_file():
            return _read(folder / "Rdata.rdb", name, _from_all)
        if (folder / f"{name}.rda").is_file():
            return _read(folder / f"{name}.rda", name, _from_one)
    return None


def _read(path: Path, name: str, how: Any) -> dict[str, Any]:
    try:
        return _columns(how(path, name))
    except (ValueError, KeyError, IndexError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path}: {name} cannot be read: {error}. Reinstall the R package.") from None


def _from_all(path: Path, name: str) -> Any:
    index = _Reader(_unpacked(path.with_suffix(".rdx").read_bytes())).item()
    parts = _named(index)
    places, kind = _named(parts["variables"]), int(parts["compressed"].values[0])
    if name not in places:
        raise ValueError(f"the file has only {', '.join(sorted(places))}")
    start, length = places[name].values.astype(int)
    return _Reader(_chunk(path.read_bytes()[start : start + length], kind)).item()


def _from_one(path: Path, name: str) -> Any:
    data = _unpacked(path.read_bytes())
    if data[:5] not in (b"RDX2\n", b"RDX3\n"):
        raise ValueError("not an R data file")
    return dict(_Reader(data[5:]).item())[name]


def _named(vector: Vector) -> Mapping[str, Any]:
    return dict(zip(vector.attributes["names"].values, vector.values, strict=True))


def _columns(frame: Any) -> dict[str, Any]:
    if not isinstance(frame, Vector):
        raise ValueError("not a data frame")
    if "dim" in frame.attributes:  # a matrix, by columns
        n, d = frame.attributes["dim"].values.astype(int)
        return {f"column {j + 1}": frame.values.reshape(d, n)[j] for j in range(d)}
    out = {}
    for name, column in _named(frame).items():
        levels = column.attributes.get("levels")
        if levels is None:
            out[name] = column.values
        else:
            names = levels.values
            out[name] = [None if np.isnan(code) else names[int(code) - 1] for code in column.values]
    return out
