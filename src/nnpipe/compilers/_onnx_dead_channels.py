"""Biases of channels whose weights are all 0, which ONNX Runtime (1.31) rounds to almost nothing.

Its quantiser gives such a channel a scale of 1.  The bias, whose scale is that of the input times that of the weights,
is then rounded to multiples of the input's scale.  Channels without weights are common: normalisations whose scale is
initialised with 0, and pruning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_LARGEST = 2.0**30  # the largest integer of a bias, half of the largest that 32 bits hold


def restore_dead_biases(floats: Any, quantised: Any) -> None:
    """Give channels without weights a scale with which their biases are exact.

    Parameters
    ----------
    floats
        An ``onnx.GraphProto`` in floats.
    quantised
        The same graph in QDQ form, with the same names of nodes and weights per channel; it is modified in place.
    """
    from onnx import numpy_helper

    given = {constant.name: constant for constant in floats.initializer}
    constants = {constant.name: constant for constant in quantised.initializer}
    makers = {node.output[0]: node for node in quantised.node if node.op_type == "DequantizeLinear"}
    before = {node.name: node for node in floats.node}

    def store(name: str, values: Any) -> None:
        constants[name].CopyFrom(numpy_helper.from_array(values, name))

    for node in quantised.node:
        own = before.get(node.name)
        if node.op_type not in _LAYERS or own is None or len(own.input) < 3 or own.input[2] not in given:
            continue
        if len(node.input) < 3 or node.input[1] not in makers or node.input[2] not in makers:
            continue
        names = [*makers[node.input[1]].input, *makers[node.input[2]].input[:2]]
        if len(names) != 5 or any(name not in constants for name in names):
            continue
        weights, scales, zero, integers, bias_scales = (numpy_helper.to_array(constants[name]) for name in names)
        if scales.size < 2 or bias_scales.size != scales.size:
            continue
        axis = next((each.i for each in makers[node.input[1]].attribute if each.name == "axis"), 1)
        rows = np.moveaxis(weights, axis, 0).reshape(scales.size, -1)
        dead = ~np.any(rows != zero.reshape(-1, 1), axis=1)
        if not dead.any():
            continue
        bias = numpy_helper.to_array(given[own.input[2]]).ravel()
        inputs = bias_scales / scales  # the scale of the input
        least = np.abs(bias) / (inputs * _LARGEST)
        common = np.median(scales[~dead]) if not dead.all() else np.abs(bias).max() / inputs.max() / 2**16
        fitting = np.where(dead, np.maximum(common, least), scales).astype(scales.dtype)
        if not np.all(fitting > 0):  # no channel has weights or a bias
            continue
        finer = (fitting * inputs).astype(bias_scales.dtype)
        store(names[1], fitting)
        store(
            names[3],
            np.where(dead, np.rint(bias / finer), integers.ravel()).astype(integers.dtype).reshape(integers.shape),
        )
        store(names[4], finer)
