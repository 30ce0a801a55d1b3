from __future__ import annotations

import contextlib
import dataclasses
import datetime
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnpipe.core.errors import ConfigError, TransportError
from nnpipe.core.runtime_protocol import Channel, Listener, RuntimeProtocol
from nnpipe.protocols.channels.stream_socket import SocketListener
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


# -- why a certificate is refused, and what helps ----------------------------------------------------


def certificate(folder: Path, host: str, days: tuple[int, int]) -> TLSProtocol:
    """A server whose certificate is for a host and lasts from the one day to the other, counted from today."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "board")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    (folder / "certificate.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return TLSProtocol(port=0, certificate=folder / "certificate.pem", key=folder / "key.pem", timeout=5.0)


@pytest.mark.parametrize(
    ("host", "days", "advice"),
    [
        ("192.168.1.50", (-1, 9), r"--host\), or make it one for 127\.0\.0\.1$"),
        ("127.0.0.1", (-9, -1), r"expired; make the target a new one"),
        ("127.0.0.1", (5, 9), r"not yet valid; .*clock"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told_and_what_helps(
    tmp_path: Path, host: str, days: tuple[int, int], advice: str
) -> None:
    with certificate(tmp_path, host, days).listen() as listener:
        client = TLSProtocol(port=listener.address()[1], ca=tmp_path / "certificate.pem", timeout=5.0)
        with pytest.raises(TransportError, match=advice) as caught, pair(Greeting(listener), client):
            pass
    assert "--ca" not in str(caught.value), "it was given"


def test_a_file_that_does_not_vouch_for_the_target_is_named(tmp_path: Path) -> None:
    with certificate(tmp_path, "127.0.0.1", (-1, 9)).listen() as listener:
        client = TLSProtocol(port=listener.address()[1], ca=KEYS / "ca.pem", timeout=5.0)
        with pytest.raises(TransportError, match=r"ca\.pem does not vouch for it"), pair(Greeting(listener), client):
            pass
