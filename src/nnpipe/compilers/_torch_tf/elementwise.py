"""Elementwise operators: arithmetic and comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from nnpipe.compilers._torch_tf.values import (
    Value,
    align_layouts,
    cast,
    find_common_type,
    get_type_name,
    prepare_operands,
)
from nnpipe.core.errors import CompileError

Operator = Callable[..., Any]


def make_unary(function: Callable[[Any], Any], floor: bool | None = None) -> Operator:
    """Return an operator of one tensor; ``floor``: whether results are never negative, ``None``
    if as the input.
    """

    def apply(x: Value, *ignored: Any, **also: Any) -> Value:
        return Value(function(x.held), x.channels_last, x.floor if floor is None else floor)

    return apply


def make_real_unary(function: Callable[[Any], Any], floor: bool | None = False) -> Operator:
    """Return an operator of one tensor whose results are real numbers, also of integers."""
    return make_unary(
        lambda held: function(held if held.dtype.is_floating else cast(held, "float32")), floor
    )


def _make_rounding(function: Callable[[Any], Any]) -> Operator:
    """Return an operator of one tensor that leaves integers as they are."""
    return make_unary(lambda held: function(held) if held.dtype.is_floating else held)


def make_binary(
    function: Callable[[Any, Any], Any], keeps_floor: bool = False, dtype: str | None = None
) -> Operator:
    """Return an operator of two tensors or numbers in their common type, or in ``dtype``."""

    def apply(x: Any, y: Any, **also: Any) -> Value:
        (left, right), last = prepare_operands([x, y], dtype)
        return Value(
            function(left, right),
            last,
            keeps_floor and _is_never_negative(x) and _is_never_negative(y),
        )

    return apply


def _make_scaled_binary(function: Callable[[Any, Any], Any], keeps_floor: bool = False) -> Operator:
    def apply(x: Any, y: Any, alpha: float = 1) -> Value:
        if alpha != 1:
            y = Value(y.held * alpha, y.channels_last) if isinstance(y, Value) else y * alpha
        found: Value = make_binary(function, keeps_floor)(x, y)
        return found

    return apply


def _is_never_negative(value: Any) -> bool:
    if isinstance(value, Value):
        return value.floor
    return isinstance(value, (bool, int, float)) and value >= 0


def _make_logical(logical: Callable[..., Any], name: str) -> Operator:
    """Return an operator on truth values; TensorFlow Lite has none on the bits of integers."""

    def apply(*values: Value) -> Value:
        held, last = prepare_operands(values)
        if getattr(held[0], "dtype", None) != "bool" and not isinstance(held[0], bool):
            raise CompileError(f"{name} of integers is not translated, only of truth values")
        return Value(logical(*held), last)

    return apply


def _multiply(x: Any, y: Any) -> Any:
    import tensorflow as tf

    return (
        tf.logical_and(x, y)
        if "bool" in (getattr(x, "dtype", ""), getattr(y, "dtype", ""))
        else x * y
    )


def _apply_div(x: Any, y: Any, rounding_mode: str | None = None) -> Value:
    import tensorflow as tf

    (left, right), last = prepare_operands([x, y])
    whole = not _is_floating(left) and not _is_floating(right)
    if rounding_mode == "floor":
        return Value(tf.math.floordiv(left, right), last)
    if whole:
        left, right = cast(left, "float32"), cast(right, "float32")
    found = left / right
    if rounding_mode == "trunc":
        found = _truncate(found)
        found = tf.cast(found, tf.int64) if whole else found
    return Value(
        found, last, rounding_mode is None and _is_never_negative(x) and _is_never_negative(y)
    )


def _is_floating(held: Any) -> bool:
    return isinstance(held, float) or "float" in getattr(getattr(held, "dtype", None), "name", "")


def _truncate(held: Any) -> Any:
    import tensorflow as tf

    return tf.sign(held) * tf.floor(tf.abs(held))


def _apply_fmod(x: Any, y: Any) -> Value:
    (left, right), last = prepare_operands([x, y])
    if not _is_floating(left):
        raise CompileError("fmod of integers is not translated")
    return Value(left - _truncate(left / right) * right, last)


def _apply_pow(x: Any, y: Any) -> Value:
    import tensorflow as tf

    shortcuts: dict[float, tuple[Callable[[Any], Any], bool]] = {
        2: (tf.math.square, True),
        0.5: (tf.math.sqrt, True),
        -0.5: (tf.math.rsqrt, True),
        3: (lambda held: tf.math.square(held) * held, False),
        -1: (lambda held: 1 / held, False),
    }
    if (
        isinstance(y, (int, float))
        and y in shortcuts
        and isinstance(x, Value)
        and "float" in x.dtype
    ):
        function, floor = shortcuts[y]
        return Value(function(x.held), x.channels_last, floor or x.floor)
    (left, right), last = prepare_operands([x, y])
    return Value(tf.pow(left, right), last)


def clamp(x: Value, low: Any = None, high: Any = None) -> Value:
    """Return values between bounds; a bound of ``None`` is none."""
    import tensorflow as tf

    if any(isinstance(bound, Value) for bound in (low, high)):
        x = x if low is None else make_binary(tf.maximum)(x, low)
        return x if high is None else make_binary(tf.minimum)(x, high)
    if (low, high) == (0, 6):
        return Value(tf.nn.relu6(x.held), x.channels_last, True)
    floating = "float" in x.dtype
    held = x.held
    if low is not None:
        held = tf.nn.relu(held) if low == 0 and floating else tf.maximum(held, cast(low, x.dtype))
    if high is not None and high != math.inf:
        held = tf.minimum(held, cast(high, x.dtype))
    return Value(held, x.channels_last, low is not None and low >= 0)


def _apply_where(condition: Value, x: Any, y: Any) -> Value:
    import tensorflow as tf

    dtype = find_common_type([x, y])
    (held, left, right), last = align_layouts([condition, x, y])
    left, right = (
        tf.constant(value, dtype) if isinstance(value, (bool, int, float)) else cast(value, dtype)
        for value in (left, right)
    )
    return Value(
        tf.where(cast(held, "bool"), left, right),
        last,
        _is_never_negative(x) and _is_never_negative(y),
    )


def _apply_masked_fill(x: Value, mask: Value, value: Any) -> Value:
    value = Value(cast(value.held, x.dtype)) if isinstance(value, Value) else cast(value, x.dtype)
    return _apply_where(mask, value, x)


def _apply_lerp(x: Value, end: Value, weight: Any) -> Value:
    (start, stop, part), last = prepare_operands([x, end, weight])
    return Value(start + part * (stop - start), last)


def _apply_addcmul(x: Value, y: Value, z: Value, value: float = 1) -> Value:
    (a, b, c), last = prepare_operands([x, y, z])
    return Value(a + (b * c if value == 1 else value * b * c), last)


def _apply_addcdiv(x: Value, y: Value, z: Value, value: float = 1) -> Value:
    (a, b, c), last = prepare_operands([x, y, z])
    return Value(a + (b / c if value == 1 else value * b / c), last)


def _compute_erf(held: Any) -> Any:
    """Return the error function to 2e-7 (Abramowitz and Stegun 1964, 7.1.26); TensorFlow Lite
    has none.
    """
    import tensorflow as tf

    size = tf.abs(held)
    t = 1 / (1 + 0.3275911 * size)
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    return tf.sign(held) * (1 - series * tf.exp(-size * size))


def _to(x: Value, *given: Any, **also: Any) -> Value:
    import torch

    # to(x, dtype), to(x, device, dtype), to(x, other), each with flags behind
    wanted = next(
        (one for one in (also.get("dtype"), *given) if isinstance(one, (Value, torch.dtype))), None
    )
    if wanted is None:
        return x
    if isinstance(wanted, Value):
        return Value(cast(x.held, wanted.dtype), x.channels_last, x.floor)
    name = get_type_name(wanted)
    return Value(cast(_convert_before_unsigned(x.held, name), name), x.channels_last, x.floor)


def _convert_before_unsigned(held: Any, dtype: str) -> Any:
    if dtype.startswith("uint") and _is_floating(held):
        import tensorflow as tf

        return tf.cast(held, tf.int32)  # negative numbers wrap in PyTorch
    return held


def _return_unchanged(x: Value, *ignored: Any, **also: Any) -> Value:
    return x


def _apply_dropout(x: Value, part: float, training: bool) -> Value:
    if training and part:
        raise CompileError("dropout in training is not translated; export the model for inference")
    return x


def build_operators() -> Mapping[str, Operator]:
    """Return the operators by their names in PyTorch."""
    import tensorflow as tf

    tm = tf.math
    log_e = {2: 1 / math.log(2), 10: 1 / math.log(10)}
    half = {
        "sinh": lambda x: (tf.exp(x) - tf.exp(-x)) / 2,
        "cosh": lambda x: (tf.exp(x) + tf.exp(-x)) / 2,
        "tan": lambda x: tf.sin(x) / tf.cos(x),
        "asinh": lambda x: tf.sign(x) * tm.log(tf.abs(x) + tf.sqrt(x * x + 1)),
        "acosh": lambda x: tm.log(x + tf.sqrt(x * x - 1)),
        "atanh": lambda x: 0.5 * tm.log((1 + x) / (1 - x)),
        "erf": _compute_erf,
        "log": tm.log,
        "log2": lambda x: tm.log(x) * log_e[2],
        "log10": lambda x: tm.log(x) * log_e[10],
        "log1p": lambda x: tm.log(1 + x),
        "expm1": lambda x: tf.exp(x) - 1,
        "sin": tm.sin,
        "cos": tm.cos,
        "tanh": tm.tanh,
        "reciprocal": lambda x: 1 / x,
        "logit": lambda x: tm.log(x / (1 - x)),
    }
    never_negative = {
        "exp": tf.exp,
        "sigmoid": tm.sigmoid,
        "sqrt": tf.sqrt,
        "rsqrt": tm.rsqrt,
        "exp2": lambda x: tf.exp(x * math.log(2)),
    }
    whole = {
        "floor": tf.floor,
        "ceil": tm.ceil,
        "round": tm.round,
        "trunc": _truncate,
    }
    return {
        **{name: make_real_unary(function) for name, function in half.items()},
        **{name: make_real_unary(function, True) for name, function in never_negative.items()},
        **{name: _make_rounding(function) for name, function in whole.items()},
        "clamp": clamp,
        "clamp_min": clamp,
        "clamp_max": lambda x, high: clamp(x, None, high),
        "abs": make_unary(tf.abs, True),
        "neg": make_unary(tm.negative, False),
        "square": make_unary(tm.square, True),
        "sign": make_unary(tf.sign, False),
        "sgn": make_unary(tf.sign, False),
        "logical_not": make_unary(lambda x: tm.logical_not(cast(x, "bool"))),
        "isnan": make_unary(lambda x: x != x),
        "isinf": make_unary(lambda x: tf.abs(x) == math.inf),
        "bitwise_not": _make_logical(tf.logical_not, "bitwise_not"),
        "bitwise_and": _make_logical(tf.logical_and, "bitwise_and"),
        "bitwise_or": _make_logical(tf.logical_or, "bitwise_or"),
        "bitwise_xor": _make_logical(tf.not_equal, "bitwise_xor"),
        "__and__": _make_logical(tf.logical_and, "__and__"),
        "__or__": _make_logical(tf.logical_or, "__or__"),
        "logical_and": make_binary(tf.logical_and, dtype="bool"),
        "logical_or": make_binary(tf.logical_or, dtype="bool"),
        "logical_xor": make_binary(tf.not_equal, dtype="bool"),
        "pow": _apply_pow,
        "add": _make_scaled_binary(lambda x, y: x + y, True),
        "sub": _make_scaled_binary(lambda x, y: x - y),
        "rsub": lambda x, y, alpha=1: _make_scaled_binary(lambda a, b: a - b)(y, x, alpha),
        "mul": make_binary(_multiply, True),
        "div": _apply_div,
        "true_divide": _apply_div,
        "floor_divide": make_binary(tm.floordiv),
        "remainder": make_binary(tm.floormod),
        "fmod": _apply_fmod,
        "maximum": make_binary(tf.maximum),
        "minimum": make_binary(tf.minimum),
        "max.other": make_binary(tf.maximum),
        "min.other": make_binary(tf.minimum),
        "atan2": make_binary(tm.atan2),
        "eq": make_binary(tf.equal),
        "ne": make_binary(tf.not_equal),
        "lt": make_binary(tf.less),
        "le": make_binary(tf.less_equal),
        "gt": make_binary(tf.greater),
        "ge": make_binary(tf.greater_equal),
        "where": _apply_where,
        "masked_fill": _apply_masked_fill,
        "lerp": _apply_lerp,
        "addcmul": _apply_addcmul,
        "addcdiv": _apply_addcdiv,
        "dropout": _apply_dropout,
        "clone": _return_unchanged,
        "contiguous": _return_unchanged,
        "detach": _return_unchanged,
        "alias": _return_unchanged,
        "lift_fresh_copy": _return_unchanged,
        "feature_dropout": _apply_dropout,
        "alpha_dropout": _apply_dropout,
        "to": _to,
        "_to_copy": _to,
        "type_as": lambda x, y: Value(cast(x.held, y.dtype), x.channels_last, x.floor),
    }


def _apply_hardtanh(x: Value, low: float = -1, high: float = 1) -> Value:
    return clamp(x, low, high)


def _apply_gelu(x: Value, approximate: str = "none") -> Value:
    import tensorflow as tf

    return Value(tf.nn.gelu(x.held, approximate == "tanh"), x.channels_last)


def _apply_leaky_relu(x: Value, slope: float = 0.01) -> Value:
    import tensorflow as tf

    return Value(tf.nn.leaky_relu(x.held, slope), x.channels_last)


def _apply_prelu(x: Value, weight: Value) -> Value:
    import tensorflow as tf

    slopes = weight
    if weight.rank == 1 and x.rank > 1:
        slopes = Value(weight.held.reshape(-1, *(1,) * (x.rank - 2)))
    (held, slope), last = prepare_operands([x, slopes])
    return Value(tf.nn.relu(held) - slope * tf.nn.relu(-held), last)


def _apply_elu(x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    import tensorflow as tf

    if (alpha, scale, input_scale) == (1, 1, 1):
        return Value(tf.nn.elu(x.held), x.channels_last)
    low = alpha * (tf.exp(tf.minimum(x.held, 0.0) * input_scale) - 1)
    return Value(scale * (tf.nn.relu(x.held) + low), x.channels_last)


def _compute_softplus(held: Any) -> Any:
    import tensorflow as tf

    # The usual form overflows for large numbers.
    return tf.nn.relu(held) + tf.math.log(1 + tf.exp(-tf.abs(held)))


def _apply_softplus(x: Value, beta: float = 1, threshold: float = 20) -> Value:
    return Value(_compute_softplus(x.held * beta) / beta, x.channels_last, True)


def _apply_threshold(x: Value, threshold: float, value: float) -> Value:
    import tensorflow as tf

    return Value(tf.where(x.held > threshold, x.held, value), x.channels_last)


def build_activation_operators() -> Mapping[str, Operator]:
    """Return the operators by their names in PyTorch."""
    import tensorflow as tf

    nn, tm = tf.nn, tf.math
    smooth = {
        "mish": lambda x: x * tm.tanh(_compute_softplus(x)),
        "silu": lambda x: x * tm.sigmoid(x),
        "log_sigmoid": lambda x: -_compute_softplus(-x),
        "hardswish": lambda x: x * nn.relu6(x + 3) * (1 / 6),
        "selu": nn.selu,
        "softsign": lambda x: x / (1 + tf.abs(x)),
        "tanhshrink": lambda x: x - tm.tanh(x),
    }
    return {
        **{name: make_real_unary(function) for name, function in smooth.items()},
        "hardsigmoid": make_real_unary(lambda x: nn.relu6(x + 3) * (1 / 6), True),
        "relu": make_unary(nn.relu, True),
        "relu6": make_unary(nn.relu6, True),
        "hardtanh": _apply_hardtanh,
        "gelu": _apply_gelu,
        "leaky_relu": _apply_leaky_relu,
        "prelu": _apply_prelu,
        "_prelu_kernel": _apply_prelu,
        "elu": _apply_elu,
        "softplus": _apply_softplus,
        "threshold": _apply_threshold,
    }
