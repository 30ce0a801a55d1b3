"""Attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf.shapes import repeat_interleave, transpose
from nnpipe.compilers._torch_tf.values import Value, known

_LOWEST = float(np.finfo(np.float32).min)


def attention(
    query: Value, key: Value, value: Value, mask: Value | None = None, dropout: float = 0, causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False, **also: Any,
) -> Value:  # fmt: skip
    """Return the attention of queries ``(..., length, features)`` to keys, weighted with the mask."""
    import tensorflow as tf

    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = known(query.shape[-3], "attention") // known(key.shape[-3], "attention")
        key, value = (repeat_interleave(part, times, -3) for part in (key, value))
    width = known(query.shape[-1], "attention")
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
            scores = scores + (np.maximum if isinstance(held, np.ndarray) else tf.maximum)(held, np.float32(_LOWEST))
    return Value(tf.matmul(tf.nn.softmax(scores), value.first()))


def _fused(
    query: Value, key: Value, value: Value, dropout: float = 0, causal: bool = False, *, attn_mask: Any = None,
    scale: float | None = None, **also: Any,
) -> tuple[Value, None]:  # fmt: skip
    return attention(query, key, value, attn_mask, 0, causal, scale=scale), None


def operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "scaled_dot_product_attention": attention, "_scaled_dot_product_flash_attention_for_cpu": _fused,
        "_scaled_dot_product_attention_math": lambda *given, **also: (attention(*given[:6], **also), None),
    }  # fmt: skip
