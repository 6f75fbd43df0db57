"""A model as JSON: every step in plain numbers, for programs without unpooled.

Columns are prepared in their order:

- A number is filled if it is missing, and becomes (x - shift) / scale. A number with a ``form`` is
  transformed first. "log" is its logarithm. "rank" is the share of rows below it, interpolated between
  ``knots``, which lie at equal steps from 0 to 1; at equal knots it is the middle share.
- A categorical column takes one position for every category, and one more for all other categories if
  ``other`` is true. It has 1 / scale at the position of its category and 0 elsewhere.

The label of a row is the position, from 0, of the centre with the smallest squared distance. If
``rows_with_missing_values`` is "kept", nothing is filled: the distance is the sum over the columns in which
the row has a value, and a categorical column counts with all its positions or with none.

Fuzzy clusters have a ``fuzzifier`` m: the membership of a row in a cluster is its squared distance to the
power -1 / (m - 1), divided by the sum of these numbers over all clusters.
"""

import json
import math
from typing import Any

import numpy as np

from unpooled import __version__
from unpooled.app.model import Model
from unpooled.data import Category, Number, Preparation
from unpooled.data.missing_values import PreparationWithMissing
from unpooled.data.transforms import Shaped
from unpooled.errors import ModelError
from unpooled.storage.file_format import FORMAT, format_error
from unpooled.typing import FloatArray, IntArray

KIND = "unpooled model"


def columns_json(preparation: Preparation) -> list[dict[str, Any]]:
    """Return the preparation of every column."""
    return [
        {"column": c.name, "kind": "number", "fill": c.fill, "shift": c.shift, "scale": c.scale}
        | ({"form": c.form, "knots": list(c.knots)} if isinstance(c, Shaped) else {})
        if isinstance(c, Number)
        else {
            "column": c.name,
            "kind": "category",
            "categories": list(c.categories),
            "other": c.other,
            "fill": c.places[c.fill],
            "scale": c.scale,
        }
        for c in preparation.columns
    ]


def missing_json(preparation: Preparation) -> str:
    """Return the treatment of missing values in one word."""
    return "kept" if preparation.keeps_missing else "dropped" if preparation.drop else "filled"


def to_json(model: Model) -> bytes:
    """Return the model as JSON text; numbers keep all their digits."""
    content = {
        "kind": KIND,
        "format": FORMAT,
        "made_by": model.made_by,
        "exported_by": f"unpooled {__version__}",
        "columns": columns_json(model.preparation),
        "rows_with_missing_values": missing_json(model.preparation),
        "centers": model.centers.tolist(),
        "cluster_rows": model.sizes.tolist(),
        **({"fuzzifier": model.fuzzifier} if model.fuzzifier is not None else {}),
    }
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def from_json(data: bytes) -> Model:
    """Return the model that ``to_json`` wrote; raise ModelError, with the reason, if it is not one."""
    try:
        content = dict(json.loads(data))
    except (ValueError, TypeError) as error:
        raise ModelError(f"not a model in JSON: {error}") from error
    number = content.get("format")
    if wrong := format_error(number if isinstance(number, int) else None):
        raise ModelError(f"a model of {wrong}")
    if content.get("kind") != KIND:
        raise ModelError(f"not a model in JSON, but of kind {content.get('kind')!r}")
    try:
        columns = tuple(_column(c) for c in content["columns"])
        missing = content["rows_with_missing_values"]
        transform = PreparationWithMissing if missing == "kept" else Preparation
        return Model(
            transform(columns, missing == "dropped"),
            np.array(content["centers"]),
            np.array(content["cluster_rows"]),
            content["made_by"],
            content.get("fuzzifier"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"not a model in JSON: {error}") from error


def _column(content: dict[str, Any]) -> Number | Category:
    if content["kind"] == "number":
        number = content["column"], content["fill"], content["shift"], content["scale"]
        if "form" in content:
            return Shaped(*number, content["form"], tuple(content["knots"]))
        return Number(*number)
    places = [*content["categories"], *(["other"] if content["other"] else [])]
    fill = places.index(content["fill"])
    return Category(content["column"], tuple(content["categories"]), content["other"], fill, content["scale"])


def _shaped(form: str, knots: FloatArray, x: FloatArray) -> FloatArray:
    if form == "log":
        return np.asarray(np.log(x))
    shares = np.linspace(0, 1, len(knots))
    middle = 0.5 * (np.interp(x, knots, shares) - np.interp(-x, -knots[::-1], -shares[::-1]))
    ends = np.where(x <= knots[0], 0.0, np.where(x >= knots[-1], 1.0, middle))
    return np.where(np.isnan(x), np.nan, ends)


def labels_from_json(data: bytes, columns: dict[str, list[Any]]) -> IntArray:
    """Return (n,) labels from 0, computed from the JSON alone, as a program without unpooled does."""
    content = json.loads(data)
    kept = content["rows_with_missing_values"] == "kept"
    parts = []
    for c in content["columns"]:
        cells = columns[c["column"]]
        if c["kind"] == "number":
            x = np.array([np.nan if v is None else float(v) for v in cells])
            if "form" in c:
                x = _shaped(c["form"], np.array(c["knots"]), x)
            filled = x if kept else np.where(np.isnan(x), c["fill"], x)
            parts.append(((filled - c["shift"]) / c["scale"])[:, None])
            continue
        places = {category: i for i, category in enumerate(c["categories"])}
        block = np.zeros((len(cells), len(places) + c["other"]))
        for i, v in enumerate(cells):
            place = places.get(c["fill"], len(places)) if v is None else places.get(v, len(places))
            if place < block.shape[1]:
                block[i, place] = 1 / c["scale"]
            if v is None and kept:
                block[i] = np.nan
        parts.append(block)
    X, centers = np.concatenate(parts, axis=1), np.array(content["centers"])
    return np.asarray(np.nansum((X[:, None] - centers[None]) ** 2, axis=2).argmin(axis=1))


def plain(value: object) -> Any:
    """Return a value as JSON can hold it: nan becomes null, whole numbers become integers."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float | np.floating):
        number = float(value)
        whole = number.is_integer() and abs(number) < 1e15
        return None if not math.isfinite(number) else int(number) if whole else number
    if isinstance(value, np.integer):
        return int(value)
    return value
