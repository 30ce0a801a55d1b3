"""Damaging a converted model's file in one layer, the ways that converters and people do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.graph import Graph
from nnpipe.core.live_model import LiveModel

KINDS = ("swap", "zero", "noise", "transpose", "bias", "scale", "duplicate")
_WEIGHTED = re.compile(r"conv|gemm|matmul|dense|linear|addmm|fully_connected", re.I)
_HANDED_ON = re.compile(r"dequantize|cast|reshape|to_copy|_to\b|\.to\.|transpose|permute", re.I)
NOISE = 0.3  # of the weights' standard deviation


@dataclass(frozen=True)
class Layer:
    """An operation with weights: their names in the file, and the axis of its output channels."""

    operation: str
    kind: str
    weight: str
    bias: str | None
    adder: str
    scale: str | None
    axis: int


@dataclass(frozen=True)
class Plant:
    """A damaged file, and the operations of which one has to be named."""

    kind: str
    path: Path
    culprits: frozenset[str]


def layers_of(
    graph: Graph, weights: Mapping[str, np.ndarray], channels: Mapping[str, int]
) -> list[Layer]:
    """Find operations with a kernel or matrix in a file; ``channels`` has the number of each
    output's channels.
    """
    made = {tensor: op for op in graph.operations for tensor in op.outputs}

    def stored(name: str) -> tuple[str | None, str | None]:
        scale = None
        while name in made and _HANDED_ON.search(made[name].kind):
            inputs = made[name].inputs
            if "dequantize" in made[name].kind.lower() and len(inputs) > 1 and inputs[1] in weights:
                scale = inputs[1]
            name = inputs[0]
        return (name if name in weights else None), scale

    found = []
    for op in graph.operations:
        if not _WEIGHTED.search(op.kind) or "quantizelinear" in op.kind.lower() or not op.outputs:
            continue
        taken = [stored(name) for name in op.inputs]
        big = [(name, scale) for name, scale in taken if name and weights[name].ndim > 1]
        if len(big) != 1:
            continue
        name, scale = big[0]
        assert name is not None
        small = [
            n for n, _ in taken if n and n != name and weights[n].ndim == 1 and weights[n].size > 1
        ]
        bias, adder = (small[0], op.name) if small else _added(graph, op.outputs[0], weights)
        count = channels.get(op.outputs[0], 0)
        last = op.kind in (
            "MatMul",
            "Dense",
            "Conv2D",
            "DEPTHWISE_CONV_2D",
            "DepthwiseConv2D",
            "MatMulInteger",
        )
        axes = [axis for axis, length in enumerate(weights[name].shape) if length == count]
        if axes and count > 1:
            found.append(
                Layer(op.name, op.kind, name, bias, adder, scale, axes[-1] if last else axes[0])
            )
    return found


def _added(graph: Graph, tensor: str, weights: Mapping[str, np.ndarray]) -> tuple[str | None, str]:
    """Find a bias that is added behind, with nothing but scaling between."""
    for _ in range(4):
        users = [op for op in graph.operations if tensor in op.inputs]
        if len(users) != 1:
            return None, ""
        constants = [name for name in users[0].inputs if name in weights and weights[name].size > 1]
        if users[0].kind in ("Add", "Plus") and constants:
            return constants[0], users[0].name
        if users[0].kind not in ("Mul", "Cast"):
            return None, ""
        tensor = users[0].outputs[0]
    return None, ""


def plant(
    model: LiveModel, layers: list[Layer], kind: str, random: np.random.Generator, path: Path
) -> Plant | None:
    """Damage one random layer of a file's model; ``None`` if the file has no layer for that."""
    weights = model.get_weights()
    if kind == "duplicate":
        return _duplicated(model, random, path)
    for number in random.permutation(len(layers)):
        layer = layers[number]
        change = _changed(weights, layer, kind, random)
        if change is None or all(
            np.array_equal(weights[name], array) for name, array in change.items()
        ):
            continue
        model.set_weights(change)
        model.export(path, model.wrapper.weights_format)
        return Plant(kind, path, frozenset({layer.adder if kind == "bias" else layer.operation}))
    return None


