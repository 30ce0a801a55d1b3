"""Applying a function to samples, in this process or in workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._batch_work import BatchWork, ProcessedBatch, TransformError
from nnpipe.training.sequences._content_digest import describe_callable
from nnpipe.training.sequences._pool import STARTS, Pool
from nnpipe.training.sequences.diagnosis import StageFigures
from nnpipe.training.sequences.sequence import Sequence, Stream, require_positive

_LOG = logging.getLogger(__name__)
_REMEMBERED = 100
"""The number of ids of dropped samples that are kept for the diagnosis; the log has all."""


class MapSequence(Sequence):
    """Applies a function to the samples of batches.

    The function takes one sample, a dictionary, and a random generator that depends
    only on the seed, the epoch and the sample's id; it returns a dictionary.  So
    batches are the same with any number of workers, and in a resumed run.  Results
    become arrays if shapes and types agree, else lists.  Ids are kept, whatever the
    function does with them.

    With workers, the function must be importable by name from a module (not a
    lambda).  It runs in new processes: its own state is not shared, and is lost at
    the end.  Processes start with the first batch and run until :meth:`close`.

    Parameters
    ----------
    source
        The sequence that batches come from.
    function
        ``function(sample, random)``, or with ``each="batch"``
        ``function(batch, randoms)`` with one generator for each sample; it may change
        its arguments.
    workers
        Number of worker processes; 0 applies the function in this process.
    each
        ``"sample"`` or ``"batch"``.
    seed
        Seed of the generators.  Several maps in a chain draw different numbers from one seed.
    errors
        ``"raise"``: an error of the function stops the iteration with a
        :class:`~nnpipe.training.sequences._batch_work.TransformError` that has the sample's id.
        ``"drop"``: the sample (with ``each="batch"``, the batch) is logged and left out.
    prefetch
        Number of batches that each worker has in progress or waiting.
    time_limit
        Seconds to wait for one batch of a worker; None for no limit.
    start
        How processes start: ``"spawn"``, or ``"forkserver"``, which is faster
        with many workers and slow imports.  ``"fork"`` is not supported: a forked
        process with threads can hang.
    """

    def __init__(
        self,
        source: Sequence,
        function: Callable[..., Any],
        *,
        workers: int = 0,
        each: str = "sample",
        seed: int = 0,
        errors: str = "raise",
        prefetch: int = 2,
        time_limit: float | None = None,
        start: str = "spawn",
    ) -> None:
        check_call(MapSequence, locals())
        super().__init__(source)
        if each not in ("sample", "batch"):
            raise ConfigError(f'each must be "sample" or "batch", not {each!r}')
        if errors not in ("raise", "drop"):
            raise ConfigError(f'errors must be "raise" or "drop", not {errors!r}')
        if start not in STARTS:
            raise ConfigError(f"start must be one of {', '.join(STARTS)}, not {start!r}")
        if workers != 0:
            require_positive("workers", workers)
        if time_limit is not None and not time_limit > 0:
            raise ConfigError(f"time_limit must be above 0 s, not {time_limit!r}")
        stage = sum(isinstance(before, MapSequence) for before in source.stages())
        self._work = BatchWork(
            function=function, each=each, seed=seed, stage=stage, drop=errors == "drop"
        )
        self._workers = workers
        self._prefetch = require_positive("prefetch", prefetch)
        self._time_limit = time_limit
        self._start = start
        self._pool: Pool | None = None
        self._closings = 0
        self._busy_ns = self._wall_ns = self._samples = self._dropped = 0
        self._dropped_ids: list[int] = []

    def settings(self) -> dict[str, Any]:
        """Return the function and its seed; the number of processes does not affect batches."""
        work = self._work
        return {
            "function": describe_callable(work.function),
            "each": work.each,
            "seed": work.seed,
            "drop": work.drop,
        }

    def sizes(self) -> list[int]:
        """Return the source's sizes: no sample is expected to fail."""
        return self._get_source().sizes()

    def _get_source(self) -> Sequence:
        assert self.source is not None
        return self.source

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the source's."""
        jobs = self._get_source().stream(epoch, position)
        try:
            for done, after in (
                self._ensure_pool().run(jobs, epoch)
                if self._workers
                else self._run_in_process(jobs, epoch)
            ):
                self._record_failures(done)
                if done.batch is not None:
                    yield done.batch, after
        except TransformError as error:
            if error.trace and error.__cause__ is None:
                _LOG.error("%s\n%s", error, error.trace)
            raise
        finally:
            jobs.close()

    def _run_in_process(self, jobs: Stream, epoch: int) -> Iterator[tuple[ProcessedBatch, Any]]:
        for batch, after in jobs:
            start = perf_counter_ns()
            done = self._work(batch, epoch)
            self._busy_ns += perf_counter_ns() - start
            self._samples += done.samples
            yield done, after

    def _ensure_pool(self) -> Pool:
        if self._pool is not None and self._pool.closed:
            self._release_pool()
        if self._pool is None:
            closings = self._closings
            self._pool = Pool(
                self._work, self._workers, self._prefetch, self._time_limit, self._start
            )
            # closed by another thread, while the processes were being started
            if closings != self._closings:
                self._pool.close()
        return self._pool

    def _record_failures(self, done: ProcessedBatch) -> None:
        for failure in done.failures:
            _LOG.warning("left out: %s", failure)
            self._dropped += len(failure.sample_ids)
            self._dropped_ids += failure.sample_ids[: _REMEMBERED - len(self._dropped_ids)]

    @property
    def pids(self) -> list[int]:
        """The ids of the running worker processes."""
        return [] if self._pool is None or self._pool.closed else self._pool.pids

    def figures(self) -> StageFigures:
        """Return how busy the workers were, and which samples were left out."""
        pool = self._pool
        return StageFigures(
            name=self._work.name,
            workers=self._workers,
            busy_ns=self._busy_ns + (pool.busy_ns if pool else 0),
            wall_ns=self._wall_ns + (pool.wall_ns if pool else 0),
            samples=self._samples + (pool.samples if pool else 0),
            dropped=self._dropped,
            dropped_ids=tuple(self._dropped_ids),
        )

    def _release_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            self._busy_ns += pool.busy_ns
            self._wall_ns += pool.wall_ns
            self._samples += pool.samples

    def close(self) -> None:
        """Kill the workers."""
        self._closings += 1
        if self._pool is not None:
            self._pool.close()
            self._release_pool()
        super().close()
