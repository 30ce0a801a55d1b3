"""Exported PyTorch programs, compiled for ExecuTorch, on ExecuTorch."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from nnpipe.core.agreement import agreed_io
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.sealed import read_sealed
from nnpipe.frameworks.executorch import FORMAT, ExecuTorchSession
from nnpipe.frameworks.hush import hushed


class ExecuTorchRuntime(Runtime):
    """ExecuTorch programs, with the kernels of XNNPACK or the portable ones, as compiled."""

    requires: ClassVar[tuple[str, ...]] = ("executorch", "torch")
    install: ClassVar[str] = "nnpipe[executorch]"
    accepts: ClassVar[tuple[str, ...]] = (FORMAT,)

    num_threads: int = argument(1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0)

    def io_of(self, path: str | Path) -> IOSpec:
        """Read the inputs and outputs of a bare file; needs no ExecuTorch.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or was not made by nnpipe; the message names it.
        """
        return read_sealed(Path(path), FORMAT).io

    def import_framework(self) -> None:
        """Import the runtime, which brings much of PyTorch's compiler along."""
        with hushed():
            import executorch.runtime  # noqa: F401

    def _load(self, artifact: Artifact) -> InferenceSession:
        file = read_sealed(artifact.path, FORMAT)
        io = agreed_io(artifact, file.io)
        if any(spec.dtype in ("string", "bfloat16") for spec in io):
            raise ArtifactError(f"{artifact.path}: text and bfloat16 tensors cannot be put and got")
        return ExecuTorchSession(file, io, artifact.path, self.num_threads)
