"""The contracts of channels and of runtime protocols."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.component import Component
from nnpipe.core.deployment import ServerOptions
from nnpipe.core.errors import LineTimeout, NNPipeError, TargetError, TransportError
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtimeprotocol import Channel, Listener, RuntimeProtocol
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.protocols._board import Board
from nnpipe.protocols._check import available
from nnpipe.protocols._handshake import Limits
from nnpipe.protocols._target import TargetConversation
from nnpipe.protocols._worker import hello
from nnpipe.protocols.remote import open_session
from nnpipe.protocols.server import attend
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.targets import FakeRuntime, expected, fake_model

Channels = tuple[Channel, Channel]

IO = IOSpec(
    (TensorSpec("image", (None, 3, 5), "uint8"), TensorSpec("mask", (7,), "float32")),
    (TensorSpec("scores", (None, 11), "float32"), TensorSpec("label", (3,), "int16")),
)


def a_batch(samples: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs for :data:`IO`."""
    random = np.random.default_rng(seed)
    return {
        "image": random.integers(0, 256, (samples, 3, 5), np.uint8),
        "mask": random.standard_normal(7).astype(np.float32),
    }


class ChannelContract:
    """What every channel must do; subclass it and give the fixture ``channels``: two ends of one line.

    ``timeout`` is the channels' time limit in seconds; keep it short, some
    tests wait for it.
    """

    timeout: float = 0.5

    @pytest.fixture
    def channels(self) -> Iterator[Channels]:
        raise NotImplementedError("a subclass of ChannelContract gives the fixture `channels`")

    def test_what_is_sent_arrives_both_ways(self, channels: Channels) -> None:
        host, target = channels
        host.send([b"question"])
        assert receive(target, 8) == b"question"
        target.send([b"answer"])
        assert receive(host, 6) == b"answer"

    def test_buffers_of_any_kind_and_number_arrive_in_order(self, channels: Channels) -> None:
        host, target = channels
        buffers = [bytes([n % 256]) * (n % 37) for n in range(2000)]
        pieces: list[memoryview | bytes] = [memoryview(b) if n % 2 else b for n, b in enumerate(buffers)]
        with meanwhile(host.send, pieces):
            assert receive(target, sum(map(len, buffers))) == b"".join(buffers)

    def test_nothing_can_be_sent(self, channels: Channels) -> None:
        host, target = channels
        host.send([])
        host.send([b"", b"x", b""])
        assert receive(target, 1) == b"x"

    def test_a_large_payload_arrives_unchanged(self, channels: Channels) -> None:
        host, target = channels
        data = np.random.default_rng(0).integers(0, 256, 3 << 20, np.uint8)
        with meanwhile(host.send, [b"head", data.data]):
            assert receive(target, 4) == b"head"
            assert receive(target, data.nbytes) == data.tobytes()

    def test_no_more_comes_than_was_asked_for(self, channels: Channels) -> None:
        host, target = channels
        host.send([b"0123456789"])
        memory = bytearray(b"..........")
        got = 0
        while got < 4:
            got += target.receive_into(memoryview(memory)[got:4])
        assert bytes(memory) == b"0123......"
        assert receive(target, 6) == b"456789"

    def test_silence_is_a_timeout_after_which_the_line_still_works(self, channels: Channels) -> None:
        host, target = channels
        begun = time.monotonic()
        with pytest.raises(LineTimeout) as caught:
            host.receive_into(memoryview(bytearray(1)))
        assert "\n" not in str(caught.value)
        assert 0.5 * self.timeout <= time.monotonic() - begun < self.timeout + 2
        target.send([b"late"])
        assert receive(host, 4) == b"late"

    def test_what_was_sent_before_the_end_arrives_and_then_the_end(self, channels: Channels) -> None:
        host, target = channels
        host.send([b"last words"])
        host.close()
        assert receive(target, 10) == b"last words"
        assert target.receive_into(memoryview(bytearray(1))) == 0

    def test_sending_to_one_who_left_fails_sooner_or_later(self, channels: Channels) -> None:
        host, target = channels
        target.close()
        with pytest.raises(TransportError):
            keep_talking(host)

    def test_a_closed_channel_refuses_in_one_line_and_closes_again(self, channels: Channels) -> None:
        host, _ = channels
        host.close()
        host.close()
        for use in (lambda: host.send([b"x"]), lambda: host.receive_into(memoryview(bytearray(1)))):
            with pytest.raises(TransportError) as caught:
                use()
            assert "\n" not in str(caught.value)

    def test_as_much_as_its_capacity_is_sent_without_a_reader(self, channels: Channels) -> None:
        host, target = channels
        size = min(host.capacity, 1 << 22)
        host.send([bytes(size)])
        assert receive(target, size) == bytes(size)


