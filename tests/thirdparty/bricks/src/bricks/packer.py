"""From weights in JSON to a sealed file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import numpy as np

from nnpipe.compilers import WritingCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.sealed import SealedFile, write_sealed


class BricksPacker(WritingCompiler):
    """Packs the weights of a linear model, which JSON holds as text, into 32-bit floats."""

    accepts: ClassVar[tuple[str, ...]] = ("bricks-json",)
    produces: ClassVar[str] = "bricks"
    suffix: ClassVar[str] = ".bricks"
    packages: ClassVar[tuple[str, ...]] = ("numpy",)

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        weights = np.array(json.loads(artifact.path.read_text("utf-8"))["weights"], "<f4")
        write_sealed(
            destination,
            SealedFile(weights.tobytes(), self.produces, artifact.io, {"shape": weights.shape}),
        )
        return artifact.io
