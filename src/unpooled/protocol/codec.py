"""One codec for the wire, the audit log and the checkpoint: a JSON skeleton plus named arrays.

A message is a frozen dataclass of arrays, numbers, text, tuples and other messages. Its bytes are::

    "UNPL" | format u8 | 3 zero bytes | skeleton length u32 | arrays length u64 | skeleton | arrays

The skeleton is JSON in which every array is replaced by its place in a table of (dtype, shape); the arrays
follow raw, little-endian, each on an 8-byte boundary. No code is executed: a type arrives by name and must be
registered, and every field must fit the type that its class declares.
"""

import dataclasses
import json
import math
import struct
import types
import typing
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.errors import CodecError
from unpooled.protocol.field_types import field_hints
from unpooled.storage.file_format import FORMAT, format_error

_MAGIC = b"UNPL"
_HEAD = struct.Struct("<4sB3xIQ")
_DTYPES = ("<f8", "<f4", "<i8", "<i4", "|b1", "|u1")
_MAX_DEPTH = 32
_PLAIN = (str, float, int, bool)  # types that JSON returns ready to use
_CHECKSUM = 16  # bytes, before a message on a wire; a multiple of 8, so that arrays stay aligned

_register: dict[str, type[Any]] = {}
_field_names: dict[Any, tuple[str, ...]] = {}
_field_types: dict[Any, dict[str, Any]] = {}
_wire_names: dict[type[Any], str] = {}  # by class, kept for speed


def register(cls: type[Any], prefix: str = "") -> None:
    """Register ``cls`` to travel: under its own name, or for a class of another author under ``prefix.name``.

    A class of another author without a prefix is not registered. Two classes of one name are an error. A
    class that is defined again, as in a notebook, replaces itself.
    """
    own = cls.__module__.partition(".")[0] == "unpooled"
    if own and prefix:
        raise CodecError(f"{cls.__qualname__}: a message of unpooled itself has no prefix, got {prefix!r}")
    if not own and not prefix:
        return
    if prefix and not prefix.isidentifier():
        raise CodecError(f"{cls.__qualname__}: the prefix must be a name such as 'hospital', got {prefix!r}")
    name = f"{prefix}.{cls.__name__}" if prefix else cls.__name__
    other = _register.get(name)
    if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise CodecError(
            f"two messages travel as {name!r}: {other.__module__}.{other.__qualname__} "
            f"and {cls.__module__}.{cls.__qualname__}"
        )
    _wire_names.clear()  # the name may belong to a redefined class now
    _register[name] = cls
    cls._wire_name = name


def _wire_name(cls: type[Any]) -> str | None:
    """The name under which exactly this class travels: a subclass does not inherit its parent's."""
    return typing.cast(str | None, cls.__dict__.get("_wire_name"))


def name_of(cls: type[Any]) -> str:
    """Return the name under which a class travels, or its own name if it does not travel.

    >>> from unpooled.protocol.questions.cluster_sums import Moments
    >>> name_of(Moments)
    'Moments'
    """
    return _wire_name(cls) or cls.__qualname__


def registered() -> dict[str, type[Any]]:
    """Return every class that can travel, by its name."""
    return dict(_register)


def class_named(name: str) -> type[Any] | None:
    """Return the class that travels under a name, if there is one."""
    return _register.get(name)


def encode(message: object) -> bytes:
    """Return the bytes of a message; equal messages give equal bytes."""
    arrays: list[npt.NDArray[Any]] = []
    skeleton = _write(message, arrays)
    table = [[_wire_dtype(a), list(a.shape)] for a in arrays]
    head = json.dumps({"arrays": table, "root": skeleton}, sort_keys=True, separators=(",", ":")).encode()
    body = b"".join(_padded(np.ascontiguousarray(a, dtype=_wire_dtype(a)).tobytes()) for a in arrays)
    head = _padded(head, b" ")
    return _HEAD.pack(_MAGIC, FORMAT, len(head), len(body)) + b"\0" * (-_HEAD.size % 8) + head + body


