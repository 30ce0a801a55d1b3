from __future__ import annotations

import contextlib
import dataclasses
import datetime
import ipaddress
import random
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from servers import Server, serves

from nnpipe.core.errors import ConfigError, NNPipeError, TransportError
from nnpipe.core.runtime_protocol import Channel, Listener, RuntimeProtocol
from nnpipe.protocols.channels.stream_socket import SocketListener
from nnpipe.protocols.client.connection import Connection
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.tls import TLSChannel, TLSProtocol
from nnpipe.testing.protocol import RuntimeProtocolContract, connect_pair

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
    return TLSProtocol(
        port=0, certificate=KEYS / "target.pem", key=KEYS / "target.key", timeout=2.0, **changes
    )


def test_a_target_that_nobody_vouches_for_is_refused() -> None:
    with server().listen() as listener, pytest.raises(TransportError, match="--ca"):
        with connect_pair(Greeting(listener), TLSProtocol(port=listener.address()[1], timeout=2.0)):
            pass


def test_a_target_with_a_strange_certificate_is_refused() -> None:
    strange = TLSProtocol(
        port=0, certificate=KEYS / "stranger.pem", key=KEYS / "stranger.key", timeout=2.0
    )
    with strange.listen() as listener, pytest.raises(TransportError, match="certificate"):
        with connect_pair(
            Greeting(listener),
            TLSProtocol(port=listener.address()[1], ca=KEYS / "ca.pem", timeout=2.0),
        ):
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


# -- why a certificate is refused, and what helps
# ----------------------------------------------------


def certificate(folder: Path, host: str, days: tuple[int, int]) -> TLSProtocol:
    """A server whose certificate is for a host and lasts from the one day to the other, counted
    from today.
    """
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
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "certificate.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return TLSProtocol(
        port=0, certificate=folder / "certificate.pem", key=folder / "key.pem", timeout=5.0
    )


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
        client = TLSProtocol(
            port=listener.address()[1], ca=tmp_path / "certificate.pem", timeout=5.0
        )
        with (
            pytest.raises(TransportError, match=advice) as caught,
            connect_pair(Greeting(listener), client),
        ):
            pass
    assert "--ca" not in str(caught.value), "it was given"


def test_a_file_that_does_not_vouch_for_the_target_is_named(tmp_path: Path) -> None:
    with certificate(tmp_path, "127.0.0.1", (-1, 9)).listen() as listener:
        client = TLSProtocol(port=listener.address()[1], ca=KEYS / "ca.pem", timeout=5.0)
        with (
            pytest.raises(TransportError, match=r"ca\.pem does not vouch for it"),
            connect_pair(Greeting(listener), client),
        ):
            pass


# -- clients that hold up a server
# ------------------------------------------------------------------

CROWD = 64
TOKEN = b"a token that is long enough"


def test_an_honest_client_is_served_at_once_amid_silent_slow_and_hostile_ones(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_bytes(TOKEN)
    options = ("--certificate", str(KEYS / "target.pem"), "--key", str(KEYS / "target.key"))
    with Server(
        "--token-file",
        str(token),
        "--greeting-timeout",
        "1",
        timeout=10.0,
        protocol=("nnpipe.protocols.tls.TLSProtocol", "--port", "0", *options),
    ) as target:
        honest = TLSProtocol(port=target.port, ca=KEYS / "ca.pem", timeout=10.0)
        alone = min(time_to_be_served(honest, tmp_path, token) for _ in range(3))
        over = threading.Event()
        crowd = [
            threading.Thread(
                target=keep_visiting, args=(VISITS[n % len(VISITS)], target.port, n, over)
            )
            for n in range(CROWD)
        ]
        for each in crowd:
            each.start()
        try:
            time.sleep(0.5)
            amid = []
            for _ in range(6):  # the silent ones are turned away meanwhile, and come again
                amid.append(time_to_be_served(honest, tmp_path, token))
                time.sleep(0.2)
        finally:
            over.set()
            for each in crowd:
                each.join(20)
        assert max(amid) < alone + 1.0, (
            f"alone {alone:.2f} s, amid the crowd {[round(s, 2) for s in amid]}"
        )
        assert target.stop() == 0
        assert "Traceback" not in target.log


def time_to_be_served(protocol: TLSProtocol, folder: Path, token: Path) -> float:
    begin = time.monotonic()
    serves(protocol, folder, token)
    return time.monotonic() - begin


def keep_visiting(
    visit: Callable[[int, random.Random, threading.Event], None],
    port: int,
    seed: int,
    over: threading.Event,
) -> None:
    chance = random.Random(seed)
    while not over.is_set():
        with contextlib.suppress(OSError, NNPipeError):
            visit(port, chance, over)
        over.wait(0.02)


def plain(port: int, chance: random.Random) -> socket.socket:
    """A connection from an address of its own, since wrong tokens delay everybody at an address."""
    origin = f"127.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}"
    return socket.create_connection(("127.0.0.1", port), 5.0, source_address=(origin, 0))


def encrypted(port: int, chance: random.Random) -> socket.socket:
    context = ssl.create_default_context(cafile=str(KEYS / "ca.pem"))
    return context.wrap_socket(plain(port, chance), server_hostname="127.0.0.1")


def until_sent_away(sock: socket.socket, over: threading.Event) -> None:
    sock.settimeout(0.1)
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            if not sock.recv(1):
                return


def say_nothing(port: int, chance: random.Random, over: threading.Event) -> None:
    with plain(port, chance) as sock:
        until_sent_away(sock, over)


def stop_in_the_handshake(port: int, chance: random.Random, over: threading.Event) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    with plain(port, chance) as sock:
        sock.sendall(outgoing.read()[: chance.choice((5, 60, 1 << 20))])
        until_sent_away(sock, over)


def say_a_byte_now_and_then(port: int, chance: random.Random, over: threading.Event) -> None:
    with plain(port, chance) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00")
        while not over.wait(0.05):
            sock.sendall(b"\x01")


def talk_nonsense(port: int, chance: random.Random, over: threading.Event) -> None:
    with plain(port, chance) as sock:
        sock.sendall(chance.randbytes(chance.choice((1, 30, 3000))))
        until_sent_away(sock, over)


def say_nothing_encrypted(port: int, chance: random.Random, over: threading.Event) -> None:
    with encrypted(port, chance) as sock:
        until_sent_away(sock, over)


def read_no_answer(port: int, chance: random.Random, over: threading.Event) -> None:
    with encrypted(port, chance) as sock:
        sock.sendall(b"".join(HostConversation().build_hello()))
        over.wait(1.5)


def guess_the_token(port: int, chance: random.Random, over: threading.Event) -> None:
    channel = TLSChannel(encrypted(port, chance), 5.0, 1 << 20, "the target")
    with contextlib.closing(
        Connection(channel, HostConversation(token=b"not the right one at all"))
    ) as connection:
        connection.perform_handshake()


VISITS = (
    say_nothing,
    stop_in_the_handshake,
    say_a_byte_now_and_then,
    talk_nonsense,
    say_nothing_encrypted,
    read_no_answer,
    guess_the_token,
    say_nothing,
)
