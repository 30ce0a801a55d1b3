"""Arrays with a different number of rows for each sample, such as the boxes of pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError


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
    >>> boxes = Ragged.of_rows([np.zeros((2, 4)), np.ones((0, 4)), np.ones((1, 4))])
    >>> len(boxes), boxes[0].shape, boxes[1].shape
    (3, (2, 4), (0, 4))
    """

    values: npt.NDArray[np.generic]
    counts: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts)
        if counts.ndim != 1 or (counts.size and counts.dtype.kind not in "iu") or not self.values.ndim:
            raise ConfigError("a ragged array needs rows, and for each sample a whole number of them")
        if counts.size and int(counts.min()) < 0:
            raise ConfigError("a sample of a ragged array cannot have fewer than no rows")
        if int(counts.sum()) != len(self.values):
            raise ConfigError(
                f"the samples of a ragged array hold {int(counts.sum()):,} rows, not {len(self.values):,}"
            )
        object.__setattr__(self, "counts", counts.astype(np.int64))

    @classmethod
    def of_rows(cls, rows: Sequence[npt.NDArray[np.generic]]) -> Ragged:
        """Return the ragged array of at least one sample, given the rows of each."""
        if not len(rows):
            raise ConfigError("a ragged array of no samples has no element type")
        return cls(np.concatenate(list(rows)), np.array([len(each) for each in rows], np.int64))

    @classmethod
    def of_padded(cls, values: npt.NDArray[np.generic], counts: npt.NDArray[np.integer]) -> Ragged:
        """Return the first ``counts[i]`` rows of each ``values[i]``; ``values`` is ``(samples, most, ...)``."""
        kept = np.arange(values.shape[1])[None, :] < np.asarray(counts)[:, None]
        return cls(values[kept], np.minimum(counts, values.shape[1]).astype(np.int64))

    @classmethod
    def joined(cls, parts: Iterable[Ragged]) -> Ragged:
        """Concatenate the samples of at least one ragged array."""
        parts = list(parts)
        return cls(np.concatenate([each.values for each in parts]), np.concatenate([each.counts for each in parts]))

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

    def same_as(self, other: Ragged) -> bool:
        """Return whether both hold the same rows for the same samples."""
        return np.array_equal(self.counts, other.counts) and np.array_equal(self.values, other.values)
