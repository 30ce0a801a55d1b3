"""What the operators of PyTorch's exported programs compute, as primitives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.primitive_shapes import Shape, convolution, einsum, linear, matrix_product, product
from nnpipe.core.primitives import (
    AttentionPrimitive,
    Length,
    PlainKind,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
)

_PLAIN: Mapping[PlainKind, str] = {
    "elementwise": (
        "__and__ __or__ __xor__ diff abs acos add addcdiv addcmul alpha_dropout asin atan atan2 bitwise_and "
        "bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min clip cos cosh cumsum div divide elu "
        "eq erf exp exp2 expm1 feature_dropout floor floor_divide fmod ge gelu glu greater greater_equal gt "
        "hardsigmoid hardswish hardtanh isinf isnan le leaky_relu lerp less less_equal log log10 log1p log2 "
        "log_sigmoid logical_and logical_not logical_or logical_xor logit lt masked_fill maximum minimum mish mul "
        "multiply ne neg not_equal pow prelu reciprocal relu relu6 remainder round rsqrt rsub selu sgn sigmoid sign "
        "silu sin sinh softplus softsign sqrt square sub subtract tan tanh threshold tril triu true_divide trunc "
        "where"
    ),
    "reduction": (
        "all amax amin any argmax argmin linalg_vector_norm logsumexp max mean median min norm prod sort std "
        "std_mean sum topk var var_mean argsort count_nonzero"
    ),
    "softmax": "_log_softmax _safe_softmax _softmax log_softmax softmax",
    "quantisation": (
        "quantize_per_tensor quantize_per_channel quantize_per_token dequantize_per_tensor dequantize_per_channel "
        "dequantize_per_token choose_qparams choose_qparams_per_token choose_qparams_per_token_asymmetric "
        "quantize_affine dequantize_affine choose_qparams_affine fake_quantize_per_tensor_affine "
        "fake_quantize_per_channel_affine"
    ),
    "gather": "embedding gather index index_select take",
    "movement": (
        "_to_copy arange bernoulli cat channel_shuffle clone concat constant_pad_nd contiguous copy eye fill flip "
        "full full_like im2col index_add index_copy index_fill index_put lift_fresh_copy linspace masked_scatter "
        "masked_select meshgrid new_empty new_full new_ones new_zeros nonzero one_hot ones ones_like pad "
        "pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d repeat repeat_interleave replication_pad1d "
        "replication_pad2d roll scalar_tensor scatter scatter_add slice_scatter select_scatter stack tile to "
        "type_as empty zeros zeros_like unfold new_empty_strided empty_strided empty_like"
    ),
    "view": (
        "_assert_async _assert_scalar _assert_tensor_metadata _reshape_alias _unsafe_view alias as_strided "
        "broadcast_tensors broadcast_to chunk detach detach_copy diagonal dropout expand expand_as "
        "feature_alpha_dropout flatten item lift_fresh local_scalar_dense _local_scalar_dense mT movedim moveaxis "
        "narrow numpy_T permute positive reshape reshape_as select slice split split_with_sizes squeeze swapaxes "
        "sym_constrain_range sym_constrain_range_for_size sym_numel sym_size sym_stride t tensor_split transpose "
        "unbind unflatten unsqueeze view view_as"
    ),
}
_PLAINS: dict[str, PlainKind] = {name: kind for kind, names in _PLAIN.items() for name in names.split()}
_RANDOM = {"rand", "randn", "randint", "rand_like", "randn_like", "normal", "uniform", "multinomial", "randperm"}
_NORMALISATIONS = {
    "batch_norm": "batch", "_native_batch_norm_legit_no_training": "batch", "native_batch_norm": "batch",
    "_batch_norm_no_update": "batch", "layer_norm": "layer", "native_layer_norm": "layer", "group_norm": "group",
    "native_group_norm": "group", "instance_norm": "instance", "rms_norm": "rms", "_fused_rms_norm": "rms",
    "cosine_similarity": "l2",
}  # fmt: skip
_CONVOLUTIONS = {"conv1d", "conv2d", "conv3d", "convolution"}
_TRANSPOSED = {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
_PRODUCTS = {  # the names of the two matrices
    "mm": ("self", "mat2"), "bmm": ("self", "mat2"), "matmul": ("self", "other"), "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"), "mv": ("self", "vec"), "dot": ("self", "tensor"),
}  # fmt: skip
_ATTENTIONS = {
    "scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_attention_math",
}  # fmt: skip
_POOLS = {"max_pool": "max", "avg_pool": "mean", "adaptive_avg_pool": "mean", "adaptive_max_pool": "max"}
_CELLS: Mapping[str, Literal["lstm", "gru", "rnn"]] = {
    "lstm": "lstm", "gru": "gru", "rnn_tanh": "rnn", "rnn_relu": "rnn",
}  # fmt: skip
_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
_RESIZES = {"nearest": "nearest", "nearest_exact": "nearest", "linear": "linear", "bilinear": "linear",
            "trilinear": "linear", "bicubic": "cubic"}  # fmt: skip
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
        return self.shape_of(self.given.get(name))

    def shape_of(self, value: Any) -> Shape:
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


def primitives_of(node: Any, length: Callable[[Any], Length]) -> tuple[Primitive, ...]:
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
    defaults = {argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()}
    given = defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    name = str(schema.name).rpartition("::")[2]
    name = name[:-1] if name.endswith("_") and not name.endswith("__") else name  # in place
    try:
        return _primitives(_Call(name, given, node.meta.get("val"), length))
    except (SpecMismatch, IndexError, KeyError, TypeError, AttributeError, ValueError):
        return ()


def _primitives(call: _Call) -> tuple[Primitive, ...]:
    name = call.name
    if name in _PLAINS:
        return (PlainPrimitive(_PLAINS[name], name),)
    if name in _RANDOM:
        return (PlainPrimitive("elementwise", "random"),)
    if name in _NORMALISATIONS:
        return (PlainPrimitive("normalisation", _NORMALISATIONS[name], epsilon=call.given.get("eps")),)
    if name in _CELLS:
        return _recurrent(call)
    found = _primitive(call)
    return () if found is None else (found,)


def _primitive(call: _Call) -> Primitive | None:
    name = call.name
    if name in _CONVOLUTIONS or name in _TRANSPOSED:
        return _convolution(call)
    if name == "linear":
        units, depth = call.shape("weight")
        return linear(call.shape("input"), units, depth)
    if name in _PRODUCTS:
        first, second = (call.shape(each) for each in _PRODUCTS[name])
        return matrix_product(first, second)
    if name == "einsum":
        return einsum(call.given["equation"], [call.shape_of(each) for each in call.given["tensors"]])
    if name in _ATTENTIONS:
        queries, keys, values = (call.shape(each) for each in ("query", "key", "value"))
        return AttentionPrimitive(product(queries[:-2]), queries[-2], keys[-2], queries[-1], values[-1])
    plain = name.removesuffix("_with_indices").lstrip("_")
    if plain[:-2] in _POOLS and plain[-2:] in ("1d", "2d", "3d"):
        return _pooling(call, plain)
    if plain.startswith("upsample_") and plain.removeprefix("upsample_").rstrip("123d_a") in _RESIZES:
        mode = _RESIZES[plain.removeprefix("upsample_").rstrip("123d_a")]
        return PlainPrimitive("resize", mode, tuple(range(2, len(call.shape_of(call.result)))))
    return None


def _convolution(call: _Call) -> Primitive:
    data, weights, groups = call.shape("input"), call.shape("weight"), int(call.given.get("groups", 1))
    transposed = call.name in _TRANSPOSED or bool(call.given.get("transposed", False))
    rank = len(weights) - 2
    # (out, in / groups, kernel ...), or (in, out / groups, kernel ...) if it is transposed
    other = product((weights[1], groups))
    return convolution(
        data, weights[2:], (weights[0], other) if transposed else (other, weights[0]), call.shape_of(call.result),
        channel_axis=-rank - 1, groups=groups, strides=call.lengths("stride", rank),
        dilations=call.lengths("dilation", rank), transposed=transposed,
    )  # fmt: skip


def _pooling(call: _Call, name: str) -> Primitive:
    rank = int(name[-2])
    if name.startswith("adaptive"):
        size = call.lengths("output_size", rank)
        data = call.shape("self")[-rank:]
        whole = all(length == 1 for length in size)
        # Windows that do not fit overlap; on average they have this length.
        kernel = () if whole else tuple(-(-int(length or 0) // out) for length, out in zip(data, size, strict=True))
        return PoolingPrimitive(_POOLS[name[:-2]], kernel)
    kernel, strides = call.lengths("kernel_size", rank), call.lengths("stride", rank)
    return PoolingPrimitive(_POOLS[name[:-2]], kernel, strides or kernel, call.lengths("dilation", rank))


def _recurrent(call: _Call) -> tuple[Primitive, ...]:
    cell = _CELLS[call.name]
    data, state = call.shape("input"), call.given["hx"]
    units = call.shape_of(state[0] if isinstance(state, (list, tuple)) else state)[-1]
    first = call.shape_of(call.given["params"][0])
    if units is None or first[0] != _GATES[cell] * units:  # the state of an LSTM may be projected to fewer numbers
        return ()
    batch, steps = (data[0], data[1]) if call.given.get("batch_first") else (data[1], data[0])
    directions = 2 if call.given.get("bidirectional") else 1
    widths = [data[-1], *[units * directions] * (int(call.given["num_layers"]) - 1)]
    return tuple(RecurrentPrimitive(cell, batch, steps, width, units, directions) for width in widths)
