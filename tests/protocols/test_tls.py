from __future__ import annotations

import contextlib
import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError, TransportError
from nnpipe.core.runtimeprotocol import Channel, Listener, RuntimeProtocol
from nnpipe.protocols._socket import SocketListener
from nnpipe.protocols.tls import TLSChannel, TLSProtocol
from nnpipe.testing.protocol import RuntimeProtocolContract, pair

KEYS = Path(__file__).parents[1] / "data" / "tls"


class TestTLSProtocol(RuntimeProtocolContract):
    timeout = 1.0

    @pytest.fixture
    def protocol(self) -> TLSProtocol:
        return TLSProtocol(
            port=0,
            certificate=KEYS / "target.pem",
            key=KEYS / "target.key",
            ca=KEYS / "ca.pem",
            timeout=self.timeout,
        )

    @pytest.fixture
    def serving(self, protocol: TLSProtocol) -> Iterator[tuple[Listener, RuntimeProtocol]]:
        with protocol.listen() as listener:
            assert isinstance(listener, SocketListener)
            yield Greeting(listener), dataclasses.replace(protocol, port=listener.address()[1])


class Greeting(Listener):
    """Takes part in the TLS handshake as soon as a client comes, as the server's reception does."""

    def __init__(self, listener: SocketListener) -> None:
        self._listener = listener

    def accept(self, timeout: float | None = None) -> Channel | None:
        channel = self._listener.accept(timeout)
        if isinstance(channel, TLSChannel):
            with contextlib.suppress(OSError):
                channel._tls.do_handshake()
        return channel

    def close(self) -> None:
        self._listener.close()


def server(**changes: object) -> TLSProtocol:
    return TLSProtocol(port=0, certificate=KEYS / "target.pem", key=KEYS / "target.key", timeout=2.0, **changes)


def test_a_target_that_nobody_vouches_for_is_refused() -> None:
    with server().listen() as listener, pytest.raises(TransportError, match="--ca"):
        with pair(Greeting(listener), TLSProtocol(port=listener.address()[1], timeout=2.0)):
            pass


def test_a_target_with_a_strange_certificate_is_refused() -> None:
    strange = TLSProtocol(port=0, certificate=KEYS / "stranger.pem", key=KEYS / "stranger.key", timeout=2.0)
    with strange.listen() as listener, pytest.raises(TransportError, match="certificate"):
        with pair(Greeting(listener), TLSProtocol(port=listener.address()[1], ca=KEYS / "ca.pem", timeout=2.0)):
            pass


def test_a_target_that_does_not_speak_tls_is_refused_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(TransportError, match="TLS with"):
            TLSProtocol(port=silent.getsockname()[1], timeout=0.3).connect()


def test_a_server_without_a_certificate_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="--certificate"):
        TLSProtocol(port=0).listen()


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        TLSProtocol(port=0, certificate=Path("nowhere.pem")).listen()


def test_a_key_without_a_certificate_makes_no_sense() -> None:
    with pytest.raises(ConfigError, match="--certificate"):
        TLSProtocol(key=KEYS / "target.key")
