"""Bytes and back; and bytes that are none of ours are refused, always by the same error."""

import dataclasses
import importlib
import json
import pkgutil
import types
import typing
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unpooled
from helpers import ALGORITHMS, bits
from unpooled.algorithms import DWF, Method, Restarts
from unpooled.algorithms.lloyd import LloydState
from unpooled.data.transforms import Affine
from unpooled.errors import CodecError
from unpooled.federation import Simulation
from unpooled.protocol import codec, run
from unpooled.protocol.algorithm import State
from unpooled.protocol.exchange import Part, Request, RequestId, size
from unpooled.protocol.field_types import field_hints
from unpooled.protocol.messages import Message, Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments, Moments
from unpooled.typing import BoolArray, FloatArray, IntArray

pytestmark = pytest.mark.quick

# ---------------------------------------------------------------- one value of every kind


@dataclass(frozen=True, eq=False)
class Zoo(Message, prefix="test_codec"):
    """A message with a field of every kind."""

    number: int
    share: float
    flag: bool
    text: str
    floats: FloatArray
    ints: IntArray
    bools: BoolArray
    maybe: FloatArray | None
    choice: Literal["a", "b"]
    names: tuple[str, ...]
    pair: tuple[int, FloatArray]
    table: dict[str, int]
    anything: Any


def zoo(**changes):
    values = {
        "number": 2**70,
        "share": 0.1,
        "flag": True,
        "text": 'ünïcode "quoted" \\ \0',
        "floats": np.array([[1.5, -0.0], [np.nan, np.inf]]),
        "ints": np.array([-(2**62), 0]),
        "bools": np.array([True, False, True]),
        "maybe": None,
        "choice": "b",
        "names": ("x", ""),
        "pair": (-1, np.zeros((0, 3))),
        "table": {"b": 1, "a": 2},
        "anything": (Refusal("no"), None, 3.5, {"deep": np.zeros(())}),
    }
    return Zoo(**{**values, **changes})


def skeleton_of(data: bytes) -> dict[str, Any]:
    return json.loads(data[24 : 24 + int.from_bytes(data[8:12], "little")])


def body_of(data: bytes) -> bytes:
    return data[24 + int.from_bytes(data[8:12], "little") :]


def forged(skeleton: Any, body: bytes = b"") -> bytes:
    """Bytes with a valid frame about any skeleton."""
    head = skeleton if isinstance(skeleton, bytes) else json.dumps(skeleton).encode()
    head += b" " * (-len(head) % 8)
    frame = b"UNPL\1\0\0\0" + len(head).to_bytes(4, "little") + len(body).to_bytes(8, "little")
    return frame + b"\0" * (-len(frame) % 8) + head + body


def root(node: Any, *table: Any, body: bytes = b"") -> bytes:
    return forged({"arrays": list(table), "root": node}, body)


# ---------------------------------------------------------------- round trips


def test_every_kind_of_value_comes_back():
    before = zoo()
    after = codec.decode(codec.encode(before), expect=Zoo)
    assert codec.encode(after) == codec.encode(before)
    for field in dataclasses.fields(Zoo):
        a, b = getattr(before, field.name), getattr(after, field.name)
        assert type(a) is type(b)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
        elif field.name not in ("pair", "anything"):
            assert a == b
    assert after.pair[1].shape == (0, 3)
    assert after.anything[0].reason == "no"
    assert after.anything[3]["deep"].shape == ()
    assert np.signbit(after.floats[0, 1])


def test_arrays_come_back_read_only_and_in_any_order_of_memory():
    X = np.arange(12.0).reshape(3, 4)
    result = codec.decode(codec.encode(Affine(X[:, 1], X.T[::2, ::-1])))
    np.testing.assert_array_equal(result.scale, X.T[::2, ::-1])
    assert not result.scale.flags.writeable
    assert codec.encode(Affine(X[:, 1], X.T)) == codec.encode(Affine(X[:, 1].copy(), X.T.copy()))
    assert codec.encode(Affine(X[0].astype(">f8"), X)) == codec.encode(Affine(X[0], X))


def test_equal_messages_give_equal_bytes():
    assert bits(zoo(table={"a": 2, "b": 1})) == bits(zoo())
    assert bits(zoo(number=3)) != bits(zoo())
    assert bits(zoo(number=np.int64(3), share=np.float64(0.1))) == bits(zoo(number=3))


