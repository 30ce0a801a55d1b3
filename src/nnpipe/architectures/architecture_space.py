"""Networks of cells as a search space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from nnpipe.architectures.cell_space import CellSpace
from nnpipe.architectures.operations import NONE
from nnpipe.architectures.stacking import CellStack
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.settings import check_keys
from nnpipe.layers.description.to_description import to_description
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.searching.space import SearchSpace

SIZES: tuple[Literal["channels", "cells"], ...] = ("channels", "cells")
_KEYS = ("cell", "input", "input_name", "classes", "target", "channels", "cells", "stages")


@dataclass(frozen=True)
class ArchitectureSpace:
    """Image classifiers made of cells: a stem, stages of equal cells, global pooling and one dense layer.

    Every stage after the first begins with a convolution that halves height and width and doubles the channels, as in
    NAS-Bench-201.  All cells are the same.  A configuration has the parameters of the cell, and ``channels`` and
    ``cells`` if there is a choice; what it stands for is an ordinary declared network.

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
                raise ConfigError(f"{name}: expected different numbers of at least 1, found {given!r}")
            object.__setattr__(self, name, tuple(sorted(values)))
        object.__setattr__(self, "input", tuple(self.input))
        if len(self.input) != 3 or min(self.input) < 1:
            raise ConfigError(f"input: expected height, width and channels, found {list(self.input)}")
        if self.classes < 2:
            raise ConfigError(f"classes: expected at least 2, found {self.classes}")
        if self.stages < 1 or min(self.input[:2]) < 2 ** (self.stages - 1):
            raise ConfigError(f"stages: images of {self.input[:2]} pixels cannot be halved {self.stages - 1} times")

    @classmethod
    def from_json(cls, entry: Any) -> ArchitectureSpace:
        """Return the space of an object with ``cell``, ``input``, ``classes`` and the other arguments.

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
            "cell": self.cell.to_json(), "input": list(self.input), "classes": self.classes,
            "channels": list(self.sizes("channels")), "cells": list(self.sizes("cells")), "stages": self.stages,
            "input_name": self.input_name, "target": self.target,
        }  # fmt: skip

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
                found[name] = {"kind": "discrete", "values": list(self.sizes(name)), "ordered": True}
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
            If a value is missing or not one of the space, or nothing connects the cell's output with its input.
        """
        self.search_space.check(configuration)
        operations = self.cell.operations_of(configuration)
        channels, cells = (configuration.get(size, self.greatest(size)) for size in SIZES)
        return self.stack(channels, cells).of_operations(operations, name)

    def stack(self, channels: int, cells: int) -> CellStack:
        """Return the stack with these numbers of channels and cells, into which any cell can be put."""
        return CellStack(
            self.cell, self.input, self.classes, channels, cells, self.stages, self.input_name, self.target
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
            found = space.configuration(lambda _, parameter: parameter.value_at(random.random()))
            if space.allows(found):
                return found
        raise ConfigError("of 10,000 random configurations, the constraints allow none")

    def extreme(self, which: int) -> dict[str, Any]:
        """Return the smallest configuration (``which=0``) or the largest one (``-1``).

        The operations with the fewest or most weights are on all edges, and the fewest or most cells and channels.
        """
        costs = {each.name: each.cost() for each in self.cell.operations if each.name != NONE}
        operation = sorted(costs, key=lambda name: costs[name])[which]
        found: dict[str, Any] = {name: self.sizes(name)[which] for name in SIZES if len(self.sizes(name)) > 1}
        edges = {(start, end): operation for end in self.cell.computed for start in range(end)[-self.cell.kept(end) :]}
        return found | self.cell.configuration(edges)
