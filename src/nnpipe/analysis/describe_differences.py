"""Describe in words how the values of channels differ from what they should be."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.analysis.channel_noise import FAINT, Array, bounded, power

_ALIKE = 0.9  # correlation above which a channel is taken for another one
_MANY = 64  # the most wrong channels that are compared with others


def what_is_wrong(expected: Array, found: Array) -> str:
    """Describe how values, of shape ``(channels, values)``, differ from the expected ones."""
    signal, noise = power(expected), power(found - expected)
    if not np.isfinite(noise).all():
        return f"{int(np.count_nonzero(~np.isfinite(noise)))} of {len(noise)} channels are not finite"
    heard = np.maximum(signal, FAINT * float(np.mean(signal)))
    levels = bounded(heard, noise)
    wrong = np.flatnonzero(levels < levels.min() + 15.0)
    told = f"{float(bounded(np.mean(signal), np.mean(noise))):.1f} dB"
    silent = [int(c) for c in wrong if np.ptp(found[c]) == 0 and np.ptp(expected[c]) > 0]
    if silent and len(silent) == len(wrong):
        return f"{listed(silent)} no longer {_depends(silent)} on the input ({told})"
    if 1 < len(wrong) <= _MANY:
        others = _which(expected, found, wrong)
        if others and all(source != channel for channel, source in others.items()) and len(others) == len(wrong):
            return f"{listed(list(others))} hold what belongs into {listed(list(others.values()))} ({told})"
    return f"{_shape_of_error(expected[wrong], found[wrong])} in {_some(wrong, len(expected))} ({told})"


def _shape_of_error(expected: Array, found: Array) -> str:
    difference = found - expected
    factor = float(np.sum(expected * found) / np.sum(np.square(expected))) if np.any(expected) else 1.0
    rest = float(np.mean(np.square(found - factor * expected)))
    all_of_it = float(np.mean(np.square(difference)))
    if abs(factor - 1) > 0.02 and rest < 0.05 * all_of_it:
        return f"values are {factor:.3g} times what they should be"
    constant = difference.mean(1, keepdims=True)
    if float(np.mean(np.square(difference - constant))) < 0.2 * all_of_it:
        same = np.ptp(constant) < 0.1 * float(np.max(np.abs(constant)))
        return (
            f"values are off by {float(constant[0, 0]):.3g}" if same else "values are off by a constant of each channel"
        )
    highest, lowest = found.max(), found.min()
    beyond = (expected > highest) | (expected < lowest)
    if float(np.sum(np.square(difference[beyond]))) > 0.8 * float(np.sum(np.square(difference))):
        return f"values are cut off at {lowest:.3g} and {highest:.3g}"
    together = _correlation(expected.ravel(), found.ravel())
    return "values are other ones" if together < 0.5 else "there is noise"


def _which(expected: Array, found: Array, wrong: Any) -> dict[int, int]:
    """Return for wrong channels the channel whose values they contain."""
    others: dict[int, int] = {}
    for channel in wrong:
        alike = [_correlation(expected[c], found[channel]) for c in range(len(expected))]
        best = int(np.argmax(alike))
        if alike[best] > _ALIKE:
            others[int(channel)] = best
    return others


def _correlation(one: Array, two: Array) -> float:
    one, two = one - one.mean(), two - two.mean()
    both = float(np.sqrt(np.sum(np.square(one)) * np.sum(np.square(two))))
    return float(np.sum(one * two)) / both if both > 0 else 0.0


def listed(numbers: list[int]) -> str:
    """Return channel numbers as text."""
    shown = " and ".join(map(str, numbers[:4])) + (" and others" if len(numbers) > 4 else "")
    return f"channel{'s' if len(numbers) > 1 else ''} {shown}"


def _depends(numbers: list[int]) -> str:
    return "depend" if len(numbers) > 1 else "depends"


def _some(wrong: Any, count: int) -> str:
    if count == 1:
        return "it"
    return listed([int(c) for c in wrong]) if len(wrong) <= 4 else f"{len(wrong)} of {count} channels"
