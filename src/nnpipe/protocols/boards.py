"""The boards that QEMU emulates, and the firmware for them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from nnpipe.core.errors import CompileError
from nnpipe.frameworks.cortex_m.cores import ARM_GCC, CORES, Core
from nnpipe.frameworks.cortex_m.image import SOURCES as IMAGE
from nnpipe.protocols.target_c import CORE, FOLDER

FIRMWARE = FOLDER / "firmware"
ADDRESS, PORT = "10.0.2.15", 12345
"""Where the firmware of emulated boards is reached by UDP: QEMU's network gives this address to a guest."""

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
            f"-DBOARD_HANDLERS=[{self.uart_interrupt}] = byte_came, [{self.lan_interrupt}] = byte_came",
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
        ARM_GCC.check(needed_by), *board.core.flags, "-std=gnu99", "-Os", "-fno-tree-loop-distribute-patterns",
        "-ffunction-sections", "-Wl,--gc-sections", *board.macros, "-I", str(FOLDER), "-I", str(IMAGE),
        *map(str, _PARTS), "-nostdlib", "-L", str(FIRMWARE), "-T", str(FIRMWARE / board.linker_script), "-lgcc",
        "-o", str(destination),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        told = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip() or "?")
        raise CompileError(f"the firmware of {board.name} cannot be built: {' '.join(told.split())[:300]}")
