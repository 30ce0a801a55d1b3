"""Reductions, running sums, sorting and softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnpipe.compilers._torch_tf.values import (
    TO_LAST,
    Value,
    cast,
    get_type_name,
    require_static_length,
    restore_axis_order,
    transpose_tensor,
)

Operator = Callable[..., Any]


def _resolve_axes(x: Value, axes: Any) -> list[int]:
    """Return the axes of the program that are meant; none and an empty list mean all."""
    if axes is None or axes == []:
        return list(range(x.rank))
    return sorted({axis % max(x.rank, 1) for axis in ([axes] if isinstance(axes, int) else axes)})


def _build_reduced_value(
    x: Value, held: Any, axes: Sequence[int], keep: bool, floor: bool
) -> Value:
    """Return the result of a reduction over some axes, in the program's order if axes are gone."""
    if keep:
        return Value(held, x.channels_last, floor)
    order = [axis for axis in (TO_LAST if x.channels_last else range(x.rank)) if axis not in axes]
    return restore_axis_order(held, order, floor)


def _make_reduction(
    name: str, keeps_floor: bool = False, dtype_of: Callable[[str], str] = str
) -> Operator:
    def apply(
        x: Value, axes: Any = None, keep: bool = False, dtype: Any = None, **also: Any
    ) -> Value:
        import tensorflow as tf

        given = also.get("dtype", dtype)
        held = cast(x.held, get_type_name(given) if given is not None else dtype_of(x.dtype))
        if isinstance(axes, bool) or x.rank == 0:
            return Value(held)
        chosen = _resolve_axes(x, axes)
        found = getattr(tf, name)(held, [x.axis(axis) for axis in chosen], keepdims=keep)
        return _build_reduced_value(x, found, chosen, keep, keeps_floor and x.floor)

    return apply


def _make_extremum(name: str) -> Operator:
    """Return ``max`` or ``min``: of all elements, or along an axis together with the places."""

    def apply(x: Value, axis: int | None = None, keep: bool = False) -> Any:
        reduce = _make_reduction(f"reduce_{name}", True)
        if axis is None:
            return reduce(x)
        return reduce(x, axis, keep), _make_arg_extremum(f"arg{name}")(x, axis, keep)

    return apply


def _make_arg_extremum(name: str) -> Operator:
    def find_first(held: Any, axis: int) -> Any:
        import tensorflow as tf

        # TensorFlow Lite compares such numbers, but does not look for the largest
        if held.dtype == tf.int64:
            most = getattr(tf, f"reduce_{name.removeprefix('arg')}")(held, axis, keepdims=True)
            return tf.argmax(tf.cast(held == most, tf.int32), axis, tf.int64)
        return getattr(tf, name)(held, axis, tf.int64)

    def apply(x: Value, axis: int | None = None, keep: bool = False) -> Value:
        import tensorflow as tf

        held = cast(x.first(), "int32") if x.dtype == "bool" else x.first()
        if axis is None:
            found = find_first(tf.reshape(held, [-1]), 0)
            return Value(tf.reshape(found, [1] * x.rank) if keep else found, floor=True)
        place = axis % max(x.rank, 1)
        found = find_first(held, place)
        return Value(tf.expand_dims(found, place) if keep else found, floor=True)

    return apply


def _make_variance(root: bool, with_mean: bool) -> Operator:
    """Return variance or deviation, perhaps together with the mean."""

    def apply(
        x: Value, axes: Any = None, correction: Any = 1, keep: bool = False, **also: Any
    ) -> Any:
        import tensorflow as tf

        if isinstance(axes, bool):  # the overloads that only say whether the estimate is unbiased
            axes, correction = None, int(axes)
        if isinstance(correction, bool):
            correction = int(correction)
        correction, keep = also.get("correction", correction), also.get("keepdim", keep)
        correction = 1 if correction is None else correction
        chosen = _resolve_axes(x, axes)
        places = [x.axis(axis) for axis in chosen]
        mean = tf.reduce_mean(x.held, places, keepdims=True)
        found = tf.reduce_mean(tf.square(x.held - mean), places, keepdims=keep)
        if correction:
            count = 1
            for axis in chosen:
                count *= require_static_length(x.shape[axis], "variance")
            found = (
                found * (count / max(count - correction, 0))
                if count > correction
                else found * float("nan")
            )
        spread = _build_reduced_value(x, tf.sqrt(found) if root else found, chosen, keep, True)
        if not with_mean:
            return spread
        return spread, _make_reduction("reduce_mean", True)(x, axes, keep)

    return apply


