"""Exported PyTorch programs for compilers: safe reading, changes, and writing with the same
names of tensors.
"""

from __future__ import annotations

import copy
import inspect
import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError
from nnpipe.core.messages import format_one_line
from nnpipe.core.native_output import suppress_log_messages
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.pt2 import ExportedProgram, read_program
from nnpipe.frameworks.torch_session import to_tensor

QUANTISED = "quantized_decomposed"
"""Prefix of the operators of quantised programs; PyTorch knows them only after their module is
imported.
"""

# torch.export treats axes of length 0 and 1 specially; any other length is suitable for an example.
_EXAMPLE_LENGTH = 2


@dataclass(frozen=True)
class LoadedProgram:
    """A program loaded by PyTorch.

    Attributes
    ----------
    native
        A ``torch.export.ExportedProgram``.
    io
        Its inputs and outputs, in the order of its graph.
    """

    native: Any
    io: IOSpec

    def module(self) -> Any:
        """Return a graph module of the program with copied weights; see :meth:`call`."""
        with suppress_torch_logs():
            return copy.deepcopy(self.native.module(check_guards=False))

    def call(self, module: Any, batch: Mapping[str, Any]) -> tuple[Any, ...]:
        """Call a module of this program on tensors by name; return the outputs in order."""
        from torch.utils import _pytree

        leaves = [batch[spec.name] for spec in self.io.inputs]
        args, kwargs = _pytree.tree_unflatten(leaves, self.native.call_spec.in_spec)
        return tuple(_pytree.tree_leaves(module(*args, **kwargs)))

    def example(self, batch: int | None = None) -> dict[str, Any]:
        """Return example inputs; free axes have the lengths of the export.

        With ``batch``, first axes and all axes of equal length have that length.
        """
        import torch

        made = {}
        fixed = self._find_first_axes() if batch else set()
        for spec, value in zip(self.io.inputs, self._values(), strict=True):
            shape = [
                length
                if isinstance(length, int)
                else batch
                if str(length.node.expr) in fixed
                else _get_example_length(length)
                for length in value.shape
            ]
            # Integers are 0, which is valid as a category or an index.
            made[spec.name] = torch.zeros(shape, dtype=value.dtype)
        return made

    def find_free_axes(self, batch: int | None = None) -> dict[str, dict[int, Any]]:
        """Return the free axes of the inputs in the form of ``torch.export``; equal lengths stay
        equal.

        With ``batch``, axes that :meth:`example` gives that length are not free.
        """
        from torch.export import Dim

        known: dict[str, Any] = {}
        found: dict[str, dict[int, Any]] = {}
        fixed = self._find_first_axes() if batch else set()
        limits = {str(symbol): bounds for symbol, bounds in self.native.range_constraints.items()}
        for spec, value in zip(self.io.inputs, self._values(), strict=True):
            axes = found.setdefault(spec.name, {})
            for axis, length in enumerate(value.shape):
                if isinstance(length, int) or str(length.node.expr) in fixed:
                    continue
                name = str(length.node.expr)
                if name not in limits:  # computed from other lengths
                    axes[axis] = Dim.AUTO
                    continue
                if name not in known:
                    bounds = limits[name]
                    most = {"max": int(bounds.upper)} if bounds.upper < 1 << 62 else {}
                    known[name] = Dim(f"length_{len(known)}", min=max(1, int(bounds.lower)), **most)
                axes[axis] = known[name]
        return found

    def _find_first_axes(self) -> set[str]:
        """Return the names of the lengths of free first axes."""
        firsts = (value.shape[0] for value in self._values() if len(value.shape))
        return {str(length.node.expr) for length in firsts if not isinstance(length, int)}

    def _values(self) -> list[Any]:
        from torch.export.graph_signature import InputKind

        kinds = {s.arg.name: s.kind for s in self.native.graph_signature.input_specs}
        return [
            node.meta["val"]
            for node in self.native.graph.nodes
            if node.op == "placeholder" and kinds[node.name] is InputKind.USER_INPUT
        ]


def load_program(path: Path) -> LoadedProgram:
    """Read, check and load an exported program.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, of another format, or could run code;
        the message names it.
    """
    checked = read_program(path)
    try:
        return LoadedProgram(load_checked(checked), checked.io)
    except Exception as error:  # its errors share no base but Exception
        raise ArtifactError(f"{path}: PyTorch cannot load it: {format_one_line(error)}") from None


def import_loader() -> None:
    """Import the modules that load exported programs."""
    import torch._export.serde.serialize
    import torch._functorch.aot_autograd
    import torch.export  # noqa: F401


def load_checked(program: ExportedProgram) -> Any:
    """Return the program, loaded by PyTorch, of a file that :mod:`nnpipe.formats.pt2` has
    checked.
    """
    import torch

    with suppress_torch_logs():
        if program.mentions(QUANTISED):
            import torch.ao.quantization.fx._decomposed
        with program.open() as archive:
            return torch.export.load(archive)


def serialize_program(native: Any) -> bytes:
    """Return the archive of a ``torch.export.ExportedProgram``, without pickled parts and paths
    of this machine.
    """
    import torch

    native.example_inputs = None  # the only part that would be pickled
    for node in native.graph.nodes:
        node.meta.pop("stack_trace", None)
    buffer = io.BytesIO()
    with suppress_torch_logs():
        torch.export.save(native, buffer)
    return buffer.getvalue()


