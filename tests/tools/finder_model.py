"""Writes a detector in ONNX that finds the squares of ``SyntheticDetectionDataset``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

OPTIONS = (
    "--scale",
    "255",
    "--fit",
    "squeeze",
    "--decoder",
    "YOLODecoder",
    "--decoder-options",
    "score_threshold=0.2",
)


def write_finder(path: Path, step: float | None = None) -> str:
    """Write a detector of red and green squares, whose output is rounded to a step as in int8 if
    one is given.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    centres = np.stack(np.meshgrid(np.arange(8) * 8 + 4.0, np.arange(8) * 8 + 4.0), 0).reshape(
        2, 64
    )
    boxes = np.concatenate([centres, np.full((2, 64), 8.0)])[None].astype(np.float32)
    weights = {
        "boxes": boxes,
        "least": np.float32(0.6),
        "factor": np.float32(2.5),
        "zero": np.float32(0),
        "one": np.float32(1),
        "shape": np.array([1, 2, 64]),
        "start": np.array([0]),
        "end": np.array([2]),
        "axis": np.array([1]),
        "scale": np.float32(step or 1),
        "point": np.int8(-128),
    }
    nodes = [
        helper.make_node("AveragePool", ["image"], ["mean"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Slice", ["mean", "start", "end", "axis"], ["two"]),
        helper.make_node("Sub", ["two", "least"], ["above"]),
        helper.make_node("Mul", ["above", "factor"], ["scaled"]),
        helper.make_node("Clip", ["scaled", "zero", "one"], ["clipped"]),
        helper.make_node("Reshape", ["clipped", "shape"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores"], ["whole"], axis=1),
    ]
    if step is None:
        nodes.append(helper.make_node("Identity", ["whole"], ["output"]))
    else:
        nodes.append(helper.make_node("QuantizeLinear", ["whole", "scale", "point"], ["stored"]))
        nodes.append(helper.make_node("DequantizeLinear", ["stored", "scale", "point"], ["output"]))
    graph = helper.make_graph(
        nodes,
        "finder",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 6, 64])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    return str(path)
