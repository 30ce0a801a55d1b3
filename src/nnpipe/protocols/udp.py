"""UDP between a host and firmware of a board."""

from __future__ import annotations

from nnpipe.core.arguments import argument
from nnpipe.core.errors import NotSupported, TransportError
from nnpipe.core.runtime_protocol import Listener
from nnpipe.protocols.board_line import BoardLineProtocol
from nnpipe.protocols.channels.udp import UDPPort
from nnpipe.protocols.serial import SerialChannel, SerialLine, connected


class UDPProtocol(BoardLineProtocol):
    """UDP, as firmware of boards with Ethernet speaks it."""

    host: str = argument(help="name or address of the board")
    port: int = argument(default=12345, help="port of UDP at the board", minimum=1, maximum=65535)
    packet_size: int = argument(default=4096, help="most bytes in one packet", minimum=16, maximum=4096)

    def connect(self) -> SerialChannel:
        """Connect from the host to the board.

        Raises
        ------
        TransportError
            If the name is not known, no network leads there, or no firmware answers within ``timeout``.
        """
        name = f"{self.host}:{self.port}"
        try:
            port = UDPPort(self.host, self.port, self.timeout)
        except (OSError, UnicodeError) as error:
            raise TransportError(f"{self.host!r} is not the name or address of a board: {error}") from None
        line = SerialLine(port, name, self.timeout, self.packet_size)
        return connected(line, f"no firmware answers at {name} by UDP; is the board on, and is this its address?")

    def listen(self) -> Listener:
        """Raise NotSupported: the firmware is the server."""
        raise NotSupported(
            "UDPProtocol leads to firmware, which serves by itself; other targets are reached by NetworkProtocol"
        )
