"""Activation functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnpipe.compilers._torch_tf.elementwise import Operator, clamp, real, unary
from nnpipe.compilers._torch_tf.values import Value, operands


def _hardtanh(x: Value, low: float = -1, high: float = 1) -> Value:
    return clamp(x, low, high)


def _gelu(x: Value, approximate: str = "none") -> Value:
    import tensorflow as tf

    return Value(tf.nn.gelu(x.held, approximate == "tanh"), x.channels_last)


def _leaky_relu(x: Value, slope: float = 0.01) -> Value:
    import tensorflow as tf

    return Value(tf.nn.leaky_relu(x.held, slope), x.channels_last)


def _prelu(x: Value, weight: Value) -> Value:
    import tensorflow as tf

    slopes = weight
    if weight.rank == 1 and x.rank > 1:
        slopes = Value(weight.held.reshape(-1, *(1,) * (x.rank - 2)))
    (held, slope), last = operands([x, slopes])
    return Value(tf.nn.relu(held) - slope * tf.nn.relu(-held), last)


def _elu(x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    import tensorflow as tf

    if (alpha, scale, input_scale) == (1, 1, 1):
        return Value(tf.nn.elu(x.held), x.channels_last)
    low = alpha * (tf.exp(tf.minimum(x.held, 0.0) * input_scale) - 1)
    return Value(scale * (tf.nn.relu(x.held) + low), x.channels_last)


def _softplus_of(held: Any) -> Any:
    import tensorflow as tf

    # The usual form overflows for large numbers.
    return tf.nn.relu(held) + tf.math.log(1 + tf.exp(-tf.abs(held)))


def _softplus(x: Value, beta: float = 1, threshold: float = 20) -> Value:
    return Value(_softplus_of(x.held * beta) / beta, x.channels_last, True)


def _threshold(x: Value, threshold: float, value: float) -> Value:
    import tensorflow as tf

    return Value(tf.where(x.held > threshold, x.held, value), x.channels_last)


def operators() -> Mapping[str, Operator]:
    """Return the operators by their names in PyTorch."""
    import tensorflow as tf

    nn, tm = tf.nn, tf.math
    smooth = {
        "mish": lambda x: x * tm.tanh(_softplus_of(x)), "silu": lambda x: x * tm.sigmoid(x),
        "log_sigmoid": lambda x: -_softplus_of(-x), "hardswish": lambda x: x * nn.relu6(x + 3) * (1 / 6),
        "selu": nn.selu, "softsign": lambda x: x / (1 + tf.abs(x)), "tanhshrink": lambda x: x - tm.tanh(x),
    }  # fmt: skip
    return {
        **{name: real(function) for name, function in smooth.items()},
        "hardsigmoid": real(lambda x: nn.relu6(x + 3) * (1 / 6), True),
        "relu": unary(nn.relu, True), "relu6": unary(nn.relu6, True), "hardtanh": _hardtanh, "gelu": _gelu,
        "leaky_relu": _leaky_relu, "prelu": _prelu, "_prelu_kernel": _prelu, "elu": _elu, "softplus": _softplus,
        "threshold": _threshold,
    }  # fmt: skip
