"""What is said to be the target's time and the wire's, on clocks that the test moves by hand.

How exact it is on a real machine is measured by ``benchmarks/target_time.py``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import Channel, RemoteOptions, ServerOptions
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.protocols.client import session as remote
from nnpipe.protocols.client.connection import Connection, upload
from nnpipe.protocols.client.session import RemoteSession
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.target import TargetConversation
from nnpipe.protocols.server import inference_service
from nnpipe.protocols.server import worker as worker_module
from nnpipe.protocols.server.inference_service import InferenceService
from nnpipe.protocols.server.model_store import ModelStore
from nnpipe.protocols.server.shared_page import SharedPage
from nnpipe.protocols.server.worker import ClientWorker
from nnpipe.testing.fakes import build_flat_io, write_fake_model

MS = 1_000_000
OFFSET = 77 * 10**9  # by which the target's clock is ahead


class World:
    """A host and a target that take turns, and the time, which passes only where the test says
    so.
    """

    def __init__(self, there: int, back: int) -> None:
        self.now = 10**12
        self.there, self.back = there, back
        self.to_target = bytearray()
        self.to_host = bytearray()

    def host_clock(self) -> int:
        return self.now

    def target_clock(self) -> int:
        return self.now + OFFSET

    def turn(self) -> None:
        """The target's: it hears what was sent, and answers."""
        raise NotImplementedError


class End(Channel):
    """Either side's."""

    def __init__(self, world: World, host: bool) -> None:
        self._world, self._host = world, host
        self.timeout = 1.0

    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        for buffer in buffers:
            (self._world.to_target if self._host else self._world.to_host).extend(buffer)

    def receive_into(self, buffer: memoryview) -> int:
        world = self._world
        if self._host and not world.to_host:
            world.now += world.there
            world.turn()
            world.now += world.back
        queue = world.to_host if self._host else world.to_target
        count = min(len(buffer), len(queue))
        buffer[:count] = queue[:count]
        del queue[:count]
        return count

    def close(self) -> None:
        pass


class SlowRuntime(Runtime):
    """Takes as much of the world's time as it was told to."""

    accepts: ClassVar[tuple[str, ...]] = ("fake",)
    world: ClassVar[World]
    takes: ClassVar[int] = 0

    def _load(self, artifact: Artifact) -> InferenceSession:
        self.world.now += 5 * MS
        return SlowSession(artifact, self.world, self.takes)


class SlowSession(InferenceSession):
    def __init__(self, artifact: Artifact, world: World, takes: int) -> None:
        self.io, self._world, self._takes = artifact.io, world, takes

    def _put(self, batch: Batch) -> None:
        self._world.now += 3 * MS

    def _run(self) -> None:
        self._world.now += self._takes

    def _get(self) -> dict[str, np.ndarray]:
        self._world.now += 7 * MS
        return {"y": np.zeros(4, np.uint8)}


def opened(
    folder: Path, patch: pytest.MonkeyPatch, takes: int, there: int, back: int
) -> tuple[RemoteSession, World]:
    world = World(there, back)
    clocks = {
        remote: world.host_clock,
        inference_service: world.target_clock,
        worker_module: world.target_clock,
    }
    for module, clock in clocks.items():
        patch.setattr(
            module, "time", SimpleNamespace(perf_counter_ns=clock, monotonic=time.monotonic)
        )
    patch.setattr(SlowRuntime, "world", world, raising=False)
    patch.setattr(SlowRuntime, "takes", takes)
    target, board, end = TargetConversation(), SharedPage(), End(world, host=False)
    service = InferenceService(
        SlowRuntime(), ServerOptions(), ModelStore(folder / "kept", 1 << 20, 1 << 16), board
    )
    worker = ClientWorker(end, target, service, board, 1.0)

    def turn() -> None:
        while True:
            while (message := target.next_message()) is not None:
                if message.kind.name == "HELLO":
                    end.send(target.answer_handshake(message))
                else:
                    worker._handle_message(message)
            worker._flush()
            count = end.receive_into(target.wanted())
            if not count:
                return
            target.received(count)

    patch.setattr(world, "turn", turn)
    connection = Connection(End(world, host=True), HostConversation())
    connection.perform_handshake()
    model = write_fake_model(folder, build_flat_io(4, 4))
    taken = upload(connection, model, None, 1.0)
    return RemoteSession(connection, model.io, RemoteOptions(), taken.load), world


def run(session: RemoteSession, times: int) -> dict[str, np.ndarray]:
    for _ in range(times):
        session.put({"x": np.zeros(4, np.uint8)})
        session.run()
        session.get()
    return session.columns(times)


@pytest.mark.parametrize("takes", [0, 500_000, 2 * MS, 20 * MS])
@pytest.mark.parametrize(
    ("there", "back"), [(0, 0), (20 * MS, 20 * MS), (20 * MS, 0), (0, 20 * MS)]
)
def test_the_targets_time_is_the_inference_and_the_wires_is_the_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: int, there: int, back: int
) -> None:
    session, _ = opened(tmp_path, monkeypatch, takes, there, back)
    columns = run(session, 4)
    np.testing.assert_array_equal(columns["target_ns"], takes)
    np.testing.assert_array_equal(columns["wire_ns"], there + back)
    np.testing.assert_array_equal(columns["serve_ns"], 0)


@pytest.mark.parametrize(
    ("there", "back"), [(0, 0), (20 * MS, 20 * MS), (20 * MS, 0), (0, 20 * MS)]
)
def test_the_clocks_offset_is_wrong_by_no_more_than_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int, back: int
) -> None:
    session, _ = opened(tmp_path, monkeypatch, 2 * MS, there, back)
    clock = session.stats()["clock"]
    assert clock["error_ns"] == (there + back) / 2 + 1
    assert abs(clock["offset_ns"] - OFFSET) == abs(there - back) / 2
    assert abs(clock["offset_ns"] - OFFSET) <= clock["error_ns"]
    assert session.stats()["load_ns"] == 5 * MS


def test_a_run_is_split_without_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, world = opened(tmp_path, monkeypatch, 2 * MS, 20 * MS, 10 * MS)
    session.put({"x": np.zeros(4, np.uint8)})
    start = world.now
    world.now += 123  # spent on the host before the request leaves
    session.run()
    world.now += 456
    split = session.split(np.array([start]), np.array([world.now]))
    assert {name: column.tolist() for name, column in split.items()} == {
        "target_ns": [2 * MS],
        "wire_ns": [30 * MS],
        "host_ns": [579],
        "serve_ns": [0],
    }
