"""TCP connections between a host and a target, and Unix sockets on one machine."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from pathlib import Path
from typing import Any

from nnpipe.core.arguments import argument
from nnpipe.core.errors import NotSupported, TransportError
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.protocols.channels.stream_socket import SocketChannel, SocketListener, disable_pacing


class NetworkProtocol(RuntimeProtocol):
    """TCP, on this machine or over a network."""

    host: str = argument(
        default="127.0.0.1",
        help="name or address of the target; for a server, the address to listen at",
    )
    port: int = argument(
        default=12345, help="TCP port; for a server, 0 takes a free one", minimum=0, maximum=65535
    )
    packet_size: int = argument(
        default=1 << 22,
        help="most bytes handed to the network in one call",
        minimum=64,
        maximum=1 << 30,
    )
    timeout: float = argument(
        default=10.0, help="seconds without a byte after which the line is given up", minimum=0.01
    )

    def is_exposed(self) -> bool:
        """Return whether the address can be reached from other machines."""
        try:
            return not all(
                ipaddress.ip_address(found[4][0]).is_loopback
                for found in self._resolve_addresses(passive=True)
            )
        except (TransportError, ValueError):
            return True

    def connect(self) -> SocketChannel:
        """Connect from the host to the target."""
        cause = "it has no address"
        for *kind, _, address in self._resolve_addresses(passive=False):
            try:
                sock = self._connect_socket(kind, address)
            except OSError as error:
                cause = _describe_cause(error)
                continue
            return self._create_channel(sock)
        raise TransportError(
            f"no target answers at {self.host}:{self.port} ({cause}); is the server running there?"
        )

    def _connect_socket(self, kind: list[int], address: Any) -> socket.socket:
        sock = socket.socket(*kind)
        try:
            disable_pacing(sock)
            sock.settimeout(self.timeout)
            sock.connect(address)
            sock.settimeout(None)
        except BaseException:
            sock.close()
            raise
        return sock

    def _create_channel(self, sock: socket.socket) -> SocketChannel:
        return SocketChannel(sock, self.timeout, self.packet_size, f"{self.host}:{self.port}")

    def listen(self) -> SocketListener:
        """Listen for hosts on the target."""
        family, kind, number, _, address = self._resolve_addresses(passive=True)[0]
        sock = socket.socket(family, kind, number)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            disable_pacing(sock)
            sock.bind(address)
            sock.listen(128)
        except OSError as error:
            sock.close()
            raise TransportError(
                f"cannot listen at {self.host}:{self.port}: {_describe_cause(error)}"
            ) from None
        return self._create_listener(sock, f"{self.host}:{sock.getsockname()[1]}")

    def _create_listener(self, sock: socket.socket, name: str) -> SocketListener:
        return SocketListener(sock, self.timeout, self.packet_size, name)

    def _resolve_addresses(self, passive: bool) -> list[tuple[Any, ...]]:
        try:
            flags = socket.AI_PASSIVE if passive else 0
            return list(
                socket.getaddrinfo(
                    self.host or None, self.port, type=socket.SOCK_STREAM, flags=flags
                )
            )
        except (OSError, UnicodeError) as error:
            raise TransportError(
                f"{self.host!r} is not the name or address of a machine: {error}"
            ) from None


def _describe_cause(error: OSError) -> str:
    return "it took too long" if isinstance(error, TimeoutError) else error.strerror or str(error)


class UnixListener(SocketListener):
    """A listening Unix socket, whose file is removed when the process that made it closes the
    listener.
    """

    def __init__(self, sock: socket.socket, timeout: float, packet_size: int, path: Path) -> None:
        super().__init__(sock, timeout, packet_size, str(path))
        self._path = path
        self._maker = os.getpid()

    def close(self) -> None:
        """Stop waiting; accepted channels stay open."""
        if self._sock.fileno() >= 0 and os.getpid() == self._maker:
            with contextlib.suppress(OSError):
                self._path.unlink()
        super().close()


class UnixProtocol(RuntimeProtocol):
    """A Unix socket: a file that only this user's programs can reach."""

    socket_path: Path = argument(help="the socket's file")
    packet_size: int = argument(
        default=1 << 22, help="most bytes handed over in one call", minimum=64, maximum=1 << 30
    )
    timeout: float = argument(
        default=10.0, help="seconds without a byte after which the line is given up", minimum=0.01
    )

    def is_exposed(self) -> bool:
        """Return False: the file's permissions exclude other users and machines."""
        return False

    def connect(self) -> SocketChannel:
        """Connect from the host to the target."""
        sock = self._create_socket()
        try:
            sock.settimeout(self.timeout)
            sock.connect(str(self.socket_path))
            sock.settimeout(None)
        except OSError as error:
            sock.close()
            raise TransportError(
                f"no target answers at {self.socket_path} ({error.strerror or error}); is the "
                f"server running?"
            ) from None
        return SocketChannel(sock, self.timeout, self.packet_size, str(self.socket_path))

    def listen(self) -> UnixListener:
        """Listen for hosts on the target."""
        sock = self._create_socket()
        try:
            self._clear()
            before = os.umask(0o177)
            try:
                sock.bind(str(self.socket_path))
            finally:
                os.umask(before)
            sock.listen(128)
        except OSError as error:
            sock.close()
            raise TransportError(
                f"cannot listen at {self.socket_path}: {error.strerror or error}"
            ) from None
        return UnixListener(sock, self.timeout, self.packet_size, self.socket_path)

    def _clear(self) -> None:
        """Remove the socket file of a killed server; nothing else is removed."""
        try:
            if not stat.S_ISSOCK(self.socket_path.lstat().st_mode):
                return
        except FileNotFoundError:
            return
        with self._create_socket() as probe:
            probe.settimeout(self.timeout)
            try:
                probe.connect(str(self.socket_path))
            except ConnectionRefusedError:
                self.socket_path.unlink(missing_ok=True)

    def _create_socket(self) -> socket.socket:
        if not hasattr(socket, "AF_UNIX"):
            raise NotSupported("this system has no Unix sockets; use NetworkProtocol")
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
