"""A model as an ONNX graph (``pip install '.[onnx]'``).

One input per column, of shape (rows, 1): numbers as double with NaN for missing ones, categories as text with
"" for missing ones. Outputs: ``label`` (from 0, the largest cluster) and ``squared_distances`` (rows, k).
"""

from typing import Any

import numpy as np

from unpooled.app.model import Model
from unpooled.data import Number
from unpooled.data.transforms import Shaped
from unpooled.errors import InputError, install_hint

_OPSET, _OPSET_ML = 17, 3


def to_onnx(model: Model) -> bytes:
    """Return the bytes of the graph."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ModuleNotFoundError as missing:
        raise InputError(f"ONNX needs the package onnx. {install_hint('onnx')}") from missing
    kept = model.preparation.keeps_missing
    nodes: list[Any] = []
    constants: list[Any] = []
    inputs: list[Any] = []

    def constant(name: str, value: object) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    parts = []
    for j, c in enumerate(model.preparation.columns):
        at = f"c{j}"
        if isinstance(c, Number):
            inputs.append(helper.make_tensor_value_info(c.name, TensorProto.DOUBLE, ["rows", 1]))
            if isinstance(c, Shaped) and c.form != "log":
                raise InputError(f"column {c.name}: ONNX has no {c.form}. Use --to sklearn or --to json.")
            x = node("Log", [c.name], f"{at}_log") if isinstance(c, Shaped) else c.name
            lacks = node("IsNaN", [x], f"{at}_lacks")
            fill = np.nan if kept else c.fill
            filled = node("Where", [lacks, constant(f"{at}_fill", fill), x], f"{at}_filled")
            moved = node("Sub", [filled, constant(f"{at}_shift", c.shift)], f"{at}_moved")
            parts.append(node("Div", [moved, constant(f"{at}_scale", c.scale)], f"{at}_out"))
            continue
        inputs.append(helper.make_tensor_value_info(c.name, TensorProto.STRING, ["rows", 1]))
        coded = node(
            "LabelEncoder",
            [c.name],
            f"{at}_place",
            domain="ai.onnx.ml",
            keys_strings=[*c.categories, ""],
            values_int64s=[*range(len(c.categories)), len(c.categories) + 1 if kept else c.fill],
            default_int64=len(c.categories),
        )
        # one row per category, the last for unknown ones: the position of merged categories, or zeros
        rows = np.eye(len(c.categories) + 1, c.width) / c.scale
        rows = np.vstack([rows, np.full(c.width, np.nan)]) if kept else rows  # one more for missing values
        hot = node("Gather", [constant(f"{at}_rows", rows), coded], f"{at}_hot")
        parts.append(
            node("Squeeze", [hot, constant(f"{at}_axis", np.array([1], dtype=np.int64))], f"{at}_out")
        )
    X = node("Concat", parts, "prepared", axis=1) if len(parts) > 1 else parts[0]
    lifted = node("Unsqueeze", [X, constant("one", np.array([1], dtype=np.int64))], "lifted")
    gaps = node("Sub", [lifted, constant("centers", model.centers[None])], "gaps")
    if kept:  # a missing cell adds nothing to a distance
        is_missing = node("IsNaN", [gaps], "missing_gaps")
        gaps = node("Where", [is_missing, constant("zero", 0.0), gaps], "observed_gaps")
    squared = node(
        "ReduceSum",
        [node("Mul", [gaps, gaps], "squares"), constant("two", np.array([2], dtype=np.int64))],
        "squared_distances",
        keepdims=0,
    )
    node("ArgMin", [squared], "label", axis=1, keepdims=0)
    graph = helper.make_graph(
        nodes,
        "unpooled",
        inputs,
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["rows"]),
            helper.make_tensor_value_info(
                "squared_distances", TensorProto.DOUBLE, ["rows", len(model.centers)]
            ),
        ],
        constants,
        doc_string=model.made_by,
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _OPSET_ML)]
    made = helper.make_model(graph, opset_imports=opsets, producer_name="unpooled", ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    data: bytes = made.SerializeToString()
    return data
