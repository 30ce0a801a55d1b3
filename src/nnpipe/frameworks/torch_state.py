"""What PyTorch modules and programs keep from one call to the next: found by the first call, and
put back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError
from nnpipe.core.messages import format_one_line
from nnpipe.core.tensors import IOSpec

# Modules of PyTorch itself keep nothing while they are not trained.
_OWN_MODULES = "torch.nn.modules"
_BUFFERS = "_buffers"
_NOT_VALUES = frozenset(
    {"training", "_parameters", "_modules", _BUFFERS, "_non_persistent_buffers_set"}
)

_Place = tuple[MutableMapping[str, Any], str]
_Places = dict[tuple[int, str], tuple[_Place, Any, Any]]
"""Where a value lies, the value itself, and a copy of it."""


class TorchState:
    """The values that calls may change, which a session puts back before each independent sample.

    Two calls tell what is kept: a value that the first call sets and the second leaves as it is,
    such as a table of positions, is kept to save time, and does not change results.  Values in
    objects of other classes than tensors, numbers and their containers are not found.

    Parameters
    ----------
    tables
        Where values lie by name: attributes, or buffers.
    """

    def __init__(self, tables: Iterable[MutableMapping[str, Any]]) -> None:
        self._tables = list(tables)
        self._first = self._collect_places()
        self._kept: list[tuple[_Place, Any, Any]] = []
        self._made: list[_Place] = []

    def find(self, again: Callable[[], object]) -> bool:
        """Return whether the call that has been made, and another one by ``again``, change what is
        kept; put it back.

        ``again`` is called only if the first call has changed something.
        """
        before = self._collect_places()
        if all(_is_same(self._first.get(key), place) for key, place in before.items()):
            return False
        again()
        now = self._collect_places()
        changed = [key for key, place in now.items() if not _is_same(before.get(key), place)]
        self._kept = [self._first[key] for key in changed if key in self._first]
        # Values that were not there before the first call, which sets them where they are missing.
        self._made = [now[key][0] for key in changed if key not in self._first]
        self.restore()
        return bool(changed)

    def restore(self) -> None:
        """Put back what was there before the first call."""
        import torch

        with torch.inference_mode():
            for (table, name), value, held in self._kept:
                if isinstance(value, torch.Tensor):
                    value.copy_(held)
                table[name] = value if isinstance(value, torch.Tensor) else _copy_value(held)
        for table, name in self._made:
            table.pop(name, None)

    def _collect_places(self) -> _Places:
        return {
            (number, name): ((table, name), value, _copy_value(value))
            for number, table in enumerate(self._tables)
            for name, value in table.items()
            if name not in _NOT_VALUES and _is_plain(value)
        }


def find_module_state(module: Any) -> TorchState:
    """Return the values that calls of a module may change: buffers and attributes of its parts."""

    def iter_tables() -> Iterator[MutableMapping[str, Any]]:
        for part in module.modules():
            if part.training or not type(part).__module__.startswith(_OWN_MODULES):
                yield part.__dict__
                yield part.__dict__[_BUFFERS]

    return TorchState(iter_tables())


def find_program_state(native: Any, held: Mapping[str, Any]) -> TorchState | None:
    """Return the values among ``held`` that calls of an exported program may change; ``None`` if
    it changes none.
    """
    import torch

    if not has_inplace_operations(native):
        return None
    return TorchState(
        [{name: value for name, value in held.items() if not isinstance(value, torch.nn.Parameter)}]
    )


def list_state_buffers(native: Any) -> list[str]:
    """Return the names of the buffers of an exported program that its calls change."""
    if not has_inplace_operations(native):
        return []
    return list(native.run_decompositions({}).graph_signature.buffers_to_mutate.values())


@contextmanager
def restore_buffers(native: Any, module: Any) -> Iterator[None]:
    """Put back, after calls of a module of an exported program in the block, the buffers of the
    program.
    """
    import torch

    named = dict(module.named_buffers()) if has_inplace_operations(native) else {}
    before = {
        name: buffer.clone()
        for name, buffer in named.items()
        if name in {**native.state_dict, **native.constants}
    }
    try:
        yield
    finally:
        with torch.no_grad():
            for name, values in before.items():
                named[name].copy_(values)


def has_inplace_operations(native: Any) -> bool:
    """Return whether an exported program has an operation that changes a tensor in its place,
    maybe a buffer.
    """
    nodes = (
        node
        for part in native.graph_module.modules()
        if hasattr(part, "graph")
        for node in part.graph.nodes
    )
    schemas = (getattr(node.target, "_schema", None) for node in nodes)
    return bool(native.graph_signature.buffers_to_mutate) or any(
        schema is not None and schema.is_mutable for schema in schemas
    )


def _is_plain(value: Any) -> bool:
    import torch

    if type(value) in (list, tuple, deque, set):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, (bool, int, float, str, torch.Tensor))


def _copy_value(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) is deque:
        return deque(map(_copy_value, value), value.maxlen)
    if type(value) in (list, tuple, set):
        return type(value)(map(_copy_value, value))
    return {key: _copy_value(held) for key, held in value.items()} if type(value) is dict else value


def _is_same(one: tuple[_Place, Any, Any] | None, other: tuple[_Place, Any, Any]) -> bool:
    return one is not None and _is_equal(one[2], other[2])


def _is_equal(one: Any, other: Any) -> bool:
    import torch

    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        return bool(((one == other) | ((one != one) & (other != other))).all())
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    return bool(one == other)


def make_program_call(
    native: Any, io: IOSpec, bound: IOSpec, device: str, path: Path, channels_last: bool = False
) -> tuple[Callable[..., tuple[Any, ...]], TorchState | None]:
    """Return a function that runs a program, and the values that its calls may change.

    Parameters
    ----------
    native
        A ``torch.export.ExportedProgram``; each call uses its present weights.
    io
        Its tensors in the order of its graph.
    bound
        The same tensors in the order of the function's arguments and results.
    device
        ``"cpu"`` or ``"cuda"``.
    path
        The file, for messages.
    channels_last
        Whether to copy weights of convolutions with channels last, which makes convolutions on CPUs
        fast.  A program that depends on the memory layout, to view a tensor in another shape, is
        run as it was exported.
    """
    from torch.export.graph_signature import InputKind, OutputKind

    if device != "cpu":
        from torch.export.passes import move_to_device_pass

        native = move_to_device_pass(native, device)
    held = {**native.state_dict, **native.constants}
    specs = native.graph_signature.input_specs
    template = [None if spec.kind is InputKind.USER_INPUT else held[spec.target] for spec in specs]
    templates = [template]
    if channels_last and (kernels := _find_kernels(native)):
        templates.insert(
            0,
            [
                _apply_layout(value, spec.arg.name in kernels)
                for value, spec in zip(template, specs, strict=True)
            ],
        )
    free = [position for position, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT]
    given = [
        position
        for position, spec in enumerate(native.graph_signature.output_specs)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    places = dict(zip((spec.name for spec in io.inputs), free, strict=True))
    slots = [places[spec.name] for spec in bound.inputs]
    found = dict(zip((spec.name for spec in io.outputs), given, strict=True))
    picks = [found[spec.name] for spec in bound.outputs]
    # The graph itself, without packing of arguments and guards: names, shapes and types are already
    # checked, and for a small model those take longer than the model.
    forward = native.graph_module.forward

    def call(*tensors: Any) -> tuple[Any, ...]:
        arguments = list(templates[0])
        for slot, tensor in zip(slots, tensors, strict=True):
            arguments[slot] = tensor
        try:
            outputs = forward(*arguments)
        except Exception as error:  # its errors share no base but Exception
            if len(templates) > 1:
                del templates[0]
                return call(*tensors)
            raise ArtifactError(
                f"{path}: PyTorch cannot run it: {format_one_line(error)}"
            ) from None
        return tuple(outputs[pick] for pick in picks)

    return call, find_program_state(native, held)


def _find_kernels(native: Any) -> set[str]:
    """Return the names of the graph's inputs that are weights of 2D convolutions."""
    import torch

    convolutions = (
        torch.ops.aten.conv2d.default,
        torch.ops.aten.conv2d.padding,
        torch.ops.aten.convolution.default,
    )
    weights = (node.args[1] for node in native.graph.nodes if node.target in convolutions)
    return {
        weight.name
        for weight in weights
        if weight.op == "placeholder" and weight.meta["val"].dim() == 4
    }


def _apply_layout(value: Any, kernel: bool) -> Any:
    import torch

    return value.contiguous(memory_format=torch.channels_last) if kernel else value
