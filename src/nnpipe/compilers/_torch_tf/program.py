"""Translation of exported PyTorch programs to TensorFlow functions, operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nnpipe.compilers._tflite_conversion import Call
from nnpipe.compilers._torch_tf import (
    convolutions,
    elementwise,
    matrices,
    pooling,
    recurrent,
    reductions,
    shapes,
    slicing,
)
from nnpipe.compilers._torch_tf.values import TO_LAST, Value, cast, get_type_name
from nnpipe.core.errors import CompileError
from nnpipe.core.messages import format_one_line
from nnpipe.frameworks.torch_program import QUANTISED, LoadedProgram, suppress_torch_logs
from nnpipe.frameworks.torch_state import has_inplace_operations

_FAMILIES = (
    elementwise.build_operators,
    elementwise.build_activation_operators,
    reductions.build_operators,
    shapes.build_operators,
    slicing.build_operators,
    shapes.build_creation_operators,
    matrices.build_operators,
    convolutions.build_operators,
    pooling.build_operators,
    matrices.build_normalization_operators,
    pooling.build_resizing_operators,
    matrices.build_attention_operators,
    recurrent.build_operators,
)


def build_operator_table() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch, with an overload only where it differs
    from the others.
    """
    return {name: operator for operators in _FAMILIES for name, operator in operators().items()}


ALREADY_QUANTISED = (
    "it is quantised already; start from the floats it came from, with --precision int8"
)
_SHOWN = 5
_CHECKS = (
    "_assert_tensor_metadata",
    "_assert_scalar",
    "_assert_async",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
)

_SHAPED = ("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy", "expand")


def build_function(loaded: LoadedProgram) -> Call:
    """Return a program as a function of TensorFlow tensors by name; weights become constants.

    Programs may contain layers as users write them, or the core operators that
    PyTorch decomposes them into.

    Raises
    ------
    CompileError
        If operators cannot be translated; the message names them and the layers that they belong
        to.
    """
    operators = build_operator_table()
    native = loaded.native
    if any(QUANTISED in str(node.target) for node in native.graph.nodes):
        raise CompileError(ALREADY_QUANTISED)
    constants = _compute_constants(native)
    if has_inplace_operations(native) or _find_untranslated(native, operators, constants):
        native = _decompose_program(native, operators)
        kept = native.graph_signature.buffers_to_mutate.values()
        if kept:
            raise CompileError(
                f"it keeps {', '.join(sorted(kept))} from one run to the next, which files made "
                f"here cannot"
            )
        constants = _compute_constants(native)
        still = _find_untranslated(native, operators, constants)
        if still:
            named = ", ".join(still[:_SHOWN]) + (
                f" and {len(still) - _SHOWN} more" if len(still) > _SHOWN else ""
            )
            raise CompileError(f"PyTorch's {named} cannot be translated to TensorFlow")
    held = {
        name: _to_array(tensor)
        for name, tensor in _select_used_constants(native, constants).items()
    }
    inputs, outputs = _find_interface(native)

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[Any, Any] = {}
        given = {
            node: tensors[spec.name] for node, spec in zip(inputs, loaded.io.inputs, strict=True)
        }
        for node in native.graph.nodes:
            if node.name in constants:
                if node.name in held:
                    values[node] = Value(held[node.name])
            elif node.op == "placeholder":
                tensor = given[node.name]
                values[node] = Value(cast(tensor, get_type_name(tensor.dtype.name)))
            elif node.op == "call_function":
                values[node] = _call_node(node, values, operators)
        found = (_convert_output(values, node) for node in outputs)
        return {
            spec.name: cast(tensor, spec.dtype)
            for spec, tensor in zip(loaded.io.outputs, found, strict=True)
        }

    return call


def _convert_output(values: Mapping[Any, Any], node: Any) -> Any:
    import tensorflow as tf

    return tf.convert_to_tensor(values[node].first())