def decode(data: bytes, *, expect: type[Any] | None = None, limit: int | None = None) -> Any:
    """Decode the message in ``data`` and check all of it; arrays are read-only and not copied.

    Raises CodecError for any bytes that are not a valid message. More than ``limit`` bytes are not parsed.
    """
    if limit is not None and len(data) > limit:
        raise CodecError(f"message of {len(data):,} bytes, {limit:,} are allowed")
    start = _HEAD.size + (-_HEAD.size % 8)
    if len(data) < start:
        raise CodecError(f"a message needs at least {start} bytes, got {len(data)}")
    magic, found, head_size, body_size = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise CodecError("not an unpooled message: it does not begin with UNPL")
    if found != FORMAT:
        raise CodecError(f"message of {format_error(found)}")
    if len(data) != start + head_size + body_size:
        raise CodecError(f"message of {start + head_size + body_size} bytes, got {len(data)}")
    try:
        head = json.loads(data[start : start + head_size])
    except (ValueError, RecursionError) as error:
        raise CodecError("the skeleton of the message is not JSON") from error
    if not isinstance(head, dict) or set(head) != {"arrays", "root"}:
        raise CodecError("the skeleton of the message lacks its two parts")
    arrays = _read_arrays(head["arrays"], data, start + head_size)
    used: set[int] = set()
    message = _read(head["root"], arrays, used, 0)
    if len(used) != len(arrays):
        raise CodecError("the message carries arrays that nothing refers to")
    if expect is not None and not isinstance(message, expect):
        raise CodecError(f"expected {name_of(expect)}, got {_kind(message)}")
    return message


def wrap(message: object) -> bytes:
    """Return a message for a wire: its checksum, then its bytes."""
    data = encode(message)
    return _checksum(data) + data


def unwrap(data: bytes, *, expect: type[Any] | None = None, limit: int | None = None) -> Any:
    """Return the message that ``wrap`` encoded; CodecError, before it is parsed, if any bit has changed.

    >>> unwrap(wrap(("a", 1)))
    ('a', 1)
    """
    if limit is not None and len(data) > limit:
        raise CodecError(f"message of {len(data):,} bytes, {limit:,} are allowed")
    if len(data) < _CHECKSUM or _checksum(data[_CHECKSUM:]) != data[:_CHECKSUM]:
        raise CodecError("the checksum of the message does not fit: damaged, or not an unpooled message")
    return decode(data[_CHECKSUM:], expect=expect)


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_CHECKSUM).digest()


@lru_cache(maxsize=32)  # by identity: several steps of a site need the digest of one message
def digest(message: object) -> str:
    """Return a short digest of a message's content."""
    return sha256(encode(message)).hexdigest()[:32]


def numbers(message: object) -> int:
    """Return the number of array entries in a message."""
    arrays: list[npt.NDArray[Any]] = []
    _write(message, arrays)
    return sum(a.size for a in arrays)


def field_names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of a message's fields, in order; cached, since they are needed often."""
    if cls not in _field_names:
        _field_names[cls] = tuple(f.name for f in dataclasses.fields(cls))
    return _field_names[cls]


# ---------------------------------------------------------------- writing the skeleton


def _write(value: object, arrays: list[npt.NDArray[Any]]) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic):
        return _write(value.item(), arrays)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    name = _wire_names.get(type(value))
    if name is not None:
        fields = field_names(type(value))
        return {"type": name, "fields": {f: _write(getattr(value, f), arrays) for f in fields}}
    if isinstance(value, tuple):
        return {"tuple": [_write(v, arrays) for v in value]}
    if isinstance(value, dict):
        if not all(isinstance(k, str) for k in value):
            raise CodecError("a dict in a message must have text keys")
        return {"dict": {k: _write(value[k], arrays) for k in sorted(value)}}
    name = _wire_name(type(value))
    if name is None or _register.get(name) is not type(value):
        more = ": its class has no prefix, as in class X(Message, prefix=...)" if _could_travel(value) else ""
        raise CodecError(f"a {_kind(value)} cannot travel in a message{more}")
    _wire_names[type(value)] = name
    return _write(value, arrays)


def _could_travel(value: object) -> bool:
    return dataclasses.is_dataclass(value) and _wire_name(type(value)) is None


def _wire_dtype(array: npt.NDArray[Any]) -> str:
    dtype = array.dtype.newbyteorder("<").str
    if dtype not in _DTYPES:
        raise CodecError(f"an array of {array.dtype} cannot travel in a message")
    return dtype


def _padded(data: bytes, fill: bytes = b"\0") -> bytes:
    return data + fill * (-len(data) % 8)


