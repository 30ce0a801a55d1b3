"""Networks as layers of other networks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from nnpipe.layers.graph import shape_inference
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.problems import Misfit
from nnpipe.layers.torch.network_module import build_network_module
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape, TorchParts
from nnpipe.layers.vocabulary.value_kinds import ValueKind


class _Network(ValueKind):
    def find_fault(self, value: Any, rank: int) -> str:
        return (
            ""
            if isinstance(value, NetworkGraph)
            else f"must be a NetworkGraph, not {type(value).__name__}"
        )


class Submodel(Layer):
    """A whole network as one layer, which may be applied several times.

    Parameters
    ----------
    graph
        The network.
    """

    keras: ClassVar[str] = "Functional"
    aliases: ClassVar[tuple[str, ...]] = ("Model", "Sequential")
    takes: ClassVar[tuple[int, int | None]] = (0, None)
    rests_when_frozen: ClassVar[bool] = True
    graph: NetworkGraph = row(_Network())

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name and isinstance(self.graph, NetworkGraph):  # Keras has one name for both
            object.__setattr__(self, "graph", replace(self.graph, name=self.name))

    # Cached, because every network queries its submodels several times, and nesting multiplies the
    # queries.
    @cached_property
    def _wrong(self) -> tuple[tuple[str, str], ...]:
        problems = [
            p for p in self.graph.problems() if p.code not in ("unknown-object", "unknown-layer")
        ]
        return tuple(("graph", str(problem)) for problem in problems)

    @cached_property
    def _found(self) -> dict[tuple[Shape, ...], Any]:
        return {}

    def _find_faults(self) -> Iterable[tuple[str, str]]:
        # Shape problems are reported where it is applied, as its inputs there may be narrower than
        # declared.
        return self._wrong

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        found = self._infer_inner(shapes)
        return tuple(found.shapes[ref] for ref in self.graph.outputs)

    def _describe_variables(self, *shapes: Shape) -> tuple[LayerVariable, ...]:
        inner = self._infer_inner(shapes).variables
        layers = self.graph.layers
        return tuple(
            replace(v, name=f"{name}/{v.name}", trainable=v.trainable and layers[name].trainable)
            for name, variables in inner.items()
            for v in variables
        )

    def with_input_shapes(self, shapes: tuple[Shape, ...]) -> NetworkGraph:
        """Return the graph with the shapes of its inputs replaced by those that it is applied
        to.
        """
        if len(shapes) != len(self.graph.inputs):
            raise Misfit(f"takes {len(self.graph.inputs)} inputs, not {len(shapes)}", "arity")
        given = {ref.layer: shape for ref, shape in zip(self.graph.inputs, shapes, strict=True)}
        entries = []
        for entry in self.graph.entries:
            if entry.layer.name in given:
                own, shape = entry.layer, given[entry.layer.name]
                assert isinstance(own, Input)
                wanted = (own.batch, *own.shape)
                if len(wanted) != len(shape) or any(
                    a and b and a != b for a, b in zip(wanted, shape, strict=True)
                ):
                    raise Misfit(f"takes {wanted} as {own.name}, not {shape}")
                entry = replace(entry, layer=own.alone(shape=shape[1:], batch=shape[0]))
            entries.append(entry)
        return replace(self.graph, entries=tuple(entries))

    def _infer_inner(self, shapes: tuple[Shape, ...]) -> Any:
        if shapes not in self._found:
            self._found[shapes] = shape_inference.infer(self.with_input_shapes(shapes))
        found = self._found[shapes]
        for problem in found.problems:
            if problem.code not in ("unknown-object", "unknown-layer"):
                raise Misfit(f"does not fit inside: {problem}")
        if not all(ref in found.shapes for ref in self.graph.outputs):
            raise Misfit("holds layers whose shapes are not known")
        return found

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(
            lambda module, *xs: module.core.flat(*xs),
            build_network_module(self.with_input_shapes(shapes)),
        )
