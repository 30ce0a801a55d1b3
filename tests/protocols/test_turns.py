"""Who is served when: one client after another, each told in time, and none that keeps the seat
by being slow.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from servers import Server, serves, wait_for, within

from nnpipe.core.errors import AuthenticationError, LineTimeout, TargetError
from nnpipe.protocols.channels.stream_socket import SocketChannel
from nnpipe.protocols.client.connection import Connection
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.conversation.frame import ErrorCode, FrameFlag, FrameKind
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.server.admission import TokenThrottle
from nnpipe.testing.fakes import build_flat_io, write_fake_model
from nnpipe.testing.protocol import IO, create_batch

SOON = 6.0
TOKEN = b"the token that they share"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(timeout=1.0) as server:
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.log, server.log


def raw(server: Server, origin: str = "127.0.0.1") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.port), 10, source_address=(origin, 0))
    sock.settimeout(None)
    return sock


def greeted(server: Server, token: bytes | None = None, origin: str = "127.0.0.1") -> Connection:
    sock = raw(server, origin)
    connection = Connection(
        SocketChannel(sock, 10.0, 1 << 22, "the target"), HostConversation(token=token)
    )
    try:
        connection.perform_handshake()
    except BaseException:
        connection.close()
        raise
    return connection


@pytest.mark.parametrize("rounds", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_of_two_that_come_when_one_has_left_the_second_is_told(server: Server, rounds: int) -> None:
    """The first of them idles: the second must not be greeted and then left alone."""
    for _ in range(rounds):
        leaving = greeted(server)
        leaving.ask(FrameKind.STATS, flags=FrameFlag.CLOCK)
        leaving.close()
        with contextlib.closing(greeted(server)) as idle:
            with (
                within(SOON),
                pytest.raises(TargetError) as caught,
                contextlib.closing(greeted(server)) as other,
            ):
                other.ask(FrameKind.STATS, flags=FrameFlag.CLOCK)
            assert caught.value.code == ErrorCode.BUSY
            idle.ask(FrameKind.STATS, flags=FrameFlag.CLOCK)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_one_who_left_while_waiting_for_its_turn_keeps_nobody_out(server: Server) -> None:
    first = greeted(server)
    server.worker().suspend()  # so that it takes a while until the seat is free again
    first.close()
    for _ in range(3):
        greeted(server).close()
    with contextlib.closing(greeted(server)) as connection:
        connection.ask(FrameKind.STATS, flags=FrameFlag.CLOCK, patience=SOON)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_those_that_came_and_went_while_the_server_was_away_keep_nobody_out(server: Server) -> None:
    supervisor = psutil.Process(server.process.pid)
    supervisor.suspend()
    for number in range(20):
        with raw(server) as gone:
            gone.sendall(b"".join(map(bytes, HostConversation(number=number).build_hello())))
    sock = raw(server)
    with contextlib.closing(
        Connection(SocketChannel(sock, 10.0, 1 << 22, "the target"), HostConversation())
    ) as last:
        last.send(last.conversation.build_hello())
        supervisor.resume()
        last.answer()
        last.ask(FrameKind.STATS, flags=FrameFlag.CLOCK, patience=SOON)


@pytest.mark.slow
def test_a_client_that_sends_a_byte_now_and_then_loses_its_place(
    server: Server, tmp_path: Path
) -> None:
    connection = greeted(server)
    (frame,) = connection.conversation.ask(FrameKind.STATS, flags=FrameFlag.CLOCK)
    frame = bytes(frame)

    def drip() -> None:
        with contextlib.suppress(Exception):
            for at in range(len(frame) - 1):
                connection.send([frame[at : at + 1]])
                time.sleep(0.4)

    thread = threading.Thread(target=drip)
    thread.start()
    with within(SOON), pytest.raises(TargetError, match="more slowly") as caught:
        connection.answer(patience=SOON)
    assert caught.value.code == ErrorCode.TIMEOUT
    thread.join()
    serves(server.protocol, tmp_path)


class Sipping:
    """A socket whose other side takes ten bytes every tenth of a second."""

    def sendmsg(self, buffers: object) -> int:
        time.sleep(0.1)
        return 10


def test_one_who_takes_a_little_now_and_then_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = SocketChannel(ours, 0.3, 1 << 22, "somebody")
        monkeypatch.setattr(channel, "_sock", Sipping())
        with pytest.raises(LineTimeout, match="takes less"):
            channel.send([bytes(300)])


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_the_client_of_a_worker_that_is_stopped_is_told(server: Server, tmp_path: Path) -> None:
    with open_session(server.protocol, write_fake_model(tmp_path, IO)) as session:
        server.worker().suspend()
        with within(2 * SOON), pytest.raises(TargetError, match="stopped") as caught:
            session.infer(create_batch())
    assert caught.value.code == ErrorCode.DIED
    serves(server.protocol, tmp_path)


@pytest.mark.parametrize("steps", ["put, run, get", "infer"])
def test_why_a_worker_died_is_told_whenever_it_was(
    server: Server, tmp_path: Path, steps: str
) -> None:
    model, batch = (
        write_fake_model(tmp_path, build_flat_io(150_528, 4096)),
        {"x": np.zeros(150_528, np.uint8)},
    )
    chance = random.Random(0)

    def use(pid: int) -> None:
        with open_session(server.protocol, model) as session:
            threading.Timer(
                0.01 + chance.random() * 0.05, os.kill, (server.worker().pid, pid)
            ).start()
            while True:
                if steps == "infer":
                    session.infer(batch)
                else:
                    session.put(batch)
                    session.run()
                    session.get()

    for _ in range(10):
        with pytest.raises(TargetError, match="SIGKILL") as caught:
            use(signal.SIGKILL)
        assert caught.value.code == ErrorCode.DIED
        wait_for(lambda: not server.workers())


# -- tokens that are tried
# ---------------------------------------------------------------------------


@pytest.mark.slow
def test_wrong_tokens_are_looked_at_more_and_more_slowly(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(TOKEN)
    with Server("--token-file", str(tmp_path / "token"), timeout=5.0) as server:
        begun = time.monotonic()
        for number in range(6):
            with pytest.raises(AuthenticationError):
                greeted(server, b"a wrong token, number %d" % number)
        assert time.monotonic() - begun > 1.5
        greeted(server, TOKEN).close()  # late, and let in
        assert server.stop() == 0


@pytest.mark.slow  # waits
def test_wrong_tokens_of_several_connections_are_looked_at_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(TOKEN)
    with Server("--token-file", str(tmp_path / "token"), timeout=5.0) as server:
        for number in range(6):
            with pytest.raises(AuthenticationError):
                greeted(server, b"a wrong token, number %d" % number)
        refused: list[float] = []

        def guess() -> None:
            while True:
                try:
                    greeted(server, b"another wrong token")
                except TargetError:  # at this moment somebody else was served
                    continue
                except AuthenticationError:
                    break
            refused.append(time.monotonic())

        begun = time.monotonic()
        several = [threading.Thread(target=guess) for _ in range(4)]
        for thread in several:
            thread.start()
        with within(1.0):  # somebody else is let in at once
            greeted(server, TOKEN, origin="127.0.0.2").close()
        for thread in several:
            thread.join()
        assert max(refused) - begun > 4.0, (
            "who opens several connections is judged one by one as well"
        )
        greeted(server, TOKEN).close()  # late, and let in
        assert server.stop() == 0


def test_only_so_many_addresses_are_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    throttle = TokenThrottle()
    for number in range(5000):
        throttle.record_failure(f"10.0.{number >> 8}.{number & 255}:1")
    assert len(throttle._failures) == 1024


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("10.0.0.1:5", "10.0.0.1:6", True),
        ("10.0.0.1:5", "10.0.0.2:5", False),
        ("[fe80::1]:5", "[fe80::2]:5", True),
        ("[fe80::1]:5", "[fe80:0:0:1::1]:5", False),
        ("a client on this machine", "a client on this machine", True),
    ],
)
def test_who_counts_as_the_same(one: str, other: str, alike: bool) -> None:
    throttle = TokenThrottle()
    for _ in range(4):
        throttle.record_failure(one)
    assert throttle.wait(one) > 0
    assert (throttle.wait(other) > 0) == alike