def _changed(
    weights: Mapping[str, np.ndarray], layer: Layer, kind: str, random: np.random.Generator
) -> dict[str, np.ndarray] | None:
    old = weights[layer.weight]
    rows = np.moveaxis(old.copy(), layer.axis, 0)
    if kind == "swap":
        one, two = random.choice(len(rows), 2, replace=False)
        rows[[one, two]] = rows[[two, one]]
    elif kind == "zero":
        rows[random.integers(len(rows))] = 0
    elif kind == "noise":
        noisy = rows.astype(np.float64) + NOISE * rows.astype(
            np.float64
        ).std() * random.standard_normal(rows.shape)
        if old.dtype.kind in "iu":
            noisy = np.clip(np.rint(noisy), np.iinfo(old.dtype).min, np.iinfo(old.dtype).max)
        rows = noisy.astype(old.dtype)
    elif kind == "transpose":
        square = [axis for axis in range(1, rows.ndim) if rows.shape[axis] in (3, 5, 7)]
        if rows.ndim != 4 or len(square) < 2:
            return None
        rows = rows.swapaxes(square[0], square[1])
    elif kind == "bias":
        if layer.bias is None:
            return None
        return {layer.bias: np.zeros_like(weights[layer.bias])}
    elif kind == "scale":
        if layer.scale is None or old.dtype.kind not in "iu":
            return None
        factor = weights[layer.scale].dtype.type(random.choice([0.5, 0.7, 1.5, 2.0]))
        return {layer.scale: weights[layer.scale] * factor}
    return {layer.weight: np.ascontiguousarray(np.moveaxis(rows, 0, layer.axis))}


def _duplicated(model: LiveModel, random: np.random.Generator, path: Path) -> Plant | None:
    """Compute one layer of an ONNX file twice, one behind the other, where its result has its
    input's shape.
    """
    if model.wrapper.weights_format != "onnx":
        return None
    import onnx

    proto = onnx.load_from_string(model.native.serialize())
    shapes = {
        name: tuple(spec.shape[1:]) for name, spec in model.get_inference_graph().tensors.items()
    }
    values = model.get_intermediates(_everything())
    shapes |= {name: array.shape[1:] for name, array in values.items()}
    outputs = {value.name for value in proto.graph.output}
    fit = [
        node
        for node in proto.graph.node
        if node.op_type in ("Conv", "Add", "Gemm", "FusedConv", "BatchNormalization")
        and node.input[0] in shapes
        and node.output[0] not in outputs
        and shapes[node.input[0]] == shapes.get(node.output[0])
    ]
    if not fit:
        return None
    node = fit[random.integers(len(fit))]
    again = onnx.NodeProto()
    again.CopyFrom(node)
    again.name = f"{node.name}_again"
    again.input[0], again.output[0] = node.output[0], f"{node.output[0]}_again"
    for user in proto.graph.node:
        for place, name in enumerate(user.input):
            if name == node.output[0]:
                user.input[place] = again.output[0]
    proto.graph.node.insert(list(proto.graph.node).index(node) + 1, again)
    path.write_bytes(proto.SerializeToString())
    return Plant("duplicate", path, frozenset({node.name, again.name}))


def _everything() -> Any:
    from nnpipe.core.graph import Selector

    return Selector(tensor="*")


def scaled_in_tflite(path: Path, target: Path, random: np.random.Generator) -> Plant | None:
    """Return the weights of one layer of a TensorFlow Lite file another scale."""
    import ai_edge_litert.schema_py_generated as schema
    import flatbuffers

    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    graph = model.subgraphs[0]
    fit = []
    for number, operator in enumerate(graph.operators):
        code = model.operatorCodes[operator.opcodeIndex].builtinCode
        if code in (3, 4, 9):  # convolutions and dense layers
            weights = graph.tensors[operator.inputs[1]]
            if (
                weights.type in (9, 3)
                and weights.quantization is not None
                and weights.quantization.scale is not None
            ):
                fit.append((number, code, weights))
    if not fit:
        return None
    number, code, weights = fit[random.integers(len(fit))]
    # doubles would be written as they are, and read as floats
    factor = np.float32(random.choice([0.5, 0.7, 1.5, 2.0]))
    weights.quantization.scale = np.asarray(weights.quantization.scale, np.float32) * factor
    operator = graph.operators[number]
    if len(operator.inputs) > 2 and operator.inputs[2] >= 0:  # kernels insist on the product
        bias, source = graph.tensors[operator.inputs[2]], graph.tensors[operator.inputs[0]]
        if bias.quantization is not None and bias.quantization.scale is not None:
            bias.quantization.scale = weights.quantization.scale * np.float32(
                source.quantization.scale[0]
            )
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    target.write_bytes(bytes(builder.Output()))
    names = {3: "CONV_2D", 4: "DEPTHWISE_CONV_2D", 9: "FULLY_CONNECTED"}
    return Plant("scale", target, frozenset({f"{names[code]}_{number}"}))
