"""The runtime of models as C sources."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.discoverable import C, Tool
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.c_source import FORMAT, CSession, load_c_source, read_c_source


class CRuntime(Runtime):
    """Builds models that are C sources with this computer's C compiler, and runs them in one
    thread.

    Loading executes machine code made from the file.
    """

    needs_tools: ClassVar[tuple[Tool, ...]] = (C,)
    accepts: ClassVar[tuple[str, ...]] = (FORMAT,)
    native_code: ClassVar[tuple[str, ...]] = (FORMAT,)

    def io_of(self, path: str | Path) -> IOSpec:
        """Return the inputs and outputs of a file without description; builds and runs nothing.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or was not made by nnpipe; the message names it.
        """
        return read_c_source(Path(path))[0]

    def _load(self, artifact: Artifact) -> InferenceSession:
        found, notes = read_c_source(artifact.path)
        io = verify_io(artifact, found)
        return CSession(load_c_source(artifact.path, notes, type(self).__name__), io, found, notes)
