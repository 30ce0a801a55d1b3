"""TCP with TLS: encrypted, and with certificates that identify both sides."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, LineTimeout, TransportError
from nnpipe.protocols.channels.stream_socket import SocketChannel, SocketListener
from nnpipe.protocols.network import NetworkProtocol

# OpenSSL's reasons to refuse a certificate, from x509_vfy.h.
_NOT_YET, _EXPIRED = 9, 10
_UNKNOWN = frozenset((18, 19, 20, 21))  # signed by itself, or by an unknown authority
_OTHER_NAME = frozenset((62, 63, 64))  # of a host, an e-mail address, an IP address
_JOIN = 1 << 14  # bytes up to which buffers are joined, since each send makes its own TLS record


class TLSChannel(SocketChannel):
    """A connected TLS socket; the handshake happens with the first bytes."""

    opaque = True

    def _set_up(self, sock: socket.socket, timeout: float) -> None:
        assert isinstance(sock, ssl.SSLSocket)
        sock.settimeout(timeout)
        self._tls = sock
        self._agreed = False

    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send all buffers in order; small ones are joined."""
        try:
            self._wait_again()
            small: list[memoryview | bytes] = []
            size = 0
            for buffer in buffers:
                if size + len(buffer) > _JOIN:
                    self._tls.sendall(b"".join(small))
                    small, size = [], 0
                if len(buffer) > _JOIN:
                    self._tls.sendall(buffer)
                else:
                    small.append(buffer)
                    size += len(buffer)
            if small:
                self._tls.sendall(b"".join(small))
        except OSError as error:
            raise self._create_error(error, "took nothing") from None

    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, read at most ``len(buffer)`` of them, and return their number; 0 if
        the other side closed.
        """
        try:
            self._wait_again()
            return self._tls.recv_into(buffer, min(len(buffer), self._most))
        except OSError as error:
            raise self._create_error(error, "sent nothing") from None

    def receive_now(self, buffer: memoryview) -> int | None:
        """Receive available bytes without waiting, and continue the TLS handshake if it is not
        complete.
        """
        try:
            self._tls.settimeout(0)
            if not self._agreed:
                self._tls.do_handshake()
                self._agreed = True
            return self._tls.recv_into(buffer, len(buffer))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError as error:
            raise self._create_error(error, "sent nothing") from None

    def send_now(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send some small buffers without waiting; before the TLS handshake is complete nothing
        can be sent.
        """
        if not self._agreed:
            raise TransportError(f"{self.name} has not completed the TLS handshake")
        try:
            self._tls.settimeout(0)
            self._tls.send(b"".join(buffers))  # one record, which is sent as a whole or not at all
        except OSError as error:
            raise self._create_error(error, "took nothing") from None

    def _wait_again(self) -> None:
        if self._tls.gettimeout() == 0:
            self._tls.settimeout(self.timeout)

    def _create_error(self, error: OSError, what: str) -> TransportError:
        if isinstance(error, (ssl.SSLWantReadError, ssl.SSLWantWriteError)):
            return LineTimeout(f"{self.name} {what} in time")
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return TransportError(f"TLS with {self.name} failed: {_describe_reason(error)}")
        return super()._create_error(error, what)


class TLSListener(SocketListener):
    """A listening socket whose channels speak TLS."""

    def __init__(
        self,
        sock: socket.socket,
        timeout: float,
        packet_size: int,
        name: str,
        context: ssl.SSLContext,
    ):
        super().__init__(sock, timeout, packet_size, name)
        self._context = context

    def _create_channel(self, connection: socket.socket, name: str) -> SocketChannel:
        wrapped = self._context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        return TLSChannel(wrapped, self._timeout, self._packet_size, name)


class TLSProtocol(NetworkProtocol):
    """TCP encrypted by TLS, with certificates."""

    certificate: Path | None = argument(
        default=None, help="file with this side's certificate (PEM); a server needs one"
    )
    key: Path | None = argument(default=None, help="file with the certificate's private key (PEM)")
    ca: Path | None = argument(
        default=None,
        help="file with the certificates that vouch for the other side (PEM); a server that is "
        "given one lets in only clients with a certificate (default: those of the system; a server "
        "asks for none)",
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` if there is a key without a certificate."""
        if self.key is not None and self.certificate is None:
            raise ConfigError("--key is the key of a certificate: name that too (--certificate)")

    def _create_channel(self, sock: socket.socket) -> SocketChannel:
        sock.settimeout(self.timeout)
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ca)
            self._load_certificate(context)
            wrapped = context.wrap_socket(sock, server_hostname=self.host)
        except OSError as error:
            sock.close()
            raise self._convert_error(f"TLS with {self.host}:{self.port} failed", error) from None
        return TLSChannel(wrapped, self.timeout, self.packet_size, f"{self.host}:{self.port}")

    def _create_listener(self, sock: socket.socket, name: str) -> SocketListener:
        try:
            if self.certificate is None:
                raise ConfigError("a TLS server needs a certificate: --certificate FILE --key FILE")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._load_certificate(context)
            if self.ca is not None:
                context.load_verify_locations(self.ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except ConfigError:
            sock.close()
            raise
        except OSError as error:
            sock.close()
            raise self._convert_error("cannot use the certificate", error) from None
        return TLSListener(sock, self.timeout, self.packet_size, name, context)

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, password=_raise_no_password)

    def _convert_error(self, what: str, error: OSError) -> TransportError | ConfigError:
        if isinstance(error, FileNotFoundError):
            named = [
                str(path) for path in (self.certificate, self.key, self.ca) if path is not None
            ]
            return ConfigError(f"{what}: {' or '.join(named)} is not there")
        if isinstance(error, ssl.SSLCertVerificationError):
            return TransportError(
                f"{what}: {error.verify_message}{self._suggest_remedy(error.verify_code)}"
            )
        return TransportError(f"{what}: {_describe_reason(error)}")

    def _suggest_remedy(self, code: int) -> str:
        """Return the remedy for a refused certificate, by OpenSSL's number of the reason."""
        if code in _OTHER_NAME:
            return (
                f"; name the target as its certificate does (--host), or make it one for "
                f"{self.host}"
            )
        if code == _EXPIRED:
            return "; make the target a new one, unless it is this machine's clock that is wrong"
        if code == _NOT_YET:
            return "; it is for later: is the clock of one of the two machines wrong?"
        if code in _UNKNOWN:
            if self.ca is None:
                return "; name who vouches for the target: --ca FILE"
            return f"; {self.ca} does not vouch for it: is it the file that belongs to this target?"
        return ""


def _raise_no_password() -> str:
    raise OSError("its private key is encrypted, which a server that starts by itself cannot use")


def _describe_reason(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    if isinstance(reason, str):
        return reason.lower().replace("_", " ")
    return "it took too long" if isinstance(error, TimeoutError) else error.strerror or str(error)
