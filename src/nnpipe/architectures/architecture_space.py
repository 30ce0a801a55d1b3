"""Networks of cells as a search space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from nnpipe.architectures.cell_space import (
    KNOWN,
    MOMENTUM,
    MOST_NODES,
    NONE,
    CellOperation,
    CellSpace,
    format_edge_name,
    remove_affine,
)
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.settings import check_keys
from nnpipe.layers.description.from_description import to_description
from nnpipe.layers.graph.graph import NetworkGraph, network
from nnpipe.layers.vocabulary.activation_layers import ReLU
from nnpipe.layers.vocabulary.convolutions import Conv2d
from nnpipe.layers.vocabulary.dense import Dense
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer, Tensor
from nnpipe.layers.vocabulary.normalisation import BatchNorm
from nnpipe.layers.vocabulary.outputs import OutputClassification
from nnpipe.layers.vocabulary.pooling import GlobalAvgPool2d
from nnpipe.layers.vocabulary.reshaping import Add, Concatenate
from nnpipe.searching.space import SearchSpace

Edge: TypeAlias = "Callable[[str, tuple[int, int], Tensor, int], Tensor | None]"
"""Returns what an edge brings: given the cell's name, the edge, the tensor that it starts from,
and the channels.
"""


@dataclass(frozen=True)
class _Value:
    """A tensor with its number of channels and its stage, which tells its size."""

    tensor: Tensor
    channels: int
    stage: int


@dataclass(frozen=True)
class CellStack:
    """A stem, stages of cells, and a classifier.

    Layers have equal names wherever they have the same place and operation, so that networks can
    share weights by name.
    """

    cell: CellSpace
    input: tuple[int, int, int]
    classes: int
    channels: int
    cells: int
    stages: int
    input_name: str
    target: str

    def build_from_operations(
        self, operations: Mapping[tuple[int, int], str], name: str
    ) -> NetworkGraph:
        """Return the network whose cells have these operations; other edges have none."""

        def add_edge(
            cell: str, place: tuple[int, int], start: Tensor, channels: int
        ) -> Tensor | None:
            if place not in operations:
                return None
            return apply_operation(
                self.cell.operation(operations[place]),
                f"{cell}_{format_edge_name(*place)}",
                start,
                channels,
            )

        return self.network(add_edge, name)

    def network(self, edge: Edge, name: str) -> NetworkGraph:
        """Return the network whose edges a function makes."""
        image = Input(self.input, name=self.input_name)
        last = before = _Value(
            _build_conv(image, self.channels, "stem", size=3, relu=False), self.channels, 0
        )
        for stage in range(self.stages):
            channels = self.channels << stage
            if stage:
                made = _build_conv(last.tensor, channels, f"reduction_{stage}", size=3, strides=2)
                last = _Value(made, channels, stage)
                if self.cell.inputs == 1:
                    before = last
            for number in range(self.cells):
                cell = self._build_cell(
                    f"cell_{stage}_{number}", before, last, channels, stage, edge
                )
                before, last = last, _Value(cell, channels * self._width, stage)
        logits = Dense(GlobalAvgPool2d(last.tensor, name="pool"), self.classes, name="logits")
        return network(image, OutputClassification(logits, self.target, name="class"), name)

    @property
    def _width(self) -> int:
        """How many nodes a cell's output has side by side."""
        return self.cell.nodes if self.cell.output == "concatenate" else 1

    def _build_cell(
        self, name: str, before: _Value, last: _Value, channels: int, stage: int, edge: Edge
    ) -> Tensor:
        given = [before, last][-self.cell.inputs :]
        nodes: list[Tensor | None] = []
        for number, value in enumerate(given):
            tensor = value.tensor
            if value.channels != channels or value.stage != stage:
                strides = 1 << (stage - value.stage)
                tensor = _build_conv(
                    tensor, channels, f"{name}_input_{number}", size=1, strides=strides
                )
            nodes.append(tensor)
        for end in self.cell.computed:
            brought = []
            for start, tensor_before in enumerate(nodes[:end]):
                made = (
                    None
                    if tensor_before is None
                    else edge(name, (start, end), tensor_before, channels)
                )
                if made is not None:
                    brought.append(made)
            nodes.append(_add_tensors(brought, f"{name}_node_{end}"))
        computed = [node for node in nodes[self.cell.inputs :] if node is not None]
        if self.cell.output == "last" or len(computed) == 1:
            return computed[-1]
        return Concatenate(computed, name=f"{name}_output")


def apply_operation(
    operation: CellOperation, prefix: str, start: Tensor, channels: int, *, affine: bool = True
) -> Tensor:
    """Return an operation applied to a tensor; its layers have the names ``prefix_operation_0``
    and so on.
    """
    tensor = start
    for number, layer in enumerate(operation.layers(channels)):
        own = layer if affine else remove_affine(layer)
        tensor = replace(own, inputs=tensor, name=f"{prefix}_{operation.name}_{number}")
    return tensor


