"""The inference graph of a PyTorch model, and the values inside it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nnpipe.core.errors import NotSupported, SpecMismatch
from nnpipe.core.graph import Graph, Operation, Selector, Shapes
from nnpipe.core.primitives import (
    AttentionPrimitive,
    Length,
    PlainKind,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
    Shape,
    build_convolution,
    build_einsum,
    build_linear,
    build_matrix_product,
    multiply_lengths,
)
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.frameworks.torch_session import to_array, to_tensor
from nnpipe.modelwrappers.frameworks.inspection import select_tensors
from nnpipe.modelwrappers.frameworks.pytorch_export import PREFIX, export_program, get_fixed_length

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

_PLAIN: Mapping[PlainKind, str] = {
    "elementwise": (
        "__and__ __or__ __xor__ diff abs acos add addcdiv addcmul alpha_dropout asin atan atan2 "
        "bitwise_and bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min clip "
        "cos cosh cumsum div divide elu eq erf exp exp2 expm1 feature_dropout floor floor_divide "
        "fmod ge gelu glu greater greater_equal gt hardsigmoid hardswish hardtanh isinf isnan le "
        "leaky_relu lerp less less_equal log log10 log1p log2 log_sigmoid logical_and logical_not "
        "logical_or logical_xor logit lt masked_fill maximum minimum mish mul multiply ne neg "
        "not_equal pow prelu reciprocal relu relu6 remainder round rsqrt rsub selu sgn sigmoid "
        "sign silu sin sinh softplus softsign sqrt square sub subtract tan tanh threshold tril "
        "triu true_divide trunc where"
    ),
    "reduction": (
        "all amax amin any argmax argmin linalg_vector_norm logsumexp max mean median min norm "
        "prod sort std std_mean sum topk var var_mean argsort count_nonzero"
    ),
    "softmax": "_log_softmax _safe_softmax _softmax log_softmax softmax",
    "quantisation": (
        "quantize_per_tensor quantize_per_channel quantize_per_token dequantize_per_tensor "
        "dequantize_per_channel dequantize_per_token choose_qparams choose_qparams_per_token "
        "choose_qparams_per_token_asymmetric quantize_affine dequantize_affine "
        "choose_qparams_affine fake_quantize_per_tensor_affine fake_quantize_per_channel_affine"
    ),
    "gather": "embedding gather index index_select take",
    "movement": (
        "_to_copy arange bernoulli cat channel_shuffle clone concat constant_pad_nd contiguous "
        "copy eye fill flip full full_like im2col index_add index_copy index_fill index_put "
        "lift_fresh_copy linspace masked_scatter masked_select meshgrid new_empty new_full "
        "new_ones new_zeros nonzero one_hot ones ones_like pad pixel_shuffle pixel_unshuffle "
        "reflection_pad1d reflection_pad2d repeat repeat_interleave replication_pad1d "
        "replication_pad2d roll scalar_tensor scatter scatter_add slice_scatter select_scatter "
        "stack tile to type_as empty zeros zeros_like unfold new_empty_strided empty_strided "
        "empty_like"
    ),
    "view": (
        "_assert_async _assert_scalar _assert_tensor_metadata _reshape_alias _unsafe_view alias "
        "as_strided broadcast_tensors broadcast_to chunk detach detach_copy diagonal dropout "
        "expand expand_as feature_alpha_dropout flatten item lift_fresh local_scalar_dense "
        "_local_scalar_dense mT movedim moveaxis narrow numpy_T permute positive reshape "
        "reshape_as select slice split split_with_sizes squeeze swapaxes sym_constrain_range "
        "sym_constrain_range_for_size sym_numel sym_size sym_stride t tensor_split transpose "
        "unbind unflatten unsqueeze view view_as"
    ),
}
_PLAINS: dict[str, PlainKind] = {
    name: kind for kind, names in _PLAIN.items() for name in names.split()
}
_RANDOM = {
    "rand",
    "randn",
    "randint",
    "rand_like",
    "randn_like",
    "normal",
    "uniform",
    "multinomial",
    "randperm",
}
_NORMALISATIONS = {
    "batch_norm": "batch",
    "_native_batch_norm_legit_no_training": "batch",
    "native_batch_norm": "batch",
    "_batch_norm_no_update": "batch",
    "layer_norm": "layer",
    "native_layer_norm": "layer",
    "group_norm": "group",
    "native_group_norm": "group",
    "instance_norm": "instance",
    "rms_norm": "rms",
    "_fused_rms_norm": "rms",
    "cosine_similarity": "l2",
}
_CONVOLUTIONS = {"conv1d", "conv2d", "conv3d", "convolution"}
_TRANSPOSED = {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
_PRODUCTS = {  # the names of the two matrices
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "matmul": ("self", "other"),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"),
    "dot": ("self", "tensor"),
}
_ATTENTIONS = {
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_attention_math",
}
_POOLS = {
    "max_pool": "max",
    "avg_pool": "mean",
    "adaptive_avg_pool": "mean",
    "adaptive_max_pool": "max",
}
_CELLS: Mapping[str, Literal["lstm", "gru", "rnn"]] = {
    "lstm": "lstm",
    "gru": "gru",
    "rnn_tanh": "rnn",
    "rnn_relu": "rnn",
}
_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
_RESIZES = {
    "nearest": "nearest",
    "nearest_exact": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}
_LENGTHS = ("_operator", "operator", "math", "torch")
"""Modules with functions on lengths of axes, which are no tensors."""


@dataclass(frozen=True)
class _Call:
    """A node: the name of its operator, its arguments by name, and a reader of lengths."""

    name: str
    given: Mapping[str, Any]
    result: Any
    length: Callable[[Any], Length]

    def shape(self, name: str) -> Shape:
        return self.read_shape(self.given.get(name))

    def read_shape(self, value: Any) -> Shape:
        found = value.meta.get("val") if hasattr(value, "meta") else value
        if not hasattr(found, "shape"):
            raise SpecMismatch(f"{self.name} takes something that is no tensor")
        return tuple(self.length(length) for length in found.shape)

    def lengths(self, name: str, rank: int) -> tuple[int, ...]:
        """Return an argument with a number for each axis, or one for all."""
        value = self.given.get(name)
        if isinstance(value, int):
            return (value,) * rank
        found = tuple(length for length in value or () if isinstance(length, int))
        return found * rank if len(found) == 1 else found


def list_primitives(node: Any, length: Callable[[Any], Length]) -> tuple[Primitive, ...]:
    """Return the primitives of a node of an exported graph; none if its operator is not known here.

    Parameters
    ----------
    node
        A ``torch.fx.Node`` that calls an operator, with the traced values of its arguments.
    length
        Returns the length of a traced axis.
    """
    target = node.target
    if not hasattr(target, "_schema"):
        known = str(target.__module__).split(".")[0] in _LENGTHS
        return (PlainPrimitive("view", str(target.__name__)),) if known else ()
    schema = target._schema
    names = [argument.name for argument in schema.arguments]
    defaults = {
        argument.name: argument.default_value
        for argument in schema.arguments
        if argument.has_default_value()
    }
    given = defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    name = str(schema.name).rpartition("::")[2]
    name = name[:-1] if name.endswith("_") and not name.endswith("__") else name  # in place
    try:
        return _list_primitives(_Call(name, given, node.meta.get("val"), length))
    except (SpecMismatch, IndexError, KeyError, TypeError, AttributeError, ValueError):
        return ()


def _list_primitives(call: _Call) -> tuple[Primitive, ...]:
    name = call.name
    if name in _PLAINS:
        return (PlainPrimitive(_PLAINS[name], name),)
    if name in _RANDOM:
        return (PlainPrimitive("elementwise", "random"),)
    if name in _NORMALISATIONS:
        return (
            PlainPrimitive("normalisation", _NORMALISATIONS[name], epsilon=call.given.get("eps")),
        )
    if name in _CELLS:
        return _describe_recurrent(call)
    found = _describe_primitive(call)
    return () if found is None else (found,)


def _describe_primitive(call: _Call) -> Primitive | None:
    name = call.name
    if name in _CONVOLUTIONS or name in _TRANSPOSED:
        return _describe_convolution(call)
    if name == "linear":
        units, depth = call.shape("weight")
        return build_linear(call.shape("input"), units, depth)
    if name in _PRODUCTS:
        first, second = (call.shape(each) for each in _PRODUCTS[name])
        return build_matrix_product(first, second)
    if name == "einsum":
        return build_einsum(
            call.given["equation"], [call.read_shape(each) for each in call.given["tensors"]]
        )
    if name in _ATTENTIONS:
        queries, keys, values = (call.shape(each) for each in ("query", "key", "value"))
        return AttentionPrimitive(
            multiply_lengths(queries[:-2]), queries[-2], keys[-2], queries[-1], values[-1]
        )
    plain = name.removesuffix("_with_indices").lstrip("_")
    if plain[:-2] in _POOLS and plain[-2:] in ("1d", "2d", "3d"):
        return _describe_pooling(call, plain)
    if (
        plain.startswith("upsample_")
        and plain.removeprefix("upsample_").rstrip("123d_a") in _RESIZES
    ):
        mode = _RESIZES[plain.removeprefix("upsample_").rstrip("123d_a")]
        return PlainPrimitive("resize", mode, tuple(range(2, len(call.read_shape(call.result)))))
    return None


def _describe_convolution(call: _Call) -> Primitive:
    data, weights, groups = (
        call.shape("input"),
        call.shape("weight"),
        int(call.given.get("groups", 1)),
    )
    transposed = call.name in _TRANSPOSED or bool(call.given.get("transposed", False))
    rank = len(weights) - 2
    # (out, in / groups, kernel ...), or (in, out / groups, kernel ...) if it is transposed
    other = multiply_lengths((weights[1], groups))
    return build_convolution(
        data,
        weights[2:],
        (weights[0], other) if transposed else (other, weights[0]),
        call.read_shape(call.result),
        channel_axis=-rank - 1,
        groups=groups,
        strides=call.lengths("stride", rank),
        dilations=call.lengths("dilation", rank),
        transposed=transposed,
    )


def _describe_pooling(call: _Call, name: str) -> Primitive:
    rank = int(name[-2])
    if name.startswith("adaptive"):
        size = call.lengths("output_size", rank)
        data = call.shape("self")[-rank:]
        whole = all(length == 1 for length in size)
        # Windows that do not fit overlap; on average they have this length.
        kernel = (
            ()
            if whole
            else tuple(-(-int(length or 0) // out) for length, out in zip(data, size, strict=True))
        )
        return PoolingPrimitive(_POOLS[name[:-2]], kernel)
    kernel, strides = call.lengths("kernel_size", rank), call.lengths("stride", rank)
    return PoolingPrimitive(
        _POOLS[name[:-2]], kernel, strides or kernel, call.lengths("dilation", rank)
    )


def _describe_recurrent(call: _Call) -> tuple[Primitive, ...]:
    cell = _CELLS[call.name]
    data, state = call.shape("input"), call.given["hx"]
    units = call.read_shape(state[0] if isinstance(state, (list, tuple)) else state)[-1]
    first = call.read_shape(call.given["params"][0])
    # the state of an LSTM may be projected to fewer numbers
    if units is None or first[0] != _GATES[cell] * units:
        return ()
    batch, steps = (data[0], data[1]) if call.given.get("batch_first") else (data[1], data[0])
    directions = 2 if call.given.get("bidirectional") else 1
    widths = [data[-1], *[units * directions] * (int(call.given["num_layers"]) - 1)]
    return tuple(
        RecurrentPrimitive(cell, batch, steps, width, units, directions) for width in widths
    )


def build_inference_graph(
    wrapper: PyTorchWrapper, module: Any, shapes: Shapes | None = None
) -> Graph:
    """Return the graph of the exported program, which is its ``native`` object, for inputs of
    given shapes if any.
    """
    return convert_program(wrapper, export_program(wrapper, module), shapes)


def convert_program(wrapper: PyTorchWrapper, program: Any, shapes: Shapes | None = None) -> Graph:
    """Return the graph of a program that was exported from the wrapper."""
    signature = program.graph_signature
    weights = {
        node: target.removeprefix(PREFIX)
        for found in (
            signature.inputs_to_parameters,
            signature.inputs_to_buffers,
            signature.inputs_to_lifted_tensor_constants,
        )
        for node, target in found.items()
    }
    inputs = dict(
        zip(signature.user_inputs, (spec.name for spec in wrapper.io.inputs), strict=True)
    )
    length = (
        get_fixed_length if shapes is None else make_length_function(program.graph, inputs, shapes)
    )
    graph = read_graph(
        program.graph, weights | inputs, set(inputs), program, get_layer_path, length
    )
    # Buffers that change in inference may be among the program's outputs.
    ours = [spec.kind.name == "USER_OUTPUT" for spec in signature.output_specs]
    return replace(
        graph, outputs=tuple(name for name, kept in zip(graph.outputs, ours, strict=True) if kept)
    )


def read_graph(
    graph: Any,
    names: Mapping[str, str],
    inputs: Collection[str],
    native: Any,
    layer: Callable[[Any], str],
    length: Callable[[Any], int | None] = get_fixed_length,
) -> Graph:
    """Convert a graph of ``torch.fx``.

    Parameters
    ----------
    graph
        A ``torch.fx.Graph`` of calls of ATen operators.
    names
        Names for the tensors of placeholders, by node.
    inputs
        Placeholders that are inputs; the others are weights.
    native
        The framework's object to which the result refers.
    layer
        Returns the layer of a node.
    length
        Returns the length of a traced axis, or ``None`` if it is free.
    """
    taken = {node.name for node in graph.nodes if node.op != "placeholder"}
    known = {node: name for node, name in names.items() if name not in taken}
    # A result of an operation that is extracted twice is one tensor.
    known |= {str(twin.name): str(first.name) for twin, first in _iter_duplicates(graph)}
    tensors: dict[str, TensorSpec] = {}
    operations: list[Operation] = []
    graph_inputs: list[str] = []
    graph_outputs: list[str] = []
    for node in graph.nodes:
        name = known.get(node.name, str(node.name))
        if node.op == "placeholder":
            tensors[name] = _describe_tensor(name, node.meta["val"], length)
            if node.name in inputs:
                graph_inputs.append(name)
        elif node.op == "output":
            graph_outputs = [
                known.get(given.name, str(given.name)) for given in _iter_nodes(node.args)
            ]
        elif node.op == "get_attr" and hasattr(
            constant := getattr(graph.owning_module, node.target), "dtype"
        ):
            tensors[name] = _describe_tensor(name, constant, length)
        elif node.op != "call_function":
            raise NotSupported(
                f"the graph holds a {node.op} ({node.target}), which is no operation on tensors"
            )
        elif not is_result_extraction(node):
            found = list_results(node)
            tensors |= {
                tensor: _describe_tensor(tensor, value, length) for tensor, value in found.items()
            }
            used = tuple(known.get(given.name, str(given.name)) for given in node.all_input_nodes)
            computed = list_primitives(node, length)
            operations.append(
                Operation(
                    str(node.name),
                    get_operator_name(node),
                    used,
                    tuple(found),
                    layer(node),
                    node,
                    computed,
                )
            )
    return Graph(tuple(operations), tensors, tuple(graph_inputs), tuple(graph_outputs), native)


def is_result_extraction(node: Any) -> bool:
    """Return whether a node only extracts one result of another operation."""
    return node.target is operator.getitem and isinstance(
        node.args[0].meta.get("val"), (tuple, list)
    )


def list_results(node: Any, value: Any = None) -> dict[str, Any]:
    """Return the results of an operation by tensor name: from ``value``, or by default the
    traced ones.
    """
    if value is None:
        value = node.meta.get("val")
    if not isinstance(value, (tuple, list)):
        return {} if value is None else {str(node.name): value}
    names = {i: f"{node.name}.{i}" for i in range(len(value))}
    for user in reversed(list(node.users)):
        if is_result_extraction(user):
            names[user.args[1]] = str(user.name)
    return {names[i]: part for i, part in enumerate(value) if part is not None}


def _iter_duplicates(graph: Any) -> Iterator[tuple[Any, Any]]:
    for node in graph.nodes:
        first: dict[Any, Any] = {}
        for user in node.users:
            if user.op == "call_function" and is_result_extraction(user):
                if user.args[1] in first:
                    yield user, first[user.args[1]]
                first.setdefault(user.args[1], user)


def _iter_nodes(arguments: Any) -> Iterator[Any]:
    if isinstance(arguments, (tuple, list)):
        for argument in arguments:
            yield from _iter_nodes(argument)
    elif isinstance(arguments, dict):
        yield from _iter_nodes(list(arguments.values()))
    elif hasattr(arguments, "all_input_nodes"):
        yield arguments


def get_operator_name(node: Any) -> str:
    """Return the name of the operator, such as ``aten.conv2d.default``."""
    if hasattr(node.target, "_schema"):
        return str(node.target)
    # arithmetic on lengths of axes
    return f"{node.target.__module__.lstrip('_')}.{node.target.__name__}"


def get_layer_path(node: Any) -> str:
    """Return the path of the innermost module that contains an exported node; empty for the
    whole model.
    """
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    # "@1": the second call of a module
    path = re.sub(r"@\d+", "", str(stack[-1][0])) if stack else ""
    return path.removeprefix(PREFIX) if path.startswith(PREFIX) else ""


def make_length_function(
    graph: Any, inputs: Mapping[str, str], shapes: Shapes
) -> Callable[[Any], int | None]:
    """Return a function from a traced axis to its length, if the inputs have these shapes.

    Parameters
    ----------
    graph
        A ``torch.fx.Graph`` of an exported program.
    inputs
        The names of the program's inputs, by node.
    shapes
        The shapes of the inputs by name.
    """
    known: dict[Any, int] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in inputs:
            axes = zip(node.meta["val"].shape, shapes[inputs[node.name]], strict=True)
            known |= {axis.node.expr: length for axis, length in axes if not isinstance(axis, int)}

    def resolve_length(axis: Any) -> int | None:
        if isinstance(axis, int):
            return axis
        found = axis.node.expr.subs(known)
        return int(found) if found.is_Integer else None

    return resolve_length


def _describe_tensor(name: str, value: Any, length: Callable[[Any], int | None]) -> TensorSpec:
    import torch

    if isinstance(value, torch.Tensor):
        return TensorSpec(
            name, tuple(map(length, value.shape)), str(value.dtype).removeprefix("torch.")
        )
    if isinstance(value, (bool, torch.SymBool)):
        return TensorSpec(name, (), "bool")
    return TensorSpec(
        name, (), "float64" if isinstance(value, (float, torch.SymFloat)) else "int64"
    )


def compute_intermediates(
    wrapper: PyTorchWrapper,
    program: Any,
    graph: Graph,
    selector: Selector,
    batch: Batch,
    given: Batch,
) -> dict[str, np.ndarray]:
    """Run a program node by node and keep the values chosen; what is given takes a computed
    tensor's place.
    """
    wanted = set(select_tensors(type(wrapper).__name__, selector, graph.operations))
    kept: dict[str, np.ndarray] = {}

    def record_value(node: Any, value: Any) -> None:
        if node.op == "call_function" and not is_result_extraction(node):
            for tensor, result in list_results(node, value).items():
                if tensor in wanted:
                    # Copied at once, because operations may work in place.
                    kept[tensor] = (
                        to_array(result).copy() if hasattr(result, "cpu") else np.asarray(result)
                    )

    interpret(wrapper, program, batch, record_value, given=given)
    return {tensor: kept[tensor] for tensor in graph.tensors if tensor in kept}


def interpret(
    wrapper: PyTorchWrapper,
    program: Any,
    batch: Batch,
    after: Callable[[Any, Any], None] | None = None,
    around: Callable[[Any], Any] = nullcontext,
    given: Batch = MappingProxyType({}),
) -> None:
    """Run an exported program node by node with the present weights.

    ``after`` is called with each node and its value; ``around`` is called with
    each node and returns a context manager in which the node runs.  An operation
    whose single result is ``given`` continues with the given value.
    """
    import torch

    class Watched(torch.fx.Interpreter):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def run_node(self, n: Any) -> Any:
            with around(n):
                value = super().run_node(n)
            if after is not None:
                after(n, value)
            # Copied, because operations may work in place.
            return (
                value
                if n.name not in given
                else to_tensor(np.array(given[n.name]), wrapper.device).to(value.dtype)
            )

    wrapper.io.check_inputs(batch)
    inputs = iter([to_tensor(batch[spec.name], wrapper.device) for spec in wrapper.io.inputs])
    held = {**program.state_dict, **program.constants}
    kinds = torch.export.graph_signature.InputKind
    arguments = [
        next(inputs) if spec.kind is kinds.USER_INPUT else held[spec.target]
        for spec in program.graph_signature.input_specs
    ]
    with torch.inference_mode():
        Watched(program.graph_module).run(*arguments)
