"""The runtime of ExecuTorch programs."""

from __future__ import annotations

from typing import ClassVar

from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.errors import ArtifactError
from nnpipe.core.session import InferenceSession
from nnpipe.formats.sealed import read_sealed
from nnpipe.frameworks.executorch import FORMAT, ExecuTorchSession
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.runtimes.sealed_runtime import SealedRuntime


class ExecuTorchRuntime(SealedRuntime):
    """Runs ExecuTorch programs, with the kernels they were compiled for: XNNPACK's or the
    portable ones.
    """

    requires: ClassVar[tuple[str, ...]] = ("executorch", "torch")
    install: ClassVar[str] = "nnpipe[executorch]"
    accepts: ClassVar[tuple[str, ...]] = (FORMAT,)
    unsupported_io: ClassVar[tuple[str, ...]] = ("string", "bfloat16")

    def import_framework(self) -> None:
        """Import the runtime, which imports much of PyTorch's compiler as well."""
        with suppress_output():
            import executorch.runtime  # noqa: F401

    def _load(self, artifact: Artifact) -> InferenceSession:
        file = read_sealed(artifact.path, FORMAT)
        io = verify_io(artifact, file.io)
        if any(spec.dtype in ("string", "bfloat16") for spec in io):
            raise ArtifactError(f"{artifact.path}: text and bfloat16 tensors cannot be put and got")
        return ExecuTorchSession(file, io, artifact.path, self.num_threads)
