"""Errors and noise of tensors, channel by channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Signal and noise of a tensor, channel by channel.
#
# A value for the whole tensor hides single channels: with two of 64 exchanged, it is still 15 dB.
# So signal and noise are powers of single channels, and a tensor is judged by the median and the
# lowest of their ratios.

Array = npt.NDArray[np.float64]

FAINT = 0.01
"""The least signal power of a channel, relative to the mean power of channels; weaker channels
count as this.
"""

_MOST = 200.0  # decibels; larger ratios, also those without noise, are limited to this
_MOST_AXES = 5  # with more axes, other orders are not tried
_MOST_LEVELS = 256  # values that an 8-bit integer can take
_CUT = 0.02  # share of values that may lie outside the range of a calibration
_CHANCE = 3.0  # standard deviations of their number


def reshape_to_channels(array: npt.NDArray[np.generic], axis: int) -> Array:
    """Return ``(channels, values)``; a tensor without an axis of channels is one channel."""
    values = np.asarray(array, np.float64)
    if values.ndim < 2:
        return values.reshape(1, -1)
    axis = min(axis % values.ndim, values.ndim - 1)
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def compute_mean_square(values: Array) -> Array:
    """Return the mean square along the last axis; infinite if a value is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Array = np.mean(np.square(values), axis=-1)
    return np.where(np.isfinite(found), found, np.inf)


def compute_noise_to_signal(expected: Array, found: Array) -> float:
    """Return the power of the difference divided by that of the expected values, for all values
    together.
    """
    signal, noise = (
        float(compute_mean_square(expected.ravel())),
        float(compute_mean_square((found - expected).ravel())),
    )
    if noise == 0:
        return 0.0
    return noise / signal if signal > 0 else np.inf


