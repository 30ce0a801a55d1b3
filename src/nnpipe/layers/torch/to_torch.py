"""From a graph to a ``torch.nn.Module``.

The module takes and gives tensors as the graph has them: with channels last
where it says so.  Inside, convolutions see the same memory as PyTorch's
channels-last format, so that nothing is copied.  Layers that PyTorch has are
PyTorch's own (``nn.Conv2d``, ``nn.Linear``), where quantisers and pruners find
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from nnpipe.core.calls import check_call
from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.layers.graph.graph import Graph, Ref
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.graph.submodels import Input, Submodel
from nnpipe.layers.graph.weights import Weights, initial_weights, variables_of, weight_problems
from nnpipe.layers.problems import Problem, raise_if
from nnpipe.layers.vocabulary.constraints import Constraint
from nnpipe.layers.vocabulary.layer import Layer, Shape, Variable
from nnpipe.layers.vocabulary.regularisers import Regulariser


def to_torch(graph: Graph, weights: Weights | None = None, *, seed: int = 0) -> Any:
    """Build a graph in PyTorch.

    Parameters
    ----------
    graph
        The network.
    weights
        Its weights; by default those that its initialisers draw.
    seed
        For the initialisers.

    Returns
    -------
    torch.nn.Module
        Called with a tensor for each input, in order, it gives the output, or
        a tuple of several.  ``penalty()`` gives what regularisers add to the
        loss of the last call, and ``constrain()`` puts weights back to what
        constraints allow; call it after each step of the optimiser.

    Raises
    ------
    ConfigError
        If something is wrong with the graph, its weights do not fit, or PyTorch
        cannot compute it; all reasons are told.
    """
    check_call(to_torch, locals())
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency(f"PyTorch is needed here: pip install 'nnpipe[torch]' ({error})") from None
    variables = variables_of(graph)
    raise_if(backend_problems(graph, "torch"), graph.name or "network")
    weights = initial_weights(graph, seed) if weights is None else weights
    raise_if(weight_problems(variables, weights), graph.name or "network")
    module = module_of(graph)
    for name, variable, tensor in _tensors(module):
        _fill(tensor, variable, weights[name])
    return module


def torch_weights(module: Any) -> dict[str, np.ndarray]:
    """Return the weights of a module that :func:`to_torch` made, in Keras's form."""
    return {
        name: np.array(_as_keras(tensor.detach(), variable).cpu().numpy())
        for name, variable, tensor in _tensors(module)
    }


def backend_problems(graph: Graph, backend: str) -> list[Problem]:
    """List what a backend, ``"torch"`` or ``"keras"``, cannot compute of a graph."""
    found = []
    for entry in graph.entries:
        layer = entry.layer
        limits = [*layer.limits(backend)]
        if backend == "keras" and "/" in layer.name:
            limits.append("a name may not contain '/'")
        found += [Problem("backend", layer.name, f"{backend}: {limit}") for limit in limits]
        if backend == "torch" and layer.dtype != "float32" and not isinstance(layer, Input):
            found.append(Problem("backend", layer.name, f"torch: computes in float32, not in {layer.dtype}"))
        if isinstance(layer, Submodel):
            found += [
                Problem(p.code, f"{layer.name}/{p.path}", p.message) for p in backend_problems(layer.graph, backend)
            ]
    return found


def module_of(graph: Graph) -> Any:
    """Return the module of a graph that is in order; its weights are yet to be set."""
    return _classes()[1](graph)


def computed(layer: Layer, shapes: tuple[Shape, ...]) -> Any:
    """Return the module of one layer for inputs of these shapes."""
    return _classes()[0](layer, shapes)


