"""The contract of channels."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from nnpipe.core.errors import LineTimeout, TransportError
from nnpipe.core.runtime_protocol import Channel

Channels = tuple[Channel, Channel]


class ChannelContract:
    """What every channel must do; subclass it and define the fixture ``channels``: two ends of one
    line.

    ``timeout`` is the channels' time limit in seconds; keep it short, since some
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
        pieces: list[memoryview | bytes] = [
            memoryview(b) if n % 2 else b for n, b in enumerate(buffers)
        ]
        with run_meanwhile(host.send, pieces):
            assert receive(target, sum(map(len, buffers))) == b"".join(buffers)

    def test_nothing_can_be_sent(self, channels: Channels) -> None:
        host, target = channels
        host.send([])
        host.send([b"", b"x", b""])
        assert receive(target, 1) == b"x"

    def test_a_large_payload_arrives_unchanged(self, channels: Channels) -> None:
        host, target = channels
        data = np.random.default_rng(0).integers(0, 256, 3 << 20, np.uint8)
        with run_meanwhile(host.send, [b"head", data.data]):
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

    def test_silence_is_a_timeout_after_which_the_line_still_works(
        self, channels: Channels
    ) -> None:
        host, target = channels
        begun = time.monotonic()
        with pytest.raises(LineTimeout) as caught:
            host.receive_into(memoryview(bytearray(1)))
        assert "\n" not in str(caught.value)
        assert 0.5 * self.timeout <= time.monotonic() - begun < self.timeout + 2
        target.send([b"late"])
        assert receive(host, 4) == b"late"

    def test_what_was_sent_before_the_end_arrives_and_then_the_end(
        self, channels: Channels
    ) -> None:
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

    def test_a_closed_channel_refuses_in_one_line_and_closes_again(
        self, channels: Channels
    ) -> None:
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


def keep_talking(channel: Channel) -> None:
    """Send and receive until the end of the other side is noticed."""
    for _ in range(1000):
        channel.send([bytes(1000)])
        if not channel.receive_into(memoryview(bytearray(1))):
            raise TransportError("the end was seen")


def receive(channel: Channel, count: int) -> bytes:
    """Receive exactly ``count`` bytes."""
    memory = bytearray(count)
    view = memoryview(memory)
    while len(view):
        got = channel.receive_into(view)
        assert got > 0, f"the line ended {len(view)} bytes too early"
        view = view[got:]
    return bytes(memory)


@contextmanager
def run_meanwhile(action: object, *arguments: object) -> Iterator[None]:
    """Call a function in a thread while the block runs; its error, if any, is raised at the end."""
    errors: list[BaseException] = []

    def run_action() -> None:
        try:
            action(*arguments)  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run_action, daemon=True)
    thread.start()
    yield
    thread.join(10)
    assert not thread.is_alive()
    if errors:
        raise errors[0]
