"""Exported PyTorch programs as machine code, by PyTorch's Inductor ahead of time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.batching import FixesBatch
from nnpipe.core.compiler import Calibration
from nnpipe.core.external_tools import CXX, Tool
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.sealed import read_sealed, write_sealed
from nnpipe.frameworks.torch_inductor import FORMAT, INTEGERS, compiled_package, floats_instead, target_name
from nnpipe.frameworks.torch_program import load_program, quiet


class TorchInductorCompiler(WritingCompiler, FixesBatch):
    """Machine code for the processor of the machine that compiles, by AOTInductor; needs a C++ compiler.

    The result runs on PyTorch of the same version and on processors with the
    same vector instructions.  Quantised programs are computed with integers
    where that gives what they state, which is tried out, and else in floats.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch",)
    install: ClassVar[str] = "nnpipe[torch]"
    accepts: ClassVar[tuple[str, ...]] = ("torch-export",)
    produces: ClassVar[str] = FORMAT
    suffix: ClassVar[str] = ".aoti"
    needs_tools: ClassVar[tuple[Tool, ...]] = (CXX,)
    packages: ClassVar[tuple[str, ...]] = ("torch",)

    max_autotune: bool = argument(
        False, help="measure different ways to multiply and convolve, and take the fastest; takes much longer"
    )

    def variant(self) -> str:
        """Name the compiler."""
        return "aoti-tuned" if self.max_autotune else "aoti"

    def target_name(self) -> str:
        """Say for which processor the result is made."""
        return target_name()

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        loaded = load_program(artifact.path)
        with quiet():
            file = compiled_package(loaded, self.max_autotune, self.batch)
        write_sealed(destination, file)
        return file.io

    def _outcome(self, destination: Path) -> Mapping[str, Any]:
        file = read_sealed(destination, FORMAT)
        why = floats_instead(file)
        found: dict[str, Any] = {INTEGERS: file.notes[INTEGERS]} if INTEGERS in file.notes else {}
        return found | ({"handicaps": [f"int8 computed in floats: {why}"]} if why else {})
