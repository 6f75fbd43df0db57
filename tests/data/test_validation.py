"""What a user hands in, as rows by site; and what is refused."""

import numpy as np
import pytest

from unpooled.data import validation as inputs
from unpooled.errors import InputError

pytestmark = pytest.mark.quick

X = np.arange(12.0).reshape(6, 2)


class Column:
    def __init__(self, values):
        self._values = np.array(values, dtype=object)

    def to_numpy(self):
        return self._values


class Table(dict):
    """As much of a data frame as is looked at: named columns."""

    dtypes = "of every column"

    @property
    def columns(self):
        return list(self)


@pytest.mark.parametrize(
    ("value", "by_site"),
    [
        (X, False),
        (X.tolist(), False),
        ([X, X], True),
        ((X, X[:0]), True),
        ({"a": X}, True),
        ({}, True),
        ([], False),
        ([X, X[0]], False),
    ],
)
def test_is_by_site(value, by_site):
    assert inputs.is_by_site(value) is by_site


def test_one_label_per_row():
    result = inputs.group_rows(X, np.arange(6.0), ["b", "a", "b", "c", "a", "b"])
    assert {s: r[:, 0].tolist() for s, r in result.rows.items()} == {"a": [2, 8], "b": [0, 4, 10], "c": [6]}
    assert {s: w.tolist() for s, w in result.weights.items()} == {"a": [1, 4], "b": [0, 2, 5], "c": [3]}
    by_site = np.concatenate([result.rows[s] for s in "abc"])
    assert result.restored(by_site).tolist() == X.tolist()


def test_no_labels_is_one_site():
    result = inputs.group_rows(X, None, None)
    assert list(result.rows) == ["site-0"]
    assert result.rows["site-0"] is X
    assert result.restored(np.arange(6)).tolist() == list(range(6))


@pytest.mark.parametrize("labels", [[3, 1, 2] * 2, np.array([3, 1, 2] * 2), (1.5, 2.5, 3.5) * 2, "abcabc"])
def test_labels_of_any_kind_become_text(labels):
    labels = list(labels) if isinstance(labels, str) else labels
    assert list(inputs.group_rows(X, None, labels).rows) == sorted({str(v) for v in labels})


def test_labels_of_mixed_kinds():
    assert set(inputs.group_rows(X, None, [1, "a"] * 3).rows) == {"1", "a"}
    assert set(inputs.group_rows(X, None, np.array([1, "a"] * 3, dtype=object)).rows) == {"1", "a"}


@pytest.mark.parametrize("labels", [["a", float("nan")] * 3, np.array([1.0, np.nan] * 3), ["a", None] * 3])
def test_a_row_without_a_label(labels):
    with pytest.raises(InputError, match="sites has no label at row 1"):
        inputs.group_rows(X, None, labels)


@pytest.mark.parametrize("labels", [["1", 1] * 3, np.array(["1", 1] * 3, dtype=object)])
def test_labels_that_read_the_same(labels):
    with pytest.raises(InputError, match="different labels that read the same as text"):
        inputs.group_rows(X, None, labels)


@pytest.mark.parametrize(
    ("labels", "shape"), [(["a"] * 5, r"\(5,\)"), ("a", r"\(\)"), ([["a"]] * 6, r"\(6, 1\)")]
)
def test_labels_of_the_wrong_number(labels, shape):
    with pytest.raises(InputError, match=f"sites has shape {shape}, but X has 6 rows"):
        inputs.group_rows(X, None, labels)


def test_tables_by_site():
    tables, weights, names = inputs.split_by_site([X] * 11, None, None)
    assert len(tables) == 11
    assert weights == [None] * 11
    assert names == sorted(names)  # zeros in front, so that order by name is the order given
    tables, weights, names = inputs.split_by_site({"b": X, 3: X[:2]}, {3: [1, 2]}, None)
    assert names == ["b", "3"]
    assert weights == [None, [1, 2]]


@pytest.mark.parametrize(
    ("given", "weight", "sites", "message"),
    [
        ([X], None, ["a"], "here X is already given by site"),
        ({}, None, None, "X is an empty mapping"),
        ({"a": X}, [1, 2], None, "sample_weight must be too"),
        ([X, X], [[1.0]], None, "1 weight arrays for 2 sites"),
        ({1: X, "1": X}, None, None, "site names must differ as text: 2 sites, 1 names"),
    ],
)
def test_tables_by_site_that_do_not_fit(given, weight, sites, message):
    with pytest.raises(InputError, match=message):
        inputs.split_by_site(given, weight, sites)


