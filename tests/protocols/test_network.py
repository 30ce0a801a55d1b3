from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator

import pytest

from nnpipe.core.errors import TransportError
from nnpipe.core.runtime_protocol import Listener, RuntimeProtocol
from nnpipe.protocols import network
from nnpipe.protocols.channels.stream_socket import SocketListener, disable_pacing
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.testing.channel import ChannelContract, Channels
from nnpipe.testing.fakes import create_memory_pair
from nnpipe.testing.protocol import RuntimeProtocolContract


class TestNetworkProtocol(RuntimeProtocolContract):
    @pytest.fixture
    def protocol(self) -> NetworkProtocol:
        return NetworkProtocol(host="localhost", port=0, packet_size=65_536, timeout=self.timeout)

    @pytest.fixture
    def serving(self, protocol: NetworkProtocol) -> Iterator[tuple[Listener, RuntimeProtocol]]:
        with protocol.listen() as listener:
            assert isinstance(listener, SocketListener)
            yield listener, dataclasses.replace(protocol, port=listener.address()[1])


class TestSmallPackets(TestNetworkProtocol):
    @pytest.fixture
    def protocol(self) -> NetworkProtocol:
        return NetworkProtocol(port=0, packet_size=1000, timeout=self.timeout)


class TestMemoryChannels(ChannelContract):
    @pytest.fixture
    def channels(self) -> Channels:
        return create_memory_pair(self.timeout)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_a_loopback_address_is_not_exposed(host: str) -> None:
    assert not NetworkProtocol(host=host).is_exposed()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.2", "no-such-name.invalid"])
def test_every_other_address_is_exposed(host: str) -> None:
    assert NetworkProtocol(host=host).is_exposed()


def test_a_name_that_does_not_exist_is_named() -> None:
    with pytest.raises(TransportError, match=r"no-such-name\.invalid"):
        NetworkProtocol(host="no-such-name.invalid", timeout=5.0).connect()
    with pytest.raises(TransportError, match=r"no-such-name\.invalid"):
        NetworkProtocol(host="no-such-name.invalid").listen()


def test_a_port_that_is_taken_is_named() -> None:
    with NetworkProtocol(port=0).listen() as listener:
        port = listener.address()[1]
        with pytest.raises(TransportError, match=str(port)):
            NetworkProtocol(port=port).listen()


def test_the_next_address_is_tried_when_one_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with NetworkProtocol(host="127.0.0.1", port=0).listen() as listener:
        assert isinstance(listener, SocketListener)
        protocol = NetworkProtocol(host="127.0.0.1", port=listener.address()[1])
        (here,) = protocol._resolve_addresses(passive=False)
        nobody = (*here[:4], ("127.0.0.2", 1))
        monkeypatch.setattr(
            NetworkProtocol, "_resolve_addresses", lambda self, passive: [nobody, here]
        )
        protocol.connect().close()
        monkeypatch.setattr(
            NetworkProtocol, "_resolve_addresses", lambda self, passive: [nobody, nobody]
        )
        with pytest.raises(
            TransportError, match=r"no target answers at 127\.0\.0\.1:\d+ \(Connection refused\)"
        ):
            protocol.connect()


def test_pacing_is_settled_before_a_connection_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = []

    def spy(sock: socket.socket) -> None:
        try:
            sock.getpeername()
            connected.append(True)
        except OSError:
            connected.append(False)
        disable_pacing(sock)

    monkeypatch.setattr(network, "disable_pacing", spy)
    with NetworkProtocol(port=0).listen() as listener:
        assert isinstance(listener, SocketListener)
        host = NetworkProtocol(port=listener.address()[1]).connect()
        target = listener.accept(5.0)
        assert target is not None
        assert connected == [False, False]
        if hasattr(socket, "TCP_CONGESTION"):
            for channel in (host, target):
                chosen = channel._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)  # type: ignore[attr-defined]
                assert not chosen.startswith(b"bbr")
        host.close()
        target.close()
