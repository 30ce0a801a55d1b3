"""Find operations that do not compute what their source does, beyond what the conversion claims.

Each pair of tensors holds what the source's operation makes of the other model's inputs, and what the
other model has.  Their difference is that operation's own; nothing before it counts.  What a claim
allows is the rounding of the result, which its levels show, and a level of noise in each channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from nnpipe.analysis.channel_noise import FAINT, bounded, power, rows_of, step_of, within_range
from nnpipe.analysis.describe_differences import what_is_wrong
from nnpipe.analysis.tensor_pairing import ComputedTensor, Pair
from nnpipe.core.claims import Claim, numbers_of

LEAST_OF_CHANNEL: dict[Claim, float] = {
    "float": 60.0, "float16": 40.0, "bfloat16": 24.0, "int8-weights": 14.0, "int8": 14.0,
}  # fmt: skip
"""Signal to noise in decibels below which a channel is not what was claimed."""

LEAST_OF_TENSOR: dict[Claim, float] = {
    "float": 80.0, "float16": 50.0, "bfloat16": 30.0, "int8-weights": 17.0, "int8": 17.0,
}  # fmt: skip
"""The same of a whole tensor."""

_SUSPECTS = 3
_BIAS = 3.0  # decibels that a wrong bias counts for at least
_FEWEST = 8  # values in which a channel's bias can be seen
_RECTIFYING = ("relu", "clip", "activation", "hardtanh", "clamp")
_BENT = ("softmax", "sigmoid", "tanh", " elu", "gelu", "silu", "norm_", "pool", "mean")


@dataclass(frozen=True)
class Level:
    """Signal to noise of one operation, in decibels.

    Parameters
    ----------
    tensor, operation, kind, layer
        Where in the source.
    other
        The tensor of the other model.
    median, lowest, whole
        Of the channels that carry a signal, and of all values together.
    over
        How far, in decibels, the noise exceeds what the claim allows; below 0 where it does not.
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
        """Return it as JSON can hold it."""
        return asdict(self)


@dataclass(frozen=True)
class Suspect:
    """A place that does not compute what it should.

    Parameters
    ----------
    name
        The operations that have weights there, or the one that gives the tensor.
    level
        What was measured.
    within, there
        The operations with weights between what was known and this tensor in
        the source, and all of them in the other model.
    told
        What is wrong, in words.
    """

    name: str
    level: Level
    within: tuple[str, ...]
    there: tuple[str, ...]
    told: str

    def __str__(self) -> str:
        return f"{self.name!r} ({self.level.kind}): {self.told}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "name": self.name,
            "told": self.told,
            "within": list(self.within),
            "there": list(self.there),
            "level": self.level.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Suspect:
        """Read what :meth:`to_json` gave."""
        return cls(data["name"], Level(**data["level"]), tuple(data["within"]), tuple(data["there"]), data["told"])


def sure_for(claims: Iterable[Claim]) -> float:
    """Return the noise to signal below which a tensor is surely what was claimed."""
    return float(10 ** (-LEAST_OF_TENSOR[numbers_of(claims)] / 10))


def level_of(pair: Pair, axis: int, claims: Iterable[Claim]) -> Level:
    """Measure one pair; ``axis`` is that of the channels."""
    numbers = numbers_of(claims)
    expected, found = rows_of(pair.expected, axis), rows_of(pair.found, axis)
    signal, noise = power(expected), power(found - expected)
    mean = float(np.mean(signal))
    allowed = power(found - within_range(expected, found)) if numbers == "int8" else noise
    # Half a step of the source's own integers, and of those that the conversion said it would make.
    rounding = (step_of(pair.expected) ** 2 + (step_of(pair.found) ** 2 if numbers == "int8" else 0.0)) / 4
    heard = np.maximum(signal, FAINT * mean)
    unexplained = np.maximum(allowed - rounding, 0.0)
    over = max(
        LEAST_OF_CHANNEL[numbers] - float(bounded(heard, unexplained).min()),
        LEAST_OF_TENSOR[numbers] - float(bounded(np.array(mean), np.array(np.mean(unexplained)))),
    )
    levels = bounded(signal, noise)
    carrying = levels[signal >= FAINT * mean] if mean > 0 else levels
    return Level(
        pair.source.tensor, pair.source.operation, pair.source.kind, pair.source.layer, pair.other.tensor,
        float(np.median(carrying)), float(carrying.min()), float(bounded(np.array(mean), np.mean(noise))), over,
    )  # fmt: skip