def test_text_is_refused_by_column_and_row():
    with pytest.raises(InputError, match="X has text in column 1, row 2: 'sick'"):
        inputs.check_text(np.array([[1, 2], [3, 4], [5, "sick"]], dtype=object))
    with pytest.raises(InputError, match="site a has text in column 0, row 0: 'x'"):
        inputs.check_text(np.array([["x"]]), "site a")
    with pytest.raises(InputError, match="X has text in column species, row 1: 'Adelie'"):
        inputs.check_text(Table(mass=Column([1, 2]), species=Column(["1", "Adelie"])))
    inputs.check_text(np.array([["1.5", "2"]]))  # text that reads as numbers
    inputs.check_text(X)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({(4, 1): np.nan}, "contains NaN .* row 4, column 1"),
        ({(0, 0): np.inf}, "contains infinity .* row 0, column 0"),
        ({(1, 0): -np.inf, (2, 1): np.inf}, "contains infinity .* row 1, column 0"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_nan_and_infinity_are_refused_by_place(places, message, dtype):
    bad = X.astype(dtype)
    for place, value in places.items():
        bad[place] = value
    with pytest.raises(InputError, match=f"X {message}"):
        inputs.check_finite(bad, "X")


def test_nan_far_down():
    bad = np.zeros((70_000, 2), dtype=np.float32)
    bad[69_999, 1] = np.nan
    with pytest.raises(InputError, match="row 69999, column 1"):
        inputs.check_finite(bad, "X")


def test_large_numbers_are_not_mistaken_for_infinity():
    inputs.check_finite(np.full((9, 2), 1e308), "X")
    inputs.check_finite(np.full((9, 2), 3e38, dtype=np.float32), "X")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], r"sample_weight has shape \(2,\) for 3 rows"),
        ([1, -0.5, 1], "must be finite and >= 0, got -0.5 at row 1"),
        ([1, 1, np.nan], "got nan at row 2"),
        ([np.inf, 1, 1], "got inf at row 0"),
        ([[1], [1], [1]], r"shape \(3, 1\) for 3 rows"),
    ],
)
def test_weights_that_do_not_fit(weights, message):
    with pytest.raises(InputError, match=message):
        inputs.check_weights(weights, 3, "X")


def test_one_weight_for_all():
    assert inputs.check_weights(2, 3, "X").tolist() == [2.0, 2.0, 2.0]
    assert inputs.check_weights([0, 1, 2], 3, "X").tolist() == [0.0, 1.0, 2.0]


def test_enough_rows_that_differ():
    inputs.check_enough({"a": X[:2], "b": X[2:]}, None, 6)
    with pytest.raises(InputError, match="n_clusters=7, but there are only n_samples=6 rows"):
        inputs.check_enough({"a": X[:2], "b": X[2:]}, None, 7)
    with pytest.raises(InputError, match="n_clusters=5, but only 4 of the 8 rows are distinct"):
        inputs.check_enough({"a": X[:4], "b": X[:4]}, None, 5)
    with pytest.raises(
        InputError, match="n_clusters=3, but there are only n_samples=2 rows with a weight above zero"
    ):
        inputs.check_enough({"a": X}, {"a": np.array([1.0, 0, 0, 2, 0, 0])}, 3)


def test_rows_that_differ_only_at_the_end():
    many = np.zeros((5000, 2))
    many[-2:] = [[1, 1], [2, 2]]
    inputs.check_enough({"a": many[:4000], "b": many[4000:]}, None, 3)
    with pytest.raises(InputError, match="n_clusters=4, but only 3 of the 5000 rows"):
        inputs.check_enough({"a": many[:4000], "b": many[4000:]}, None, 4)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 1, 3, -2]),
        np.array([2**40, 1, 2**40, 7]),
        np.array(["b", "a", "b", "c"]),
        ["b", "a", "b", "c"],
        [1, "x", 1, 2.5],
        np.array([0.5, 1.5, 0.5, 9.0]),
        np.array([True, False, True, True]),
    ],
)
def test_labels_of_any_kind_are_sites_in_the_order_of_their_text(labels):
    X = np.arange(8.0).reshape(4, 2)
    result = inputs.group_rows(X, None, labels)
    text = [str(v) for v in (labels.tolist() if isinstance(labels, np.ndarray) else labels)]
    assert list(result.rows) == sorted(set(text))
    for name, rows in result.rows.items():
        np.testing.assert_array_equal(rows, X[[t == name for t in text]])


def test_one_and_true_are_two_sites_and_one_and_its_text_are_refused():
    assert list(inputs.group_rows(np.zeros((3, 1)), None, [1, True, 1.0]).rows) == ["1", "1.0", "True"]
    with pytest.raises(InputError, match="read the same"):
        inputs.group_rows(np.zeros((2, 1)), None, [1, "1"])
