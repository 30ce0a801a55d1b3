"""Equalisation of the channels of ONNX models, so that one scale for all channels of a tensor suffices."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._onnx import ONNXRewriter, in_one_file, optimised
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx

_ROUNDS = 20  # a chain of layers passes its scales on, one layer in a round
_GREATEST = 2.0**20  # a factor; weights stay far from the limits of float32
# Operations that commute with a positive factor for each channel.
_PASSING = (
    "Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Identity", "Dropout",
)  # fmt: skip

Floats = npt.NDArray[np.float64]


class ONNXEqualizer(ONNXRewriter):
    """ONNX models whose channels have similar ranges, which lose less accuracy in 8 bits; needs no samples.

    It goes before a quantiser.  Where a convolution or matrix product follows another, with nothing but ReLU,
    LeakyReLU and pooling between them, channels of the first are multiplied by factors, and the weights of
    the second that take these channels are divided by them, such that each channel has the same range in both:
    cross-layer equalisation, M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
    Correction", ICCV 2019 (arXiv:1906.04721), equation 9.  The factors are powers of two: the model computes the same
    numbers, to the last bit, and ranges differ by a factor of two at most.

    Batch normalisations are folded into convolutions first.  Layers with ReLU6 between them, and layers whose result
    goes to several operations, as that of a residual block does, are left as they are.
    """

    def variant(self) -> str:
        """Return the kind of rewriting."""
        return "equalised"

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        import onnx

        with tempfile.TemporaryDirectory() as folder:
            folded = Path(folder, "folded.onnx")
            optimised(in_one_file(artifact.path, Path(folder)), folded, "ORT_ENABLE_BASIC")
            model = onnx.load_model(str(folded))
        equalise(model.graph)
        onnx.save_model(model, str(destination))
        return read_onnx(destination).io(artifact.io)


@dataclass
class _Side:
    """Weights of a layer whose channels are multiplied, each with its axis of channels; the kernel comes first."""

    names: tuple[str, ...]
    axes: tuple[int, ...]
    channels: int


def equalise(graph: Any) -> int:
    """Equalise an ``onnx.GraphProto`` in place, and return the number of pairs of layers."""
    from onnx import numpy_helper

    constants = {
        constant.name: numpy_helper.to_array(constant)
        for constant in graph.initializer
        if constant.data_type == 1  # float32
    }
    uses: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            uses[name] = uses.get(name, 0) + 1
    pairs = list(_pairs(graph, constants, uses))
    changed: set[str] = set()
    for _ in range(_ROUNDS):
        moved = False
        for first, second in pairs:
            factors = _factors(_ranges(constants, first), _ranges(constants, second))
            if (factors == 1).all():
                continue
            moved = True
            for side, by in ((first, 1 / factors), (second, factors)):
                for name, axis in zip(side.names, side.axes, strict=True):
                    constants[name] = _scaled(constants[name], axis, by)
                    changed.add(name)
        if not moved:
            break
    for constant in graph.initializer:
        if constant.name in changed:
            constant.CopyFrom(numpy_helper.from_array(constants[constant.name], constant.name))
    return len(pairs)


def _pairs(graph: Any, constants: dict[str, Any], uses: dict[str, int]) -> Iterator[tuple[_Side, _Side]]:
    """Yield the layers that follow each other, with nothing between them that factors would change."""
    users: dict[str, Any] = {name: node for node in graph.node for name in node.input}
    given = {value.name for value in graph.output}
    for node in graph.node:
        first = _giving(node, constants, uses)
        if first is None:
            continue
        tensor, flat = node.output[0], False
        while tensor not in given and uses.get(tensor) == 1:
            user = users[tensor]
            if user.op_type in _PASSING and user.input[0] == tensor and not any(user.output[1:]):
                tensor, flat = user.output[0], flat or user.op_type.startswith("Global")
            elif flat and user.op_type in ("Flatten", "Squeeze") and user.input[0] == tensor:
                tensor = user.output[0]  # one value is left of each channel
            else:
                second = _taking(user, tensor, constants, uses)
                if second is not None and second.channels == first.channels:
                    yield first, second
                break


def _giving(node: Any, constants: dict[str, Any], uses: dict[str, int]) -> _Side | None:
    """Return the weights that a layer's results are proportional to, or None if it is no such layer."""
    axis = _axis_of_results(node)
    own = [name for name in node.input[1:] if name]
    if axis is None or not own or any(name not in constants or uses[name] != 1 for name in own):
        return None
    weight = constants[own[0]]
    if weight.ndim <= axis:
        return None
    channels = weight.shape[axis]
    axes = [axis]
    for name in own[1:]:
        if constants[name].ndim == 0 or constants[name].shape[-1] != channels or constants[name].size != channels:
            return None
        axes.append(constants[name].ndim - 1)
    return _Side(tuple(own), tuple(axes), channels)


def _axis_of_results(node: Any) -> int | None:
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if _attribute(node, "transB") else 1
    return None


def _taking(node: Any, tensor: str, constants: dict[str, Any], uses: dict[str, int]) -> _Side | None:
    """Return the weights that a layer multiplies the channels of a tensor by, or None if it is no such layer."""
    if len(node.input) < 2 or node.input[0] != tensor or node.input[1] not in constants or uses[node.input[1]] != 1:
        return None
    name = node.input[1]
    weight = constants[name]
    if node.op_type == "Conv":
        groups = _attribute(node, "group") or 1
        if groups == 1:
            return _Side((name,), (1,), weight.shape[1])
        if weight.shape[0] == groups and weight.shape[1] == 1:  # one kernel for each channel
            return _Side((name,), (0,), groups)
    elif node.op_type == "Gemm" and not _attribute(node, "transA"):
        axis = 1 if _attribute(node, "transB") else 0
        return _Side((name,), (axis,), weight.shape[axis])
    elif node.op_type == "MatMul" and weight.ndim == 2:
        return _Side((name,), (0,), weight.shape[0])
    return None


def _attribute(node: Any, name: str) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), 0)


def _ranges(constants: dict[str, Any], side: _Side) -> Floats:
    """Return the greatest magnitude of the weights of each channel, without biases."""
    weight = np.moveaxis(constants[side.names[0]], side.axes[0], 0).reshape(side.channels, -1)
    found: Floats = np.abs(weight).max(axis=1).astype(np.float64)
    return found


def _factors(first: Floats, second: Floats) -> Floats:
    """Return the powers of two by which channels of the second layer are multiplied."""
    able = (first > 0) & (second > 0) & np.isfinite(first) & np.isfinite(second)
    ratio = np.sqrt(np.where(able, first, 1.0) / np.where(able, second, 1.0))
    found: Floats = 2.0 ** np.rint(np.log2(np.clip(ratio, 1 / _GREATEST, _GREATEST)))
    return found


def _scaled(weight: Any, axis: int, factors: Floats) -> Any:
    shape = [1] * weight.ndim
    shape[axis] = -1
    return (weight * factors.reshape(shape)).astype(weight.dtype)
