"""Quantisation of the weights of ONNX models, and of nothing else, to 4 or 8 bits."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar, Literal

from nnpipe.compilers._onnx import ONNXRewriter, in_one_file
from nnpipe.compilers._onnx_normal_form import compute_in_float32, hold_constants
from nnpipe.compilers._quantisation import BlockwiseWeights
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx


class ONNXWeightQuantizer(BlockwiseWeights, ONNXRewriter):
    """ONNX models whose matrix products have weights of 4 or 8 bits, in blocks with a scale each.

    All else stays in floats, and no samples are needed.  It is for models whose time and size are those of their
    weights, such as language models.  The products become ONNX Runtime's own operator ``MatMulNBits``, so that no
    other runtime takes the result.  Convolutions and embeddings stay as they are.
    """

    lowers: ClassVar[str] = "the weights of matrix products (MatMul, Gemm)"

    bits: Literal["4", "8"] = argument("4", help="bits of each weight")

    def claims(self) -> tuple[Claim, ...]:
        """Return weights of so many bits."""
        return ("int8-weights",) if self.bits == "8" else ("int4-weights",)

    def variant(self) -> str:
        """Return the number of bits."""
        return f"int{self.bits}-weights"

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        import onnx
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        with tempfile.TemporaryDirectory() as folder:
            model = onnx.load_model(str(in_one_file(artifact.path, Path(folder))))
        hold_constants(model.graph)
        compute_in_float32(model.graph, "DOUBLE")
        quantizer = MatMulNBitsQuantizer(
            model, bits=int(self.bits), block_size=self.block_size, is_symmetric=self.symmetric,
            op_types_to_quantize=("MatMul",),
        )  # fmt: skip
        quantizer.model.replace_gemm_with_matmul()
        quantizer.process()
        onnx.save_model(quantizer.model.model, str(destination))
        return read_onnx(destination).io(artifact.io)