class RuntimeProtocolContract(ComponentContract, ChannelContract):
    """What every runtime protocol must do; subclass it and give the fixture ``protocol``.

    If :meth:`connect` needs what only the listener knows (a port that the
    system chose), give ``serving``, too.
    """

    @pytest.fixture
    def protocol(self) -> RuntimeProtocol:
        raise NotImplementedError("a subclass of RuntimeProtocolContract gives the fixture `protocol`")

    @pytest.fixture
    def component(self, protocol: RuntimeProtocol) -> Component:
        return protocol

    @pytest.fixture
    def serving(self, protocol: RuntimeProtocol) -> Iterator[tuple[Listener, RuntimeProtocol]]:
        """A listener, and the protocol with which it is reached."""
        with protocol.listen() as listener:
            yield listener, protocol

    @pytest.fixture
    def channels(self, serving: tuple[Listener, RuntimeProtocol]) -> Iterator[Channels]:
        with pair(*serving) as both:
            yield both

    def test_nobody_comes_within_the_time_allowed(self, serving: tuple[Listener, RuntimeProtocol]) -> None:
        begun = time.monotonic()
        assert serving[0].accept(0.05) is None
        assert time.monotonic() - begun < 2

    def test_one_client_after_another(self, serving: tuple[Listener, RuntimeProtocol]) -> None:
        for _ in range(3):
            with pair(*serving) as (host, target):
                host.send([b"hello"])
                assert receive(target, 5) == b"hello"

    def test_connecting_where_nobody_listens_fails_in_one_line(self, serving: tuple[Listener, RuntimeProtocol]) -> None:
        listener, protocol = serving
        listener.close()
        with pytest.raises(TransportError) as caught:
            protocol.connect()
        assert "\n" not in str(caught.value)

    def test_a_model_runs_at_the_other_end(self, serving: tuple[Listener, RuntimeProtocol], tmp_path: Path) -> None:
        listener, protocol = serving
        model = fake_model(tmp_path, IO, padding=5000)
        with in_process_server(listener, FakeRuntime()), open_session(protocol, model) as session:
            for seed in range(3):
                batch = a_batch(seed + 1, seed)
                same(session.infer(batch), expected(IO, batch))
                session.put(batch)
                session.run()
                same(session.get(), expected(IO, batch))
            assert session.stats()["inferences"] == 6

    def test_a_failing_model_leaves_the_line_usable(
        self, serving: tuple[Listener, RuntimeProtocol], tmp_path: Path
    ) -> None:
        listener, protocol = serving
        failing = fake_model(tmp_path, IO, fault="raise", after=1)
        with in_process_server(listener, FakeRuntime()):
            with open_session(protocol, failing) as session:
                session.infer(a_batch())
                with pytest.raises(TargetError, match="told to fail"):
                    session.infer(a_batch())
            with open_session(protocol, fake_model(tmp_path, IO)) as session:
                same(session.infer(a_batch()), expected(IO, a_batch()))


def keep_talking(channel: Channel) -> None:
    """Send and listen until it is noticed that the other side has left."""
    for _ in range(1000):
        channel.send([bytes(1000)])
        if not channel.receive_into(memoryview(bytearray(1))):
            raise TransportError("the end was seen")


def receive(channel: Channel, count: int) -> bytes:
    """Take exactly so many bytes."""
    memory = bytearray(count)
    view = memoryview(memory)
    while len(view):
        got = channel.receive_into(view)
        assert got > 0, f"the line ended {len(view)} bytes too early"
        view = view[got:]
    return bytes(memory)


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """Assert that two sets of outputs are equal."""
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


@contextmanager
def pair(listener: Listener, protocol: RuntimeProtocol) -> Iterator[Channels]:
    """Connect and accept; gives the host's and the target's end."""
    accepted: list[Channel | None] = []
    thread = threading.Thread(target=lambda: accepted.append(listener.accept(10.0)))
    thread.start()
    try:
        host = protocol.connect()
    except BaseException:
        thread.join()
        for channel in filter(None, accepted):
            channel.close()
        raise
    thread.join()
    target = accepted[0]
    assert target is not None
    with host, target:
        yield host, target


@contextmanager
def meanwhile(action: object, *arguments: object) -> Iterator[None]:
    """Do something in a thread while the block runs; its error, if any, is raised at the end."""
    errors: list[BaseException] = []

    def body() -> None:
        try:
            action(*arguments)  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    yield
    thread.join(10)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


@contextmanager
def in_process_server(
    listener: Listener, runtime: Runtime, options: ServerOptions | None = None
) -> Iterator[list[str]]:
    """Serve in a thread of this process; gives why each client's conversation ended."""
    import tempfile

    stopping = threading.Event()
    reasons: list[str] = []
    options = options or ServerOptions()

    def body(folder: str) -> None:
        while not stopping.is_set():
            channel = listener.accept(0.02)
            if channel is None:
                continue
            limits = Limits(largest=options.max_input_bytes, checks=available())
            conversation = TargetConversation(limits, options.token())
            try:
                hello(channel, conversation, 5.0)
            except NNPipeError as error:
                reasons.append(str(error))
                channel.close()
                continue
            board = Board()
            reasons.append(attend(channel, conversation, runtime, options, Path(folder), board, stopping.is_set))
            board.close()

    with tempfile.TemporaryDirectory() as folder:
        thread = threading.Thread(target=body, args=(folder,), daemon=True)
        thread.start()
        try:
            yield reasons
        finally:
            stopping.set()
            thread.join(20)
            assert not thread.is_alive(), "the server in this process does not end"
