"""Export of a model to other programs: JSON, a scikit-learn pipeline, ONNX. Every export is checked first."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.app.export.json_model import from_json, labels_from_json, to_json
from unpooled.app.export.onnx_model import to_onnx
from unpooled.app.export.sklearn_model import built, to_module
from unpooled.app.model import Model
from unpooled.data import Number, Table
from unpooled.data.column_kinds import has_mean
from unpooled.data.transforms import Shaped
from unpooled.errors import InputError, ModelError, install_hint
from unpooled.storage.atomic_files import write_atomically
from unpooled.typing import FloatArray, IntArray

__all__ = ["FORMATS", "export", "from_json", "probe", "to_json", "to_module", "to_onnx"]

FORMATS = {"json": "model.json", "sklearn": "model_sklearn.py", "onnx": "model.onnx"}
_PROBES = 1000  # rows of arbitrary numbers, and as many of whole numbers


def export(model: Model, to: str, path: Path) -> int:
    """Write the model after a check that it gives the same labels; return the number of rows checked."""
    if to not in FORMATS:
        raise InputError(f"--to must be one of {', '.join(FORMATS)}, got {to!r}")
    data = {"json": to_json, "sklearn": to_module, "onnx": to_onnx}[to](model)
    checked = 0
    for whole in (False, True):
        columns = probe(model, _PROBES, whole=whole)
        expected = model.predict(Table.from_columns(_as_arrays(model, columns))).labels
        keep = expected >= 0
        for labels in _labels(data, to, model, columns):
            differ = int((labels != expected)[keep].sum())
            if differ:
                raise ModelError(
                    f"the {to} model gives another cluster for {differ} of {int(keep.sum())} rows tried. "
                    "Nothing is written."
                )
        checked += int(keep.sum())
    write_atomically(path, data, shared=True)
    return checked


def _labels(data: bytes, to: str, model: Model, columns: dict[str, list[Any]]) -> Iterator[IntArray]:
    """Yield the labels by the export, for every form in which a user may have the table."""
    if to == "json":
        yield labels_from_json(data, columns)
    elif to == "onnx":
        yield _by_onnx(data, model, columns)
    else:
        pipeline = built(data)
        yield _by_pipeline(pipeline, model, columns)
        frame = _as_frame(model, columns)
        if frame is not None:
            yield np.asarray(pipeline.predict(frame), dtype=np.int64)


def _as_frame(model: Model, columns: dict[str, list[Any]]) -> Any:
    """Return a DataFrame in another order, with one more column and integers; None without pandas."""
    try:
        import pandas
    except ModuleNotFoundError:
        return None
    arrays: dict[str, Any] = {"another column": ["text"] * len(next(iter(columns.values())))}
    for name, cells in reversed(columns.items()):
        whole = all(isinstance(cell, int) for cell in cells)
        arrays[name] = np.array(cells) if whole else _as_arrays(model, {name: cells})[name]
    return pandas.DataFrame(arrays)


def probe(model: Model, n: int, *, whole: bool = False) -> dict[str, list[Any]]:
    """Return generated rows for the check: every category, unknown ones, missing values, extreme values.

    With ``whole`` the numbers are whole, and none is missing.
    """
    rng = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {}
    for c in model.preparation.columns:
        lost = rng.random(n) < (0.02 if model.preparation.drop else 0.1)
        if isinstance(c, Number):
            values: list[Any] = _numbers(c, rng, n).tolist()
            if whole:
                values, lost = [round(v) for v in values], np.zeros(n, dtype=np.bool_)
        else:
            values = rng.choice([*c.categories, "never seen before"], n).tolist()
        columns[c.name] = [None if gone else v for v, gone in zip(values, lost, strict=True)]
    return columns


def _numbers(c: Number, rng: np.random.Generator, n: int) -> FloatArray:
    if isinstance(c, Shaped) and c.form == "rank":
        low, high = c.knots[0], c.knots[-1]
        return rng.uniform(low - 0.1 * (high - low), high + 0.1 * (high - low), n)
    drawn: FloatArray = c.fill + c.scale * rng.normal(0, 1.5, n)
    return np.exp(drawn) + 0.6 if isinstance(c, Shaped) else drawn  # even rounded it has a logarithm


def _as_arrays(model: Model, columns: dict[str, list[Any]]) -> dict[str, Any]:
    kinds = model.preparation.kinds
    return {
        name: np.array([np.nan if v is None else v for v in cells]) if has_mean(kinds[name]) else cells
        for name, cells in columns.items()
    }


def _by_pipeline(pipeline: Any, model: Model, columns: dict[str, list[Any]]) -> IntArray:
    arrays = _as_arrays(model, columns)
    X = np.empty((len(next(iter(columns.values()))), len(columns)), dtype=object)
    for j, name in enumerate(columns):
        X[:, j] = arrays[name]
    return np.asarray(pipeline.predict(X), dtype=np.int64)


def _by_onnx(data: bytes, model: Model, columns: dict[str, list[Any]]) -> IntArray:
    try:
        import onnxruntime
    except ModuleNotFoundError as missing:
        raise InputError(f"checking ONNX needs the package onnxruntime. {install_hint('onnx')}") from missing
    onnxruntime.disable_telemetry_events()  # unpooled opens no connection that nobody asked for
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    kinds = model.preparation.kinds
    feed = {
        name: np.array([np.nan if v is None else v for v in cells], dtype=np.float64)[:, None]
        if has_mean(kinds[name])
        else np.array([v or "" for v in cells], dtype=object)[:, None]
        for name, cells in columns.items()
    }
    return np.asarray(session.run(["label"], feed)[0])