def _apply_norm(
    x: Value, order: Any = 2, axes: Any = None, keep: bool = False, *ignored: Any, **also: Any
) -> Value:
    import tensorflow as tf

    order = 2 if order is None else order
    chosen = _resolve_axes(x, axes)
    places = [x.axis(axis) for axis in chosen]
    if order == 2:
        found = tf.sqrt(tf.reduce_sum(tf.square(x.held), places, keepdims=keep))
    elif order in (float("inf"), float("-inf")):
        reduce = tf.reduce_max if order > 0 else tf.reduce_min
        found = reduce(tf.abs(x.held), places, keepdims=keep)
    else:
        powers = tf.abs(x.held) if order == 1 else tf.pow(tf.abs(x.held), float(order))
        found = tf.reduce_sum(powers, places, keepdims=keep)
        found = found if order == 1 else tf.pow(found, 1 / order)
    return _build_reduced_value(x, found, chosen, keep, True)


def _apply_logsumexp(x: Value, axes: Any, keep: bool = False) -> Value:
    import tensorflow as tf

    chosen = _resolve_axes(x, axes)
    places = [x.axis(axis) for axis in chosen]
    most = tf.reduce_max(x.held, places, keepdims=True)
    found = tf.math.log(tf.reduce_sum(tf.exp(x.held - most), places, keepdims=True)) + most
    return _build_reduced_value(
        x, found if keep else tf.squeeze(found, places), chosen, keep, False
    )


def _make_softmax(log: bool) -> Operator:
    def apply(x: Value, axis: int, dtype: Any = None, **also: Any) -> Value:
        import tensorflow as tf

        function = tf.nn.log_softmax if log else tf.nn.softmax
        if not isinstance(dtype, (bool, type(None))) or "float" not in x.dtype:
            x = Value(cast(x.held, "float32"), x.channels_last)
        if x.rank == 0:
            return Value(function(tf.reshape(x.held, [1]))[0])
        # Along the last axis, the only one that TensorFlow Lite supports.
        place = axis % x.rank
        if x.axis(axis) == x.rank - 1:
            return Value(function(x.held), x.channels_last, not log)
        order = [i for i in range(x.rank) if i != place] + [place]
        return restore_axis_order(function(transpose_tensor(x.first(), order)), order, not log)

    return apply


def _apply_cumsum(x: Value, axis: int, dtype: Any = None, **also: Any) -> Value:
    import tensorflow as tf

    given = also.get("dtype", dtype)
    held = cast(x.held, get_type_name(given) if given is not None else _get_sum_type(x.dtype))
    if x.rank == 0:
        return Value(held)
    return Value(tf.cumsum(held, x.axis(axis)), x.channels_last, x.floor)


def _apply_topk(
    x: Value, count: int, axis: int = -1, largest: bool = True, ordered: bool = True
) -> tuple[Value, Value]:
    import tensorflow as tf

    place = axis % x.rank
    order = [i for i in range(x.rank) if i != place] + [place]
    held = transpose_tensor(x.first(), order)
    values, places = tf.math.top_k(held if largest else -held, count)
    return (
        restore_axis_order(values if largest else -values, order),
        restore_axis_order(tf.cast(places, tf.int64), order, True),
    )


def _apply_sort(x: Value, *given: Any, **also: Any) -> tuple[Value, Value]:
    # sort(x, axis, descending), and sort.stable(x, *, stable, axis, descending)
    numbers = [value for value in given if value is not None and not isinstance(value, bool)]
    flags = [value for value in given if isinstance(value, bool)]
    axis = numbers[0] if numbers else also.get("dim", -1)
    descending = flags[-1] if flags else also.get("descending", False)
    return _apply_topk(x, require_static_length(x.shape[axis], "sort"), axis, descending)


def _get_sum_type(dtype: str) -> str:
    """Return the type of sums of a type: truth values and integers are added as int64."""
    return dtype if "float" in dtype else "int64"


def _get_bool_type(dtype: str) -> str:
    return "bool"


def build_operators() -> Mapping[str, Operator]:
    """Return the operators by their names in PyTorch."""
    return {
        "mean": _make_reduction("reduce_mean", True),
        "sum": _make_reduction("reduce_sum", True, _get_sum_type),
        "prod": _make_reduction("reduce_prod", True, _get_sum_type),
        "amax": _make_reduction("reduce_max", True),
        "amin": _make_reduction("reduce_min", True),
        "any": _make_reduction("reduce_any", False, _get_bool_type),
        "all": _make_reduction("reduce_all", False, _get_bool_type),
        "max": _make_extremum("max"),
        "min": _make_extremum("min"),
        "argmax": _make_arg_extremum("argmax"),
        "argmin": _make_arg_extremum("argmin"),
        "var": _make_variance(False, False),
        "std": _make_variance(True, False),
        "var_mean": _make_variance(False, True),
        "std_mean": _make_variance(True, True),
        "norm": _apply_norm,
        "linalg_vector_norm": _apply_norm,
        "logsumexp": _apply_logsumexp,
        "softmax": _make_softmax(False),
        "_softmax": _make_softmax(False),
        "log_softmax": _make_softmax(True),
        "_log_softmax": _make_softmax(True),
        "_safe_softmax": _make_softmax(False),
        "cumsum": _apply_cumsum,
        "topk": _apply_topk,
        "sort": _apply_sort,
        "argsort": lambda x, *given, **also: _apply_sort(x, *given, **also)[1],
    }
