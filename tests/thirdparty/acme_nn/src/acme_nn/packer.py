"""A compiler: weights in fewer bits and, if wanted, quantised inputs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from acme_nn import __version__
from acme_nn.files import read_arrays, write_arrays
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration, ModelCompiler
from nnpipe.core.quantization import compute_quantization_parameters, quantize_linear
from nnpipe.core.tensors import IOSpec, TensorSpec


class AcmePacker(ModelCompiler):
    """Makes a network's file two or four times smaller."""

    accepts: ClassVar[tuple[str, ...]] = ("acme-npz",)
    produces: ClassVar[str] = "acme-packed"
    suffix: ClassVar[str] = ".acme"

    target: Literal["int8", "float16"] = argument("int8", help="how to store the weights")
    inference_input_type: Literal["float32", "int8"] = argument(
        "float32", help="what the packed network takes"
    )

    def needs_calibration(self) -> bool:
        """Return whether inputs are quantised, for which their range must be known."""
        return self.inference_input_type == "int8"

    def variant(self) -> str:
        """Name the kind of weights."""
        return self.target

    def _compile(self, artifact: Artifact, path: Path, calibration: Calibration | None) -> Artifact:
        packed: dict[str, np.ndarray] = {}
        for name, array in read_arrays(artifact.path).items():
            if self.target == "float16":
                packed[name] = array.astype(np.float16)
            elif array.ndim == 2:
                scale, zero = compute_quantization_parameters(
                    array.min(0), array.max(0), "int8", symmetric=True
                )
                packed |= {
                    name: quantize_linear(array, scale, zero, "int8", axis=1),
                    name + ".scale": scale,
                }
            else:
                packed[name] = array
        (spec,) = artifact.io.inputs
        if calibration is not None and self.needs_calibration():
            seen = [batch[spec.name] for batch in calibration()]
            low, high = min(array.min() for array in seen), max(array.max() for array in seen)
            scale, zero = compute_quantization_parameters(low, high, "int8")
            packed |= {"input.scale": scale, "input.zero_point": zero}
            spec = TensorSpec(spec.name, spec.shape, "int8", float(scale), int(zero))
        write_arrays(path, packed)
        io = IOSpec((spec,), artifact.io.outputs)
        made_by = (("acme-nn", __version__),)
        return Artifact.create(
            path, self.produces, io, frameworks=made_by, producer=self.describe(), parent=artifact
        )
