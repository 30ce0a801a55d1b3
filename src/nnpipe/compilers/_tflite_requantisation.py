"""Ranges of activations in TensorFlow Lite files that XNNPACK, by which LiteRT computes, can load."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from nnpipe.compilers._requantisation import widening
from nnpipe.compilers._tflite_float_parts import PASSING, operator_kind

# Where operators with weights take their input and the weights.
_WEIGHTED = {"CONV_2D": (0, 1), "DEPTHWISE_CONV_2D": (0, 1), "FULLY_CONNECTED": (0, 1), "TRANSPOSE_CONV": (2, 1)}
_LIMITS = ("RELU", "RELU6", "RELU_N1_TO_1")  # their results have scales of their own
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
        kind, result = operator_kind(model, operator), int(operator.outputs[0]) if len(operator.outputs) else -1
        if result < 0 or tensors[result].name.decode() in floats or _range(tensors[result]) is None:
            continue
        if kind in _WEIGHTED:
            taken, weights = (tensors[int(operator.inputs[place])] for place in _WEIGHTED[kind])
            factor = widening(_scale(taken), _weight_scale(model, weights), _scale(tensors[result]))
            if factor > 1:
                _widen(tensors[result], factor)
                widened.add(result)
        elif kind in PASSING and kind not in _LIMITS and int(operator.inputs[0]) in widened:
            own, other = tensors[result].quantization, tensors[int(operator.inputs[0])].quantization
            own.min, own.max = other.min, other.max
            widened.add(result)
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model)) if widened else content


def _range(tensor: Any) -> tuple[float, float] | None:
    """Return the range of a tensor together with 0, which is always represented."""
    found = tensor.quantization
    if found is None or found.min is None or found.max is None or len(found.min) != 1:
        return None
    return min(float(found.min[0]), 0.0), max(float(found.max[0]), 0.0)


def _scale(tensor: Any) -> float:
    low, high = _range(tensor) or (0.0, 0.0)
    return (high - low) / _STEPS


def _weight_scale(model: Any, tensor: Any) -> float:
    """Return the greatest scale of constant weights; 0 for others."""
    from tensorflow.lite.python import schema_py_generated as schema

    data = model.buffers[tensor.buffer].data
    if tensor.type != schema.TensorType.FLOAT32 or data is None or not len(data):
        return 0.0
    values = np.frombuffer(np.asarray(data, np.uint8).tobytes(), "<f4")
    return float(max(values.max(), -values.min())) / _WEIGHT_STEPS


def _widen(tensor: Any, factor: float) -> None:
    low, high = _range(tensor) or (0.0, 0.0)
    tensor.quantization.min, tensor.quantization.max = [low * factor], [high * factor]
