"""The layers of an ONNX graph whose weights are constants, and the second moments of their inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.tensors import Batch

_ROWS = 8192  # places of a layer's input that are looked at, about
_FATAL = 4

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ONNXLayer:
    """A convolution or matrix product with constant weights.

    Parameters
    ----------
    name
        The name of its node.
    node
        The ``onnx.NodeProto``.
    weight
        The constant that holds its weights: 32-bit floats, or 8-bit integers with scales.
    values
        The weights, in floats.
    scales
        The scale of each channel, if the constant is of integers; otherwise None.
    channels
        The axis of the weights that its results come from.
    """

    name: str
    node: Any
    weight: str
    values: npt.NDArray[np.float32]
    scales: npt.NDArray[np.float32] | None
    channels: int

    @property
    def matrix(self) -> Floats:
        """The weights as ``(channels, inputs)``."""
        return np.moveaxis(self.values, self.channels, 0).reshape(self.values.shape[self.channels], -1).astype(float)

    def restored(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return an array like :attr:`matrix` in the shape of the weights."""
        shape = np.moveaxis(self.values, self.channels, 0).shape
        return np.ascontiguousarray(np.moveaxis(matrix.reshape(shape), 0, self.channels))

    @property
    def groups(self) -> int:
        """The number of groups of a convolution, each of which has inputs of its own."""
        return _attribute(self.node, "group", 1) if self.node.op_type == "Conv" else 1


def layers_of(graph: Any) -> list[ONNXLayer]:
    """Return the layers of an ``onnx.GraphProto``, in its order; those that share their weights are left out."""
    from onnx import numpy_helper

    constants = {each.name: each for each in graph.initializer}
    uses: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            uses[name] = uses.get(name, 0) + 1
    makers = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    found = []
    for number, node in enumerate(graph.node):
        axis = _channels_of(node)
        if axis is None or len(node.input) < 2 or uses[node.input[1]] != 1:
            continue
        name, scales = node.input[1], None
        if name in makers:
            maker = makers[name]
            name = maker.input[0]
            if any(each not in constants for each in maker.input) or uses[name] != 1:
                continue
            scales = numpy_helper.to_array(constants[maker.input[1]])
        if name not in constants or len(constants[name].dims) < 2:
            continue
        array = numpy_helper.to_array(constants[name])
        if scales is not None:
            place = _attribute(makers[node.input[1]], "axis", 1) % array.ndim if scales.ndim else axis
            if array.dtype != np.int8 or place != axis or _zero_points(makers[node.input[1]], constants).any():
                continue
            scales = np.broadcast_to(scales, (array.shape[axis],)).astype(np.float32)
            array = array * scales.reshape([-1 if each == axis else 1 for each in range(array.ndim)])
        if array.dtype == np.float32:
            found.append(ONNXLayer(node.name or f"{node.op_type}{number}", node, name, array, scales, axis))
    return found


def _channels_of(node: Any) -> int | None:
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if _attribute(node, "transB", 0) else 1
    return 1 if node.op_type == "MatMul" else None


def _zero_points(node: Any, constants: Mapping[str, Any]) -> npt.NDArray[Any]:
    from onnx import numpy_helper

    return numpy_helper.to_array(constants[node.input[2]]) if len(node.input) > 2 else np.zeros(1)


def _attribute(node: Any, name: str, default: int) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), default)


def input_moments(
    model: Any, layers: Sequence[ONNXLayer], samples: Iterable[Batch], count: int
) -> dict[str, list[Floats]]:
    """Return the second moments of the inputs of layers, by name, one matrix for each group.

    Parameters
    ----------
    model
        An ``onnx.ModelProto``.
    layers
        Some of its layers.
    samples
        Batches of one sample.
    count
        About how many there are.
    """
    import onnxruntime
    from onnx import ModelProto, helper

    watched = ModelProto()
    watched.CopyFrom(model)
    given = {value.name for value in model.graph.input}
    known = {value.name for value in model.graph.output}
    wanted = list(dict.fromkeys(layer.node.input[0] for layer in layers if layer.node.input[0] not in given))
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in wanted if name not in known)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    session = onnxruntime.InferenceSession(watched.SerializeToString(), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    sums: dict[str, list[Floats]] = {}
    rows: dict[str, int] = {}
    for sample in samples:
        tensors = {**sample, **dict(zip(wanted, session.run(wanted, dict(sample)) if wanted else (), strict=True))}
        for layer in layers:
            parts = list(_rows(layer, np.asarray(tensors[layer.node.input[0]]), max(1, _ROWS // count), random))
            added = [part.T @ part for part in parts]
            before = sums.get(layer.name, [np.zeros_like(each) for each in added])
            sums[layer.name] = [one + other for one, other in zip(before, added, strict=True)]
            rows[layer.name] = rows.get(layer.name, 0) + len(parts[0])
    return {name: [each / max(rows[name], 1) for each in found] for name, found in sums.items()}


def _rows(layer: ONNXLayer, values: npt.NDArray[Any], most: int, random: np.random.Generator) -> Iterator[Floats]:
    """Yield some of the vectors that a layer multiplies with its weights: ``(rows, inputs)`` for each group."""
    if layer.node.op_type != "Conv":
        flat = values.reshape(-1, values.shape[-1])
        chosen = random.permutation(len(flat))[:most]
        yield flat[chosen].astype(float)
        return
    windows = _windows(layer, values)  # (samples, channels, places..., kernel...)
    rank = layer.values.ndim - 2
    order = (0, *range(2, 2 + rank), 1, *range(2 + rank, 2 + 2 * rank))
    places = windows.transpose(order)
    indices = random.permutation(int(np.prod(places.shape[: 1 + rank])))[:most]
    taken = places[np.unravel_index(indices, places.shape[: 1 + rank])]
    for part in np.split(taken, layer.groups, axis=1):
        yield part.reshape(len(indices), -1).astype(float)


def _windows(layer: ONNXLayer, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    lists = {each.name: list(each.ints) for each in layer.node.attribute if each.ints}
    texts = {each.name: each.s.decode() for each in layer.node.attribute if each.s}
    kernel = layer.values.shape[2:]
    rank = len(kernel)
    strides, dilations = (lists.get(name, [1] * rank) for name in ("strides", "dilations"))
    spans = [(size - 1) * by + 1 for size, by in zip(kernel, dilations, strict=True)]
    pads = lists.get("pads", [0] * 2 * rank)
    if texts.get("auto_pad", "NOTSET").startswith("SAME"):
        sizes = values.shape[2:]
        needed = [
            max((-(-size // by) - 1) * by + span - size, 0)
            for size, by, span in zip(sizes, strides, spans, strict=True)
        ]
        pads = [each // 2 for each in needed] + [each - each // 2 for each in needed]
    padded = np.pad(values, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    found = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(2, 2 + rank)))
    every = (slice(None), slice(None), *(slice(None, None, by) for by in (*strides, *dilations)))
    return found[every]
