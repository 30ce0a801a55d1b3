"""Batches of samples in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._content_digest import digest_of, named
from nnpipe.training.sequences.randomness import order_generator
from nnpipe.training.sequences.samplers import Sampler, SequentialSampler, repeats_of
from nnpipe.training.sequences.sequence import Sequence, Stream, positive


class ArraySequence(Sequence):
    """Batches from arrays and lists.

    Parameters
    ----------
    features
        Arrays and lists by name, whose first axis counts the samples.  The optional
        ``"sample_id"``, int64 ``(n,)``, gives the ids; without it they count from 0.
        Arrays may be memory-mapped files (``numpy.load(..., mmap_mode="r")``).
    batch
        Number of samples in a batch.
    sampler
        Chooses and orders the samples; by default all, in their order.
    seed
        Seed of the order.
    drop_last
        Whether to leave out a smaller last batch.
    """

    def __init__(
        self,
        features: Mapping[str, Any],
        *,
        batch: int = 32,
        sampler: Sampler | None = None,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        check_call(ArraySequence, locals())
        super().__init__()
        self._features = {name: _column(name, value) for name, value in features.items()}
        lengths = {name: len(value) for name, value in self._features.items()}
        if len(set(lengths.values())) != 1:
            found = ", ".join(f"{name}: {length}" for name, length in lengths.items()) or "no features"
            raise ConfigError(f"all features must have the same number of samples; found {found}")
        self._samples = next(iter(lengths.values()))
        self._ids = self._features.pop("sample_id", None)
        if self._ids is not None:
            self._ids = _ids(self._ids)
        self._batch = positive("batch", batch)
        self._sampler = sampler if sampler is not None else SequentialSampler()
        self._seed = seed
        self._drop_last = drop_last

    def _stop(self, length: int) -> int:
        return length - length % self._batch if self._drop_last else length

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch."""
        stop = self._stop(self._sampler.length(self._samples))
        return [self._batch] * (stop // self._batch) + [stop % self._batch] * (stop % self._batch > 0)

    def settings(self) -> dict[str, Any]:
        """Return how samples are ordered and cut, and a digest of their content."""
        ids = {} if self._ids is None else {"sample_id": self._ids}
        return {
            "samples": self._samples,
            "batch": self._batch,
            "sampler": named(self._sampler),
            "seed": self._seed,
            "drop_last": self._drop_last,
            "features": sorted(self._features),
            "content": digest_of({**self._features, **ids}),
        }

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the number of samples before it."""
        order = self._sampler.order(self._features, self._samples, order_generator(self._seed, epoch))
        repeats = repeats_of(order) if self._sampler.repeats else None
        ids, features, size = self._ids, list(self._features.items()), self._batch
        stop = self._stop(len(order))
        for begin in range(position or 0, stop, size):
            chosen = order[begin : begin + size]
            # The indices are known to be valid; without a check, numpy copies faster.
            batch = {
                name: [value[index] for index in chosen.tolist()]
                if type(value) is list
                else value.take(chosen, axis=0, mode="clip")
                for name, value in features
            }
            batch["sample_id"] = chosen.copy() if ids is None else ids.take(chosen)
            if repeats is not None:
                batch["sample_repeat"] = repeats[begin : begin + size].copy()
            yield batch, min(begin + size, stop)


def _column(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return list(value)
    column = np.asarray(value)
    if column.ndim == 0:
        raise ConfigError(f"{name!r} is a single value, not one a sample")
    return column


def _ids(value: Any) -> np.ndarray:
    ids = np.asarray(value)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ConfigError(f"'sample_id' must be whole numbers, one a sample, not {ids.dtype} of shape {ids.shape}")
    ids = ids.astype(np.int64)
    if len(np.unique(ids)) != len(ids):
        raise ConfigError("'sample_id' holds an id twice; ids must tell samples apart")
    return ids
