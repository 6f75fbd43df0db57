"""A model as a Python module that builds a scikit-learn Pipeline. Text to read, and no pickle.

``build()`` in the module needs scikit-learn and numpy only. The pipeline takes a DataFrame as it is loaded
from a file, whose columns are found by name: in any order, among others, whole numbers as such. An array has
the columns in the order of COLUMNS. Its labels are 0-based: label 0 is cluster 1.
"""

from typing import Any

from unpooled import __version__
from unpooled.app.model import Model
from unpooled.data import Category, Number
from unpooled.data.transforms import Shaped

_TEXT = '''"""A k-means model as a scikit-learn pipeline: ``build().predict(X)``. Label 0 is cluster 1.

{made_by}; exported by unpooled {version}.
X: a DataFrame that has the columns of COLUMNS, in any order and among others; or an array of these columns in
that order. Missing values are NaN or None. {dropped}
"""

import numpy as np
{base}from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

COLUMNS = {columns}

# column: (fill, shift, scale)
NUMBERS = {numbers}

# column: (log or rank, and the quantiles between which ranks are interpolated)
SHAPES = {shapes}

# column: (levels, whether all others share one place, what fills a missing one, scale)
CATEGORIES = {categories}

CENTERS = {centers}

DENSE = {{"sparse_output": False}}


def chosen(X):
    """The columns of COLUMNS, from a table by name, from an array as they are; missing values are None."""
    if hasattr(X, "columns"):
        lacking = [name for name in COLUMNS if name not in X.columns]
        if lacking:
            raise ValueError(f"X lacks the columns {{', '.join(lacking)}}")
        X = np.column_stack([np.asarray(X[name], dtype=object) for name in COLUMNS])
    X = np.asarray(X, dtype=object)
    if X.shape[1] != len(COLUMNS):
        raise ValueError(f"X has {{X.shape[1]}} columns and not {{len(COLUMNS)}}: {{', '.join(COLUMNS)}}")
    rows = np.empty(X.shape, dtype=object)
    for j, name in enumerate(COLUMNS):
        rows[:, j] = [as_number(v) if name in NUMBERS else as_level(v) for v in X[:, j]]
    return rows


def lacks(value):
    return str(value) in ("", "None", "nan", "<NA>", "NaT")


def as_number(value):
    return np.nan if lacks(value) else float(value)


def as_level(value):
    """The level as text: 6.0 and 6 are the same."""
    if lacks(value):
        return None
    try:
        number = float(str(value))
    except ValueError:
        return str(value).strip()
    return str(int(number)) if number == int(number) else repr(number)


def to_float(X):
    return np.asarray(X, dtype=float)


def shaped(X, form, knots):
    """Logarithms, or the shares of rows below: the middle one where quantiles are equal."""
    X = np.asarray(X, dtype=float)
    if form == "log":
        return np.log(X)
    knots, shares = np.array(knots), np.linspace(0, 1, len(knots))
    middle = 0.5 * (np.interp(X, knots, shares) - np.interp(-X, -knots[::-1], -shares[::-1]))
    ends = np.where(X <= knots[0], 0.0, np.where(X >= knots[-1], 1.0, middle))
    return np.where(np.isnan(X), np.nan, ends)


def one_name_for_others(X, levels):
    """Levels that the model does not know, by one name."""
    X = np.asarray(X, dtype=object)
    known = np.isin(X.astype(str), levels)
    return np.where(known, X.astype(str), "(other)").astype(object)


def times(X, weight):
    """A whole category counts as one column."""
    return X * weight
{by_cells}

def build():
    """The fitted pipeline."""
    steps = []
    for at, name in enumerate(COLUMNS):
        if name in NUMBERS:
            fill, shift, scale = NUMBERS[name]
            imputer = SimpleImputer(strategy="constant", fill_value=fill)
            scaler = StandardScaler()
            form, knots = SHAPES.get(name, ("", []))
            first = FunctionTransformer(shaped, kw_args={{"form": form, "knots": knots}})
            step = Pipeline(
                [
                    ("shape", first if form else FunctionTransformer(to_float)),
                    ("fill", imputer),
                    ("scale", scaler),
                ]
            )
            step.fit(np.array([[1.0], [2.0]]))
            scaler.mean_, scaler.scale_ = np.array([shift]), np.array([scale])
            scaler.var_ = scaler.scale_**2
        else:
            levels, other, fill, scale = CATEGORIES[name]
            places = [*levels, "(other)"] if other else list(levels)
            step = Pipeline(
                [
                    ("fill", SimpleImputer(strategy="constant", fill_value=fill, missing_values=None)),
                    ("others", FunctionTransformer(one_name_for_others, kw_args={{"levels": list(levels)}})),
                    ("levels", OneHotEncoder(categories=[places], handle_unknown="ignore", **DENSE)),
                    ("weight", FunctionTransformer(times, kw_args={{"weight": 1 / scale}})),
                ]
            )
            step.fit(np.array([[level] for level in levels], dtype=object))
        steps.append((name, step, [at]))
    centers = np.array(CENTERS)
    kmeans = KMeans(len(centers), init=centers, n_init=1, max_iter=1).fit(centers)
    kmeans.cluster_centers_ = centers
    columns = ColumnTransformer(steps)
    rows = [[1.0 if n in NUMBERS else CATEGORIES[n][0][0] for n in COLUMNS]] * 2
    columns.fit(np.array(rows, dtype=object))
    columns.transformers_ = steps  # as built above, not as fitted to the two rows
    return Pipeline([("chosen", FunctionTransformer(chosen)), {last}])
'''

