"""Data frames of R packages, from files written here byte by byte as R writes them."""

import bz2
import gzip
import lzma
import struct
import zlib

import numpy as np
import pytest
from sklearn.datasets import load_iris

from unpooled.app import compare
from unpooled.app.compare.r_data import LIBRARIES, read_frame
from unpooled.app.compare.r_sets import SETS, missing_packages
from unpooled.errors import InputError

NOTHING = struct.pack(">i", 254)


def ints(*values):
    return struct.pack(f">{len(values)}i", *values)


def char(text):
    return ints(9) + (ints(-1) if text is None else ints(len(text.encode())) + text.encode())


def words(*texts):
    return ints(16, len(texts)) + b"".join(map(char, texts))


def pairs(**values):
    """A list of pairs with tags, as attributes are."""
    return b"".join(ints(0x402, 1) + char(tag) + value for tag, value in values.items()) + NOTHING


def reals(*values):
    return ints(14, len(values)) + struct.pack(f">{len(values)}d", *values)


def factor(codes, *levels):
    attributes = pairs(levels=words(*levels), **{"class": words("factor")})
    return ints(0x300 | 13, len(codes), *codes) + attributes


def named(**values):
    return ints(0x200 | 19, len(values)) + b"".join(values.values()) + pairs(names=words(*values))


def frame(rows, **columns):
    short = ints(238) + ints(2, 1) + char("compact_intseq") + NOTHING + reals(rows, 1, 1) + NOTHING
    attributes = pairs(names=words(*columns), **{"class": words("data.frame"), "row.names": short})
    return ints(0x300 | 19, len(columns)) + b"".join(columns.values()) + attributes


def serialised(value, version=3):
    encoding = ints(5) + b"UTF-8" if version == 3 else b""
    return b"X\n" + ints(version, 0x40202, 0x30500) + encoding + value


FRAME = frame(
    3,
    size=reals(1.5, -2.0, float("nan")),
    count=ints(13, 3, 7, -(2**31), 9),
    kind=factor((2, 1, -(2**31)), "ant", "bée"),
    note=words("a", None, "c"),
)


def check(columns):
    assert list(columns) == ["size", "count", "kind", "note"]
    np.testing.assert_array_equal(columns["size"], [1.5, -2.0, np.nan])
    np.testing.assert_array_equal(columns["count"], [7, np.nan, 9])
    assert columns["kind"] == ["bée", "ant", None]
    assert columns["note"] == ["a", None, "c"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, bytes])
@pytest.mark.parametrize("version", [2, 3])
def test_one_file_for_a_set(tmp_path, pack, version):
    (tmp_path / "ants" / "data").mkdir(parents=True)
    saved = f"RDX{version}\n".encode() + serialised(pairs(ants=FRAME), version)
    (tmp_path / "ants" / "data" / "ants.rda").write_bytes(pack(saved))
    check(read_frame("ants", "ants", (tmp_path,)))
    assert read_frame("bees", "bees", (tmp_path,)) is None


RAW = [{"id": lzma.FILTER_LZMA2, "preset": 6}]


@pytest.mark.parametrize(
    ("kind", "pack"),
    [
        (1, zlib.compress),
        (2, lambda data: b"2" + bz2.compress(data)),
        (3, lambda data: b"Z" + lzma.compress(data, lzma.FORMAT_RAW, filters=RAW)),
        (3, lambda data: b"0" + data),
    ],
)
def test_one_file_for_all_sets(tmp_path, kind, pack):
    folder = tmp_path / "ants" / "data"
    folder.mkdir(parents=True)
    saved = serialised(FRAME)
    chunk = ints(len(saved)) + pack(saved)
    index = named(
        variables=named(ants=ints(13, 2, 4, len(chunk))), references=named(), compressed=ints(13, 1, kind)
    )
    (folder / "Rdata.rdx").write_bytes(gzip.compress(serialised(index)))
    (folder / "Rdata.rdb").write_bytes(b"\0\0\0\0" + chunk)
    check(read_frame("ants", "ants", (tmp_path,)))
    with pytest.raises(InputError, match=r"Rdata.rdb: bees cannot be read: the file has only ants\."):
        read_frame("ants", "bees", (tmp_path,))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"RDX3\n" + serialised(pairs(ants=FRAME))[:200], "cut off"),
        (
            b"RDX3\n" + serialised(pairs(ants=ints(3))),
            "a value has R's type 3, which data frames do not have",
        ),
        (b"RDX3\n" + serialised(pairs(ants=NOTHING)), "not a data frame"),
        (b"a,b\n1,2\n", "not an R data file"),
        (b"RDX3\nA\n3\n", "not in network byte order"),
        (gzip.compress(b"RDX3\n" + serialised(FRAME))[:-30], "ended before"),
    ],
)
def test_the_reason_why_a_file_cannot_be_read(tmp_path, content, reason):
    (tmp_path / "ants" / "data").mkdir(parents=True)
    (tmp_path / "ants" / "data" / "ants.rda").write_bytes(content)
    with pytest.raises(InputError, match=rf"ants.rda: ants cannot be read: .*{reason}"):
        read_frame("ants", "ants", (tmp_path,))


def test_the_suite_has_the_sets_of_unpacked_packages(tmp_path):
    library = tmp_path / "usr" / "lib" / "R" / "library" / "MASS" / "data"
    library.mkdir(parents=True)
    columns = {"sp": factor((1, 1, 2, 2), "B", "O"), "sex": factor((1, 2, 1, 2), "F", "M")}
    columns |= {"index": reals(1, 2, 3, 4), "FL": reals(8, 9, 10, 11), "RW": reals(3, 1, 1, 3)}
    (library / "crabs.rda").write_bytes(
        gzip.compress(b"RDX3\n" + serialised(pairs(crabs=frame(4, **columns))))
    )
    (crabs,) = compare.suite("debian", data=tmp_path)
    assert (crabs.name, crabs.k, crabs.y.tolist()) == ("crabs", 4, [0, 1, 2, 3])
    assert crabs.X.shape == (4, 2)  # neither labels nor the index are clustered
    np.testing.assert_allclose(crabs.X.std(axis=0), 1.0)
    assert missing_packages(tmp_path) == ["r-cran-cluster", "r-cran-mclust", "r-cran-mlbench"]
    (tmp_path / "none").mkdir()
    with pytest.raises(
        InputError, match="apt install r-cran-cluster r-cran-mass r-cran-mclust r-cran-mlbench"
    ):
        compare.suite("debian", data=tmp_path / "none")


@pytest.mark.skipif(not any((f / "datasets").is_dir() for f in LIBRARIES), reason="R is not installed")
def test_iris_of_r_is_that_of_scikit_learn():
    iris = read_frame("datasets", "iris")
    names = ("Sepal.Length", "Sepal.Width", "Petal.Length", "Petal.Width")
    np.testing.assert_array_equal(np.column_stack([iris[name] for name in names]), load_iris().data)
    assert {s.package for s in SETS} >= {"MASS"}
