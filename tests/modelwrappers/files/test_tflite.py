"""TensorFlow Lite files as models."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnpipe.core.model import ModelWrapper
from nnpipe.modelwrappers.files.tflite import TFLiteModel
from nnpipe.testing.modelwrapper import ModelWrapperContract

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dense network with a free batch axis, whose weights are float32."""
    path = tmp_path_factory.mktemp("source") / "network.tflite"
    write_dense(path)
    return path


class TestTFLiteModel(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self, network: Path) -> ModelWrapper:
        return TFLiteModel(
            model_path=network,
            scale=255.0,
            mean=(0.5,),
            deviation=(0.25,),
            channel_order="bgr",
            result_output="scores",
            class_offset=1,
            class_count=4,
            num_threads=2,
        )


def write_dense(path: Path) -> None:
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema
    from flatbuffers import Builder

    generator = np.random.default_rng(0)
    arrays = {
        "dense/kernel": generator.standard_normal((5, 6)).astype("<f4"),
        "dense/bias": generator.standard_normal(5).astype("<f4"),
    }
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.buffers = [schema.BufferT()]
    graph.tensors = []
    for name, array in (
        ("features", None),
        *arrays.items(),
        ("dense/Dense", None),
        ("probabilities", None),
    ):
        tensor = schema.TensorT()
        tensor.name, tensor.type = name, schema.TensorType.FLOAT32
        if array is None:
            tensor.shape = [1, 6 if name == "features" else 5]
            tensor.shapeSignature = [-1, tensor.shape[1]]
        else:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(array.tobytes(), np.uint8)
            tensor.shape, tensor.buffer = list(array.shape), len(model.buffers)
            model.buffers.append(buffer)
        graph.tensors.append(tensor)
    dense, softmax = schema.OperatorT(), schema.OperatorT()
    dense.opcodeIndex, dense.inputs, dense.outputs = 0, [0, 1, 2], [3]
    dense.builtinOptionsType, dense.builtinOptions = (
        schema.BuiltinOptions.FullyConnectedOptions,
        schema.FullyConnectedOptionsT(),
    )
    softmax.opcodeIndex, softmax.inputs, softmax.outputs = 1, [3], [4]
    softmax.builtinOptionsType, softmax.builtinOptions = (
        schema.BuiltinOptions.SoftmaxOptions,
        schema.SoftmaxOptionsT(),
    )
    softmax.builtinOptions.beta = 1.0
    graph.inputs, graph.outputs, graph.operators = [0], [4], [dense, softmax]
    codes = []
    for kind in (schema.BuiltinOperator.FULLY_CONNECTED, schema.BuiltinOperator.SOFTMAX):
        code = schema.OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = kind
        code.version = 1
        codes.append(code)
    model.version, model.operatorCodes, model.subgraphs = 3, codes, [graph]
    builder = Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
