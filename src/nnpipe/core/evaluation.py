"""Evaluations: the arrays of predictions and truth from which quality metrics are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.tensors import Batch


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of all samples in one array, with the number of rows of each sample.

    Parameters
    ----------
    values
        The rows of all samples, one sample after the other; ``(rows, ...)``.
    counts
        The number of rows of each sample; ``(samples,)`` integers.

    Raises
    ------
    ConfigError
        If the counts are negative or do not add up to the number of rows.

    Examples
    --------
    >>> boxes = Ragged.from_rows([np.zeros((2, 4)), np.ones((0, 4)), np.ones((1, 4))])
    >>> len(boxes), boxes[0].shape, boxes[1].shape
    (3, (2, 4), (0, 4))
    """

    values: npt.NDArray[np.generic]
    counts: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts)
        if (
            counts.ndim != 1
            or (counts.size and counts.dtype.kind not in "iu")
            or not self.values.ndim
        ):
            raise ConfigError(
                "a ragged array needs rows, and for each sample a whole number of them"
            )
        if counts.size and int(counts.min()) < 0:
            raise ConfigError("a sample of a ragged array cannot have fewer than no rows")
        if int(counts.sum()) != len(self.values):
            raise ConfigError(
                f"the samples of a ragged array hold {int(counts.sum()):,} rows, not "
                f"{len(self.values):,}"
            )
        object.__setattr__(self, "counts", counts.astype(np.int64))

    @classmethod
    def from_rows(cls, rows: Sequence[npt.NDArray[np.generic]]) -> Ragged:
        """Return the ragged array of at least one sample, given the rows of each."""
        if not len(rows):
            raise ConfigError("a ragged array of no samples has no element type")
        return cls(np.concatenate(list(rows)), np.array([len(each) for each in rows], np.int64))

    @classmethod
    def from_padded(
        cls, values: npt.NDArray[np.generic], counts: npt.NDArray[np.integer]
    ) -> Ragged:
        """Return the first ``counts[i]`` rows of each ``values[i]``; ``values`` is ``(samples,
        most, ...)``.
        """
        kept = np.arange(values.shape[1])[None, :] < np.asarray(counts)[:, None]
        return cls(values[kept], np.minimum(counts, values.shape[1]).astype(np.int64))

    @classmethod
    def concat(cls, parts: Iterable[Ragged]) -> Ragged:
        """Concatenate the samples of at least one ragged array."""
        parts = list(parts)
        return cls(
            np.concatenate([each.values for each in parts]),
            np.concatenate([each.counts for each in parts]),
        )

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of each sample, and the number of all rows; ``(samples + 1,)``."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def owners(self) -> npt.NDArray[np.int64]:
        """The sample of each row; ``(rows,)``."""
        return np.repeat(np.arange(len(self)), self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, sample: int) -> npt.NDArray[np.generic]:
        return self.values[self.starts[sample] : self.starts[sample + 1]]

    def take(self, samples: npt.NDArray[np.integer]) -> Ragged:
        """Return some samples, in the order of ``samples``; one may occur repeatedly."""
        counts = self.counts[samples]
        shifts = self.starts[:-1][samples] - np.concatenate([[0], np.cumsum(counts)[:-1]])
        return Ragged(self.values[np.arange(int(counts.sum())) + np.repeat(shifts, counts)], counts)

    def has_same_rows(self, other: Ragged) -> bool:
        """Return whether both hold the same rows for the same samples."""
        return np.array_equal(self.counts, other.counts) and np.array_equal(
            self.values, other.values
        )


NOT_FINITE = "not_finite"
"""The array of an evaluation, and of a batch of predictions, that is true for samples whose outputs
are not all finite.

Only those have it that hold such a sample.
"""


