"""A model on another machine, as if it were here."""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NotSupported, RemoteProtocolError, SpecMismatch, TargetError
from nnpipe.core.runtimeprotocol import RuntimeProtocol
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.protocols import _clock
from nnpipe.protocols._check import available
from nnpipe.protocols._clock import ClockRelation, Exchange
from nnpipe.protocols._connection import Connection
from nnpipe.protocols._conversation import HostConversation
from nnpipe.protocols._frame import Flag, Kind
from nnpipe.protocols._handshake import Limits
from nnpipe.protocols._payloads import ROW_FIELDS, Counter, Stamps, Stats
from nnpipe.protocols._tensors import TensorLayout
from nnpipe.protocols._upload import upload
from nnpipe.protocols.options import RemoteOptions

_EXCHANGES = 16
_AHEAD = 1 << 19
_QUIET = int(Flag.QUIET)
_COLUMNS = ("asked", "answered", "received", "started", "stopped", "replied")
_NS = 1_000_000_000


def open_session(
    protocol: RuntimeProtocol, artifact: Artifact, options: RemoteOptions | None = None, *, limits: Limits | None = None
) -> RemoteSession:
    """Connect to a target, send it a model and have it loaded.

    Parameters
    ----------
    protocol
        The line to the target.
    artifact
        The model, in a format that the target's runtime accepts.
    options
        How the target is used.
    limits
        What to offer at the handshake; for tests and measurements.

    Returns
    -------
    RemoteSession
        To be used in a ``with`` block.

    Raises
    ------
    TransportError
        If no target answers.
    AuthenticationError
        If one side cannot prove that it knows the shared token.
    TargetError
        If the target is busy, or refuses the model.
    """
    options = options or RemoteOptions()
    limits = limits or Limits(largest=options.max_output_bytes, checks=available())
    token = options.token()
    channel = protocol.connect()
    connection = Connection(channel, HostConversation(limits, token))
    try:
        connection.greet()
        taken = upload(connection, artifact, options.save_model_path, options.load_timeout)
        io = IOSpec.from_json(taken.io) if taken.io else artifact.io
        return RemoteSession(connection, io, options, taken.load)
    except BaseException:
        connection.close()
        raise


