"""OpenVINO runs its own files, ONNX and TensorFlow Lite, bound by name, in float32 unless told
otherwise.
"""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

from nnpipe.compilers.openvino import OpenVINOCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import compute_sha256
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.runtimes.openvino import OpenVINORuntime
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network, write_tflite_difference
from nnpipe.testing.runtime import RuntimeContract
from nnpipe.testing.session import assert_one_line

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
needs("openvino")


def reference(path: Path, batch: Batch) -> dict[str, np.ndarray]:
    """What the ONNX project's own evaluator, which is written in numpy, makes of a batch."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(path))
    return dict(zip(evaluator.output_names, evaluator.run(None, dict(batch)), strict=True))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_onnx_network(tmp_path_factory.mktemp("source") / "network.onnx")


@pytest.fixture(scope="module")
def compiled(network: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return OpenVINOCompiler().compile(
        network, tmp_path_factory.mktemp("compiled") / "network.openvino"
    )


class TestOpenVINORuntime(RuntimeContract):
    expected_atol = 1e-5

    @pytest.fixture
    def runtime(self) -> OpenVINORuntime:
        return OpenVINORuntime(num_threads=2)

    @pytest.fixture
    def artifact(self, compiled: Artifact) -> Artifact:
        return compiled

    @pytest.fixture
    def expected(self, network: Artifact, batch: Batch) -> Batch:
        return reference(network.path, batch)


@pytest.mark.slow
class TestONNXOnOpenVINO(TestOpenVINORuntime):
    @pytest.fixture
    def artifact(self, network: Artifact) -> Artifact:
        return network


@pytest.mark.slow
class TestTFLiteOnOpenVINO(RuntimeContract):
    """The file lists its inputs in another order than its signature does."""

    @pytest.fixture
    def runtime(self) -> OpenVINORuntime:
        return OpenVINORuntime(inference_precision="auto")

    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Artifact:
        pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
        return write_tflite_difference(tmp_path / "difference.tflite")

    @pytest.fixture
    def expected(self, batch: Batch) -> Batch:
        return {"difference": batch["first"] - batch["second"]}


def test_a_bare_file_says_what_it_takes_and_gives(
    compiled: Artifact, network: Artifact, tmp_path: Path
) -> None:
    assert OpenVINORuntime().io_of(compiled.path) == NETWORK_IO
    assert OpenVINORuntime().io_of(network.path) == NETWORK_IO
    with pytest.raises(ArtifactError, match=r"\.openvino, \.onnx or \.tflite"):
        OpenVINORuntime().io_of(tmp_path / "model.bin")


@pytest.mark.parametrize("overflows", [False, True])
def test_the_precision_used_is_told(
    compiled: Artifact, overflows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnpipe.frameworks.openvino.has_saturating_byte_sums", lambda: overflows)
    for asked, told in (("f32", "f32"), ("bf16", "bf16")):
        with OpenVINORuntime(inference_precision=asked).load(compiled) as session:  # type: ignore[arg-type]
            if session.stats()["inference_precision"] != told:
                pytest.skip(
                    f"this processor computes {asked} as {session.stats()['inference_precision']}"
                )
    with OpenVINORuntime().load(compiled) as session:
        stats = dict(session.stats())
    assert stats.pop("saturating_integers", False) == overflows
    assert stats == {"inference_precision": "f32", "num_threads": 1, "execution_devices": ["CPU"]}


def test_a_missing_device_is_an_error_of_one_line(compiled: Artifact) -> None:
    with pytest.raises(ConfigError, match="no usable npu here, only: cpu") as caught:
        OpenVINORuntime(openvino_device="npu").load(compiled)
    assert_one_line(caught.value)


def test_an_input_that_is_also_an_output_keeps_its_name(tmp_path: Path) -> None:
    helper = onnx.helper
    sides = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in names]
        for names in (("a", "b"), ("same", "sum"))
    ]
    nodes = [
        helper.make_node("Identity", ["b"], ["same"]),
        helper.make_node("Sub", ["a", "b"], ["sum"]),
    ]
    graph = helper.make_graph(nodes, "g", *sides)
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(tmp_path / "m.onnx"),
    )
    io = OpenVINORuntime().io_of(tmp_path / "m.onnx")
    source = Artifact.create(tmp_path / "m.onnx", "onnx", io)
    made = OpenVINOCompiler(precision="fp32").compile(source, tmp_path / "m.openvino")
    batch = generate_random_batch(io, 3)
    for artifact in (source, made):
        with OpenVINORuntime().load(artifact) as session:
            found = session.infer(batch)
        np.testing.assert_array_equal(found["same"], batch["b"])
        np.testing.assert_allclose(found["sum"], batch["a"] - batch["b"])


def test_an_input_that_is_not_used_may_be_given_all_the_same(tmp_path: Path) -> None:
    helper = onnx.helper
    sides = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in names]
        for names in (("idle", "x"), ("y",))
    ]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", *sides)
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(tmp_path / "m.onnx"),
    )
    io = OpenVINORuntime().io_of(tmp_path / "m.onnx")
    assert [spec.name for spec in io.inputs] == ["idle", "x"]
    source = Artifact.create(tmp_path / "m.onnx", "onnx", io)
    made = OpenVINOCompiler().compile(source, tmp_path / "m.openvino")
    batch = generate_random_batch(io, 3)
    for artifact in (source, made):
        with OpenVINORuntime().load(artifact) as session:
            np.testing.assert_array_equal(session.infer(batch)["y"], -batch["x"])


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("BOOL", np.array([[True, False]])),
        ("INT64", np.array([[1 << 20, -3]])),
        ("FLOAT16", np.array([[0.5, 2]], "float16")),
        ("DOUBLE", np.array([[0.5, 2]])),
        ("UINT8", np.array([[255, 0]], "uint8")),
    ],
)
@pytest.mark.parametrize("scalar", [False, True], ids=["matrix", "no axes"])
def test_tensors_of_every_kind_pass(
    tmp_path: Path, dtype: str, array: np.ndarray, scalar: bool
) -> None:
    helper = onnx.helper
    kind = getattr(onnx.TensorProto, dtype)
    if scalar:
        array = array[0, 0]
    sides = [
        [helper.make_tensor_value_info(name, kind, list(np.shape(array)))] for name in ("x", "y")
    ]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", *sides)
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(tmp_path / "m.onnx"),
    )
    artifact = Artifact.create(
        tmp_path / "m.onnx", "onnx", OpenVINORuntime().io_of(tmp_path / "m.onnx")
    )
    with OpenVINORuntime().load(artifact) as session:
        np.testing.assert_array_equal(
            session.infer({"x": np.asarray(array)})["y"], array, strict=True
        )


@pytest.mark.parametrize("dtype", ["STRING", "BFLOAT16"])
def test_other_tensors_are_refused_by_name(tmp_path: Path, dtype: str) -> None:
    helper = onnx.helper
    sides = [
        [helper.make_tensor_value_info(name, getattr(onnx.TensorProto, dtype), [2])]
        for name in ("x", "y")
    ]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", *sides)
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(tmp_path / "m.onnx"),
    )
    with pytest.raises(
        ArtifactError, match=r"m\.onnx: tensor '[xy]' is (string|bfloat16), which cannot"
    ) as caught:
        OpenVINORuntime().io_of(tmp_path / "m.onnx")
    assert_one_line(caught.value)


def rewritten(source: Artifact, path: Path, **changes: Any) -> Artifact:
    with zipfile.ZipFile(source.path) as archive, zipfile.ZipFile(path, "w") as copy:
        for name in archive.namelist():
            content = changes.get(
                name.partition(".")[0] + "_" + name.rpartition(".")[2], archive.read(name)
            )
            if content is not None:
                copy.writestr(name, content)
    return dataclasses.replace(source, path=path, sha256=compute_sha256(path))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model_xml": None}, "not of an OpenVINO model"),
        ({"model_bin": b"123"}, "cannot read it"),
        ({"model_xml": b"<net/>"}, "cannot read it"),
        ({"io_json": b"{}"}, "damaged"),
        ({"io_json": b"nonsense"}, "damaged"),
        ({"io_json": b'{"inputs": [], "outputs": []}'}, "damaged"),
        ({"io_json": b'{"inputs": [], "outputs": [], "taken": []}'}, "the file says 0 and 0"),
    ],
)
def test_an_archive_of_other_parts_is_refused(
    compiled: Artifact, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    broken = rewritten(compiled, tmp_path / "broken.openvino", **changes)
    with pytest.raises(ArtifactError, match=told) as caught:
        OpenVINORuntime().load(broken)
    assert str(broken.path) in str(caught.value)
    assert_one_line(caught.value)


def test_an_operation_that_it_cannot_read_is_named(shared_data: Path, tmp_path: Path) -> None:
    from nnpipe.formats.tflite import read_tflite
    from nnpipe.testing.session import assert_one_line

    source = shared_data / "models" / "tflm" / "trained_lstm.tflite"
    artifact = Artifact.create(source, "tflite", read_tflite(source).io)
    with pytest.raises(ArtifactError) as caught:
        OpenVINORuntime().load(artifact)
    assert_one_line(caught.value)
    told = (
        "OpenVINO cannot read operation UNIDIRECTIONAL_SEQUENCE_LSTM as the model uses it; another "
        "runtime may"
    )
    assert str(caught.value).endswith(told)


def test_what_openvino_says_of_an_operations_tensors_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from nnpipe.frameworks.openvino_models import _read

    said = (
        "Exception from src/inference/src/cpp/core.cpp:97:\nFrontEnd API failed with "
        "GeneralFailure:\nThis tensor should be either input, constant or should be already "
        "produced by previous operators: tfl.pseudo_qconst12. Error is encountered while working "
        "with operation of type UNIDIRECTIONAL_SEQUENCE_LSTM and name 4."
    )

    class Refusing:
        def read_model(self, **arguments: object) -> None:
            raise RuntimeError(said)

    monkeypatch.setattr("openvino.Core", Refusing)
    with pytest.raises(ArtifactError) as caught:
        _read(Path("a.tflite"), model="a.tflite")
    assert "pseudo_qconst" not in str(caught.value)
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in str(caught.value)
