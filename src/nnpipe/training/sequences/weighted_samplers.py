"""Samplers that follow numbers of the samples: their weights, or their lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.samplers import Sampler


@dataclass(frozen=True, kw_only=True)
class WeightedSampler(Sampler):
    """Samples with probabilities in proportion to their weights.

    Parameters
    ----------
    by
        The feature that holds the weight of each sample, 0 or more.
    samples
        Number of samples in an epoch; None for as many as in the data.
    replacement
        Whether a sample can be drawn several times in an epoch.  Without, those of weight 0 are never drawn.
    """

    by: str = "weight"
    samples: int | None = None
    replacement: bool = True

    def __post_init__(self) -> None:
        check_call(WeightedSampler, vars(self))

    @property
    def repeats(self) -> bool:
        """Whether samples can be drawn several times."""
        return self.replacement

    def length(self, samples: int) -> int:
        """Return the number of samples in an epoch."""
        wanted = samples if self.samples is None else self.samples
        return wanted if self.replacement else min(wanted, samples)

    def order(self, features: Mapping[str, Any], samples: int, random: np.random.Generator) -> np.ndarray:
        """Return the indices, int64 ``(length,)``.

        Raises
        ------
        ConfigError
            If a weight is negative or no number, all are 0, or too few are above 0.
        """
        weights = _numbers(self, features, self.by)
        if not np.isfinite(weights).all() or weights.min(initial=0) < 0 or not weights.sum() > 0:
            raise ConfigError(f"WeightedSampler: weights in {self.by!r} must be 0 or more, and not all 0")
        wanted = self.length(samples)
        if self.replacement:
            bounds = np.cumsum(weights)
            drawn = np.searchsorted(bounds, random.random(wanted) * bounds[-1], side="right")
            last = int(np.flatnonzero(weights)[-1])  # where rounding leads beyond the end
            return np.array(np.minimum(drawn, last), np.int64)
        if wanted > np.count_nonzero(weights):
            raise ConfigError(
                f"WeightedSampler: {wanted} samples without replacement, and {np.count_nonzero(weights)} have a weight"
            )
        # Keys of Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006, in logarithms.
        with np.errstate(divide="ignore"):
            keys = random.standard_exponential(samples) / weights
        first: np.ndarray = np.argsort(keys, kind="stable")[:wanted]
        return first.astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class LengthSampler(Sampler):
    """All samples, such that neighbours are of like length and little of a batch is filled up.

    Samples are shuffled and sorted within windows; then the batches of all windows are shuffled.

    Parameters
    ----------
    by
        The feature that holds the length of each sample.
    batch
        Number of samples in a batch, as the sequence has it.
    window
        Number of batches that are sorted together.
    """

    by: str = "length"
    batch: int = 32
    window: int = 100

    def __post_init__(self) -> None:
        check_call(LengthSampler, vars(self))
        if self.batch < 1 or self.window < 1:
            raise ConfigError(f"LengthSampler: batch and window take 1 or more, not {self.batch} and {self.window}")

    def order(self, features: Mapping[str, Any], samples: int, random: np.random.Generator) -> np.ndarray:
        """Return the indices, int64 ``(samples,)``; a smaller batch comes last."""
        lengths = _numbers(self, features, self.by)
        shuffled = random.permutation(samples)
        size = self.batch * self.window
        parts = [shuffled[start : start + size] for start in range(0, samples, size)]
        ordered = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts or [shuffled]])
        whole = samples // self.batch
        blocks = random.permutation(whole)
        full = ordered[: whole * self.batch].reshape(whole, self.batch)[blocks].reshape(-1)
        return np.concatenate([full, ordered[whole * self.batch :]]).astype(np.int64)


def _numbers(sampler: Sampler, features: Mapping[str, Any], by: str) -> np.ndarray:
    name = type(sampler).__name__
    if by not in features:
        raise ConfigError(f"{name}: no feature {by!r}; there are {', '.join(features)}")
    found = np.asarray(features[by])
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise ConfigError(f"{name}: {by!r} has shape {found.shape} of {found.dtype}, not one number a sample")
    return found.astype(np.float64)
