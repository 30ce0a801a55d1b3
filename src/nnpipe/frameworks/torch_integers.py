"""Integer arithmetic in PyTorch programs that are quantised."""

from __future__ import annotations

from typing import Any


def keep_integers(module: Any) -> None:
    """Let sums and products of integer tensors with numbers stay integers when a module is quantised.

    XNNPACK's quantiser makes each number a tensor of floats (ExecuTorch 1.3), and what is computed with it can no
    longer be an index; it leaves the operators for scalars alone.

    Parameters
    ----------
    module
        A ``torch.fx.GraphModule`` as ``torch.export.ExportedProgram.module()`` returns it; it is changed.
    """
    import torch

    aten = torch.ops.aten
    scalar = {aten.add.Tensor: aten.add.Scalar, aten.mul.Tensor: aten.mul.Scalar}
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if node.target not in scalar or not isinstance(value, torch.Tensor) or value.is_floating_point():
            continue
        tensors = [each for each in node.args if isinstance(each, torch.fx.Node)]
        numbers = [each for each in node.args if not isinstance(each, torch.fx.Node)]
        if len(tensors) == 1 and len(numbers) == 1:
            node.args, node.target = (*tensors, *numbers), scalar[node.target]
    module.recompile()
