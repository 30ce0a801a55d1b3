"""The operations of a model as a graph for TensorBoard, grouped by layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nnpipe.training._random import undisturbed

_MOST = 20_000
"""The greatest number of operations; later ones are left out."""

_HIDDEN = ("aten::detach", "aten::alias", "aten::lift_fresh")


def graph_of(model: Any, batch: Mapping[str, Any], device: str) -> bytes:
    """Return the graph of a module that takes a batch, as a serialised ``GraphDef``.

    The model is run once, without gradients and without a trace in random states.  Each operation of PyTorch is a node,
    whose name begins with the layer that called it; features of the batch and parameters are nodes, too.

    Parameters
    ----------
    model
        The ``torch.nn.Module``.
    batch
        Tensors, and other values, by name.
    device
        The device of the model.
    """
    import torch
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.versions_pb2 import VersionDef
    from torch.utils._python_dispatch import TorchDispatchMode

    nodes = _Nodes({id(value): name.replace(".", "/") for name, value in model.named_parameters()})
    for name, value in batch.items():
        if isinstance(value, torch.Tensor):
            nodes.add(f"batch/{name}", "Placeholder", (), value)

    class Recording(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            found = function(*arguments, **(keywords or {}))
            name = function.name().partition(".")[0]
            if len(nodes.made) < _MOST and name not in _HIDDEN:
                given = [*_tensors(arguments), *_tensors(keywords or {})]
                nodes.add(f"{nodes.scope}{name.partition('::')[2]}", name, given, *_tensors(found))
            elif name in _HIDDEN:
                nodes.rename(arguments[0], found)
            return found

    handles = []
    for path, layer in model.named_modules():
        if path:
            handles.append(layer.register_forward_pre_hook(nodes.enter(path)))
            handles.append(layer.register_forward_hook(nodes.leave, always_call=True))
    try:
        with undisturbed(device), torch.no_grad(), Recording():
            found = model(dict(batch))
    finally:
        for handle in handles:
            handle.remove()
    for name, output in (found if isinstance(found, dict) else {"output": found}).items():
        nodes.add(f"outputs/{name}", "Output", list(_tensors(getattr(output, "output", output))))
    graph = GraphDef(node=nodes.made, versions=VersionDef(producer=22))
    return bytes(graph.SerializeToString())


class _Nodes:
    """The nodes so far, and which of them made a tensor."""

    def __init__(self, parameters: Mapping[int, str]) -> None:
        self.made: list[Any] = []
        self._parameters = parameters
        self._by_tensor: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no other tensor gets the id of one that is gone
        self._names: dict[str, int] = {}
        self._layers: list[str] = []

    @property
    def scope(self) -> str:
        """The beginning of the names of the present layer's operations."""
        return f"{self._layers[-1]}/" if self._layers else ""

    def enter(self, path: str) -> Any:
        """Return a hook for the beginning of a layer."""
        return lambda layer, given: self._layers.append(path.replace(".", "/"))

    def leave(self, layer: Any, given: Any, found: Any) -> None:
        """End the present layer."""
        self._layers.pop()

    def rename(self, tensor: Any, other: Any) -> None:
        """Let a node stand for another tensor, too."""
        if id(tensor) in self._by_tensor:
            self._by_tensor[id(other)] = self._by_tensor[id(tensor)]
            self._kept.append(other)

    def add(self, name: str, kind: str, given: Any, *found: Any) -> None:
        """Add a node that takes tensors and gives tensors."""
        from tensorboardX.proto.attr_value_pb2 import AttrValue
        from tensorboardX.proto.node_def_pb2 import NodeDef
        from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

        inputs = [source for tensor in given if (source := self._source(tensor)) is not None]
        number = self._names[name] = self._names.get(name, 0) + 1
        node = NodeDef(name=name if number == 1 else f"{name}_{number - 1}", op=kind, input=inputs)
        shapes = [TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in tensor.shape]) for tensor in found]
        node.attr["_output_shapes"].CopyFrom(AttrValue(list=AttrValue.ListValue(shape=shapes)))
        self.made.append(node)
        for tensor in found:
            self._by_tensor[id(tensor)] = node.name
            self._kept.append(tensor)

    def _source(self, tensor: Any) -> str | None:
        if id(tensor) not in self._by_tensor and id(tensor) in self._parameters:
            self.add(self._parameters[id(tensor)], "Parameter", (), tensor)
        return self._by_tensor.get(id(tensor))


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
