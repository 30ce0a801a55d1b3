"""Graphs of layers: frozen values that can be compared, checked and written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter

from nnpipe.core.messages import to_snake_case
from nnpipe.layers.graph import shape_inference
from nnpipe.layers.graph.shape_inference import LayerEntry, Ref, Use
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary.layer import Inputs, Layer, LayerCall, LayerOutput, Tensor, as_tensors


@dataclass(frozen=True)
class NetworkGraph:
    """A network: its layers with their calls, its inputs and its outputs, each in order.

    Attributes
    ----------
    name
        Its name.
    entries
        The layers, each with its calls, in any order.
    inputs, outputs
        The input and output tensors; one tensor may be several outputs.
    sequential
        Whether it is a chain of layers, ``Sequential`` in Keras.
    """

    name: str
    entries: tuple[LayerEntry, ...]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    sequential: bool = False

    @property
    def layers(self) -> dict[str, Layer]:
        """The layers by name."""
        return {entry.layer.name: entry.layer for entry in self.entries}

    def steps(self) -> list[tuple[LayerEntry, int]]:
        """Return the calls in topological order; all references must be valid.

        Raises
        ------
        graphlib.CycleError
            If a call depends on its own output.
        """
        return list(self._steps)

    @cached_property
    def _steps(self) -> tuple[tuple[LayerEntry, int], ...]:
        calls = {(e.layer.name, number): e for e in self.entries for number in range(len(e.uses))}
        needed = {
            call: [
                need
                for ref in entry.uses[call[1]].inputs
                if (need := (ref.layer, ref.call)) in calls
            ]
            for call, entry in calls.items()
        }
        try:
            depths = _compute_depths(needed, needed)
        except KeyError:  # a call stands before one that it needs
            depths = _compute_depths(needed, TopologicalSorter(needed).static_order())
        return tuple((calls[call], call[1]) for call in sorted(calls, key=depths.__getitem__))

    def find_needed_calls(self) -> set[tuple[str, int]]:
        """Return the calls on which an output depends, and those of the inputs; all references
        must be valid.
        """
        entries = {entry.layer.name: entry for entry in self.entries}
        waiting = [(ref.layer, ref.call) for ref in (*self.inputs, *self.outputs)]
        found = set(waiting)
        while waiting:
            name, number = waiting.pop()
            calls = {(ref.layer, ref.call) for ref in entries[name].uses[number].inputs} - found
            found |= calls
            waiting += calls
        return found

    def problems(self) -> tuple[NetworkProblem, ...]:
        """Return everything that is wrong, shapes included; empty if the network can be built."""
        return shape_inference.infer(self).problems


def _compute_depths(
    needed: Mapping[tuple[str, int], Sequence[tuple[str, int]]], order: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Return the length of the longest path that leads to each call, for calls in topological
    order.
    """
    found: dict[tuple[str, int], int] = {}
    for call in order:
        found[call] = 1 + max([found[each] for each in needed[call]], default=-1)
    return found


@dataclass
class _Collector:
    """Walks from the outputs back to the inputs and numbers the calls."""

    layers: list[Layer] = field(default_factory=list)
    calls: dict[int, list[Layer | LayerCall]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def visit(self, start: Tensor) -> None:
        # No recursion: a chain may be longer than Python's stack.
        waiting: list[tuple[Layer | LayerCall, bool]] = [(_get_origin(start), False)]
        while waiting:
            call, ready = waiting.pop()
            if ready:
                self._record_call(call)
            elif id(call) not in self.seen:
                self.seen.add(id(call))
                waiting.append((call, True))
                waiting += [
                    (_get_origin(tensor), False) for tensor in reversed(as_tensors(call.inputs))
                ]

    def _record_call(self, call: Layer | LayerCall) -> None:
        layer = call.layer if isinstance(call, LayerCall) else call
        if id(layer) not in self.calls:
            self.layers.append(layer)
        calls = self.calls.setdefault(id(layer), [])
        # its own call is the first, if an output needs it
        calls.insert(0 if call is layer else len(calls), call)


def network(inputs: Inputs, outputs: Inputs, name: str = "network") -> NetworkGraph:
    """Return the graph of the layers between inputs and outputs, without calls on which no output
    depends.

    Nothing is checked here: :meth:`NetworkGraph.problems` returns what is wrong.

    Parameters
    ----------
    inputs, outputs
        The input and output tensors, in order.
    name
        The network's name.
    """
    collector = _Collector()
    for tensor in (*as_tensors(inputs), *as_tensors(outputs)):
        collector.visit(tensor)
    names = dict(zip(map(id, collector.layers), choose_layer_names(collector.layers), strict=True))
    place = {
        id(call): (names[key], n)
        for key, made in collector.calls.items()
        for n, call in enumerate(made)
    }

    def make_ref(tensor: Tensor) -> Ref:
        layer, number = place[id(_get_origin(tensor))]
        return Ref(layer, number, tensor.index if isinstance(tensor, LayerOutput) else 0)

    def make_use(call: Layer | LayerCall) -> Use:
        training = call.training if isinstance(call, LayerCall) else None
        return Use(tuple(map(make_ref, as_tensors(call.inputs))), training)

    entries = tuple(
        LayerEntry(
            layer.alone(name=names[id(layer)]), tuple(map(make_use, collector.calls[id(layer)]))
        )
        for layer in collector.layers
    )
    return NetworkGraph(
        name,
        entries,
        tuple(map(make_ref, as_tensors(inputs))),
        tuple(map(make_ref, as_tensors(outputs))),
    )


def _get_origin(tensor: Tensor) -> Layer | LayerCall:
    return tensor.of if isinstance(tensor, LayerOutput) else tensor


def choose_layer_names(layers: Sequence[Layer]) -> list[str]:
    """Return the layers' names; a layer without one gets a unique name made from its class."""
    taken = {layer.name for layer in layers if layer.name}
    made: Counter[str] = Counter()  # avoids trying all names again for each layer of a long chain
    names = []
    for layer in layers:
        name, kind = layer.name, to_snake_case(type(layer).__name__)
        while not name or (not layer.name and name in taken):
            name = f"{kind}_{made[kind]}" if made[kind] else kind
            made[kind] += 1
        taken.add(name)
        names.append(name)
    return names
