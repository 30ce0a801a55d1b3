"""ONNX files as models."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed import needs

from nnpipe.core.model import ModelWrapper
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.testing.model_files import write_onnx_network
from nnpipe.testing.modelwrapper import ModelWrapperContract

pytest.importorskip("onnx", reason="onnx is not installed")
needs("onnx_ir")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


class TestONNXModel(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self, tmp_path_factory: pytest.TempPathFactory) -> ModelWrapper:
        path = tmp_path_factory.mktemp("source") / "network.onnx"
        write_onnx_network(path)
        return ONNXModel(
            model_path=path,
            scale=255.0,
            mean=(0.5,),
            deviation=(0.25,),
            channel_order="bgr",
            layout="nchw",
            resize=(8, 8),
            result_output="scores",
            class_offset=1,
            class_count=4,
            num_threads=2,
        )


def test_the_profile_is_of_the_graph_that_ships(tmp_path: Path) -> None:
    import numpy as np
    import onnx

    from nnpipe.core.artifact import Artifact
    from nnpipe.formats.onnx import read_onnx

    helper, kind = onnx.helper, onnx.TensorProto
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    sides = [
        helper.make_tensor_value_info(name, kind.FLOAT, [1, width, 8, 8])
        for name, width in (("x", 3), ("y", 8))
    ]
    graph = helper.make_graph(
        nodes, "g", sides[:1], sides[1:], [onnx.numpy_helper.from_array(weights, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(tmp_path / "model.onnx"))
    Artifact.create(tmp_path / "model.onnx", "onnx", read_onnx(tmp_path / "model.onnx").io())
    profile = ONNXModel(model_path=tmp_path / "model.onnx").open().profile_inference(4)
    assert profile.rewritten
    assert "Relu" not in {timing.kind for timing in profile.timings}, (
        "the session that ships fuses it"
    )
    assert {timing.calls for timing in profile.timings} == {4}, "runs that warm it up do not count"


def test_operators_of_a_domain_that_is_not_imported_cause_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The library that infers shapes logs that with a traceback."""
    import onnx

    helper = onnx.helper
    sides = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in ("x", "y")
    ]
    nodes = [helper.make_node("f", ["x"], ["y"], name="own", domain="d")]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(tmp_path / "model.onnx"))
    with ONNXModel(model_path=tmp_path / "model.onnx").open() as live:
        assert [each.kind for each in live.get_sized_graph().operations] == ["d.f"]
    assert not caplog.records
