"""Joining the lists of a batch to arrays or tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._batching import checked, joined
from nnpipe.training.sequences._content_digest import named
from nnpipe.training.sequences.sequence import Batch, Sequence, Stream


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
        Whether to return PyTorch tensors instead of arrays of numbers, except for the ids.  They share the
        arrays' memory.
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
        return {"collate": None if self._function is None else named(self._function), "pad": self._pad}

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
                    batch = checked(self._function(batch), batch["sample_id"], "what the function of collate gave")
                yield {name: self._collated(name, value) for name, value in batch.items()}, after
        finally:
            source.close()

    def _collated(self, name: str, value: Any) -> Any:
        if isinstance(value, list) and value:
            value = joined(value)
            if isinstance(value, list) and hasattr(value[0], "__array__"):
                value = self._padded(name, [np.asarray(item) for item in value])
        if self._tensors and name != "sample_id" and isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            import torch

            return torch.from_numpy(value)
        return value

    def _padded(self, name: str, arrays: list[np.ndarray]) -> np.ndarray:
        shapes = sorted({array.shape for array in arrays})
        if self._pad is None and len(shapes) > 1:
            raise ConfigError(f"{name!r} has shapes {shapes[0]} and {shapes[-1]} in one batch; give collate(pad=...)")
        if len({len(shape) for shape in shapes}) != 1:
            raise ConfigError(f"{name!r} has arrays of {len(shapes[0])} and of {len(shapes[-1])} axes in one batch")
        longest = tuple(max(lengths) for lengths in zip(*shapes, strict=True))
        fill = 0 if self._pad is None else self._pad
        found = np.full((len(arrays), *longest), fill, np.result_type(*arrays))
        for place, array in enumerate(arrays):
            corner = tuple(slice(length) for length in array.shape)
            found[place][corner] = array
        return found
