"""Check whether the weights of a model agree with the source's, within the claims of the
conversion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.analysis.channel_errors import (
    Array,
    compute_mean_square,
    describe_error,
    reshape_to_channels,
    to_decibels,
)
from nnpipe.analysis.suspect_operations import LEAST_OF_CHANNEL, is_rescaled
from nnpipe.analysis.weight_changes import (
    Expected,
    WeightChange,
    WeightComparison,
    compute_expected_bias,
    compute_expected_kernel,
    find_bias_vector,
    select_kept_channels,
)
from nnpipe.analysis.weights import WeightPair, Weights, match_weights
from nnpipe.core.artifact import INTEGERS, Claim, get_lowest_precision, select_weight_changes

_EXACT, _FAINT = 1e-4, 1e-5  # of a number, and of the greatest of its tensor: rounding of floats
_ROUNDED: Mapping[Claim, float] = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
_LEAST: Mapping[Claim, float] = {"float16": 6e-8, "bfloat16": 0.0}
# times that, of numbers that a file computes: a normalised weight is rounded five times by half of
# it
_REPEATED = 4
_STEPS = 1.02  # the largest difference by rounding, in quantisation steps
_SILENT = 1e-3  # of the greatest number: weaker channels may be rounded to zeros
_FEW = 64  # the least size of a tensor to count its different values
_TOGETHER = 64  # the most wrong channels that are compared with others
_MOST = 4  # channels that are named in a message
_SCALED = "its channels are multiplied by numbers that no normalisation of the source accounts for"

_SCALED_TOO = "its numbers are multiplied by those of its kernel's channels: not judged"


def compare_weights(source: Weights, other: Weights, claims: Iterable[Claim]) -> WeightComparison:
    """Compare the weights of a model with those of its source, tensor by tensor and channel by
    channel.

    Parameters
    ----------
    source, other
        The weights of both models.
    claims
        The claims of the conversion.
    """
    claims = tuple(claims)
    whole = source
    source = (
        select_kept_channels(source, other) if "pruned" in select_weight_changes(claims) else source
    )
    pairs = match_weights(source, other)
    found: list[WeightChange] = []
    accounted: set[str] = set()
    kernels: dict[str, tuple[WeightPair, Expected]] = {}
    for pair in pairs:
        accounted.add(pair.source.name)
        if pair.source.values.ndim > 1:
            expected = compute_expected_kernel(pair, source, other)
            kernels[pair.source.operation] = (pair, expected)
            found.append(_compare_kernel(pair, expected, claims))
    folded = {}
    for pair, expected in kernels.values():
        if expected.norm is None:
            continue
        accounted |= {w.name for w in source.tensors if w.operation == expected.norm.name}
        own, bias = find_bias_vector(pair.source, source), find_bias_vector(pair.other, other)
        if own is not None:
            folded[own.name] = expected
        if bias is not None and bias.values.size == expected.norm.mean.size:
            named = WeightPair(own or bias, bias, (0,), "operation")
            numbers, scale = compute_expected_bias(expected, None if own is None else own.values)
            name = own.name if own is not None else f"{expected.norm.name} (as a bias)"
            found.append(
                _compare_vector(
                    named,
                    numbers,
                    scale,
                    claims,
                    _find_dead_channels(kernels, pair),
                    name,
                    expected.norm.name,
                )
            )
    for pair in pairs:
        if pair.source.values.ndim == 1 and pair.source.name not in folded:
            scale = float(np.abs(pair.source.values).max(initial=0.0))
            kernel, beside = kernels.get(pair.source.operation, (None, None))
            dead, numbers = _find_dead_channels(kernels, kernel), pair.source.values
            if (
                beside is not None
                and beside.shift is not None
                and beside.shift.shape == numbers.shape
            ):
                numbers = numbers + beside.shift
            change = _compare_vector(pair, numbers, scale, claims, dead, pair.source.name, "")
            factors = None if beside is None else beside.factors
            if change.wrong and factors is not None and factors.shape == numbers.shape:
                again = _compare_vector(
                    pair, factors * numbers, scale, claims, dead, pair.source.name, ""
                )
                change = (
                    change
                    if again.wrong
                    else replace(change, channels=(), wrong="", remark=_SCALED_TOO)
                )
            found.append(change)
    order = {weight.name: number for number, weight in enumerate(source.tensors)}
    first = min(
        (pair.source.name for pair, _ in kernels.values()), default="", key=lambda name: order[name]
    )
    found = _report_uncompensated(found, first, kernels)
    found.sort(key=lambda change: order.get(change.name, order.get(change.folded, len(order))))
    left = tuple(w.name for w in source.tensors if w.name not in accounted)
    sizes = {weight.name: weight.values.size for weight in source.tensors}
    taken = sum(weight.values.size - sizes[weight.name] for weight in whole.tensors)
    return WeightComparison(
        claims, tuple(found), left, taken / max(1, sum(w.values.size for w in whole.tensors))
    )


def _find_dead_channels(
    kernels: Mapping[str, tuple[WeightPair, Expected]], pair: WeightPair | None
) -> frozenset[int]:
    """Return the channels of a kernel that contain only 0; their biases may be removed, too."""
    if pair is None or pair.source.operation not in kernels:
        return frozenset()
    expected = kernels[pair.source.operation][1]
    rows = reshape_to_channels(expected.found, expected.axis)
    return frozenset(int(n) for n in np.flatnonzero(~np.any(rows, axis=1)))


def _compare_kernel(
    pair: WeightPair, expected: Expected, claims: tuple[Claim, ...]
) -> WeightChange:
    changes = select_weight_changes(claims)
    numbers, found, step = expected.numbers, expected.found, expected.step
    allowed = _compute_tolerance(
        numbers, found, step, claims, _REPEATED if pair.other.computed else 1
    )
    off = np.abs(found - numbers)
    plain, levels = expected.unfold_normalisation()
    values = (
        int(np.unique(levels).size)
        if "clustered" in changes and step is None and found.size >= _FEW
        else None
    )
    wrong = off > allowed
    if "pruned" in changes:
        wrong &= np.abs(found) > np.minimum(allowed, np.abs(found).max(initial=0.0) * _EXACT)
    if "clustered" in changes and "fine-tuned" not in changes and wrong.any():
        part = allowed * np.divide(plain, numbers, out=np.ones_like(plain), where=numbers != 0)
        wrong &= np.abs(levels - plain) > _to_nearest(
            plain, levels, None if step is None else expected.axis
        ) + np.abs(part)
        if values is not None and 2 * values > found.size:
            wrong = off > allowed
    if "fine-tuned" in changes:
        wrong = ~np.isfinite(found)
    axis, channels = _find_wrong_channels(wrong, numbers, found, step, claims, expected.axis)
    dead = _find_silenced_channels(numbers, found, step, axis)
    told, remark = "", ""
    if dead and "pruned" not in changes:
        told = (
            f"{_format_channels(dead)} of axis {axis} {'are' if len(dead) > 1 else 'is'} 0 "
            f"throughout, and nothing was pruned"
        )
        channels = tuple(sorted({*channels, *dead}))
    elif channels and expected.factors is not None and pair.source.name != pair.other.name:
        remark = f"{_SCALED}: not judged"
        channels = ()
    elif channels:
        told = _describe_fault(
            reshape_to_channels(numbers, axis), reshape_to_channels(found, axis), channels
        )
        if values is not None and 2 * values > found.size and "clustered" in changes:
            told += f"; it takes {values} different values"
    rescaled = bool(channels) and not changes and is_rescaled(numbers, found, allowed)
    return WeightChange(
        pair.source.name,
        pair.other.name,
        pair.by,
        expected.norm.name if expected.norm else expected.before,
        *_measure_errors(numbers, found, step, claims),
        _measure_zeroed_share(numbers, found),
        values,
        axis,
        channels,
        dead,
        told,
        remark,
        rescaled,
    )


def _report_uncompensated(
    found: list[WeightChange], first: str, kernels: Mapping[str, tuple[WeightPair, Expected]]
) -> list[WeightChange]:
    """Report kernels whose channels are multiplied by factors that nothing compensates.

    A conversion that scales channels also scales their biases, and the next layer inversely.  The
    first layer may include the scale of the inputs.
    """
    scaled = [change for change in found if change.remark]
    norms = {
        expected.norm.name: expected.norm
        for _, expected in kernels.values()
        if expected.norm is not None
    }
    if len(scaled) != 1 or scaled[0].folded not in norms or scaled[0].name == first:
        return found
    one, norm = scaled[0], norms[scaled[0].folded]
    biases = [change for change in found if change.folded == one.folded and change is not one]
    if (
        not biases
        or any(bias.wrong for bias in biases)
        or not (np.any(norm.beta) or np.any(norm.mean))
    ):
        return found
    told = f"{_SCALED}, and neither its bias nor another layer makes up for them"
    return [replace(change, wrong=told, remark="") if change is one else change for change in found]


def _describe_fault(numbers: Array, found: Array, channels: Sequence[int]) -> str:
    """Describe the fault of some channels: they contain the values of other channels, or other
    numbers.
    """
    if 1 < len(channels) <= _TOGETHER:
        origins = []
        for channel in channels:
            kept = found[channel] != 0  # pruned numbers are ignored
            off = np.sum(np.square(numbers[:, kept] - found[channel, kept]), axis=1)
            origins.append(int(np.argmin(off)) if kept.any() else channel)
        if sorted(origins) == sorted(channels) and all(
            a != b for a, b in zip(origins, channels, strict=True)
        ):
            return (
                f"{_format_channels(channels)} hold what belongs into {_format_channels(origins)}"
            )
    return describe_error(numbers, found)


def _compare_vector(
    pair: WeightPair,
    numbers: Array,
    scale: float,
    claims: tuple[Claim, ...],
    dead: frozenset[int],
    name: str,
    folded: str,
) -> WeightChange:
    changes, found, step = select_weight_changes(claims), pair.other.values, pair.other.step
    allowed = _compute_tolerance(numbers, found, step, claims) + _EXACT * scale
    rounded = (kind := get_lowest_precision(claims)) in INTEGERS
    if rounded:  # quantisers correct biases for the rounding of the kernel
        allowed = np.maximum(
            allowed, 10 ** (-LEAST_OF_CHANNEL[kind] / 20) * np.sqrt(np.mean(np.square(numbers)))
        )
    wrong = np.abs(found - numbers) > allowed
    if "pruned" in changes:
        wrong &= ~((found == 0) & np.isin(np.arange(found.size), list(dead)))
    if "fine-tuned" in changes or (rounded and not np.any(numbers)):
        wrong = ~np.isfinite(found)
    channels = tuple(int(n) for n in np.flatnonzero(wrong))
    told = ""
    if channels:
        missing = not np.any(found) and np.any(numbers)
        told = (
            "all of it is 0"
            if missing
            else f"{_format_channels(channels)} differ" + ("s" if len(channels) == 1 else "")
        )
    return WeightChange(
        name,
        pair.other.name,
        pair.by,
        folded,
        *_measure_errors(numbers, found, step, claims),
        _measure_zeroed_share(numbers, found),
        None,
        0,
        channels,
        (),
        told,
    )


def _compute_tolerance(
    numbers: Array, found: Array, step: Array | None, claims: tuple[Claim, ...], roundings: int = 1
) -> Array:
    """Return the largest error of each number by rounding."""
    size, kind = np.abs(numbers), get_lowest_precision(claims)
    floats: Array = _EXACT * size + _FAINT * float(size.max(initial=0.0))
    if kind in _ROUNDED:
        return floats + roundings * (_ROUNDED[kind] * size + _LEAST[kind])
    if kind in INTEGERS and step is not None:
        return floats + _STEPS * np.broadcast_to(step, numbers.shape)
    return floats


def _find_wrong_channels(
    wrong: Any,
    numbers: Array,
    found: Array,
    step: Array | None,
    claims: tuple[Claim, ...],
    axis: int,
) -> tuple[int, tuple[int, ...]]:
    """Return the axis along which the fewest channels contain wrong numbers, and these channels."""
    best: tuple[float, int, tuple[int, ...]] | None = None
    if (
        step is None
        and (kind := get_lowest_precision(claims)) in INTEGERS
        and not select_weight_changes(claims)
    ):
        # Channels may be rounded by an unknown step; along another axis, the loss of a whole one
        # would look as little.
        rows, theirs = reshape_to_channels(numbers, axis), reshape_to_channels(found, axis)
        lost = (
            to_decibels(compute_mean_square(rows), compute_mean_square(theirs - rows))
            < LEAST_OF_CHANNEL[kind]
        )
        wrong = wrong & np.expand_dims(
            lost, tuple(each for each in range(numbers.ndim) if each != axis % numbers.ndim)
        )
    for each in dict.fromkeys((axis, *range(numbers.ndim))):
        rows, theirs, bad = (
            reshape_to_channels(numbers, each),
            reshape_to_channels(found, each),
            np.moveaxis(wrong, each, 0),
        )
        bad = bad.reshape(len(rows), -1)
        if step is not None:  # numbers outside the range of the integers are clipped
            high, low = theirs.max(1, keepdims=True), theirs.min(1, keepdims=True)
            cut = ((theirs == high) & (rows > theirs)) | ((theirs == low) & (rows < theirs))
            bad = bad & ~(cut & (high > low))
        told = bad.any(1)
        part = float(np.mean(told))
        if best is None or part < best[0]:
            best = (part, each, tuple(int(n) for n in np.flatnonzero(told)))
    assert best is not None
    return best[1], best[2]


def _to_nearest(numbers: Array, found: Array, axis: int | None) -> Array:
    """Return the distance of each number to the nearest nonzero number of the other; with an
    axis, in its channel.
    """
    if axis is not None:  # the integers of each channel have their own scale
        pairs = zip(np.moveaxis(numbers, axis, 0), np.moveaxis(found, axis, 0), strict=True)
        return np.moveaxis(
            np.stack([_to_nearest(mine, theirs, None) for mine, theirs in pairs]), 0, axis
        )
    levels = np.unique(found[found != 0])
    if not levels.size:
        return np.zeros_like(numbers)
    at = np.clip(np.searchsorted(levels, numbers), 1, max(len(levels) - 1, 1))
    near = np.minimum(
        np.abs(numbers - levels[at - 1]), np.abs(numbers - levels[np.minimum(at, len(levels) - 1)])
    )
    return np.where(numbers == 0, 0.0, near)  # 0 stays 0


def _find_silenced_channels(
    numbers: Array, found: Array, step: Array | None, axis: int
) -> tuple[int, ...]:
    rows, theirs = np.abs(reshape_to_channels(numbers, axis)), reshape_to_channels(found, axis)
    if len(rows) < 2:
        return ()
    least = max(
        _SILENT * float(rows.max(initial=0.0)), 0.0 if step is None else 2 * float(np.max(step))
    )
    return tuple(
        int(n) for n in np.flatnonzero(~np.any(theirs, axis=1) & (rows.max(1, initial=0.0) > least))
    )


def _measure_errors(
    numbers: Array, found: Array, step: Array | None, claims: tuple[Claim, ...]
) -> tuple[float, float | None, float]:
    off, largest = np.abs(found - numbers), float(np.abs(numbers).max(initial=0.0))
    signal, noise = float(np.sum(np.square(numbers))), float(np.sum(np.square(off)))
    # Numbers that were set to 0 were not rounded, and vectors are rounded to much finer integers
    # than kernels.
    known = None
    if numbers.ndim > 1 and step is not None and np.all(step > 0) and "clustered" not in claims:
        known = float(np.max((off / step)[found != 0], initial=0.0))
    return (
        float(off.max(initial=0.0)) / largest if largest else 0.0,
        known,
        noise / signal if signal else 0.0,
    )


def _measure_zeroed_share(numbers: Array, found: Array) -> float:
    return float(np.mean((found == 0) & (numbers != 0))) if numbers.size else 0.0


def _format_channels(channels: Sequence[int]) -> str:
    shown = ", ".join(map(str, channels[:_MOST])) + (
        f" and {len(channels) - _MOST} more" if len(channels) > _MOST else ""
    )
    return f"channel{'s' if len(channels) > 1 else ''} {shown}"
