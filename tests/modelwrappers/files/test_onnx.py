"""ONNX files as models."""

from __future__ import annotations

import pytest

from nnpipe.core.model import ModelWrapper
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.testing.model_files import write_onnx_network
from nnpipe.testing.modelwrapper import ModelWrapperContract

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnx_ir", reason="onnx-ir is not installed")
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
