"""The Cortex-M cores for which machine code is made, and the programs that make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nnpipe.core.external_tools import Tool

CoreName = Literal["cortex-m3", "cortex-m4", "cortex-m7", "cortex-m55"]
_PACKAGES = "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi"

ARM_GCC = Tool("a C compiler for Cortex-M", ("arm-none-eabi-gcc",), _PACKAGES)
"""The compiler and linker for Arm processors without an operating system."""

_HARD_FLOATS = ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")


@dataclass(frozen=True)
class Core:
    """A core.

    Attributes
    ----------
    name
        Its name, as GCC and QEMU know it.
    number
        The number by which files name it.
    floats
        Options of GCC for its floating-point unit; empty if it has none.
    model_address
        Where models begin in the memory of the board that QEMU emulates.
    """

    name: CoreName
    number: int
    floats: tuple[str, ...]
    model_address: int

    @property
    def flags(self) -> tuple[str, ...]:
        """The options of GCC that choose it."""
        return (f"-mcpu={self.name}", "-mthumb", *self.floats)


CORES: Mapping[str, Core] = {
    core.name: core
    for core in (
        Core("cortex-m3", 3, (), 0x21000000),
        Core("cortex-m4", 4, _HARD_FLOATS, 0x21000000),
        Core("cortex-m7", 7, _HARD_FLOATS, 0x60000000),
        Core("cortex-m55", 55, ("-mfloat-abi=hard",), 0x70000000),
    )
}
"""The cores by name."""
