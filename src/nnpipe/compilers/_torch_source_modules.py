"""Metadata about the PyTorch modules of operators, which torchao's x86 quantiser needs.

The quantiser finds convolutions, and the operators to fuse them with, by
metadata that the exporter writes.  Checked programs have lost this metadata;
it is derived again from the operators.
"""

from __future__ import annotations

import operator
from typing import Any

_MODULES = {
    "conv1d": "Conv1d", "conv2d": "Conv2d", "batch_norm": "BatchNorm2d", "linear": "Linear", "relu": "ReLU",
    "relu_": "ReLU", "relu6": "ReLU6", "relu6_": "ReLU6", "hardtanh": "Hardtanh", "hardtanh_": "Hardtanh",
    "hardswish": "Hardswish", "hardswish_": "Hardswish", "silu": "SiLU", "silu_": "SiLU", "gelu": "GELU",
    "leaky_relu": "LeakyReLU", "leaky_relu_": "LeakyReLU", "tanh": "Tanh", "max_pool2d": "MaxPool2d",
    "avg_pool2d": "AvgPool2d", "adaptive_avg_pool2d": "AdaptiveAvgPool2d",
}  # fmt: skip


def tell_sources(module: Any) -> None:
    """Write the metadata into the graph of an exported module."""
    import torch

    for node in module.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        name = node.target._schema.name.removeprefix("aten::")
        if name in ("add", "add_"):
            node.meta["source_fn_stack"] = [(node.name, operator.add)]
        elif name in _MODULES:
            node.meta["source_fn_stack"] = [(node.name, getattr(torch.nn, _MODULES[name]))]
