"""Transformers in int8: true ranges, masks that leave scores their scale, and parts that stay in
floats.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.compilers.tflite import TorchToTFLite
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError
from nnpipe.core.tensors import IOSpec, TensorSpec, generate_random_batch
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.compiler import run_compiled

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs("tensorflow")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
nn = torch.nn

IO = IOSpec((TensorSpec("x", (1, 10, 16), "float32"),), (TensorSpec("y", (1, 10, 16), "float32"),))
SAMPLES = [generate_random_batch(IO, 1, seed) for seed in range(16)]


class Causal(nn.Module):
    """Attention that hides later tokens with the lowest float, as transformers does, and a
    normalisation.
    """

    def __init__(self, added: bool) -> None:
        super().__init__()
        self.added, self.norm = added, nn.LayerNorm(16)
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Any) -> Any:
        normal = self.norm(x)
        scores = self.query(normal) @ self.key(normal).transpose(1, 2)
        seen, lowest = torch.ones(10, 10, dtype=torch.bool).tril(), torch.finfo(torch.float32).min
        mask = torch.where(seen, 0.0, lowest)
        scores = scores + mask if self.added else torch.where(seen, scores, lowest)
        return self.out(scores.softmax(-1) @ self.value(normal))


class Dense(nn.Module):
    """Two layers that take every token by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).relu())


def exported(network: Any, path: Path, free: bool = False) -> Artifact:
    shapes = ({0: torch.export.Dim("batch")},) if free else None
    program = torch.export.export(
        network.eval(), (torch.zeros(2 if free else 1, 10, 16),), dynamic_shapes=shapes
    )
    program.example_inputs = None
    torch.export.save(program, path)
    shape = (None if free else 1, 10, 16)
    name = str(program.graph_signature.user_outputs[0])
    io = IOSpec((TensorSpec("x", shape, "float32"),), (TensorSpec(name, shape, "float32"),))
    return Artifact.create(path, "torch-export", io)


def operators(path: Path) -> Counter[tuple[str, str]]:
    """Return the number of operators by kind and element type of their result."""
    from tensorflow.lite.python import schema_py_generated as schema
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model(str(path))
    types = {
        number: name for name, number in vars(schema.TensorType).items() if isinstance(number, int)
    }
    graph = model.subgraphs[0]
    return Counter(
        (
            flatbuffer_utils.opcode_to_name(model, each.opcodeIndex),
            types[graph.tensors[each.outputs[0]].type],
        )
        for each in graph.operators
    )


def error(source: Artifact, network: Any, compiler: TorchToTFLite, path: Path) -> float:
    """Return the mean error of the compiled network, relative to the mean size of its outputs."""
    made = compiler.compile(source, path, lambda: SAMPLES)
    with torch.no_grad():
        expected = np.concatenate(
            [network(torch.from_numpy(sample["x"])).numpy() for sample in SAMPLES]
        )
    found = np.concatenate(
        [
            next(iter(each.values()))
            for each in run_compiled(LiteRTRuntime(), made, made.io, SAMPLES)
        ]
    )
    return float(np.abs(found - expected).mean() / np.abs(expected).mean())


def network_of(added: bool) -> Any:
    torch.manual_seed(0)
    return Causal(added).eval()


def test_normalisation_and_softmax_stay_in_floats_between_int8_products(tmp_path: Path) -> None:
    network = network_of(False)
    path = tmp_path / "made.tflite"
    assert (
        error(
            exported(network, tmp_path / "network.pt2"), network, TorchToTFLite(target="int8"), path
        )
        < 0.05
    )
    found = operators(path)
    assert found["FULLY_CONNECTED", "INT8"] == 4
    assert found["BATCH_MATMUL", "INT8"] == 2
    assert found["RSQRT", "FLOAT32"] == found["SUB", "FLOAT32"] == found["SOFTMAX", "FLOAT32"] == 1


def test_biases_of_sequences_are_part_of_their_products_for_any_number_of_samples(
    tmp_path: Path,
) -> None:
    """As a sum of 8-bit integers by itself, a bias below its step would be lost."""
    network, path = Dense(), tmp_path / "made.tflite"
    source = exported(network, tmp_path / "network.pt2", free=True)
    assert error(source, network, TorchToTFLite(target="int8"), path) < 0.05
    found = operators(path)
    assert found["FULLY_CONNECTED", "INT8"] == 2
    assert {kind for kind, _ in found}.isdisjoint({"ADD", "GATHER", "REDUCE_PROD"})


@pytest.mark.slow
@pytest.mark.parametrize("added", [False, True])
def test_integers_alone_keep_the_scale_of_scores_beside_a_mask(added: bool, tmp_path: Path) -> None:
    network, path = network_of(added), tmp_path / "made.tflite"
    compiler = TorchToTFLite(target="int8", integer_only=True)
    assert (
        error(exported(network, tmp_path / "network.pt2"), network, compiler, path) < 0.05
    )  # 0.48 with the ranges of the calibrator
    assert not [
        kind for kind, element in operators(path) if element == "FLOAT32" and kind != "DEQUANTIZE"
    ]


def test_a_tensor_that_is_overwritten_keeps_its_own_range() -> None:
    import tensorflow as tf

    from nnpipe.compilers._tflite_ranges import with_measured_ranges

    @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32, name="input_0")])
    def grown(input_0: Any) -> Any:
        return {"output_0": tf.abs(input_0) * 100.0 + 1.0}

    samples = [{"input_0": np.array([[0.0, 0.25, -0.5, 1.0]], np.float32)}]
    module = tf.Module()
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [grown.get_concrete_function()], module
    )
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: iter(samples)
    converter._experimental_calibrate_only = True
    found = ranges(with_measured_ranges(converter.convert(), samples))
    assert (0.0, 1.0) in found
    assert (0.0, 100.0) in found
    assert (1.0, 101.0) in found


def ranges(content: bytes) -> set[tuple[float, float]]:
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    told = [tensor.quantization for tensor in model.subgraphs[0].tensors]
    return {
        (float(each.min[0]), float(each.max[0]))
        for each in told
        if each is not None and each.min is not None
    }


def test_integers_alone_need_int8() -> None:
    with pytest.raises(ConfigError, match="--integer-only needs --precision int8, not float16"):
        TorchToTFLite(target="float16", integer_only=True)
