"""Scales with which XNNPACK can compute products of 8-bit integers.

It multiplies the sums of a convolution or a linear layer by the scale of the input times that of
the weights, divided by that of the result, and refuses to create the operation if this factor is
256 or more, so that the whole model cannot be loaded.  This happens in networks with a channel that
is far larger than the others: one step of such an input outweighs 256 steps of the result.  The
result's scale is then increased until the factor is small enough.  A step of the sums, in which the
result is exact at best, is still 255 steps of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._quantisation import GraphStep, find_touching_steps
from nnpipe.compilers._tflite_ranges import PASSING
from nnpipe.compilers._tflite_ranges import get_operator_name as tflite_operator_kind
from nnpipe.core.errors import CompileError
from nnpipe.frameworks.torch_program import QUANTISED

_MOST = 255.0  # XNNPACK's limit is 256, for numbers in single precision


def compute_widening(taken: float, weight: float, given: float) -> float:
    """Return by how much the scale of a result has to be increased; 1 if XNNPACK can compute it as
    it is.

    Parameters
    ----------
    taken
        The scale of the input.
    weight
        The greatest scale of the weights.
    given
        The scale of the result.

    Examples
    --------
    >>> compute_widening(0.1, 0.01, 0.05), compute_widening(51000, 0.01, 1)
    (1.0, 2.0)
    """
    return max(1.0, taken * weight / given / _MOST) if given > 0 else 1.0


# Operators whose rounded result is that of a rounded input, and normalisations, which become part
# of convolutions.
_PASSING = frozenset(
    (
        "relu",
        "relu6",
        "hardtanh",
        "clamp",
        "max_pool2d",
        "max_pool1d",
        "view",
        "reshape",
        "flatten",
        "permute",
        "transpose",
        "t",
        "squeeze",
        "unsqueeze",
        "dropout",
        "contiguous",
        "batch_norm",
        "_native_batch_norm_legit_no_training",
    )
)
_ANNOTATION = "quantization_annotation"


def wrap_quantizer(
    quantiser: Any,
    kept: Callable[[Sequence[GraphStep]], set[str]] | None = None,
    before: Sequence[GraphStep] = (),
) -> Any:
    """Return a quantiser that does what another does, but leaves integers and some tensors of
    floats as they are.

    XNNPACK's quantiser (ExecuTorch 1.5) also observes integers, such as indices, of which PyTorch
    computes no histogram.

    Parameters
    ----------
    quantiser
        A ``Quantizer`` of torchao.
    kept
        Returns the tensors to keep in floats, given the operations of the program; by default none.
    before
        The operations of the program before torchao changes it, from :func:`list_fx_steps`: a
        normalisation that is folded into a convolution stands for the convolution then.
    """
    from torchao.quantization.pt2e.quantizer import Quantizer

    class TypeKeeping(Quantizer):  # type: ignore[misc]
        def transform_for_annotation(self, model: Any) -> Any:
            return quantiser.transform_for_annotation(model)

        def annotate(self, model: Any) -> Any:
            model = quantiser.annotate(model)
            untouched = {node for node in model.graph.nodes if _has_integer_tensors(node)}
            if kept is not None:
                steps = list_fx_steps(model)
                there = {step.name for step in steps}
                steps += [step for step in before if step.passing and step.name not in there]
                floats = {step.name for step in find_touching_steps(kept(steps), steps)}
                untouched |= {node for node in model.graph.nodes if node.name in floats}
            _remove_annotations(model, untouched)
            return model

        def validate(self, model: Any) -> None:
            quantiser.validate(model)

    return TypeKeeping()


def list_fx_steps(model: Any, inputs: Sequence[str] = ()) -> list[GraphStep]:
    """Return the operations and inputs of a ``torch.fx.GraphModule``.

    Parameters
    ----------
    model
        The module.
    inputs
        Names by which its inputs are known, in order.
    """
    found, names = [], iter(inputs)
    for node in model.graph.nodes:
        if node.op in ("placeholder", "call_function"):
            taken = tuple(given.name for given in node.all_input_nodes if given.op != "get_attr")
            found.append(
                GraphStep(node.name, taken, (node.name,), get_operator_kind(node) in _PASSING)
            )
        if node.op == "placeholder" and (known := next(names, node.name)) != node.name:
            found.append(GraphStep(known, (node.name,), (known,), passing=True))
    return found


def get_operator_kind(node: Any) -> str:
    """Return the name of a node's operator, such as ``linear``; empty if it calls none."""
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else str(schema.name).partition("::")[2].removesuffix("_")


def _has_integer_tensors(node: Any) -> bool:
    """Return whether a node is to be quantised although it computes integers, or takes some."""
    annotation = node.meta.get(_ANNOTATION)
    return annotation is not None and any(map(_is_integer, (node, *annotation.input_qspec_map)))


def _is_integer(node: Any) -> bool:
    value = node.meta.get("val")
    return getattr(value, "dtype", None) is not None and not value.is_floating_point()


def _remove_annotations(model: Any, floats: set[Any]) -> None:
    """Remove the annotations of nodes, and of those that share the scale of such a node."""
    from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

    waiting = set(floats)
    while waiting:
        for node in waiting:
            node.meta.pop(_ANNOTATION, None)
        waiting = set()
        for node in model.graph.nodes:
            if (annotation := node.meta.get(_ANNOTATION)) is None:
                continue
            specs = [annotation.output_qspec, *annotation.input_qspec_map.values()]
            shared = [
                spec.edge_or_node for spec in specs if isinstance(spec, SharedQuantizationSpec)
            ]
            owners = {place[1] if isinstance(place, tuple) else place for place in shared}
            if any(_ANNOTATION not in owner.meta for owner in owners):
                waiting.add(node)


