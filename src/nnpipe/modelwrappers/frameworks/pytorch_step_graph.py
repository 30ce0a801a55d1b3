"""The graph of a training step of a PyTorch model: forward, loss, and the gradients of all weights.

``torch.export`` offers a joint graph only under private names.  The documented
``torch.func.functional_call`` and ``make_fx`` suffice: a step is written as
a function of weights and samples, and its operations on tensors are recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.errors import ConversionError
from nnpipe.core.graph import Graph
from nnpipe.core.messages import one_line
from nnpipe.frameworks.torch_session import tensor_of
from nnpipe.modelwrappers.frameworks.pytorch_graph import read_graph
from nnpipe.modelwrappers.frameworks.pytorch_training import random_samples
from nnpipe.modelwrappers.frameworks.pytorch_training_data import as_tuple

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

_LAYER = "nnpipe_layer"


def training_graph(wrapper: PyTorchWrapper, module: Any) -> Graph:
    """Return the graph of one training step, traced on a batch of noise.

    Operations of the backward pass belong to the layer of the corresponding
    forward operations.  The outputs are the loss, the gradients in the order of
    the weights, and the buffers after the step.  Axes have the lengths of the
    traced batch.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    weights = {name: value.detach().requires_grad_() for name, value in module.named_parameters()}
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    inputs, truth = next(random_samples(wrapper))
    given = {spec.name: tensor_of(inputs[spec.name], wrapper.device) for spec in wrapper.io.inputs}
    targets = {name: tensor_of(np.asarray(array), wrapper.device) for name, array in truth.items()}
    marks = _Marks()

    def step(weights: Any, buffers: Any, given: Any, targets: Any) -> Any:
        with marks.following(module):
            found = torch.func.functional_call(module, (weights, buffers), tuple(given.values()))
        loss = wrapper.loss_of(module, as_tuple(found), targets)
        return loss, torch.autograd.grad(loss, list(weights.values()), allow_unused=True), buffers

    try:
        wrapper.training_mode(module)
        # Tensors of the module that are neither weights nor buffers are real tensors among the fake ones.
        trace = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)
        traced = trace(weights, buffers, given, targets)
    except Exception as error:  # its errors share no base but Exception
        raise ConversionError(
            f"the training of {type(wrapper).__name__} cannot be traced: {one_line(error)}"
        ) from error
    finally:
        module.eval()
    marks.write(traced.graph)
    traced.graph.eliminate_dead_code()
    placeholders = [node.name for node in traced.graph.nodes if node.op == "placeholder"]
    names = dict(zip(placeholders, [*weights, *buffers, *given, *targets], strict=True))
    fed = placeholders[len(weights) + len(buffers) :]
    return read_graph(traced.graph, names, set(fed), traced, lambda node: node.meta.get(_LAYER, ""))


class _Marks:
    """Records the length of the graph whenever another layer starts, in the forward or the backward pass."""

    def __init__(self) -> None:
        self._changes: list[tuple[int, str]] = []
        self._open = [""]

    @contextmanager
    def following(self, module: Any) -> Iterator[None]:
        """Observe all submodules inside the block, and their gradients later."""
        handles = []
        for name, child in module.named_modules():
            if name:
                handles.append(child.register_forward_pre_hook(self._enter(name)))
                handles.append(child.register_forward_hook(self._leave(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, name: str) -> Any:
        def hook(module: Any, arguments: Any) -> None:
            self._watch(arguments, self._open[-1])  # computed between layers, by the enclosing one
            self._open.append(name)
            self._note(name)

        return hook

    def _leave(self, name: str) -> Any:
        def hook(module: Any, arguments: Any, found: Any) -> None:
            self._watch(as_tuple(found), name)
            self._open.pop()
            self._note(self._open[-1])

        return hook

    def _watch(self, found: Iterable[Any], name: str) -> None:
        """Make the gradients of all tensors that were computed since the last call record this layer."""
        pending = [getattr(tensor, "grad_fn", None) for tensor in found]
        while pending:
            function = pending.pop()
            if function is None or _LAYER in function.metadata:
                continue
            function.metadata[_LAYER] = name
            function.register_prehook(lambda gradients: self._note(name))
            pending += [before for before, _ in function.next_functions]

    def _note(self, name: str) -> None:
        from torch.fx.experimental.proxy_tensor import get_proxy_mode

        mode = get_proxy_mode()
        if mode is not None:
            self._changes.append((len(mode.tracer.graph.nodes), name))

    def write(self, graph: Any) -> None:
        """Write the layer of each node into the graph."""
        changes = iter([*self._changes, (len(graph.nodes) + 1, "")])
        layer, (due, coming) = "", next(changes)
        for position, node in enumerate(graph.nodes):
            while position >= due:
                layer, (due, coming) = coming, next(changes)
            node.meta[_LAYER] = layer
