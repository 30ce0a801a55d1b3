"""Small model files, made without a training framework, for tests of readers and runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.artifact import Artifact
from nnpipe.core.tensors import IOSpec, TensorSpec

NETWORK_IO = IOSpec(
    (TensorSpec("image", (None, 1, 8, 8), "float32"), TensorSpec("extra", (None, 3), "float32")),
    (TensorSpec("scores", (None, 5), "float32"), TensorSpec("total", (None, 1), "float32")),
)
"""The inputs and outputs of :func:`write_onnx_network`'s model."""


def write_onnx_classifier(path: Path, images: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]) -> Path:
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
    means = np.stack([flat[labels == each].mean(0) for each in range(int(labels.max()) + 1)]).astype(np.float32)
    weights = {
        "weight": 2 * means.T, "bias": -(means**2).sum(1), "shape": np.array([-1, flat.shape[1]], np.int64)
    }  # fmt: skip
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
    """Write a small convolutional network with two inputs and two outputs as ONNX, and return it; requires ``onnx``.

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
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
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
    return Artifact.of(path, "onnx", NETWORK_IO, frameworks=(("onnx", onnx.__version__),))


STEP = 0.125
"""The scale of int8 tensors in :func:`write_tflite_difference`."""


def write_tflite_difference(
    path: Path, dtype: Literal["float32", "int8"] = "float32", named: bool = True, batch: int | None = None
) -> Artifact:
    """Write a TensorFlow Lite file that subtracts one input from the other, and return it; requires ``ai_edge_litert``.

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

    def tensor(name: str) -> Any:
        made = schema.TensorT()
        made.name, made.shape = f"t_{name}", [batch or 1, 4]
        made.shapeSignature = None if batch else [-1, 4]
        made.type = schema.TensorType.INT8 if dtype == "int8" else schema.TensorType.FLOAT32
        if dtype == "int8":
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = [STEP], [zeros[name]]
        return made

    def entry(name: str) -> Any:
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
    graph.tensors, graph.operators = [tensor(name) for name in names], [operator]
    graph.inputs, graph.outputs = [1, 0], [2]
    signature.inputs, signature.outputs = [entry("first"), entry("second")], [entry("difference")]
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    model.buffers = [schema.BufferT()]
    model.signatureDefs = [signature] if named else []
    path.write_bytes(_packed(model))

    def spec(name: str) -> TensorSpec:
        quantisation = (STEP, zeros[name]) if dtype == "int8" else (None, None)
        return TensorSpec(name if named else f"t_{name}", (batch, 4), dtype, *quantisation)

    io = IOSpec((spec("first"), spec("second")), (spec("difference"),))
    return Artifact.of(path, "tflite", io)


def _packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
