"""Extracting the weights of models of any framework as numbers, to compare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnpipe.analysis.weights import Affine, Layout, Normalisation, Weight, Weights
from nnpipe.core.errors import NNPipeError
from nnpipe.core.graph import Graph, Operation, Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.primitives import PlainPrimitive
from nnpipe.core.quantization import dequantize_linear
from nnpipe.workflows.verification.binding import find_varying_tensors, sort_operations
from nnpipe.workflows.verification.compare_outputs import dequantize_values

# the greatest number of operations between one on integers and the one that applies the scale
_NEAR = 3
_PASSING = ("dropout", "identity", "cast", "contiguous")
_NORMALISED = 3  # the fewest inputs of a batch normalisation: data, mean and variance
_Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class _Constant:
    """A tensor that does not depend on the inputs: its values, and the tensor of the file that
    it comes from.
    """

    name: str
    values: np.ndarray[Any, Any]
    step: np.ndarray[Any, Any] | None = None
    computed: bool = False


def extract_weights(model: LiveModel) -> Weights:
    """Return all weights of a live model, as the numbers with which its operations compute.

    Quantised integers are converted to the numbers that they represent, whether the file states the
    tensor's scale, an operation applies it, or the operation that takes them has the scale as a
    further input.

    Raises
    ------
    NNPipeError
        If the framework gives no access to weights.
    """
    graph = model.get_inference_graph()
    live = find_varying_tensors(graph)
    constants = _find_constants(model, graph, live)
    found: list[Weight] = []
    seen: set[str] = set()
    normalised: dict[str, Normalisation] = {}
    for operation in graph.operations:
        if live.isdisjoint(operation.outputs):
            continue
        if (normalisation := _extract_normalisation(operation, constants)) is not None:
            normalised[operation.inputs[0]] = normalisation
        for place, name in enumerate(operation.inputs):
            constant = _as_numbers(operation, place, constants, graph)
            if (
                name in live
                or constant is None
                or constant.values.ndim == 0
                or constant.values.size < 2
            ):
                continue
            values = constant.values
            if constant.name in seen:
                continue
            seen.add(constant.name)
            found.append(
                Weight(
                    constant.name,
                    values.astype(np.float64),
                    operation.name,
                    operation.kind,
                    place,
                    None if constant.step is None else np.asarray(constant.step, np.float64),
                    operation.outputs[0] if operation.outputs else "",
                    constant.computed,
                )
            )
    users = _map_users(graph)
    alone = {tensor: norm for tensor, norm in normalised.items() if len(users.get(tensor, ())) == 1}
    return Weights(tuple(found), _get_layout(model), alone, _find_affine(graph, live, constants))


def _get_layout(model: LiveModel) -> Layout:
    if model.wrapper.channel_axis == 1:
        return "OIHW"
    return "OHWI" if model.wrapper.weights_format == "tflite" else "HWIO"


def _map_users(graph: Graph) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for operation in graph.operations:
        for name in set(operation.inputs):
            found.setdefault(name, []).append(operation.name)
    for name in graph.outputs:
        found.setdefault(name, []).append("")
    return found


def _find_constants(model: LiveModel, graph: Graph, live: set[str]) -> dict[str, _Constant]:
    """Return the tensors that do not depend on the inputs: weights, and tensors computed from
    weights only.
    """
    held: _Arrays = model.get_weights()
    found = {name: _Constant(name, _convert_bfloat16(array)) for name, array in held.items()}
    for name, array in held.items():
        spec = graph.tensors.get(name)
        if spec is not None and spec.scale is not None and array.dtype.kind in "iu":
            scale = np.asarray(spec.scale, np.float64)
            step = scale if scale.size == 1 else _reshape_along(scale, array.ndim, spec.axis)
            found[name] = _Constant(name, dequantize_values(array, spec), step)
    folded = [operation for operation in graph.operations if live.isdisjoint(operation.outputs)]
    if not folded:
        return found
    try:
        values: _Arrays = model.get_intermediates(Selector(tensor="*"))
    except NNPipeError:
        return found
    for operation in folded:
        origin = next((found[n] for n in operation.inputs if n in found), None)
        for name in operation.outputs:
            if name not in values:
                continue
            spec, array = graph.tensors.get(name), values[name]
            array = (
                _convert_bfloat16(array)
                if spec is None
                else dequantize_values(_convert_bfloat16(array), spec)
            )
            root = name if origin is None else origin.name
            found[name] = _Constant(
                root, array, _find_step(origin, array), _is_computed(origin, array)
            )
    return found


def _is_computed(origin: _Constant | None, result: np.ndarray[Any, Any]) -> bool:
    """Return whether floats are others than those that they come from, not only cast or in
    another order.
    """
    if origin is None or origin.values.dtype.kind != "f" or result.dtype.kind != "f":
        return False
    return origin.computed or not np.isin(result, origin.values.astype(result.dtype)).all()


def _convert_bfloat16(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # an extension type in NumPy
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _find_step(
    origin: _Constant | None, result: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any] | None:
    """Return the distance of neighbouring numbers, if a result is integers times a scale."""
    if (
        origin is None
        or origin.values.shape != result.shape
        or result.dtype.kind != "f"
        or not result.size
    ):
        return None
    if origin.values.dtype.kind not in "iu":
        return origin.step  # unchanged
    for axis in (None, *range(result.ndim)):
        over = None if axis is None else tuple(n for n in range(result.ndim) if n != axis)
        levels = origin.values.astype(np.float64)
        width = np.ptp(levels, axis=over, keepdims=True)
        step = np.divide(
            np.ptp(result, axis=over, keepdims=True),
            width,
            out=np.zeros_like(width),
            where=width > 0,
        )
        least = levels.min(axis=over, keepdims=True)
        again = (levels - least) * step + result.min(axis=over, keepdims=True)
        if np.allclose(again, result, rtol=1e-4, atol=1e-4 * float(np.abs(result).max() or 1.0)):
            known: np.ndarray[Any, Any] = np.where(step > 0, step, step.max())
            return known
    return None


def _reshape_along(
    values: np.ndarray[Any, Any], rank: int, axis: int | None
) -> np.ndarray[Any, Any]:
    shape = [1] * rank
    shape[axis or 0] = values.size
    return values.reshape(shape)


def _as_numbers(
    operation: Operation, place: int, constants: Mapping[str, _Constant], graph: Graph
) -> _Constant | None:
    """Return the constant that an operation takes, scaled if this operation or a later one has
    its scale.
    """
    constant = constants.get(operation.inputs[place])
    if constant is None or constant.values.dtype.kind not in "iuf":
        return None
    if constant.values.dtype.kind == "f" or constant.step is not None:
        return constant
    if constant.values.dtype.itemsize > 1:
        return None  # shapes, axes and counts
    scale, zero = (
        [constants.get(name) for name in operation.inputs[place + 1 : place + 3]] + [None, None]
    )[:2]
    if operation.kind.lower().endswith(
        "integer"
    ):  # of ONNX: zero points follow both inputs, scales come in later operations
        zero = constants.get(operation.inputs[3]) if len(operation.inputs) > 3 else None
        scale = _find_later_scale(operation, constants, graph)
    if scale is None or scale.values.dtype.kind != "f":
        return None
    known = zero is not None and zero.values.dtype == constant.values.dtype
    less = constant.values.astype(np.int32) - (
        zero.values.astype(np.int32) if known and zero is not None else 0
    )
    steps = scale.values.reshape(-1)
    axis = _find_channel_axis(operation.kind, less.shape, steps.size)
    if steps.size > 1 and axis is None:
        return None
    step = steps if steps.size == 1 else _reshape_along(steps, less.ndim, axis)
    return replace(constant, values=dequantize_linear(less, steps, None, axis), step=step)


def _find_channel_axis(kind: str, shape: tuple[int, ...], count: int) -> int | None:
    """Return the axis of a weight that has as many channels as there are scales; ``None`` for a
    single scale.
    """
    axes = [axis for axis, length in enumerate(shape) if length == count > 1]
    if not axes:
        return None
    # Columns of a matrix product have scales of their own; other operations have channels of their
    # outputs first.
    return axes[-1] if "matmul" in kind.lower() else axes[0]


def _find_later_scale(
    operation: Operation, constants: Mapping[str, _Constant], graph: Graph
) -> _Constant | None:
    """Return the weights' scale from a later multiplication of integer sums, which includes the
    activations' scale.
    """
    makers = {name: each for each in graph.operations for name in each.outputs}
    tensor = operation.outputs[0]
    for _ in range(_NEAR):
        user = next((each for each in graph.operations if tensor in each.inputs), None)
        if user is None:
            return None
        for name in user.inputs:
            if name != tensor and name in makers:
                return next((constants[n] for n in makers[name].inputs if n in constants), None)
        tensor = user.outputs[0]
    return None


def _extract_normalisation(
    operation: Operation, constants: Mapping[str, _Constant]
) -> Normalisation | None:
    kind = operation.kind.lower().replace("_", "")
    names = [name for name in operation.inputs[1:] if name in constants]
    stated = [each.epsilon for each in operation.primitives if isinstance(each, PlainPrimitive)]
    epsilon = next((each for each in stated if each is not None), None)
    if "batchnorm" not in kind or len(names) < _NORMALISED - 1 or epsilon is None:
        return None
    arrays = {name: constants[name].values.astype(np.float64).reshape(-1) for name in names[:4]}
    mean, variance = (arrays[name] for name in names[:4][-2:])
    gamma, beta, beta_name = np.ones_like(mean), np.zeros_like(mean), ""
    for number, name in enumerate(names[:4][:-2]):  # Keras may omit either
        is_beta = number == 1 or name.rpartition("/")[2] in ("beta", "bias")
        if is_beta:
            beta, beta_name = arrays[name], constants[name].name
        else:
            gamma = arrays[name]
    if len({array.shape for array in (gamma, beta, mean, variance)}) > 1:
        return None
    return Normalisation(operation.name, gamma, beta, mean, variance, float(epsilon), beta_name)


def _find_affine(
    graph: Graph, live: set[str], constants: Mapping[str, _Constant]
) -> dict[str, Affine]:
    """Return the scale and shift of the layer normalisation before an operation, by the
    operation's name.
    """
    results: dict[str, Affine] = {}
    found = {}
    for operation in sort_operations(graph):
        kind, taken = (
            operation.kind.lower().replace("_", ""),
            [name for name in operation.inputs if name in live],
        )
        if len(taken) != 1 or not operation.outputs:
            continue
        if "layernorm" in kind or "rmsnorm" in kind:
            arrays = [constants[name].values for name in operation.inputs if name in constants]
            parts = [
                part.astype(np.float64)
                for part in arrays
                if part.ndim == 1 and part.dtype.kind == "f"
            ]
            if parts and len({part.size for part in parts}) == 1:
                shift = parts[1] if len(parts) > 1 else np.zeros_like(parts[0])
                results[operation.outputs[0]] = Affine(operation.name, parts[0], shift)
        elif taken[0] in results:
            found[operation.name] = results[taken[0]]
            if any(word in kind for word in _PASSING):
                results[operation.outputs[0]] = results[taken[0]]
    return found


def convert_to_source_types(model: LiveModel, weights: _Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """Return weights in the element types of the model."""
    held = model.get_weights(weights)
    return {name: array.astype(held[name].dtype) for name, array in weights.items()}