def value_for(hint: Any) -> Any:
    """Some value that fits an annotation."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return Moments(*np.ones((3, 2)))
    if origin in (typing.Union, types.UnionType, Literal):
        return args[0] if origin is Literal else value_for(args[0])
    if origin is np.ndarray:
        return np.ones((2, 2), dtype=typing.get_args(args[1])[0])
    if origin is tuple:
        return tuple(value_for(a) for a in args if a is not Ellipsis)
    if origin is dict:
        return {"key": value_for(args[1])}
    if dataclasses.is_dataclass(origin or hint) and named(origin or hint):
        return example(origin or hint)
    if hint is State:  # of its subclasses, one that holds no further state
        return example(LloydState)
    simple = {int: 3, float: 0.5, str: "text", bool: True}
    if hint in simple:
        return simple[hint]
    kinds = (c for c in subclasses(origin or hint) if c.__module__.startswith("unpooled."))
    return example(next(c for c in kinds if dataclasses.is_dataclass(c) and named(c)))


def named(cls: type[Any]) -> bool:
    """Does the class travel? A base such as Method or Question does not."""
    return codec.name_of(cls) in codec.registered()


def subclasses(cls: type[Any]) -> list[type[Any]]:
    return [s for c in cls.__subclasses__() for s in (c, *subclasses(c))]


def example(cls: type[Any]) -> Any:
    if issubclass(cls, Method):
        return cls(k=3)
    if cls is Restarts:
        return Restarts(DWF(k=3), 4)
    return cls(**{name: value_for(hint) for name, hint in field_hints(cls).items()})


CORE = ("algorithms", "checkpoint", "messages", "preparing", "protocol", "summaries")


def messages() -> list[type[Any]]:
    """Every message type of the core."""
    found = {c for c in subclasses(Message) if dataclasses.is_dataclass(c) and named(c)}
    core = {c for c in found if c.__module__.startswith(tuple(f"unpooled.{name}" for name in CORE))}
    return sorted(core, key=codec.name_of)


@pytest.mark.parametrize("cls", messages(), ids=codec.name_of)
def test_every_message_type_comes_back(cls):
    before = example(cls)
    after = codec.decode(codec.encode(before), expect=cls)
    assert type(after) is cls
    assert codec.encode(after) == codec.encode(before)


def test_no_two_message_types_of_the_package_share_a_name():
    for module in pkgutil.walk_packages(unpooled.__path__, "unpooled."):
        engine = ".nvflare" in module.name  # which runs on Linux only
        if not module.name.rpartition(".")[2].startswith("_") and (not engine or find_spec("nvflare")):
            importlib.import_module(module.name)
    types = {c for c in subclasses(Message) if c.__module__.startswith("unpooled.")}
    assert len({codec.name_of(c) for c in types}) == len(types) > 30


def test_every_algorithm_comes_back():
    for make in ALGORITHMS.values():
        assert bits(codec.decode(bits(make()))) == bits(make())


def test_size_counts_numbers_and_bytes():
    for message in (Moments(np.ones(1), np.ones(3), np.ones(3)), zoo(), Refusal("no"), AskMoments()):
        assert size(message)[1] == len(codec.encode(message))
    assert size(Moments(np.ones(1), np.ones(3), np.ones(3)))[0] == 7
    assert size(AskMoments())[0] == 0


# ---------------------------------------------------------------- what cannot be sent


@dataclass(frozen=True)
class Stranger:
    """A dataclass that nobody registered."""

    value: int = 0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([None, "text"]), "array of object cannot travel"),
        (np.array(["text"]), "array of <U4 cannot travel"),
        (np.array([1 + 2j]), "array of complex128 cannot travel"),
        (np.zeros(2, dtype=[("a", "f8")]), "cannot travel"),
        (Stranger(), "a Stranger cannot travel"),
        (object(), "a object cannot travel"),
        ([1, 2], "a list cannot travel"),
        (b"bytes", "a bytes cannot travel"),
        ({1: "a"}, "must have text keys"),
        (lambda: 0, "a function cannot travel"),
        (Message, "a type cannot travel"),
    ],
)
def test_what_is_not_a_message_cannot_be_encoded(value, message):
    with pytest.raises(CodecError, match=message):
        codec.encode(zoo(anything=value))


# ---------------------------------------------------------------- what is refused


def affine(**fields: Any) -> Any:
    return {"type": "Affine", "fields": fields}


ONE = ["<f8", [1]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "needs at least 24 bytes, got 0"),
        (b"UNPL", "needs at least 24 bytes, got 4"),
        (b"\x80\x04K\x01." + b"\0" * 40, "does not begin with UNPL"),
        (b"UNPL\2" + b"\0" * 40, "format 2, and this release reads format 1"),
        (root(1) + b"\0", "message of 56 bytes, got 57"),
        (forged(b"{not json"), "not JSON"),
        (forged(b"\xff\xfe\xfa"), "not JSON"),
        (forged(b"[" * 100_000), "not JSON"),
        (forged([1, 2]), "lacks its two parts"),
        (forged({"root": 1}), "lacks its two parts"),
        (forged({"root": 1, "arrays": [], "more": 1}), "lacks its two parts"),
        (forged({"root": 1, "arrays": {}}), "not a list"),
        (root({"array": 0}, ["<f8"]), r"not \(dtype, shape\)"),
        (root({"array": 0}, ["|O", [1]], body=b"\0" * 8), r"not \(dtype, shape\)"),
        (root({"array": 0}, [["<f8"], [1]], body=b"\0" * 8), r"not \(dtype, shape\)"),
        (root({"array": 0}, ["<f8", [-1]]), "impossible shape"),
        (root({"array": 0}, ["<f8", [1.5]]), "impossible shape"),
        (root({"array": 0}, ["<f8", [True]], body=b"\0" * 8), "impossible shape"),
        (root({"array": 0}, ["<f8", [2**62]]), "impossible shape"),
        (root({"array": 0}, ["<f8", [0, 2**39, 2**39]]), "impossible shape"),
        (root({"array": 0}, ["<f8", [1] * 9], body=b"\0" * 8), "impossible shape"),
        (root({"array": 0}, ["<f8", [2]], body=b"\0" * 8), "shorter than its arrays"),
        (root({"array": 0}, ONE, body=b"\0" * 16), "longer than its arrays"),
        (root(1, ONE, body=b"\0" * 8), "nothing refers to"),
        (root({"tuple": [{"array": 0}, {"array": 0}]}, ONE, body=b"\0" * 8), "something unknown"),
        (root({"array": 1}, ONE, body=b"\0" * 8), "something unknown"),
        (root({"array": -1}, ONE, body=b"\0" * 8), "something unknown"),
        (root([1]), "bare list"),
        (root({"float": "1e3"}), "something unknown"),
        (root({"tuple": {}}), "something unknown"),
        (root({"pickle": "gASVAAAA"}), "something unknown"),
        (root({"type": "os.system", "fields": {}}), "unknown message type 'os.system'"),
        (root({"type": "builtins.eval", "fields": {}}), "unknown message type"),
        (root({"type": "messages.Reply", "fields": {}}), "unknown message type"),
        (root({"type": "protocol.Transform", "fields": {}}), "unknown message type"),
        (root({"type": "Refusal", "fields": {}}), "missing or unknown fields: reason"),
        (
            root({"type": "Refusal", "fields": {"reason": "", "x": 1}}),
            "missing or unknown fields: x",
        ),
        (root({"type": "Refusal", "fields": {"reason": 3}}), "Refusal.reason does not fit"),
        (
            root({"type": "Refusal", "fields": {"reason": None}}),
            "does not fit its type: got NoneType",
        ),
        (root(affine(shift=1.0, scale=2.0)), "Affine.shift does not fit its type: got float"),
        (
            root(affine(shift={"array": 0}, scale={"array": 1}), ONE, ["<f4", [2]], body=b"\0" * 16),
            "Affine.scale does not fit its type: got array of float32",
        ),
        (
            root(affine(shift={"array": 0}, scale={"array": 1}), ["<i8", [1]], ONE, body=b"\0" * 16),
            "Affine.shift does not fit its type: got array of int64",
        ),
    ],
)
def test_what_is_refused(data, message):
    with pytest.raises(CodecError, match=message):
        codec.decode(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", True),
        ("number", 1.0),
        ("share", "0.1"),
        ("share", False),
        ("flag", 1),
        ("maybe", {"tuple": []}),
        ("choice", "c"),
        ("names", {"tuple": ["x", 1]}),
        ("names", "xy"),
        ("pair", {"tuple": [1]}),
        ("table", {"dict": {"a": "1"}}),
        ("table", {"tuple": []}),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_refused(field, value):
    data = codec.encode(zoo(floats=np.zeros(0), ints=np.zeros(0, int), bools=np.zeros(0, bool), anything=0))
    head = skeleton_of(data)
    head["root"]["fields"][field] = value
    if field == "pair":
        del head["arrays"][3]
    with pytest.raises(CodecError, match=rf"Zoo\.{field} does not fit"):
        codec.decode(forged(head))


def test_a_literal_field_is_refused_as_an_array():
    head = skeleton_of(codec.encode(DWF(k=2)))
    head["root"]["fields"]["tol_kind"] = {"array": 0}
    head["arrays"].append(["<f8", [2]])
    with pytest.raises(CodecError, match=r"DWF\.tol_kind does not fit its type: got array of float64"):
        codec.decode(forged(head, b"\0" * 16))


def test_a_class_may_refuse_its_values():
    head = skeleton_of(codec.encode(DWF(k=2)))
    head["root"]["fields"]["momentum"] = 1.5
    with pytest.raises(CodecError, match=r"DWF refuses its values: .*momentum must be in \[0, 1\), got 1.5"):
        codec.decode(forged(head))


def test_deep_nesting_is_refused():
    node: Any = 0
    for _ in range(32):
        node = {"tuple": [node]}
    assert codec.decode(root(node)) is not None
    with pytest.raises(CodecError, match="nested deeper than 32"):
        codec.decode(root({"tuple": [node]}))


def test_another_type_than_expected_is_refused():
    data = codec.encode(Refusal("no"))
    with pytest.raises(CodecError, match=r"expected Moments, got Refusal"):
        codec.decode(data, expect=Moments)
    with pytest.raises(CodecError, match=r"expected Moments, got int"):
        codec.decode(root(3), expect=Moments)


# ---------------------------------------------------------------- fuzz: only CodecError, whatever the bytes


def samples() -> list[bytes]:
    question = AskClusterSums(np.random.default_rng(0).normal(size=(2, 3, 2)))
    parts = (Part("total", question, Affine(np.zeros(2), np.ones(2)), 0), Part("each", AskMoments(), None, 1))
    state = run(
        Restarts(DWF(k=2), 2),
        Simulation.from_rows({"a": np.eye(4)[:, :2], "b": np.ones((3, 2))}),
        max_rounds=1,
    ).state
    return [
        codec.encode(m)
        for m in (zoo(), Request(RequestId("r", 1, 2, 3), parts), state, Restarts(DWF(k=3), 2))
    ]


SAMPLES = samples()


def decodes_or_refuses(data: bytes) -> None:
    """CodecError is caught; any other error escapes and fails the test."""
    try:
        message = codec.decode(data)
    except CodecError:
        return
    codec.encode(message)


@pytest.mark.parametrize("data", SAMPLES)
def test_fuzz_every_truncation(data):
    for end in range(len(data)):
        with pytest.raises(CodecError):
            codec.decode(data[:end])


@pytest.mark.parametrize("data", SAMPLES)
def test_fuzz_flipped_bytes(data):
    rng = np.random.default_rng(len(data))
    for _ in range(1500):
        broken = bytearray(data)
        for place in rng.integers(len(data), size=rng.integers(1, 5)):
            broken[place] = rng.integers(256)
        decodes_or_refuses(bytes(broken))


@pytest.mark.parametrize("data", SAMPLES)
def test_fuzz_the_skeleton(data):
    """Pieces of JSON put into one another's places, within a valid frame."""
    rng = np.random.default_rng(len(data))
    head, body = skeleton_of(data), body_of(data)

    def places(node: Any) -> list[tuple[Any, Any]]:
        keys = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return [place for key, value in keys for place in ((node, key), *places(value))]

    strange = [
        None,
        True,
        -1,
        1e400,
        float("nan"),
        2**64,
        "",
        "array",
        [],
        {},
        {"array": 0},
        {"float": "nan"},
    ]
    for _ in range(800):
        broken = json.loads(json.dumps(head))
        spots = places(broken)
        for _ in range(rng.integers(1, 4)):
            node, key = spots[rng.integers(len(spots))]
            other, at = spots[rng.integers(len(spots))]
            # a copy, so that the skeleton stays a tree
            node[key] = json.loads(json.dumps(other[at])) if rng.random() < 0.5 else strange[rng.integers(12)]
        decodes_or_refuses(forged(broken, body))


@settings(max_examples=500)
@given(st.binary(max_size=200), st.booleans())
def test_fuzz_anything(data, framed):
    decodes_or_refuses(forged(data) if framed else data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["array", "tuple", "dict", "float", "type", "fields", "root", "arrays"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=100)
@given(JSON, st.lists(JSON, max_size=2), st.binary(max_size=32))
def test_fuzz_any_skeleton(node, table, body):
    decodes_or_refuses(forged({"root": node, "arrays": table}, body))
