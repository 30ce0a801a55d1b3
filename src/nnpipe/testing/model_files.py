"""Small model files, made without a training framework, for tests of readers and runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.artifact import Artifact
from nnpipe.core.files import write_bytes
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec

NETWORK_IO = IOSpec(
    (TensorSpec("image", (None, 1, 8, 8), "float32"), TensorSpec("extra", (None, 3), "float32")),
    (TensorSpec("scores", (None, 5), "float32"), TensorSpec("total", (None, 1), "float32")),
)
"""The inputs and outputs of :func:`write_onnx_network`'s model."""


def write_onnx_classifier(
    path: Path, images: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]
) -> Path:
    """Write a nearest-mean classifier as ONNX, and return the path; requires ``onnx``.

    Parameters
    ----------
    path
        The file to write.
    images
        Samples ``(n, ...)`` from which the means are computed.
    labels
        Class numbers from 0, ``(n,)``; each class must occur.

    Raises
    ------
    ConfigError
        If an argument has the wrong type or shape.
    """
    check_call(write_onnx_classifier, locals())
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    flat = images.reshape(len(images), -1)
    means = np.stack(
        [flat[labels == each].mean(0) for each in range(int(labels.max()) + 1)]
    ).astype(np.float32)
    weights = {
        "weight": 2 * means.T,
        "bias": -(means**2).sum(1),
        "shape": np.array([-1, flat.shape[1]], np.int64),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["image", "shape"], ["flat"]),
            helper.make_node("Gemm", ["flat", "weight", "bias"], ["scores"]),
        ],
        "nearest",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *images.shape[1:]])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", len(means)])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(path))
    return path


