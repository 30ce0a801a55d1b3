"""Products of matrices and dense layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf.values import Value, shape_with_rest


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
    # The converter fuses a bias with a product if nothing lies between them.  An addition of 8-bit integers by itself
    # would lose a bias that is smaller than its step.
    outputs, inputs = matrix.shape
    found = tf.matmul(tf.reshape(held, [-1, inputs]), matrix, transpose_b=True)
    found = found if bias is None else found + bias.first()
    return Value(tf.reshape(found, shape_with_rest([*x.lengths()[:-1], outputs])))


def matmul(x: Value, y: Value) -> Value:
    """Return the product; vectors are rows on the left and columns on the right."""
    import tensorflow as tf

    left, right = x.first(), y.first()
    if y.rank <= 2 and (y.rank == 1 or x.rank == 1 or (x.rank > 2 and isinstance(right, np.ndarray))):
        # One matrix for all is a dense layer.
        return Value(tf.tensordot(left, right, [[-1], [0]]))
    if x.rank == 1:
        return Value(tf.squeeze(tf.matmul(tf.expand_dims(left, 0), right), -2))
    return Value(tf.matmul(left, right))


def _plus(bias: Value, product: Value, beta: float, alpha: float) -> Value:
    held = product.held if alpha == 1 else product.held * alpha
    if beta == 0:
        return Value(held)
    return Value(held + (bias.first() if beta == 1 else bias.first() * beta))


def _addmm(bias: Value, x: Value, y: Value, beta: float = 1, alpha: float = 1) -> Value:
    return _plus(bias, matmul(x, y), beta, alpha)


def operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "linear": linear, "mm": matmul, "bmm": matmul, "matmul": matmul, "mv": matmul, "dot": matmul,
        "addmm": _addmm, "baddbmm": _addmm, "addmv": _addmm,
    }  # fmt: skip
