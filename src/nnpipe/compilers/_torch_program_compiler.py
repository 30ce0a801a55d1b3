"""The base of compilers from exported PyTorch programs to exported PyTorch programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.errors import ArtifactError, CompileError
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.pt2 import read_program
from nnpipe.frameworks.torch_program import program_bytes


class TorchProgramCompiler(WritingCompiler):
    """Base of compilers that read and write exported programs."""

    requires: ClassVar[tuple[str, ...]] = ("torch",)
    install: ClassVar[str] = "nnpipe[torch]"
    accepts: ClassVar[tuple[str, ...]] = ("torch-export",)
    produces: ClassVar[str] = "torch-export"
    suffix: ClassVar[str] = ".pt2"
    packages: ClassVar[tuple[str, ...]] = ("torch",)

    def _save(self, native: Any, destination: Path) -> IOSpec:
        """Write a ``torch.export.ExportedProgram`` that can be loaded again; return its inputs and outputs."""
        destination.write_bytes(program_bytes(native))
        try:
            return read_program(destination).io
        except ArtifactError as error:
            raise CompileError(f"what comes out cannot be kept: {str(error).partition(': ')[2]}") from None
