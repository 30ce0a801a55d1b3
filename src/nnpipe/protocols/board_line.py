"""What lines to boards without an operating system have in common: models in C are built for the board's core."""

from __future__ import annotations

import contextlib

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.frameworks.cortex_m.cores import CORES, CoreName
from nnpipe.frameworks.cortex_m.image import built_for


class BoardLineProtocol(RuntimeProtocol):
    """A line that may lead to a board without an operating system."""

    abstract = True

    core: CoreName | None = argument(
        default=None, help="core of the board, if it has no operating system: models in C are built for it"
    )
    model_address: str = argument(
        default="", help="where firmware of such a board keeps models, as its linker script says, such as 0x20010000"
    )
    timeout: float = argument(default=10.0, help="seconds without a byte after which the line is given up", minimum=0.1)

    def validate(self) -> None:
        """Raise :class:`ConfigError` if one of ``core`` and ``model_address`` is missing, or the address is none."""
        if (self.core is None) != (not self.model_address):
            raise ConfigError(
                "core and model_address go together: the core of a board without an operating system, and where its "
                "firmware keeps models, as its linker script says (_model)"
            )
        if self.core is not None:
            self._address()

    def translated(self, artifact: Artifact) -> contextlib.AbstractContextManager[Artifact]:
        """Yield C as machine code for the core, if there is one."""
        if self.core is None:
            return super().translated(artifact)
        return built_for(artifact, CORES[self.core], self._address(), type(self).__name__)

    def _address(self) -> int:
        try:
            address = int(self.model_address, 0)
        except ValueError:
            address = -1
        if address % 16 or not 0 <= address < 1 << 32:
            raise ConfigError(f"model_address is {self.model_address!r}, which is no multiple of 16 such as 0x20010000")
        return address