def to_decibels(signal: npt.ArrayLike, noise: npt.ArrayLike) -> Array:
    """Return the ratio in decibels; infinite without noise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Array = 10 * np.log10(np.asarray(signal, np.float64) / np.asarray(noise, np.float64))
    return np.where(np.asarray(noise) == 0, np.inf, np.where(np.isnan(ratio), -np.inf, ratio))


def to_bounded_decibels(signal: npt.ArrayLike, noise: npt.ArrayLike) -> Array:
    """Return :func:`to_decibels`, limited to the range from -200 to 200."""
    return np.clip(to_decibels(signal, noise), -_MOST, _MOST)


def find_quantization_step(values: npt.NDArray[np.generic]) -> float:
    """Return the quantisation step of values that have at most as many levels as 8 bits; otherwise
    0.

    Quantised tensors are recognised by their values alone, for any framework.
    """
    flat = np.asarray(values, np.float64).ravel()
    levels = np.unique(flat[: 1 << 18])
    if not 2 <= len(levels) <= _MOST_LEVELS or len(levels) > len(flat) / 4:
        return 0.0
    gaps = np.diff(levels)
    step = float(gaps.min())
    # Distances of quantised levels are multiples of the step; those of values that repeat by chance
    # are not.
    even = (
        np.abs(gaps / step - np.rint(gaps / step)) < 0.02 * np.maximum(1, gaps / step)
        if step > 0
        else np.array([])
    )
    return step if even.size and even.all() else 0.0


def clip_to_found_range(expected: Array, found: Array) -> Array:
    """Return the expected values, clipped to the range of the found ones if only few values lie
    outside.

    The range of a quantised tensor is that of the calibration samples.  Values of
    other samples may exceed it even if the conversion is correct.
    """
    if not find_quantization_step(found):
        return expected
    cut = np.clip(expected, found.min(), found.max())
    usual = _CUT * cut.size
    # Of few values, some more may lie outside by chance.
    return (
        cut if np.count_nonzero(cut != expected) <= usual + _CHANCE * np.sqrt(usual) else expected
    )


def round_to_8_bits(values: Array) -> Array:
    """Return values rounded to the 256 steps of a range that has all of them and 0, as of
    dynamic quantisation.
    """
    step = (max(float(values.max()), 0.0) - min(float(values.min()), 0.0)) / (_MOST_LEVELS - 1)
    return np.rint(values / step) * step if step > 0 and np.isfinite(step) else values


def iter_axis_orders(
    shape: tuple[int, ...], wanted: tuple[int, ...]
) -> Iterator[tuple[int, ...] | None]:
    """Yield the orders of axes that convert a tensor of one shape to another.

    ``None`` stands for reshaping, if the shapes differ only by axes of length 1.
    The usual orders come first: unchanged, channels from the second to the last
    axis, and back.
    """
    if shape == wanted:
        yield tuple(range(len(shape)))
    rank = len(shape)
    if rank == len(wanted) and 3 <= rank <= _MOST_AXES:
        first, last = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
        for order in (last, first):
            if tuple(shape[axis] for axis in order) == wanted and order != tuple(range(rank)):
                yield order
    elif tuple(n for n in shape if n != 1) == tuple(n for n in wanted if n != 1):
        yield None


def apply_axis_order(
    array: npt.NDArray[np.generic], order: tuple[int, ...] | None, shape: tuple[int, ...]
) -> Array:
    """Convert a tensor to another shape, by one of its :func:`iter_axis_orders`."""
    turned = np.asarray(array, np.float64)
    return turned.reshape(shape) if order is None else turned.transpose(order)


COARSE = 15.0
"""The median ratio of channels in decibels below which a tensor loses so much that few channels
keep their values.
"""
COARSE_CHANNEL = 20.0
"""The ratio of a single channel below which it is lost."""
_QUIET = 0.1  # of the usual signal: rounding alone takes a channel with less by 10 decibels
_APART = 10.0  # decibels below the usual tensor of the model
_ALONE = 18.0  # decibels of a single channel below the usual one of its tensor
_NAMED_CHANNELS = 3


@dataclass(frozen=True)
class TensorError:
    """The error of one tensor, as signal-to-noise ratios in decibels; the higher, the better.

    Parameters
    ----------
    operation, tensor
        The operation of the model and its result.
    source, kind
        The operation of the source that it is compared with, and its kind in the framework's word.
    median, lowest, whole
        The median and the lowest ratio of the channels that carry a signal, and that of all values
        together.  The last one does not see channels that are small beside others.
    channels
        The ratio of each channel.
    within
        The operations with weights of the source whose error it is: those between it and the
        tensors before it.
    """

    operation: str
    tensor: str
    source: str
    kind: str
    median: float
    lowest: float
    whole: float
    channels: tuple[float, ...]
    within: tuple[str, ...] = ()

    @property
    def worst_channels(self) -> tuple[int, ...]:
        """Return the numbers of the channels with the lowest ratios, the worst first."""
        return tuple(
            int(place) for place in np.argsort(self.channels, kind="stable")[:_NAMED_CHANNELS]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the error as JSON can hold it."""
        return {**asdict(self), "channels": [round(value, 2) for value in self.channels]}


class ErrorSums:
    """Adds up signal and noise of a tensor's channels over samples.

    Examples
    --------
    >>> sums = ErrorSums()
    >>> sums.add(np.array([[8.0, 0.1]]), np.array([[8.0, 0.11]]), axis=1)
    >>> [round(value) for value in sums.error("conv", "y", "conv", "Conv").channels]
    [200, 20]
    """

    def __init__(self) -> None:
        self._signal: Array | None = None
        self._noise: Array | None = None

    def add(self, expected: Array, found: Array, axis: int) -> None:
        """Add a tensor of one or more samples; ``axis`` is that of the channels."""
        ours, theirs = reshape_to_channels(expected, axis), reshape_to_channels(found, axis)
        signal, noise = np.square(ours).sum(axis=1), np.square(theirs - ours).sum(axis=1)
        self._signal = signal if self._signal is None else self._signal + signal
        self._noise = noise if self._noise is None else self._noise + noise

    def error(
        self, operation: str, tensor: str, source: str, kind: str, within: tuple[str, ...] = ()
    ) -> TensorError:
        """Return the ratios.

        Channels with less than a hundredth of the usual signal do not count to the median, nor
        those with less than a tenth to the lowest.
        """
        if self._signal is None or self._noise is None:
            raise ValueError("nothing was added")
        levels = to_bounded_decibels(self._signal, self._noise)
        mean = float(self._signal.mean())
        # The mean may be that of a few large channels, beside which all others are faint.
        usual = min(mean, float(np.median(self._signal)))
        carrying, loud = (
            levels[(self._signal >= least * usual) & (self._signal > 0)] if mean > 0 else levels
            for least in (FAINT, _QUIET)
        )
        whole = float(to_bounded_decibels(self._signal.sum(), self._noise.sum()))
        return TensorError(
            operation,
            tensor,
            source,
            kind,
            float(np.median(carrying)),
            float(loud.min()),
            whole,
            tuple(levels.tolist()),
            within,
        )


