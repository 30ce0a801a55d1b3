"""Cells as a search space: small graphs with an operation on each edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from nnpipe.architectures.operations import NONE, CellOperation
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.settings import check_keys

CellOutput = Literal["last", "concatenate"]

MOST_NODES, _MOST_OPERATIONS = 6, 32
_KEYS = ("nodes", "operations", "inputs", "keep", "output")


@dataclass(frozen=True)
class CellSpace:
    """A cell: input nodes, then nodes that each add up what the edges from all nodes before them bring.

    With the defaults it is the cell of NAS-Bench-201 (Dong and Yang 2020): one input, every edge with an operation,
    ``none`` among them, and the last node as output.  ``inputs=2, keep=2, output="concatenate"`` is the normal cell of
    DARTS (Liu et al. 2019): the outputs of the two cells before, two edges into each node, and all nodes concatenated.

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
            raise ConfigError(f"cell.inputs: expected 1, or 2 for the two cells before, found {self.inputs}")
        names = self.names
        if not 1 <= len(names) <= _MOST_OPERATIONS:
            raise ConfigError(f"cell.operations: expected 1 to {_MOST_OPERATIONS}, found {len(names)}")
        if len(set(names)) < len(names):
            raise ConfigError("cell.operations: two of them have the same name")
        if set(names) == {NONE}:
            raise ConfigError("cell.operations: none alone connects nothing")
        if self.keep is not None and self.keep < 1:
            raise ConfigError(f"cell.keep: expected at least 1, found {self.keep}")
        if self.keep is not None and NONE in names:
            raise ConfigError("cell.operations: with keep, edges are left out already; remove none")
        if self.output == "concatenate" and NONE in names:
            raise ConfigError("cell.operations: where all nodes are concatenated, each needs an edge; remove none")

    @classmethod
    def from_json(cls, entry: Any) -> CellSpace:
        """Return the cell of an object with ``operations`` and optionally ``nodes``, ``inputs``, ``keep``, ``output``.

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
            CellOperation.from_json(each, f"architecture.cell.operations.{place}") for place, each in enumerate(given)
        )
        try:
            return cls(operations, **{key: value for key, value in data.items() if key != "operations"})
        except ConfigError as error:
            raise ConfigError(f"architecture.{error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` reads."""
        return {
            "operations": [each.to_json() for each in self.operations], "nodes": self.nodes, "inputs": self.inputs,
            "keep": self.keep, "output": self.output,
        }  # fmt: skip

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

    def kept(self, node: int) -> int:
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
        """Return the parameters of a cell, as :meth:`nnpipe.searching.space.SearchSpace.from_json` reads them."""
        found: dict[str, Any] = {}
        for end in self.computed:
            choices = [_joined(starts) for starts in combinations(range(end), self.kept(end))]
            if len(choices) > 1:
                found[f"node_{end}_inputs"] = {"kind": "discrete", "values": choices}
            for start in range(end):
                found[edge_name(start, end)] = {"kind": "discrete", "values": list(self.names)}
                if len(choices) > 1:
                    fitting = [choice for choice in choices if str(start) in choice.split()]
                    found[edge_name(start, end)]["when"] = f"node_{end}_inputs in {fitting!r}"
        return found

    def constraints(self) -> list[str]:
        """Return expressions that hold if the output depends on an input: every cut between them is crossed."""
        if NONE not in self.names:
            return []
        inner, found = self.computed[:-1], []
        for size in range(len(inner) + 1):
            for chosen in combinations(inner, size):
                near = {*range(self.inputs), *chosen}
                crossing = [(start, end) for start, end in self.edges if start in near and end not in near]
                found.append(" or ".join(f"{edge_name(*edge)} != '{NONE}'" for edge in crossing))
        return found

    def operations_of(self, configuration: Mapping[str, Any]) -> dict[tuple[int, int], str]:
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
            for start in self._starts(configuration, end):
                name = edge_name(start, end)
                if name not in configuration:
                    raise ConfigError(f"{name}: this configuration has no value of it")
                if self.operation(configuration[name]).name != NONE and start in reached:
                    found[start, end] = configuration[name]
            if any(edge[1] == end for edge in found):
                reached.add(end)
        if self.computed[-1] not in reached:
            raise ConfigError("no path leads from the inputs of this cell to its output")
        return found

    def _starts(self, configuration: Mapping[str, Any], end: int) -> Iterator[int]:
        if self.kept(end) == end:
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
            if self.kept(end) < end:
                found[f"node_{end}_inputs"] = _joined(starts)
            else:
                starts = list(range(end))
            for start in starts:
                found[edge_name(start, end)] = operations.get((start, end), NONE)
        return found


def edge_name(start: int, end: int) -> str:
    """Return the name of the parameter of an edge."""
    return f"edge_{start}_{end}"


def _joined(starts: Any) -> str:
    return " ".join(map(str, starts))
