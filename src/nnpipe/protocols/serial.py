"""Serial lines and UDP between a host and firmware of a board."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError, LineTimeout, NotSupported, TransportError
from nnpipe.core.runtime_protocol import Channel, Listener, RuntimeProtocol
from nnpipe.frameworks.cortex_m.image import CORES, CoreName, build_for_core
from nnpipe.protocols.channels.emulator import UDPPort
from nnpipe.protocols.conversation.packets import OVERHEAD, Packet, PacketReader, PacketType, encode


class BoardLineProtocol(RuntimeProtocol):
    """A line that may lead to a board without an operating system."""

    abstract = True

    core: CoreName | None = argument(
        default=None,
        help="core of the board, if it has no operating system: models in C are built for it",
    )
    model_address: str = argument(
        default="",
        help=(
            "where firmware of such a board keeps models, as its linker script says, such as "
            "0x20010000"
        ),
    )
    timeout: float = argument(
        default=10.0, help="seconds without a byte after which the line is given up", minimum=0.1
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` if one of ``core`` and ``model_address`` is missing, or the
        address is none.
        """
        if (self.core is None) != (not self.model_address):
            raise ConfigError(
                "core and model_address go together: the core of a board without an operating "
                "system, and where its firmware keeps models, as its linker script says (_model)"
            )
        if self.core is not None:
            self._parse_address()

    def convert_artifact(self, artifact: Artifact) -> contextlib.AbstractContextManager[Artifact]:
        """Yield C as machine code for the core, if there is one."""
        if self.core is None:
            return super().convert_artifact(artifact)
        return build_for_core(
            artifact, CORES[self.core], self._parse_address(), type(self).__name__
        )

    def _parse_address(self) -> int:
        try:
            address = int(self.model_address, 0)
        except ValueError:
            address = -1
        if address % 16 or not 0 <= address < 1 << 32:
            raise ConfigError(
                f"model_address is {self.model_address!r}, which is no multiple of 16 such as "
                f"0x20010000"
            )
        return address


_OPEN_AGAIN = 0.2  # seconds after which the host repeats its request to open
_LARGEST = 4096  # bytes of content in a packet
_POLL = 0.05  # seconds of one read of the line


class SerialPort(Protocol):
    """What a line needs of a port, as pyserial has it."""

    @property
    def in_waiting(self) -> int:
        """The number of bytes that have come and were not read."""

    def read(self, size: int = 1) -> bytes:
        """Return up to ``size`` bytes, fewer if no more come for a moment."""

    def write(self, data: bytes, /) -> int | None:
        """Send all bytes."""

    def close(self) -> None:
        """Close the port."""