_NEAREST = '("columns", columns), ("kmeans", kmeans)'
_NEAREST_BY_CELLS = '("by_cells", ByCells(columns, centers))'
_BY_CELLS = '''

class ByCells(BaseEstimator):
    """The nearest centre by the cells that a row has: a missing cell adds nothing to a distance."""

    def __init__(self, columns, centers):
        self.columns, self.centers = columns, centers

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        widths = [1 if n in NUMBERS else len(CATEGORIES[n][0]) + CATEGORIES[n][1] for n in COLUMNS]
        missing = np.array([[lacks(v) for v in row] for row in X]).reshape(X.shape)
        rows = np.where(np.repeat(missing, widths, axis=1), np.nan, self.columns.transform(X))
        return np.nansum((rows[:, None] - self.centers[None]) ** 2, axis=2).argmin(axis=1)
'''


def to_module(model: Model) -> bytes:
    """The text of the module."""
    numbers = [c for c in model.preparation.columns if isinstance(c, Number)]
    categorical = [c for c in model.preparation.columns if isinstance(c, Category)]
    drop, kept = model.preparation.drop, model.preparation.keeps_missing
    return _TEXT.format(
        made_by=model.made_by.replace('"', "'").replace("\\", "/"),
        version=__version__,
        dropped="Rows with a missing value were left out of the model; here they are filled." if drop else "",
        columns=_listed([repr(c.name) for c in model.preparation.columns], "[]"),
        numbers=_listed([f"{c.name!r}: {(c.fill, c.shift, c.scale)!r}" for c in numbers], "{}"),
        shapes=_listed(
            [f"{c.name!r}: {(c.form, list(c.knots))!r}" for c in numbers if isinstance(c, Shaped)], "{}"
        ),
        categorical=_listed(
            [
                f"{c.name!r}: ({list(c.categories)!r}, {c.other}, {_fill(c)!r}, {c.scale!r})"
                for c in categorical
            ],
            "{}",
        ),
        base="from sklearn.base import BaseEstimator\n" if kept else "",
        by_cells=_BY_CELLS if kept else "",
        last=_NEAREST_BY_CELLS if kept else _NEAREST,
        centers=_listed([repr(center) for center in model.centers.tolist()], "[]"),
    ).encode()


def _fill(c: Category) -> str:
    return "(other)" if c.other and c.fill == len(c.categories) else c.categories[c.fill]


def _listed(items: list[str], brackets: str) -> str:
    return brackets[0] + "".join(f"\n    {item}," for item in items) + ("\n" if items else "") + brackets[1]


def built(text: bytes) -> Any:
    """The pipeline that an exported module builds. Running the text is safe: it was generated just before."""
    namespace: dict[str, Any] = {"__name__": "unpooled_model"}
    exec(compile(text, "unpooled_model.py", "exec"), namespace)  # noqa: S102
    return namespace["build"]()
