"""The runtime of TensorFlow Lite models, with the interpreter of any package that has it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.operation_times import OperationTimes
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.litert import (
    LiteRTSession,
    check_tensors,
    import_interpreter,
    open_interpreter,
)


class LiteRTRuntime(Runtime):
    """Runs TensorFlow Lite models on LiteRT (``ai_edge_litert``, ``tflite_runtime`` or
    TensorFlow).
    """

    formerly: ClassVar[tuple[str, ...]] = ("TFLiteRuntime",)
    requires: ClassVar[tuple[str, ...]] = ("ai_edge_litert|tflite_runtime|tensorflow",)
    install: ClassVar[str] = "nnpipe[litert]"
    accepts: ClassVar[tuple[str, ...]] = ("tflite",)
    unsupported_io: ClassVar[tuple[str, ...]] = ("string", "bfloat16")

    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )
    delegates_list: tuple[Path, ...] = argument(
        (),
        help="shared libraries of delegates that run parts of the model, such as libedgetpu.so.1",
    )
    reference_kernels: bool = argument(
        False,
        help=(
            "use LiteRT's slow reference kernels, which other implementations reproduce bit by bit"
        ),
    )

    def performance_caveats(self) -> tuple[str, ...]:
        """Return a handicap for the slow reference kernels."""
        return ("reference kernels",) if self.reference_kernels else ()

    def io_of(self, path: str | Path) -> IOSpec:
        """Return the inputs and outputs of a TensorFlow Lite file without description; needs no
        interpreter.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or not TensorFlow Lite; the message names it.
        """
        return read_tflite(path).io

    def import_framework(self) -> None:
        """Import the interpreter."""
        import_interpreter()

    def _load(self, artifact: Artifact) -> InferenceSession:
        file = read_tflite(artifact.path)
        io = verify_io(artifact, file.io)
        check_tensors(io, artifact.path)
        resolver = "BUILTIN_REF" if self.reference_kernels else ""
        opened = partial(
            open_interpreter, artifact.path, self.num_threads, self.delegates_list, resolver
        )

        def record_calls(arrays: Mapping[int, np.ndarray], runs: int) -> OperationTimes:
            from nnpipe.frameworks.litert_profile import record  # a target does not need it

            return record(artifact.path, None, arrays, self.num_threads, runs)

        own = not self.delegates_list and not self.reference_kernels
        return LiteRTSession(
            opened(), io, file, artifact.path, record_calls if own else None, opened
        )