class SerialLine:
    """An open serial port and the packets on it."""

    def __init__(self, port: SerialPort, name: str, timeout: float, packet_size: int) -> None:
        self.name, self.timeout, self.packet_size = name, timeout, packet_size
        self._port = port
        # The other side may use larger packets; only the protocol's own limit holds for both.
        self._reader = PacketReader(_LARGEST + _LARGEST // 254 + OVERHEAD + 8)

    def write(self, data: bytes) -> None:
        """Send encoded packets."""
        try:
            self._port.write(data)
        except OSError as error:  # includes the errors of pyserial
            if "timeout" in str(error).lower():
                raise LineTimeout(f"{self.name} took nothing for {self.timeout:g} s") from None
            raise self._create_error(error) from None

    def read(self) -> list[Packet]:
        """Wait for a moment, and return the packets that arrived."""
        try:
            data = self._port.read(max(self._port.in_waiting, 1))
        # pyserial raises TypeError when closed by another thread
        except (OSError, TypeError) as error:
            raise self._create_error(error) from None
        return list(self._reader.feed(data))

    def close(self) -> None:
        """Close the port."""
        with contextlib.suppress(OSError):
            self._port.close()

    def _create_error(self, error: Exception) -> TransportError:
        return TransportError(f"the line to {self.name} failed: {error}")


class SerialChannel(Channel):
    """A session on a serial line.

    A packet that noise has changed is dropped.  The next packet's number, or
    silence, shows that it is missing, and ends the session with an error.  A
    new session is not affected.
    """

    capacity: ClassVar[int] = 0

    def __init__(self, line: SerialLine, session: int, owns_line: bool) -> None:
        self.name, self.timeout = line.name, line.timeout
        self._line = line
        self._session = session
        self._owns_line = owns_line
        self._sent = self._taken = 0
        self._bytes = bytearray()
        self._over = self._closed = False

    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send all buffers in order."""
        self._check()
        data = b"".join(buffers)
        for at in range(0, len(data), self._line.packet_size):
            content = data[at : at + self._line.packet_size]
            self._line.write(encode(PacketType.BYTES, self._session, self._sent, content))
            self._sent = self._sent + 1 & 0xFFFF

    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, read at most ``len(buffer)`` of them, and return their number; 0 if
        the other side closed.
        """
        self._check()
        deadline = time.monotonic() + self._line.timeout
        while not self._bytes and not self._over:
            for packet in self._line.read():
                self._handle_packet(packet)
            if time.monotonic() > deadline and not self._bytes and not self._over:
                raise LineTimeout(f"{self.name} sent nothing for {self._line.timeout:g} s")
        count = min(len(buffer), len(self._bytes))
        buffer[:count] = self._bytes[:count]
        del self._bytes[:count]
        return count

    def _handle_packet(self, packet: Packet) -> None:
        if packet.type == PacketType.OPEN and not self._owns_line:
            if packet.session == self._session and not self._taken:
                self._line.write(
                    encode(PacketType.OPENED, self._session, 0)
                )  # the first answer was lost
            else:
                self._over = True  # the host has begun a new session; it will repeat its request
        elif packet.session != self._session or self._over:
            return  # left over from an earlier session
        elif packet.type == PacketType.CLOSE:
            self._over = True
        elif packet.type == PacketType.BYTES:
            if packet.sequence != self._taken & 0xFFFF:
                raise TransportError(f"noise on {self.name}: a packet was lost")
            self._taken += 1
            self._bytes += packet.content

    def _check(self) -> None:
        if self._closed:
            raise TransportError(f"the connection to {self.name} is closed")

    def close(self) -> None:
        """Close the session and, on the host, the line; closing it twice does no harm."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(TransportError):
                self._line.write(encode(PacketType.CLOSE, self._session, 0))
        if self._owns_line:
            self._line.close()


def open_session(line: SerialLine) -> SerialChannel | None:
    """Ask the other side for a new session until it answers; return None if it does not within
    the line's limit.
    """
    session = secrets.randbelow(256)
    deadline = time.monotonic() + line.timeout
    while time.monotonic() < deadline:
        line.write(encode(PacketType.OPEN, session, 0))
        again = time.monotonic() + _OPEN_AGAIN
        while time.monotonic() < again:
            if any(
                packet.type == PacketType.OPENED and packet.session == session
                for packet in line.read()
            ):
                return SerialChannel(line, session, owns_line=True)
    return None


def connect_session(line: SerialLine, unanswered: str) -> SerialChannel:
    """Return a new session on a line, which is closed if there is none.

    Raises
    ------
    TransportError
        If the other side does not answer, with the message ``unanswered``; or if the line fails.
    """
    try:
        channel = open_session(line)
        if channel is None:
            raise TransportError(unanswered)
    except BaseException:
        line.close()
        raise
    return channel


class SerialListener(Listener):
    """Waits for a client on a serial line, which has room for one."""

    def __init__(self, line: SerialLine) -> None:
        self.name = line.name
        self._line = line

    def accept(self, timeout: float | None = None) -> SerialChannel | None:
        """Wait for the next client; return ``None`` after ``timeout`` seconds without one."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while deadline is None or time.monotonic() < deadline:
            for packet in self._line.read():
                if packet.type == PacketType.OPEN:
                    self._line.write(encode(PacketType.OPENED, packet.session, 0))
                    return SerialChannel(self._line, packet.session, owns_line=False)
        return None

    def close(self) -> None:
        """Close the line."""
        self._line.close()


class SerialProtocol(BoardLineProtocol):
    """A serial line, as microcontrollers have."""

    requires = ("serial",)
    install = "nnpipe[serial]"

    serial_port: str = argument(help="the serial port, such as /dev/ttyUSB0 or COM3")
    baud_rate: int = argument(default=115_200, help="bits a second", minimum=50)
    packet_size: int = argument(
        default=512, help="most bytes in one packet", minimum=16, maximum=_LARGEST
    )

    def is_exposed(self) -> bool:
        """Return False: only the machine at the other end of the cable can connect."""
        return False

    def connect(self) -> SerialChannel:
        """Connect from the host to the target."""
        return connect_session(
            self._open(),
            f"no target answers at {self.serial_port} ({self.baud_rate} baud); is it running "
            f"there?",
        )

    def listen(self) -> SerialListener:
        """Listen for hosts on the target."""
        return SerialListener(self._open())

    def _open(self) -> SerialLine:
        self.check_installed()
        import serial

        try:
            port: Any = serial.Serial(
                self.serial_port, self.baud_rate, timeout=_POLL, write_timeout=self.timeout
            )
        except (OSError, ValueError) as error:
            raise TransportError(
                f"cannot open the serial port {self.serial_port}: {error}"
            ) from None
        return SerialLine(port, self.serial_port, self.timeout, self.packet_size)


class UDPProtocol(BoardLineProtocol):
    """UDP, as firmware of boards with Ethernet speaks it."""

    host: str = argument(help="name or address of the board")
    port: int = argument(default=12345, help="port of UDP at the board", minimum=1, maximum=65535)
    packet_size: int = argument(
        default=4096, help="most bytes in one packet", minimum=16, maximum=4096
    )

    def connect(self) -> SerialChannel:
        """Connect from the host to the board.

        Raises
        ------
        TransportError
            If the name is not known, no network leads there, or no firmware answers within
            ``timeout``.
        """
        name = f"{self.host}:{self.port}"
        try:
            port = UDPPort(self.host, self.port, self.timeout)
        except (OSError, UnicodeError) as error:
            raise TransportError(
                f"{self.host!r} is not the name or address of a board: {error}"
            ) from None
        line = SerialLine(port, name, self.timeout, self.packet_size)
        return connect_session(
            line, f"no firmware answers at {name} by UDP; is the board on, and is this its address?"
        )

    def listen(self) -> Listener:
        """Raise NotSupported: the firmware is the server."""
        raise NotSupported(
            "UDPProtocol leads to firmware, which serves by itself; other targets are reached by "
            "NetworkProtocol"
        )
