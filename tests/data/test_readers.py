"""Files become tables: what is read, and what is refused with file, line and column."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy import sparse

from unpooled.data.readers import Reading, read_sites, read_table
from unpooled.data.readers.csv_file import lines_at_a_time
from unpooled.errors import InputError


def write(folder, name, text, encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def column(table, name):
    return np.asarray(table.values)[:, table.index(name)].tolist()


def categories(table, name):
    return [None if np.isnan(v) else table.categories[name][int(v)] for v in column(table, name)]


# ---------------------------------------------------------------- what is read


def test_numbers_categories_and_missing_values(tmp_path):
    path = write(tmp_path, "a.csv", "age,sex,bp\n61,f,120\n,m,NA\n45,,131.5\n")
    table = read_table(path, Reading())
    assert table.kinds == ("number", "category", "number")
    np.testing.assert_array_equal(column(table, "age"), [61, np.nan, 45])
    assert categories(table, "sex") == ["f", "m", None]
    np.testing.assert_array_equal(column(table, "bp"), [120, np.nan, 131.5])


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_seen_from_the_header(tmp_path, delimiter):
    path = write(tmp_path, "a.csv", "a,b\n1,2\n3,4\n".replace(",", delimiter))
    assert column(read_table(path, Reading()), "b") == [2, 4]


def test_a_byte_order_mark_blank_lines_and_quotes(tmp_path):
    path = write(tmp_path, "a.csv", '\ufeff"a","b, too"\r\n1,"x\ny"\r\n\r\n2,z\r\n')
    table = read_table(path, Reading())
    assert table.names == ("a", "b, too")
    assert categories(table, "b, too") == ["x\ny", "z"]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n,\n\n3,4\n", [1, np.nan, 3]),
        ("a,b\n1,x\n,\n   \n3,y\n,\n,,,\n", [1, np.nan, 3, np.nan, np.nan]),
        ("a\n1\n\n2\n\n", [1, np.nan, 2]),
        ('a\n1\n""\n2\n""\n', [1, np.nan, 2, np.nan]),
        ("a\nx\n\ny\n", [0, np.nan, 1]),
    ],
)
def test_a_row_without_values_is_a_row(tmp_path, text, rows):
    path, blank = write(tmp_path, "a.csv", text), []
    np.testing.assert_array_equal(column(read_table(path, Reading()), "a"), rows)
    table = read_table(path, Reading(), on_blank_rows=blank.append)
    end = len(rows) - sum(map(bool, [*np.cumprod(np.isnan(rows[::-1]))]))
    np.testing.assert_array_equal(column(table, "a"), rows[:end])
    assert sum(blank) == len(rows) - end


def test_rows_without_values_are_found_across_blocks(tmp_path):
    n = lines_at_a_time(2)
    path, blank = write(tmp_path, "a.csv", "a,b\n" + ",\n" * n + "1,2\n" + ",\n" * (n + 3)), []
    table = read_table(path, Reading(), on_blank_rows=blank.append)
    assert (len(table), blank) == (n + 1, [n + 3])
    assert table.values[n].tolist() == [1, 2]
    whole = write(tmp_path, "b.csv", "a,site\n1,x\n,\n2,y\n,\n")
    with pytest.raises(InputError, match=r"b\.csv, line 3: no site in column site"):
        read_sites([whole], Reading(site_column="site"))


def test_names_and_categories_have_one_form(tmp_path):
    """An umlaut is one sign or two; blanks around a name, or twice in it, are none of its."""
    path = write(tmp_path, "a.csv", "gro\u0308\u00dfe, b  c \nfu\u0308r,1\nf\u00fcr,2\n")
    table = read_table(path, Reading(columns=("gr\u00f6\u00dfe", "b c")))
    assert table.names == ("gr\u00f6\u00dfe", "b c")
    assert table.categories["gr\u00f6\u00dfe"] == ("f\u00fcr",)


@pytest.mark.parametrize("decimal", [",", None])
def test_decimal_commas_apply_to_categories(tmp_path, decimal):
    """Declared, or learnt from the numbers of the file."""
    path = tmp_path / "a.csv"
    path.write_text(
        "age;ecg;dose;chol\n" + "61,5;0,0;0,5;201,5\n62,25;1,0;1,5;180,0\n63,5;2,0;a,b;190,5\n" * 3
    )
    table = read_table(path, Reading(decimal=decimal, categorical=("ecg", "dose")))
    assert table.categories == {"ecg": ("0", "1", "2"), "dose": ("0.5", "1.5", "a,b")}
    old = "2,0" if decimal else "2"
    recoded = Reading(decimal=decimal, categorical=("dose",), recode=(("ecg", old, "1"),))
    assert read_table(path, recoded).categories["ecg"] == ("0", "1")


def test_commas_in_categories_stay_where_numbers_have_points(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age;answers\n" + "61.5;1,2\n62.25;1\n63.5;2\n" * 3)
    assert read_table(path, Reading(categorical=("answers",))).categories["answers"] == ("1,2", "1", "2")


def test_decimal_commas(tmp_path):
    path = write(tmp_path, "a.csv", "a;b\n1,5;2\n2,25;3\n")
    assert column(read_table(path, Reading(decimal=",")), "a") == [1.5, 2.25]


def test_own_words_for_missing(tmp_path):
    path = write(tmp_path, "a.csv", "a,chol\n-9,0\n4,-9\n0,210\n")
    table = read_table(path, Reading(na=("-9", "chol=0")))
    np.testing.assert_array_equal(column(table, "a"), [np.nan, 4, 0])
    np.testing.assert_array_equal(column(table, "chol"), [np.nan, np.nan, 210])


def test_codes_as_categories_have_one_spelling(tmp_path):
    path = write(tmp_path, "a.csv", "thal\n3.0\n7\n3\n?\n")
    assert categories(read_table(path, Reading(categorical=("thal",))), "thal") == ["3", "7", "3", None]


def test_only_the_columns_asked_for(tmp_path):
    path = write(tmp_path, "a.csv", "id,a,b\nx1,1,2\nx2,3,4\n")
    assert read_table(path, Reading(exclude=("id",))).names == ("a", "b")
    assert read_table(path, Reading(columns=("b",))).names == ("b",)


def test_a_column_without_values_is_empty_and_one_with_too_many_categories_is_text(tmp_path):
    rows = "".join(f",name {i}\n" for i in range(1500))
    table = read_table(write(tmp_path, "a.csv", "a,b\n" + rows), Reading())
    assert table.kinds == ("empty", "text")


def test_every_file_is_a_site_or_a_column_splits_one(tmp_path):
    a = write(tmp_path, "north.csv", "x\n1\n2\n")
    b = write(tmp_path, "south.csv", "x\n3\n")
    both = write(tmp_path, "all.csv", "place,x\nsouth,3\nnorth,1\nnorth,2\n")
    apart = read_sites([a, b], Reading())
    split = read_sites([both], Reading(site_column="place"))
    for name in ("north", "south"):
        np.testing.assert_array_equal(apart[name].values, split[name].values)


def test_files_of_one_name_in_different_folders_are_different_sites(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        write(tmp_path / place, "data.csv", "x\n1\n")
    sites = read_sites([tmp_path / "a" / "data.csv", tmp_path / "b" / "data.csv"], Reading())
    assert len(sites) == 2


def test_parquet_and_csv_give_the_same_table(tmp_path):
    columns = {"a": [1.5, None, 3.0], "n": [1, 2, 3], "yes": [True, False, None], "c": ["x", None, "y"]}
    arrow = pyarrow.table(columns)
    arrow = arrow.append_column("d", pyarrow.array(["u", "v", "u"]).dictionary_encode())
    pyarrow.parquet.write_table(arrow, tmp_path / "a.parquet", row_group_size=2)
    csv = write(tmp_path, "a.csv", "a,n,yes,c,d\n1.5,1,1,x,u\n,2,0,,v\n3.0,3,,y,u\n")
    one, two = read_table(tmp_path / "a.parquet", Reading()), read_table(csv, Reading())
    assert (one.names, one.kinds, one.categories) == (two.names, two.kinds, two.categories)
    np.testing.assert_array_equal(one.values, two.values)


def test_numpy_files(tmp_path):
    X = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "b.npz", X)
    np.savez(tmp_path / "c.npz", age=X[:, 0], sex=np.array(["f", "m", "f"]))
    for name in ("a.npy", "b.npz"):
        table = read_table(tmp_path / name, Reading())
        assert table.names == ("x0", "x1")
        np.testing.assert_array_equal(table.values, X)
    assert categories(read_table(tmp_path / "c.npz", Reading()), "sex") == ["f", "m", "f"]


@pytest.mark.parametrize("kind", [bool, np.int8, np.float32, np.float64])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_matrices_of_scipy_are_read_as_the_array_is(tmp_path, form, kind):
    rng = np.random.default_rng(0)
    X = ((rng.random((90, 5)) < 0.3) * (rng.random((90, 5)) + 1)).astype(kind)
    np.save(tmp_path / "dense.npy", X.astype(float) if kind is bool else X)
    sparse.save_npz(tmp_path / "wide.npz", sparse.coo_matrix(X).asformat(form))
    dense, wide = (
        read_table(tmp_path / name, Reading(exclude=("x1",))) for name in ("dense.npy", "wide.npz")
    )
    assert wide.names == dense.names == ("x0", "x2", "x3", "x4")
    assert wide.kinds == dense.kinds
    np.testing.assert_array_equal(wide.values, dense.values)


def test_a_damaged_sparse_matrix_is_one_line(tmp_path):
    sparse.save_npz(tmp_path / "good.npz", sparse.csr_array(np.eye(4)))
    parts = dict(np.load(tmp_path / "good.npz"))
    wrong = {
        "far": {"indices": parts["indices"] + 100},
        "long": {"indptr": parts["indptr"] * 9},
        "kind": {"format": np.array(b"abc")},
        "text": {"data": np.array(["a", "b", "c", "d"])},
    }
    for name, change in wrong.items():
        np.savez(tmp_path / f"{name}.npz", **(parts | change))
    np.savez(tmp_path / "less.npz", **{name: part for name, part in parts.items() if name != "indptr"})
    sparse.save_npz(tmp_path / "flat.npz", sparse.coo_array(np.ones(3)))
    for name in (*wrong, "less", "flat"):
        with pytest.raises(InputError, match=f"{name}.npz: ") as failed:
            read_table(tmp_path / f"{name}.npz", Reading())
        assert "\n" not in str(failed.value)


def test_on_disk_or_in_memory_the_table_is_the_same(tmp_path):
    rng = np.random.default_rng(0)
    x, c, sites = (
        rng.normal(size=40_000).tolist(),
        rng.choice(list("abc"), 40_000),
        rng.choice(["p", "q"], 40_000),
    )
    rows = "".join(f"{v!r},{w},{s}\n" for v, w, s in zip(x, c, sites, strict=True))
    path = write(tmp_path, "a.csv", "x,c,site\n" + rows)
    for settings in ({}, {"site_column": "site"}):
        held = read_sites([path], Reading(**settings))
        spooled = read_sites([path], Reading(buffer_bytes=0, **settings))
        for name in held:
            assert isinstance(spooled[name].values, np.memmap)
            np.testing.assert_array_equal(held[name].values, spooled[name].values)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("a,b\n", "no rows under its header"),
        ("a,b\n1,2\n3\n", "line 3: 1 fields where the header has 2"),
        ("a,b\n1,2,3\n", "line 2: 3 fields where the header has 2"),
        ("a,b\n1,2\n\n3,four\n5,6\n", "line 4, column b: text in a column of numbers: 'four'"),
        ("a,b\n1,2\n3,1e999\n", "line 3, column b"),
        ("a,a\n1,2\n", "two columns are named a"),
        ("a,\n1,2\n", "column 2 has no name"),
        ('a,b\n1,"2\n', "line 2"),
    ],
)
def test_bad_csv_is_named(tmp_path, text, says):
    path = write(tmp_path, "bad.csv", text)
    with pytest.raises(InputError) as error:
        read_table(path, Reading())
    assert says in str(error.value)
    assert str(path) in str(error.value)


def test_text_far_down_is_found_at_its_line(tmp_path):
    many = lines_at_a_time(1)
    rows = ["1"] * (many + 10)
    rows[many + 5] = "oops"
    path = write(tmp_path, "long.csv", "a\n" + "\n".join(rows) + "\n")
    with pytest.raises(InputError, match=f"line {many + 7}, column a: text in a column of numbers: 'oops'"):
        read_table(path, Reading())


def test_the_wrong_delimiter_is_named(tmp_path):
    path = write(tmp_path, "a.csv", "a;b\n1;2\n")
    with pytest.raises(InputError, match="looks split at a semicolon"):
        read_table(path, Reading(delimiter=","))


def test_decimal_commas_are_named(tmp_path):
    path = write(tmp_path, "a.csv", "a;b\n1.5;2\n2,25;3\n")
    with pytest.raises(InputError, match="--decimal ,"):
        read_table(path, Reading())


def test_text_that_is_not_utf8(tmp_path):
    path = write(tmp_path, "a.csv", "a,b\n1,x\n2,Zürich\n", encoding="latin-1")
    assert read_table(path, Reading()).categories["b"] == ("x", "Zürich")
    path = write(tmp_path, "b.csv", "a,b\n1,x\n2,Москва\n", encoding="cp1251")
    with pytest.raises(InputError, match=r"line 3: not UTF-8.*--encoding"):
        read_table(path, Reading())
    assert read_table(path, Reading(encoding="cp1251")).categories["b"] == ("x", "Москва")


def test_files_that_are_not_what_they_say(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"nothing of the kind")
    (tmp_path / "a.npy").write_bytes(b"nothing of the kind")
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "a.doc").write_bytes(b"text")
    for name in ("a.parquet", "a.npy", "o.npy", "a.doc", "gone.csv"):
        with pytest.raises(InputError, match=name):
            read_table(tmp_path / name, Reading())


@pytest.mark.parametrize(
    "settings",
    [
        {"columns": ("z",)},
        {"exclude": ("z",)},
        {"categorical": ("z",)},
        {"site_column": "z"},
        {"na": ("z=0",)},
    ],
)
def test_a_misspelt_column_is_an_error(tmp_path, settings):
    path = write(tmp_path, "a.csv", "a,b\n1,2\n")
    with pytest.raises(InputError, match="z"):
        read_sites([path], Reading(**settings))


def test_rows_without_a_site(tmp_path):
    path = write(tmp_path, "a.csv", "s,b\nx,2\n,3\n")
    with pytest.raises(InputError, match="line 3: no site"):
        read_sites([path], Reading(site_column="s"))


def test_one_site_in_two_files(tmp_path):
    a, b = (write(tmp_path, f"{n}.csv", "s,b\nx,2\n") for n in "ab")
    with pytest.raises(InputError, match="site x is both in"):
        read_sites([a, b], Reading(site_column="s"))
