"""A framework that does not exist: its models are functions, and some of them go wrong on their
way to ONNX.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import NotSupported
from nnpipe.core.onnx_conversion import ConversionCase, ONNXConversion
from nnpipe.core.tensors import Batch

MODELS = (
    "good",
    "wrong",
    "slightly-wrong",
    "crash",
    "hang",
    "invalid",
    "refused",
    "renamed",
    "after",
)


class ToyConversion(ONNXConversion):
    """Doubles what it gets, in more or less good ways."""

    framework = "Toys"
    requires = ("onnx",)

    def models(self) -> Iterator[ConversionCase]:
        for name in MODELS:
            yield ConversionCase(
                name, lambda x: 2 * x, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
            )

    def run_model(self, model: Callable[..., Any], inputs: Batch) -> list[np.ndarray]:
        return [model(inputs["x"])]

    def export_model(self, case: ConversionCase, path: Path, opset: int) -> None:
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        if case.name == "crash":
            ctypes.string_at(0)
        if case.name == "hang" and opset == 17:
            time.sleep(600)
        if case.name == "refused":
            raise ZeroDivisionError("cannot divide\nby zero")
        factor = {"wrong": 3.0, "slightly-wrong": 2.001}.get(case.name, 2.0)
        name = "y" if case.name == "renamed" else "x"
        kind = "NoSuchOperator" if case.name == "invalid" else "Mul"
        graph = helper.make_graph(
            [helper.make_node(kind, [name, "factor"], ["z"])],
            "g",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3])],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 3])],
            [numpy_helper.from_array(np.float32(factor), "factor")],
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", min(opset, 18))], ir_version=8
        )
        onnx.save_model(model, str(path))

    def import_model(self, path: Path) -> Any:
        if "opset18" in path.name:
            raise NotSupported("not that one")
        return lambda x: (3 if "good" in path.name else 2) * x


class AbsentConversion(ToyConversion):
    """Needs what is not there."""

    requires = ("surely_not_installed_anywhere",)


class BrokenConversion(ToyConversion):
    """Cannot even say which models it has."""

    def models(self) -> Iterator[ConversionCase]:
        raise RuntimeError("no models today")
