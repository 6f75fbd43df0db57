"""CSV: read once, some thousand lines at a time, with errors that name file, line and column."""

import codecs
import contextlib
import csv
import io
import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from unpooled.data.readers import compressed
from unpooled.data.readers.cell_text import Cells
from unpooled.data.readers.source import PACKED, STDIN, Source
from unpooled.errors import InputError
from unpooled.kernels import plain_numbers
from unpooled.kernels.results import PlainNumbers
from unpooled.options.reading import Reading
from unpooled.typing import FloatArray

_CELLS = 1 << 18  # read at a time
_BYTES = 1 << 21  # the same of plain numbers
_DELIMITERS = (",", ";", "\t", "|")
_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_WESTERN = frozenset(
    [0x80, *range(0x91, 0x98), *range(0xA0, 0x100)]
)  # of cp1252: letters, quotes, dashes, euro
_NO_LETTERS = re.compile(rb"[\x80-\xff]{3}")  # a longer run of these is hardly a word of a Western language
_ASCII = ("utf-8", "utf-8-sig", "ascii", "iso8859-1", "cp1252")  # encodings of ASCII's bytes as such
_POINTED = re.compile(r"\d\.\d")
_POINT = re.compile(r"\d\.\d{1,2}(?!\d)|\d\.\d{4}|\d{4}\.\d|(?<![\d.])0\.\d")  # surely a decimal point


@dataclass(frozen=True)
class _File:
    """A CSV file, and how its text is cut into cells."""

    path: Path
    encoding: str
    skip: int  # lines above the header
    delimiter: str

    def opened(self) -> IO[str]:
        file = _text(self.path, self.encoding)
        for _ in range(self.skip):
            file.readline()
        return file


def _bytes(path: Path) -> IO[bytes]:
    return compressed.opened(path) if _is_packed(path) else path.open("rb")


def _text(path: Path, encoding: str, errors: str = "strict") -> IO[str]:
    file = _bytes(path)
    try:
        return io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="")
    except LookupError:  # an encoding that is not known
        file.close()
        raise


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() in PACKED or str(path) == STDIN


