"""Products of matrices, attention, and normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf.shapes import repeat_interleave, transpose
from nnpipe.compilers._torch_tf.values import (
    Value,
    build_reshape_target,
    require_constant,
    require_static_length,
)
from nnpipe.core.errors import CompileError


def linear(x: Value, weight: Value, bias: Value | None = None) -> Value:
    """Return the product of the last axis with a matrix ``(out, in)``, plus the bias."""
    import tensorflow as tf

    matrix = weight.first()
    held = x.first()
    if weight.rank == 1:
        return Value(tf.tensordot(held, matrix, [[-1], [0]]))
    if x.rank == 2:
        found = tf.matmul(held, matrix, transpose_b=True)
        return Value(found if bias is None else found + bias.first())
    # The converter fuses a bias with a product if nothing lies between them.  An addition of 8-bit
    # integers by itself would lose a bias that is smaller than its step.
    outputs, inputs = matrix.shape
    found = tf.matmul(tf.reshape(held, [-1, inputs]), matrix, transpose_b=True)
    found = found if bias is None else found + bias.first()
    return Value(tf.reshape(found, build_reshape_target([*x.lengths()[:-1], outputs])))


def matmul(x: Value, y: Value) -> Value:
    """Return the product; vectors are rows on the left and columns on the right."""
    import tensorflow as tf

    left, right = x.first(), y.first()
    if y.rank <= 2 and (
        y.rank == 1 or x.rank == 1 or (x.rank > 2 and isinstance(right, np.ndarray))
    ):
        # One matrix for all is a dense layer.
        return Value(tf.tensordot(left, right, [[-1], [0]]))
    if x.rank == 1:
        return Value(tf.squeeze(tf.matmul(tf.expand_dims(left, 0), right), -2))
    return Value(tf.matmul(left, right))


def _add_bias(bias: Value, product: Value, beta: float, alpha: float) -> Value:
    held = product.held if alpha == 1 else product.held * alpha
    if beta == 0:
        return Value(held)
    return Value(held + (bias.first() if beta == 1 else bias.first() * beta))


def _apply_addmm(bias: Value, x: Value, y: Value, beta: float = 1, alpha: float = 1) -> Value:
    return _add_bias(bias, matmul(x, y), beta, alpha)


def build_operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "linear": linear,
        "mm": matmul,
        "bmm": matmul,
        "matmul": matmul,
        "mv": matmul,
        "dot": matmul,
        "addmm": _apply_addmm,
        "baddbmm": _apply_addmm,
        "addmv": _apply_addmm,
    }


_LOWEST = float(np.finfo(np.float32).min)


def attention(
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    dropout: float = 0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    **also: Any,
) -> Value:
    """Return the attention of queries ``(..., length, features)`` to keys, weighted with the
    mask.
    """
    import tensorflow as tf

    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = require_static_length(query.shape[-3], "attention") // require_static_length(
            key.shape[-3], "attention"
        )
        key, value = (repeat_interleave(part, times, -3) for part in (key, value))
    width = require_static_length(query.shape[-1], "attention")
    factor = 1 / math.sqrt(width) if scale is None else scale
    scores = tf.matmul(query.first() * factor, transpose(key, -1, -2).first())
    if causal:
        rows, columns = query.length(-2), key.length(-2)
        if isinstance(rows, int) and isinstance(columns, int):
            seen: Any = np.tril(np.ones((rows, columns), bool))
        else:
            seen = tf.range(rows)[:, None] >= tf.range(columns)[None]
        scores = tf.where(seen, scores, _LOWEST)
    if mask is not None:
        held = mask.first()
        if mask.dtype == "bool":
            scores = tf.where(held, scores, _LOWEST)
        else:
            # Infinity would give no number where all keys are hidden, and no range to quantise.
            scores = scores + (np.maximum if isinstance(held, np.ndarray) else tf.maximum)(
                held, np.float32(_LOWEST)
            )
    return Value(tf.matmul(tf.nn.softmax(scores), value.first()))


def _apply_fused_attention(
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0,
    causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
    **also: Any,
) -> tuple[Value, None]:
    return attention(query, key, value, attn_mask, 0, causal, scale=scale), None


def build_attention_operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "scaled_dot_product_attention": attention,
        "_scaled_dot_product_flash_attention_for_cpu": _apply_fused_attention,
        "_scaled_dot_product_attention_math": lambda *given, **also: (
            attention(*given[:6], **also),
            None,
        ),
    }


def batch_norm(
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> Value:
    """Return the values normalised by the training statistics; the converter folds this into the
    convolution before.
    """
    import tensorflow as tf

    if training:
        raise CompileError(
            "batch_norm in training is not translated; export the model for inference"
        )
    centre, spread = (
        require_constant(mean, "batch_norm"),
        require_constant(variance, "batch_norm").astype(np.float64),
    )
    factor = 1 / np.sqrt(spread + eps)
    if weight is not None:
        factor = factor * require_constant(weight, "batch_norm")
    shift = -centre * factor + (0 if bias is None else require_constant(bias, "batch_norm"))
    factor, shift = factor.astype(centre.dtype), shift.astype(centre.dtype)
    if x.rank == 4:
        return Value(tf.nn.bias_add(x.last() * factor, shift), True)
    rest = (1,) * max(x.rank - 2, 0)
    return Value(x.first() * factor.reshape(-1, *rest) + shift.reshape(-1, *rest))


def _with_statistics(x: Value, *rest: Any) -> tuple[Value, None, None]:
    weight, bias, mean, variance, *training, momentum, eps = rest
    return batch_norm(x, weight, bias, mean, variance, any(training), momentum, eps), None, None


def layer_norm(
    x: Value,
    shape: Sequence[Any],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> Value:
    """Return the values normalised over the last axes, as many as ``shape`` has."""
    held = x.first()
    found = _normalize(held, list(range(x.rank - len(shape), x.rank)), eps)
    return Value(
        _apply_scale_and_bias(
            found, *(None if part is None else part.first() for part in (weight, bias))
        )
    )


def _apply_rms_norm(
    x: Value, shape: Sequence[Any], weight: Value | None = None, eps: float | None = None
) -> Value:
    import tensorflow as tf

    held = x.first()
    places = list(range(x.rank - len(shape), x.rank))
    square = tf.reduce_mean(tf.square(held), places, keepdims=True)
    found = held * tf.math.rsqrt(square + (np.finfo(np.float32).eps if eps is None else eps))
    return Value(found if weight is None else found * weight.first())


def group_norm(
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> Value:
    """Return the values normalised over groups of channels, each sample by itself."""
    import tensorflow as tf

    channels = require_static_length(x.shape[1], "group_norm")
    parts = [None if part is None else part.first() for part in (weight, bias)]
    if x.channels_last:
        n, rows, columns, _ = Value(x.held).lengths()
        grouped = tf.reshape(
            x.held, build_reshape_target([n, rows, columns, groups, channels // groups])
        )
        found = tf.reshape(
            _normalize(grouped, [1, 2, 4], eps), build_reshape_target([n, rows, columns, channels])
        )
        return Value(_apply_scale_and_bias(found, *parts), True)
    n, _, *rest = x.lengths()
    grouped = tf.reshape(x.held, build_reshape_target([n, groups, -1]))
    found = tf.reshape(_normalize(grouped, [2], eps), build_reshape_target([n, channels, *rest]))
    ones = (1,) * len(rest)
    return Value(
        _apply_scale_and_bias(
            found, *(None if part is None else tf.reshape(part, (-1, *ones)) for part in parts)
        )
    )


def _apply_instance_norm(
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    use_input: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> Value:
    if not use_input and mean is not None and variance is not None:
        return batch_norm(x, weight, bias, mean, variance, False, momentum, eps)
    return group_norm(x, require_static_length(x.shape[1], "instance_norm"), weight, bias, eps)


def _apply_native_group_norm(
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: Any,
    channels: Any,
    rest: Any,
    groups: int,
    eps: float,
) -> tuple[Value, None, None]:
    return group_norm(x, groups, weight, bias, eps), None, None


def _normalize(held: Any, places: list[int], eps: float) -> Any:
    import tensorflow as tf

    centred = held - tf.reduce_mean(held, places, keepdims=True)
    return centred * tf.math.rsqrt(tf.reduce_mean(tf.square(centred), places, keepdims=True) + eps)


def _apply_scale_and_bias(held: Any, weight: Any, bias: Any) -> Any:
    held = held if weight is None else held * weight
    return held if bias is None else held + bias


def build_normalization_operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "batch_norm": batch_norm,
        "_native_batch_norm_legit_no_training": _with_statistics,
        "native_batch_norm": _with_statistics,
        "layer_norm": layer_norm,
        "native_layer_norm": lambda *given: (layer_norm(*given), None, None),
        "rms_norm": _apply_rms_norm,
        "_fused_rms_norm": lambda *given: (_apply_rms_norm(*given), None),
        "group_norm": group_norm,
        "native_group_norm": _apply_native_group_norm,
        "instance_norm": _apply_instance_norm,
    }
