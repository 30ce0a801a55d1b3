"""ONNX Runtime runs ONNX files, bound by name, and refuses what is none or reaches outside its
folder.
"""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.runtimes.openvino import OpenVINORuntime
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network
from nnpipe.testing.runtime import RuntimeContract

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def reference(path: Path, batch: Batch) -> dict[str, np.ndarray]:
    """What the ONNX project's own evaluator, which is written in numpy, makes of a batch."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(path))
    return dict(zip(evaluator.output_names, evaluator.run(None, dict(batch)), strict=True))


def write_model(
    path: Path,
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    constants: tuple[Any, ...] = (),
) -> Path:
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    onnx.save_model(model, str(path))
    return path


def value(name: str, shape: list[int | str | None] | None, dtype: str = "FLOAT") -> Any:
    return onnx.helper.make_tensor_value_info(name, getattr(onnx.TensorProto, dtype), shape)


def bare(path: Path, runtime: ONNXRuntime | None = None) -> Artifact:
    """Describe a file as it describes itself."""
    return Artifact.create(path, "onnx", (runtime or ONNXRuntime()).io_of(path))


class TestONNXRuntime(RuntimeContract):
    expected_atol = 1e-5

    @pytest.fixture
    def runtime(self) -> ONNXRuntime:
        return ONNXRuntime(num_threads=2, graph_optimisation="extended")

    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Artifact:
        return write_onnx_network(tmp_path / "network.onnx")

    @pytest.fixture
    def expected(self, artifact: Artifact, batch: Batch) -> Batch:
        return reference(artifact.path, batch)


class TestONNXRuntimeWithBinding(TestONNXRuntime):
    @pytest.fixture
    def runtime(self) -> ONNXRuntime:
        return ONNXRuntime(io_binding=True)


class TestTextTensors(RuntimeContract):
    """Text cannot be bound, so that these models take another way through ONNX Runtime."""

    @pytest.fixture
    def runtime(self) -> ONNXRuntime:
        return ONNXRuntime()

    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Artifact:
        node = onnx.helper.make_node("Concat", ["x", "y"], ["z"], axis=1)
        sides = (
            [value("x", ["n", 2], "STRING"), value("y", ["n", 1], "STRING")],
            [value("z", ["n", 3], "STRING")],
        )
        return bare(write_model(tmp_path / "text.onnx", [node], *sides))

    @pytest.fixture
    def batch(self) -> Batch:
        return {
            "x": np.array([["a", "bé"], ["", "d"]], object),
            "y": np.array([["e"], ["f"]], object),
        }

    @pytest.fixture
    def other_batch(self) -> Batch:
        return {
            "x": np.array([["k", "l"], ["m", "n"]], object),
            "y": np.array([["o"], ["p"]], object),
        }

    @pytest.fixture
    def expected(self, batch: Batch) -> Batch:
        return {"z": np.concatenate([batch["x"], batch["y"]], axis=1)}

    def test_the_results_are_those_expected(
        self, session: Any, batch: Batch, expected: Batch
    ) -> None:  # type: ignore[override]
        np.testing.assert_array_equal(session.infer(batch)["z"], expected["z"])

    def assert_same(self, found: Batch, expected: Batch) -> None:
        self.assert_identical(found, expected)

    def test_a_free_batch_axis_takes_any_size(self, session: Any) -> None:
        for size in (3, 1):
            found = session.infer(
                {"x": np.full((size, 2), "u", object), "y": np.full((size, 1), "v", object)}
            )
            assert found["z"].tolist() == [["u", "u", "v"]] * size


@pytest.mark.parametrize("level", ["none", "basic", "extended", "all"])
def test_every_level_of_optimisation_computes_the_same(tmp_path: Path, level: Any) -> None:
    artifact = write_onnx_network(tmp_path / "network.onnx")
    batch = {
        "image": np.ones((3, 1, 8, 8), "float32"),
        "extra": np.arange(9, dtype="float32").reshape(3, 3),
    }
    with ONNXRuntime(graph_optimisation=level).load(artifact) as session:
        found = session.infer(batch)
    for name, array in reference(artifact.path, batch).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)


def test_a_bare_file_says_what_it_takes_and_gives(tmp_path: Path) -> None:
    assert ONNXRuntime().io_of(write_onnx_network(tmp_path / "network.onnx").path) == NETWORK_IO


def test_outputs_whose_shape_depends_on_values_are_given_as_they_are(tmp_path: Path) -> None:
    node = onnx.helper.make_node("NonZero", ["x"], ["places"])
    path = write_model(
        tmp_path / "m.onnx", [node], [value("x", ["n", 4])], [value("places", [2, None], "INT64")]
    )
    with ONNXRuntime(io_binding=True).load(bare(path)) as session:
        for count in (1, 4, 0, 2):
            row = np.zeros((1, 4), "float32")
            row[0, :count] = 1
            assert session.infer({"x": row})["places"].tolist() == [[0] * count, list(range(count))]


def test_an_output_without_a_stated_shape_has_the_one_that_is_inferred(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Flatten", ["x"], ["y"])
    path = write_model(tmp_path / "m.onnx", [node], [value("x", ["n", 2, 3])], [value("y", None)])
    assert ONNXRuntime().io_of(path).outputs == (TensorSpec("y", (None, 6), "float32"),)


def test_the_quantisation_of_integer_inputs_and_outputs_is_read_from_the_file(
    tmp_path: Path,
) -> None:
    array = onnx.numpy_helper.from_array
    constants = (
        array(np.float32(0.5), "s"),
        array(np.uint8(7), "z"),
        array(np.float32(0.25), "t"),
        array(np.int8(-3), "v"),
    )
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        onnx.helper.make_node("QuantizeLinear", ["real", "t", "v"], ["y"]),
    ]
    path = write_model(
        tmp_path / "m.onnx",
        nodes,
        [value("x", ["n", 2], "UINT8")],
        [value("y", ["n", 2], "INT8")],
        constants,
    )
    found = ONNXRuntime().io_of(path)
    assert found.inputs == (TensorSpec("x", (None, 2), "uint8", 0.5, 7),)
    assert found.outputs == (TensorSpec("y", (None, 2), "int8", 0.25, -3),)
    with ONNXRuntime(io_binding=True).load(bare(path)) as session:
        assert session.infer({"x": np.array([[7, 9]], "uint8")})["y"].tolist() == [[-3, 1]]


def test_a_model_that_takes_no_plain_tensors_is_refused(tmp_path: Path) -> None:
    tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2])
    sequence = onnx.helper.make_value_info("x", onnx.helper.make_sequence_type_proto(tensor))
    node = onnx.helper.make_node("SequenceLength", ["x"], ["y"])
    path = write_model(tmp_path / "m.onnx", [node], [sequence], [value("y", [], "INT64")])
    with pytest.raises(
        ArtifactError, match=r"m\.onnx: 'x' is a seq\(tensor\(float\)\); only plain tensors"
    ):
        ONNXRuntime().io_of(path)


def test_a_failure_while_loading_is_told_without_the_codes_of_the_library(tmp_path: Path) -> None:
    node = onnx.helper.make_node("NoSuch", ["x"], ["y"], name="odd")
    path = write_model(tmp_path / "m.onnx", [node], [value("x", [2])], [value("y", [2])])
    with pytest.raises(
        ArtifactError, match=r"m\.onnx: ONNX Runtime cannot load it at NoSuch 'odd': "
    ) as caught:
        ONNXRuntime().io_of(path)
    assert "ONNXRuntimeError" not in str(caught.value)


def test_a_failure_while_running_names_file_and_node_and_what_to_try(tmp_path: Path) -> None:
    target = onnx.numpy_helper.from_array(np.array([2, 2], "int64"), "shape")
    node = onnx.helper.make_node("Reshape", ["x", "shape"], ["y"], name="to_pairs")
    path = write_model(
        tmp_path / "m.onnx", [node], [value("x", ["n"])], [value("y", ["k", 2])], (target,)
    )
    artifact = dataclasses.replace(
        bare(path), io=IOSpec(ONNXRuntime().io_of(path).inputs, ONNXRuntime().io_of(path).outputs)
    )
    with ONNXRuntime().load(artifact) as session:
        session.put({"x": np.ones(3, "float32")})
        with pytest.raises(
            ArtifactError, match=r"m\.onnx: ONNX Runtime cannot run it at Reshape 'to_pairs': "
        ) as caught:
            session.run()
        assert "\n" not in str(caught.value)
        assert "ONNXRuntimeError" not in str(caught.value)
        assert str(caught.value).startswith(f"{path}: ")
        assert str(caught.value).endswith(
            "; nnpipe reduce finds the part of the model on which it fails"
        )
        assert session.infer({"x": np.ones(4, "float32")})["y"].shape == (2, 2)


@pytest.mark.parametrize(
    "location", ["../outside.bin", "/etc/hostname", "sub/../../outside.bin", "link.bin"]
)
def test_weights_outside_the_models_own_folder_are_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "outside.bin").write_bytes(bytes(4096))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    path = write_onnx_network(folder / "network.onnx").path
    external(path, location)
    with pytest.raises(ArtifactError, match="outside its own folder") as caught:
        ONNXRuntime().load(Artifact.create(path, "onnx", NETWORK_IO))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("location", ["gone.bin", "*/_ORT_MEM_ADDR_/*", ""])
def test_weights_that_are_not_there_are_named(tmp_path: Path, location: str) -> None:
    path = write_onnx_network(tmp_path / "network.onnx").path
    external(path, location)
    with pytest.raises(ArtifactError, match="with its weights is missing") as caught:
        ONNXRuntime().load(Artifact.create(path, "onnx", NETWORK_IO))
    assert str(path) in str(caught.value)


def test_weights_in_files_beside_the_model_are_used(tmp_path: Path) -> None:
    path = write_onnx_network(tmp_path / "network.onnx").path
    batch = {"image": np.ones((1, 1, 8, 8), "float32"), "extra": np.ones((1, 3), "float32")}
    expected = reference(path, batch)
    onnx.save_model(
        onnx.load_model(path),
        str(path),
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    assert (tmp_path / "weights.bin").stat().st_size
    with ONNXRuntime().load(Artifact.create(path, "onnx", NETWORK_IO)) as session:
        np.testing.assert_allclose(session.infer(batch)["scores"], expected["scores"], rtol=1e-5)


def external(path: Path, location: str) -> None:
    """Say that the first weight of a model lies in another file."""
    model = onnx.load_model(path)
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    weight.external_data.add(key="length", value="216")
    path.write_bytes(model.SerializeToString())


def test_a_gpu_that_this_runtime_cannot_use_is_refused(tmp_path: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("ONNX Runtime can use a GPU here")
    artifact = write_onnx_network(tmp_path / "network.onnx")
    with pytest.raises(ConfigError, match="pip install onnxruntime-gpu"):
        ONNXRuntime(device="cuda").load(artifact)


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # ONNX Runtime warns of a stated shape that differs from the inferred one.
    node = onnx.helper.make_node("Flatten", ["x"], ["y"])
    path = write_model(
        tmp_path / "m.onnx", [node], [value("x", ["n", 2, 3])], [value("y", ["n", 5])]
    )
    with ONNXRuntime(io_binding=True).load(bare(path)) as session:
        session.infer({"x": np.ones((2, 2, 3), "float32")})
    assert capfd.readouterr() == ("", "")


def test_the_mnist_network_is_as_accurate_as_published(shared_data: Path) -> None:
    def idx(name: str, header: int) -> np.ndarray:
        return np.frombuffer(gzip.decompress((shared_data / "mnist" / name).read_bytes()), "uint8")[
            header:
        ]

    images = idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 1, 1, 28, 28).astype("float32") / 255
    labels = idx("t10k-labels-idx1-ubyte.gz", 8)
    path = shared_data / "models" / "mnist-8.onnx"
    io = ONNXRuntime().io_of(path)
    name = io.inputs[0].name
    with ONNXRuntime().load(Artifact(path, "onnx", io, "")) as session:
        found = [session.infer({name: image})[io.outputs[0].name].argmax() for image in images]
    assert np.mean(np.array(found) == labels) == pytest.approx(0.989, abs=0.0005)


@pytest.mark.parametrize(
    "given", [ONNXRuntime(), OpenVINORuntime(), ONNXRuntime(exact_integers=False)]
)
def test_products_with_weights_of_4_bits_are_exact_unless_that_is_not_asked_for(
    tmp_path: Path, given: Runtime
) -> None:
    if given.missing():
        pytest.skip("OpenVINO is not installed")
    random = np.random.default_rng(0)
    levels, scales = (
        random.integers(-7, 8, (128, 32)),
        random.uniform(0.01, 0.1, (4, 32)).astype(np.float32),
    )
    nodes = [
        onnx.helper.make_node(
            "DequantizeLinear", ["levels", "scales"], ["w"], axis=0, block_size=32
        ),
        onnx.helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    constants = [
        onnx.helper.make_tensor(
            "levels", onnx.TensorProto.INT4, [128, 32], levels.ravel().tolist()
        ),
        onnx.numpy_helper.from_array(scales, "scales"),
    ]
    graph = onnx.helper.make_graph(
        nodes, "g", [value("x", ["n", 128])], [value("y", ["n", 32])], constants
    )
    path = tmp_path / "blocks.onnx"
    opset = [onnx.helper.make_opsetid("", 21)]
    onnx.save_model(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), str(path))
    x = random.standard_normal((5, 128)).astype(np.float32)
    expected = x @ (levels * np.repeat(scales, 32, 0)).astype(np.float32)
    with given.load(bare(path)) as session:
        off = np.abs(session.infer({"x": x})["y"] - expected).max() / np.abs(expected).max()
    assert off < (0.1 if given == ONNXRuntime(exact_integers=False) else 1e-6)
