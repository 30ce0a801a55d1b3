"""Graph optimisation of ONNX models by ONNX Runtime, ahead of time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar, Literal

from nnpipe.compilers._onnx import ONNXRewriter, in_one_file, optimised
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx

_LEVELS = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}


class ONNXRuntimeOptimizer(ONNXRewriter):
    """ONNX models, fused and folded by ONNX Runtime ahead of time.

    With ``basic`` the result is standard ONNX; ``extended`` uses operators of
    ONNX Runtime; ``all`` also arranges weights for the compiling machine, so that
    the result may not run on another one.
    """

    unsupported_types: ClassVar[tuple[str, ...]] = ("bfloat16",)

    optimisation_level: Literal["basic", "extended", "all"] = argument(
        "extended", help="how far ONNX Runtime may rewrite the graph"
    )

    def variant(self) -> str:
        """Return the level."""
        return f"optimised-{self.optimisation_level}"

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        with tempfile.TemporaryDirectory() as folder:
            optimised(in_one_file(artifact.path, Path(folder)), destination, _LEVELS[self.optimisation_level])
        return read_onnx(destination).io(artifact.io)
