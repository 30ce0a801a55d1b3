"""Cells as a search space: small graphs with an operation on each edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.experiment.settings import check_keys
from nnpipe.layers.description.from_description import from_description
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.problems import raise_if
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.normalisation import BatchNorm

# The operations that an edge of a cell may have, declared by their layers.
#
# The names of the known ones are those of NAS-Bench-201 (Dong and Yang 2020) and DARTS (Liu et al.
# 2019); they consist of the same layers.

NONE, SKIP = "none", "skip_connect"
CHANNELS = "channels"
"""Stands for the number of channels of the cell in the arguments of an operation's layers."""

# of batch normalisation: trainings of a few hundred steps are too short for Keras's 0.99
MOMENTUM = 0.9
NORM = {"class": "BatchNorm", "momentum": MOMENTUM}
_SIZE = 8  # pixels in each direction, with which operations are checked

Entry = Mapping[str, Any]


def _describe_conv(size: int) -> list[Entry]:
    conv = {
        "class": "Conv2d",
        "filters": CHANNELS,
        "kernel_size": size,
        "padding": "same",
        "use_bias": False,
    }
    return [{"class": "ReLU"}, conv, NORM]


def _describe_depthwise(size: int, dilation: int = 1) -> list[Entry]:
    depth = {
        "class": "DepthwiseConv2d",
        "kernel_size": size,
        "padding": "same",
        "use_bias": False,
        "dilation_rate": dilation,
    }
    return [{"class": "ReLU"}, depth, *_describe_conv(1)[1:]]


def _describe_pool(kind: str) -> list[Entry]:
    return [{"class": kind, "pool_size": 3, "strides": 1, "padding": "same"}]


KNOWN: Mapping[str, Sequence[Entry]] = {
    NONE: [],
    SKIP: [],
    "nor_conv_1x1": _describe_conv(1),
    "nor_conv_3x3": _describe_conv(3),
    "nor_conv_5x5": _describe_conv(5),
    # DARTS applies a separable convolution twice.
    "sep_conv_3x3": [*_describe_depthwise(3), *_describe_depthwise(3)],
    "sep_conv_5x5": [*_describe_depthwise(5), *_describe_depthwise(5)],
    "dil_conv_3x3": _describe_depthwise(3, 2),
    "dil_conv_5x5": _describe_depthwise(5, 2),
    "avg_pool_3x3": _describe_pool("AvgPool2d"),
    "max_pool_3x3": _describe_pool("MaxPool2d"),
}


@dataclass(frozen=True)
class CellOperation:
    """What an edge of a cell may compute: a chain of layers that keeps the shape, without any the
    identity.

    Parameters
    ----------
    name
        Its name: the value of an edge in a configuration.
    entries
        Its layers as in :mod:`nnpipe.layers.description.from_description`; the argument
        ``channels`` stands for the cell's number of channels.

    Raises
    ------
    ConfigError
        If a layer is wrong, or the shape is not kept.
    """

    name: str
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        for count in (4, 6):  # one number of channels alone could fit by chance
            graph = self._build_graph(count)
            end = infer(graph).shapes[graph.outputs[0]]
            if end != (None, _SIZE, _SIZE, count):
                raise ConfigError(
                    f"operation {self.name}: an operation keeps height, width and channels, but "
                    f"this one makes {end[1:]} of {(_SIZE, _SIZE, count)}"
                )

    @classmethod
    def from_json(cls, entry: Any, where: str) -> CellOperation:
        """Return a known operation by its name, or one of the form ``{"name": ..., "layers":
        [...]}``.

        Raises
        ------
        ConfigError
            If there is no such operation, or its layers are wrong.
        """
        if isinstance(entry, str):
            if entry not in KNOWN:
                hint = suggest_name(entry, KNOWN) or f"; there are: {', '.join(KNOWN)}"
                raise ConfigError(
                    f"{where}: there is no operation {entry!r}{hint}, or give {{name: ..., layers: "
                    f"[...]}}"
                )
            return cls(entry, tuple(KNOWN[entry]))
        if (
            not isinstance(entry, Mapping)
            or set(entry) != {"name", "layers"}
            or not isinstance(entry["name"], str)
        ):
            raise ConfigError(
                f"{where}: expected the name of an operation, or an object with name and layers"
            )
        if not isinstance(entry["layers"], (list, tuple)) or not entry["layers"]:
            raise ConfigError(f"{where}.layers: expected a list of layers")
        if entry["name"] in KNOWN:
            raise ConfigError(
                f"{where}.name: {entry['name']} is the name of a known operation; take another one"
            )
        return cls(entry["name"], tuple(entry["layers"]))

    def to_json(self) -> Any:
        """Return the name of a known operation, or name and layers."""
        if self.name in KNOWN:
            return self.name
        return {"name": self.name, "layers": [dict(each) for each in self.entries]}

    def layers(self, channels: int) -> tuple[Layer, ...]:
        """Return the layers for a number of channels, without inputs and with names such as
        ``conv2d``.
        """
        return _build_layers(self, channels)

    def cost(self, channels: int = 8) -> tuple[int, int]:
        """Return the number of weights and of layers, by which operations are called small and
        large.
        """
        found = infer(self._build_graph(channels))
        sizes = [
            v.shape for variables in found.variables.values() for v in variables if v.trainable
        ]
        total = 0
        for shape in sizes:
            size = 1
            for extent in shape:
                size *= extent
            total += size
        return total, len(self.entries)

    def __hash__(self) -> int:
        return hash((self.name, repr(self.entries)))

    def _build_graph(self, channels: int) -> NetworkGraph:
        first = {"class": "Input", "shape": [_SIZE, _SIZE, channels], "name": "cell_input"}
        layers = [first, *(_replace_channels(entry, channels) for entry in self.entries)]
        if any(
            isinstance(each, Mapping) and {"inputs", "calls"} & set(each) for each in self.entries
        ):
            raise ConfigError(
                f"operation {self.name}: its layers are a chain, so they have no inputs or calls"
            )
        found = from_description({"name": f"operation {self.name}", "layers": layers})
        raise_if(found.problems, f"operation {self.name}")
        assert found.graph is not None  # otherwise there are problems
        return found.graph


