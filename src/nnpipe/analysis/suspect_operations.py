"""Find operations whose results differ from the source's by more than the conversion's claim
allows.

Each pair of tensors consists of the result of the source's operation for the other model's inputs,
and the other model's result.  So the difference comes from that operation alone, not from earlier
ones.  A claim allows the rounding of the result, which its quantisation levels show, and a level of
noise in each channel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from nnpipe.analysis.channel_errors import (
    FAINT,
    Array,
    clip_to_found_range,
    compute_mean_square,
    describe_error,
    find_quantization_step,
    reshape_to_channels,
    to_bounded_decibels,
)
from nnpipe.analysis.tensor_pairing import ComputedTensor, Pair
from nnpipe.core.artifact import Claim, get_lowest_precision

LEAST_OF_CHANNEL: dict[Claim, float] = {
    "float": 60.0,
    "float16": 40.0,
    "bfloat16": 24.0,
    "int8-weights": 14.0,
    "int8": 14.0,
    "int4-weights": 9.0,
}
"""The least signal-to-noise ratio of a channel in decibels, by claim."""

LEAST_OF_TENSOR: dict[Claim, float] = {
    "float": 80.0,
    "float16": 50.0,
    "bfloat16": 30.0,
    "int8-weights": 17.0,
    "int8": 17.0,
    "int4-weights": 12.0,
}
"""The least signal-to-noise ratio of a whole tensor in decibels, by claim."""

Effect = Literal["all", "none", ""]
"""What undoing a suspect does to the outputs: it makes them the source's, changes nothing, or
neither is certain.
"""

_EXACT: tuple[Claim, ...] = ("float16",)  # kernels may approximate functions
_SUSPECTS = 3
_ALLOWED = 4.0  # times the power of the noise that one way of rounding the inputs causes
_BIAS = 3.0  # the least excess of noise, in decibels, that is assigned to a wrong bias
# times that a bias is missing or too much; beyond that, another error resembles it by chance
_ONCE = (0.5, 2.0)
_LIKE_BIAS = 0.8  # correlation of errors of channels with their biases
_MISSING = "as if its bias were missing"
_FEWEST = 8  # the least number of values of a channel to detect its bias
_CONSTANT = 0.5  # the most of a result at rest that may differ within channels, if it is a bias
_RECTIFYING = ("relu", "clip", "activation", "hardtanh", "clamp")
_BENT = ("softmax", "sigmoid", "tanh", " elu", "gelu", "silu", "norm_", "pool", "mean")
_AVERAGING = ("avg", "average", "mean")


@dataclass(frozen=True)
class Level:
    """The signal-to-noise ratio of one operation, in decibels.

    Parameters
    ----------
    tensor, operation, kind, layer
        The position in the source.
    other
        The tensor of the other model.
    median, lowest, whole
        The median and lowest ratio of the channels with a signal, and the ratio of all values
        together.
    over
        The noise above the level that the claim allows, in decibels; negative if it is below.
    """

    tensor: str
    operation: str
    kind: str
    layer: str
    other: str
    median: float
    lowest: float
    whole: float
    over: float

    def to_json(self) -> dict[str, Any]:
        """Return the object in its JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class Suspect:
    """A tensor that is not computed correctly.

    Parameters
    ----------
    name
        The operations with weights that may be wrong, or the one that computes the tensor.
    level
        The measured ratio.
    within, there
        The operations with weights between the last matching tensors and this one in the source,
        and all such operations in the other model; if a bias is missing, also those before them.
    told
        A description of what is seen.
    effect
        What undoing it does to the outputs; only if that makes them the source's, it is certainly
        the cause.
    left
        The share of the outputs' difference, in power, that is left when it is undone, as far as
        that was tried.
    """

    name: str
    level: Level
    within: tuple[str, ...]
    there: tuple[str, ...]
    told: str
    effect: Effect = ""
    left: float | None = None

    def __str__(self) -> str:
        told = f"{self.name!r} ({self.level.kind}): {self.told}"
        if self.effect == "all":
            return f"{told}; with the source's values there, the outputs are the source's"
        return f"{told}; without an effect on the outputs" if self.effect == "none" else told

    def to_json(self) -> dict[str, Any]:
        """Return the object in its JSON form."""
        return {
            "name": self.name,
            "told": self.told,
            "within": list(self.within),
            "there": list(self.there),
            "effect": self.effect,
            "left": self.left,
            "level": self.level.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Suspect:
        """Make the object from the output of :meth:`to_json`."""
        within, there = tuple(data["within"]), tuple(data["there"])
        level = Level(**data["level"])
        return cls(
            data["name"], level, within, there, data["told"], data["effect"], data.get("left")
        )


def get_sure_threshold(claims: Iterable[Claim]) -> float:
    """Return the noise-to-signal ratio below which a tensor certainly satisfies the claims."""
    return float(10 ** (-LEAST_OF_TENSOR[get_lowest_precision(claims)] / 10))


def measure_pair(
    pair: Pair, axis: int, claims: Iterable[Claim], from_rounded: Array | None = None
) -> Level:
    """Measure one pair.

    Parameters
    ----------
    pair
        The pair.
    axis
        The axis of channels.
    claims
        The claims of the conversion.
    from_rounded
        What the source computes from inputs that are rounded as the claims allow, if operations
        round them.
    """
    numbers = get_lowest_precision(claims)
    expected, found = (
        reshape_to_channels(pair.expected, axis),
        reshape_to_channels(pair.found, axis),
    )
    signal, noise = compute_mean_square(expected), compute_mean_square(found - expected)
    mean = float(np.mean(signal))
    allowed = (
        compute_mean_square(found - clip_to_found_range(expected, found))
        if numbers == "int8"
        else noise
    )
    # Half a quantisation step of the source's own integers, and of those that the conversion
    # claims.  Averages may be off by one more: LiteRT truncates the zero point before it adds it
    # (QuantizedMeanOrSum).
    averaged = any(word in pair.source.kind.lower() for word in _AVERAGING)
    claimed = (
        (0.25 + averaged) * find_quantization_step(pair.found) ** 2 if numbers == "int8" else 0.0
    )
    rounding: Array | float = find_quantization_step(pair.expected) ** 2 / 4 + claimed
    if from_rounded is not None:
        rounding = rounding + _ALLOWED * compute_mean_square(
            reshape_to_channels(from_rounded, axis) - expected
        )
    heard = np.maximum(signal, FAINT * mean)
    unexplained = np.maximum(allowed - rounding, 0.0)
    over = max(
        LEAST_OF_CHANNEL[numbers] - float(to_bounded_decibels(heard, unexplained).min()),
        LEAST_OF_TENSOR[numbers]
        - float(to_bounded_decibels(np.array(mean), np.array(np.mean(unexplained)))),
    )
    levels = to_bounded_decibels(signal, noise)
    carrying = levels[signal >= FAINT * mean] if mean > 0 else levels
    return Level(
        pair.source.tensor,
        pair.source.operation,
        pair.source.kind,
        pair.source.layer,
        pair.other.tensor,
        float(np.median(carrying)),
        float(carrying.min()),
        float(to_bounded_decibels(np.array(mean), np.mean(noise))),
        over,
    )


def find_suspects(
    pairs: Sequence[Pair],
    axis: int,
    claims: Iterable[Claim],
    inputs_of: Mapping[str, tuple[str, ...]],
    weighted: Mapping[str, tuple[str, ...]],
    other: Sequence[ComputedTensor],
    at_rest: Mapping[str, Any],
    exact: Collection[str] = (),
    from_rounded: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[tuple[Level, ...], tuple[Suspect, ...]]:
    """Measure all pairs and return those that violate the claims, the worst first.

    The first one in the order of the source is always among the first three.

    Parameters
    ----------
    pairs
        The pairs in the order of the source.
    axis
        The axis of channels in the source.
    claims
        The claims of the conversion.
    inputs_of
        By tensor of the source, the inputs of the operation that computes it.
    weighted
        By tensor of the source, the name of the operation that computes it, if it uses weights.
    other
        The computed tensors of the other model.
    at_rest
        The tensors that the source computes if all inputs of each operation are 0, which are their
        biases.
    exact
        The source's tensors that neither model computes with rounded numbers.
    from_rounded
        The tensors that the source computes if the inputs of each operation are rounded as the
        claims allow.
    """
    claims = tuple(claims)
    levels = tuple(
        measure_pair(pair, axis, _EXACT)
        if pair.source.tensor in exact
        else measure_pair(pair, axis, claims, from_rounded.get(pair.source.tensor))
        for pair in pairs
    )
    biases = {
        n: told
        for n, pair in enumerate(pairs)
        if measure_pair(pair, axis, ("float",)).over > 0
        and (told := _describe_wrong_bias(pair, axis, inputs_of, at_rest))
    }
    levels = tuple(
        replace(level, over=max(level.over, _BIAS)) if n in biases else level
        for n, level in enumerate(levels)
    )
    known, paired = {pair.source.tensor for pair in pairs}, {pair.other.tensor for pair in pairs}
    operations = {place.tensor: place.operation for place in other}
    taken_by = {place.tensor: place.inputs for place in other}
    over = sorted(
        (n for n, level in enumerate(levels) if level.over > 0), key=lambda n: -levels[n].over
    )
    if over and min(over) not in over[:_SUSPECTS]:
        # After a fault, tensors may be paired wrongly; before it, none is.
        over.remove(first := min(over))
        over.insert(_SUSPECTS - 1, first)
    found = []
    for number in over:
        within = find_unknown_predecessors(pairs[number].source.tensor, known, inputs_of)
        names = [name for tensor in within for name in weighted.get(tensor, ())]
        told = describe_error(
            reshape_to_channels(pairs[number].expected, axis),
            reshape_to_channels(pairs[number].found, axis),
        )
        there = find_unknown_predecessors(pairs[number].other.tensor, paired, taken_by)
        if biases.get(number) == _MISSING:
            there += [
                name
                for tensor in there
                for name in taken_by[tensor]
                if name in operations and name not in there
            ]
        told = f"{biases[number]}; {told}" if number in biases else told
        name = ", ".join(names[::-1]) or levels[number].operation
        found.append(
            Suspect(
                name, levels[number], tuple(names), tuple(map(operations.__getitem__, there)), told
            )
        )
    return levels, tuple(found)


def _describe_wrong_bias(
    pair: Pair, axis: int, inputs_of: Mapping[str, tuple[str, ...]], at_rest: Mapping[str, Any]
) -> str:
    """Return a description if channels differ by the source's bias, even if that is small;
    otherwise an empty string.

    Errors of rounding differ: in most channels they are not related to the bias.
    """
    tensor, kind = pair.source.tensor, pair.source.kind.lower()
    if any(word in kind for word in _BENT):
        return ""
    if any(word in kind for word in _RECTIFYING):
        tensor = next((name for name in inputs_of[tensor] if name in at_rest), tensor)
    if tensor not in at_rest or at_rest[tensor].shape != pair.expected.shape:
        return ""
    # Channels of convolutions are on the model's axis, those of matrices that take sequences on the
    # last one.
    by_axis = {
        each: np.median(reshape_to_channels(at_rest[tensor], each), axis=1) for each in (axis, -1)
    }
    axis = max(by_axis, key=lambda each: float(np.var(by_axis[each])))
    bias, rest = by_axis[axis], reshape_to_channels(at_rest[tensor], axis)
    # errors of other causes may be the same in all channels, too
    if not np.isfinite(bias).all() or not np.ptp(bias):
        return ""
    if float(compute_mean_square((rest - bias[:, None]).ravel())) > _CONSTANT * float(
        compute_mean_square(rest.ravel())
    ):
        return ""
    expected, found = (
        reshape_to_channels(pair.expected, axis),
        reshape_to_channels(pair.found, axis),
    )
    # If negative values have become 0, the bias can no longer be seen.
    seen = (expected > 0) & (found > 0) if expected.min() >= 0 else np.ones(expected.shape, bool)
    told = seen.sum(1) >= _FEWEST
    if np.count_nonzero(told) < 2 or not np.ptp(bias[told]):
        return ""
    off = np.array(
        [
            np.mean((f - e)[s])
            for e, f, s in zip(expected[told], found[told], seen[told], strict=True)
        ]
    )
    bias = bias[told]
    part = float(np.sum(off * bias) / np.sum(np.square(bias)))
    like = (
        float(np.sum(off * bias) / np.sqrt(np.sum(np.square(off)) * np.sum(np.square(bias))))
        if off.any()
        else 0.0
    )
    if not _ONCE[0] <= abs(part) <= _ONCE[1] or abs(like) < _LIKE_BIAS:
        return ""
    return _MISSING if part < 0 else "as if its bias were added once too often"


def rank_coarsest(
    levels: Sequence[Level], within: Mapping[str, tuple[str, ...]]
) -> tuple[Suspect, ...]:
    """Return the tensors that lose most by rounding, with the lowest median over channels first."""
    told = "half of its channels have {:.1f} dB or less"
    return tuple(
        Suspect(level.operation, level, within.get(level.tensor, ()), (), told.format(level.median))
        for level in sorted(levels, key=lambda level: level.median)[:_SUSPECTS]
    )


def find_unknown_predecessors(
    tensor: str, known: set[str], inputs_of: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """Return the tensor and its unknown predecessors, the nearest first."""
    found, open_tensors = [tensor], [tensor]
    while open_tensors:
        for name in inputs_of.get(open_tensors.pop(0), ()):
            if name in inputs_of and name not in known and name not in found:
                found.append(name)
                open_tensors.append(name)
    return found


# Tests by computed values of whether a model computes with the weights that its file seems to have.
#
# A converter may store other numbers and still compute the same: it multiplies the scale of a layer
# normalisation into the next matrix, or adds a constant row to a table of positions.  Then the
# weights differ, but the values do not.
#
# For the other model's inputs of an operation, let ``s`` be the result with the source's weight,
# ``a`` the result with the other model's numbers in its place, and ``f`` the result that the other
# model has.  In ``f - s = c (a - s) + noise``, ``c`` is 1 if these numbers have their effect, and 0
# if something else makes up for them.

_HALF = 0.5  # between an effect and none
_ERRORS = 5  # standard errors that must lie between a share and the half
# the least number of values of a channel for a factor and a constant that mean anything
_FEWEST_TO_FIT = 4
_STEADY = 0.1  # deviation of an added constant, relative to it


def has_no_effect(expected: Array, adopted: Array, found: Array, axis: int) -> bool:
    """Return whether the values of a tensor show that a kernel's other numbers do not have the
    effect they should.

    Parameters
    ----------
    expected, adopted, found
        The result with the source's weight, with the other numbers, and that of the other model.
    axis
        The axis of channels; each channel, and each place along the last axis, must not show an
        effect.
    """
    share, error = _fit_shares(*(each.reshape(1, -1) for each in (expected, adopted, found)))
    if share[0] + _ERRORS * error[0] >= _HALF:
        return False
    for each in {axis, -1}:
        shares, errors = _fit_shares(
            *(reshape_to_channels(array, each) for array in (expected, adopted, found))
        )
        if np.any(shares - _ERRORS * errors > _HALF):
            return False
    return True


def has_no_effect_in(
    expected: Array, adopted: Array, found: Array, channels: tuple[int, ...], count: int
) -> bool:
    """Return the same as :func:`has_no_effect` for some of the ``count`` numbers of a vector,
    each of them surely.
    """
    for axis in _find_axes(expected, count):
        shares, errors = _fit_shares(
            *(reshape_to_channels(array, axis) for array in (expected, adopted, found))
        )
        if np.all((shares + _ERRORS * errors)[list(channels)] < _HALF):
            return True
    return False


def is_lost(expected: Array, adopted: Array, channels: tuple[int, ...], count: int) -> bool:
    """Return whether the other numbers of a vector, which is added, are lost in the rounding of
    floats.
    """
    for axis in _find_axes(expected, count):
        own, change = (
            reshape_to_channels(expected, axis),
            reshape_to_channels(adopted - expected, axis),
        )
        told = change[list(channels)]
        added = np.all(told.any(1)) and told.std(1).max() <= _STEADY * np.sqrt(
            np.mean(np.square(told.mean(1)))
        )
        signal, noise = compute_mean_square(own), compute_mean_square(change)
        if (
            added
            and np.all(to_bounded_decibels(signal, noise) > LEAST_OF_CHANNEL["float"])
            and float(to_bounded_decibels(signal.mean(), noise.mean())) > LEAST_OF_TENSOR["float"]
        ):
            return True
    return False


def is_rescaled(numbers: Array, found: Array, rounding: Array) -> bool:
    """Return whether a kernel is the other one with a factor and a constant for each channel of one
    axis.

    Parameters
    ----------
    numbers, found
        The expected and the found numbers.
    rounding
        The largest error of each number by rounding, in their shape.
    """
    for axis in range(numbers.ndim):
        own, theirs, allowed = (
            np.moveaxis(each, axis, 0).reshape(numbers.shape[axis], -1)
            for each in (numbers, found, rounding)
        )
        if own.shape[1] < _FEWEST_TO_FIT:
            continue
        centred, mean = own - own.mean(1, keepdims=True), theirs.mean(1, keepdims=True)
        square = np.sum(np.square(centred), axis=1, keepdims=True)
        factor = np.sum(centred * (theirs - mean), axis=1, keepdims=True) / np.where(
            square > 0, square, 1
        )
        if np.all(np.abs(theirs - mean - factor * centred) <= allowed) and np.all(
            (factor != 0) | (square == 0)
        ):
            return True
    return False


def _fit_shares(expected: Array, adopted: Array, found: Array) -> tuple[Array, Array]:
    """Return ``c`` of each row with its standard error, which is infinite where the other
    numbers change nothing.
    """
    change, seen = adopted - expected, found - expected
    square = np.sum(np.square(change), axis=1)
    known = np.where(square > 0, square, 1.0)
    share = np.sum(seen * change, axis=1) / known
    rest = np.sqrt(compute_mean_square(seen - share[:, None] * change))
    error: Any = np.where((square > 0) & np.isfinite(rest), rest / np.sqrt(known), np.inf)
    return np.where(np.isfinite(share), share, 0.0), error


def _find_axes(values: Array, count: int) -> list[int]:
    """Return the axes that a vector of ``count`` numbers may belong to, but not that of samples."""
    return [axis for axis in range(1, values.ndim) if values.shape[axis] == count]
