"""OpenVINO models compute what their ONNX or TensorFlow Lite source computes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from network_contracts import ONNXNetworkContract, onnx_reference

from nnpipe.compilers.openvino import OpenVINOCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError, ConfigError, MissingDependency
from nnpipe.core.tensors import Batch, generate_random_batch
from nnpipe.frameworks.openvino_models import read_model
from nnpipe.runtimes.openvino import OpenVINORuntime
from nnpipe.testing.compiler import run_compiled
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network, write_tflite_difference
from nnpipe.testing.session import assert_one_line

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
needs("openvino")


def samples(count: int) -> list[Batch]:
    return [generate_random_batch(NETWORK_IO, 1, seed) for seed in range(count)]


class TestOpenVINOCompiler(ONNXNetworkContract):
    tolerance = 1e-5

    @pytest.fixture
    def compiler(self) -> OpenVINOCompiler:
        return OpenVINOCompiler()

    @pytest.fixture
    def runtime(self) -> OpenVINORuntime:
        return OpenVINORuntime()


@pytest.mark.slow
class TestHalfPrecision(TestOpenVINOCompiler):
    tolerance = 0.02  # of outputs between -14 and 7

    @pytest.fixture
    def compiler(self) -> OpenVINOCompiler:
        return OpenVINOCompiler(precision="fp16")


@pytest.mark.slow
class TestIntegers(TestOpenVINOCompiler):
    tolerance = 0.6  # of outputs between -14 and 7
    agreement = 0.95

    @pytest.fixture
    def compiler(self) -> OpenVINOCompiler:
        pytest.importorskip("nncf", reason="NNCF is not installed")
        return OpenVINOCompiler(
            precision="int8",
            activation_preset="mixed",
            activation_range="minmax",
            bias_correction="accurate",
        )

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        return samples(60)


@pytest.mark.slow
class TestTFLite(TestOpenVINOCompiler):
    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Artifact:
        pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
        return write_tflite_difference(tmp_path / "difference.tflite")

    @pytest.fixture
    def batches(self, artifact: Artifact) -> Sequence[Batch]:
        return [generate_random_batch(artifact.io, size, seed=size) for size in (1, 5)]

    @pytest.fixture
    def expected(self, artifact: Artifact, batches: Sequence[Batch]) -> Sequence[Batch]:
        return [{"difference": batch["first"] - batch["second"]} for batch in batches]


def test_integers_stay_close_and_make_the_weights_small(tmp_path: Path) -> None:
    pytest.importorskip("nncf", reason="NNCF is not installed")
    source = write_onnx_network(tmp_path / "network.onnx")
    made = OpenVINOCompiler(precision="int8").compile(
        source, tmp_path / "made.openvino", lambda: samples(40)
    )
    assert b'type="FakeQuantize"' in made.path.read_bytes()
    found = run_compiled(OpenVINORuntime(), made, NETWORK_IO, samples(40))
    expected = onnx_reference(source.path, samples(40))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one["scores"], other["scores"], rtol=0, atol=2)


@pytest.mark.parametrize(("overflows", "bits"), [(True, 7), (False, 8)])
def test_how_many_bits_weights_have_is_told(
    overflows: bool, bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nncf", reason="NNCF is not installed")
    monkeypatch.setattr("nnpipe.compilers.openvino.has_saturating_byte_sums", lambda: overflows)
    source = write_onnx_network(tmp_path / "network.onnx")
    made = OpenVINOCompiler(precision="int8").compile(
        source, tmp_path / "made.openvino", lambda: samples(3)
    )
    assert made.outcome == {"weight_bits": bits}


def test_other_peoples_log_handlers_are_left_alone(tmp_path: Path) -> None:
    # and imports it, which sets its logger's level
    pytest.importorskip("nncf", reason="NNCF is not installed")
    source = write_onnx_network(tmp_path / "network.onnx")
    logger, handler = logging.getLogger("nncf"), logging.NullHandler()
    level = logger.level
    logger.addHandler(handler)
    try:
        OpenVINOCompiler(precision="int8").compile(
            source, tmp_path / "made.openvino", lambda: samples(3)
        )
    finally:
        logger.removeHandler(handler)
    assert (handler.level, logger.level) == (logging.NOTSET, level)


def test_weights_in_half_precision_take_less_room(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    helper, weights = onnx.helper, rng.standard_normal((256, 256)).astype("float32")
    sides = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 256])]
        for name in ("x", "y")
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        *sides,
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save_model(model, str(tmp_path / "m.onnx"))
    source = Artifact.create(
        tmp_path / "m.onnx", "onnx", OpenVINORuntime().io_of(tmp_path / "m.onnx")
    )
    sizes: dict[str, int] = {}
    for precision in ("fp32", "fp16"):
        compiler = OpenVINOCompiler(precision=precision)  # type: ignore[arg-type]
        sizes[precision] = compiler.compile(source, tmp_path / f"{precision}.openvino").size
    assert sizes["fp32"] - sizes["fp16"] > 0.95 * weights.nbytes / 2


def test_integers_say_that_they_need_nncf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)
    source = write_onnx_network(tmp_path / "network.onnx")
    with pytest.raises(MissingDependency, match=r"nncf.*pip install") as caught:
        OpenVINOCompiler(precision="int8").compile(
            source, tmp_path / "made.openvino", lambda: samples(3)
        )
    assert_one_line(caught.value)


@pytest.fixture
def ill_matched(tmp_path: Path) -> tuple[Artifact, list[Batch]]:
    """A model and samples for it of lengths that do not go together, which only running it
    shows.
    """
    helper = onnx.helper
    inputs, outputs = (
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in side.items()
        ]
        for side in ({"x": ["n", 4], "z": ["n", "k"]}, {"y": ["n", 3]})
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Add", ["m", "z"], ["y"]),
    ]
    weights = onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weights])
    path = tmp_path / "m.onnx"
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    batch = {"x": np.ones((1, 4), np.float32), "z": np.ones((1, 5), np.float32)}
    return Artifact.create(path, "onnx", OpenVINORuntime().io_of(path)), [batch]


def test_why_nncf_cannot_quantise_is_told_with_the_operator(
    ill_matched: tuple[Artifact, list[Batch]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nncf = pytest.importorskip("nncf", reason="NNCF is not installed")
    source, batches = ill_matched

    def said(compiler: OpenVINOCompiler) -> str:
        with pytest.raises(CompileError) as caught:
            compiler.compile(source, tmp_path / "made.openvino", lambda: batches)
        assert_one_line(caught.value)
        assert not list(tmp_path.glob("*made*"))
        return str(caught.value)

    told = said(OpenVINOCompiler(precision="int8"))
    assert "m.onnx: NNCF cannot quantise it (at Add 'y'): " in told
    assert "mismatch" in told
    assert told.endswith("; try --model-type transformer, or --precision fp16")

    def fails(*_: object, **__: object) -> None:
        raise KeyError("product")

    monkeypatch.setattr(nncf, "quantize", fails)
    told = said(OpenVINOCompiler(precision="int8", model_type="transformer"))
    assert (
        "NNCF cannot quantise it (at MatMul 'product'): KeyError: 'product'; try --model-type "
        "other, or " in told
    )


def test_weights_that_are_reshaped_in_the_model_become_integers(tmp_path: Path) -> None:
    from nnpipe.core.artifact import Artifact
    from nnpipe.formats.onnx import read_onnx
    from nnpipe.testing.compiler import run_compiled

    pytest.importorskip("nncf", reason="NNCF is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper, kind = onnx.helper, onnx.TensorProto
    weights = np.random.default_rng(0).standard_normal((4, 2, 2, 5)).astype(np.float32)
    nodes = [
        helper.make_node("Reshape", ["w", "flat"], ["matrix"]),  # as the ONNX zoo's mnist-8 has it
        helper.make_node("MatMul", ["x", "matrix"], ["y"]),
    ]
    constants = [
        onnx.numpy_helper.from_array(weights, "w"),
        onnx.numpy_helper.from_array(np.array([16, 5], np.int64), "flat"),
    ]
    sides = [
        helper.make_tensor_value_info(n, kind.FLOAT, [1, length])
        for n, length in (("x", 16), ("y", 5))
    ]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(tmp_path / "model.onnx"))
    source = Artifact.create(
        tmp_path / "model.onnx", "onnx", read_onnx(tmp_path / "model.onnx").io()
    )
    seen = [
        {"x": np.random.default_rng(n).standard_normal((1, 16)).astype(np.float32)}
        for n in range(20)
    ]
    compiler = OpenVINOCompiler(precision="int8", activation_range="minmax")
    made = compiler.compile(source, tmp_path / "made.openvino", lambda: seen)
    found = run_compiled(OpenVINORuntime(), made, made.io, seen)
    for batch, outputs in zip(seen, found, strict=True):
        np.testing.assert_allclose(outputs["y"], batch["x"] @ weights.reshape(16, 5), atol=0.5)


def test_a_bias_with_fewer_axes_than_its_convolution_is_corrected(tmp_path: Path) -> None:
    from nnpipe.formats.onnx import read_onnx

    pytest.importorskip("nncf", reason="NNCF is not installed")
    helper, kind, random = onnx.helper, onnx.TensorProto, np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["z"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["z", "bias"], ["y"]),  # as the ONNX zoo's mnist-8 has it
    ]
    kernel, bias = random.standard_normal((8, 3, 3, 3)), random.standard_normal((8, 1, 1))
    constants = [
        onnx.numpy_helper.from_array(a.astype(np.float32), n)
        for a, n in ((kernel, "kernel"), (bias, "bias"))
    ]
    sides = [
        helper.make_tensor_value_info(n, kind.FLOAT, [1, c, 6, 6]) for n, c in (("x", 3), ("y", 8))
    ]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(tmp_path / "model.onnx"))
    source = Artifact.create(
        tmp_path / "model.onnx", "onnx", read_onnx(tmp_path / "model.onnx").io()
    )
    seen = [
        {"x": np.random.default_rng(n).standard_normal((1, 3, 6, 6)).astype(np.float32)}
        for n in range(20)
    ]
    made = OpenVINOCompiler(precision="int8").compile(
        source, tmp_path / "made.openvino", lambda: seen
    )
    floats = OpenVINOCompiler().compile(source, tmp_path / "floats.openvino")
    wanted_outputs = run_compiled(OpenVINORuntime(), floats, floats.io, seen)
    for wanted, found in zip(
        wanted_outputs, run_compiled(OpenVINORuntime(), made, made.io, seen), strict=True
    ):
        error = np.mean(np.square(found["y"] - wanted["y"])) / np.mean(np.square(wanted["y"]))
        assert error < 0.02


@pytest.mark.slow
def test_tensors_kept_in_floats_are_not_rounded(tmp_path: Path) -> None:
    pytest.importorskip("nncf", reason="NNCF is not installed")
    source = write_onnx_network(tmp_path / "network.onnx")

    def rounded(**arguments: Any) -> set[str]:
        compiler = OpenVINOCompiler(precision="int8", **arguments)
        made = compiler.compile(source, tmp_path / "made.openvino", lambda: samples(20))
        operations = read_model(made.path, "openvino").native.get_ordered_ops()
        taken = [
            each.input_value(0) for each in operations if each.get_type_name() == "FakeQuantize"
        ]
        return {name for port in taken for name in port.get_names()}

    plain, mixed = rounded(), rounded(keep_float=("relu",))
    assert {"image", "relu"} < plain
    assert "image" in mixed
    assert mixed.isdisjoint(("conv", "relu", "pool", "flat"))
    with pytest.raises(ConfigError, match="near it are 'relu'"):
        rounded(keep_float=("rlu",))


@pytest.mark.slow
def test_a_channel_of_small_weights_beside_a_large_one_is_not_lost(tmp_path: Path) -> None:
    from nnpipe.formats.onnx import read_onnx

    pytest.importorskip("nncf", reason="NNCF is not installed")
    helper, kind = onnx.helper, onnx.TensorProto
    weights = np.random.default_rng(0).standard_normal((8, 4)) * [1e6, 1, 1, 1e-6]
    sides = [helper.make_tensor_value_info(n, kind.FLOAT, [1, c]) for n, c in (("x", 8), ("y", 4))]
    node, constant = helper.make_node("MatMul", ["x", "w"], ["y"]), weights.astype(np.float32)
    graph = helper.make_graph(
        [node], "g", sides[:1], sides[1:], [onnx.numpy_helper.from_array(constant, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(tmp_path / "model.onnx"))
    source = Artifact.create(
        tmp_path / "model.onnx", "onnx", read_onnx(tmp_path / "model.onnx").io()
    )
    seen = [
        {"x": np.random.default_rng(n).standard_normal((1, 8)).astype(np.float32)}
        for n in range(20)
    ]
    compiler = OpenVINOCompiler(precision="int8", activation_range="minmax")
    made = compiler.compile(source, tmp_path / "made.openvino", lambda: seen)
    wanted = np.concatenate([batch["x"] @ constant for batch in seen])
    found = np.concatenate(
        [each["y"] for each in run_compiled(OpenVINORuntime(), made, made.io, seen)]
    )
    error = np.square(found - wanted).mean(0) / np.square(wanted).mean(0)
    assert (error < 0.01).all(), error
