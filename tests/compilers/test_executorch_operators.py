"""What ExecuTorch computes slowly is mended where the result stays the same, and named
otherwise.
"""

from __future__ import annotations

from typing import Any

import pytest

from nnpipe.compilers.executorch import find_slow_parts, fit_windows

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def exported(layer: Any, *shape: int) -> Any:
    return torch.export.export(layer.eval(), (torch.rand(*shape),))


def windows(program: Any) -> list[Any]:
    return [node.args[1] for node in program.graph.nodes if "pool" in str(node.target)]


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (torch.nn.AvgPool2d(640, ceil_mode=True), [2, 3]),
        (torch.nn.AvgPool2d(3, stride=1, ceil_mode=True), [3, 3]),  # no window covers two rows
        (torch.nn.AvgPool2d(4, padding=1, ceil_mode=True), [4, 4]),  # zeros beside the input count
        (torch.nn.AvgPool2d(8, ceil_mode=True, divisor_override=2), [8, 8]),
    ],
)
def test_windows_become_no_larger_than_all_of_their_input(
    pooling: Any, expected: list[int]
) -> None:
    shape = (1, 2, 4, 3) if expected == [3, 3] else (1, 2, 2, 3)
    program = exported(pooling, *shape)
    fit_windows(program)
    assert windows(program) == [expected]
    x = torch.rand(*shape)
    assert torch.allclose(program.module()(x), pooling(x), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_recurrent_layers_and_operators_without_a_backend_are_named() -> None:
    program = exported(torch.nn.GRU(3, 2), 5, 1, 3)
    assert find_slow_parts(
        program, exported(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.LayerNorm(4)), 1, 4)
    ) == [
        "recurrent layers are unrolled into their steps",
        "portable kernels for layer_norm",
    ]
    assert find_slow_parts(exported(torch.nn.ReLU(), 1, 4), exported(torch.nn.ReLU(), 1, 4)) == []
