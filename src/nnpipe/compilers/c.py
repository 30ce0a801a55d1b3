"""Compilation of TensorFlow Lite models to C99 that needs no operating system."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.compilers._c_code.source import source_of
from nnpipe.compilers.c_operator import own_kernels
from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.tflite_program import read_program
from nnpipe.frameworks.c_source import FORMAT, PREFIX, is_prefix, read_c_source, write_c_source


class CCompiler(WritingCompiler):
    """Writes TensorFlow Lite models as one file of C99 without libraries, for devices without an operating system.

    Weights are constants, and all values lie in one block of memory of known size.  Models in 8-bit numbers compute
    what LiteRT's reference kernels compute, bit by bit.  Operators that it lacks can be your own: a
    :class:`~nnpipe.compilers.c_operator.COperator`.
    """

    accepts: ClassVar[tuple[str, ...]] = ("tflite",)
    produces: ClassVar[str] = FORMAT
    suffix: ClassVar[str] = ".c"

    arena_seconds: int = argument(
        20, help="processor time for the search of the smallest arena, in seconds; 0 takes the first plan", minimum=0
    )

    own_operators: tuple[str, ...] = argument(
        (), help="your own operators, such as mine.Pow; those of installed plugins need no option", metavar="CLASS"
    )
    prefix: str = argument(
        PREFIX, help="what the names of the file's functions begin with; models in one program need different ones"
    )

    def validate(self) -> None:
        """Check that the prefix can begin a name in C."""
        if not is_prefix(self.prefix):
            raise ConfigError(
                f"--prefix {self.prefix!r} cannot begin the name of a function: take letters, digits and underscores, "
                "at most 40, and first no digit"
            )

    def claims(self) -> tuple[Claim, ...]:
        """Return that the model computes the same."""
        return ("float",)

    def target_name(self) -> str:
        """Return that any machine can run it."""
        return "generic"

    def refusals(self, path: Path) -> tuple[str, ...]:
        """Return the first operator that cannot become C."""
        program = read_program(path)
        try:
            source_of(program, 0, own_kernels(self.own_operators))
        except CompileError as error:
            return (str(error),)
        return ()

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        program = read_program(artifact.path)
        try:
            source = source_of(program, self.arena_seconds, own_kernels(self.own_operators), self.prefix)
        except (MemoryError, OverflowError) as error:
            raise CompileError(f"its sizes are too large ({type(error).__name__})") from None
        notes: dict[str, int | str] = {
            "arena_bytes": source.plan.size,
            "arena_lower_bound": source.plan.lower_bound,
            "constant_bytes": source.constant_bytes,
            "state_bytes": source.state_bytes,
        }
        if self.prefix != PREFIX:
            notes["prefix"] = self.prefix
        write_c_source(destination, f"/* Made by nnpipe's CCompiler. */\n{source.text}", source.io, notes)
        return source.io

    def _outcome(self, destination: Path) -> Mapping[str, Any]:
        return dict(read_c_source(destination)[1])
