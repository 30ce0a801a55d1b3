"""Conversion of ONNX files to exported PyTorch programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from nnpipe.compilers._onnx_torch.graph import build_module, find_untranslated
from nnpipe.compilers._torch_program_compiler import TorchProgramCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec, TensorSpec, generate_random_batch
from nnpipe.formats.onnx_network import read_nodes, read_onnx_network
from nnpipe.frameworks.torch_program import convert_to_tensors, suppress_torch_logs

# torch.export treats axes of length 0 and 1 specially; other lengths are suitable for an example.
_BATCH, _LENGTH = 2, 32


class ONNXToTorch(TorchProgramCompiler):
    """Converts ONNX files to exported PyTorch programs, for the compilers that start from those.

    Each operator becomes a call of PyTorch, so that networks with attention reach
    ExecuTorch, Inductor and TensorFlow Lite from ONNX files too.  Products of matrices
    with constant weights become linear layers, and weights keep their names.  An error
    names the operators that are not translated, such as loops and quantised operators.
    """

    accepts: ClassVar[tuple[str, ...]] = ("onnx",)

    def refusals(self, path: Path) -> tuple[str, ...]:
        """Return the operators of a file that are not translated."""
        unknown = find_untranslated(node.kind for node in read_nodes(path))
        return (_explain_refusal(unknown),) if unknown else ()

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        import torch

        network = read_onnx_network(artifact.path)
        unknown = find_untranslated(node.kind for node in network.nodes)
        if unknown:
            raise CompileError(_explain_refusal(unknown))
        module = build_module(network)
        example, axes = _make_example(artifact.io), _find_free_axes(artifact.io)
        with torch.no_grad(), suppress_torch_logs():
            module(example)  # constants that are used become weights
            program = torch.export.export(module, (example,), dynamic_shapes=(axes,))
        return self._save(program, destination)


def _explain_refusal(unknown: list[str]) -> str:
    if any("QuantizeLinear" in kind or "Integer" in kind for kind in unknown):
        return "it is quantised already; start from the floats it came from"
    return f"ONNX's {', '.join(unknown)} cannot be translated to PyTorch"


def _make_example(io: IOSpec) -> dict[str, Any]:
    def fix_shape(spec: TensorSpec) -> TensorSpec:
        shape = tuple(
            _LENGTH if axis and length is None else length for axis, length in enumerate(spec.shape)
        )
        return TensorSpec(spec.name, shape, spec.dtype)

    return convert_to_tensors(
        generate_random_batch(IOSpec(tuple(map(fix_shape, io.inputs)), ()), _BATCH)
    )


def _find_free_axes(io: IOSpec) -> dict[str, dict[int, Any]]:
    from torch.export import Dim

    # All inputs share the number of samples; PyTorch finds out which other lengths are equal.
    samples = Dim("samples", min=1)
    return {
        spec.name: {
            axis: Dim.AUTO if axis else samples
            for axis, length in enumerate(spec.shape)
            if length is None
        }
        for spec in io.inputs
    }