def _add_tensors(tensors: list[Tensor], name: str) -> Tensor | None:
    if len(tensors) < 2:
        return tensors[0] if tensors else None
    return Add(tensors, name=name)


def _build_conv(
    start: Tensor, channels: int, name: str, *, size: int, strides: int = 1, relu: bool = True
) -> Layer:
    before = ReLU(start, name=f"{name}_relu") if relu else start
    made = Conv2d(
        before, channels, size, strides, padding="same", use_bias=False, name=f"{name}_conv"
    )
    return BatchNorm(made, momentum=MOMENTUM, name=f"{name}_norm")


SIZES: tuple[Literal["channels", "cells"], ...] = ("channels", "cells")
_KEYS = ("cell", "input", "input_name", "classes", "target", "channels", "cells", "stages")


@dataclass(frozen=True)
class ArchitectureSpace:
    """Image classifiers made of cells: a stem, stages of equal cells, global pooling and one dense
    layer.

    Every stage after the first begins with a convolution that halves height and width and doubles
    the channels, as in NAS-Bench-201.  All cells are the same.  A configuration has the parameters
    of the cell, and ``channels`` and ``cells`` if there is a choice; what it stands for is an
    ordinary declared network.

    Parameters
    ----------
    cell
        The cells.
    input
        Height, width and channels of the images.
    classes
        Number of classes.
    channels
        Number of channels in the first stage, or several to choose from.
    cells
        Number of cells in each stage, or several to choose from.
    stages
        Number of stages.
    input_name, target
        The features of a batch that hold the images and the classes.

    Raises
    ------
    ConfigError
        If arguments are wrong.

    Examples
    --------
    >>> from nnpipe.architectures.architecture_space import ArchitectureSpace
    >>> space = ArchitectureSpace.from_json({
    ...     "cell": {"operations": ["none", "skip_connect", "nor_conv_3x3"], "nodes": 2},
    ...     "input": [8, 8, 1], "classes": 10, "channels": [4, 8], "cells": 1, "stages": 1,
    ... })
    >>> cell = {"edge_0_1": "nor_conv_3x3", "edge_0_2": "none", "edge_1_2": "skip_connect"}
    >>> [entry.layer.name for entry in space.network({"channels": 4, **cell}).entries][3:7]
    ['cell_0_0_edge_0_1_nor_conv_3x3_0', 'cell_0_0_edge_0_1_nor_conv_3x3_1', 'cell_0_0_edge_0_1_nor_conv_3x3_2', 'pool']
    """

    cell: CellSpace
    input: tuple[int, int, int]
    classes: int
    channels: Sequence[int] | int = 16
    cells: Sequence[int] | int = 1
    stages: int = 2
    input_name: str = "image"
    target: str = "label"

    def __post_init__(self) -> None:
        check_call(ArchitectureSpace, vars(self))
        for name in SIZES:
            given = getattr(self, name)
            values = (given,) if isinstance(given, int) else tuple(given)
            if not values or min(values) < 1 or len(set(values)) < len(values):
                raise ConfigError(
                    f"{name}: expected different numbers of at least 1, found {given!r}"
                )
            object.__setattr__(self, name, tuple(sorted(values)))
        object.__setattr__(self, "input", tuple(self.input))
        if len(self.input) != 3 or min(self.input) < 1:
            raise ConfigError(
                f"input: expected height, width and channels, found {list(self.input)}"
            )
        if self.classes < 2:
            raise ConfigError(f"classes: expected at least 2, found {self.classes}")
        if self.stages < 1 or min(self.input[:2]) < 2 ** (self.stages - 1):
            raise ConfigError(
                f"stages: images of {self.input[:2]} pixels cannot be halved {self.stages - 1} "
                f"times"
            )

    @classmethod
    def from_json(cls, entry: Any) -> ArchitectureSpace:
        """Return the space of an object with ``cell``, ``input``, ``classes`` and the other
        arguments.

        Raises
        ------
        ConfigError
            If something is wrong; the message names its place.
        """
        data = dict(check_keys(entry, _KEYS, "architecture", ("cell", "input", "classes")))
        cell = CellSpace.from_json(data.pop("cell"))
        for name in ("input", "channels", "cells"):
            if isinstance(data.get(name), list):
                data[name] = tuple(data[name])
        try:
            return cls(cell, **data)
        except ConfigError as error:
            raise ConfigError(f"architecture.{error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` reads."""
        return {
            "cell": self.cell.to_json(),
            "input": list(self.input),
            "classes": self.classes,
            "channels": list(self.sizes("channels")),
            "cells": list(self.sizes("cells")),
            "stages": self.stages,
            "input_name": self.input_name,
            "target": self.target,
        }

    def sizes(self, name: Literal["channels", "cells"]) -> tuple[int, ...]:
        """Return the numbers of channels or of cells to choose from, in ascending order."""
        found = getattr(self, name)
        assert isinstance(found, tuple)  # __post_init__ makes it one
        return found

    def greatest(self, name: Literal["channels", "cells"]) -> int:
        """Return the greatest number of channels or of cells."""
        return self.sizes(name)[-1]

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, as :func:`nnpipe.search` takes them for its space."""
        found: dict[str, Any] = {}
        for name in SIZES:
            if len(self.sizes(name)) > 1:
                found[name] = {
                    "kind": "discrete",
                    "values": list(self.sizes(name)),
                    "ordered": True,
                }
        return found | self.cell.parameters()

    def constraints(self) -> list[str]:
        """Return the constraints, as :func:`nnpipe.search` takes them."""
        return self.cell.constraints()

    @cached_property
    def search_space(self) -> SearchSpace:
        """The parameters with their constraints."""
        return SearchSpace.from_json(self.parameters(), self.constraints())

    def network(self, configuration: Mapping[str, Any], name: str = "found") -> NetworkGraph:
        """Return the network of a configuration.

        Parameters
        ----------
        configuration
            The value of every parameter, such as the ``configuration`` of a trial.
        name
            The name of the network.

        Raises
        ------
        ConfigError
            If a value is missing or not one of the space, or nothing connects the cell's output
            with its input.
        """
        self.search_space.check(configuration)
        operations = self.cell.read_operations(configuration)
        channels, cells = (configuration.get(size, self.greatest(size)) for size in SIZES)
        return self.build_stack(channels, cells).build_from_operations(operations, name)

    def build_stack(self, channels: int, cells: int) -> CellStack:
        """Return the stack with these numbers of channels and cells, into which any cell can be
        put.
        """
        return CellStack(
            self.cell,
            self.input,
            self.classes,
            channels,
            cells,
            self.stages,
            self.input_name,
            self.target,
        )

    def description(self, configuration: Mapping[str, Any], name: str = "found") -> dict[str, Any]:
        """Return the network of a configuration in the form of YAML files; see :meth:`network`."""
        return to_description(self.network(configuration, name))

    def sample(self, random: np.random.Generator) -> dict[str, Any]:
        """Return a random configuration; all values of a parameter are equally likely.

        Raises
        ------
        ConfigError
            If the constraints allow none of many.
        """
        space = self.search_space
        for _ in range(10_000):
            found = space.configuration(
                lambda _, parameter: parameter.get_value_at(random.random())
            )
            if space.allows(found):
                return found
        raise ConfigError("of 10,000 random configurations, the constraints allow none")

    def get_extreme(self, which: int) -> dict[str, Any]:
        """Return the smallest configuration (``which=0``) or the largest one (``-1``).

        The operations with the fewest or most weights are on all edges, and the fewest or most
        cells and channels.
        """
        costs = {each.name: each.cost() for each in self.cell.operations if each.name != NONE}
        operation = sorted(costs, key=lambda name: costs[name])[which]
        found: dict[str, Any] = {
            name: self.sizes(name)[which] for name in SIZES if len(self.sizes(name)) > 1
        }
        edges = {
            (start, end): operation
            for end in self.cell.computed
            for start in range(end)[-self.cell.count_edges(end) :]
        }
        return found | self.cell.configuration(edges)


def architecture_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an architecture; see :class:`ArchitectureSpace`."""
    count, text = {"type": "integer", "minimum": 1}, {"type": "string", "minLength": 1}
    several = {
        "anyOf": [count, {"type": "array", "items": count, "minItems": 1, "uniqueItems": True}]
    }
    own = {
        "type": "object",
        "properties": {
            "name": text,
            "layers": {"type": "array", "items": {"type": "object"}, "minItems": 1},
        },
        "required": ["name", "layers"],
        "additionalProperties": False,
    }
    cell = {
        "type": "object",
        "properties": {
            "operations": {
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": [{"enum": list(KNOWN)}, own]},
                "description": "what an edge may compute: known ones, or layers in which channels stands for a number",
            },
            "nodes": {"type": "integer", "minimum": 1, "maximum": MOST_NODES, "default": 3},
            "inputs": {
                "enum": [1, 2],
                "default": 1,
                "description": "2 takes the outputs of the two cells before",
            },
            "keep": count
            | {"description": "edges into each node; left out: all, each with an operation"},
            "output": {"enum": ["last", "concatenate"], "default": "last"},
        },
        "required": ["operations"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "description": "networks of cells that the pipeline trains and measures; their parameters add to the space",
        "properties": {
            "cell": cell,
            "channels": several
            | {"description": "channels of the first stage, or several to choose from"},
            "cells": several | {"description": "cells in each stage, or several to choose from"},
            "stages": count | {"default": 2},
            "input": {
                "type": "array",
                "items": count,
                "minItems": 3,
                "maxItems": 3,
                "description": "height, width and channels; left out: those of the data set",
            },
            "classes": {"type": "integer", "minimum": 2},
            "input_name": text,
            "target": text,
        },
        "required": ["cell"],
        "additionalProperties": False,
    }
