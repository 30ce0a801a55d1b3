"""The operations of networks that are not built: costs as those of files of the same networks."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed import needs

import nnpipe
from nnpipe import layers as nn
from nnpipe.analysis.kernels import get_operation_word
from nnpipe.analysis.operation_costs import compute_graph_cost
from nnpipe.core.errors import ConfigError
from nnpipe.core.graph import Graph
from nnpipe.layers.graph.operations import build_operation_graph
from nnpipe.layers.imports.network_files import read_network

EXAMPLES = Path(__file__).parents[3] / "examples"


def words(graph: Graph) -> list[str]:
    return [get_operation_word(each) or f"? {each.kind}" for each in graph.operations]


def macs(graph: Graph) -> int:
    return compute_graph_cost(graph).arithmetic.macs


def test_convolutions_activations_and_outputs_are_operations() -> None:
    x = nn.Input((8, 8, 3), name="image")
    y = nn.Conv2d(x, 4, 3, padding="same", activation="relu")
    y = nn.Add([nn.BatchNorm(nn.SeparableConv2d(y, 4, 3, padding="same", activation="silu")), y])
    y = nn.OutputClassification(
        nn.Dense(nn.Dropout(nn.GlobalAvgPool2d(y), 0.5), 10), target="label"
    )
    found = build_operation_graph(nn.network(x, y), {"image": (2, 8, 8, 3)})
    assert words(found) == [
        "convolution",
        "relu",
        "convolution",
        "convolution",
        "sigmoid",
        "mul",
        "batch",
        "add",
        "mean over all",
        "view",
        "matrix product",
        "softmax",
    ]
    assert macs(found) == 2 * (64 * 27 * 4 + 64 * 9 * 4 + 64 * 16 + 40)
    assert compute_graph_cost(found).parameters == 27 * 4 + 4 + 9 * 4 + 16 + 4 + 4 * 4 + 50
    assert found.tensors[found.inputs[0]].shape == (2, 8, 8, 3)


def test_recurrent_layers_attention_and_sequences_are_operations() -> None:
    x = nn.Input((12, 8))
    y = nn.LayerNorm(nn.MultiHeadAttention((x, x), num_heads=2, key_dim=4))
    found = build_operation_graph(nn.network(x, nn.Dense(y, 5, activation="gelu")))
    assert macs(found) == 4 * 12 * 8 * 8 + 2 * 2 * 12 * 12 * 4 + 12 * 8 * 5
    assert words(found)[-3:] == ["matrix product", "add", "gelu"]
    y = nn.Bidirectional(x, nn.LSTM((), 6, return_sequences=True))
    found = build_operation_graph(nn.network(x, nn.GRU(nn.Permute(y, (1, 2)), 7)))
    assert macs(found) == 2 * 12 * 4 * 6 * (8 + 6) + 12 * 3 * 7 * (12 + 7)


def test_a_layer_without_a_rule_is_told_and_shared_weights_count_once() -> None:
    x = nn.Input((6,))
    shared = nn.Dense(x, 6)
    found = build_operation_graph(nn.network(x, nn.Dot((shared, shared.on(shared)), axes=1)))
    assert words(found) == ["matrix product", "matrix product", "? Dot"]
    assert compute_graph_cost(found).parameters == 42


def test_what_cannot_be_sized_is_refused() -> None:
    x = nn.Input((None, 4), name="steps")
    graph = nn.network(x, nn.Dense(x, 2))
    assert macs(build_operation_graph(graph)) == 8
    assert macs(build_operation_graph(graph, {"steps": (1, 10, 4)})) == 80
    for shapes, told in (
        ({"other": (1,)}, "no input 'other'; it has steps"),
        ({"steps": (1, 2)}, "3 axes"),
    ):
        with pytest.raises(ConfigError, match=told):
            build_operation_graph(graph, shapes)


def test_a_network_from_a_file_of_keras_has_the_counts_of_the_file(shared_data: Path) -> None:
    needs("h5py")
    reading = read_network(shared_data / "models" / "mlperf_tiny_ic" / "pretrainedResnet.h5")
    assert reading.graph is not None
    found = compute_graph_cost(build_operation_graph(reading.graph))
    assert found.arithmetic.macs == 12_501_632
    assert found.parameters == 78_666
    assert not found.unknown


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small_cnn", "small_keywords", "small_forecast"])
def test_described_networks_have_the_counts_of_their_exported_files(
    name: str, tmp_path: Path
) -> None:
    needs("torch", "onnx_ir", "onnxruntime")
    file = EXAMPLES / f"{name}.yaml"
    with (
        nnpipe.find("DeclaredModel", nnpipe.ModelWrapper)
        .from_json({"network": str(file)})
        .open() as model
    ):
        model.export(tmp_path / "n.onnx", "onnx")
    reading = read_network(file)
    assert reading.graph is not None
    assert macs(build_operation_graph(reading.graph)) == nnpipe.explain(tmp_path / "n.onnx").macs
