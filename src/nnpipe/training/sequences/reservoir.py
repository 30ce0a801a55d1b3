"""A reservoir of samples that is refilled in the background."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.training.sequences.diagnosis import StageFigures
from nnpipe.training.sequences.randomness import create_order_generator
from nnpipe.training.sequences.sequence import Sequence, Stream, require_positive

_ENDS_WITHIN = 5.0
"""Seconds to wait for the thread to end; it may be in a function that never returns."""


class ReservoirSequence(Sequence):
    """Batches from a reservoir of samples that a thread continuously refills from the source.

    This is for sources that are slower than the model: no batch waits for the
    source.  A batch holds the samples that have not been delivered yet, oldest
    first, and if they are too few, others of the reservoir, drawn at random.  A new
    sample replaces the oldest one that has been delivered.  If the source is faster
    than the model, no sample is delivered twice, and the source waits.

    The content of a batch depends on timing, so a resumed run does not see the same
    batches: ``exact`` is False.  :meth:`diagnosis` reports how often samples are reused.

    Parameters
    ----------
    source
        The sequence that samples come from, epoch after epoch; usually a map with
        workers.  All its batches must have the same features with the same shapes.
    size
        Number of samples in the reservoir.
    batch
        Number of samples in a batch.
    batches
        Number of batches in an epoch; None for as many samples as the source has.
    fill
        Number of samples that must be in the reservoir before the first batch; None for one batch.
    seed
        Seed of the random draws.
    """

    def __init__(
        self,
        source: Sequence,
        size: int,
        batch: int,
        *,
        batches: int | None = None,
        fill: int | None = None,
        seed: int = 0,
    ) -> None:
        check_call(ReservoirSequence, locals())
        super().__init__(source)
        self._size, self._batch = require_positive("size", size), require_positive("batch", batch)
        self._epoch_batches = None if batches is None else require_positive("batches", batches)
        self._fill = max(batch, require_positive("fill", fill if fill is not None else batch))
        if self._fill > size:
            raise ConfigError(
                f"a reservoir of {size} samples cannot hold {self._fill}; make it larger"
            )
        self._seed = seed
        self._stock: _Stock | None = None
        self._end: weakref.finalize[..., Any] | None = None
        self._fresh = self._delivered = 0

    @property
    def exact(self) -> bool:
        """False: batches depend on timing."""
        return False

    def settings(self) -> dict[str, Any]:
        """Return the sizes of the reservoir and of batches, and the seed."""
        return {
            "size": self._size,
            "batch": self._batch,
            "batches": self._epoch_batches,
            "seed": self._seed,
        }

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch."""
        assert self.source is not None
        batches = self._epoch_batches or -(-sum(self.source.sizes()) // self._batch)
        return [self._batch] * batches

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the number of batches before it."""
        random = create_order_generator(self._seed, epoch)
        for number in range(position or 0, len(self)):
            yield self._ensure_stock(epoch).draw(self._batch, random), number + 1

    def _ensure_stock(self, epoch: int) -> _Stock:
        if self._stock is None:
            assert self.source is not None
            self._stock = stock = _Stock(self._size, self._fill)
            thread = threading.Thread(
                target=_refill, args=(stock, self.source, epoch), name="reservoir", daemon=True
            )
            self._end = weakref.finalize(self, _end, stock, self.source, thread)
            thread.start()
        return self._stock

    def figures(self) -> StageFigures:
        """Return how many different samples and how many in all were delivered."""
        fresh, delivered = self._fresh, self._delivered
        if self._stock is not None:
            fresh, delivered = fresh + self._stock.fresh, delivered + self._stock.delivered
        return StageFigures(fresh=fresh, delivered=delivered)

    def close(self) -> None:
        """End the thread, and close the source."""
        stock, self._stock = self._stock, None
        if stock is not None and self._end is not None:
            self._end()
            self._fresh += stock.fresh
            self._delivered += stock.delivered
        super().close()


class _Stock:
    """The samples of a reservoir, and which were delivered; for two threads."""

    def __init__(self, size: int, fill: int) -> None:
        self._changed = threading.Condition()
        self._size, self._fill = size, fill
        self._columns: dict[str, Any] = {}
        self._empty = deque(range(size))
        self._unseen: deque[int] = deque()
        self._seen: deque[int] = deque()
        self._begun = False
        self._error: BaseException | None = None
        self.closed = False
        self.fresh = self.delivered = 0

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def put(self, batch: dict[str, Any]) -> None:
        """Add samples, and wait for space; return early if the reservoir is closed."""
        start, size = 0, len(batch["sample_id"])
        while start < size:
            with self._changed:
                self._changed.wait_for(lambda: self.closed or self._empty or self._seen)
                if self.closed:
                    return
                number = min(size - start, len(self._empty) + len(self._seen))
                rows = [(self._empty or self._seen).popleft() for _ in range(number)]
                self._store_batch(batch, start, rows)
                self._unseen.extend(rows)
                self._changed.notify_all()
            start += number

    def _store_batch(self, batch: dict[str, Any], start: int, rows: list[int]) -> None:
        if not self._columns:
            for name, value in batch.items():
                like = isinstance(value, np.ndarray)
                self._columns[name] = (
                    np.empty((self._size, *value.shape[1:]), value.dtype) if like else {}
                )
        if batch.keys() != self._columns.keys():
            raise ConfigError(
                f"a reservoir of {', '.join(self._columns)} cannot take {', '.join(batch)}"
            )
        for name, value in batch.items():
            column = self._columns[name]
            if isinstance(column, dict):
                column.update(zip(rows, value[start : start + len(rows)], strict=True))
            elif not isinstance(value, np.ndarray) or value.shape[1:] != column.shape[1:]:
                found = value.shape[1:] if isinstance(value, np.ndarray) else "a list"
                raise ConfigError(
                    f"a reservoir with {name!r} of shape {column.shape[1:]} cannot take {found}"
                )
            else:
                column[rows] = value[start : start + len(rows)]

    def draw(self, number: int, random: np.random.Generator) -> dict[str, Any]:
        """Return a batch; wait only until the reservoir holds enough samples."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.closed or self._error is not None or self._has_enough(number)
            )
            if self._error is not None:
                raise self._error
            if self.closed:
                raise TrainingError("the sequence was closed while its batches were waited for")
            self._begun = True
            fresh = [self._unseen.popleft() for _ in range(min(number, len(self._unseen)))]
            rows = fresh
            if len(fresh) < number:
                known = list(self._seen)
                again = random.choice(len(known), number - len(fresh), replace=False)
                rows = fresh + [known[place] for place in again.tolist()]
            places = np.array(rows)
            batch = {
                name: [column[row] for row in rows]
                if isinstance(column, dict)
                else column.take(places, axis=0)
                for name, column in self._columns.items()
            }
            self._seen.extend(fresh)
            self.fresh += len(fresh)
            self.delivered += number
            self._changed.notify_all()
            return batch

    def _has_enough(self, number: int) -> bool:
        return len(self._unseen) + len(self._seen) >= (
            number if self._begun else max(number, self._fill)
        )


def _refill(stock: _Stock, source: Sequence, epoch: int) -> None:
    try:
        while not stock.closed:
            some, stream = False, source.stream(epoch)
            try:
                for batch, _ in stream:
                    some = True
                    stock.put(batch)
                    if stock.closed:
                        return
            finally:
                stream.close()
            if not some:
                raise TrainingError("the source of a reservoir gave no samples")
            epoch += 1
    except BaseException as error:
        stock.fail(error)
    finally:
        if stock.closed:  # perhaps before the source had started its processes
            source.close()


def _end(stock: _Stock, source: Sequence, thread: threading.Thread) -> None:
    stock.close()
    source.close()
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join(_ENDS_WITHIN)
