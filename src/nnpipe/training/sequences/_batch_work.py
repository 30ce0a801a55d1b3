"""Applying a map's function to a batch, in any process."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import TrainingError
from nnpipe.training.sequences._batching import IDENTITY, join_values, validate_batch
from nnpipe.training.sequences.randomness import sample_generator

# Errors of an input pipeline.
#
# ::
#
#     TrainingError
#     ├── TransformError   a function raised for a sample; ``sample_id`` says for which
#     └── WorkerError      a worker process died, was stuck, or could not start


class TransformError(TrainingError):
    """A function of a map raised.

    Parameters
    ----------
    message
        The error and its place, in one line.
    sample_id
        Id of the sample for which it raised; None if the function takes whole batches.
    sample_ids
        Ids of all samples of the batch.
    trace
        The traceback of the other process as text, if it happened there.
    """

    def __init__(
        self,
        message: str,
        sample_id: int | None = None,
        sample_ids: tuple[int, ...] = (),
        trace: str = "",
    ) -> None:
        check_call(TransformError, locals())
        super().__init__(message)
        self.sample_id = sample_id
        self.sample_ids = sample_ids
        self.trace = trace

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.sample_id, self.sample_ids, self.trace)


class WorkerError(TrainingError):
    """A worker process died, exceeded its time limit, or could not start; ``sample_ids`` are
    those it worked on.
    """

    def __init__(self, message: str, sample_ids: tuple[int, ...] = ()) -> None:
        check_call(WorkerError, locals())
        super().__init__(message)
        self.sample_ids = sample_ids


def format_ids(ids: Any) -> str:
    """Return the text that names samples in a message, only the first few of many."""
    known = np.asarray(ids).tolist()
    return ", ".join(map(str, known[:8])) + (
        f", ... ({len(known)} in all)" if len(known) > 8 else ""
    )


@dataclass(frozen=True, kw_only=True)
class ProcessedBatch:
    """The result of applying a function to a batch.

    Parameters
    ----------
    batch
        The resulting batch; None if no sample is left.
    samples
        Number of samples of the original batch.
    failures
        The errors of the samples that were left out.
    """

    batch: dict[str, Any] | None
    samples: int
    failures: list[TransformError] = field(default_factory=list)


class SampleGenerators(Sequence[np.random.Generator]):
    """One generator for each sample, made when it is used."""

    def __init__(
        self, seed: int, stage: int, epoch: int, ids: list[int], repeats: list[int]
    ) -> None:
        self._stream = (seed, stage, epoch)
        self._ids = ids
        self._repeats = repeats

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        return sample_generator(*self._stream, self._ids[index], self._repeats[index])

    def __iter__(self) -> Iterator[np.random.Generator]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True, kw_only=True)
class BatchWork:
    """A function and the way to apply it; see
    :class:`~nnpipe.training.sequences.map.MapSequence`.
    """

    function: Callable[..., Any]
    each: str
    seed: int
    stage: int
    drop: bool

    @property
    def name(self) -> str:
        """The name of the function in messages."""
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    def __call__(self, batch: dict[str, Any], epoch: int) -> ProcessedBatch:
        """Apply the function to a batch.

        Raises
        ------
        TransformError
            If the function raises, unless ``errors`` is ``"drop"``.
        """
        ids = batch["sample_id"].tolist()
        repeats = batch["sample_repeat"].tolist() if "sample_repeat" in batch else [0] * len(ids)
        randoms = SampleGenerators(self.seed, self.stage, epoch, ids, repeats)
        if self.each == "batch":
            return self._process_batch(batch, randoms, ids, epoch)
        return self._process_samples(batch, randoms, ids, epoch)

    def _process_batch(
        self, batch: dict[str, Any], randoms: SampleGenerators, ids: list[int], epoch: int
    ) -> ProcessedBatch:
        try:
            found = validate_batch(
                self.function(batch, randoms), batch["sample_id"], f"what {self.name} gave"
            )
            for name in IDENTITY:
                if name in batch and name not in found and len(found["sample_id"]) == len(ids):
                    found[name] = batch[name]
        except Exception as error:
            failure = self._make_failure(error, epoch, None, ids)
            if not self.drop:
                raise failure from error
            return ProcessedBatch(batch=None, samples=len(ids), failures=[failure])
        return ProcessedBatch(batch=found, samples=len(ids))

    def _process_samples(
        self, batch: dict[str, Any], randoms: SampleGenerators, ids: list[int], epoch: int
    ) -> ProcessedBatch:
        columns = [(name, value) for name, value in batch.items() if name not in IDENTITY]
        failures: list[TransformError] = []
        kept: list[int] = []
        results: list[dict[str, Any]] = []
        # All at once: between calls of a function that waits or fills the caches, this is several
        # times slower.
        names = [name for name, _ in columns] + ["sample_id"]
        values = zip(*(value for _, value in columns), ids, strict=True)
        samples = [dict(zip(names, row, strict=True)) for row in values]
        generators = list(randoms)
        for place, sample_id in enumerate(ids):
            try:
                found = self.function(samples[place], generators[place])
                if not isinstance(found, dict):
                    raise TypeError(f"gave a {type(found).__name__}, not a dictionary")
                if results and found.keys() - IDENTITY != results[0].keys() - IDENTITY:
                    raise ValueError(
                        f"gave {', '.join(found)}; for the sample before, {', '.join(results[0])}"
                    )
            except Exception as error:
                failure = self._make_failure(error, epoch, sample_id, [sample_id])
                if not self.drop:
                    raise failure from error
                failures.append(failure)
                continue
            kept.append(place)
            results.append(found)
        if not results:
            return ProcessedBatch(batch=None, samples=len(ids), failures=failures)
        try:
            made = {
                name: join_values([found[name] for found in results])
                for name in results[0]
                if name not in IDENTITY
            }
        except Exception as error:
            raise self._make_failure(error, epoch, None, [ids[place] for place in kept]) from error
        for name in IDENTITY:
            if name in batch:
                made[name] = batch[name] if len(kept) == len(ids) else batch[name][kept]
        return ProcessedBatch(batch=made, samples=len(ids), failures=failures)

    def _make_failure(
        self, error: Exception, epoch: int, sample_id: int | None, ids: list[int]
    ) -> TransformError:
        what = f"sample {sample_id}" if sample_id is not None else f"samples {format_ids(ids)}"
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        trace = "".join(traceback.format_exception(error))
        return TransformError(
            f"{self.name} failed for {what} in epoch {epoch}: {text}", sample_id, tuple(ids), trace
        )