def write_onnx_network(path: Path, seed: int = 0, channels: int = 6) -> Artifact:
    """Write a small convolutional network with two inputs and two outputs as ONNX, and return it;
    requires ``onnx``.

    Parameters
    ----------
    path
        The file to write.
    seed
        Seed of the weights.
    channels
        Outputs of the convolution.
    """
    check_call(write_onnx_network, locals())
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(seed)
    weights = {
        "kernel": generator.standard_normal((channels, 1, 3, 3)) * 0.4,
        "kernel_bias": generator.standard_normal(channels) * 0.1,
        "dense": generator.standard_normal((channels * 9 + 3, 5)) * 0.3,
        "dense_bias": generator.standard_normal(5) * 0.1,
        "sum": np.ones((5, 1)),
    }
    constants = [
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()
    ]
    nodes = [
        helper.make_node("Conv", ["image", "kernel", "kernel_bias"], ["conv"], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("MaxPool", ["relu"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("Concat", ["flat", "extra"], ["features"], axis=1),
        helper.make_node("Gemm", ["features", "dense", "dense_bias"], ["scores"]),
        helper.make_node("MatMul", ["scores", "sum"], ["total"]),
    ]
    sides = [
        [
            helper.make_tensor_value_info(spec.name, TensorProto.FLOAT, ["batch", *spec.shape[1:]])
            for spec in getattr(NETWORK_IO, side)
        ]
        for side in ("inputs", "outputs")
    ]
    graph = helper.make_graph(nodes, "network", sides[0], sides[1], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save_model(model, str(path))
    return Artifact.create(path, "onnx", NETWORK_IO, frameworks=(("onnx", onnx.__version__),))


STEP = 0.125
"""The scale of int8 tensors in :func:`write_tflite_difference`."""


def write_tflite_difference(
    path: Path,
    dtype: Literal["float32", "int8"] = "float32",
    named: bool = True,
    batch: int | None = None,
) -> Artifact:
    """Write a TensorFlow Lite file that subtracts one input from the other, and return it; requires
    ``ai_edge_litert``.

    The file lists its inputs in a different order than its signature, as converters
    do, so that binding them by position gives the wrong sign.

    Parameters
    ----------
    path
        The file to write.
    dtype
        Element type of all tensors; ``int8`` ones have the scale ``STEP`` and the zero
        points 1 (``first``), -2 (``second``) and 3 (``difference``).
    named
        Whether there is a signature; the tensors themselves are named ``t_first``,
        ``t_second`` and ``t_difference``.
    batch
        Number of samples in a call; None for any number.
    """
    from ai_edge_litert import schema_py_generated as schema

    zeros = {"first": 1, "second": -2, "difference": 3}
    names = list(zeros)

    def create_tensor(name: str) -> Any:
        made = schema.TensorT()
        made.name, made.shape = f"t_{name}", [batch or 1, 4]
        made.shapeSignature = None if batch else [-1, 4]
        made.type = schema.TensorType.INT8 if dtype == "int8" else schema.TensorType.FLOAT32
        if dtype == "int8":
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = [STEP], [zeros[name]]
        return made

    def create_entry(name: str) -> Any:
        made = schema.TensorMapT()
        made.name, made.tensorIndex = name, names.index(name)
        return made

    operator, code, options = schema.OperatorT(), schema.OperatorCodeT(), schema.SubOptionsT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.SUB
    code.version = 2 if dtype == "int8" else 1
    options.fusedActivationFunction = schema.ActivationFunctionType.NONE
    operator.inputs, operator.outputs = [0, 1], [2]
    operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.SubOptions, options
    graph, signature, model = schema.SubGraphT(), schema.SignatureDefT(), schema.ModelT()
    graph.tensors, graph.operators = [create_tensor(name) for name in names], [operator]
    graph.inputs, graph.outputs = [1, 0], [2]
    signature.inputs, signature.outputs = (
        [create_entry("first"), create_entry("second")],
        [create_entry("difference")],
    )
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    model.buffers = [schema.BufferT()]
    model.signatureDefs = [signature] if named else []
    path.write_bytes(_pack_model(model))

    def create_spec(name: str) -> TensorSpec:
        quantisation = (STEP, zeros[name]) if dtype == "int8" else (None, None)
        return TensorSpec(name if named else f"t_{name}", (batch, 4), dtype, *quantisation)

    io = IOSpec((create_spec("first"), create_spec("second")), (create_spec("difference"),))
    return Artifact.create(path, "tflite", io)


def _pack_model(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def create_torch_network(seed: int = 0, channels: int = 6) -> Any:
    """Return a convolutional network from and to dicts with the names of ``NETWORK_IO``; requires
    ``torch``.

    It has the usual parts: convolutions with normalisation, some of them depthwise,
    a residual connection, a clipped activation, pooling, two inputs and two outputs.

    Parameters
    ----------
    seed
        Seed of the weights.
    channels
        Number of channels of the convolutions.
    """
    import torch
    from torch import nn

    def create_block(given: int, kernel: int, groups: int = 1) -> Any:
        padding = kernel // 2
        convolution = nn.Conv2d(given, channels, kernel, padding=padding, bias=False, groups=groups)
        return nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU6())

    class Network(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for the type check
        def __init__(self) -> None:
            super().__init__()
            self.first = create_block(1, 3)
            self.depthwise = create_block(channels, 3, channels)
            self.pointwise = create_block(channels, 1)
            self.pool = nn.MaxPool2d(2)
            self.dense = nn.Linear(4 * channels + 3, 5)

        def forward(self, given: dict[str, Any]) -> dict[str, Any]:
            x = self.first(given["image"])
            x = x + self.pointwise(self.depthwise(x))
            x = nn.functional.avg_pool2d(self.pool(x), 2).flatten(1)
            scores = self.dense(torch.cat([x, given["extra"]], 1))
            # In a different order than NETWORK_IO, so that binding by position fails.
            return {"total": scores.sum(1, keepdim=True), "scores": scores}

    generator = torch.Generator().manual_seed(seed)
    network = Network().eval()
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2, generator=generator)
            elif tensor.is_floating_point():
                fan = tensor[0].numel() if tensor.ndim > 1 else 16
                tensor.normal_(0, 2 / fan**0.5, generator=generator)
    return network


def write_torch_network(path: Path, network: Any = None) -> Artifact:
    """Export a network with the tensors of ``NETWORK_IO``, by default :func:`create_torch_network`,
    and return the file.

    The number of samples is free.
    """
    import io

    import torch

    network = create_torch_network() if network is None else network
    batch = torch.export.Dim("batch", min=1)
    # In a different order than the network uses them.
    given = {"extra": torch.zeros(2, 3), "image": torch.zeros(2, 1, 8, 8)}
    program = torch.export.export(
        network, (given,), dynamic_shapes=({name: {0: batch} for name in given},)
    )
    program.example_inputs = None  # the only part that would be pickled
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    write_bytes(path, buffer.getvalue())
    return Artifact.create(
        path, "torch-export", NETWORK_IO, frameworks=(("torch", str(torch.__version__)),)
    )


def run_network(network: Any, batch: Batch) -> dict[str, Any]:
    """Return the network's own outputs; inputs and outputs are arrays."""
    import torch

    with torch.no_grad():
        found = network({name: torch.from_numpy(array) for name, array in batch.items()})
    return {name: tensor.numpy() for name, tensor in found.items()}


_LENGTHS = (0, 1, 2, 3, 4, 5, 7, 16, 300, -1)
_NUMBERS = (-2, -1, 0, 1, 2, 3, 4, 5, 9, 100, 127)
_TYPES = ("INT8", "UINT8", "INT16", "INT32", "INT64", "FLOAT32", "BOOL")


def mutate_graph(data: bytes, random: np.random.Generator) -> bytes:
    """Return a copy of a file in which some shape, type, scale, constant, option or reference is
    another one.

    Parameters
    ----------
    data
        A TensorFlow Lite file; requires ``ai_edge_litert``.
    random
        Where choices come from.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(bytearray(data), 0)
    changes = (
        _change_shape,
        _change_type,
        _change_quantization,
        _change_constant,
        _change_option,
        _change_reference,
        _change_operator,
    )
    for _ in range(int(random.integers(1, 4))):
        changes[int(random.integers(len(changes)))](model, random)
    return _pack_model(model)


def _choose(things: Any, random: np.random.Generator) -> Any:
    return things[int(random.integers(len(things)))]


def _change_shape(model: Any, random: np.random.Generator) -> None:
    tensor = _choose(model.subgraphs[0].tensors, random)
    shape = [int(n) for n in (tensor.shape if tensor.shape is not None else ())]
    how = int(random.integers(4))
    if how == 0:
        shape.append(_choose(_LENGTHS, random))
    elif how == 1 and shape:
        shape.pop(int(random.integers(len(shape))))
    elif shape:
        shape[int(random.integers(len(shape)))] = _choose(_LENGTHS, random)
    tensor.shape = shape


def _change_type(model: Any, random: np.random.Generator) -> None:
    from ai_edge_litert import schema_py_generated as schema

    _choose(model.subgraphs[0].tensors, random).type = getattr(
        schema.TensorType, _choose(_TYPES, random)
    )


def _change_quantization(model: Any, random: np.random.Generator) -> None:
    quantisation = _choose(model.subgraphs[0].tensors, random).quantization
    if quantisation is None or quantisation.scale is None:
        return
    scales = (0.0, 1e-30, 1e-6, 0.5, 1.0, 1e6, 1e30, float("inf"), float("nan"), -1.0)
    how = int(random.integers(4))
    if how == 0:
        quantisation.scale = np.full(len(quantisation.scale), _choose(scales, random), np.float32)
    elif how == 1:
        quantisation.zeroPoint = np.full(
            len(quantisation.scale), _choose((-129, -128, -1, 0, 127, 128, 255), random)
        )
    elif how == 2:
        quantisation.scale = np.float32(quantisation.scale * 2.0 ** random.uniform(-12, 12))
    else:
        quantisation.quantizedDimension = _choose(_NUMBERS, random)


def _change_constant(model: Any, random: np.random.Generator) -> None:
    held = [buffer for buffer in model.buffers if buffer.data is not None and len(buffer.data)]
    if not held:
        return
    buffer = _choose(held, random)
    content = np.array(buffer.data, np.uint8)
    if len(content) % 4 == 0:
        content.view(np.int32)[int(random.integers(len(content) // 4))] = _choose(_NUMBERS, random)
    else:
        content[int(random.integers(len(content)))] = int(random.integers(256))
    buffer.data = content


def _change_option(model: Any, random: np.random.Generator) -> None:
    options = _choose(model.subgraphs[0].operators, random).builtinOptions
    held = sorted(vars(options).items()) if options is not None else []
    names = [name for name, value in held if isinstance(value, int)]
    if names:
        name = _choose(names, random)
        numbers = (
            [n for n in _NUMBERS if 0 <= n < 4]
            if "ctivation" in name or "adding" in name
            else _NUMBERS
        )
        value = _choose(numbers, random)
        setattr(options, name, bool(value) if isinstance(getattr(options, name), bool) else value)


def _change_reference(model: Any, random: np.random.Generator) -> None:
    graph = model.subgraphs[0]
    operator = _choose(graph.operators, random)
    side = operator.inputs if random.integers(4) else operator.outputs
    if side is not None and len(side):
        side[int(random.integers(len(side)))] = int(random.integers(-1, len(graph.tensors)))


def _change_operator(model: Any, random: np.random.Generator) -> None:
    operator = _choose(model.subgraphs[0].operators, random)
    operator.opcodeIndex = int(random.integers(len(model.operatorCodes)))
