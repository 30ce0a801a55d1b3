"""What a library fails with is told in one line: whose fault, at which node, why, and what to
try.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from installed import needs
from shared_data import shared_data

from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import Calibration, ModelCompiler
from nnpipe.core.errors import CompileError
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import IOSpec, TensorSpec, generate_random_batch
from nnpipe.formats.onnx import read_onnx
from nnpipe.testing.model_files import write_onnx_network


class FailingAtEveryModel(WritingCompiler):
    """Fails as libraries do."""

    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    produces: ClassVar[str] = "onnx"
    suffix: ClassVar[str] = ".onnx"
    packages: ClassVar[tuple[str, ...]] = ("a-library",)

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        name = artifact.io.outputs[0].name
        place = "Exception from src/core/convert.cpp:245:"
        raise RuntimeError(
            f"{place}\nmodel.mlir:7:11: error: loc(x): no rule for {name}\n  called from"
        )


def test_a_compiler_names_library_node_cause_and_what_to_try(tmp_path: Path) -> None:
    source = write_onnx_network(tmp_path / "network.onnx")
    with pytest.raises(CompileError) as caught:
        FailingAtEveryModel().compile(source, tmp_path / "made.onnx")
    told, name = str(caught.value), source.io.outputs[0].name
    assert f"{source.path}: a-library fails at " in told
    assert f" {name!r}: no rule for {name}; nnpipe reduce finds" in told
    assert "\n" not in told
    assert "convert.cpp" not in told


def test_a_gru_quantised_for_openvino_can_be_loaded(tmp_path: Path) -> None:
    needs("onnx", "openvino", "nncf")
    path = tmp_path / "gru.onnx"
    path.write_bytes(shared_data("cases/convert/gru_lbr0.onnx").read_bytes())
    source = Artifact.create(path, "onnx", read_onnx(path).io())
    compiler = find("OpenVINOCompiler", ModelCompiler).from_json({"precision": "int8"})
    made = compiler.compile(
        source, tmp_path / "gru.openvino", lambda: [generate_random_batch(source.io, 1)]
    )
    with find("OpenVINORuntime", Runtime).from_json({}).load(made) as session:
        assert session.infer(generate_random_batch(source.io, 1))["scores"].shape == (1, 4)


@pytest.mark.slow
def test_recurrent_layers_of_keras_ask_for_a_fixed_batch_of_tensorflow_lite(tmp_path: Path) -> None:
    needs("tensorflow", "keras")
    from nnpipe.frameworks.keras import import_keras

    _, keras = import_keras()
    keras.Sequential([keras.Input((7, 3)), keras.layers.LSTM(5)]).save(tmp_path / "lstm.keras")
    io = IOSpec(
        (TensorSpec("x", (None, 7, 3), "float32"),), (TensorSpec("y", (None, 5), "float32"),)
    )
    source = Artifact.create(tmp_path / "lstm.keras", "keras", io)
    with pytest.raises(CompileError, match=r"only for a fixed batch size; set --fixed-batch 1$"):
        find("TFLiteCompiler", ModelCompiler).from_json({}).compile(
            source, tmp_path / "lstm.tflite"
        )
