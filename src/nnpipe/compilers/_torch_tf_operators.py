"""PyTorch's operators in TensorFlow: elementwise operations, reductions and operations on shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers import _torch_tf_layers as layers
from nnpipe.compilers._torch_tf_values import Value, together, turned
from nnpipe.core.errors import CompileError

Operator = Callable[..., Any]
_END = (1 << 63) - 1


def _unary(function: Callable[[Any], Any], floor: bool | None = None) -> Operator:
    """Return an operator of one tensor; ``floor``: whether results are never negative, ``None`` if as the input."""

    def operator(x: Value, *ignored: Any, **also: Any) -> Value:
        return Value(function(x.held), x.channels_last, x.floor if floor is None else floor)

    return operator


def _binary(function: Callable[[Any, Any], Any], keeps_floor: bool = False) -> Operator:
    def operator(x: Any, y: Any) -> Value:
        (left, right), last = together([x, y])
        floor = keeps_floor and all(v.floor if isinstance(v, Value) else v >= 0 for v in (x, y))
        return Value(function(left, right), last, floor)

    return operator


def _scaled(function: Callable[[Any, Any], Any], keeps_floor: bool = False) -> Operator:
    def operator(x: Any, y: Any, alpha: float = 1) -> Value:
        if alpha != 1:
            y = Value(y.held * alpha, y.channels_last) if isinstance(y, Value) else y * alpha
        found: Value = _binary(function, keeps_floor)(x, y)
        return found

    return operator


def _clamp(x: Value, low: float | None = None, high: float | None = None) -> Value:
    import tensorflow as tf

    if (low, high) == (0, 6):
        return Value(tf.nn.relu6(x.held), x.channels_last, True)
    held = x.held if low is None else tf.nn.relu(x.held) if low == 0 else tf.maximum(x.held, low)
    held = held if high is None else tf.minimum(held, high)
    return Value(held, x.channels_last, low is not None and low >= 0)


def _hardtanh(x: Value, low: float = -1, high: float = 1) -> Value:
    return _clamp(x, low, high)


def _gelu(x: Value, approximate: str = "none") -> Value:
    import tensorflow as tf

    return Value(tf.nn.gelu(x.held, approximate == "tanh"), x.channels_last)


def _leaky_relu(x: Value, slope: float = 0.01) -> Value:
    import tensorflow as tf

    return Value(tf.nn.leaky_relu(x.held, slope), x.channels_last)


def _softmax(x: Value, axis: int, *ignored: Any, **also: Any) -> Value:
    import tensorflow as tf

    # Along the last axis, the only one that TensorFlow Lite supports.
    place = axis % x.rank
    if x.axis(axis) == x.rank - 1:
        return Value(tf.nn.softmax(x.held), x.channels_last, True)
    order = [i for i in range(x.rank) if i != place] + [place]
    back = [order.index(i) for i in range(x.rank)]
    return Value(tf.transpose(tf.nn.softmax(tf.transpose(x.first(), order)), back), floor=True)


def _reduced(name: str, keeps_floor: bool) -> Operator:
    def operator(x: Value, axes: Any = None, keep: bool = False, dtype: Any = None) -> Value:
        import tensorflow as tf

        wanted = range(x.rank) if axes in (None, []) else [axes] if isinstance(axes, int) else axes
        places = sorted(x.axis(axis) for axis in wanted)
        floor = keeps_floor and x.floor
        if keep:
            return Value(getattr(tf, name)(x.held, places, keepdims=True), x.channels_last, floor)
        found = getattr(tf, name)(x.held, places)
        if x.channels_last and len(places) == 1 and places != [3]:
            # The remaining axes (batch, channels, rows or columns) have channels last.
            return Value(tf.transpose(found, [0, 2, 1]) if 0 not in places else turned(found, (2, 0, 1)), floor=floor)
        return Value(found, floor=floor)

    return operator


def _cat(parts: Sequence[Value], axis: int = 0) -> Value:
    import tensorflow as tf

    last = any(part.channels_last for part in parts) and all(part.rank == 4 for part in parts)
    lying = [Value(part.last(), True) if last else Value(part.first()) for part in parts]
    found = tf.concat([part.held for part in lying], lying[0].axis(axis))
    return Value(found, last, all(part.floor for part in parts))


def _view(x: Value, size: Sequence[Any]) -> Value:
    import tensorflow as tf

    lengths = list(size)
    open_places = [place for place, length in enumerate(lengths) if not isinstance(length, int)]
    if len(open_places) == 1 and not any(isinstance(length, int) and length == -1 for length in lengths):
        lengths[open_places[0]] = -1
        open_places = []
    shape = lengths if not open_places else tf.stack([tf.cast(length, tf.int32) for length in lengths])
    return Value(tf.reshape(x.first(), shape), floor=x.floor)


def _flatten(x: Value, start: int = 0, end: int = -1) -> Value:
    import tensorflow as tf

    start, end = start % x.rank, end % x.rank
    middle = x.shape[start : end + 1]
    fused = -1 if None in middle else int(np.prod([int(length or 0) for length in middle]))
    shape = [*x.shape[:start], fused, *x.shape[end + 1 :]]
    held = x.held if x.channels_last and x.shape[2:] == (1, 1) else x.first()
    if shape.count(None) + shape.count(-1) == 1:
        return Value(tf.reshape(held, [-1 if n is None else n for n in shape]), floor=x.floor)
    dynamic = tf.shape(x.first())
    return Value(tf.reshape(x.first(), tf.concat([dynamic[:start], [-1], dynamic[end + 1 :]], 0)), floor=x.floor)


def _permute(x: Value, axes: Sequence[int]) -> Value:
    return Value(turned(x.first(), [axis % x.rank for axis in axes]), floor=x.floor)


def _transpose(x: Value, one: int, other: int) -> Value:
    order = list(range(x.rank))
    one, other = one % x.rank, other % x.rank
    order[one], order[other] = other, one
    return _permute(x, order)


def _t(x: Value) -> Value:
    return x if x.rank < 2 else _transpose(x, 0, 1)


def _unsqueeze(x: Value, axis: int) -> Value:
    import tensorflow as tf

    return Value(tf.expand_dims(x.first(), axis % (x.rank + 1)), floor=x.floor)


def _squeeze(x: Value, axes: Any = None) -> Value:
    import tensorflow as tf

    given = range(x.rank) if axes is None else [axes] if isinstance(axes, int) else axes
    chosen = [axis % x.rank for axis in given if x.shape[axis] == 1]
    return Value(tf.squeeze(x.first(), chosen) if chosen else x.first(), floor=x.floor)


def _slice(x: Value, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    import tensorflow as tf

    cut = [slice(None)] * x.rank
    stop = None if end is None or (isinstance(end, int) and end >= _END) else end
    cut[x.axis(axis)] = slice(start, stop, step)
    return Value(tf.convert_to_tensor(x.held)[tuple(cut)], x.channels_last, x.floor)


def _select(x: Value, axis: int, index: Any) -> Value:
    cut: list[Any] = [slice(None)] * x.rank
    cut[axis % x.rank] = index
    return Value(x.first()[tuple(cut)], floor=x.floor)


def _pad(x: Value, pads: Sequence[int], mode: Any = "constant", value: float | None = 0) -> Value:
    import tensorflow as tf

    if isinstance(mode, (int, float)):  # constant_pad_nd
        mode, value = "constant", mode
    if mode != "constant" or min(pads) < 0:
        raise CompileError(f"pad with the mode {mode} or negative lengths is not translated")
    table = [[0, 0] for _ in range(x.rank)]
    for place in range(len(pads) // 2):
        table[x.axis(x.rank - 1 - place)] = [pads[2 * place], pads[2 * place + 1]]
    floor = x.floor and (value or 0) >= 0
    return Value(tf.pad(x.held, table, constant_values=value or 0), x.channels_last, floor)


def _expand(x: Value, size: Sequence[Any], **also: Any) -> Value:
    import tensorflow as tf

    missing = len(size) - x.rank
    lengths = [*([None] * missing), *x.shape]
    shape = [have if want == -1 else want for have, want in zip(lengths, size, strict=True)]
    if any(not isinstance(length, int) for length in shape):
        raise CompileError("expand to a free length is not translated")
    return Value(tf.broadcast_to(x.first(), shape), floor=x.floor)


def _addmm(bias: Value, x: Value, matrix: Value, beta: float = 1, alpha: float = 1) -> Value:
    if (beta, alpha) != (1, 1):
        raise CompileError("addmm with factors is not translated")
    return Value(_matmul(x, matrix).held + bias.first())


def _matmul(x: Value, y: Value) -> Value:
    import tensorflow as tf

    return Value(tf.matmul(x.first(), y.first()))


def _same(x: Value, *ignored: Any, **also: Any) -> Value:
    return x


def _dropout(x: Value, part: float, training: bool) -> Value:
    if training and part:
        raise CompileError("dropout in training is not translated; export the model for inference")
    return x


def _cast(x: Value, dtype: Any = None, *ignored: Any, **also: Any) -> Value:
    import tensorflow as tf

    wanted = str(also.get("dtype", dtype)).removeprefix("torch.")
    if wanted == "None":
        return x
    return Value(tf.cast(x.held, wanted), x.channels_last, x.floor)


def _size(x: Value, axis: int) -> Any:
    import tensorflow as tf

    length = x.shape[axis]
    return tf.shape(x.first())[axis] if length is None else length


def _normalised(x: Value, *rest: Any) -> tuple[Value, None, None]:
    weight, bias, mean, variance, momentum, eps = rest
    return layers.batch_norm(x, weight, bias, mean, variance, False, momentum, eps), None, None  # statistics


def _max_with_places(*arguments: Any) -> tuple[Value, None]:
    return layers.max_pool2d(*arguments), None


def table() -> Mapping[str, Operator]:
    """Return the operators by their names in PyTorch, without overload."""
    import tensorflow as tf

    nn, math = tf.nn, tf.math
    return {
        "conv1d": layers.conv1d, "conv2d": layers.conv2d, "convolution": layers.convolution,
        "batch_norm": layers.batch_norm, "_native_batch_norm_legit_no_training": _normalised,
        "max_pool2d": layers.max_pool2d, "max_pool2d_with_indices": _max_with_places,
        "avg_pool2d": layers.avg_pool2d, "adaptive_avg_pool2d": layers.adaptive_avg_pool2d,
        "_adaptive_avg_pool2d": layers.adaptive_avg_pool2d, "linear": layers.linear,
        "addmm": _addmm, "mm": _matmul, "bmm": _matmul, "matmul": _matmul,
        "relu": _unary(nn.relu, True), "relu6": _unary(nn.relu6, True), "hardtanh": _hardtanh,
        "clamp": _clamp, "clamp_min": _clamp, "sigmoid": _unary(math.sigmoid, True), "tanh": _unary(math.tanh, False),
        "silu": _unary(lambda x: x * math.sigmoid(x), False), "exp": _unary(math.exp, True),
        "hardswish": _unary(lambda x: x * nn.relu6(x + 3) * (1 / 6), False),
        "hardsigmoid": _unary(lambda x: nn.relu6(x + 3) * (1 / 6), True),
        "gelu": _gelu, "leaky_relu": _leaky_relu, "sqrt": _unary(math.sqrt, True), "rsqrt": _unary(math.rsqrt, True),
        "log": _unary(math.log, False), "abs": _unary(math.abs, True), "neg": _unary(math.negative, False),
        "square": _unary(math.square, True), "pow": _binary(math.pow),
        "add": _scaled(lambda x, y: x + y, True), "sub": _scaled(lambda x, y: x - y),
        "mul": _binary(lambda x, y: x * y, True), "div": _binary(lambda x, y: x / y),
        "maximum": _binary(math.maximum), "minimum": _binary(math.minimum),
        "softmax": _softmax, "_softmax": _softmax, "cat": _cat,
        "mean": _reduced("reduce_mean", True), "sum": _reduced("reduce_sum", True),
        "amax": _reduced("reduce_max", True),
        "view": _view, "reshape": _view, "_unsafe_view": _view, "flatten": _flatten, "permute": _permute,
        "transpose": _transpose, "t": _t, "numpy_T": _t, "unsqueeze": _unsqueeze, "squeeze": _squeeze,
        "slice": _slice, "select": _select, "pad": _pad, "constant_pad_nd": _pad, "expand": _expand,
        "dropout": _dropout, "clone": _same, "contiguous": _same, "detach": _same, "alias": _same,
        "lift_fresh_copy": _same, "to": _cast, "_to_copy": _cast, "sym_size": _size,
    }  # fmt: skip
