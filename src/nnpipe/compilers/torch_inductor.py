"""Compilation of exported PyTorch programs to machine code, by PyTorch's AOTInductor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.batching import FixesBatch
from nnpipe.core.compiler import Calibration
from nnpipe.core.discoverable import CXX, Tool
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.sealed import read_sealed, write_sealed
from nnpipe.frameworks.torch_inductor import (
    FORMAT,
    INTEGERS,
    compile_package,
    explain_floats,
    get_inductor_target,
)
from nnpipe.frameworks.torch_program import load_program, suppress_torch_logs


class TorchInductorCompiler(WritingCompiler, FixesBatch):
    """Compiles exported PyTorch programs to machine code for this processor, with AOTInductor and a
    C++ compiler.

    The result needs the same version of PyTorch and a processor with the same
    vector instructions.  Quantised programs compute with integers if a test shows
    correct results, otherwise with floats.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch",)
    install: ClassVar[str] = "nnpipe[torch]"
    accepts: ClassVar[tuple[str, ...]] = ("torch-export",)
    produces: ClassVar[str] = FORMAT
    suffix: ClassVar[str] = ".aoti"
    needs_tools: ClassVar[tuple[Tool, ...]] = (CXX,)
    packages: ClassVar[tuple[str, ...]] = ("torch",)

    max_autotune: bool = argument(
        False,
        help=(
            "benchmark several kernels for matrix products and convolutions and use the fastest; "
            "much slower"
        ),
    )

    def variant(self) -> str:
        """Return the compiler."""
        return "aoti-tuned" if self.max_autotune else "aoti"

    def target_name(self) -> str:
        """Return the name of the processor."""
        return get_inductor_target()

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        loaded = load_program(artifact.path)
        with suppress_torch_logs():
            file = compile_package(loaded, self.max_autotune, self.batch)
        write_sealed(destination, file)
        return file.io

    def _describe_outcome(self, destination: Path) -> Mapping[str, Any]:
        file = read_sealed(destination, FORMAT)
        why = explain_floats(file)
        found: dict[str, Any] = {INTEGERS: file.notes[INTEGERS]} if INTEGERS in file.notes else {}
        return found | ({"handicaps": [f"int8 computed in floats: {why}"]} if why else {})
