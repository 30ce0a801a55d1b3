"""Exports of PyTorch programs to ONNX say what every runtime computes."""

from __future__ import annotations

import pytest

from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.torch_onnx import mark_whole_pools

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize(
    ("pool", "whole"),
    [
        (torch.nn.AvgPool2d(640, ceil_mode=True), True),
        (torch.nn.AvgPool2d((4, 6)), True),
        (torch.nn.AvgPool2d(4), False),
        (torch.nn.AvgPool2d(6, padding=1), False),
        (torch.nn.AvgPool2d(640, ceil_mode=True, divisor_override=3), False),
    ],
)
def test_pools_that_cover_the_image_are_means_of_it(pool: torch.nn.Module, whole: bool) -> None:
    image = torch.rand(2, 3, 4, 6)
    program = torch.export.export(torch.nn.Sequential(pool), (image,))
    targets = [str(node.target) for node in program.graph.nodes]
    with mark_whole_pools(program):
        inside = {str(node.target) for node in program.graph.nodes}
        torch.testing.assert_close(program.module()(image), pool(image))
    assert ("aten.adaptive_avg_pool2d.default" in inside) is whole
    assert [str(node.target) for node in program.graph.nodes] == targets


@pytest.mark.slow
def test_a_window_larger_than_the_image_is_exported_as_a_mean() -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    program = torch.export.export(
        torch.nn.Sequential(torch.nn.AvgPool2d(640, ceil_mode=True)), (torch.rand(1, 3, 2, 2),)
    )
    with suppress_output(), mark_whole_pools(program):
        found = torch.onnx.export(program, (), dynamo=True, verbose=False)
    assert not {node.op_type for node in found.model_proto.graph.node} & {"AveragePool"}
