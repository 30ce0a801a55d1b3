"""Runtimes with prescribed behaviour, for testing and measuring the line between a host and a target.

Their "models" are JSON files of format ``fake`` (:func:`fake_model`): inputs,
outputs and behaviour.  Nothing here needs pytest or a framework, so a server can
run them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec

_COLD_AFTER_NS = 5_000_000


def fake_model(folder: Path, io: IOSpec, *, padding: int = 0, format: str = "fake", **behaviour: Any) -> Artifact:
    """Write a model for :class:`FakeRuntime`, and return it.

    Parameters
    ----------
    folder
        The folder for the file.
    io
        Its inputs and outputs; outputs are computed from the first input (:class:`ScriptedSession`).
    padding
        Number of bytes to add to the file.
    format
        ``"fake"``, or ``"fake-native"`` for a file that claims to hold machine code.
    behaviour
        ``spin_us``: time of an inference in microseconds; ``cold_us``: additional microseconds if the previous one
        ended more than 5 ms ago;
        ``tell_time``: the output is one int64, the time of the inference in nanoseconds by its own clock;
        ``fault``: the fault (``raise``, ``hang``, ``die``, ``exit``, ``wrong-shape``, ``memory``);
        ``at``: its place (``load``, ``put``, ``run``, ``get``); ``after``: the first inference with the fault.
    """
    path = folder / f"fake{len(list(folder.iterdir()))}.fake"
    path.write_bytes(json.dumps(behaviour).encode() + b"\n" + os.urandom(padding))
    return Artifact.of(path, format, io)


def flat_io(inputs: int, outputs: int) -> IOSpec:
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
    """Returns for each output the repeated bytes of the first input, each plus the number of the output."""

    def __init__(self, io: IOSpec, behaviour: dict[str, Any]) -> None:
        self.io = io
        self._spin_ns, self._cold_ns = (round(behaviour.get(name, 0) * 1000) for name in ("spin_us", "cold_us"))
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
            self._outputs = expected(self.io, self._batch)
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


def expected(io: IOSpec, batch: Batch) -> dict[str, np.ndarray]:
    """Return the outputs that a fake model computes."""
    source = batch[io.inputs[0].name]
    free = [length for length, want in zip(source.shape, io.inputs[0].shape, strict=True) if want is None]
    stream = source.reshape(-1).view(np.uint8)
    found = {}
    for number, spec in enumerate(io.outputs):
        lengths = iter(free)
        shape = tuple(next(lengths, 1) if length is None else length for length in spec.shape)
        size = int(np.prod(shape)) * np.dtype(spec.dtype).itemsize
        times = -(-size // max(len(stream), 1))
        content = np.tile(stream, times)[:size] + np.uint8(number) if len(stream) else np.zeros(size, np.uint8)
        found[spec.name] = content.view(spec.dtype).reshape(shape)
    return found


class NoOpRuntime(Runtime):
    """Runs nothing: its sessions take inputs and return zeros, for measuring the cost of everything else."""

    accepts: ClassVar[tuple[str, ...]] = ("fake",)

    def _load(self, artifact: Artifact) -> InferenceSession:
        return _NoOpSession(artifact.io)


class _NoOpSession(InferenceSession):
    def __init__(self, io: IOSpec) -> None:
        self.io = io
        self._zeros = {spec.name: np.zeros([length or 1 for length in spec.shape], spec.dtype) for spec in io.outputs}

    def _put(self, batch: Batch) -> None:
        pass

    def _run(self) -> None:
        pass

    def _get(self) -> dict[str, np.ndarray]:
        return self._zeros
