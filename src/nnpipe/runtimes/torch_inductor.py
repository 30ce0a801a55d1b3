"""The runtime of PyTorch programs compiled to machine code by AOTInductor."""

from __future__ import annotations

from typing import ClassVar

from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.session import InferenceSession
from nnpipe.formats.sealed import read_sealed
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.torch_inductor import FORMAT, load_package
from nnpipe.frameworks.torch_session import TorchSession
from nnpipe.runtimes.sealed_runtime import SealedRuntime


class TorchInductorRuntime(SealedRuntime):
    """Runs programs compiled by AOTInductor; loading a file executes machine code from it."""

    requires: ClassVar[tuple[str, ...]] = ("torch",)
    install: ClassVar[str] = "nnpipe[torch]"
    accepts: ClassVar[tuple[str, ...]] = (FORMAT,)
    native_code: ClassVar[tuple[str, ...]] = (FORMAT,)

    def import_framework(self) -> None:
        """Import the loader of packages, which is part of the compiler."""
        with suppress_output():
            import torch._inductor.cpp_builder
            import torch._inductor.package  # noqa: F401

    def _load(self, artifact: Artifact) -> InferenceSession:
        file = read_sealed(artifact.path, FORMAT)
        io = verify_io(artifact, file.io)
        return TorchSession(io, load_package(file, io, artifact.path), "cpu", self.num_threads)
