"""ONNX Runtime's optimisations are written into a file that computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network_contracts import ONNXNetworkContract

from nnpipe.compilers.onnx_optimizer import ONNXRuntimeOptimizer
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import generate_random_batch
from nnpipe.formats.onnx import read_onnx
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


class TestONNXRuntimeOptimizer(ONNXNetworkContract):
    tolerance = 1e-4

    @pytest.fixture
    def compiler(self) -> ONNXRuntimeOptimizer:
        return ONNXRuntimeOptimizer(optimisation_level="all")


def operations(artifact: Artifact) -> set[str]:
    return {node.op_type for node in onnx.load_model(artifact.path).graph.node}


@pytest.mark.parametrize(("level", "fused"), [("basic", False), ("extended", True)])
def test_levels_fuse_more_and_more(tmp_path: Path, level: Any, fused: bool) -> None:
    source = write_onnx_network(tmp_path / "network.onnx")
    made = ONNXRuntimeOptimizer(optimisation_level=level).compile(source, tmp_path / "made.onnx")
    assert ("FusedConv" in operations(made)) == fused
    assert ("Relu" in operations(made)) != fused


def test_weights_in_other_files_are_taken_in(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    source = write_onnx_network(path)
    batch = generate_random_batch(NETWORK_IO, 2)
    with ONNXRuntime().load(source) as session:
        expected = session.infer(batch)
    model = onnx.load_model(path)
    onnx.save_model(
        model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    made = ONNXRuntimeOptimizer().compile(
        Artifact.create(path, "onnx", NETWORK_IO), tmp_path / "elsewhere" / "made.onnx"
    )
    assert read_onnx(made.path).external == ()
    with ONNXRuntime().load(made) as session:
        np.testing.assert_allclose(
            session.infer(batch)["scores"], expected["scores"], rtol=1e-5, atol=1e-5
        )


def test_weights_outside_the_models_folder_are_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = write_onnx_network(folder / "network.onnx").path
    model = onnx.load_model(path)
    onnx.save_model(
        model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    (folder / "weights.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(ArtifactError, match="outside its own folder"):
        ONNXRuntimeOptimizer().compile(
            Artifact.create(path, "onnx", NETWORK_IO), tmp_path / "made.onnx"
        )
    assert not (tmp_path / "made.onnx").exists()
