"""The measuring loop: one pair of stamps around the inference alone.

Whatever is not the inference happens outside the stamps, and whatever can be
done beforehand is done before the first one: inputs are checked, buffers are
made and touched, garbage is collected and then left alone.  Per call there
remain ``_put``, a stamp, ``_run``, a stamp, two stores and ``_get``.

The loop is the session's friend: it calls ``_put``, ``_run`` and ``_get``
directly, having checked what ``put``, ``run`` and ``get`` would check.
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
from nnpipe.core.tensors import Batch, batch_size
from nnpipe.measuring.series import Series

if TYPE_CHECKING:
    from typing_extensions import Self

_SETTLING_CALLS, _SETTLING_SHARE = 20, 20

Clock = Callable[[], int]
"""Gives nanoseconds from any origin, and never fewer than before."""

Loop = Callable[[InferenceSession, Sequence[Any], Clock, memoryview, memoryview, "list[Any] | None"], None]
"""Runs each batch: stamps of its start and its end, and its outputs where there is a list for them."""


class Window:
    """A stretch of time in which runs are recorded, in as many goes as memory allows.

    Between goes the caller may do what it likes: judge outputs, prepare more
    inputs.  While the window is open, objects that were alive when it was
    opened are out of the garbage collector's sight; during a go it is off.

    Parameters
    ----------
    session
        The loaded model; not closed here.
    clock
        What to stamp with, in nanoseconds.
    loop
        What one go does; by default each batch is put, run and got, and the run is stamped.
    settling
        Whether calls go before that are not recorded, see :meth:`go`.

    Attributes
    ----------
    origin_ns
        What the clock showed when the first go began; all times count from here.
    calls, busy_ns
        Number of runs recorded, and how long all goes took together.
    goes
        Of each go the stamps of starts and ends, and the samples that count.
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
        self._loop = loop or _stamp
        self._settling_calls = _SETTLING_CALLS if settling else 0
        self.goes: list[tuple[npt.NDArray[np.int64], ...]] = []
        self._frozen = False

    def __enter__(self) -> Self:
        gc.collect()
        if hasattr(gc, "freeze") and not gc.get_freeze_count():
            gc.freeze()
            self._frozen = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._frozen:
            self._frozen = False
            gc.unfreeze()

    def check(self, batches: Sequence[Batch]) -> list[int]:
        """Count the samples of each batch; raise unless there are batches and the session takes every one."""
        if not batches:
            raise ConfigError("nothing to measure: there is no batch of inputs")
        passed, size = None, 0
        sizes = []
        for batch in batches:
            # Batches mostly look like the one before, and a full check costs as much as a tiny model's inference.
            looks = {name: (array.dtype, array.shape) for name, array in batch.items()}
            if looks != passed:
                self._session.io.check_inputs(batch)
                passed, size = looks, batch_size(batch)
            sizes.append(size)
        return sizes

    def warm_up(self, batches: Sequence[Batch], calls: int) -> None:
        """Run that often, round and round, without recording anything."""
        for call in range(calls):
            self._session.infer(batches[call % len(batches)])

    def go(self, batches: Sequence[Any], samples: Sequence[int], *, keep: bool = True) -> list[Any]:
        """Run each batch once and record it.

        Whatever happened since the last go has taken the caches: the first
        call would read 20 times too long for a model of 3 µs, the tenth by some
        percent.  Therefore up to 20 calls go before, unrecorded, where they
        are at most one in twenty; the last batches serve for it, so that the
        first ones come as fresh as the others.

        Parameters
        ----------
        batches
            Inputs that :meth:`check` has passed; they are not checked again.  Or whatever the loop takes.
        samples
            How many samples of each batch count.
        keep
            Whether to keep the outputs.

        Returns
        -------
        list
            The outputs of each batch, or nothing where they are not kept.
        """
        self._session._check_open()
        counts = np.array(samples, np.int64)
        # Filled, not just allocated: the first touch of a page costs more than the stores of a whole go.
        starts, ends = np.full(len(batches), -1, np.int64), np.full(len(batches), -1, np.int64)
        outputs: list[Any] = [None] * len(batches)
        with _no_collections():
            kept = outputs if keep else None
            settling = min(self._settling_calls, len(batches) // _SETTLING_SHARE)
            if settling:
                self._loop(self._session, batches[-settling:], self._clock, starts.data, ends.data, kept)
            begin = self._clock()
            self._loop(self._session, batches, self._clock, starts.data, ends.data, kept)
            end = self._clock()
        self._session._state = "done"
        if not self.goes:
            self.origin_ns = begin
        self.goes.append((starts, ends, counts))
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
        """Go round the batches until the window has calls and busy seconds enough; outputs are dropped.

        ``max_calls`` ends it in any case.
        """
        while True:
            # How many calls the missing seconds are, going by the calls so far.
            missing_ns = int(min_seconds * 1e9) - self.busy_ns
            missing = max(min_calls - self.calls, -(-missing_ns * max(self.calls, 1) // max(self.busy_ns, 1)))
            if max_calls is not None:
                missing = min(missing, max_calls - self.calls)
            if missing <= 0:
                return
            self.go(batches[:missing], samples[:missing], keep=False)

    def series(self) -> Series:
        """Return what was recorded so far: ``start_ns``, ``latency_ns``, ``samples``."""
        columns = zip(*self.goes, strict=True) if self.goes else ([np.empty(0, np.int64)],) * 3
        starts, ends, counts = (np.concatenate(list(column)) for column in columns)
        return Series({"start_ns": starts - self.origin_ns, "latency_ns": ends - starts, "samples": counts})


def _stamp(
    session: InferenceSession,
    batches: Sequence[Batch],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
) -> None:
    """Do one go.  Everything here is paid for by every call; nothing here may be slow."""
    put, run, get = session._put, session._run, session._get
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
def _no_collections() -> Iterator[None]:
    """Keep the garbage collector off, and then as it was, whatever happens."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
