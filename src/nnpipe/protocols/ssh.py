"""Connections through SSH to a server that listens at the loopback address of another machine."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import tempfile
from typing import IO

from nnpipe.core.arguments import argument
from nnpipe.core.errors import TransportError
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.jobs.agent.files import REPLY
from nnpipe.jobs.ssh import CommandConnection, get_last_line
from nnpipe.protocols.channels.stream_socket import SocketChannel, SocketListener
from nnpipe.protocols.network import NetworkProtocol

_LOOPBACK = "127.0.0.1"
_NOISE = 1 << 20  # bytes that start files of a shell may print
_LOGIN = 60.0  # seconds; ssh itself gives up after 15 if the machine does not answer
_ENDING = 5.0  # seconds

# ssh's own forwarding (-W) does not tell whether the server answers, and some machines forbid it.
_RELAY = """import os, socket, sys, threading, time
try:
    line = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
except OSError as error:
    sys.exit("no server answers at its port %s (%s)" % (sys.argv[2], error.strerror or error))
line.settimeout(None)
line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
os.write(1, b"\\0nnpipe\\n")
def send():
    while data := os.read(0, 1 << 18):
        line.sendall(data)
    line.shutdown(socket.SHUT_WR)
    time.sleep(1)  # for what the server still has to say
    os._exit(0)
threading.Thread(target=send, daemon=True).start()
while data := line.recv(1 << 18):
    while data:
        data = data[os.write(1, data):]
os._exit(0)
"""


class SSHChannel(SocketChannel):
    """A connection through a process of ``ssh``, which ends with it."""

    def __init__(
        self,
        sock: socket.socket,
        timeout: float,
        packet_size: int,
        name: str,
        process: subprocess.Popen[bytes],
    ) -> None:
        super().__init__(sock, timeout, packet_size, name)
        self._process = process

    def set_time_limit(self, timeout: float) -> SSHChannel:
        """Return the channel with the time limit in seconds that holds once the user is logged
        in.
        """
        self.timeout = timeout
        self._set_up(self._sock, timeout)
        return self

    def close(self) -> None:
        """Close the connection, and end the process."""
        super().close()
        try:
            self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class SSHProtocol(RuntimeProtocol):
    """TCP through SSH, to a server that only its own machine can reach: encrypted, by the user's
    keys.
    """

    host: str = argument(help="the machine as ssh finds it: HOST, USER@HOST or USER@HOST:PORT")
    port: int = argument(
        default=12345, help="TCP port of the server on that machine", minimum=0, maximum=65535
    )
    python: str = argument(default="python3", help="a Python on that machine")
    packet_size: int = argument(
        default=1 << 22, help="most bytes handed to ssh in one call", minimum=64, maximum=1 << 30
    )
    timeout: float = argument(
        default=20.0, help="seconds without a byte after which the line is given up", minimum=0.01
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` if ``host`` is no address."""
        CommandConnection.at(self.host)

    def is_exposed(self) -> bool:
        """Return False: the server listens at the loopback address."""
        return False

    def connect(self) -> SSHChannel:
        """Connect from the host to the target."""
        ours, theirs = socket.socketpair()
        relay = shlex.join([self.python, "-E", "-S", "-c", _RELAY, _LOOPBACK, str(self.port)])
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    CommandConnection.at(self.host).build_command(relay),
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=said,
                )
            except OSError as error:
                ours.close()
                raise TransportError(
                    f"ssh: {error.strerror or error}; install OpenSSH's client"
                ) from None
            finally:
                theirs.close()
            channel = SSHChannel(ours, _LOGIN, self.packet_size, self.host, process)
            try:
                self._wait_for_relay(channel, said)
                return channel.set_time_limit(self.timeout)
            except BaseException:
                process.kill()
                channel.close()
                raise

    def listen(self) -> SocketListener:
        """Listen at the loopback address of the target, for whom its SSH server lets in."""
        return NetworkProtocol(
            host=_LOOPBACK, port=self.port, packet_size=self.packet_size, timeout=self.timeout
        ).listen()

    def _wait_for_relay(self, channel: SSHChannel, said: IO[bytes]) -> None:
        """Wait until the relay is connected; what start files print before is passed over."""
        heard = bytearray()
        piece = bytearray(1)
        while not heard.endswith(REPLY):
            if not channel.receive_into(memoryview(piece)):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    channel._process.wait(_ENDING)
                said.seek(0)
                raise TransportError(
                    f"{self.host}: {get_last_line(said.read(_NOISE)) or 'ssh ended'}"
                )
            heard += piece
            if len(heard) > _NOISE:
                raise TransportError(
                    f"{self.host}: what should have answered did not; is {self.python} Python?"
                )
