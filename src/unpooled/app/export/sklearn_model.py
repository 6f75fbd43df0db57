"""A model as a Python module that builds a scikit-learn Pipeline: readable text, not a pickle.

``build()`` in the module needs scikit-learn and numpy only. The pipeline takes a DataFrame as it is loaded
from a file and finds its columns by name; their order does not matter, and other columns are ignored. An
array must have the columns in the order of COLUMNS. Labels count from 0, the largest cluster.
"""

from typing import Any

from unpooled import __version__
from unpooled.app.model import Model
from unpooled.data import Category, Number
from unpooled.data.transforms import Shaped

_TEXT = '''"""A k-means model as a scikit-learn pipeline: ``build().predict(X)`` gives labels from 0.

{made_by}; exported by unpooled {version}.
X: a DataFrame with the columns of COLUMNS in any order, other columns are ignored; or an array of these
columns in that order. Missing values are NaN or None. {dropped}
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

# column: (categories, whether all others share one position, the category that fills a missing one, scale)
CATEGORIES = {categories}

CENTERS = {centers}

DENSE = {{"sparse_output": False}}


def chosen(X):
    """Return the columns of COLUMNS: of a table by name, of an array in order; missing values are None."""
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
        rows[:, j] = [as_number(v) if name in NUMBERS else as_category(v) for v in X[:, j]]
    return rows


def is_missing(value):
    return str(value) in ("", "None", "nan", "<NA>", "NaT")


def as_number(value):
    return np.nan if is_missing(value) else float(value)


def as_category(value):
    """Return the category as text: 6.0 and 6 are the same."""
    if is_missing(value):
        return None
    try:
        number = float(str(value))
    except ValueError:
        return str(value).strip()
    return str(int(number)) if number == int(number) else repr(number)


def to_float(X):
    return np.asarray(X, dtype=float)


def shaped(X, form, knots):
    """Return logarithms, or the shares of rows below; at equal quantiles the middle share."""
    X = np.asarray(X, dtype=float)
    if form == "log":
        return np.log(X)
    knots, shares = np.array(knots), np.linspace(0, 1, len(knots))
    middle = 0.5 * (np.interp(X, knots, shares) - np.interp(-X, -knots[::-1], -shares[::-1]))
    ends = np.where(X <= knots[0], 0.0, np.where(X >= knots[-1], 1.0, middle))
    return np.where(np.isnan(X), np.nan, ends)


def merge_others(X, categories):
    """Give all categories that the model does not know one name."""
    X = np.asarray(X, dtype=object)
    known = np.isin(X.astype(str), categories)
    return np.where(known, X.astype(str), "(other)").astype(object)


def times(X, weight):
    """Weight the positions of a categorical column, which counts as one number."""
    return X * weight
{by_cells}

def build():
    """Return the fitted pipeline."""
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
            categories, other, fill, scale = CATEGORIES[name]
            places = [*categories, "(other)"] if other else list(categories)
            known = {{"categories": list(categories)}}
            step = Pipeline(
                [
                    ("fill", SimpleImputer(strategy="constant", fill_value=fill, missing_values=None)),
                    ("others", FunctionTransformer(merge_others, kw_args=known)),
                    ("one_hot", OneHotEncoder(categories=[places], handle_unknown="ignore", **DENSE)),
                    ("weight", FunctionTransformer(times, kw_args={{"weight": 1 / scale}})),
                ]
            )
            step.fit(np.array([[category] for category in categories], dtype=object))
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
    """The nearest centre by the cells with a value: a missing cell adds nothing to a distance."""

    def __init__(self, columns, centers):
        self.columns, self.centers = columns, centers

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        widths = [1 if n in NUMBERS else len(CATEGORIES[n][0]) + CATEGORIES[n][1] for n in COLUMNS]
        missing = np.array([[is_missing(v) for v in row] for row in X]).reshape(X.shape)
        rows = np.where(np.repeat(missing, widths, axis=1), np.nan, self.columns.transform(X))
        return np.nansum((rows[:, None] - self.centers[None]) ** 2, axis=2).argmin(axis=1)
'''


def to_module(model: Model) -> bytes:
    """Return the text of the module."""
    numbers = [c for c in model.preparation.columns if isinstance(c, Number)]
    categorical = [c for c in model.preparation.columns if isinstance(c, Category)]
    drop, kept = model.preparation.drop, model.preparation.keeps_missing
    return _TEXT.format(
        made_by=model.made_by.replace('"', "'").replace("\\", "/"),
        version=__version__,
        dropped="The model was fitted without rows that have a missing value; here they are filled."
        if drop
        else "",
        columns=_listed([repr(c.name) for c in model.preparation.columns], "[]"),
        numbers=_listed([f"{c.name!r}: {(c.fill, c.shift, c.scale)!r}" for c in numbers], "{}"),
        shapes=_listed(
            [f"{c.name!r}: {(c.form, list(c.knots))!r}" for c in numbers if isinstance(c, Shaped)], "{}"
        ),
        categories=_listed(
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
    """Return the pipeline that an exported module builds. The text is safe to run: it was just generated."""
    namespace: dict[str, Any] = {"__name__": "unpooled_model"}
    exec(compile(text, "unpooled_model.py", "exec"), namespace)  # noqa: S102
    return namespace["build"]()
