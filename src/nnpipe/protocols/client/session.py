"""A session whose model runs on another machine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import (
    NotSupported,
    RemoteProtocolError,
)
from nnpipe.core.runtime_protocol import RemoteOptions, RuntimeProtocol
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.protocols.client.connection import Connection, upload
from nnpipe.protocols.client.pipelining import NS, RequestPipeline, RunTimes, unpack_outputs
from nnpipe.protocols.conversation.frame import FrameFlag, FrameKind, get_check_bits
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.payloads import ROW_FIELDS, Stats, TensorLayout
from nnpipe.protocols.conversation.rules import STAMPS_SIZE

_STATED = ("flash_bytes", "arena_bytes", "data_bytes")


def has_memory_sizes(about: Mapping[str, Any]) -> bool:
    """Return whether the facts that a target sent with its answer to MODEL state the sizes of
    the model.
    """
    return all(type(about.get(key)) is int for key in _STATED)


def compute_board_memory(about: Mapping[str, Any], stats: Stats) -> dict[str, int]:
    """Return the bytes of flash, arena, data, stack and all memory that a model needs.

    Parameters
    ----------
    about
        The facts, which :func:`has_memory_sizes`.
    stats
        The answer to STATS after some runs, whose rows tell arena, data and the stack that runs
        have used.

    Returns
    -------
    dict
        ``flash_bytes``, ``arena_bytes``, ``data_bytes``, ``stack_bytes``, ``ram_bytes``; empty if
        nothing has run.
    """
    ram = int(max(stats.table()["process_bytes"], default=0))
    stack = ram - about["arena_bytes"] - about["data_bytes"]
    if stack < 0 or not stats.inferences:
        return {}
    return {key: about[key] for key in _STATED} | {"stack_bytes": stack, "ram_bytes": ram}


# Estimation of the offset of the target's clock from the host's, with an error bound.
#
# An exchange gives four timestamps.  On the host's clock, ``t0`` is when the request was sent and
# ``t3`` when the answer was received.  On the target's clock, ``t1`` is when the request was
# received and ``t2`` when it was answered.  The offset of the clocks is ``((t1 - t0) + (t2 - t3)) /
# 2``.  Its error is at most half of the round trip time, ``((t3 - t0) - (t2 - t1)) / 2``, for any
# division of that time between the two directions (RFC 5905, section 8).  Of several exchanges, the
# one with the shortest round trip has the smallest error.


@dataclass(frozen=True)
class Exchange:
    """Four timestamps in nanoseconds: asked and answered on the host's clock, received and
    replied on the target's.
    """

    asked: int
    received: int
    replied: int
    answered: int

    @property
    def round_trip_ns(self) -> int:
        """The transfer time in both directions."""
        return max((self.answered - self.asked) - (self.replied - self.received), 0)

    @property
    def offset_ns(self) -> float:
        """The target's clock minus the host's."""
        return ((self.received - self.asked) + (self.replied - self.answered)) / 2

    @property
    def error_ns(self) -> float:
        """The bound on the error of the offset: half of the round trip, and a nanosecond for
        rounding.
        """
        return self.round_trip_ns / 2 + 1

    @property
    def middle_ns(self) -> float:
        """The time of the exchange on the host's clock."""
        return (self.asked + self.answered) / 2


def select_best_exchange(exchanges: list[Exchange]) -> Exchange:
    """Return the exchange with the shortest round trip."""
    return min(exchanges, key=lambda exchange: exchange.round_trip_ns)


@dataclass(frozen=True)
class ClockRelation:
    """A linear relation of two clocks, from one exchange before a measurement and one after it.

    For times between the two, and for clocks with constant rates, the error of
    :meth:`to_host` is at most :attr:`error_ns`.
    """

    first: Exchange
    last: Exchange

    @property
    def error_ns(self) -> float:
        """The error bound in nanoseconds."""
        return max(self.first.error_ns, self.last.error_ns)

    @property
    def drift(self) -> float:
        """How much faster the target's clock runs, as a fraction; significant if it exceeds
        :attr:`drift_error`.
        """
        span = self.last.middle_ns - self.first.middle_ns
        return (self.last.offset_ns - self.first.offset_ns) / span if span > 0 else 0.0

    @property
    def drift_error(self) -> float:
        """The bound on the error of the drift."""
        span = self.last.middle_ns - self.first.middle_ns
        return (self.last.error_ns + self.first.error_ns) / span if span > 0 else float("inf")

    def to_host(self, target_ns: float) -> float:
        """Return the host's time at which the target's clock showed ``target_ns``."""
        # target = host + offset + drift * (host - middle), solved for host
        start, drift = self.first, self.drift
        host = target_ns - start.offset_ns
        return start.middle_ns + (host - start.middle_ns) / (1 + drift)

    def to_json(self) -> dict[str, float]:
        """Return the relation in the JSON form of result files."""
        found = {
            "offset_ns": self.first.offset_ns,
            "error_ns": self.error_ns,
            "round_trip_ns": float(min(self.first.round_trip_ns, self.last.round_trip_ns)),
            "drift_ppm": self.drift * 1e6,
        }
        if self.drift_error != float("inf"):
            found["drift_error_ppm"] = self.drift_error * 1e6
        return found


