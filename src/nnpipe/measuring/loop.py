"""The measuring loop: one pair of timestamps around the inference alone.

Everything but the inference happens outside the two timestamps, starting afresh
included where a model keeps a state.  As much as
possible is done before the first call: inputs are checked, buffers are allocated
and touched, and garbage is collected, after which the collector is off.  Each call
consists of ``_put_next``, a timestamp, ``_run``, a timestamp, two stores and ``_get``.

The loop calls ``_put_next``, ``_run`` and ``_get`` of the session directly, after it has
checked what ``put``, ``run`` and ``get`` would check.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, get_batch_size
from nnpipe.measuring.series import Series

if TYPE_CHECKING:
    from typing_extensions import Self

_SETTLING_CALLS, _SETTLING_SHARE = 20, 20

Clock = Callable[[], int]
"""Returns nanoseconds from any origin; the value never decreases."""

Loop = Callable[
    [InferenceSession, Sequence[Any], Clock, memoryview, memoryview, "list[Any] | None"], None
]
"""Runs each batch and stores its start and end time, and its outputs if a list is given."""


class Window:
    """A measurement in chunks, whose number depends on the memory.

    Between chunks the caller may do any work: evaluate outputs, prepare more
    inputs.  While the window is open, the garbage collector ignores the objects
    that existed when it was opened; during a chunk, the collector is off.

    Parameters
    ----------
    session
        The loaded model; not closed here.
    clock
        The clock, in nanoseconds.
    loop
        The inner loop of a chunk; by default it puts, runs and gets each batch, and times the run.
    settling
        Whether each chunk begins with unrecorded calls, see :meth:`run_chunk`.

    Attributes
    ----------
    origin_ns
        The clock time at which the first chunk began; all times count from it.
    calls, busy_ns
        The number of recorded runs, and the total duration of all chunks.
    chunks
        For each chunk, the start times, the end times, and the numbers of samples to count.
    """

    def __init__(
        self,
        session: InferenceSession,
        clock: Clock = time.perf_counter_ns,
        loop: Loop | None = None,
        settling: bool = True,
    ) -> None:
        self.origin_ns = 0
        self.calls = 0
        self.busy_ns = 0
        self._session = session
        self._clock = clock
        self._loop = loop or _run_chunk
        self._settling_calls = _SETTLING_CALLS if settling else 0
        self.chunks: list[tuple[npt.NDArray[np.int64], ...]] = []
        self._frozen = False

    def __enter__(self) -> Self:
        gc.collect()
        if hasattr(gc, "freeze") and not gc.get_freeze_count():
            gc.freeze()
            self._frozen = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._frozen:
            self._frozen = False
            gc.unfreeze()

    def check(self, batches: Sequence[Batch]) -> list[int]:
        """Return the number of samples of each batch; raise an error if there is none or one
        does not fit.
        """
        if not batches:
            raise ConfigError("nothing to measure: there is no batch of inputs")
        passed, size = None, 0
        sizes = []
        for batch in batches:
            # Most batches look like the previous one, and a full check takes as long as a tiny
            # model's inference.
            looks = {name: (array.dtype, array.shape) for name, array in batch.items()}
            if looks != passed:
                self._session.io.check_inputs(batch)
                passed, size = looks, get_batch_size(batch)
            sizes.append(size)
        return sizes

    def warm_up(self, batches: Sequence[Batch], calls: int) -> None:
        """Run ``calls`` calls, repeating the batches, without recording them."""
        for call in range(calls):
            self._session.infer(batches[call % len(batches)])

    def run_chunk(
        self, batches: Sequence[Any], samples: Sequence[int], *, keep: bool = True
    ) -> list[Any]:
        """Run a chunk: run each batch once and record it.

        Work since the last chunk has filled the caches with other data.  For a
        model of 3 µs, the first call would take 20 times too long, the tenth
        some percent.  Therefore up to 20 unrecorded calls come first, but at most
        one for every twenty batches.  They use the last batches, so that the
        first batches are no more cached than the others.

        Parameters
        ----------
        batches
            Inputs that :meth:`check` has accepted; they are not checked again.  A custom loop may
            take other values.
        samples
            The number of samples to count for each batch.
        keep
            Whether to keep the outputs.

        Returns
        -------
        list
            The outputs of each batch; empty if they are not kept.
        """
        self._session._check_open()
        counts = np.array(samples, np.int64)
        # Filled, not just allocated: the first access to a page takes longer than all stores of a
        # chunk.
        starts, ends = np.full(len(batches), -1, np.int64), np.full(len(batches), -1, np.int64)
        outputs: list[Any] = [None] * len(batches)
        with _suppress_garbage_collection():
            kept = outputs if keep else None
            settling = min(self._settling_calls, len(batches) // _SETTLING_SHARE)
            if settling:
                self._loop(
                    self._session, batches[-settling:], self._clock, starts.data, ends.data, kept
                )
            begin = self._clock()
            self._loop(self._session, batches, self._clock, starts.data, ends.data, kept)
            end = self._clock()
        self._session._state = "done"
        if not self.chunks:
            self.origin_ns = begin
        self.chunks.append((starts, ends, counts))
        self.calls += len(batches)
        self.busy_ns += end - begin
        return outputs if keep else []

    def repeat(
        self,
        batches: Sequence[Batch],
        samples: Sequence[int],
        *,
        min_calls: int = 0,
        min_seconds: float = 0.0,
        max_calls: int | None = None,
    ) -> None:
        """Repeat the batches until both minimums, or ``max_calls``, are reached; outputs are
        dropped.
        """
        while True:
            # Estimate the calls that fill the missing seconds from the calls so far.
            missing_ns = int(min_seconds * 1e9) - self.busy_ns
            missing = max(
                min_calls - self.calls, -(-missing_ns * max(self.calls, 1) // max(self.busy_ns, 1))
            )
            if max_calls is not None:
                missing = min(missing, max_calls - self.calls)
            if missing <= 0:
                return
            self.run_chunk(batches[:missing], samples[:missing], keep=False)

    def series(self) -> Series:
        """Return the recorded calls: ``start_ns``, ``latency_ns``, ``samples``, int64."""
        columns = zip(*self.chunks, strict=True) if self.chunks else ([np.empty(0, np.int64)],) * 3
        starts, ends, counts = (np.concatenate(list(column)) for column in columns)
        return Series(
            {"start_ns": starts - self.origin_ns, "latency_ns": ends - starts, "samples": counts}
        )


def _run_chunk(
    session: InferenceSession,
    batches: Sequence[Batch],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
) -> None:
    """Run a chunk.  Each statement here adds to every call, so none may be slow."""
    put, run, get = session._put_next, session._run, session._get
    for i, batch in enumerate(batches):
        put(batch)
        start = clock()
        run()
        end = clock()
        starts[i] = start
        ends[i] = end
        if outputs is not None:
            outputs[i] = get()
        else:
            get()


@contextmanager
def _suppress_garbage_collection() -> Iterator[None]:
    """Switch the garbage collector off during the block, and then restore its state."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