def check_quantised(module: Any, quantiser: str) -> None:
    """Raise :class:`~nnpipe.core.errors.CompileError` unless a quantised module computes
    something in integers.
    """
    if not any(str(node.target).startswith(QUANTISED) for node in module.graph.nodes):
        raise CompileError(
            f"the {quantiser} quantiser knows none of its operators or leaves numbers of their "
            f"type, or all of "
            "them are kept in floats"
        )


_WEIGHTED = ("linear", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
_LIMITS = ("relu", "relu6", "hardtanh", "clamp")  # computed together with the operation before them


def widen_results(prepared: Any) -> None:
    """Increase the scales of results that are too small for XNNPACK, in a module that has seen its
    samples.

    Tensors that share an observer, such as those that a concatenation joins, keep sharing their
    scale.

    Parameters
    ----------
    prepared
        What ``prepare_pt2e`` returned.
    """
    modules = dict(prepared.named_modules())
    for node in prepared.graph.nodes:
        if get_operator_kind(node) not in _WEIGHTED:
            continue
        observers = [_get_observer(each, modules) for each in node.args[:2]] + [
            _find_result_observer(node, modules)
        ]
        if any(each is None for each in observers):
            continue
        taken, weight, given = map(_compute_greatest_scale, observers)
        factor = compute_widening(taken, weight, given)
        if factor > 1:
            scale, zero_point = observers[2].calculate_qparams()
            _freeze_qparams(observers[2], (scale * factor, zero_point))


def _get_observer(node: Any, modules: Mapping[str, Any]) -> Any:
    """Return the observer whose result a node is, or none."""
    found = modules.get(str(node.target)) if getattr(node, "op", "") == "call_module" else None
    return found if hasattr(found, "calculate_qparams") else None


def _find_result_observer(node: Any, modules: Mapping[str, Any]) -> Any:
    """Return the observer of an operation's result, or of the limits that are computed together
    with it.
    """
    for user in node.users:
        if (found := _get_observer(user, modules)) is not None:
            return found
        if get_operator_kind(user) in _LIMITS:
            return _find_result_observer(user, modules)
    return None


def _compute_greatest_scale(observer: Any) -> float:
    """Return the greatest scale of an observer, which then keeps it: a search in a histogram
    takes time.
    """
    found = observer.calculate_qparams()
    _freeze_qparams(observer, found)
    return float(found[0].max())


def _freeze_qparams(observer: Any, found: Any) -> None:
    observer.calculate_qparams = lambda: found


# Where operators with weights take their input and the weights.
_TFLITE_WEIGHTED = {
    "CONV_2D": (0, 1),
    "DEPTHWISE_CONV_2D": (0, 1),
    "FULLY_CONNECTED": (0, 1),
    "TRANSPOSE_CONV": (2, 1),
}
_TFLITE_LIMITS = ("RELU", "RELU6", "RELU_N1_TO_1")  # their results have scales of their own
_STEPS, _WEIGHT_STEPS = 255, 127


def with_loadable_ranges(content: bytes, floats: Collection[str]) -> bytes:
    """Return a calibrated model in which no range of a result is too small for XNNPACK.

    Parameters
    ----------
    content
        A model in floats with the ranges of its activations.
    floats
        The tensors whose operators stay in floats.
    """
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    tensors = model.subgraphs[0].tensors
    widened: set[int] = set()
    for operator in model.subgraphs[0].operators:
        kind, result = (
            tflite_operator_kind(model, operator),
            int(operator.outputs[0]) if len(operator.outputs) else -1,
        )
        if (
            result < 0
            or tensors[result].name.decode() in floats
            or _get_range(tensors[result]) is None
        ):
            continue
        if kind in _TFLITE_WEIGHTED:
            taken, weights = (
                tensors[int(operator.inputs[place])] for place in _TFLITE_WEIGHTED[kind]
            )
            factor = compute_widening(
                _compute_tensor_scale(taken),
                _compute_weight_scale(model, weights),
                _compute_tensor_scale(tensors[result]),
            )
            if factor > 1:
                _widen_range(tensors[result], factor)
                widened.add(result)
        elif kind in PASSING and kind not in _TFLITE_LIMITS and int(operator.inputs[0]) in widened:
            own, other = tensors[result].quantization, tensors[int(operator.inputs[0])].quantization
            own.min, own.max = other.min, other.max
            widened.add(result)
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model)) if widened else content


def _get_range(tensor: Any) -> tuple[float, float] | None:
    """Return the range of a tensor together with 0, which is always represented."""
    found = tensor.quantization
    if found is None or found.min is None or found.max is None or len(found.min) != 1:
        return None
    return min(float(found.min[0]), 0.0), max(float(found.max[0]), 0.0)


def _compute_tensor_scale(tensor: Any) -> float:
    low, high = _get_range(tensor) or (0.0, 0.0)
    return (high - low) / _STEPS


def _compute_weight_scale(model: Any, tensor: Any) -> float:
    """Return the greatest scale of constant weights; 0 for others."""
    from tensorflow.lite.python import schema_py_generated as schema

    data = model.buffers[tensor.buffer].data
    if tensor.type != schema.TensorType.FLOAT32 or data is None or not len(data):
        return 0.0
    values = np.frombuffer(np.asarray(data, np.uint8).tobytes(), "<f4")
    return float(max(values.max(), -values.min())) / _WEIGHT_STEPS


def _widen_range(tensor: Any, factor: float) -> None:
    low, high = _get_range(tensor) or (0.0, 0.0)
    tensor.quantization.min, tensor.quantization.max = [low * factor], [high * factor]