def find_outliers(errors: tuple[TensorError, ...]) -> tuple[TensorError, ...]:
    """Return the tensors that lose far more than the others of the model, the worst first; none of
    a sound model.

    A tensor is judged by the median of its channels, and if that is as usual, by its worst channel.
    The results of a softmax are left out: all but the greatest may become 0, which changes no
    decision.
    """
    judged = [each for each in errors if "softmax" not in each.kind.lower()]
    if not judged:
        return ()
    usual = float(np.median([each.median for each in judged]))
    whole = [each for each in judged if each.median < min(COARSE, usual - _APART)]
    single = [
        each
        for each in judged
        if each not in whole and each.lowest < min(COARSE_CHANNEL, each.median - _ALONE)
    ]
    whole.sort(key=lambda each: each.median)
    return (*whole, *sorted(single, key=lambda each: each.lowest))


# How much each tensor of a network would suffer from 8-bit integers, found from its values in
# floats alone.
#
# A tensor is rounded to the 256 steps of one scale, as quantisers do with activations, and compared
# with itself channel by channel.  The median of the channels' signal-to-noise ratios tells which
# tensors lose accuracy: if one channel is far larger than the others, little is left of *most*
# channels, while the ratio of the whole tensor is that of the large channel and looks sound.  Of a
# network with three such channels, the median gave 0.3, 0.4 and 0.8 dB for these tensors and 29.7
# dB and more for all others; whole tensors gave 33 to 41 dB.

_STEPS = 255


