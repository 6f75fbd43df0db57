"""Lines of plain numbers: the same bits as Python's own float, and no cell that is anything else."""

import random
import re

import numpy as np
import pytest
from tests.amounts import amounts

from kernels.kernel_cases import needs_native
from unpooled.data.readers.csv_file import _POINT, _POINTED
from unpooled.kernels import plain_numbers

pytestmark = [pytest.mark.quick, needs_native]


def some_number(chance):
    value = chance.choice([chance.uniform(-1, 1), chance.gauss(0, 1) * 10 ** chance.randint(-300, 300)])
    return chance.choice(
        [
            lambda: repr(value),
            lambda: f"{value:.3f}" if abs(value) < 1e20 else repr(value),
            lambda: str(chance.randint(-(10**6), 10**6)),
            lambda: f"{chance.randint(0, 999)}.{chance.randint(0, 999):03}",
            lambda: f"+{chance.randint(1, 9)}.5e{chance.randint(-9, 9)}",
            lambda: f".{chance.randint(0, 99)}",
            lambda: f"{chance.randint(1, 99)}.",
            lambda: "5e-324",
            lambda: "123456789012345678901234567890.12345678901234567890",
        ]
    )()


def short_number(chance):
    """At most 19 digits, a point anywhere among them: what the kernel divides itself."""
    digits = str(chance.getrandbits(chance.randint(1, 63)))
    at = chance.randint(0, len(digits))
    return chance.choice(["", "-"]) + (digits[:at].lstrip("0") or "0") + "." + digits[at:]


def near_a_tie(chance):
    """A number halfway between two doubles, or a unit of its last place beside that."""
    places = chance.randint(0, 2)
    odd = (1 << 53 | chance.getrandbits(53)) | 1
    digits = odd * 5**places + chance.choice([-1, 0, 0, 1])  # odd / 2^places, as a decimal fraction
    text = str(digits)
    return text if not places else f"{text[:-places]}.{text[-places:]}"


@pytest.mark.parametrize("count", amounts(40_000, 5_000_000))
@pytest.mark.parametrize("make", [short_number, near_a_tie])
def test_divided_numbers_have_the_bits_of_float(make, count):
    chance = random.Random(make.__name__)
    cells = [make(chance) for _ in range(count)]
    found = plain_numbers("\n".join(cells).encode(), ",", 1).values[:, 0]
    assert np.array_equal(found.view(np.int64), np.array([float(cell) for cell in cells]).view(np.int64))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_random_numbers_have_the_bits_of_float(delimiter):
    chance = random.Random(delimiter)
    for end in ("\n", "\r\n"):
        rows = [[some_number(chance) for _ in range(5)] for _ in range(400)]
        text = end.join(map(delimiter.join, rows)) + chance.choice(["", end])
        found = plain_numbers(text.encode(), delimiter, 5)
        wanted = np.array([[float(cell) for cell in row] for row in rows])
        assert np.array_equal(found.values, wanted)
        assert np.array_equal(np.signbit(found.values), np.signbit(wanted))


def test_points_imply_the_same_as_the_patterns():
    chance = random.Random(1)
    for _ in range(3000):
        cells = [some_number(chance) for _ in range(chance.randint(1, 3))]
        if re.search(r"[\n,]0\d", "\n" + ",".join(cells)):
            continue
        found = plain_numbers(",".join(cells).encode(), ",", len(cells))
        joined = ",".join(cells)
        assert found.pointed == bool(_POINTED.search(joined)), cells
        assert found.sure == bool(_POINT.search(joined)), cells


OTHER = ["", " 1", "1 ", "x", "nan", "inf", "-inf", "1e", "1e+", ".", "-", "+", "+-1", "-+1", "1.2.3", "1,5"]
OTHER += [
    '"1"',
    "0x10",
    "1_000",
    "007",
    "00",
    "1e999",
    "1e-999",
    "1d5",
    "\u0663",
    "1\r2",
    "1\x00",
    "--1",
    "1e5.0",
]


@pytest.mark.parametrize("cell", OTHER, ids=ascii)
def test_anything_else_is_left_to_other_readers(cell):
    assert plain_numbers(f"1;{cell}\n2;3\n".encode(), ";", 2) is None
    assert plain_numbers(f"1;2\n2;{cell}".encode(), ";", 2) is None


def test_lines_of_other_lengths_and_blank_lines_too():
    for text in ("1,2,3\n", "1\n", "1,2\n\n3,4\n", "\n1,2\n", "1,2,\n", ",1,2\n", "1,2\n3"):
        assert plain_numbers(text.encode(), ",", 2) is None
    assert plain_numbers(b"", ",", 2).values.shape == (0, 2)