def export_changed_module(
    loaded: LoadedProgram, module: Any, named: bool = True, batch: int | None = None
) -> Any:
    """Export a changed module of a program.

    Parameters
    ----------
    loaded
        The program that the module was made from.
    module
        The changed result of :meth:`LoadedProgram.module`.
    named
        Whether to take and return dicts with the names of the source, which are
        then stored in the file; otherwise the program takes tensors in the order
        of ``loaded.io`` and returns a tuple.
    batch
        Fixed batch size; ``None`` leaves free axes free.

    Returns
    -------
    torch.export.ExportedProgram
    """
    import torch

    names = [spec.name for spec in loaded.io.outputs]

    class Renewed(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self) -> None:
            super().__init__()
            self.model = module

    class Named(Renewed):
        def forward(self, given: dict[str, Any]) -> dict[str, Any]:
            return dict(zip(names, loaded.call(self.model, given), strict=True))

    class Ordered(Renewed):
        def forward(self, *given: Any) -> tuple[Any, ...]:
            return loaded.call(self.model, dict(zip(example, given, strict=True)))

    remove_unused_weights(module)
    example, axes = loaded.example(batch), loaded.find_free_axes(batch)
    with torch.no_grad(), suppress_torch_logs():
        if named:
            return torch.export.export(Named(), (example,), dynamic_shapes=(axes,))
        return torch.export.export(
            Ordered(), tuple(example.values()), dynamic_shapes=(tuple(axes.values()),)
        )


def is_quantised(module: Any) -> bool:
    """Return whether a graph module is quantised."""
    return any(QUANTISED in str(node.target) for node in module.graph.nodes)


def remove_unused_weights(module: Any) -> None:
    """Remove weights and buffers that the graph of a module no longer uses, so that they are not
    written.
    """
    module.graph.eliminate_dead_code()
    module.recompile()
    used = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    for table in (
        dict(module.named_parameters(remove_duplicate=False)),
        dict(module.named_buffers()),
    ):
        for name in table.keys() - used:
            owner, _, last = name.rpartition(".")
            delattr(module.get_submodule(owner), last)


def convert_to_tensors(batch: Batch) -> dict[str, Any]:
    """Return arrays by name as tensors on the CPU."""
    return {name: to_tensor(array, "cpu") for name, array in batch.items()}


def replace_weights(native: Any, weights: Mapping[str, Any]) -> None:
    """Replace weights of a ``torch.export.ExportedProgram`` by name; shapes and types must be
    equal.
    """
    import torch

    for name, tensor in weights.items():
        kept = isinstance(native.state_dict[name], torch.nn.Parameter)
        native.state_dict[name] = (
            torch.nn.Parameter(tensor, requires_grad=False) if kept else tensor
        )


def list_matrices(native: Any) -> list[str]:
    """Return the names of the floating-point parameters of a program with more than one axis.

    These kernels and matrices are pruned and clustered; biases, factors and
    statistics of normalisations are few and too important for that.
    """
    state, seen = native.state_dict, set(native.graph_signature.parameters)
    return [n for n in state if n in seen and state[n].ndim > 1 and state[n].is_floating_point()]


def _get_example_length(length: Any) -> int:
    """Return the length that a free axis had in the example."""
    known = length.node.hint
    return _EXAMPLE_LENGTH if known is None else int(known)


@contextmanager
def suppress_torch_logs() -> Iterator[None]:
    """Suppress logs and warnings of PyTorch that users cannot act on; exceptions pass."""
    with (
        suppress_log_messages("torch.export", "torch._export", "torch.utils._pytree"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def build_dynamic_shapes(module: Any, each: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the free axes of a module's arguments; those that ``forward`` takes as ``*rest`` form
    one tuple.

    Parameters
    ----------
    module
        An ``nn.Module``.
    each
        For each argument in order, its free axes, as a mapping from the axis to a
        ``torch.export.Dim``, or ``None``.
    """
    for place, parameter in zip(
        range(len(each)), inspect.signature(module.forward).parameters.values(), strict=False
    ):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return (*each[:place], each[place:])
    return each


def keep_integers(module: Any) -> None:
    """Let sums and products of integer tensors with numbers stay integers when a module is
    quantised.

    XNNPACK's quantiser makes each number a tensor of floats (ExecuTorch 1.3), and what is computed
    with it can no longer be an index; it leaves the operators for scalars alone.

    Parameters
    ----------
    module
        A ``torch.fx.GraphModule`` as ``torch.export.ExportedProgram.module()`` returns it; it is
        changed.
    """
    import torch

    aten = torch.ops.aten
    scalar = {aten.add.Tensor: aten.add.Scalar, aten.mul.Tensor: aten.mul.Scalar}
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if (
            node.target not in scalar
            or not isinstance(value, torch.Tensor)
            or value.is_floating_point()
        ):
            continue
        tensors = [each for each in node.args if isinstance(each, torch.fx.Node)]
        numbers = [each for each in node.args if not isinstance(each, torch.fx.Node)]
        if len(tensors) == 1 and len(numbers) == 1:
            node.args, node.target = (*tensors, *numbers), scalar[node.target]
    module.recompile()


def compute_constant_kernels(module: Any) -> None:
    """Compute once the kernels of convolutions and linear layers that a program computes from
    constants alone.

    A weight normalisation, for example, computes its kernel. Quantisers take such a kernel for an
    activation.

    Parameters
    ----------
    module
        A ``torch.fx.GraphModule`` as ``torch.export.ExportedProgram.module()`` returns it; it is
        changed.
    """
    import torch
    from torchao.quantization.pt2e.constant_fold import constant_fold

    aten = torch.ops.aten
    taking = {aten.conv1d, aten.conv2d, aten.conv3d, aten.convolution, aten.linear}
    taking |= {aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d}
    kernels = {
        node.args[1]
        for node in module.graph.nodes
        if getattr(node.target, "overloadpacket", None) in taking
        and node.args[1].op == "call_function"
    }
    if kernels:
        constant_fold(module, kernels.__contains__)
