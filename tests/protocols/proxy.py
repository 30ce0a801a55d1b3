"""A line that misbehaves, between a host and a server, as a seed says."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

HEADER = 24


class Proxy:
    """Passes bytes on, one thread in each direction.

    Parameters
    ----------
    port
        Of the server.
    make
        Called for each connection and direction (0: to the server, 1: back);
        gives what turns bytes that came into bytes that go on, or None to cut the line.
    host
        Of the server; where to listen is ``listen``.
    """

    def __init__(
        self,
        port: int,
        make: Callable[[int], Callable[[bytes], bytes | None]],
        host: str = "127.0.0.1",
        listen: str = "127.0.0.1",
    ) -> None:
        self._where = host, port
        self._make = make
        self._listener = socket.create_server((listen, 0))
        self.port = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._closed = False
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                host = self._listener.accept()[0]
            except OSError:
                return
            try:
                target = socket.create_connection(self._where, 5)
            except OSError:
                host.close()
                continue
            for sock in (host, target):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(None)
            self._sockets += [host, target]
            self._start(self._pass, host, target, self._make(0))
            self._start(self._pass, target, host, self._make(1))

    def _pass(
        self, source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes | None]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                changed = change(data)
                if changed is None:
                    break
                sink.sendall(changed)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for sock in self._sockets:
            sock.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def delayed(seconds: float) -> Callable[[int], Callable[[bytes], bytes]]:
    """Everything takes so much longer to the server, and as much back."""

    def change(data: bytes) -> bytes:
        time.sleep(seconds)
        return data

    return lambda direction: change


def flipping(direction: int, bit: int) -> Callable[[int], Callable[[bytes], bytes]]:
    """One bit of the whole stream in one direction is wrong."""

    def make(which: int) -> Callable[[bytes], bytes]:
        passed = 0

        def change(data: bytes) -> bytes:
            nonlocal passed
            at = bit // 8 - passed
            passed += len(data)
            if which != direction or not 0 <= at < len(data):
                return data
            spoilt = bytearray(data)
            spoilt[at] ^= 1 << bit % 8
            return bytes(spoilt)

        return change

    return make


class Frames:
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        while len(self._rest) >= HEADER:
            (length,) = struct.unpack_from("<I", self._rest, 8)
            if len(self._rest) < HEADER + length:
                return
            yield self._rest[: HEADER + length]
            self._rest = self._rest[HEADER + length :]


def meddling(what: str, direction: int, number: int) -> Callable[[int], Callable[[bytes], bytes]]:
    """One frame of a direction is sent twice, not at all, or after the one that follows it."""

    def make(which: int) -> Callable[[bytes], bytes]:
        frames, count, kept = Frames(), -1, b""

        def change(data: bytes) -> bytes:
            nonlocal count, kept
            if which != direction:
                return data
            found = b""
            for frame in frames.cut(data):
                count += 1
                if count == number and what == "drop":
                    continue
                if count == number and what == "reorder":
                    kept = frame
                    continue
                found += frame * (2 if count == number and what == "duplicate" else 1) + kept
                kept = b""
            return found

        return change

    return make


def random_faults(seed: int, rate: float) -> Callable[[int], Callable[[bytes], bytes | None]]:
    """Delays, losses, cuts and flips, now and then."""
    connections = iter(range(1 << 30))

    def make(direction: int) -> Callable[[bytes], bytes | None]:
        chance = random.Random(f"{seed} {next(connections)}")

        def change(data: bytes) -> bytes | None:
            if chance.random() > rate:
                return data
            what = chance.randrange(5)
            spoilt = bytearray(data)
            at = chance.randrange(len(spoilt))
            if what == 0:
                time.sleep(0.02)
            elif what == 1:
                del spoilt[at : at + chance.choice((1, 8, 1000))]
            elif what == 2:
                return None
            elif what == 3:
                spoilt[at] ^= 1 << chance.randrange(8)
            else:
                spoilt[at:at] = spoilt[at : at + chance.choice((1, 24, 1000))]
            return bytes(spoilt)

        return change

    return make