def _call_node(node: Any, values: Mapping[Any, Any], operators: Mapping[str, Any]) -> Any:
    from torch.fx.node import map_arg

    name = _get_operator_name(node)
    if name in _CHECKS:
        return None
    args, kwargs = (map_arg(part, values.__getitem__) for part in (node.args, node.kwargs))
    if name is None:
        # arithmetic on lengths, and selection from an operator's results
        return node.target(*args, **kwargs)
    if name == "sym_size":
        return args[0].length(args[1])
    if name == "as_strided" and not _is_plain(node.args[0]):
        raise CompileError(
            f"PyTorch's {_describe_node(node)} cannot be translated: it reads another layout of "
            f"memory"
        )
    if name in _SHAPED:
        args = (args[0], _insert_fixed_lengths(node, args[1]), *args[2:])
    try:
        return _set_known_shape(node, _find_operator(node, operators)(*args, **kwargs))
    except CompileError as error:
        raise CompileError(
            f"PyTorch's {_describe_node(node)} cannot be translated as it is used: {error}"
        ) from None
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise CompileError(
            f"PyTorch's {_describe_node(node)} cannot be translated as it is used: "
            f"{format_one_line(error)}"
        ) from error


def _insert_fixed_lengths(node: Any, size: Any) -> Any:
    """Return a shape with all lengths that are fixed as numbers, in place of -1."""
    value = node.meta.get("val")
    if value is None or not isinstance(size, (list, tuple)):
        return size
    return [
        have if isinstance(have, int) else want
        for have, want in zip(value.shape, size, strict=True)
    ]


def _set_known_shape(node: Any, found: Any) -> Any:
    """Return a result with the lengths that the program knows set for TensorFlow."""
    meta = node.meta.get("val")
    if isinstance(found, Value) and hasattr(found.held, "set_shape") and hasattr(meta, "shape"):
        lengths = [length if isinstance(length, int) else None for length in meta.shape]
        if len(lengths) == found.rank:
            found.held.set_shape(
                [lengths[axis] for axis in TO_LAST] if found.channels_last else lengths
            )
    return found


def _is_plain(node: Any) -> bool:
    """Return whether a tensor lies in memory in the order of its axes."""
    value = node.meta.get("val")
    return bool(value is None or value.is_contiguous())


def _decompose_program(native: Any, operators: Mapping[str, Any]) -> Any:
    """Return the program in PyTorch's core operators and those that have a translation of their
    own.
    """
    from torch.export import default_decompositions

    kept = {f"aten::{name}" for name in operators}
    decompositions = default_decompositions()
    for target in list(decompositions):
        schema = getattr(target, "_schema", None)
        if schema is not None and not _has_aliasing(schema):
            names = {schema.name, f"{schema.name}.{schema.overload_name}"}
            if names & kept:
                decompositions.pop(target)
    with suppress_torch_logs():
        return native.run_decompositions(decompositions)


def _has_aliasing(schema: Any) -> bool:
    """Return whether an operator may return a view, or writes; PyTorch must decompose these."""
    return bool(schema.is_mutable) or any(
        part.alias_info is not None for part in (*schema.arguments, *schema.returns)
    )


def _find_untranslated(
    native: Any, operators: Mapping[str, Any], constants: Mapping[str, Any]
) -> list[str]:
    """Return the operators without a translation, each with a layer that uses it; those on
    constants need none.
    """
    found: dict[str, str] = {}
    for node in native.graph.nodes:
        if node.op == "call_function" and node.name not in constants:
            name = _get_operator_name(node)
            if (
                name is not None
                and name != "sym_size"
                and name not in _CHECKS
                and _find_operator(node, operators) is None
            ):
                found.setdefault(str(node.target), _describe_node(node))
    return list(found.values())


def _find_operator(node: Any, operators: Mapping[str, Any]) -> Any:
    """Return the translation of an operator, by its overload or without it."""
    name = _get_operator_name(node)
    overload = getattr(getattr(node.target, "_schema", None), "overload_name", "")
    return operators.get(f"{name}.{overload}", operators.get(str(name)))


