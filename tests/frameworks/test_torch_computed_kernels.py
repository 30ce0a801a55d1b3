"""Kernels that a program computes from constants are stored, and nothing else is."""

from __future__ import annotations

import pytest

from nnpipe.frameworks.torch_program import compute_constant_kernels

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torchao", reason="torchao is not installed")


class Normalised(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(3, 4, 2))
        self.scale = torch.nn.Parameter(torch.ones(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * (self.scale + 1).exp()


def test_only_the_kernel_is_computed_once() -> None:
    example = torch.arange(15.0).reshape(1, 3, 5)
    network = Normalised().eval()
    module = torch.export.export(network, (example,)).module()
    compute_constant_kernels(module)
    kernel = next(node for node in module.graph.nodes if "conv1d" in str(node.target)).args[1]
    assert kernel.op == "get_attr"
    assert "aten.exp.default" in {str(node.target) for node in module.graph.nodes}
    assert torch.equal(module(example), network(example))
