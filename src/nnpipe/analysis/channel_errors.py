"""Errors of tensors channel by channel, summed over samples that need not be in memory together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nnpipe.analysis.channel_noise import FAINT, Array, bounded, rows_of

COARSE = 15.0
"""The median ratio of channels in decibels below which a tensor loses so much that few channels keep their values."""
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
        The median and the lowest ratio of the channels that carry a signal, and that of all values together.  The last
        one does not see channels that are small beside others.
    channels
        The ratio of each channel.
    within
        The operations with weights of the source whose error it is: those between it and the tensors before it.
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
        return tuple(int(place) for place in np.argsort(self.channels, kind="stable")[:_NAMED_CHANNELS])

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
        ours, theirs = rows_of(expected, axis), rows_of(found, axis)
        signal, noise = np.square(ours).sum(axis=1), np.square(theirs - ours).sum(axis=1)
        self._signal = signal if self._signal is None else self._signal + signal
        self._noise = noise if self._noise is None else self._noise + noise

    def error(self, operation: str, tensor: str, source: str, kind: str, within: tuple[str, ...] = ()) -> TensorError:
        """Return the ratios.

        Channels with less than a hundredth of the usual signal do not count to the median, nor those with less than a
        tenth to the lowest.
        """
        if self._signal is None or self._noise is None:
            raise ValueError("nothing was added")
        levels = bounded(self._signal, self._noise)
        mean = float(self._signal.mean())
        # The mean may be that of a few large channels, beside which all others are faint.
        usual = min(mean, float(np.median(self._signal)))
        carrying, loud = (
            levels[(self._signal >= least * usual) & (self._signal > 0)] if mean > 0 else levels
            for least in (FAINT, _QUIET)
        )
        whole = float(bounded(self._signal.sum(), self._noise.sum()))
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


def outlying(errors: tuple[TensorError, ...]) -> tuple[TensorError, ...]:
    """Return the tensors that lose far more than the others of the model, the worst first; none of a sound model.

    A tensor is judged by the median of its channels, and if that is as usual, by its worst channel.  The results of a
    softmax are left out: all but the greatest may become 0, which changes no decision.
    """
    judged = [each for each in errors if "softmax" not in each.kind.lower()]
    if not judged:
        return ()
    usual = float(np.median([each.median for each in judged]))
    whole = [each for each in judged if each.median < min(COARSE, usual - _APART)]
    single = [each for each in judged if each not in whole and each.lowest < min(COARSE_CHANNEL, each.median - _ALONE)]
    whole.sort(key=lambda each: each.median)
    return (*whole, *sorted(single, key=lambda each: each.lowest))