def _describe_node(node: Any) -> str:
    """Return an operator with the layer of the user's model that it belongs to."""
    layers = [
        (path, kind)
        for path, kind in (node.meta.get("nn_module_stack") or {}).values()
        if path.rpartition(".")[2]
    ]
    if not layers:
        return str(node.target)
    path, kind = layers[-1]
    return (
        f"{node.target} in the layer {path} "
        f"({str(getattr(kind, '__name__', kind)).rpartition('.')[2]})"
    )


def _get_operator_name(node: Any) -> str | None:
    """Return the name of an operator without its overload; ``None`` for plain functions."""
    from torch._ops import HigherOrderOperator

    if isinstance(node.target, HigherOrderOperator):
        return str(node.target.name())
    schema = getattr(node.target, "_schema", None)
    return None if schema is None else str(schema.name).removeprefix("aten::")


def _compute_constants(native: Any) -> dict[str, Any]:
    """Return weights, and values computed from weights alone, by the names of their nodes."""
    import torch
    from torch.export.graph_signature import InputKind
    from torch.fx.node import map_arg

    known = {**native.state_dict, **native.constants}
    tensors: dict[str, Any] = {}
    for spec in native.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT or not hasattr(spec.arg, "name"):
            continue
        if isinstance(known.get(spec.target), torch.Tensor):
            tensors[spec.arg.name] = known[spec.target].detach()
    for node in native.graph.nodes:
        if node.op != "call_function" or not all(
            given.name in tensors for given in node.all_input_nodes
        ):
            continue
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags or isinstance(
            node.target, torch._ops.HigherOrderOperator
        ):
            continue
        with torch.no_grad():
            args, kwargs = (
                map_arg(part, lambda given: tensors[given.name])
                for part in (node.args, node.kwargs)
            )
            tensors[node.name] = node.target(*args, **kwargs)
    return tensors


def _select_used_constants(native: Any, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants that operators on other values use, or that are outputs."""
    import torch

    return {
        node.name: constants[node.name]
        for node in native.graph.nodes
        if node.name in constants
        and isinstance(constants[node.name], torch.Tensor)
        and any(user.name not in constants for user in node.users)
    }


def _to_array(tensor: Any) -> Any:
    import torch

    wanted = getattr(torch, get_type_name(tensor.dtype))
    return tensor.detach().to(wanted).cpu().numpy()


def _find_interface(native: Any) -> tuple[list[str], list[Any]]:
    """Return the names of the input nodes, and the output nodes."""
    from torch.export.graph_signature import InputKind, OutputKind

    signature = native.graph_signature
    inputs = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    nodes = {node.name: node for node in native.graph.nodes}
    outputs = [
        nodes[spec.arg.name]
        for spec in signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    return inputs, outputs


# Neither in the table of translations nor decomposed by PyTorch into operators that are.  The list
# is not complete.
_FOURIER = (
    "_fft_c2c _fft_c2r _fft_r2c fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_irfft "
    "fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn"
)
_SIZED_BY_VALUES = "masked_select nonzero _unique2 unique_consecutive unique_dim"
_OTHERS = (
    "adaptive_max_pool3d bincount bucketize complex cummax cummin cumprod digamma erfinv histc "
    "index_reduce kthvalue lgamma linalg_cholesky linalg_cholesky_ex linalg_eig "
    "linalg_householder_product linalg_inv linalg_inv_ex linalg_lu_factor_ex linalg_qr "
    "logcumsumexp masked_scatter median mode multinomial nanmedian polygamma scatter_add "
    "scatter_reduce searchsorted view_as_complex view_as_real"
)

UNTRANSLATED = frozenset(f"{_FOURIER} {_SIZED_BY_VALUES} {_OTHERS}".split())
"""Their names without overloads."""
