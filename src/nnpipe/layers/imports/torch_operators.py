"""Translation of PyTorch's operators to ONNX's: kind, inputs and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.formats.onnx_network import ONNXNode

Words = tuple[str, Sequence[Any], Mapping[str, Any]]
"""A kind of operation, its inputs (nodes, arrays, or ``None``), and its attributes."""

Shape = tuple[int, ...]
Translate = Callable[[Mapping[str, Any], Shape, Shape], Words]
"""Takes the arguments by name, the shape of the first tensor, and the shape of the result."""

_LINEAR = 20  # above this, log(1 + exp(x)) equals x in single precision


def _make_unary(kind: str, **names: str) -> Translate:
    """Return the translation to an operation of one tensor, with some arguments renamed."""

    def translate(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
        return kind, [_get_tensor(a)], {there: a[here] for there, here in names.items()}

    return translate


def _get_tensor(a: Mapping[str, Any]) -> Any:
    return next(a[name] for name in ("self", "input", "x", "data") if name in a)


def _broadcast_to_rank(value: Any, rank: int) -> tuple[int, ...]:
    listed = value if isinstance(value, (list, tuple)) else [value]
    return tuple(listed) * rank if len(listed) == 1 else tuple(listed)


def _convert_conv(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    rank = len(given) - 2
    window = {
        "strides": _broadcast_to_rank(a["stride"], rank),
        "dilations": _broadcast_to_rank(a["dilation"], rank),
        "group": a["groups"],
    }
    inputs = [a["input"], a["weight"], a["bias"]]
    if a["padding"] in ("same", "valid"):
        return (
            "Conv",
            inputs,
            window | {"auto_pad": "SAME_UPPER" if a["padding"] == "same" else "VALID"},
        )
    window["pads"] = _broadcast_to_rank(a["padding"], rank) * 2
    if a.get("transposed", "output_padding" in a):
        return (
            "ConvTranspose",
            inputs,
            window | {"output_padding": _broadcast_to_rank(a["output_padding"], rank)},
        )
    return "Conv", inputs, window


def _convert_linear(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return "Gemm", [a["input"], a["weight"], a["bias"]], {"transB": 1}


def _convert_addmm(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return (
        "Gemm",
        [a["mat1"], a["mat2"], a["self"]],
        {"alpha": float(a["alpha"]), "beta": float(a["beta"])},
    )


def _convert_matmul(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return "MatMul", [a["self"], a["mat2"] if "mat2" in a else a["other"]], {}


def _convert_batch_norm(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    count = given[1]
    inputs = [
        a["input"],
        _get_or_default(a["weight"], np.ones(count, np.float32)),
        _get_or_default(a["bias"], np.zeros(count, np.float32)),
        a["running_mean"],
        a["running_var"],
    ]
    more = {
        "momentum": 1 - a["momentum"],
        "epsilon": a["eps"],
        "training_mode": int(bool(a.get("training", False))),
    }
    return "BatchNormalization", inputs, more


def _convert_layer_norm(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    shape = tuple(a["normalized_shape"])
    inputs = [a["input"], _get_or_default(a["weight"], np.ones(shape, np.float32)), a["bias"]]
    return "LayerNormalization", inputs, {"axis": -len(shape), "epsilon": a["eps"]}


def _convert_group_norm(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    if not a.get("use_input_stats", True):
        # an instance normalisation with the statistics of its training
        return _convert_batch_norm(a, given, made)
    count = given[1]
    inputs = [
        a["input"],
        _get_or_default(a["weight"], np.ones(count, np.float32)),
        _get_or_default(a["bias"], np.zeros(count, np.float32)),
    ]
    if "num_groups" in a:
        return "GroupNormalization", inputs, {"num_groups": a["num_groups"], "epsilon": a["eps"]}
    return "InstanceNormalization", inputs, {"epsilon": a["eps"]}


def _get_or_default(value: Any, otherwise: np.ndarray) -> Any:
    return otherwise if value is None else value


def _make_pool(kind: str) -> Translate:
    def translate(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
        rank = len(given) - 2
        size = _broadcast_to_rank(a["kernel_size"], rank)
        window: dict[str, Any] = {
            "kernel_shape": size,
            "strides": _broadcast_to_rank(a["stride"], rank) if a["stride"] else size,
            "pads": _broadcast_to_rank(a["padding"], rank) * 2,
            "ceil_mode": int(a["ceil_mode"]),
        }
        if kind == "MaxPool":
            window["dilations"] = _broadcast_to_rank(a["dilation"], rank)
        else:
            window["count_include_pad"] = int(a["count_include_pad"])
            window["divisor_override"] = a.get("divisor_override")
        return kind, [_get_tensor(a)], window

    return translate


def _make_adaptive_pool(kind: str, whole: str) -> Translate:
    def translate(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
        wanted = _broadcast_to_rank(a["output_size"], len(given) - 2)
        if all(extent == 1 for extent in wanted):
            return whole, [_get_tensor(a)], {}
        size = tuple(extent // out for extent, out in zip(given[2:], wanted, strict=True))
        even = all(extent % out == 0 for extent, out in zip(given[2:], wanted, strict=True))
        return (
            (kind if even else f"Adaptive{kind}"),
            [_get_tensor(a)],
            {"kernel_shape": size, "strides": size},
        )

    return translate


def _make_reduction(kind: str) -> Translate:
    def translate(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
        axes = a["dim"] if isinstance(a["dim"], (list, tuple)) else [a["dim"]]
        return (
            kind,
            [_get_tensor(a)],
            {"axes": tuple(axes) if axes else None, "keepdims": int(a["keepdim"])},
        )

    return translate


def _convert_reshape(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return "Reshape", [_get_tensor(a), np.array(made, np.int64)], {"allowzero": 1}


def _convert_transpose(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    count = len(given)
    order = list(range(count))
    first, second = a.get("dim0", 0) % max(count, 1), a.get("dim1", 1) % max(count, 1)
    order[first], order[second] = order[second], order[first]
    return "Transpose", [_get_tensor(a)], {"perm": tuple(order) if count > 1 else (0,)}


def _convert_permute(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return "Transpose", [_get_tensor(a)], {"perm": tuple(axis % len(given) for axis in a["dims"])}


def _convert_movedim(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    count = len(given)
    come = [axis % count for axis in _broadcast_to_rank(a["source"], 1)]
    go = [axis % count for axis in _broadcast_to_rank(a["destination"], 1)]
    rest = iter(axis for axis in range(count) if axis not in come)
    order = [come[go.index(place)] if place in go else next(rest) for place in range(count)]
    return "Transpose", [_get_tensor(a)], {"perm": tuple(order)}


def _convert_repeat_interleave(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return "RepeatEach", [_get_tensor(a)], {"repeats": int(a["repeats"]), "axis": int(a["dim"])}


def _convert_cat(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return "Concat", list(a["tensors"]), {"axis": a["dim"]}


def _make_arithmetic(kind: str) -> Translate:
    def translate(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
        pair = [
            np.array(v, np.float32) if isinstance(v, (int, float)) else v
            for v in (a["self"], a["other"])
        ]
        if a.get("rounding_mode") or a.get("alpha", 1) != 1:
            return (
                f"aten::{kind.lower()}",
                pair,
                {"alpha": a.get("alpha"), "rounding_mode": a.get("rounding_mode")},
            )
        return kind, pair, {}

    return translate


def _convert_rsub(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    kind, pair, more = _make_arithmetic("Sub")(a, given, made)
    return kind, [pair[1], pair[0]], more


def _convert_clamp(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    least, most = (
        a.get(one, a.get(other)) for one, other in (("min", "min_val"), ("max", "max_val"))
    )
    return "Clip", [_get_tensor(a)], {"min": least, "max": most}


def _convert_pad(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    count, flat = len(given), list(a["pad"])
    pairs = [(0, 0)] * (count - len(flat) // 2) + [
        (flat[i], flat[i + 1]) for i in range(len(flat) - 2, -1, -2)
    ]
    pads = np.array([before for before, _ in pairs] + [after for _, after in pairs], np.int64)
    return (
        "Pad",
        [_get_tensor(a), pads],
        {"mode": a.get("mode", "constant"), "value": float(a.get("value") or 0)},
    )


def _convert_embedding(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return "Gather", [a["weight"], a["indices"]], {"axis": 0}


def _make_resize(mode: str) -> Translate:
    def translate(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
        place = (
            "align_corners"
            if a.get("align_corners")
            else "asymmetric"
            if mode == "nearest"
            else "half_pixel"
        )
        more = {"mode": mode, "coordinate_transformation_mode": place, "nearest_mode": "floor"}
        # Lengths are rounded down, but positions are computed with the exact factors.
        factors = a.get("scale_factors") or [
            a[n] for n in ("scales_d", "scales_h", "scales_w", "scales") if a.get(n)
        ]
        if factors:
            return "Resize", [_get_tensor(a), None, np.array([1, 1, *factors], np.float32)], more
        return "Resize", [_get_tensor(a), None, None, np.array(made, np.int64)], more

    return translate


def _convert_slice(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    ends = (1 << 62) if a["end"] is None else a["end"]
    listed = [np.array([n], np.int64) for n in (a["start"] or 0, ends, a["dim"], a["step"])]
    return "Slice", [_get_tensor(a), *listed], {}


def _convert_select(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return "Gather", [_get_tensor(a), np.array(a["index"], np.int64)], {"axis": a["dim"]}


def _convert_expand(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return "Expand", [_get_tensor(a), np.array(made, np.int64)], {}


def _convert_repeat(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    return "Tile", [_get_tensor(a), np.array(a["repeats"], np.int64)], {}


def _make_dropout(kind: str) -> Translate:
    def translate(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
        if a["train"]:  # active in inference as well
            return "aten::dropout", [_get_tensor(a)], {"p": float(a["p"])}
        return kind, [_get_tensor(a)], {"ratio": float(a["p"])}

    return translate


def _convert_to(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    kinds = {
        "torch.float32": 1,
        "torch.float64": 11,
        "torch.float16": 10,
        "torch.int32": 6,
        "torch.int64": 7,
    }
    return (
        "Cast",
        [_get_tensor(a)],
        {"to": kinds.get(str(a["dtype"]), 1 if a["dtype"] is None else 0)},
    )


def _convert_softplus(a: Mapping[str, Any], given: Shape, made: Shape) -> Words:
    if a["beta"] == 1 and a["threshold"] >= _LINEAR:
        return "Softplus", [_get_tensor(a)], {}
    return "aten::softplus", [_get_tensor(a)], {"beta": a["beta"], "threshold": a["threshold"]}


OPERATORS: dict[str, Translate] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convert_conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convert_conv),
    "linear": _convert_linear, "addmm": _convert_addmm, "mm": _convert_matmul, "matmul": _convert_matmul,
    "batch_norm": _convert_batch_norm, "_native_batch_norm_legit_no_training": _convert_batch_norm,
    "layer_norm": _convert_layer_norm, "native_layer_norm": _convert_layer_norm,
    "group_norm": _convert_group_norm, "instance_norm": _convert_group_norm,
    **{f"max_pool{n}d": _make_pool("MaxPool") for n in (1, 2, 3)}, "max_pool2d_with_indices": _make_pool("MaxPool"),
    **{f"avg_pool{n}d": _make_pool("AveragePool") for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _make_adaptive_pool("AveragePool", "GlobalAveragePool") for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _make_adaptive_pool("MaxPool", "GlobalMaxPool") for n in (1, 2, 3)},
    "mean": _make_reduction("ReduceMean"), "amax": _make_reduction("ReduceMax"),
    **dict.fromkeys(
        "view reshape _unsafe_view flatten unflatten squeeze unsqueeze".split(), _convert_reshape
    ),
    "transpose": _convert_transpose, "t": _convert_transpose, "permute": _convert_permute,
    "movedim": _convert_movedim,
    "repeat_interleave": _convert_repeat_interleave, "cat": _convert_cat,
    "add": _make_arithmetic("Add"), "sub": _make_arithmetic("Sub"), "mul": _make_arithmetic("Mul"),
    "div": _make_arithmetic("Div"),
    "rsub": _convert_rsub,
    "maximum": lambda a, given, made: ("Max", [a["self"], a["other"]], {}),
    "minimum": lambda a, given, made: ("Min", [a["self"], a["other"]], {}),
    "clamp": _convert_clamp, "clamp_min": _convert_clamp, "clamp_max": _convert_clamp, "hardtanh": _convert_clamp,
    "relu": _make_unary("Relu"), "relu6": lambda a, given, made: ("Clip", [a["self"]], {"min": 0.0, "max": 6.0}),
    "leaky_relu": _make_unary("LeakyRelu", alpha="negative_slope"), "elu": _make_unary("Elu", alpha="alpha"),
    "selu": _make_unary("Selu"), "gelu": _make_unary("Gelu", approximate="approximate"), "silu": _make_unary("Silu"),
    "sigmoid": _make_unary("Sigmoid"), "tanh": _make_unary("Tanh"), "softplus": _convert_softplus,
    "hardsigmoid": lambda a, given, made: ("HardSigmoid", [a["self"]], {"alpha": 1 / 6, "beta": 0.5}),
    "hardswish": _make_unary("HardSwish"), "mish": _make_unary("Mish"), "log_sigmoid": _make_unary("LogSigmoid"),
    "exp": _make_unary("Exp"),
    "prelu": lambda a, given, made: (
        "PRelu", [a["self"], a["weight"]], {"channels": 1},
    ),
    "softmax": _make_unary("Softmax", axis="dim"), "_softmax": _make_unary("Softmax", axis="dim"),
    "log_softmax": _make_unary("LogSoftmax", axis="dim"), "_log_softmax": _make_unary("LogSoftmax", axis="dim"),
    "pad": _convert_pad, "constant_pad_nd": _convert_pad, "embedding": _convert_embedding,
    "upsample_nearest1d": _make_resize("nearest"), "upsample_nearest2d": _make_resize("nearest"),
    "upsample_nearest3d": _make_resize("nearest"), "upsample_bilinear2d": _make_resize("linear"),
    "slice": _convert_slice, "select": _convert_select, "expand": _convert_expand, "repeat": _convert_repeat,
    "dropout": _make_dropout("Dropout"),
    **dict.fromkeys(("feature_dropout", "alpha_dropout", "feature_alpha_dropout"), _make_dropout("Identity")),
    "to": _convert_to, "_to_copy": _convert_to,
    **dict.fromkeys(("contiguous", "clone", "alias", "detach", "lift_fresh_copy"), _make_unary("Identity")),
}  # fmt: skip
"""The translation of each operator, by its name without overload."""

# ONNX's operator, the positions of its gates in PyTorch, and further attributes.
KINDS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "lstm": ("LSTM", (0, 3, 1, 2), {}),  # i, o, f, c of i, f, c, o
    "gru": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),  # z, r, h of r, z, h
    "rnn_tanh": ("RNN", (0,), {}),
    "rnn_relu": ("RNN", (0,), {"activations": ("Relu",)}),
}


@dataclass
class RecurrentOperations:
    """The operations and constants that replace a recurrent operator, and the names of its
    results.
    """

    nodes: list[ONNXNode] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)


def build_recurrent_operations(
    kind: str,
    name: str,
    title: str,
    taken: str,
    weights: Sequence[np.ndarray],
    a: Mapping[str, Any],
    shape: Sequence[int],
) -> RecurrentOperations:
    """Return the ONNX operations of a recurrent operator.

    Parameters
    ----------
    kind
        A key of :data:`KINDS`.
    name, title
        The base of its results' names, and the module that contains it.
    taken
        Name of the input; ``a["batch_first"]`` states the order of its first two axes.
    weights
        For each layer and direction, the weights of inputs and of states, and the biases of both.
    a
        The other arguments by name.
    shape
        Shape of the input.
    """
    made = RecurrentOperations()
    both, biased = 2 if a["bidirectional"] else 1, bool(a["has_biases"])
    each = 4 if biased else 2
    operator, order, more = KINDS[kind]
    steps, samples = (shape[1], shape[0]) if a["batch_first"] else (shape[0], shape[1])

    def add(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> str:
        made.nodes.append(ONNXNode(kind, title, tuple(inputs), tuple(outputs), attributes))
        return outputs[0]

    def add_constant(label: str, value: np.ndarray) -> str:
        made.constants[f"{name}.{label}"] = value
        return f"{name}.{label}"

    def reorder_gates(array: np.ndarray) -> np.ndarray:
        parts = np.split(array, len(order))
        return np.concatenate([parts[place] for place in order])

    current = (
        add("Transpose", [taken], [f"{name}.steps"], perm=(1, 0, 2)) if a["batch_first"] else taken
    )
    states: list[list[str]] = [[], []]
    for number in range(a["num_layers"]):
        own = weights[number * both * each : (number + 1) * both * each]
        sides = [own[side * each : (side + 1) * each] for side in range(both)]
        given = [
            current,
            add_constant(f"W{number}", np.stack([reorder_gates(side[0]) for side in sides])),
            add_constant(f"R{number}", np.stack([reorder_gates(side[1]) for side in sides])),
        ]
        if biased:
            joined = [
                np.concatenate([reorder_gates(side[2]), reorder_gates(side[3])]) for side in sides
            ]
            given.append(add_constant(f"B{number}", np.stack(joined)))
        outputs = [f"{name}.{number}.{part}" for part in ("y", "h", "c")]
        units = int(own[1].shape[1])
        direction = "bidirectional" if both == 2 else "forward"
        usual = {
            key: value * both if key == "activations" else value for key, value in more.items()
        }
        add(operator, given, outputs, hidden_size=units, direction=direction, **usual)
        for place, state in enumerate(outputs[1:]):
            states[place].append(state)
        turned = add("Transpose", outputs[:1], [f"{name}.{number}.turned"], perm=(0, 2, 1, 3))
        target = add_constant(f"shape{number}", np.array([steps, samples, both * units], np.int64))
        current = add("Reshape", [turned, target], [f"{name}.{number}.joined"], allowzero=1)
    if a["batch_first"]:
        current = add("Transpose", [current], [f"{name}.result"], perm=(1, 0, 2))
    made.results = [current]
    for place, names in enumerate(states):
        made.results.append(
            names[0] if len(names) == 1 else add("Concat", names, [f"{name}.state{place}"], axis=0)
        )
    return made