_EXCHANGES = 16
_SMALL = 1 << 14  # bytes up to which zeroed memory is faster to make than an array


def open_session(
    protocol: RuntimeProtocol,
    artifact: Artifact,
    options: RemoteOptions | None = None,
    *,
    limits: Limits | None = None,
) -> RemoteSession:
    """Connect to a target, send it a model, and let it load the model.

    Parameters
    ----------
    protocol
        The connection to the target.
    artifact
        The model, in a format that the target's runtime accepts.
    options
        The options of the host.
    limits
        The limits to offer in the handshake; for tests and measurements.

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
    limits = limits or Limits(largest=options.max_output_bytes, checks=get_check_bits())
    token = options.read_token()
    with protocol.convert_artifact(artifact) as sent:
        connection = Connection(protocol.connect(), HostConversation(limits, token))
        try:
            connection.perform_handshake()
            taken = upload(connection, sent, options.save_model_path, options.load_timeout)
            io = IOSpec.from_json(taken.io) if taken.io else sent.io
            return RemoteSession(connection, io, options, taken.load, taken.about)
        except BaseException:
            connection.close()
            raise


class RemoteSession(InferenceSession):
    """A model that is loaded on a target.

    Parameters
    ----------
    connection
        The connection to the target; the session closes it.
    io
        The tensors, with the names of the target's runtime.
    options
        The options of the host.
    load_counts
        The time to load, in counts of the target's counter.
    about
        The target's facts about itself.
    """

    def __init__(
        self,
        connection: Connection,
        io: IOSpec,
        options: RemoteOptions,
        load_counts: int = 0,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.io = io
        self._connection = connection
        self._conversation = connection.conversation
        self._run_timeout = options.run_timeout
        self._load_counts = load_counts
        self._about = dict(about or {})
        self._inputs, self._outputs = TensorLayout(io.inputs), TensorLayout(io.outputs)
        size = self._outputs.size
        self._lengths = {
            FrameKind.OUTPUT: size,
            FrameKind.INFER: None if size is None else STAMPS_SIZE + size,
        }
        self._conversation.place = self._allocate_outputs
        stats, _ = self._request_stats(FrameFlag.CLOCK)
        self._counter, self._rate = stats.counter, stats.rate
        self._parts = RunTimes(stats.counter, stats.rate)
        self._first = select_best_exchange(self._measure_exchanges())
        self._pipeline = RequestPipeline(
            connection, self._inputs, self._outputs, self._parts, options.run_timeout
        )

    def _allocate_outputs(self, kind: FrameKind, length: int) -> memoryview:
        """Return new memory for outputs, since they belong to the caller."""
        wanted = self._lengths[kind]
        if length != wanted and wanted is not None:
            raise RemoteProtocolError(
                f"the target answers {kind.name} with {length:,} bytes instead of {wanted:,}"
            )
        return (
            memoryview(bytearray(length)) if length <= _SMALL else np.empty(length, np.uint8).data
        )

    def _infer(self, batch: Batch) -> dict[str, np.ndarray]:
        """Put, run and get, in one exchange instead of three if the target has agreed to a way
        of doing so.
        """
        if not (self._conversation.inferring or self._conversation.pipelining):
            return super()._infer(batch)
        (outputs,) = self._pipeline.run((batch,))
        return outputs

    def _stream(self, batches: Iterable[Batch]) -> Iterator[dict[str, np.ndarray]]:
        return (
            self._pipeline.run(batches)
            if self._conversation.pipelining
            else super()._stream(batches)
        )

    def _put(self, batch: Batch) -> None:
        self._connection.ask(FrameKind.DATA, self._inputs.pack(batch))

    def _run(self) -> None:
        connection = self._connection
        frames = self._conversation.ask(FrameKind.PROCESS)
        asked = time.perf_counter_ns()
        connection.send(frames)
        connection.answer()
        payload = connection.answer(self._run_timeout)
        answered = time.perf_counter_ns()
        self._parts.note(asked, answered, payload)

    def _get(self) -> dict[str, np.ndarray]:
        return unpack_outputs(self._outputs, self._connection.ask(FrameKind.OUTPUT))

    def run_pipelined(self, batches: Iterable[Batch]) -> Iterator[dict[str, np.ndarray]]:
        """Run batches in order, sending the next batch before the previous outputs have arrived.

        The connection and the target work at the same time, so throughput is
        higher.  The time of each inference on the target is still recorded
        (:meth:`columns`); the whole time of a call has no meaning here.

        Parameters
        ----------
        batches
            Batches as for :meth:`put`; a batch must not be changed before its outputs have been
            returned.

        Yields
        ------
        dict
            The outputs of each batch, in order.

        Raises
        ------
        NotSupported
            If the target did not agree to pipelining; raised at once.
        """
        if not self._conversation.pipelining:
            raise NotSupported(
                "the target takes one request at a time, it cannot be used pipelined"
            )
        return self.stream(batches)

    def split(self, start_ns: np.ndarray, end_ns: np.ndarray) -> dict[str, np.ndarray]:
        """Divide the time of runs into parts.

        Parameters
        ----------
        start_ns, end_ns
            ``perf_counter_ns`` just before and just after each :meth:`run`; int64, ``(n,)``.

        Returns
        -------
        dict
            Columns of int64, ``(n,)``: ``target_ns``, the inference itself on the target's clock;
            ``wire_ns``, from sending the request to receiving the answer, without the inference;
            ``host_ns``, the rest, spent on this host.  These three add up to ``end_ns - start_ns``.
            ``serve_ns`` is the part of ``wire_ns`` during which the target was processing the
            request. Only differences on the same clock are used, so the offset of the clocks does
            not matter. If the target counts something other than time, the only column is
            ``target_counts``.

        Raises
        ------
        NNPipeError
            If the session was not run at these times.
        """
        return self._parts.split_between(start_ns, end_ns)

    def columns(self, count: int) -> dict[str, np.ndarray]:
        """Divide the time of the last ``count`` runs into parts as :meth:`split` does, without
        ``host_ns``.
        """
        return self._parts.last(count)

    def stats(self) -> Mapping[str, Any]:
        """Ask the target for its clock and counts.

        Returns
        -------
        dict
            ``counter``: ``wall``, ``cycles`` or ``instructions``; ``rate``: counts per second;
            ``inferences``; ``load_ns`` (or ``load_counts``); ``clock``: offset, drift and their
            error bounds; ``target``: the target's facts about itself; ``board``: bytes of flash and
            memory that the model needs, if the target tells them.
        """
        self._check_open()
        stats, _ = self._request_stats(FrameFlag.CLOCK)
        found: dict[str, Any] = {
            "counter": self._counter.name.lower(),
            "rate": self._rate,
            "inferences": stats.inferences,
        }
        if self._about:
            found["target"] = self._about
        if has_memory_sizes(self._about) and (
            board := compute_board_memory(self._about, self._request_stats(flags=0)[0])
        ):
            found["board"] = board
        if not self._parts.keeps_time:
            return found | {"load_counts": self._load_counts}
        return found | {
            "load_ns": int(self._parts.to_ns(np.int64(self._load_counts))),
            "clock": self._measure_clock().to_json(),
        }

    def resources(self) -> dict[str, np.ndarray]:
        """Ask the target for the use of its resources since the last such request.

        Returns
        -------
        dict
            Columns: ``time_ns`` (int64) on this host's ``perf_counter_ns``, ``cpu_percent``,
            ``process_bytes``, ``memory_bytes``, and, if there is a GPU, ``gpu_percent`` and
            ``gpu_bytes``. Empty if the target does not report them.
        """
        self._check_open()
        stats, _ = self._request_stats(flags=0)
        if not stats.rows or not self._parts.keeps_time:
            return {}
        found = _build_resources(stats)
        clock = self._measure_clock()
        scale = NS / self._rate if self._rate else 1.0
        found["time_ns"] = np.array(
            [round(clock.to_host(t * scale)) for t in found["time_ns"]], np.int64
        )
        return found

    def _measure_clock(self) -> ClockRelation:
        return ClockRelation(self._first, select_best_exchange(self._measure_exchanges()))

    def _measure_exchanges(self) -> list[Exchange]:
        return [self._request_stats(FrameFlag.CLOCK)[1] for _ in range(_EXCHANGES)]

    def _request_stats(self, flags: int) -> tuple[Stats, Exchange]:
        asked = time.perf_counter_ns()
        payload = self._connection.ask(FrameKind.STATS, (), flags)
        answered = time.perf_counter_ns()
        stats = Stats.unpack(payload)
        scale = NS / stats.rate if stats.rate else 1.0
        return stats, Exchange(
            asked, round(stats.received * scale), round(stats.answered * scale), answered
        )

    def _close(self) -> None:
        self._connection.close()
        self._conversation.place = None  # breaks the reference cycle with this session


def _build_resources(stats: Stats) -> dict[str, np.ndarray]:
    table = stats.table()
    found = {"time_ns": np.array(table["time"], np.float64)}
    for field in ROW_FIELDS[1:]:
        column = np.array(table[field.name], np.float64)
        if field.name == "gpu_bytes":
            column[column >= float(1 << 63)] = np.nan
        if not np.isnan(column).all():
            found[field.name] = column
    return found
