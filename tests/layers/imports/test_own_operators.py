"""Operators of ONNX that only a layer of somebody's own knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.layers import from_onnx, to_torch
from nnpipe.layers.imports.step import Operator, Step
from nnpipe.layers.vocabulary.initialisers import Zeros
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape, TorchParts
from nnpipe.layers.vocabulary.normalisation import parameters

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")


class Channels(Layer):
    """Multiply the last axis by its number, and add weights."""

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        return (LayerVariable("more", (shapes[0][-1] or 0,), Zeros()),)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        core = parameters(self.variables(*shapes))
        return TorchParts(
            lambda module, x: x * torch.arange(x.shape[-1]) + module.core["more"], core
        )


class ChannelsOperator(Operator):
    """Multiply channels by their numbers."""

    operator = "tests.own::Channels"

    def layer(self, step: Step) -> Layer:
        return Channels(())

    def weights(self, step: Step) -> Mapping[str, np.ndarray]:
        return {"more": step.constant(1)}


class Doubled(Layer):
    """Twice each value."""

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, x: 2 * x)


class DoubledOperator(Operator):
    """Twice each value."""

    operator, elementwise = "tests.own::Doubled", True

    def layer(self, step: Step) -> Layer:
        return Doubled(())


def file_of(path: Path, nodes: list[Any], constants: dict[str, np.ndarray]) -> Path:
    make = onnx.helper
    shape = ["n", 3, 4, 4]
    ends = [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", "y")]
    held = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = make.make_graph(nodes, "own", ends[:1], ends[1:], held)
    versions = [make.make_opsetid("", 18), make.make_opsetid("tests.own", 1)]
    onnx.save(make.make_model(graph, opset_imports=versions), path)
    return path


def node(kind: str, *names: str) -> Any:
    return onnx.helper.make_node(kind, names[:-1], names[-1:], domain="tests.own")


def test_a_layer_has_channels_last_unless_the_order_of_axes_does_not_matter(tmp_path: Path) -> None:
    nodes = [node("Doubled", "x", "a"), node("Channels", "a", "more", "y")]
    reading = from_onnx(
        file_of(tmp_path / "own.onnx", nodes, {"more": np.arange(3, dtype=np.float32)})
    )
    assert reading.problems == ()
    assert reading.graph is not None
    kinds = [type(layer).__name__ for layer in reading.graph.layers.values()]
    assert kinds == ["Input", "Doubled", "Permute", "Channels", "Permute"]
    x, number = torch.randn(2, 3, 4, 4), torch.arange(3).reshape(-1, 1, 1)
    with torch.no_grad():
        found = to_torch(reading.graph, reading.weights).eval()(x)
    torch.testing.assert_close(found, 2 * x * number + number)


def test_weights_of_another_shape_are_told_with_the_operator(tmp_path: Path) -> None:
    path = file_of(
        tmp_path / "own.onnx",
        [node("Channels", "x", "more", "y")],
        {"more": np.zeros(4, np.float32)},
    )
    (problem, *_) = from_onnx(path).problems
    assert problem.code == "weights"
    assert "tests.own::Channels has weights of the shapes {'more': (4,)}" in problem.message
