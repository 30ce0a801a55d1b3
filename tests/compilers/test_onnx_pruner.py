"""Pruned ONNX models have as many zeros as asked for, where they were least."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from network_contracts import ONNXNetworkContract

from nnpipe.compilers.onnx_optimizer import ONNXPruner
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
from nnpipe.testing.model_files import write_onnx_network
from nnpipe.testing.session import assert_one_line

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

PRUNED = ("kernel", "dense", "sum")


class TestONNXPruner(ONNXNetworkContract):
    tolerance = 8.0  # nearly half of the weights are gone
    agreement = 0.3

    @pytest.fixture
    def compiler(self) -> ONNXPruner:
        return ONNXPruner(sparsity=0.4, scope="global")


def weights_of(path: Path) -> dict[str, np.ndarray]:
    return {
        c.name: np.array(onnx.numpy_helper.to_array(c)) for c in onnx.load(path).graph.initializer
    }


@pytest.fixture
def source(tmp_path: Path) -> Artifact:
    return write_onnx_network(tmp_path / "network.onnx")


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_the_least_become_zero_and_all_others_stay(
    source: Artifact, tmp_path: Path, scope: str
) -> None:
    before = weights_of(source.path)
    after = weights_of(
        ONNXPruner(sparsity=0.3, scope=scope).compile(source, tmp_path / "made.onnx").path
    )
    assert before.keys() == after.keys()
    for group in [PRUNED] if scope == "global" else [(name,) for name in PRUNED]:
        were = np.concatenate([before[name].ravel() for name in group])
        gone = np.concatenate([after[name].ravel() for name in group]) == 0
        assert gone.sum() == int(0.3 * were.size)
        assert np.abs(were[gone]).max() <= np.abs(were[~gone]).min()
    for name, array in before.items():
        kept = after[name] != 0 if name in PRUNED else slice(None)
        np.testing.assert_array_equal(after[name][kept], array[kept], err_msg=name)


def test_nothing_pruned_is_nothing_changed(source: Artifact, tmp_path: Path) -> None:
    after = weights_of(ONNXPruner(sparsity=0).compile(source, tmp_path / "made.onnx").path)
    for name, array in weights_of(source.path).items():
        np.testing.assert_array_equal(after[name], array, err_msg=name)


def test_a_model_without_weights_is_refused(source: Artifact, tmp_path: Path) -> None:
    model = onnx.load(source.path)
    for tensor in model.graph.initializer:
        if tensor.name in PRUNED:
            array = onnx.numpy_helper.to_array(tensor)
            shape = onnx.numpy_helper.from_array(np.array(array.shape, np.int64))
            node = onnx.helper.make_node("ConstantOfShape", [f"{tensor.name}_shape"], [tensor.name])
            shape.name = f"{tensor.name}_shape"
            tensor.CopyFrom(shape)
            model.graph.node.insert(0, node)
    onnx.save_model(model, str(tmp_path / "bare.onnx"))
    bare = Artifact.create(tmp_path / "bare.onnx", "onnx", source.io)
    with pytest.raises(CompileError, match="no floating-point weights to prune") as caught:
        ONNXPruner().compile(bare, tmp_path / "made.onnx")
    assert_one_line(caught.value)
