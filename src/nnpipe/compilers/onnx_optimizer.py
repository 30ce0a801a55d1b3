"""Compilers from ONNX to ONNX: optimisation of the graph, 16-bit floats, pruning, and
equalisation of channels.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._onnx import (
    ONNXRewriter,
    compute_in_float32,
    convert_constant_nodes,
    copy_shared_outputs,
    merge_into_one_file,
    optimize_onnx_file,
    put_in_order,
    remove_weights_from_inputs,
)
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx

_LEVELS = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}


class ONNXRuntimeOptimizer(ONNXRewriter):
    """ONNX models, fused and folded by ONNX Runtime ahead of time.

    With ``basic`` the result is standard ONNX; ``extended`` uses operators of
    ONNX Runtime; ``all`` also arranges weights for the compiling machine, so that
    the result may not run on another one.
    """

    unsupported_types: ClassVar[tuple[str, ...]] = ("bfloat16",)

    optimisation_level: Literal["basic", "extended", "all"] = argument(
        "extended", help="how far ONNX Runtime may rewrite the graph"
    )

    def variant(self) -> str:
        """Return the level."""
        return f"optimised-{self.optimisation_level}"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        with tempfile.TemporaryDirectory() as folder:
            optimize_onnx_file(
                merge_into_one_file(artifact.path, Path(folder)),
                destination,
                _LEVELS[self.optimisation_level],
            )
        return read_onnx(destination).io(artifact.io)


_PIECE = 1 << 20  # numbers checked at once
_LARGEST = float(np.finfo(np.float16).max)
_MASK = 1e30  # values beyond are no results of computations but masks


class ONNXFloat16(ONNXRewriter):
    """ONNX models in 16-bit floats, which take and give the element types of their source.

    GPUs compute faster with 16-bit floats.  Most CPUs do not support them: there,
    ONNX Runtime converts to 32-bit floats and back, and only the file is smaller.
    """

    float32_operators: tuple[str, ...] = argument(
        (),
        help="operators such as Softmax to keep in 32 bits, beside those that have no 16-bit form",
    )

    def claims(self) -> tuple[Claim, ...]:
        """Return 16-bit floats."""
        return ("float16",)

    def variant(self) -> str:
        """Return the number format."""
        return "float16"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        import onnx

        with tempfile.TemporaryDirectory() as folder:
            # Shapes are inferred from file to file: in memory, this would take four times the
            # model's size.
            shaped = Path(folder, "shaped.onnx")
            onnx.shape_inference.infer_shapes_path(
                str(merge_into_one_file(artifact.path, Path(folder))), str(shaped)
            )
            model = onnx.load_model(str(shaped))
        remove_weights_from_inputs(model)
        convert_constant_nodes(model.graph)
        copy_shared_outputs(model.graph)
        compute_in_float32(model.graph, "DOUBLE")
        _clamp_masks(model.graph)
        float16 = _import_converter()
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
        masking = all(
            bool((np.abs(piece[at]) > _MASK).all()) for piece, at in zip(pieces, large, strict=True)
        )
        if not masking:
            raise CompileError(f"{told} has values beyond the range of float16")
        clamped = np.clip(array, -_LARGEST, _LARGEST).astype(np.float32)
        constant.CopyFrom(numpy_helper.from_array(clamped, constant.name))


def _import_converter() -> Any:
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


_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


class ONNXPruner(ONNXRewriter):
    """ONNX models whose weights of least magnitude are 0; nothing is fine-tuned.

    Kernels and matrices are pruned; biases are not (Han et al. 2015, arXiv:1506.02626).  The file
    is only smaller once it is compressed, and only faster in a runtime that skips zeros.  The
    result shows how much a network can be pruned before its accuracy suffers; to fine-tune it,
    prune the PyTorch program with ``TorchPruner``.
    """

    requires: ClassVar[tuple[str, ...]] = ("onnx",)
    packages: ClassVar[tuple[str, ...]] = ("onnx",)

    sparsity: float = argument(
        0.5, help="fraction of the weights set to 0", minimum=0.0, maximum=0.999
    )
    scope: Literal["layer", "global"] = argument(
        "layer",
        help=(
            "prune this fraction of each layer, or of all layers together, which spares small "
            "layers"
        ),
    )

    def claims(self) -> tuple[Claim, ...]:
        """Return that weights are pruned and number formats are kept."""
        return ("pruned",)

    def variant(self) -> str:
        """Return the sparsity."""
        return f"pruned-{round(self.sparsity * 1000) / 10:g}"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        import onnx

        with tempfile.TemporaryDirectory() as folder:
            model = onnx.load_model(str(merge_into_one_file(artifact.path, Path(folder))))
        tensors = _find_weights(model.graph)
        if not tensors:
            raise CompileError(
                "it has no floating-point weights to prune; prune a model before it is quantised"
            )
        arrays = [np.array(onnx.numpy_helper.to_array(tensor)) for tensor in tensors]
        groups = (
            [range(len(arrays))]
            if self.scope == "global"
            else [[number] for number in range(len(arrays))]
        )
        for group in groups:
            _prune([arrays[number] for number in group], self.sparsity)
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        onnx.save_model(model, str(destination))
        return read_onnx(destination).io(artifact.io)


def _find_weights(graph: Any) -> list[Any]:
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


_ROUNDS = 20  # a chain of layers passes its scales on, one layer in a round
_GREATEST = 2.0**20  # a factor; weights stay far from the limits of float32
# Operations that commute with a positive factor for each channel.
_PASSING = (
    "Relu",
    "LeakyRelu",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Identity",
    "Dropout",
)

Floats = npt.NDArray[np.float64]


class ONNXEqualizer(ONNXRewriter):
    """ONNX models whose channels have similar ranges, which lose less accuracy in 8 bits; needs no
    samples.

    It goes before a quantiser.  Where a convolution or matrix product follows another, with nothing
    but ReLU, LeakyReLU and pooling between them, channels of the first are multiplied by factors,
    and the weights of the second that take these channels are divided by them, such that each
    channel has the same range in both: cross-layer equalisation, M. Nagel et al., "Data-Free
    Quantization Through Weight Equalization and Bias Correction", ICCV 2019 (arXiv:1906.04721),
    equation 9.  The factors are powers of two: the model computes the same numbers, to the last
    bit, and ranges differ by a factor of two at most.

    Batch normalisations are folded into convolutions first.  Layers with ReLU6 between them, and
    layers whose result goes to several operations, as that of a residual block does, are left as
    they are.
    """

    def variant(self) -> str:
        """Return the kind of rewriting."""
        return "equalised"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        import onnx

        with tempfile.TemporaryDirectory() as folder:
            folded = Path(folder, "folded.onnx")
            optimize_onnx_file(
                merge_into_one_file(artifact.path, Path(folder)), folded, "ORT_ENABLE_BASIC"
            )
            model = onnx.load_model(str(folded))
        equalize_channels(model.graph)
        onnx.save_model(model, str(destination))
        return read_onnx(destination).io(artifact.io)


@dataclass
class _ScaledWeights:
    """Weights of a layer whose channels are multiplied, each with its axis of channels; the
    kernel comes first.
    """

    names: tuple[str, ...]
    axes: tuple[int, ...]
    channels: int


def equalize_channels(graph: Any) -> int:
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
    pairs = list(_iter_pairs(graph, constants, uses))
    changed: set[str] = set()
    for _ in range(_ROUNDS):
        moved = False
        for first, second in pairs:
            factors = _compute_factors(
                _compute_ranges(constants, first), _compute_ranges(constants, second)
            )
            if (factors == 1).all():
                continue
            moved = True
            for side, by in ((first, 1 / factors), (second, factors)):
                for name, axis in zip(side.names, side.axes, strict=True):
                    constants[name] = _scale_weight(constants[name], axis, by)
                    changed.add(name)
        if not moved:
            break
    for constant in graph.initializer:
        if constant.name in changed:
            constant.CopyFrom(numpy_helper.from_array(constants[constant.name], constant.name))
    return len(pairs)


def _iter_pairs(
    graph: Any, constants: dict[str, Any], uses: dict[str, int]
) -> Iterator[tuple[_ScaledWeights, _ScaledWeights]]:
    """Yield the layers that follow each other, with nothing between them that factors would
    change.
    """
    users: dict[str, Any] = {name: node for node in graph.node for name in node.input}
    given = {value.name for value in graph.output}
    for node in graph.node:
        first = _find_producing_weights(node, constants, uses)
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
                second = _find_consuming_weights(user, tensor, constants, uses)
                if second is not None and second.channels == first.channels:
                    yield first, second
                break


def _find_producing_weights(
    node: Any, constants: dict[str, Any], uses: dict[str, int]
) -> _ScaledWeights | None:
    """Return the weights that a layer's results are proportional to, or None if it is no such
    layer.
    """
    axis = _find_result_axis(node)
    own = [name for name in node.input[1:] if name]
    if axis is None or not own or any(name not in constants or uses[name] != 1 for name in own):
        return None
    weight = constants[own[0]]
    if weight.ndim <= axis:
        return None
    channels = weight.shape[axis]
    axes = [axis]
    for name in own[1:]:
        if (
            constants[name].ndim == 0
            or constants[name].shape[-1] != channels
            or constants[name].size != channels
        ):
            return None
        axes.append(constants[name].ndim - 1)
    return _ScaledWeights(tuple(own), tuple(axes), channels)


def _find_result_axis(node: Any) -> int | None:
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if _get_attribute(node, "transB") else 1
    return None


def _find_consuming_weights(
    node: Any, tensor: str, constants: dict[str, Any], uses: dict[str, int]
) -> _ScaledWeights | None:
    """Return the weights that a layer multiplies the channels of a tensor by, or None if it is
    no such layer.
    """
    if (
        len(node.input) < 2
        or node.input[0] != tensor
        or node.input[1] not in constants
        or uses[node.input[1]] != 1
    ):
        return None
    name = node.input[1]
    weight = constants[name]
    if node.op_type == "Conv":
        groups = _get_attribute(node, "group") or 1
        if groups == 1:
            return _ScaledWeights((name,), (1,), weight.shape[1])
        if weight.shape[0] == groups and weight.shape[1] == 1:  # one kernel for each channel
            return _ScaledWeights((name,), (0,), groups)
    elif node.op_type == "Gemm" and not _get_attribute(node, "transA"):
        axis = 1 if _get_attribute(node, "transB") else 0
        return _ScaledWeights((name,), (axis,), weight.shape[axis])
    elif node.op_type == "MatMul" and weight.ndim == 2:
        return _ScaledWeights((name,), (0,), weight.shape[0])
    return None


def _get_attribute(node: Any, name: str) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), 0)


def _compute_ranges(constants: dict[str, Any], side: _ScaledWeights) -> Floats:
    """Return the greatest magnitude of the weights of each channel, without biases."""
    weight = np.moveaxis(constants[side.names[0]], side.axes[0], 0).reshape(side.channels, -1)
    found: Floats = np.abs(weight).max(axis=1).astype(np.float64)
    return found


def _compute_factors(first: Floats, second: Floats) -> Floats:
    """Return the powers of two by which channels of the second layer are multiplied."""
    able = (first > 0) & (second > 0) & np.isfinite(first) & np.isfinite(second)
    ratio = np.sqrt(np.where(able, first, 1.0) / np.where(able, second, 1.0))
    found: Floats = 2.0 ** np.rint(np.log2(np.clip(ratio, 1 / _GREATEST, _GREATEST)))
    return found


def _scale_weight(weight: Any, axis: int, factors: Floats) -> Any:
    shape = [1] * weight.ndim
    shape[axis] = -1
    return (weight * factors.reshape(shape)).astype(weight.dtype)
