"""Magnitude pruning of ONNX models."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._onnx import ONNXRewriter, in_one_file
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx

_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


class ONNXPruner(ONNXRewriter):
    """ONNX models whose weights of least magnitude are 0; nothing is fine-tuned.

    Kernels and matrices are pruned; biases are not (Han et al. 2015, arXiv:1506.02626).  The file is only smaller once
    it is compressed, and only faster in a runtime that skips zeros.  The result shows how much a network can be pruned
    before its accuracy suffers; to fine-tune it, prune the PyTorch program with ``TorchPruner``.
    """

    requires: ClassVar[tuple[str, ...]] = ("onnx",)
    packages: ClassVar[tuple[str, ...]] = ("onnx",)

    sparsity: float = argument(0.5, help="fraction of the weights set to 0", minimum=0.0, maximum=0.999)
    scope: Literal["layer", "global"] = argument(
        "layer", help="prune this fraction of each layer, or of all layers together, which spares small layers"
    )

    def claims(self) -> tuple[Claim, ...]:
        """Return that weights are pruned and number formats are kept."""
        return ("pruned",)

    def variant(self) -> str:
        """Return the sparsity."""
        return f"pruned-{round(self.sparsity * 1000) / 10:g}"

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        import onnx

        with tempfile.TemporaryDirectory() as folder:
            model = onnx.load_model(str(in_one_file(artifact.path, Path(folder))))
        tensors = _weights(model.graph)
        if not tensors:
            raise CompileError("it has no floating-point weights to prune; prune a model before it is quantised")
        arrays = [np.array(onnx.numpy_helper.to_array(tensor)) for tensor in tensors]
        groups = [range(len(arrays))] if self.scope == "global" else [[number] for number in range(len(arrays))]
        for group in groups:
            _prune([arrays[number] for number in group], self.sparsity)
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        onnx.save_model(model, str(destination))
        return read_onnx(destination).io(artifact.io)


def _weights(graph: Any) -> list[Any]:
    """Return the floating-point constants that convolutions and matrix products use as weights."""
    from onnx import TensorProto

    used = {name for node in graph.node if node.op_type in _WEIGHTED for name in node.input[:2]}
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
    return [
        tensor
        for tensor in graph.initializer
        if tensor.name in used and tensor.data_type in floats and len(tensor.dims) > 1
    ]


def _prune(arrays: Sequence[npt.NDArray[Any]], sparsity: float) -> None:
    """Set the fraction ``sparsity`` of all numbers, those of least magnitude, to 0 in place."""
    sizes = np.concatenate([np.abs(array).ravel() for array in arrays])
    kept = np.ones(sizes.size, bool)
    # A stable sort, so that the number of zeros is exact and the choice reproducible.
    kept[np.argsort(sizes, kind="stable")[: int(sparsity * sizes.size)]] = False
    start = 0
    for array in arrays:
        array *= kept[start : start + array.size].reshape(array.shape)
        start += array.size