@cache
def _classes() -> tuple[Any, Any]:
    import torch
    from torch import nn

    class Computed(nn.Module):  # type: ignore[misc]  # PyTorch may not be there to be checked
        """One layer of a graph."""

        def __init__(self, layer: Layer, shapes: tuple[Shape, ...]) -> None:
            super().__init__()
            parts = layer._torch(*shapes)
            self.layer, self.call, self.core = layer, parts.call, parts.core
            self.variables = () if isinstance(layer, Submodel) else layer.variables(*shapes)
            self.activity: Any = None
            self.frozen = not layer.trainable
            if self.frozen:
                self.requires_grad_(False)

        def train(self, mode: bool = True) -> Any:
            """As PyTorch has it; but a frozen normalisation stays as it is, as in Keras."""
            return super().train(mode and not (self.frozen and _normalises(self.layer)))

        def forward(self, *xs: Any) -> Any:
            """Compute the layer."""
            found = self.call(self, *xs)
            regulariser = getattr(self.layer, "activity_regularizer", None)
            if isinstance(regulariser, Regulariser):
                outputs = found if isinstance(found, tuple) else (found,)
                self.activity = sum(regulariser.penalty(y) / max(y.shape[0], 1) for y in outputs)
            return found

        def extra_repr(self) -> str:
            """Name the layer."""
            return type(self.layer).__name__

    class Network(nn.Module):  # type: ignore[misc]
        """A graph of layers."""

        def __init__(self, graph: Graph) -> None:
            super().__init__()
            found = infer(graph)
            self.graph = graph
            self.layers = nn.ModuleDict()
            self.names: dict[str, str] = {}
            self.steps = []
            for entry, number in graph.steps():
                name, use = entry.layer.name, entry.uses[number]
                if isinstance(entry.layer, Input):
                    continue
                if name not in self.names:
                    self.names[name] = _key(name, self.layers)
                    shapes = tuple(found.shapes[ref] for ref in use.inputs)
                    self.layers[self.names[name]] = computed(entry.layer, shapes)
                self.steps.append((self.names[name], Ref(name, number), use.inputs, use.training))

        def flat(self, *xs: Any) -> tuple[Any, ...]:
            """Compute the outputs, as a tuple."""
            if len(xs) != len(self.graph.inputs):
                raise ConfigError(f"{self.graph.name} takes {len(self.graph.inputs)} inputs, not {len(xs)}")
            values = dict(zip(self.graph.inputs, xs, strict=True))
            for key, ref, inputs, training in self.steps:
                found = _called(self.layers[key], training, [values[i] for i in inputs])
                for index, value in enumerate(found if isinstance(found, tuple) else (found,)):
                    values[Ref(ref.layer, ref.call, index)] = value
            return tuple(values[ref] for ref in self.graph.outputs)

        def forward(self, *xs: Any) -> Any:
            """Compute the output, or a tuple of several."""
            found = self.flat(*xs)
            return found[0] if len(found) == 1 else found

        def penalty(self) -> Any:
            """Return what regularisers add to the loss: those of weights, and of outputs in the last call."""
            total = torch.zeros(())
            for _, variable, tensor in _tensors(self):
                if isinstance(variable.regulariser, Regulariser):
                    total = total + variable.regulariser.penalty(_as_keras(tensor, variable))
            for module in self.modules():
                if isinstance(module, Computed) and module.activity is not None:
                    total = total + module.activity
            return total

        def constrain(self) -> None:
            """Put weights back to what their constraints allow."""
            with torch.no_grad():
                for _, variable, tensor in _tensors(self):
                    if isinstance(variable.constraint, Constraint):
                        projected = variable.constraint.project(_as_keras(tensor, variable))
                        tensor.copy_(_as_torch(projected, variable))

    return Computed, Network


def _called(module: Any, training: bool | None, xs: list[Any]) -> Any:
    if training is None or training == module.training:
        return module(*xs)
    module.train(training)
    try:
        return module(*xs)
    finally:
        module.train(not training)


def _normalises(layer: Layer) -> bool:
    from nnpipe.layers.vocabulary.normalisation import BatchNorm

    return isinstance(layer, (BatchNorm, Submodel))


def _key(name: str, taken: Mapping[str, Any]) -> str:
    """Return a layer's name in a form that PyTorch takes for a module's."""
    key = name.replace(".", "_") or "_"
    while key in taken or hasattr(taken, key):
        key += "_"
    return key


def _tensors(module: Any, prefix: str = "") -> Iterator[tuple[str, Variable, Any]]:
    """List a network's weights: full name, what is known of it, and its tensor."""
    for name, key in module.names.items():
        part = module.layers[key]
        if isinstance(part.layer, Submodel):
            yield from _tensors(part.core, f"{prefix}{name}/")
            continue
        held = {**dict(part.named_parameters()), **dict(part.named_buffers())}
        for variable in part.variables:
            yield f"{prefix}{name}/{variable.name}", variable, held[f"core.{variable.torch_name}"]


def _fill(tensor: Any, variable: Variable, value: np.ndarray) -> None:
    import torch

    with torch.no_grad():
        tensor.copy_(_as_torch(torch.from_numpy(np.array(value, dtype=np.float32)), variable))


def _as_torch(value: Any, variable: Variable) -> Any:
    moved = value if variable.axes is None else value.permute(variable.axes)
    return moved if variable.torch_shape is None else moved.reshape(variable.torch_shape)


def _as_keras(tensor: Any, variable: Variable) -> Any:
    if variable.axes is None:
        return tensor.reshape(variable.shape)
    moved = tensor.reshape([variable.shape[axis] for axis in variable.axes])
    return moved.permute([variable.axes.index(axis) for axis in range(len(variable.axes))])
