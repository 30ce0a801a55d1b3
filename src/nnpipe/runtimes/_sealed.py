"""What the runtimes of sealed models share."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.arguments import argument
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.sealed import read_sealed


class SealedRuntime(Runtime):
    """Runs models that nnpipe compiled and sealed; the first of ``accepts`` is the format of their seal."""

    num_threads: int = argument(1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0)

    def io_of(self, path: str | Path) -> IOSpec:
        """Read the inputs and outputs of a bare file; needs no framework and runs nothing.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or was not made by nnpipe; the message names it.
        """
        return read_sealed(Path(path), self.accepts[0]).io