def suspects_among(
    pairs: Sequence[Pair],
    axis: int,
    claims: Iterable[Claim],
    inputs_of: Mapping[str, tuple[str, ...]],
    weighted: Mapping[str, tuple[str, ...]],
    other: Sequence[ComputedTensor],
    at_rest: Mapping[str, Any],
) -> tuple[tuple[Level, ...], tuple[Suspect, ...]]:
    """Measure all pairs and name those that are not what was claimed, the worst first, the first of all among three.

    Parameters
    ----------
    pairs
        In the order of the source.
    axis
        Of the channels, in the source.
    claims
        Of the conversion.
    inputs_of
        What the operation takes that computes a tensor of the source.
    weighted
        Names of operations of the source by the tensor that they compute, where they use weights.
    other
        What the other model computes.
    at_rest
        What the source computes where everything that its operations take is 0: their biases.
    """
    claims = tuple(claims)
    levels = tuple(level_of(pair, axis, claims) for pair in pairs)
    biases = {n: told for n, pair in enumerate(pairs) if (told := _wrong_bias(pair, axis, inputs_of, at_rest))}
    levels = tuple(
        replace(level, over=max(level.over, _BIAS)) if n in biases else level for n, level in enumerate(levels)
    )
    known, paired = {pair.source.tensor for pair in pairs}, {pair.other.tensor for pair in pairs}
    operations = {place.tensor: place.operation for place in other}
    taken_by = {place.tensor: place.inputs for place in other}
    over = sorted((n for n, level in enumerate(levels) if level.over > 0), key=lambda n: -levels[n].over)
    if over and min(over) not in over[:_SUSPECTS]:
        # Behind what is wrong, tensors may be taken for others; ahead of it, none is.
        over.remove(first := min(over))
        over.insert(_SUSPECTS - 1, first)
    found = []
    for number in over:
        within = between(pairs[number].source.tensor, known, inputs_of)
        names = [name for tensor in within for name in weighted.get(tensor, ())]
        told = what_is_wrong(rows_of(pairs[number].expected, axis), rows_of(pairs[number].found, axis))
        there = tuple(operations[tensor] for tensor in between(pairs[number].other.tensor, paired, taken_by))
        told = f"{biases[number]}; {told}" if number in biases else told
        name = ", ".join(names[::-1]) or levels[number].operation
        found.append(Suspect(name, levels[number], tuple(names), there, told))
    return levels, tuple(found)


def _wrong_bias(pair: Pair, axis: int, inputs_of: Mapping[str, tuple[str, ...]], at_rest: Mapping[str, Any]) -> str:
    """Return whether channels are off by what the source adds to them, however small that is beside the rest.

    Rounding is off by other amounts: in most channels it has nothing to do with the bias.
    """
    tensor, kind = pair.source.tensor, pair.source.kind.lower()
    if any(word in kind for word in _BENT):
        return ""
    if any(word in kind for word in _RECTIFYING):
        tensor = next((name for name in inputs_of[tensor] if name in at_rest), tensor)
    if tensor not in at_rest or at_rest[tensor].shape != pair.expected.shape:
        return ""
    bias = np.median(rows_of(at_rest[tensor], axis), axis=1)
    expected, found = rows_of(pair.expected, axis), rows_of(pair.found, axis)
    # Where negative values have become 0 the bias is no longer to be seen.
    seen = (expected > 0) & (found > 0) if expected.min() >= 0 else np.ones(expected.shape, bool)
    told = seen.sum(1) >= _FEWEST
    if np.count_nonzero(told) < 2 or not np.any(bias[told]):
        return ""
    off = np.array([np.mean((f - e)[s]) for e, f, s in zip(expected[told], found[told], seen[told], strict=True)])
    bias = bias[told]
    part = float(np.sum(off * bias) / np.sum(np.square(bias)))
    like = float(np.sum(off * bias) / np.sqrt(np.sum(np.square(off)) * np.sum(np.square(bias)))) if off.any() else 0.0
    if abs(part) < 0.5 or abs(like) < 0.8:
        return ""
    return "its bias is missing" if part < 0 else "its bias is added once too often"


def coarsest(levels: Sequence[Level], within: Mapping[str, tuple[str, ...]]) -> tuple[Suspect, ...]:
    """Name the tensors that lose most to rounding: the lowest median over channels first."""
    told = "half of its channels have {:.1f} dB or less"
    return tuple(
        Suspect(level.operation, level, within.get(level.tensor, ()), (), told.format(level.median))
        for level in sorted(levels, key=lambda level: level.median)[:_SUSPECTS]
    )


def between(tensor: str, known: set[str], inputs_of: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the tensor and those before it that are not known, the nearest first."""
    found, open_tensors = [tensor], [tensor]
    while open_tensors:
        for name in inputs_of.get(open_tensors.pop(0), ()):
            if name in inputs_of and name not in known and name not in found:
                found.append(name)
                open_tensors.append(name)
    return found
