"""The construction of networks from cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from nnpipe.architectures.cell_space import CellSpace, edge_name
from nnpipe.architectures.operations import MOMENTUM, CellOperation, without_affine
from nnpipe.layers.graph.graph import NetworkGraph, network
from nnpipe.layers.vocabulary.activation_layers import ReLU
from nnpipe.layers.vocabulary.convolutions import Conv2d
from nnpipe.layers.vocabulary.dense import Dense
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer, Tensor
from nnpipe.layers.vocabulary.merging import Add, Concatenate
from nnpipe.layers.vocabulary.normalisation import BatchNorm
from nnpipe.layers.vocabulary.outputs import OutputClassification
from nnpipe.layers.vocabulary.pooling import GlobalAvgPool2d

Edge: TypeAlias = "Callable[[str, tuple[int, int], Tensor, int], Tensor | None]"
"""Returns what an edge brings: given the cell's name, the edge, the tensor that it starts from, and the channels."""


@dataclass(frozen=True)
class _Value:
    """A tensor with its number of channels and its stage, which tells its size."""

    tensor: Tensor
    channels: int
    stage: int


@dataclass(frozen=True)
class CellStack:
    """A stem, stages of cells, and a classifier.

    Layers have equal names wherever they have the same place and operation, so that networks can share weights by name.
    """

    cell: CellSpace
    input: tuple[int, int, int]
    classes: int
    channels: int
    cells: int
    stages: int
    input_name: str
    target: str

    def of_operations(self, operations: Mapping[tuple[int, int], str], name: str) -> NetworkGraph:
        """Return the network whose cells have these operations; other edges have none."""

        def edge(cell: str, place: tuple[int, int], start: Tensor, channels: int) -> Tensor | None:
            if place not in operations:
                return None
            return applied(self.cell.operation(operations[place]), f"{cell}_{edge_name(*place)}", start, channels)

        return self.network(edge, name)

    def network(self, edge: Edge, name: str) -> NetworkGraph:
        """Return the network whose edges a function makes."""
        image = Input(self.input, name=self.input_name)
        last = before = _Value(_conv(image, self.channels, "stem", size=3, relu=False), self.channels, 0)
        for stage in range(self.stages):
            channels = self.channels << stage
            if stage:
                made = _conv(last.tensor, channels, f"reduction_{stage}", size=3, strides=2)
                last = _Value(made, channels, stage)
                if self.cell.inputs == 1:
                    before = last
            for number in range(self.cells):
                cell = self._cell(f"cell_{stage}_{number}", before, last, channels, stage, edge)
                before, last = last, _Value(cell, channels * self._width, stage)
        logits = Dense(GlobalAvgPool2d(last.tensor, name="pool"), self.classes, name="logits")
        return network(image, OutputClassification(logits, self.target, name="class"), name)

    @property
    def _width(self) -> int:
        """How many nodes a cell's output has side by side."""
        return self.cell.nodes if self.cell.output == "concatenate" else 1

    def _cell(self, name: str, before: _Value, last: _Value, channels: int, stage: int, edge: Edge) -> Tensor:
        given = [before, last][-self.cell.inputs :]
        nodes: list[Tensor | None] = []
        for number, value in enumerate(given):
            tensor = value.tensor
            if value.channels != channels or value.stage != stage:
                strides = 1 << (stage - value.stage)
                tensor = _conv(tensor, channels, f"{name}_input_{number}", size=1, strides=strides)
            nodes.append(tensor)
        for end in self.cell.computed:
            brought = []
            for start, tensor_before in enumerate(nodes[:end]):
                made = None if tensor_before is None else edge(name, (start, end), tensor_before, channels)
                if made is not None:
                    brought.append(made)
            nodes.append(_sum(brought, f"{name}_node_{end}"))
        computed = [node for node in nodes[self.cell.inputs :] if node is not None]
        if self.cell.output == "last" or len(computed) == 1:
            return computed[-1]
        return Concatenate(computed, name=f"{name}_output")


def applied(operation: CellOperation, prefix: str, start: Tensor, channels: int, *, affine: bool = True) -> Tensor:
    """Return an operation applied to a tensor; its layers have the names ``prefix_operation_0`` and so on."""
    tensor = start
    for number, layer in enumerate(operation.layers(channels)):
        own = layer if affine else without_affine(layer)
        tensor = replace(own, inputs=tensor, name=f"{prefix}_{operation.name}_{number}")
    return tensor


def _sum(tensors: list[Tensor], name: str) -> Tensor | None:
    if len(tensors) < 2:
        return tensors[0] if tensors else None
    return Add(tensors, name=name)


def _conv(start: Tensor, channels: int, name: str, *, size: int, strides: int = 1, relu: bool = True) -> Layer:
    before = ReLU(start, name=f"{name}_relu") if relu else start
    made = Conv2d(before, channels, size, strides, padding="same", use_bias=False, name=f"{name}_conv")
    return BatchNorm(made, momentum=MOMENTUM, name=f"{name}_norm")
