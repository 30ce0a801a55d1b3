"""Ways to boards that are emulated."""

from __future__ import annotations

from nnpipe.frameworks.cortex_m.image import CORES
from nnpipe.protocols.channels.emulator import EmulatorUDPPort
from nnpipe.protocols.serial import SerialLine, UDPProtocol


def by_udp(line: SerialLine) -> UDPProtocol:
    """Return the way to a Cortex-M4 that is emulated, as to one that is not."""
    assert isinstance(line._port, EmulatorUDPPort)
    host, port = line._port._socket.getpeername()
    return UDPProtocol(
        host=host, port=port, core="cortex-m4", model_address=hex(CORES["cortex-m4"].model_address)
    )
