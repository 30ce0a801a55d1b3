"""Boards without an operating system that QEMU emulates."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.discoverable import Tool
from nnpipe.core.errors import CompileError, NotSupported
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.runtime_protocol import Listener, RuntimeProtocol
from nnpipe.frameworks.cortex_m.image import ARM_GCC, CORES, Core, CoreName, build_for_core
from nnpipe.frameworks.cortex_m.image import SOURCES as IMAGE
from nnpipe.protocols.channels.emulator import EmulatorPort, EmulatorUDPPort
from nnpipe.protocols.serial import SerialChannel, SerialLine, connect_session
from nnpipe.protocols.target_c import CORE, FOLDER

FIRMWARE = FOLDER / "firmware"
ADDRESS, PORT = "10.0.2.15", 12345
"""Where the firmware of emulated boards is reached by UDP: QEMU's network gives this address to
a guest.
"""

_PARTS = (
    *CORE,
    FOLDER / "nnpipe_packets.c",
    IMAGE / "memory.c",
    *(FIRMWARE / name for name in ("start.c", "serve.c", "mps.c", "udp.c", "lan9118.c")),
)


@dataclass(frozen=True)
class Board:
    """A board that QEMU emulates.

    Attributes
    ----------
    name
        Its name in QEMU.
    core
        Its core.
    linker_script
        Says where its memory is.
    lan, lan_interrupt
        The address of its LAN9118, and the number of the interrupt when a frame comes.
    uart
        The address of its first UART.
    uart_interrupt
        The number of the interrupt when a byte comes.
    megahertz
        The rate of SysTick.
    """

    name: str
    core: Core
    linker_script: str
    lan: int = 0x40200000
    lan_interrupt: int = 13
    uart: int = 0x40004000
    uart_interrupt: int = 0
    megahertz: int = 25

    @property
    def macros(self) -> tuple[str, ...]:
        """The options of GCC that tell the firmware about it."""
        return (
            f'-DBOARD_NAME="{self.name}"',
            f"-DBOARD_CORE={self.core.number}",
            f"-DBOARD_UART={self.uart:#x}",
            f"-DBOARD_UART_INTERRUPT={self.uart_interrupt}",
            f"-DBOARD_LAN={self.lan:#x}",
            f"-DBOARD_ADDRESS={int(IPv4Address(ADDRESS)):#x}",
            f"-DBOARD_PORT={PORT}",
            f"-DBOARD_LAN_INTERRUPT={self.lan_interrupt}",
            f"-DBOARD_INTERRUPTS={1 + max(self.uart_interrupt, self.lan_interrupt)}",
            f"-DBOARD_HANDLERS=[{self.uart_interrupt}] = byte_came, [{self.lan_interrupt}] = "
            f"byte_came",
            f"-DBOARD_MEGAHERTZ={self.megahertz}",
        )


BOARDS: Mapping[str, Board] = {
    board.core.name: board
    for board in (
        Board("mps2-an385", CORES["cortex-m3"], "mps2.ld"),
        Board("mps2-an386", CORES["cortex-m4"], "mps2.ld"),
        Board("mps2-an500", CORES["cortex-m7"], "mps2-m7.ld", 0xA0000000),
        Board("mps3-an547", CORES["cortex-m55"], "mps3.ld", 0x51400000, 49, 0x59303000, 33, 32),
    )
}
"""The boards by the name of their core."""


def build_firmware(board: Board, destination: Path, needed_by: str) -> None:
    """Build the firmware of a board.

    Raises
    ------
    MissingTool
        If no compiler for Arm is installed; the message names ``needed_by``.
    CompileError
        If the compiler refuses it.
    """
    command = [
        ARM_GCC.check(needed_by),
        *board.core.flags,
        "-std=gnu99",
        "-Os",
        "-fno-tree-loop-distribute-patterns",
        "-ffunction-sections",
        "-Wl,--gc-sections",
        *board.macros,
        "-I",
        str(FOLDER),
        "-I",
        str(IMAGE),
        *map(str, _PARTS),
        "-nostdlib",
        "-L",
        str(FIRMWARE),
        "-T",
        str(FIRMWARE / board.linker_script),
        "-lgcc",
        "-o",
        str(destination),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        told = next(
            (line for line in done.stderr.splitlines() if "error" in line),
            done.stderr.strip() or "?",
        )
        raise CompileError(
            f"the firmware of {board.name} cannot be built: {' '.join(told.split())[:300]}"
        )


QEMU = Tool("QEMU for Arm", ("qemu-system-arm",), "apt install qemu-system-arm")
"""The emulator of boards with a Cortex-M."""

_NETWORK = f"user,model=lan9118,ipv6=off,hostfwd=udp:127.0.0.1:{{port}}-{ADDRESS}:{PORT}"
_LINES = {
    "network": ("-nic", _NETWORK, "-serial", "null"),
    "uart": ("-nic", "none", "-chardev", "socket,id=line,fd={line}", "-serial", "chardev:line"),
}


class QemuTarget(RuntimeProtocol):
    """A Cortex-M board that QEMU emulates on this machine, with firmware that is built and started
    for each connection.

    It counts instructions, which are not cycles, and repeat.  Models are C of
    ``CCompiler``, which is built for the core.
    """

    needs_tools: ClassVar[tuple[Tool, ...]] = (ARM_GCC, QEMU)

    core: CoreName = argument("cortex-m4", help="core of the board")
    line: Literal["network", "uart"] = argument(
        "network",
        help=(
            "how to reach the firmware: by UDP over the emulated network, or by the UART, which is "
            "slow"
        ),
    )
    packet_size: int = argument(4096, help="most bytes in one packet", minimum=16, maximum=4096)
    timeout: float = argument(
        10.0, help="seconds without a byte after which the emulator is given up", minimum=0.1
    )

    def is_exposed(self) -> bool:
        """Return False: the line to the emulator belongs to this process."""
        return False

    def convert_artifact(self, artifact: Artifact) -> contextlib.AbstractContextManager[Artifact]:
        """Yield C as machine code for the core."""
        core = BOARDS[self.core].core
        return build_for_core(artifact, core, core.model_address, type(self).__name__)

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
        with create_temporary_folder() as folder:
            firmware = folder / "firmware.elf"
            build_firmware(board, firmware, type(self).__name__)
            command = [
                qemu,
                "-M",
                board.name,
                "-display",
                "none",
                "-monitor",
                "none",
                "-icount",
                "shift=0",
                "-kernel",
                str(firmware),
                *_LINES[self.line],
            ]
            port = (EmulatorUDPPort if self.line == "network" else EmulatorPort)(
                command, self.timeout
            )
            line = SerialLine(port, f"{self.core} in QEMU", self.timeout, self.packet_size)
            # it has read the firmware by then
            return connect_session(line, f"the emulated {board.name} does not answer")

    def listen(self) -> Listener:
        """Raise NotSupported: the emulated board is the server."""
        raise NotSupported(
            "QemuTarget is an emulated board, which serves by itself; name it where a model is "
            "measured"
        )
