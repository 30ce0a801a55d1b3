"""A graph of layers as a ``torch.nn.Module``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.layers.graph import shape_inference
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.shape_inference import Ref
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer, LayerVariable, Shape
from nnpipe.layers.vocabulary.regularisers import Constraint, Regulariser


def build_layer_module(layer: Layer, shapes: tuple[Shape, ...]) -> Any:
    """Return the module of one layer for inputs of these shapes."""
    return get_layer_module_class()(layer, shapes)


def torch_layer(layer: Layer, *shapes: Shape) -> Any:
    """Return the ``torch.nn.Module`` of one layer for inputs of these shapes, with PyTorch's
    initial weights.
    """
    return build_layer_module(layer, shapes)


@cache
def get_layer_module_class() -> Any:
    """Return the class of the modules; it is defined when PyTorch is first imported."""
    from torch import nn

    class Computed(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        """One layer of a graph."""

        def __init__(self, layer: Layer, shapes: tuple[Shape, ...]) -> None:
            super().__init__()
            parts = layer._build_torch(*shapes)
            self.layer, self.call, self.core = layer, parts.call, parts.core
            self.variables = layer.variables(*shapes)
            self.activity: Any = None
            self.frozen = not layer.trainable
            if self.frozen:
                self.requires_grad_(False)

        def train(self, mode: bool = True) -> Any:
            """Set the mode as PyTorch does, but keep frozen normalisations in inference mode, as
            Keras does.
            """
            return super().train(mode and not (self.frozen and self.layer.rests_when_frozen))

        def forward(self, *xs: Any) -> Any:
            """Return the layer's outputs."""
            found = self.call(self, *xs)
            regulariser = getattr(self.layer, "activity_regularizer", None)
            if isinstance(regulariser, Regulariser):
                outputs = found if isinstance(found, tuple) else (found,)
                self.activity = sum(regulariser.penalty(y) / max(y.shape[0], 1) for y in outputs)
            return found

        def extra_repr(self) -> str:
            """Return the layer's name and arguments."""
            return type(self.layer).__name__

    return Computed


def build_network_module(graph: NetworkGraph) -> Any:
    """Return the module of a valid graph; its weights are not set yet."""
    return _get_network_class()(graph)


@cache
def _get_network_class() -> Any:
    import torch
    from torch import nn

    class Network(nn.Module):  # type: ignore[misc]
        """A graph of layers."""

        def __init__(self, graph: NetworkGraph) -> None:
            super().__init__()
            found = shape_inference.infer(graph)
            self.graph = graph
            self.layers = nn.ModuleDict()
            self.names: dict[str, str] = {}
            self.steps = []
            for entry, number in graph.steps():
                name, use = entry.layer.name, entry.uses[number]
                if isinstance(entry.layer, Input):
                    continue
                if name not in self.names:
                    self.names[name] = _make_key(name, self.layers)
                    shapes = tuple(found.shapes[ref] for ref in use.inputs)
                    self.layers[self.names[name]] = build_layer_module(entry.layer, shapes)
                self.steps.append((self.names[name], Ref(name, number), use.inputs, use.training))

        def flat(self, *xs: Any) -> tuple[Any, ...]:
            """Return the outputs as a tuple."""
            if len(xs) != len(self.graph.inputs):
                raise ConfigError(
                    f"{self.graph.name} takes {len(self.graph.inputs)} inputs, not {len(xs)}"
                )
            values = dict(zip(self.graph.inputs, xs, strict=True))
            for key, ref, inputs, training in self.steps:
                found = _call_in_mode(self.layers[key], training, [values[i] for i in inputs])
                for index, value in enumerate(found if isinstance(found, tuple) else (found,)):
                    values[Ref(ref.layer, ref.call, index)] = value
            return tuple(values[ref] for ref in self.graph.outputs)

        def forward(self, *xs: Any) -> Any:
            """Return the output, or a tuple of several."""
            found = self.flat(*xs)
            return found[0] if len(found) == 1 else found

        def penalty(self) -> Any:
            """Return the sum of all penalties: of weights, and of outputs in the last call."""
            total = torch.zeros(())
            for _, variable, tensor in iter_named_tensors(self):
                if isinstance(variable.regulariser, Regulariser):
                    total = total + variable.regulariser.penalty(as_keras(tensor, variable))
            for module in self.modules():
                if isinstance(module, get_layer_module_class()) and module.activity is not None:
                    total = total + module.activity
            return total

        def constrain(self) -> None:
            """Apply the constraints to the weights."""
            with torch.no_grad():
                for _, variable, tensor in iter_named_tensors(self):
                    if isinstance(variable.constraint, Constraint):
                        projected = variable.constraint.project(as_keras(tensor, variable))
                        tensor.copy_(as_torch(projected, variable))

    return Network


def _call_in_mode(module: Any, training: bool | None, xs: list[Any]) -> Any:
    if training is None or training == module.training:
        return module(*xs)
    module.train(training)
    try:
        return module(*xs)
    finally:
        module.train(not training)


def _make_key(name: str, taken: Mapping[str, Any]) -> str:
    """Return a layer's name in a form that PyTorch accepts as a module's name."""
    key = name.replace(".", "_") or "_"
    while key in taken or hasattr(taken, key):
        key += "_"
    return key


def iter_named_tensors(module: Any, prefix: str = "") -> Iterator[tuple[str, LayerVariable, Any]]:
    """Yield a network's weights: full name, description and tensor."""
    for name, key in module.names.items():
        part = module.layers[key]
        if isinstance(part.core, _get_network_class()):
            yield from iter_named_tensors(part.core, f"{prefix}{name}/")
            continue
        held = {**dict(part.named_parameters()), **dict(part.named_buffers())}
        for variable in part.variables:
            yield f"{prefix}{name}/{variable.name}", variable, held[f"core.{variable.torch_name}"]


def as_torch(value: Any, variable: LayerVariable) -> Any:
    """Return a weight in Keras's layout as a tensor in PyTorch's layout."""
    moved = value if variable.axes is None else value.permute(variable.axes)
    return moved if variable.torch_shape is None else moved.reshape(variable.torch_shape)


def as_keras(tensor: Any, variable: LayerVariable) -> Any:
    """Return a tensor in PyTorch's layout as a weight in Keras's layout."""
    if variable.axes is None:
        return tensor.reshape(variable.shape)
    moved = tensor.reshape([variable.shape[axis] for axis in variable.axes])
    return moved.permute([variable.axes.index(axis) for axis in range(len(variable.axes))])
