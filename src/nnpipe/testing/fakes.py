"""Fakes with known behaviour: a clock that the test controls, and a session that takes a given
time.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import LineTimeout, TransportError
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import Channel, Listener
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec

ECHO_IO = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 4), "float32"),))
"""An input of four numbers with a free batch axis, and an output of the same shape."""


class FakeClock:
    """A clock in nanoseconds that advances only on request, or by a fixed step at each reading.

    Attributes
    ----------
    now
        The next reading in nanoseconds.
    looks
        Number of readings.
    """

    def __init__(self, start: int = 0, step: int = 0) -> None:
        self.now = start
        self.step = step
        self.looks = 0

    def __call__(self) -> int:
        """Return the time, as ``time.perf_counter_ns`` would."""
        shown = self.now
        self.now += self.step
        self.looks += 1
        return shown

    def advance(self, nanoseconds: int) -> None:
        """Advance the clock."""
        self.now += nanoseconds


class FakeSession(InferenceSession):
    """Returns its inputs by the names of its outputs, and takes a given time.

    Parameters
    ----------
    io
        As many inputs as outputs; the first output echoes the first input, and so on.
    spend
        Called in every run, such as ``lambda: clock.advance(1000)`` or ``lambda: spin(1000)``.
    function
        Applied to each array; by default arrays are returned unchanged.

    Attributes
    ----------
    calls
        The calls in order: ``"put"``, ``"run"``, ``"get"``, ``"close"``.
    """

    def __init__(
        self,
        io: IOSpec = ECHO_IO,
        spend: Callable[[], object] = lambda: None,
        function: Callable[[np.ndarray], np.ndarray] = lambda array: array,
    ) -> None:
        self.io = io
        self.calls: list[str] = []
        self._spend = spend
        self._function = function
        self._inputs: list[np.ndarray] = []
        self._outputs: list[np.ndarray] = []

    def _put(self, batch: Batch) -> None:
        self.calls.append("put")
        self._inputs = [batch[spec.name] for spec in self.io.inputs]

    def _run(self) -> None:
        self.calls.append("run")
        self._spend()
        self._outputs = [np.array(self._function(array)) for array in self._inputs]

    def _get(self) -> dict[str, np.ndarray]:
        self.calls.append("get")
        return {
            spec.name: array.copy()
            for spec, array in zip(self.io.outputs, self._outputs, strict=True)
        }

    def _close(self) -> None:
        self.calls.append("close")


def spin(nanoseconds: int) -> None:
    """Keep a core busy for at least this time."""
    end = perf_counter_ns() + nanoseconds
    while perf_counter_ns() < end:
        pass


# Runtimes with prescribed behaviour, for testing and measuring the line between a host and a
# target.
#
# Their "models" are JSON files of format ``fake`` (:func:`write_fake_model`): inputs, outputs and
# behaviour.  Nothing here needs pytest or a framework, so a server can run them.

_COLD_AFTER_NS = 5_000_000


def write_fake_model(
    folder: Path, io: IOSpec, *, padding: int = 0, format: str = "fake", **behaviour: Any
) -> Artifact:
    """Write a model for :class:`FakeRuntime`, and return it.

    Parameters
    ----------
    folder
        The folder for the file.
    io
        Its inputs and outputs; outputs are computed from the first input
        (:class:`ScriptedSession`).
    padding
        Number of bytes to add to the file.
    format
        ``"fake"``, or ``"fake-native"`` for a file that claims to hold machine code.
    behaviour
        ``spin_us``: time of an inference in microseconds; ``cold_us``: additional microseconds if
        the previous one ended more than 5 ms ago; ``tell_time``: the output is one int64, the time
        of the inference in nanoseconds by its own clock; ``fault``: the fault (``raise``, ``hang``,
        ``die``, ``exit``, ``wrong-shape``, ``memory``); ``at``: its place (``load``, ``put``,
        ``run``, ``get``); ``after``: the first inference with the fault.
    """
    path = folder / f"fake{len(list(folder.iterdir()))}.fake"
    path.write_bytes(json.dumps(behaviour).encode() + b"\n" + os.urandom(padding))
    return Artifact.create(path, format, io)


def build_flat_io(inputs: int, outputs: int) -> IOSpec:
    """Return the specification of one input and one output with these numbers of bytes."""
    return IOSpec((TensorSpec("x", (inputs,), "uint8"),), (TensorSpec("y", (outputs,), "uint8"),))


class FakeRuntime(Runtime):
    """Runs fake models."""

    accepts: ClassVar[tuple[str, ...]] = ("fake", "fake-native")
    native_code: ClassVar[tuple[str, ...]] = ("fake-native",)

    slow_load: float = argument(default=0.0, help="seconds that loading takes", minimum=0)

    def _load(self, artifact: Artifact) -> InferenceSession:
        time.sleep(self.slow_load)
        with open(artifact.path, "rb") as file:
            behaviour = json.loads(file.readline())
        return ScriptedSession(artifact.io, behaviour)


class ScriptedSession(InferenceSession):
    """Returns for each output the repeated bytes of the first input, each plus the number of the
    output.
    """

    def __init__(self, io: IOSpec, behaviour: dict[str, Any]) -> None:
        self.io = io
        self._spin_ns, self._cold_ns = (
            round(behaviour.get(name, 0) * 1000) for name in ("spin_us", "cold_us")
        )
        self._ended = 0
        self._fault, self._at = behaviour.get("fault"), behaviour.get("at", "run")
        self._after = behaviour.get("after", 0)
        self._tell_time = behaviour.get("tell_time", False)
        self._batch: Batch = {}
        self._outputs: dict[str, np.ndarray] = {}
        self._runs = 0
        self._taken = 0
        self._misbehave("load")

    def _put(self, batch: Batch) -> None:
        self._misbehave("put")
        self._batch = batch

    def _run(self) -> None:
        begun = time.perf_counter_ns()
        self._misbehave("run")
        self._runs += 1
        if not self._tell_time:
            self._outputs = compute_expected(self.io, self._batch)
        wanted = self._spin_ns + (self._cold_ns if begun - self._ended > _COLD_AFTER_NS else 0)
        while (taken := time.perf_counter_ns() - begun) < wanted:
            pass
        self._taken = taken
        self._ended = begun + taken

    def _get(self) -> dict[str, np.ndarray]:
        self._misbehave("get")
        if self._tell_time:  # made here, outside the timed part
            return {self.io.outputs[0].name: np.array([self._taken], np.int64)}
        return self._outputs

    def _misbehave(self, where: str) -> None:
        if where != self._at or self._fault is None or self._runs < self._after:
            return
        if self._fault == "raise":
            raise RuntimeError("the fake model was told to fail\nin two lines")
        if self._fault == "hang":
            time.sleep(3600)
        if self._fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "exit":
            os._exit(3)
        if self._fault == "memory":
            raise MemoryError("the fake model wants more than there is")
        if self._fault == "wrong-shape":
            self._outputs = {"y": np.zeros(7, np.uint8)}


def compute_expected(io: IOSpec, batch: Batch) -> dict[str, np.ndarray]:
    """Return the outputs that a fake model computes."""
    source = batch[io.inputs[0].name]
    free = [
        length
        for length, want in zip(source.shape, io.inputs[0].shape, strict=True)
        if want is None
    ]
    stream = source.reshape(-1).view(np.uint8)
    found = {}
    for number, spec in enumerate(io.outputs):
        lengths = iter(free)
        shape = tuple(next(lengths, 1) if length is None else length for length in spec.shape)
        size = int(np.prod(shape)) * np.dtype(spec.dtype).itemsize
        times = -(-size // max(len(stream), 1))
        content = (
            np.tile(stream, times)[:size] + np.uint8(number)
            if len(stream)
            else np.zeros(size, np.uint8)
        )
        found[spec.name] = content.view(spec.dtype).reshape(shape)
    return found


class NoOpRuntime(Runtime):
    """Runs nothing: its sessions take inputs and return zeros, for measuring the cost of
    everything else.
    """

    accepts: ClassVar[tuple[str, ...]] = ("fake",)

    def _load(self, artifact: Artifact) -> InferenceSession:
        return _NoOpSession(artifact.io)


class _NoOpSession(InferenceSession):
    def __init__(self, io: IOSpec) -> None:
        self.io = io
        self._zeros = {
            spec.name: np.zeros([length or 1 for length in spec.shape], spec.dtype)
            for spec in io.outputs
        }

    def _put(self, batch: Batch) -> None:
        pass

    def _run(self) -> None:
        pass

    def _get(self) -> dict[str, np.ndarray]:
        return self._zeros


class MemoryChannel(Channel):
    """One end of a line in memory; made by :func:`create_memory_pair`."""

    capacity: ClassVar[int] = 1 << 30

    def __init__(self, incoming: _Pipe, outgoing: _Pipe, timeout: float) -> None:
        self.timeout = timeout
        self._incoming, self._outgoing = incoming, outgoing
        self._closed = False

    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send all buffers one after another."""
        self._check()
        self._outgoing.write(b"".join(buffers))

    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, write at most ``len(buffer)`` of them, return how many; 0 if the other
        side has closed.
        """
        self._check()
        return self._incoming.read(buffer, self.timeout)

    def close(self) -> None:
        """Close the line; closing twice does no harm."""
        self._closed = True
        self._incoming.end()
        self._outgoing.end()

    def _check(self) -> None:
        if self._closed:
            raise TransportError("the line is closed")


class _Pipe:
    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ended = False
        self._changed = threading.Condition()

    def write(self, data: bytes) -> None:
        with self._changed:
            if self._ended:
                raise TransportError("the other side closed the line")
            self._bytes += data
            self._changed.notify_all()

    def read(self, buffer: memoryview, timeout: float) -> int:
        with self._changed:
            if not self._changed.wait_for(lambda: self._bytes or self._ended, timeout):
                raise LineTimeout(f"nothing came for {timeout:g} s")
            count = min(len(buffer), len(self._bytes))
            buffer[:count] = self._bytes[:count]
            del self._bytes[:count]
            return count

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def create_memory_pair(timeout: float = 5.0) -> tuple[MemoryChannel, MemoryChannel]:
    """Return the two ends of a new line; ``timeout`` is in seconds."""
    there, back = _Pipe(), _Pipe()
    return MemoryChannel(back, there, timeout), MemoryChannel(there, back, timeout)


class MemoryListener(Listener):
    """Waits for callers of :meth:`connect`."""

    def __init__(self, timeout: float = 5.0) -> None:
        self._timeout = timeout
        self._waiting: queue.SimpleQueue[MemoryChannel] = queue.SimpleQueue()
        self._closed = False

    def connect(self) -> MemoryChannel:
        """Open a line and return the host's end."""
        if self._closed:
            raise TransportError("nobody listens any longer")
        host, target = create_memory_pair(self._timeout)
        self._waiting.put(target)
        return host

    def accept(self, timeout: float | None = None) -> MemoryChannel | None:
        """Wait for the next client and return its channel; ``None`` after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            left = 0.05 if deadline is None else min(deadline - time.monotonic(), 0.05)
            try:
                return self._waiting.get(timeout=max(left, 0))
            except queue.Empty:
                if deadline is not None and time.monotonic() >= deadline:
                    return None
        return None

    def close(self) -> None:
        """Stop waiting."""
        self._closed = True
