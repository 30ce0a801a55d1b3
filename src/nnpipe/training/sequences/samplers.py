"""Choosing and ordering the samples of an epoch."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Sampler(abc.ABC):
    """Chooses and orders samples; a pure function of its arguments."""

    @property
    def repeats(self) -> bool:
        """Whether a sample may occur more than once in an epoch."""
        return False

    def length(self, samples: int) -> int:
        """Return the number of samples in an epoch.

        Parameters
        ----------
        samples
            Number of samples in the data.
        """
        return samples

    @abc.abstractmethod
    def order(
        self, features: Mapping[str, Any], samples: int, random: np.random.Generator
    ) -> np.ndarray:
        """Return the indices of an epoch's samples, int64 ``(length,)``.

        Parameters
        ----------
        features
            All features by name.
        samples
            Number of samples in the data.
        random
            The generator of this epoch.
        """


@dataclass(frozen=True, kw_only=True)
class SequentialSampler(Sampler):
    """All samples in their order."""

    def order(
        self, features: Mapping[str, Any], samples: int, random: np.random.Generator
    ) -> np.ndarray:
        """Return 0, 1, 2, ..."""
        return np.arange(samples, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class RandomSampler(Sampler):
    """Samples in random order, each once.

    Parameters
    ----------
    samples
        The greatest number of samples in an epoch; None for all.
    """

    samples: int | None = None

    def __post_init__(self) -> None:
        check_call(RandomSampler, vars(self))

    def length(self, samples: int) -> int:
        """Return the number of samples in an epoch."""
        return samples if self.samples is None else min(samples, self.samples)

    def order(
        self, features: Mapping[str, Any], samples: int, random: np.random.Generator
    ) -> np.ndarray:
        """Return a permutation, or the beginning of one, int64 ``(length,)``."""
        return random.permutation(samples)[: self.length(samples)].astype(np.int64, copy=False)


@dataclass(frozen=True, kw_only=True)
class SubsetSampler(Sampler):
    """Some of the samples.

    Parameters
    ----------
    indices
        The indices of the samples, each once.
    shuffle
        Whether to use a random order instead of the given one.
    """

    indices: tuple[int, ...]
    shuffle: bool = False

    def __post_init__(self) -> None:
        check_call(SubsetSampler, vars(self))
        object.__setattr__(self, "indices", tuple(int(index) for index in self.indices))
        if len(set(self.indices)) != len(self.indices):
            raise ConfigError("SubsetSampler: an index is given twice")

    def length(self, samples: int) -> int:
        """Return the number of samples in an epoch."""
        return len(self.indices)

    def order(
        self, features: Mapping[str, Any], samples: int, random: np.random.Generator
    ) -> np.ndarray:
        """Return the indices."""
        chosen = np.array(self.indices, np.int64)
        wrong = chosen[(chosen < 0) | (chosen >= samples)]
        if len(wrong):
            raise ConfigError(f"SubsetSampler: there is no sample {wrong[0]}; there are {samples}")
        return random.permutation(chosen) if self.shuffle else chosen


@dataclass(frozen=True, kw_only=True)
class ClassBalancedSampler(Sampler):
    """Equally many samples of each class, in random order.

    Samples of small classes are repeated.  Within a class, the numbers of
    repetitions differ by at most one.

    Parameters
    ----------
    by
        The feature that holds the class of each sample.
    samples
        Number of samples in an epoch; None for as many as in the data.
    """

    by: str = "target"
    samples: int | None = None

    def __post_init__(self) -> None:
        check_call(ClassBalancedSampler, vars(self))

    @property
    def repeats(self) -> bool:
        """True: samples of small classes are repeated."""
        return True

    def length(self, samples: int) -> int:
        """Return the number of samples in an epoch."""
        return samples if self.samples is None else self.samples

    def order(
        self, features: Mapping[str, Any], samples: int, random: np.random.Generator
    ) -> np.ndarray:
        """Return the indices of each class's share, shuffled, int64 ``(length,)``."""
        if self.by not in features:
            raise ConfigError(
                f"ClassBalancedSampler: no feature {self.by!r}; there are {', '.join(features)}"
            )
        labels = np.asarray(features[self.by])
        if labels.ndim != 1:
            raise ConfigError(
                f"ClassBalancedSampler: {self.by!r} has shape {labels.shape}, not one class a "
                f"sample"
            )
        classes, of = np.unique(labels, return_inverse=True)
        total = self.length(samples)
        share = np.full(len(classes), total // len(classes))
        share[random.permutation(len(classes))[: total % len(classes)]] += 1
        drawn = []
        for number, wanted in enumerate(share):
            members = np.flatnonzero(of == number)
            rounds = [random.permutation(members) for _ in range(-(-int(wanted) // len(members)))]
            drawn.append(np.concatenate([members[:0], *rounds])[:wanted])
        return random.permutation(np.concatenate(drawn)).astype(np.int64, copy=False)


def count_repeats(order: np.ndarray) -> np.ndarray:
    """Return for each entry how often the same index occurs before it, int64 of the same shape."""
    by_index = np.argsort(order, kind="stable")
    ordered = order[by_index]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    first = np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    found = np.empty(len(order), np.int64)
    found[by_index] = np.arange(len(order)) - first
    return found


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
        Whether a sample can be drawn several times in an epoch.  Without, those of weight 0 are
        never drawn.
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

    def order(
        self, features: Mapping[str, Any], samples: int, random: np.random.Generator
    ) -> np.ndarray:
        """Return the indices, int64 ``(length,)``.

        Raises
        ------
        ConfigError
            If a weight is negative or no number, all are 0, or too few are above 0.
        """
        weights = _get_numbers(self, features, self.by)
        if not np.isfinite(weights).all() or weights.min(initial=0) < 0 or not weights.sum() > 0:
            raise ConfigError(
                f"WeightedSampler: weights in {self.by!r} must be 0 or more, and not all 0"
            )
        wanted = self.length(samples)
        if self.replacement:
            bounds = np.cumsum(weights)
            drawn = np.searchsorted(bounds, random.random(wanted) * bounds[-1], side="right")
            last = int(np.flatnonzero(weights)[-1])  # where rounding leads beyond the end
            return np.array(np.minimum(drawn, last), np.int64)
        if wanted > np.count_nonzero(weights):
            raise ConfigError(
                f"WeightedSampler: {wanted} samples without replacement, and "
                f"{np.count_nonzero(weights)} have a weight"
            )
        # Keys of Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006, in
        # logarithms.
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
            raise ConfigError(
                f"LengthSampler: batch and window take 1 or more, not {self.batch} and "
                f"{self.window}"
            )

    def order(
        self, features: Mapping[str, Any], samples: int, random: np.random.Generator
    ) -> np.ndarray:
        """Return the indices, int64 ``(samples,)``; a smaller batch comes last."""
        lengths = _get_numbers(self, features, self.by)
        shuffled = random.permutation(samples)
        size = self.batch * self.window
        parts = [shuffled[start : start + size] for start in range(0, samples, size)]
        ordered = np.concatenate(
            [part[np.argsort(lengths[part], kind="stable")] for part in parts or [shuffled]]
        )
        whole = samples // self.batch
        blocks = random.permutation(whole)
        full = ordered[: whole * self.batch].reshape(whole, self.batch)[blocks].reshape(-1)
        return np.concatenate([full, ordered[whole * self.batch :]]).astype(np.int64)


def _get_numbers(sampler: Sampler, features: Mapping[str, Any], by: str) -> np.ndarray:
    name = type(sampler).__name__
    if by not in features:
        raise ConfigError(f"{name}: no feature {by!r}; there are {', '.join(features)}")
    found = np.asarray(features[by])
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise ConfigError(
            f"{name}: {by!r} has shape {found.shape} of {found.dtype}, not one number a sample"
        )
    return found.astype(np.float64)