def find_nonfinite_samples(batch: Batch, samples: int) -> npt.NDArray[np.bool_]:
    """Return for which samples a batch holds NaN or infinity, or is marked as
    :data:`NOT_FINITE`; ``(samples,)``.
    """
    found = np.zeros(samples, np.bool_)
    for name, array in batch.items():
        if not array.ndim or len(array) != samples:
            continue
        if name == NOT_FINITE:
            found |= array.astype(np.bool_)
        elif array.dtype.name.startswith(("float", "bfloat")):
            finite = np.isfinite(array)
            if not finite.all():
                found |= ~finite.reshape(samples, -1).all(axis=1)
    return found


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Per-sample arrays from which a task's metrics are computed.

    Each :class:`~nnpipe.core.task.Task` says which arrays it needs.  For a classification, these
    are ``truth`` and ``predicted``, which are class numbers, and ``rank``, the position of the true
    class when scores are sorted in descending order (0 means that the prediction is right).

    Parameters
    ----------
    task
        The name of the task, such as ``"regression"``.
    arrays
        Arrays by name, with one entry per sample along the first axis.
    class_names
        Names of the classes, ordered by class number.
    ragged
        Arrays with a different number of rows for each sample, by name; the boxes of a detection,
        for example.
    settings
        How the predictions were judged, as JSON can hold it: the arguments of the task, and other
        choices that change its metrics.

    Examples
    --------
    >>> import numpy as np
    >>> arrays = {"label": np.array([0, 1]), "prediction": np.array([0, 0])}
    >>> Evaluation("cats and dogs", arrays, ("cat", "dog")).class_names
    ('cat', 'dog')
    """

    task: str
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    ragged: Mapping[str, Ragged] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_call(Evaluation, vars(self))
        lengths = {*map(len, self.arrays.values()), *map(len, self.ragged.values())}
        if len(lengths) > 1:
            raise ConfigError(
                f"an evaluation needs arrays of one length, these have {sorted(lengths)}"
            )
        if twice := self.arrays.keys() & self.ragged.keys():
            raise ConfigError(f"two arrays of an evaluation have the name {min(twice)!r}")

    def __len__(self) -> int:
        lengths = (*map(len, self.arrays.values()), *map(len, self.ragged.values()))
        return lengths[0] if lengths else 0

    @property
    def not_finite(self) -> npt.NDArray[np.bool_]:
        """Which samples have no answer, since the model's outputs were NaN or infinite,
        ``(samples,)``.
        """
        held = self.arrays.get(NOT_FINITE)
        return np.zeros(len(self), np.bool_) if held is None else held.astype(np.bool_)

    def describe_nonfinite(self) -> str:
        """Return how many samples have no answer, as a clause; empty if all have one."""
        count = int(self.not_finite.sum())
        return (
            f"the outputs for {count:,} of {len(self):,} samples are NaN or infinite"
            if count
            else ""
        )

    def mark_not_finite(self, not_finite: npt.NDArray[np.bool_]) -> Evaluation:
        """Return the evaluation with these samples, too, marked as :attr:`not_finite`."""
        if not not_finite.any():
            return self
        arrays = {**self.arrays, NOT_FINITE: self.not_finite | not_finite}
        return Evaluation(self.task, arrays, self.class_names, self.ragged, self.settings)

    def take(self, samples: npt.NDArray[np.integer]) -> Evaluation:
        """Return the evaluation of some samples, in the order of ``samples``; one may occur
        repeatedly.
        """
        return Evaluation(
            self.task,
            {name: array[samples] for name, array in self.arrays.items()},
            self.class_names,
            {name: rows.take(samples) for name, rows in self.ragged.items()},
            self.settings,
        )

    def has_same_arrays(self, other: Evaluation, names: Iterable[str]) -> bool:
        """Return whether both hold these arrays, and all of them are equal."""
        for name in names:
            if name in self.arrays and name in other.arrays:
                if not np.array_equal(self.arrays[name], other.arrays[name]):
                    return False
            elif not (
                name in self.ragged
                and name in other.ragged
                and self.ragged[name].has_same_rows(other.ragged[name])
            ):
                return False
        return True

    @classmethod
    def concat(cls, parts: Iterable[Evaluation]) -> Evaluation:
        """Concatenate the evaluations of consecutive batches.

        Raises
        ------
        ConfigError
            If there are none, or they differ in task, arrays, class names or settings.
        """
        parts = list(parts)
        if not parts:
            raise ConfigError("nothing was evaluated: the split that was asked for is empty")
        if any(NOT_FINITE in part.arrays for part in parts):
            marks = [{**part.arrays, NOT_FINITE: part.not_finite} for part in parts]
            parts = [
                replace(part, arrays=arrays) for part, arrays in zip(parts, marks, strict=True)
            ]
        first = parts[0]
        kinds = {
            (part.task, part.class_names, frozenset(part.arrays), frozenset(part.ragged))
            for part in parts
        }
        if len(kinds) > 1 or any(part.settings != first.settings for part in parts):
            raise ConfigError("evaluations of different kinds cannot be joined")
        return cls(
            first.task,
            {name: np.concatenate([part.arrays[name] for part in parts]) for name in first.arrays},
            first.class_names,
            {name: Ragged.concat(part.ragged[name] for part in parts) for name in first.ragged},
            first.settings,
        )