# ---------------------------------------------------------------- reading the skeleton


def _read_arrays(table: object, data: bytes, start: int) -> list[npt.NDArray[Any]]:
    if not isinstance(table, list):
        raise CodecError("the table of arrays is not a list")
    arrays = []
    for row in table:
        if not (isinstance(row, list) and len(row) == 2 and row[0] in _DTYPES and isinstance(row[1], list)):
            raise CodecError("a row of the table of arrays is not (dtype, shape)")
        dtype, shape = np.dtype(row[0]), row[1]
        possible = len(shape) <= 8 and all(type(n) is int and 0 <= n < 2**40 for n in shape)
        if not possible or math.prod(max(n, 1) for n in shape) >= 2**40:
            raise CodecError("an array of the message has an impossible shape")
        count = math.prod(shape)
        if start + count * dtype.itemsize > len(data):
            raise CodecError("the message is shorter than its arrays")
        arrays.append(np.frombuffer(data, dtype, count, start).reshape(shape))
        start += count * dtype.itemsize + (-count * dtype.itemsize % 8)
    if start != len(data):
        raise CodecError("the message is longer than its arrays")
    return arrays


def _read(node: object, arrays: list[npt.NDArray[Any]], used: set[int], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise CodecError(f"the message is nested deeper than {_MAX_DEPTH}")
    if node is None or type(node) in _PLAIN:
        return node
    if not isinstance(node, dict):
        raise CodecError("the skeleton of the message holds a bare list")
    if len(node) == 2 and type(node.get("type")) is str and type(node.get("fields")) is dict:
        fields = {k: _read(v, arrays, used, depth + 1) for k, v in node["fields"].items()}
        return _build(node["type"], fields)
    match node:
        case {"array": int(index)} if len(node) == 1 and 0 <= index < len(arrays) and index not in used:
            used.add(index)
            return arrays[index]
        case {"float": ("nan" | "inf" | "-inf") as text} if len(node) == 1:
            return float(text)
        case {"tuple": list(items)} if len(node) == 1:
            return tuple(_read(v, arrays, used, depth + 1) for v in items)
        case {"dict": dict(items)} if len(node) == 1:
            return {k: _read(v, arrays, used, depth + 1) for k, v in items.items()}
    raise CodecError("the skeleton of the message holds something unknown")


def _build(name: str, values: dict[str, Any]) -> Any:
    cls = _register.get(name)
    if cls is None or not dataclasses.is_dataclass(cls):
        raise CodecError(f"unknown message type {name!r}: no module that is imported here defines it")
    hints = _hints(cls)
    if values.keys() != hints.keys():
        odd = sorted(set(values) ^ set(hints))
        raise CodecError(f"{name} with missing or unknown fields: {', '.join(map(str, odd))}")
    for field, hint in hints.items():
        if not _fits(values[field], hint):
            raise CodecError(f"{name}.{field} does not fit its type: got {_kind(values[field])}")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise CodecError(f"{name} refuses its values: {error}") from error


def _hints(cls: type[Any]) -> dict[str, Any]:
    if cls not in _field_types:
        _field_types[cls] = field_hints(cls)
    return _field_types[cls]


def _fits(value: object, hint: object) -> bool:
    """True if a value fits a field's annotation, for the kinds of annotation that messages use."""
    if hint is type(value):  # first, since most fields are a plain str, float, int or bool
        return True
    if hint is Any:
        return True
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, a) for a in args)
    if origin is typing.Literal:
        return any(type(value) is type(a) and value == a for a in args)
    if origin is np.ndarray:
        kind = typing.get_args(args[1])[0] if len(args) == 2 else Any
        kind = Any if isinstance(kind, typing.TypeVar) else kind
        return isinstance(value, np.ndarray) and (kind is Any or value.dtype == np.dtype(kind))
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(args) == 2 and args[1] is Ellipsis:
            return all(_fits(v, args[0]) for v in value)
        return len(value) == len(args) and all(map(_fits, value, args))
    if origin is dict:
        return isinstance(value, dict) and all(_fits(v, args[1]) for v in value.values())
    if isinstance(hint, typing.TypeVar):
        return True
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    cls = origin if origin is not None else hint
    return isinstance(value, cls) if isinstance(cls, type) else False


def _kind(value: object) -> str:
    return f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
