"""Pipelined inferences on a target: the next inputs are sent before the previous outputs have
arrived.
"""

from __future__ import annotations

import contextlib
import functools
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import (
    LocalProtocolError,
    NNPipeError,
    RemoteProtocolError,
    SpecMismatch,
    TargetError,
)
from nnpipe.core.tensors import Batch
from nnpipe.protocols.client.connection import Connection
from nnpipe.protocols.conversation.frame import Buffer, FrameKind, size_of
from nnpipe.protocols.conversation.payloads import Counter, TensorLayout, unpack_stamps
from nnpipe.protocols.conversation.rules import STAMPS_SIZE

NS = 1_000_000_000
# asked and answered on the host's clock; received, started, stopped and replied on the target's
_COLUMNS = 6


class RunTimes:
    """The timestamps of all runs of a session.

    Parameters
    ----------
    counter
        The kind of the target's counter.
    rate
        Counts per second; 0 if nanoseconds are counted, or the rate is unknown.

    Attributes
    ----------
    keeps_time
        Whether counts can be converted to time.
    """

    def __init__(self, counter: Counter, rate: int) -> None:
        self._rate = rate
        self.keeps_time = counter is Counter.WALL or (counter is Counter.CYCLES and rate > 0)
        self._stamps = array("q")
        self._extend: Callable[[tuple[int, ...]], None] = self._stamps.extend

    def note(
        self, asked: int, answered: int, payload: bytes | memoryview, alone: bool = True
    ) -> None:
        """Store the timestamps of a run: the host's, and the target's, which came alone or
        before the outputs.
        """
        try:
            self._extend((asked, answered, *unpack_stamps(payload, alone)))
        except OverflowError:
            raise RemoteProtocolError("the target's counter shows more than 63 bits hold") from None

    def split_between(self, start_ns: np.ndarray, end_ns: np.ndarray) -> dict[str, np.ndarray]:
        """Divide the time of the runs between these timestamps into parts, as
        ``RemoteSession.split`` does.
        """
        rows = self._get_rows()
        asked = rows[:, 0]
        at = np.searchsorted(asked, start_ns)
        known = at < len(rows)
        known[known] = (asked[at[known]] >= start_ns[known]) & (rows[at[known], 1] <= end_ns[known])
        if not known.all():
            raise NNPipeError("the session was not run at the times that are to be divided up")
        columns = self._split_rows(rows[at])
        if self.keeps_time:
            columns["host_ns"] = (end_ns - start_ns) - columns["target_ns"] - columns["wire_ns"]
        return columns

    def last(self, count: int) -> dict[str, np.ndarray]:
        """Divide the time of the last ``count`` runs into parts."""
        rows = self._get_rows()
        return self._split_rows(rows[len(rows) - count :])

    def to_ns(self, counts: Any) -> Any:
        """Convert counts to nanoseconds."""
        return (
            counts
            if self._rate in (0, NS)
            else np.rint(counts * (NS / self._rate)).astype(np.int64)
        )

    def _get_rows(self) -> npt.NDArray[np.int64]:
        return np.array(self._stamps, np.int64).reshape(-1, _COLUMNS)

    def _split_rows(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        asked, answered, received, started, stopped, replied = rows.T
        if not self.keeps_time:
            return {"target_counts": stopped - started}
        inference = self.to_ns(stopped - started)
        held = self.to_ns(replied - received)
        return {
            "target_ns": inference,
            "wire_ns": (answered - asked) - inference,
            "serve_ns": held - inference,
        }


_AHEAD = 1 << 19  # bytes of inputs
_ANSWERS = 256  # bytes of headers and timestamps that come with outputs


def unpack_outputs(
    layout: TensorLayout, payload: bytes | memoryview, begin: int = 0
) -> dict[str, np.ndarray]:
    """Return the outputs in a payload from byte ``begin`` on; they share its memory.

    Raises
    ------
    RemoteProtocolError
        If they do not fit the model's outputs.
    """
    try:
        return layout.unpack(
            payload if isinstance(payload, memoryview) else memoryview(bytearray(payload)), begin
        )
    except SpecMismatch as error:
        raise RemoteProtocolError(
            f"the target's outputs are not what they should be: {error}"
        ) from None


class RequestPipeline:
    """Sends requests ahead, so that the target and the connection work at the same time.

    Parameters
    ----------
    connection
        The connection to a target that has loaded a model, and has agreed to pipelining or to
        inferences in one request.
    inputs, outputs
        The layouts of the tensors in payloads.
    parts
        Stores the target's timestamps.
    run_timeout
        The time limit of one inference in seconds.
    """

    def __init__(
        self,
        connection: Connection,
        inputs: TensorLayout,
        outputs: TensorLayout,
        parts: RunTimes,
        run_timeout: float,
    ) -> None:
        self._connection = connection
        self._whole = connection.conversation.inferring
        self._ask_whole = functools.partial(connection.conversation.ask, FrameKind.INFER)
        self._inputs, self._outputs = inputs, outputs
        self._parts = parts
        self._run_timeout = run_timeout
        self._went = -1  # bytes of the last inputs
        self._came = 0  # bytes of the outputs for them

    def run(self, batches: Iterable[Batch]) -> Iterator[dict[str, np.ndarray]]:
        """Yield the outputs of each batch, in order; each batch has been checked."""
        connection, pack = self._connection, self._inputs.pack
        ask = self._ask_whole if self._whole else self._ask_thrice
        fixed = self._inputs.size is not None and self._outputs.size is not None
        most = 0
        sent: list[int] = []
        try:
            for batch in batches:
                inputs = pack(batch)
                if not fixed or not most:
                    most = self._compute_max_ahead(size_of(inputs))
                while len(sent) >= most:
                    yield self._collect(sent.pop(0))
                sent.append(time.perf_counter_ns())
                connection.send(ask(inputs))
            while sent:
                yield self._collect(sent.pop(0))
        except (TargetError, SpecMismatch, LocalProtocolError):
            self._drain()
            raise
        except BaseException:
            if sent:  # answers are still to come that the caller will not read
                connection.close()
            raise

    def _compute_max_ahead(self, inputs: int) -> int:
        """Return how many inferences may be sent ahead: answers must fit into the channel,
        inputs into caches.
        """
        outputs = self._outputs.size
        if outputs is None:
            # With free axes, the size of outputs is known only after the first ones; equally large
            # inputs are assumed to give equally large outputs.
            outputs = self._came if self._went == inputs else 1 << 62
            self._went, self._came = inputs, outputs
        ahead = max(_AHEAD // (inputs + 1), 2)
        return max(min(self._connection.channel.capacity // (outputs + _ANSWERS), ahead), 1)

    def _ask_thrice(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        ask = self._connection.conversation.ask
        return [*ask(FrameKind.DATA, inputs), *ask(FrameKind.PROCESS), *ask(FrameKind.OUTPUT)]

    def _collect(self, asked: int) -> dict[str, np.ndarray]:
        connection = self._connection
        if self._whole:
            payload = connection.answer(self._run_timeout)
            self._parts.note(asked, time.perf_counter_ns(), payload, False)
            begin = STAMPS_SIZE
        else:
            connection.answer()
            connection.answer()
            stamps = connection.answer(self._run_timeout)
            self._parts.note(asked, time.perf_counter_ns(), stamps)
            payload = connection.answer()
            begin = 0
        self._came = len(payload) - begin
        return unpack_outputs(self._outputs, payload, begin)

    def _drain(self) -> None:
        """Read the answers to requests sent ahead of a failure, so that the session can still be
        used.
        """
        connection = self._connection
        while connection.conversation.waiting:
            with contextlib.suppress(TargetError):
                connection.answer(self._run_timeout)
