"""Kernels of PyTorch programs that are computed from constants at each run."""

from __future__ import annotations

from typing import Any


def store_kernels(module: Any) -> None:
    """Compute once the kernels of convolutions and linear layers that a program computes from constants alone.

    A weight normalisation, for example, computes its kernel. Quantisers take such a kernel for an activation.

    Parameters
    ----------
    module
        A ``torch.fx.GraphModule`` as ``torch.export.ExportedProgram.module()`` returns it; it is changed.
    """
    import torch
    from torchao.quantization.pt2e.constant_fold import constant_fold

    aten = torch.ops.aten
    taking = {aten.conv1d, aten.conv2d, aten.conv3d, aten.convolution, aten.linear}
    taking |= {aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d}
    kernels = {
        node.args[1]
        for node in module.graph.nodes
        if getattr(node.target, "overloadpacket", None) in taking and node.args[1].op == "call_function"
    }
    if kernels:
        constant_fold(module, kernels.__contains__)