def open_csv(path: Path, reading: Reading) -> Source:
    """Open a CSV file with a header: plain, compressed, or from stdin."""
    if _is_packed(path):
        compressed.check(path)
    file = _cut(path, reading)
    with file.opened() as text:
        try:
            names = tuple(" ".join(name.split()) for name in next(csv.reader(text, delimiter=file.delimiter)))
        except StopIteration:
            raise InputError(f"{path}: the file is empty") from None
        except csv.Error as error:
            raise InputError(f"{path}, line 1: {error}") from error
    unnamed = []
    for j, name in enumerate(names):
        if not name:
            unnamed.append(f"column {j + 1}")
        elif name in names[:j]:
            raise InputError(f"{path}, line 1: two columns are named {name}")
    if not any(names):
        raise InputError(f"{path}, line 1: no header")
    if all(_is_number(name) for name in names):
        raise InputError(
            f"{path}, line 1: numbers where the names of columns should be; put a line with names first"
        )
    names = tuple(name or f"column {j + 1}" for j, name in enumerate(names))
    if len(names) == 1:
        _check_alone(file, names[0], reading)
    take = [j for j, name in enumerate(names) if reading.selects(name)]
    plain = reading.decimal in (None, ".") and not reading.raw
    sure = reading.decimal is not None or file.delimiter == ","
    return Source(
        path,
        names,
        tuple(names[j] for j in take),
        lambda: _blocks(file, len(names), take, plain, sure),
        lambda row: f"line {_line_of(file, row)}",
        usual="." if file.delimiter == "," else None,
        unnamed=tuple(unnamed),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------- how the text is encoded and cut


def _cut(path: Path, reading: Reading) -> _File:
    """The encoding and the delimiter of a file: as declared, or as its first bytes and its header show."""
    encoding = reading.encoding or _encoding(path)
    try:
        with _text(path, encoding) as file:
            first = file.readline()
    except (UnicodeError, LookupError) as error:
        raise InputError(f"{path}: not {encoding} text ({error}); --encoding names another") from error
    if not first.strip():
        raise InputError(f"{path}: the file is empty" if not first else f"{path}, line 1: no header")
    declared = re.fullmatch(r"sep=(.)\s*", first)  # a line that Excel reads and writes
    if declared:
        return _File(path, encoding, 1, reading.delimiter or declared[1])
    bare = re.sub(r'"[^"]*"', "", first)
    delimiter = reading.delimiter or max(_DELIMITERS, key=bare.count)
    if reading.delimiter is None and not any(map(bare.count, _DELIMITERS)):
        delimiter = ";" if _are_decimals(path, encoding) else ","
    return _File(path, encoding, 0, delimiter)


def _are_decimals(path: Path, encoding: str) -> bool:
    """True if the lines under a header of one name are numbers with a decimal comma."""
    with _text(path, encoding, errors="replace") as file:
        lines = [line.strip() for line in islice(file, 1, 100) if line.strip()]
    return bool(lines) and all(re.fullmatch(r"[-+]?\d+(,\d+)?", line) for line in lines)


def _check_alone(file: _File, name: str, reading: Reading) -> None:
    """Raise InputError if the one column of a file looks like several: cut at the wrong place."""
    others = [d for d in (*_DELIMITERS, " ") if d != file.delimiter and d in name]
    if reading.delimiter is not None and others and others != [" "]:
        raise InputError(
            f"{file.path}, line 1: one column when split at {file.delimiter!r}; "
            f"the header looks split at {_NAMES[others[0]]} (--delimiter {others[0]!r})"
        )
    if others == [" "]:
        with file.opened() as text:
            lines = [line.split() for line in islice(text, 1, 20) if line.strip()]
        if lines and all(len(line) == len(lines[0]) > 1 and all(map(_is_number, line)) for line in lines):
            raise InputError(
                f"{file.path}, line 1: one column; the rows look split at blanks (--delimiter ' ')"
            )


def _encoding(path: Path) -> str:
    """UTF-8 or UTF-16 where the bytes imply it, cp1252 where they allow it; else InputError."""
    with _bytes(path) as file:
        head = file.read(4096)
        for mark, encoding in _BOMS.items():
            if head.startswith(mark):
                return encoding
        if b"\0" in head:
            raise InputError(
                f"{path}: not a text file, or UTF-16 without its mark; --encoding utf-16-le reads the latter"
            )
        decoder, block, high = codecs.getincrementaldecoder("utf-8")(), head, set[int]()
        utf8, before, foreign = True, 0, 0
        while block:
            if utf8 and not (block.isascii() and not decoder.getstate()[0]):
                try:
                    decoder.decode(block)
                except UnicodeDecodeError as error:
                    utf8, foreign = False, before + error.start
            if not utf8:
                high.update(byte for byte in set(block) if byte >= 0x80)
                if _NO_LETTERS.search(block):
                    high.add(0x81)
            before += len(block)
            block = file.read(1 << 20)
    if utf8:
        return "utf-8"
    if high <= _WESTERN:
        return "cp1252"
    with _bytes(path) as file:
        line = 1 + file.read(foreign).count(b"\n")
    raise InputError(
        f"{path}, line {line}: not UTF-8 text; save the file as UTF-8, or name its encoding: --encoding "
        "cp1250, mac-roman, ..."
    )


# ---------------------------------------------------------------- rows


def _rows(text: IO[str], file: _File) -> Iterator[list[str]]:
    """The rows below the header."""
    reader = csv.reader(text, delimiter=file.delimiter, strict=True)
    try:
        yield from _below(reader)
    except csv.Error as error:
        raise InputError(f"{file.path}, line {reader.line_num + file.skip}: {error}") from error
    except UnicodeError as error:
        raise InputError(
            f"{file.path}: not {file.encoding} text ({error}); --encoding names another"
        ) from error


def _below(lines: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows below the first; blank lines are skipped, except between the cells of a single column.

    A line of delimiters only is a row whose cells are all missing.
    """
    width, blank = len(next(lines)), 0
    for row in lines:
        if row and (width == 1 or len(row) > 1 or row[0].strip()):
            yield from ([""] for _ in range(blank))
            yield row
            blank = 0
        elif width == 1:
            blank += 1


def _even(block: list[list[str]], width: int) -> list[list[str]]:
    """Rows without any cell cut or filled to the length of the others, ``width`` or one more."""
    lengths = set(map(len, block))
    if len(lengths) == 1:
        return block
    usual = width if width in lengths else width + 1
    return [row if len(row) == usual or any(map(str.strip, row)) else [""] * usual for row in block]


def _blocks(file: _File, width: int, take: list[int], plain: bool, sure: bool) -> Iterator[list[Cells]]:
    """The selected columns in blocks of lines: as numbers while all cells are plain numbers, then as text."""
    seen, lines = 0, lines_at_a_time(width)
    with file.opened() as text:
        fast = _numbers(file, width, lines, sure) if plain else iter(())
        for numbers in fast:
            if numbers is None:
                return  # all of the file is read
            yield [numbers[:, j] for j in take]
            seen += len(numbers)
        rows = islice(_rows(text, file), seen, None)
        while block := _even(list(islice(rows, lines)), width):
            lengths = set(map(len, block))
            if lengths == {width + 1} and not any(row[-1].strip() for row in block):
                block = [row[:-1] for row in block]  # every line ends with a delimiter
            elif lengths != {width}:
                i = next(i for i, row in enumerate(block) if len(row) != width)
                line = _line_of(file, seen + i)
                where = f"{file.path}, line {line}"
                hint = "; a decimal comma needs quotes, or another delimiter" if file.delimiter == "," else ""
                raise InputError(
                    f"{where}: {len(block[i])} fields where the header has {width}: {_start(block[i])}"
                    f"{hint if len(block[i]) > width else ''}"
                )
            columns = list(zip(*block, strict=True))
            yield [columns[j] for j in take]
            seen += len(block)


def _start(row: list[str]) -> str:
    text = " | ".join(row)
    return text[:40] + ("..." if len(text) > 40 else "")


def _numbers(file: _File, width: int, lines: int, sure: bool) -> Iterator[FloatArray | None]:
    """Blocks of numbers by fast readers; ends at the first block with any other cell, or with None.

    Codes with leading zeros, and numbers whose decimal mark is not yet ``sure``, are not plain numbers.
    """
    for block, found in _read_ahead(_byte_blocks(file, lines), file.delimiter, width):
        if found is None:
            values, sure = _loose_numbers(block, file, width, sure)
            if values is None:
                return
        else:
            sure = sure or found.sure
            if found.pointed and not sure:
                return
            values = found.values
        yield values
    yield None


def _byte_blocks(file: _File, lines: int) -> Iterator[bytes]:
    """The lines below the header, many at a time, as UTF-8 or in an encoding that has ASCII's bytes."""
    with _bytes(file.path) as raw:
        head = [raw.readline() for _ in range(file.skip + 1)]
        plain = codecs.lookup(file.encoding).name in _ASCII and not any(
            b"\r" in h.rstrip(b"\r\n") for h in head
        )
        begun = b""  # of a line whose end is not read yet
        while plain and (block := raw.read(_BYTES)):
            end = block.rfind(b"\n") + 1
            if end:
                yield begun + block[:end] if begun else block[:end]
                begun = block[end:]
            else:
                begun += block
        if begun:
            yield begun
    if not plain:
        with file.opened() as text, contextlib.suppress(UnicodeError):  # the slow reader names the place
            below = islice(text, 1, None)
            while block := "".join(islice(below, lines)).encode():
                yield block


def _read_ahead(
    blocks: Iterator[bytes], delimiter: str, width: int
) -> Iterator[tuple[bytes, PlainNumbers | None]]:
    """Blocks with their numbers, which other threads read while the next block is fetched."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        waiting: deque[tuple[bytes, Future[PlainNumbers | None]]] = deque()
        for block in blocks:
            waiting.append((block, threads.submit(plain_numbers, block, delimiter, width)))
            if len(waiting) > (os.cpu_count() or 1):
                first, found = waiting.popleft()
                yield first, found.result()
        for block, found in waiting:
            yield block, found.result()


def _loose_numbers(block: bytes, file: _File, width: int, sure: bool) -> tuple[FloatArray | None, bool]:
    """A block by numpy's reader, which allows spaces; None if it has any other cell."""
    try:
        text = [line.decode() for line in io.BytesIO(block)]
        joined = "\n" + "".join(text)
        if '"' in joined or (width == 1 and not all(map(str.strip, text))):
            return None, sure
        sure = sure or _POINT.search(joined) is not None
        zeros = re.compile(rf"[\n{re.escape(file.delimiter)}]0\d")
        if zeros.search(joined) or (not sure and _POINTED.search(joined)):
            return None, sure
        values = np.loadtxt(text, delimiter=file.delimiter, comments=None, ndmin=2)
    except (ValueError, UserWarning):  # not numbers, not UTF-8, or nothing but blank lines
        return None, sure
    return (None if values.shape[1] != width or not np.isfinite(values).all() else values), sure


def lines_at_a_time(width: int) -> int:
    return max(64, _CELLS // width)


def _line_of(file: _File, row: int) -> int:
    """The line number of a row, counted from the start of the file, since only error messages need it."""
    with file.opened() as text:
        reader = csv.reader(text, delimiter=file.delimiter)
        next(islice(_below(reader), row, None), None)
        return reader.line_num + file.skip