class RoundingNoise:
    """The noise that rounding to 8 bits would add to the tensors of a network.

    First give all samples to :meth:`observe`, which finds the ranges of the tensors, and then again
    to :meth:`add`.

    Parameters
    ----------
    axis
        The axis of channels.

    Examples
    --------
    >>> values = {"even": np.linspace(-1, 1, 512).reshape(1, 2, 256)}
    >>> values["uneven"] = values["even"] * np.array([1, 1000])[:, None]
    >>> noise = RoundingNoise()
    >>> noise.observe(values)
    >>> noise.add(values)
    >>> [name for name, _ in noise.rank_tensors()]
    ['uneven', 'even']
    """

    def __init__(self, axis: int = 1) -> None:
        self._axis = axis
        self._ranges: dict[str, tuple[float, float]] = {}
        self._powers: dict[str, tuple[Array, Array]] = {}

    def observe(self, values: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Extend the ranges of tensors; those that are no floats or not finite are left out."""
        for name, array in values.items():
            if array.dtype.kind != "f" or not array.size:
                continue
            least, most = self._ranges.get(name, (0.0, 0.0))  # quantisers represent 0 exactly
            self._ranges[name] = min(least, float(array.min())), max(most, float(array.max()))

    def add(self, values: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Add the signal and the noise of samples; tensors that have not been observed are left
        out.
        """
        for name, array in values.items():
            low, high = self._ranges.get(name, (0.0, 0.0))
            step = (high - low) / _STEPS
            if not (step > 0 and np.isfinite(step)):
                continue
            rows = reshape_to_channels(array, self._axis)
            zero = np.rint(low / step)
            rounded = (np.clip(np.rint(rows / step), zero, zero + _STEPS)) * step
            found = compute_mean_square(rows), compute_mean_square(rounded - rows)
            known = self._powers.get(name)
            if known is None:
                self._powers[name] = found
            elif known[0].shape == found[0].shape:
                self._powers[name] = known[0] + found[0], known[1] + found[1]

    def rank_tensors(self) -> list[tuple[str, float]]:
        """Return the tensors with the median ratio of their channels in decibels, the worst first.

        Channels that are always 0 do not count.
        """
        found = []
        for name, (signal, noise) in self._powers.items():
            live = signal > 0
            if live.any():
                found.append(
                    (name, float(np.median(to_bounded_decibels(signal[live], noise[live]))))
                )
        return sorted(found, key=lambda pair: pair[1])


_ALIKE = 0.9  # correlation above which a channel is taken for another one
_MANY = 64  # the most wrong channels that are compared with others


def describe_error(expected: Array, found: Array) -> str:
    """Describe how values, of shape ``(channels, values)``, differ from the expected ones."""
    signal, noise = compute_mean_square(expected), compute_mean_square(found - expected)
    if not np.isfinite(noise).all():
        return (
            f"{int(np.count_nonzero(~np.isfinite(noise)))} of {len(noise)} channels are not finite"
        )
    heard = np.maximum(signal, FAINT * float(np.mean(signal)))
    levels = to_bounded_decibels(heard, noise)
    wrong = np.flatnonzero(levels < levels.min() + 15.0)
    told = f"{float(to_bounded_decibels(np.mean(signal), np.mean(noise))):.1f} dB"
    silent = [int(c) for c in wrong if np.ptp(found[c]) == 0 and np.ptp(expected[c]) > 0]
    if silent and len(silent) == len(wrong):
        return (
            f"{format_channels(silent)} no longer {_choose_verb_form(silent)} on the input ({told})"
        )
    if 1 < len(wrong) <= _MANY:
        others = _find_source_channels(expected, found, wrong)
        if (
            others
            and all(source != channel for channel, source in others.items())
            and len(others) == len(wrong)
        ):
            return (
                f"{format_channels(list(others))} hold what belongs into "
                f"{format_channels(list(others.values()))} ({told})"
            )
    return (
        f"{_describe_error_kind(expected[wrong], found[wrong])} in "
        f"{_describe_channels(wrong, len(expected))} ({told})"
    )


def _describe_error_kind(expected: Array, found: Array) -> str:
    difference = found - expected
    factor = (
        float(np.sum(expected * found) / np.sum(np.square(expected))) if np.any(expected) else 1.0
    )
    rest = float(np.mean(np.square(found - factor * expected)))
    all_of_it = float(np.mean(np.square(difference)))
    if abs(factor - 1) > 0.02 and rest < 0.05 * all_of_it:
        return f"values are {factor:.3g} times what they should be"
    constant = difference.mean(1, keepdims=True)
    if float(np.mean(np.square(difference - constant))) < 0.2 * all_of_it:
        same = np.ptp(constant) < 0.1 * float(np.max(np.abs(constant)))
        return (
            f"values are off by {float(constant[0, 0]):.3g}"
            if same
            else "values are off by a constant of each channel"
        )
    highest, lowest = found.max(), found.min()
    beyond = (expected > highest) | (expected < lowest)
    if float(np.sum(np.square(difference[beyond]))) > 0.8 * float(np.sum(np.square(difference))):
        return f"values are cut off at {lowest:.3g} and {highest:.3g}"
    together = _compute_correlation(expected.ravel(), found.ravel())
    return "values are other ones" if together < 0.5 else "there is noise"


def _find_source_channels(expected: Array, found: Array, wrong: Any) -> dict[int, int]:
    """Return for wrong channels the channel whose values they contain."""
    others: dict[int, int] = {}
    for channel in wrong:
        alike = [_compute_correlation(expected[c], found[channel]) for c in range(len(expected))]
        best = int(np.argmax(alike))
        if alike[best] > _ALIKE:
            others[int(channel)] = best
    return others


def _compute_correlation(one: Array, two: Array) -> float:
    one, two = one - one.mean(), two - two.mean()
    both = float(np.sqrt(np.sum(np.square(one)) * np.sum(np.square(two))))
    return float(np.sum(one * two)) / both if both > 0 else 0.0


def format_channels(numbers: list[int]) -> str:
    """Return channel numbers as text."""
    shown = " and ".join(map(str, numbers[:4])) + (" and others" if len(numbers) > 4 else "")
    return f"channel{'s' if len(numbers) > 1 else ''} {shown}"


def _choose_verb_form(numbers: list[int]) -> str:
    return "depend" if len(numbers) > 1 else "depends"


def _describe_channels(wrong: Any, count: int) -> str:
    if count == 1:
        return "it"
    return (
        format_channels([int(c) for c in wrong])
        if len(wrong) <= 4
        else f"{len(wrong)} of {count} channels"
    )
