"""Pipelined inferences on a target: the next inputs are sent before the previous outputs have arrived."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nnpipe.core.errors import LocalProtocolError, RemoteProtocolError, SpecMismatch, TargetError
from nnpipe.core.tensors import Batch
from nnpipe.protocols.client.connection import Connection
from nnpipe.protocols.client.latency_breakdown import Parts
from nnpipe.protocols.conversation.checksums import Buffer
from nnpipe.protocols.conversation.frame import FrameKind, size_of
from nnpipe.protocols.conversation.rules import STAMPS_SIZE
from nnpipe.protocols.conversation.tensor_payloads import TensorLayout

_AHEAD = 1 << 19  # bytes of inputs
_ANSWERS = 256  # bytes of headers and timestamps that come with outputs


def received(layout: TensorLayout, payload: bytes | memoryview, begin: int = 0) -> dict[str, np.ndarray]:
    """Return the outputs in a payload from byte ``begin`` on; they share its memory.

    Raises
    ------
    RemoteProtocolError
        If they do not fit the model's outputs.
    """
    try:
        return layout.unpack(payload if isinstance(payload, memoryview) else memoryview(bytearray(payload)), begin)
    except SpecMismatch as error:
        raise RemoteProtocolError(f"the target's outputs are not what they should be: {error}") from None


class RequestPipeline:
    """Sends requests ahead, so that the target and the connection work at the same time.

    Parameters
    ----------
    connection
        The connection to a target that has loaded a model, and has agreed to pipelining or to inferences in one
        request.
    inputs, outputs
        The layouts of the tensors in payloads.
    parts
        Stores the target's timestamps.
    run_timeout
        The time limit of one inference in seconds.
    """

    def __init__(
        self, connection: Connection, inputs: TensorLayout, outputs: TensorLayout, parts: Parts, run_timeout: float
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
                    most = self._most_ahead(size_of(inputs))
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

    def _most_ahead(self, inputs: int) -> int:
        """Return how many inferences may be sent ahead: answers must fit into the channel, inputs into caches."""
        outputs = self._outputs.size
        if outputs is None:
            # With free axes, the size of outputs is known only after the first ones; equally large inputs are assumed
            # to give equally large outputs.
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
        return received(self._outputs, payload, begin)

    def _drain(self) -> None:
        """Read the answers to requests sent ahead of a failure, so that the session can still be used."""
        connection = self._connection
        while connection.conversation.waiting:
            with contextlib.suppress(TargetError):
                connection.answer(self._run_timeout)
