"""ONNX files whose weights take few bits, layer by layer."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnpipe.compilers._onnx import ONNXRewriter, in_one_file, optimised
from nnpipe.compilers.layer_forms import assigned
from nnpipe.compilers.onnx_compression import Compression
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx


class ONNXCompressor(ONNXRewriter):
    """Stores the weights of each layer in a form of its own, and packs them into as few bytes as these need.

    Layers can be rounded to evenly spaced values (``int4``), to those that k-means finds (``cluster16``), be pruned
    (``prune50``), or both (``prune50+int6``).  With calibration samples, the errors of weights make up for each other
    (GPTQ, Frantar et al. 2022, arXiv:2210.17323).  What has few values already, such as the 8-bit weights of another
    compiler, is packed without loss.

    The weights are packed in the file itself: ONNX Runtime unpacks them when it loads the model, without anything of
    nnpipe, and then takes as long as for the unpacked model.  Put it behind ``ONNXStaticQuantizer`` to compute with
    8-bit integers, and use it alone to compute with floats.
    """

    layers: tuple[str, ...] = argument(
        (),
        help="the form of each layer, such as 'conv1=int4' 'block*=cluster16' 'dense=prune50+int6'; a name may be a "
        "pattern, and the last that fits counts; layers that are not named keep their values",
    )
    error_feedback: bool = argument(
        True, help="let the errors of rounded weights make up for each other, which needs calibration samples"
    )
    short_names: bool = argument(
        True, help="give nodes and tensors inside short names, which makes small files much smaller"
    )

    def needs_calibration(self) -> bool:
        """Return whether errors are to make up for each other."""
        return self.error_feedback and bool(self.layers)

    def claims(self) -> tuple[Claim, ...]:
        """Return what the forms do to weights."""
        forms = assigned_forms(self.layers)
        found: list[Claim] = ["float"]
        if any(each.levels == "half" for each in forms):
            found.append("float16")
        if any(each.levels in ("grid", "cluster") for each in forms):
            found.append("int8-weights" if all(each.count > 16 for each in forms if each.count) else "int4-weights")
        if any(each.sparsity for each in forms):
            found.append("pruned")
        if any(each.levels == "cluster" for each in forms):
            found.append("clustered")
        return tuple(found)

    def variant(self) -> str:
        """Return that the file is compressed."""
        return "compressed"

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        model = foldable(artifact.path)
        compression = Compression(model, calibration if self.error_feedback else None)
        compression.write(assigned(self.layers, compression.names), destination, self.short_names)
        return read_onnx(destination).io(artifact.io)


def assigned_forms(entries: Sequence[str]) -> list[Any]:
    """Return the forms in entries, whatever layers they name."""
    names = [entry.rpartition("=")[0] for entry in entries]
    return list(assigned(entries, names).values())


def foldable(source: Path) -> Any:
    """Return the ``onnx.ModelProto`` of a file, with normalisations folded into the layers before them.

    A quantised model is returned as it is.
    """
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        whole = in_one_file(source, Path(folder))
        model = onnx.load_model(str(whole))
        if any(node.op_type in ("DequantizeLinear", "QLinearConv") for node in model.graph.node):
            return model
        fused = Path(folder, "fused.onnx")
        optimised(whole, fused, "ORT_ENABLE_BASIC")
        return onnx.load_model(str(fused))
