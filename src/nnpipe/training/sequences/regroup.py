"""Cutting the same samples into other batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._batching import (
    join_values,
    merge_batches,
    slice_batch,
    validate_batch,
)
from nnpipe.training.sequences._content_digest import describe_callable
from nnpipe.training.sequences.sequence import Batch, Sequence, Stream, require_positive


class _Regrouped(Sequence):
    def __init__(self, source: Sequence, number: int) -> None:
        super().__init__(source)
        self._number = require_positive("the number", number)

    def settings(self) -> dict[str, Any]:
        """Return the number that it was made with."""
        return {"number": self._number}

    def _get_source(self) -> Sequence:
        assert self.source is not None
        return self.source


class Grouped(_Regrouped):
    """Joins every ``number`` batches of the source into one."""

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch."""
        sizes, number = self._get_source().sizes(), self._number
        return [sum(sizes[start : start + number]) for start in range(0, len(sizes), number)]

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the source's."""
        parts, after = [], position
        source = self._get_source().stream(epoch, position)
        try:
            for batch, after in source:
                parts.append(batch)
                if len(parts) == self._number:
                    yield merge_batches(parts), after
                    parts = []
            if parts:
                yield merge_batches(parts), after
        finally:
            source.close()


class Rebatched(_Regrouped):
    """Batches of exactly ``number`` samples.

    Parameters
    ----------
    source
        The sequence that batches come from.
    number
        Number of samples in a batch.
    drop_last
        Whether to leave out a smaller last batch.
    """

    def __init__(self, source: Sequence, number: int, *, drop_last: bool = False) -> None:
        check_call(Rebatched, locals())
        super().__init__(source, number)
        self._drop_last = drop_last

    def settings(self) -> dict[str, Any]:
        """Return the number of samples, and whether a smaller last batch is left out."""
        return {"number": self._number, "drop_last": self._drop_last}

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch."""
        full, rest = divmod(sum(self._get_source().sizes()), self._number)
        return [self._number] * full + [rest] * (rest > 0 and not self._drop_last)

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the source's before the remaining samples, and how
        many to skip there.
        """
        before, skip = position if position is not None else (None, 0)
        parts: list[dict[str, Any]] = []
        held, number = 0, self._number
        source = self._get_source().stream(epoch, before)
        try:
            for batch, after in source:
                size = len(batch["sample_id"])
                start = min(skip, size)
                skip -= start
                while held + size - start >= number:
                    stop = start + number - held
                    if stop > start:
                        parts.append(slice_batch(batch, start, stop))
                    made, parts, held, start = merge_batches(parts), [], 0, stop
                    yield made, ([after, 0] if start == size else [before, start])
                if start < size:
                    parts.append(slice_batch(batch, start, size))
                    held += size - start
                before = after
            if parts and not self._drop_last:
                yield merge_batches(parts), [after, 0]
        finally:
            source.close()


class SubBatched(_Regrouped):
    """Cuts each batch of the source into parts of at most ``number`` samples."""

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch."""
        number = self._number
        return [
            min(number, size - start)
            for size in self._get_source().sizes()
            for start in range(0, size, number)
        ]

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the source's before a batch, and the number of its
        samples delivered.
        """
        before, given = position if position is not None else (None, 0)
        source = self._get_source().stream(epoch, before)
        try:
            for batch, after in source:
                size = len(batch["sample_id"])
                for start in range(given, size, self._number):
                    stop = min(start + self._number, size)
                    yield (
                        slice_batch(batch, start, stop),
                        ([after, 0] if stop == size else [before, stop]),
                    )
                before, given = after, 0
        finally:
            source.close()


class MaxSamples(_Regrouped):
    """The first ``number`` samples of each epoch."""

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch."""
        found, left = [], self._number
        for size in self._get_source().sizes():
            if left <= 0:
                break
            found.append(min(size, left))
            left -= size
        return found

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the source's, and the number of samples so far."""
        before, given = position if position is not None else (None, 0)
        if given >= self._number:
            return
        source = self._get_source().stream(epoch, before)
        try:
            for batch, after in source:
                batch = slice_batch(batch, 0, self._number - given)
                given += len(batch["sample_id"])
                yield batch, [after, given]
                if given >= self._number:
                    return
        finally:
            source.close()


class CollateSequence(Sequence):
    """Joins the lists of a batch to arrays or tensors.

    Strings, and other values that are neither numbers nor arrays, stay lists.

    Parameters
    ----------
    source
        Where batches come from.
    function
        Takes a batch and returns one; it is applied first.
    pad
        The value that pads arrays of different shapes at their ends; None raises an
        error for them.  All must have the same number of axes.
    tensors
        Whether to return PyTorch tensors instead of arrays of numbers, except for the ids.  They
        share the arrays' memory.
    """

    def __init__(
        self,
        source: Sequence,
        function: Callable[[Batch], Batch] | None = None,
        *,
        pad: float | None = None,
        tensors: bool = False,
    ) -> None:
        check_call(CollateSequence, locals())
        super().__init__(source)
        self._function = function
        self._pad = pad
        self._tensors = tensors

    def settings(self) -> dict[str, Any]:
        """Return the settings by which lists become arrays."""
        return {
            "collate": None if self._function is None else describe_callable(self._function),
            "pad": self._pad,
        }

    def sizes(self) -> list[int]:
        """Return the source's sizes."""
        assert self.source is not None
        return self.source.sizes()

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the source's."""
        assert self.source is not None
        source = self.source.stream(epoch, position)
        try:
            for batch, after in source:
                if self._function is not None:
                    batch = validate_batch(
                        self._function(batch),
                        batch["sample_id"],
                        "what the function of collate gave",
                    )
                yield (
                    {name: self._collate_value(name, value) for name, value in batch.items()},
                    after,
                )
        finally:
            source.close()

    def _collate_value(self, name: str, value: Any) -> Any:
        if isinstance(value, list) and value:
            value = join_values(value)
            if isinstance(value, list) and hasattr(value[0], "__array__"):
                value = self._pad_arrays(name, [np.asarray(item) for item in value])
        if (
            self._tensors
            and name != "sample_id"
            and isinstance(value, np.ndarray)
            and value.dtype.kind in "biuf"
        ):
            import torch

            return torch.from_numpy(value)
        return value

    def _pad_arrays(self, name: str, arrays: list[np.ndarray]) -> np.ndarray:
        shapes = sorted({array.shape for array in arrays})
        if self._pad is None and len(shapes) > 1:
            raise ConfigError(
                f"{name!r} has shapes {shapes[0]} and {shapes[-1]} in one batch; give "
                f"collate(pad=...)"
            )
        if len({len(shape) for shape in shapes}) != 1:
            raise ConfigError(
                f"{name!r} has arrays of {len(shapes[0])} and of {len(shapes[-1])} axes in one "
                f"batch"
            )
        longest = tuple(max(lengths) for lengths in zip(*shapes, strict=True))
        fill = 0 if self._pad is None else self._pad
        found = np.full((len(arrays), *longest), fill, np.result_type(*arrays))
        for place, array in enumerate(arrays):
            corner = tuple(slice(length) for length in array.shape)
            found[place][corner] = array
        return found
