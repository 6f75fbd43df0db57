"""Types under names of their own, as ``type`` statements give them, are read as the types that they name."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from typing_extensions import TypeAliasType

from unpooled.errors import CodecError
from unpooled.protocol import codec
from unpooled.protocol.declarations import undeclared, whole_numbers
from unpooled.protocol.field_types import field_hints, spelled_out
from unpooled.protocol.messages import Message
from unpooled.typing import FloatArray

pytestmark = pytest.mark.quick

S = TypeVar("S", bound=np.generic)
AnyShape = TypeAliasType("AnyShape", tuple[Any, ...])
Array = TypeAliasType("Array", np.ndarray[AnyShape, np.dtype[S]], type_params=(S,))  # NDArray of numpy 2.5
Age = TypeAliasType("Age", int)


@dataclass(frozen=True, eq=False)
class Named(Message, prefix="test_hints"):
    """A message whose types have names."""

    rows: Array[np.float64]
    perhaps: Array[np.int64] | None
    several: tuple[Array[np.bool_], ...]
    age: Age
    kind: Literal["a", "b"]
    note: ClassVar[str] = "no field"


def a_message(**changed):
    values = {"rows": np.ones(2), "perhaps": np.array([1, 2]), "several": (np.array([True]),), "age": 7}
    return Named(**{**values, "kind": "a", **changed})


def test_names_are_spelled_out():
    floats = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
    assert spelled_out(Array[np.float64]) == floats
    assert spelled_out(Array[np.float64] | None) == floats | None
    assert spelled_out(tuple[Array[np.float64], ...]) == tuple[floats, ...]
    assert spelled_out(dict[str, Array[np.float64]]) == dict[str, floats]
    assert spelled_out(Array) == np.ndarray[tuple[Any, ...], np.dtype[S]]
    assert spelled_out(Literal["int"]) == Literal["int"]
    assert field_hints(Named)["age"] is int
    assert "note" not in field_hints(Named)


@pytest.mark.parametrize("kind", [FloatArray, npt.NDArray[np.float64]])
def test_the_arrays_of_this_numpy_are_arrays(kind):
    assert spelled_out(kind).__origin__ is np.ndarray


def test_a_message_with_such_types_travels():
    result = codec.decode(codec.encode(a_message()))
    assert result.rows.tolist() == [1.0, 1.0]
    assert result.perhaps.tolist() == [1, 2]
    assert codec.decode(codec.encode(a_message(perhaps=None))).perhaps is None


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("rows", np.ones(2, np.float32)), ("perhaps", np.ones(2)), ("several", (np.ones(2),)), ("age", 1.5)],
)
def test_a_value_of_another_type_is_refused(field, wrong):
    with pytest.raises(CodecError, match=rf"Named\.{field} does not fit its type"):
        codec.decode(codec.encode(a_message(**{field: wrong})))


def test_an_array_under_such_a_name_must_be_declared_and_a_number_too():
    assert undeclared(Named) == ("rows", "perhaps", "several", "age")
    assert whole_numbers(Named) == ("age",)
