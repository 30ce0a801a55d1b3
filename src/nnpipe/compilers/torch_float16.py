"""Conversion of exported PyTorch programs to 16-bit floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from nnpipe.compilers._torch_program_compiler import TorchProgramCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.torch_program import export_changed_module, load_program


class TorchFloat16(TorchProgramCompiler):
    """Converts exported PyTorch programs to 16-bit floats; inputs and outputs keep their element
    types.

    Processors without 16-bit arithmetic compute more slowly with 16-bit than with
    32-bit floats; for these, ``weights_only`` makes just the file smaller.
    """

    precision: Literal["float16", "bfloat16"] = argument(
        "float16", help="float16 is finer, bfloat16 has the range of float32"
    )
    weights_only: bool = argument(False, help="store weights in 16 bits, and compute in 32 bits")

    def claims(self) -> tuple[Claim, ...]:
        """Return the chosen 16-bit format."""
        return (self.precision,)

    def variant(self) -> str:
        """Return the number format."""
        return f"{self.precision}-weights" if self.weights_only else self.precision

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        import torch

        half = getattr(torch, self.precision)
        loaded = load_program(artifact.path)
        module = loaded.module()
        if not _halve_weights(module, half):
            raise CompileError("it has no 32-bit weights")
        if self.weights_only:
            _widen_weights(module, half)
        else:
            _compute_in(module, half)
        module.graph.lint()
        module.recompile()
        return self._save(export_changed_module(loaded, module), destination)


def _halve_weights(module: Any, half: Any) -> int:
    import torch

    count = 0
    tables = (
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    )
    for name, tensor in [pair for table in tables for pair in table]:
        if tensor.dtype is not torch.float32:
            continue
        small = tensor.detach().to(half)
        if not torch.equal(small.isfinite(), tensor.isfinite()):
            raise CompileError(
                f"weight {name!r} has values beyond the range of float16; use --precision bfloat16"
            )
        owner, _, last = name.rpartition(".")
        holder = module.get_submodule(owner)
        if isinstance(tensor, torch.nn.Parameter):
            setattr(holder, last, torch.nn.Parameter(small, requires_grad=False))
        else:
            setattr(holder, last, small)
        count += 1
    return count


def _widen_weights(module: Any, half: Any) -> None:
    """Convert each weight to 32 bits before it is used."""
    import torch

    for node in [node for node in module.graph.nodes if node.op == "get_attr"]:
        owner, _, last = node.target.rpartition(".")
        if getattr(module.get_submodule(owner), last).dtype is half:
            _cast_after(module.graph, node, torch.float32)


def _compute_in(module: Any, half: Any) -> None:
    """Convert inputs to 16 bits, compute in 16 bits, and return outputs in 32 bits."""
    import torch
    from torch.fx.node import map_aggregate

    graph = module.graph
    nodes = list(graph.nodes)
    (end,) = (node for node in nodes if node.op == "output")
    given = [
        node
        for node in nodes
        if node.op == "placeholder" and node.meta["val"].dtype is torch.float32
    ]

    def narrow(value: Any) -> Any:
        return half if value is torch.float32 else value

    def widen(value: Any) -> Any:
        if not isinstance(value, torch.fx.Node) or value.meta["val"].dtype is not torch.float32:
            return value
        with graph.inserting_before(end):
            return graph.call_function(torch.ops.aten.to.dtype, (value, torch.float32))

    for node in nodes:
        if node.op == "call_function":
            # The program itself requests float32 here.
            node.args, node.kwargs = (
                map_aggregate(node.args, narrow),
                map_aggregate(node.kwargs, narrow),
            )
    end.args = map_aggregate(end.args, widen)
    for node in given:
        _cast_after(graph, node, half)


def _cast_after(graph: Any, node: Any, dtype: Any) -> None:
    import torch

    users = list(node.users)
    with graph.inserting_after(node):
        cast = graph.call_function(torch.ops.aten.to.dtype, (node, dtype))
    for user in users:
        user.replace_input_with(node, cast)
