"""Operators that make tensors from lengths and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf.values import Value, cast, known, shape_of, type_name


def _kind(value: Any, dtype: Any) -> str:
    if dtype is not None:
        return type_name(dtype)
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def _full(size: Sequence[Any], value: Any, dtype: Any = None, **also: Any) -> Value:
    import tensorflow as tf

    kind = _kind(value, dtype)
    held = cast(value.held if isinstance(value, Value) else value, kind)
    if isinstance(held, (bool, int, float)):
        held = np.array(held, kind)
    return Value(tf.fill(shape_of(size), held))


def _like(number: Any) -> Callable[..., Value]:
    def operator(x: Value, *given: Any, dtype: Any = None, **also: Any) -> Value:
        value = given[0] if number is None else number
        kind = x.dtype if dtype is None else type_name(dtype)
        if None not in x.shape:
            return Value(np.full(x.shape, cast(value, kind), kind))
        return _full(x.lengths(), cast(value, kind), kind)

    return operator


def _filled(number: Any) -> Callable[..., Value]:
    def operator(size: Sequence[Any], dtype: Any = None, **also: Any) -> Value:
        return _full(size, number, dtype if dtype is not None else "float32")

    return operator


def _new(number: Any) -> Callable[..., Value]:
    def operator(x: Value, size: Sequence[Any], *given: Any, dtype: Any = None, **also: Any) -> Value:
        value = given[0] if number is None else number
        return _full(size, value, x.dtype if dtype is None else dtype)

    return operator


def _arange(*given: Any, dtype: Any = None, **also: Any) -> Value:
    import tensorflow as tf

    start, end, step = (0, given[0], 1) if len(given) == 1 else (*given, 1)[:3]
    real = any(isinstance(value, float) for value in (start, end, step))
    kind = type_name(dtype) if dtype is not None else "float32" if real else "int64"
    if all(isinstance(value, (int, float)) for value in (start, end, step)):
        return Value(np.arange(start, end, step).astype(kind))
    held = tf.range(*(tf.cast(value, tf.int32) for value in (start, end, step)))
    return Value(tf.cast(held, kind))


def _scalar(value: Any, dtype: Any = None, **also: Any) -> Value:
    import tensorflow as tf

    kind = _kind(value, dtype)
    if isinstance(value, (bool, int, float)):
        return Value(np.array(value, kind))
    return Value(tf.cast(value, kind))


def _eye(rows: Any, columns: Any = None, dtype: Any = None, **also: Any) -> Value:
    columns = rows if isinstance(columns, (type(None), bool)) else columns
    return Value(np.eye(known(rows, "eye"), known(columns, "eye"), dtype=type_name(dtype or "float32")))


def operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "full": _full, "full_like": _like(None), "zeros_like": _like(0), "ones_like": _like(1),
        "empty_like": _like(0), "zeros": _filled(0), "ones": _filled(1), "empty": _filled(0),
        "new_full": _new(None), "new_zeros": _new(0), "new_ones": _new(1), "new_empty": _new(0), "fill": _like(None),
        "arange": _arange, "scalar_tensor": _scalar, "eye": _eye,
    }  # fmt: skip