class RemoteSession(InferenceSession):
    """A model that is loaded on a target.

    Parameters
    ----------
    connection
        To the target; the session owns it from now on.
    io
        The tensors as the target's runtime names them.
    options
        How the target is used.
    load_counts
        How long loading took, on the target's counter.
    """

    def __init__(self, connection: Connection, io: IOSpec, options: RemoteOptions, load_counts: int = 0) -> None:
        self.io = io
        self._connection = connection
        self._conversation = connection.conversation
        self._run_timeout = options.run_timeout
        self._load_counts = load_counts
        self._inputs, self._outputs = TensorLayout(io.inputs), TensorLayout(io.outputs)
        self._conversation.place = self._place
        self._stamps = array("q")
        stats, exchange = self._exchange(flags=0)
        self._counter, self._rate = stats.counter, stats.rate
        self._first = _clock.best([exchange, *self._exchanges()])

    def _place(self, kind: Kind, length: int) -> memoryview:
        """Name new memory for outputs: they belong to whoever asked for them."""
        if self._outputs.size not in (None, length):
            raise RemoteProtocolError(f"the target sends {length:,} bytes of outputs, they take {self._outputs.size:,}")
        return np.empty(length, np.uint8).data

    def infer(self, batch: Batch) -> dict[str, np.ndarray]:
        """Put, run and get; in one exchange instead of three where the target agreed to pipelining."""
        if not self._conversation.pipelining:
            return super().infer(batch)
        for outputs in self.pipelined((batch,)):
            return outputs
        raise AssertionError

    def _put(self, batch: Batch) -> None:
        self._connection.ask(Kind.DATA, self._inputs.pack(batch))

    def _run(self) -> None:
        connection = self._connection
        frames = self._conversation.ask(Kind.PROCESS)
        asked = time.perf_counter_ns()
        connection.send(frames)
        connection.answer()
        payload = connection.answer(self._run_timeout)
        answered = time.perf_counter_ns()
        self._note(asked, answered, payload)

    def _note(self, asked: int, answered: int, payload: bytes | memoryview) -> None:
        stamps = Stamps.unpack(payload)
        row = (asked, answered, stamps.received, stamps.started, stamps.stopped, stamps.answered)
        try:
            self._stamps.extend(row)
        except OverflowError:
            raise RemoteProtocolError("the target's counter shows more than 63 bits hold") from None

    def _get(self) -> dict[str, np.ndarray]:
        return self._unpack(self._connection.ask(Kind.OUTPUT))

    def _unpack(self, payload: bytes | memoryview) -> dict[str, np.ndarray]:
        try:
            return self._outputs.unpack(payload if isinstance(payload, memoryview) else memoryview(bytearray(payload)))
        except SpecMismatch as error:
            raise RemoteProtocolError(f"the target's outputs are not what they should be: {error}") from None

    def pipelined(self, batches: Iterable[Batch]) -> Iterator[dict[str, np.ndarray]]:
        """Run batch after batch without waiting for one's outputs before the next is sent.

        The line and the target work at the same time, so more inferences are
        done in a second; how long each took on the target is recorded as ever
        (:meth:`columns`), how long it took as a whole has no meaning here.

        Parameters
        ----------
        batches
            Each as :meth:`put` takes it; must not be changed before its outputs are there.

        Yields
        ------
        dict
            The outputs of each batch, in order.

        Raises
        ------
        NotSupported
            If the target did not agree to this.
        """
        if not self._conversation.pipelining:
            raise NotSupported("the target takes one request at a time, it cannot be used pipelined")
        most = self._most_ahead()
        sent: list[int] = []
        try:
            for batch in batches:
                self._check_open()
                self.io.check_inputs(batch)
                if len(sent) == most:
                    yield self._collect(sent.pop(0))
                sent.append(time.perf_counter_ns())
                self._send_ahead(batch)
            while sent:
                yield self._collect(sent.pop(0))
        except TargetError:
            self._drain()
            raise
        except BaseException:
            if sent:  # answers that nobody will fetch are under way
                self._connection.close()
            raise
        finally:
            self._state = "closed" if self._state == "closed" else "empty"

    def _most_ahead(self) -> int:
        """How many inferences may be under way: their answers must fit on the line, their inputs into caches."""
        answers = (self._outputs.size or 1 << 62) + 1024
        inputs = (self._inputs.size or 1 << 62) + 1024
        return max(min(self._connection.channel.capacity // answers, max(_AHEAD // inputs, 2)), 1)

    def _drain(self) -> None:
        """Take the answers to what was sent ahead of a failure, so that the session can be used on."""
        while self._conversation.waiting:
            with contextlib.suppress(TargetError):
                self._connection.answer(self._run_timeout)

    def _send_ahead(self, batch: Batch) -> None:
        ask = self._conversation.ask
        data, process = ask(Kind.DATA, self._inputs.pack(batch), _QUIET), ask(Kind.PROCESS, (), _QUIET)
        self._connection.send([*data, *process, *ask(Kind.OUTPUT)])

    def _collect(self, asked: int) -> dict[str, np.ndarray]:
        payload = self._connection.answer(self._run_timeout)
        self._note(asked, time.perf_counter_ns(), payload)
        return self._unpack(self._connection.answer())

    def columns(self, count: int | None = None) -> dict[str, np.ndarray]:
        """Split the time of each inference; arrays of int64, one row an inference, the last ``count`` of them.

        Returns
        -------
        dict
            ``target_ns``: the inference itself, on the target's clock.
            ``wire_ns``: from the request's leaving the host to the answer's being back, less the time that the
            target had it; exact but for the drift between the clocks, as only differences on each clock enter.
            ``serve_ns``: what the target had it for beyond the inference.
            Where the target counts something other than time, ``target_counts`` alone.
        """
        table = np.frombuffer(self._stamps, np.int64).reshape(-1, len(_COLUMNS)).copy()
        if count is not None:
            table = table[len(table) - count :]
        asked, answered, received, started, stopped, replied = table.T
        if not self._keeps_time:
            return {"target_counts": stopped - started}
        inference = self._to_ns(stopped - started)
        held = self._to_ns(replied - received)
        return {"target_ns": inference, "wire_ns": (answered - asked) - held, "serve_ns": held - inference}

    @property
    def _keeps_time(self) -> bool:
        return self._counter is Counter.WALL or (self._counter is Counter.CYCLES and self._rate > 0)

    def _to_ns(self, counts: Any) -> Any:
        return counts if self._rate in (0, _NS) else np.rint(counts * (_NS / self._rate)).astype(np.int64)

    def stats(self) -> Mapping[str, Any]:
        """Ask the target for its clock, counts, and how its resources were used.

        Returns
        -------
        dict
            ``counter``: ``wall``, ``cycles`` or ``instructions``; ``rate``: counts a second; ``inferences``;
            ``load_ns`` (or ``load_counts``); ``clock``: offset, drift and their error bounds;
            ``resources``: columns by name, ``time_ns`` on the host's ``perf_counter_ns``.
        """
        self._check_open()
        stats, exchange = self._exchange(flags=0)
        found: dict[str, Any] = {
            "counter": self._counter.name.lower(),
            "rate": self._rate,
            "inferences": stats.inferences,
        }
        if not self._keeps_time:
            return found | {"load_counts": self._load_counts}
        clock = ClockRelation(self._first, _clock.best([exchange, *self._exchanges()]))
        found |= {"load_ns": int(self._to_ns(np.int64(self._load_counts))), "clock": clock.to_json()}
        resources = _resources(stats)
        if len(resources["time_ns"]):
            scale = _NS / self._rate if self._rate else 1.0
            resources["time_ns"] = np.array([round(clock.to_host(t * scale)) for t in resources["time_ns"]], np.int64)
        found["resources"] = resources
        return found

    def _exchanges(self) -> list[Exchange]:
        return [self._exchange(Flag.CLOCK)[1] for _ in range(_EXCHANGES)]

    def _exchange(self, flags: int) -> tuple[Stats, Exchange]:
        asked = time.perf_counter_ns()
        payload = self._connection.ask(Kind.STATS, (), flags)
        answered = time.perf_counter_ns()
        stats = Stats.unpack(payload)
        scale = _NS / stats.rate if stats.rate else 1.0
        return stats, Exchange(asked, round(stats.received * scale), round(stats.answered * scale), answered)

    def _close(self) -> None:
        self._connection.close()


def _resources(stats: Stats) -> dict[str, np.ndarray]:
    table = stats.table()
    found = {"time_ns": np.array(table["time"], np.float64)}
    for field in ROW_FIELDS[1:]:
        column = np.array(table[field.name], np.float64)
        if field.name == "gpu_bytes":
            column[column >= float(1 << 63)] = np.nan
        if not np.isnan(column).all():
            found[field.name] = column
    return found
