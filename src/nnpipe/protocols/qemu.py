"""Boards without an operating system that QEMU emulates."""

from __future__ import annotations

import contextlib
from typing import ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NotSupported
from nnpipe.core.external_tools import Tool
from nnpipe.core.leases import temporary_folder
from nnpipe.core.runtime_protocol import Listener, RuntimeProtocol
from nnpipe.frameworks.cortex_m.cores import ARM_GCC, CoreName
from nnpipe.frameworks.cortex_m.image import built_for
from nnpipe.protocols.boards import ADDRESS, BOARDS, PORT, build_firmware
from nnpipe.protocols.channels.emulator import EmulatorPort, EmulatorUDPPort
from nnpipe.protocols.serial import SerialChannel, SerialLine, connected

QEMU = Tool("QEMU for Arm", ("qemu-system-arm",), "apt install qemu-system-arm")
"""The emulator of boards with a Cortex-M."""

_NETWORK = f"user,model=lan9118,ipv6=off,hostfwd=udp:127.0.0.1:{{port}}-{ADDRESS}:{PORT}"
_LINES = {
    "network": ("-nic", _NETWORK, "-serial", "null"),
    "uart": ("-nic", "none", "-chardev", "socket,id=line,fd={line}", "-serial", "chardev:line"),
}


class QemuTarget(RuntimeProtocol):
    """A Cortex-M board that QEMU emulates on this machine, with firmware that is built and started for each connection.

    It counts instructions, which are not cycles, and repeat.  Models are C of
    ``CCompiler``, which is built for the core.
    """

    needs_tools: ClassVar[tuple[Tool, ...]] = (ARM_GCC, QEMU)

    core: CoreName = argument("cortex-m4", help="core of the board")
    line: Literal["network", "uart"] = argument(
        "network",
        help="how to reach the firmware: by UDP over the emulated network, or by the UART, which is slow",
    )
    packet_size: int = argument(4096, help="most bytes in one packet", minimum=16, maximum=4096)
    timeout: float = argument(10.0, help="seconds without a byte after which the emulator is given up", minimum=0.1)

    def exposed(self) -> bool:
        """Return False: the line to the emulator belongs to this process."""
        return False

    def translated(self, artifact: Artifact) -> contextlib.AbstractContextManager[Artifact]:
        """Yield C as machine code for the core."""
        core = BOARDS[self.core].core
        return built_for(artifact, core, core.model_address, type(self).__name__)

    def connect(self) -> SerialChannel:
        """Start the emulator, and connect to it.

        Raises
        ------
        MissingTool
            If QEMU, or GCC for Arm, is not installed.
        TransportError
            If the emulator does not start.
        """
        qemu = QEMU.check(type(self).__name__)
        board = BOARDS[self.core]
        with temporary_folder() as folder:
            firmware = folder / "firmware.elf"
            build_firmware(board, firmware, type(self).__name__)
            command = [
                qemu, "-M", board.name, "-display", "none", "-monitor", "none", "-icount", "shift=0",
                "-kernel", str(firmware), *_LINES[self.line],
            ]  # fmt: skip
            port = (EmulatorUDPPort if self.line == "network" else EmulatorPort)(command, self.timeout)
            line = SerialLine(port, f"{self.core} in QEMU", self.timeout, self.packet_size)
            return connected(line, f"the emulated {board.name} does not answer")  # it has read the firmware by then

    def listen(self) -> Listener:
        """Raise NotSupported: the emulated board is the server."""
        raise NotSupported("QemuTarget is an emulated board, which serves by itself; name it where a model is measured")
