"""Normalisation of batches, layers and groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf.values import Value, constant, known, shape_with_rest
from nnpipe.core.errors import CompileError


def batch_norm(
    x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, training: bool, momentum: float,
    eps: float, cudnn: bool = False,
) -> Value:  # fmt: skip
    """Return the values normalised by the training statistics; the converter folds this into the convolution before."""
    import tensorflow as tf

    if training:
        raise CompileError("batch_norm in training is not translated; export the model for inference")
    centre, spread = constant(mean, "batch_norm"), constant(variance, "batch_norm").astype(np.float64)
    factor = 1 / np.sqrt(spread + eps)
    if weight is not None:
        factor = factor * constant(weight, "batch_norm")
    shift = -centre * factor + (0 if bias is None else constant(bias, "batch_norm"))
    factor, shift = factor.astype(centre.dtype), shift.astype(centre.dtype)
    if x.rank == 4:
        return Value(tf.nn.bias_add(x.last() * factor, shift), True)
    rest = (1,) * max(x.rank - 2, 0)
    return Value(x.first() * factor.reshape(-1, *rest) + shift.reshape(-1, *rest))


def _with_statistics(x: Value, *rest: Any) -> tuple[Value, None, None]:
    weight, bias, mean, variance, *training, momentum, eps = rest
    return batch_norm(x, weight, bias, mean, variance, any(training), momentum, eps), None, None


def layer_norm(
    x: Value, shape: Sequence[Any], weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5,
    cudnn: bool = False,
) -> Value:  # fmt: skip
    """Return the values normalised over the last axes, as many as ``shape`` has."""
    held = x.first()
    found = _normalised(held, list(range(x.rank - len(shape), x.rank)), eps)
    return Value(_scaled(found, *(None if part is None else part.first() for part in (weight, bias))))


def _rms_norm(x: Value, shape: Sequence[Any], weight: Value | None = None, eps: float | None = None) -> Value:
    import tensorflow as tf

    held = x.first()
    places = list(range(x.rank - len(shape), x.rank))
    square = tf.reduce_mean(tf.square(held), places, keepdims=True)
    found = held * tf.math.rsqrt(square + (np.finfo(np.float32).eps if eps is None else eps))
    return Value(found if weight is None else found * weight.first())


def group_norm(
    x: Value, groups: int, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5,
    cudnn: bool = False,
) -> Value:  # fmt: skip
    """Return the values normalised over groups of channels, each sample by itself."""
    import tensorflow as tf

    channels = known(x.shape[1], "group_norm")
    parts = [None if part is None else part.first() for part in (weight, bias)]
    if x.channels_last:
        n, rows, columns, _ = Value(x.held).lengths()
        grouped = tf.reshape(x.held, shape_with_rest([n, rows, columns, groups, channels // groups]))
        found = tf.reshape(_normalised(grouped, [1, 2, 4], eps), shape_with_rest([n, rows, columns, channels]))
        return Value(_scaled(found, *parts), True)
    n, _, *rest = x.lengths()
    grouped = tf.reshape(x.held, shape_with_rest([n, groups, -1]))
    found = tf.reshape(_normalised(grouped, [2], eps), shape_with_rest([n, channels, *rest]))
    ones = (1,) * len(rest)
    return Value(_scaled(found, *(None if part is None else tf.reshape(part, (-1, *ones)) for part in parts)))


def _instance_norm(
    x: Value, weight: Value | None, bias: Value | None, mean: Value | None, variance: Value | None, use_input: bool,
    momentum: float, eps: float, cudnn: bool = False,
) -> Value:  # fmt: skip
    if not use_input and mean is not None and variance is not None:
        return batch_norm(x, weight, bias, mean, variance, False, momentum, eps)
    return group_norm(x, known(x.shape[1], "instance_norm"), weight, bias, eps)


def _native_group_norm(
    x: Value, weight: Value | None, bias: Value | None, n: Any, channels: Any, rest: Any, groups: int, eps: float
) -> tuple[Value, None, None]:
    return group_norm(x, groups, weight, bias, eps), None, None


def _normalised(held: Any, places: list[int], eps: float) -> Any:
    import tensorflow as tf

    centred = held - tf.reduce_mean(held, places, keepdims=True)
    return centred * tf.math.rsqrt(tf.reduce_mean(tf.square(centred), places, keepdims=True) + eps)


def _scaled(held: Any, weight: Any, bias: Any) -> Any:
    held = held if weight is None else held * weight
    return held if bias is None else held + bias


def operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "batch_norm": batch_norm, "_native_batch_norm_legit_no_training": _with_statistics,
        "native_batch_norm": _with_statistics, "layer_norm": layer_norm,
        "native_layer_norm": lambda *given: (layer_norm(*given), None, None), "rms_norm": _rms_norm,
        "_fused_rms_norm": lambda *given: (_rms_norm(*given), None), "group_norm": group_norm,
        "native_group_norm": _native_group_norm, "instance_norm": _instance_norm,
    }  # fmt: skip