def _replace_channels(entry: Entry, channels: int) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    return {key: channels if value == CHANNELS else value for key, value in entry.items()}


@lru_cache(1024)
def _build_layers(operation: CellOperation, channels: int) -> tuple[Layer, ...]:
    graph = operation._build_graph(channels)
    return tuple(
        entry.layer.alone() for entry in graph.entries if not isinstance(entry.layer, Input)
    )


def remove_affine(layer: Layer) -> Layer:
    """Return a batch normalisation without scale and centre, any other layer unchanged.

    In a mixture of operations, a scale of their own would make the shares of the mixture
    meaningless (Liu et al. 2019).
    """
    return layer.alone(center=False, scale=False) if isinstance(layer, BatchNorm) else layer


CellOutput = Literal["last", "concatenate"]

MOST_NODES, _MOST_OPERATIONS = 6, 32
_KEYS = ("nodes", "operations", "inputs", "keep", "output")


@dataclass(frozen=True)
class CellSpace:
    """A cell: input nodes, then nodes that each add up what the edges from all nodes before them
    bring.

    With the defaults it is the cell of NAS-Bench-201 (Dong and Yang 2020): one input, every edge
    with an operation, ``none`` among them, and the last node as output.  ``inputs=2, keep=2,
    output="concatenate"`` is the normal cell of DARTS (Liu et al. 2019): the outputs of the two
    cells before, two edges into each node, and all nodes concatenated.

    Parameters
    ----------
    operations
        What an edge may compute.
    nodes
        Number of nodes that are computed, 1 to 6.
    inputs
        Number of input nodes: 1, or 2 for the outputs of the two cells before.
    keep
        How many edges each node has; by default all.  If fewer, ``none`` cannot be an operation.
    output
        ``last`` node, or all computed nodes joined along their channels.

    Raises
    ------
    ConfigError
        If arguments are wrong or do not fit together.
    """

    operations: tuple[CellOperation, ...]
    nodes: int = 3
    inputs: int = 1
    keep: int | None = None
    output: CellOutput = "last"

    def __post_init__(self) -> None:
        check_call(CellSpace, vars(self))
        object.__setattr__(self, "operations", tuple(self.operations))
        if not 1 <= self.nodes <= MOST_NODES:
            raise ConfigError(f"cell.nodes: expected 1 to {MOST_NODES}, found {self.nodes}")
        if self.inputs not in (1, 2):
            raise ConfigError(
                f"cell.inputs: expected 1, or 2 for the two cells before, found {self.inputs}"
            )
        names = self.names
        if not 1 <= len(names) <= _MOST_OPERATIONS:
            raise ConfigError(
                f"cell.operations: expected 1 to {_MOST_OPERATIONS}, found {len(names)}"
            )
        if len(set(names)) < len(names):
            raise ConfigError("cell.operations: two of them have the same name")
        if set(names) == {NONE}:
            raise ConfigError("cell.operations: none alone connects nothing")
        if self.keep is not None and self.keep < 1:
            raise ConfigError(f"cell.keep: expected at least 1, found {self.keep}")
        if self.keep is not None and NONE in names:
            raise ConfigError("cell.operations: with keep, edges are left out already; remove none")
        if self.output == "concatenate" and NONE in names:
            raise ConfigError(
                "cell.operations: where all nodes are concatenated, each needs an edge; remove none"
            )

    @classmethod
    def from_json(cls, entry: Any) -> CellSpace:
        """Return the cell of an object with ``operations`` and optionally ``nodes``, ``inputs``,
        ``keep``, ``output``.

        Raises
        ------
        ConfigError
            If something is wrong; the message names its place.
        """
        data = check_keys(entry, _KEYS, "architecture.cell", ("operations",))
        given = data["operations"]
        if not isinstance(given, (list, tuple)):
            raise ConfigError("architecture.cell.operations: expected a list")
        operations = tuple(
            CellOperation.from_json(each, f"architecture.cell.operations.{place}")
            for place, each in enumerate(given)
        )
        try:
            return cls(
                operations, **{key: value for key, value in data.items() if key != "operations"}
            )
        except ConfigError as error:
            raise ConfigError(f"architecture.{error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` reads."""
        return {
            "operations": [each.to_json() for each in self.operations],
            "nodes": self.nodes,
            "inputs": self.inputs,
            "keep": self.keep,
            "output": self.output,
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operations, in order."""
        return tuple(each.name for each in self.operations)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """All pairs of nodes that an edge may connect, the inputs counted first."""
        return tuple((start, end) for end in self.computed for start in range(end))

    @property
    def computed(self) -> range:
        """The numbers of the nodes that are computed."""
        return range(self.inputs, self.inputs + self.nodes)

    def count_edges(self, node: int) -> int:
        """Return how many edges a node has."""
        return node if self.keep is None else min(self.keep, node)

    def operation(self, name: str) -> CellOperation:
        """Return the operation of a name.

        Raises
        ------
        ConfigError
            If there is none.
        """
        for each in self.operations:
            if each.name == name:
                return each
        raise ConfigError(f"there is no operation {name!r}; there are: {', '.join(self.names)}")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of a cell, as
        :meth:`nnpipe.searching.space.SearchSpace.from_json` reads them.
        """
        found: dict[str, Any] = {}
        for end in self.computed:
            choices = [
                _format_starts(starts) for starts in combinations(range(end), self.count_edges(end))
            ]
            if len(choices) > 1:
                found[f"node_{end}_inputs"] = {"kind": "discrete", "values": choices}
            for start in range(end):
                found[format_edge_name(start, end)] = {
                    "kind": "discrete",
                    "values": list(self.names),
                }
                if len(choices) > 1:
                    fitting = [choice for choice in choices if str(start) in choice.split()]
                    found[format_edge_name(start, end)]["when"] = (
                        f"node_{end}_inputs in {fitting!r}"
                    )
        return found

    def constraints(self) -> list[str]:
        """Return expressions that hold if the output depends on an input: every cut between them
        is crossed.
        """
        if NONE not in self.names:
            return []
        inner, found = self.computed[:-1], []
        for size in range(len(inner) + 1):
            for chosen in combinations(inner, size):
                near = {*range(self.inputs), *chosen}
                crossing = [
                    (start, end) for start, end in self.edges if start in near and end not in near
                ]
                found.append(
                    " or ".join(f"{format_edge_name(*edge)} != '{NONE}'" for edge in crossing)
                )
        return found

    def read_operations(self, configuration: Mapping[str, Any]) -> dict[tuple[int, int], str]:
        """Return the operation of every edge of a configuration that has one.

        An edge from a node that nothing reaches has none.

        Raises
        ------
        ConfigError
            If a value is missing or unknown, or the output does not depend on an input.
        """
        found: dict[tuple[int, int], str] = {}
        reached = set(range(self.inputs))
        for end in self.computed:
            for start in self._iter_starts(configuration, end):
                name = format_edge_name(start, end)
                if name not in configuration:
                    raise ConfigError(f"{name}: this configuration has no value of it")
                if self.operation(configuration[name]).name != NONE and start in reached:
                    found[start, end] = configuration[name]
            if any(edge[1] == end for edge in found):
                reached.add(end)
        if self.computed[-1] not in reached:
            raise ConfigError("no path leads from the inputs of this cell to its output")
        return found

    def _iter_starts(self, configuration: Mapping[str, Any], end: int) -> Iterator[int]:
        if self.count_edges(end) == end:
            yield from range(end)
            return
        name = f"node_{end}_inputs"
        if name not in configuration:
            raise ConfigError(f"{name}: this configuration has no value of it")
        yield from map(int, str(configuration[name]).split())

    def configuration(self, operations: Mapping[tuple[int, int], str]) -> dict[str, str]:
        """Return the configuration of a cell with these operations; the other edges have none."""
        found: dict[str, str] = {}
        for end in self.computed:
            starts = [start for start in range(end) if (start, end) in operations]
            if self.count_edges(end) < end:
                found[f"node_{end}_inputs"] = _format_starts(starts)
            else:
                starts = list(range(end))
            for start in starts:
                found[format_edge_name(start, end)] = operations.get((start, end), NONE)
        return found


def format_edge_name(start: int, end: int) -> str:
    """Return the name of the parameter of an edge."""
    return f"edge_{start}_{end}"


def _format_starts(starts: Any) -> str:
    return " ".join(map(str, starts))
