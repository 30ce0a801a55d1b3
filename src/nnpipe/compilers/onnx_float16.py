"""Conversion of ONNX models to 16-bit floats."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.compilers._onnx import ONNXRewriter, in_one_file
from nnpipe.compilers._onnx_normal_form import compute_in_float32, hold_constants, separate_outputs, separate_weights
from nnpipe.compilers._onnx_topological_order import put_in_order
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx

_PIECE = 1 << 20  # numbers checked at once
_LARGEST = float(np.finfo(np.float16).max)
_MASK = 1e30  # values beyond are no results of computations but masks


class ONNXFloat16(ONNXRewriter):
    """ONNX models in 16-bit floats, which take and give the element types of their source.

    GPUs compute faster with 16-bit floats.  Most CPUs do not support them: there,
    ONNX Runtime converts to 32-bit floats and back, and only the file is smaller.
    """

    float32_operators: tuple[str, ...] = argument(
        (), help="operators such as Softmax to keep in 32 bits, beside those that have no 16-bit form"
    )

    def claims(self) -> tuple[Claim, ...]:
        """Return 16-bit floats."""
        return ("float16",)

    def variant(self) -> str:
        """Return the number format."""
        return "float16"

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        import onnx

        with tempfile.TemporaryDirectory() as folder:
            # Shapes are inferred from file to file: in memory, this would take four times the model's size.
            shaped = Path(folder, "shaped.onnx")
            onnx.shape_inference.infer_shapes_path(str(in_one_file(artifact.path, Path(folder))), str(shaped))
            model = onnx.load_model(str(shaped))
        separate_weights(model)
        hold_constants(model.graph)
        separate_outputs(model.graph)
        compute_in_float32(model.graph, "DOUBLE")
        _clamp_masks(model.graph)
        float16 = _converter()
        model = float16.convert_float_to_float16(
            model,
            keep_io_types=True,
            disable_shape_infer=True,
            op_block_list=[*float16.DEFAULT_OP_BLOCK_LIST, *self.float32_operators],
        )
        put_in_order(model.graph)
        onnx.save_model(model, str(destination))
        return read_onnx(destination).io(artifact.io)


def _clamp_masks(graph: Any) -> None:
    """Set the lowest float32 and the like, which mask attention, to the lowest and largest float16.

    Infinite ones would give NaN where a whole row is masked.

    Raises
    ------
    CompileError
        If a weight with other values as well has values beyond the range of float16.
    """
    from onnx import TensorProto, numpy_helper

    constants = [(f"weight {constant.name!r}", constant) for constant in graph.initializer]
    constants += [
        (f"constant {node.output[0]!r}", attribute.t)
        for node in graph.node
        if node.op_type in ("Constant", "ConstantOfShape")
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    for told, constant in constants:
        if constant.data_type != TensorProto.FLOAT:
            continue
        array = numpy_helper.to_array(constant)
        flat = array.reshape(-1)
        pieces = [flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE)]
        large = [np.isfinite(piece) & (np.abs(piece) > _LARGEST) for piece in pieces]
        if not any(map(np.any, large)):
            continue
        masking = all(bool((np.abs(piece[at]) > _MASK).all()) for piece, at in zip(pieces, large, strict=True))
        if not masking:
            raise CompileError(f"{told} has values beyond the range of float16")
        clamped = np.clip(array, -_LARGEST, _LARGEST).astype(np.float32)
        constant.CopyFrom(numpy_helper.from_array(clamped, constant.name))


def _converter() -> Any:
    """Return ONNX Runtime's converter, imported without its package.

    The package changes Python's module search path, on which ONNX Runtime's
    quantiser depends; the result must not depend on the order of imports.
    """
    import onnxruntime

    path = Path(onnxruntime.__file__).parent / "transformers" / "float16.py"
    spec = importlib.util.spec_from_file_location("_onnxruntime_float16", path)
    if spec is None or spec.loader is None:
        raise CompileError(f"ONNX Runtime {onnxruntime.__version__} has no converter to float16")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
