"""ONNX models in 8 bits stay close to their source, and say how their integers are to be read."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network_contracts import ONNXNetworkContract

from nnpipe.compilers.onnx_optimizer import ONNXRuntimeOptimizer
from nnpipe.compilers.onnx_quantizer import ONNXDynamicQuantizer, ONNXStaticQuantizer
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, generate_random_batch
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.compiler import run_compiled
from nnpipe.testing.model_files import NETWORK_IO, write_onnx_network

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def samples(count: int) -> list[Batch]:
    return [generate_random_batch(NETWORK_IO, 1, seed) for seed in range(count)]


class QuantizerContract(ONNXNetworkContract):
    agreement = 0.95
    samples = samples(100)

    @pytest.fixture
    def expected(
        self, artifact: Artifact, runtime: ONNXRuntime, batches: Sequence[Batch]
    ) -> Sequence[Batch]:
        return run_compiled(runtime, artifact, artifact.io, batches)


class TestONNXStaticQuantizer(QuantizerContract):
    tolerance = 0.6  # of outputs between -14 and 7

    @pytest.fixture
    def compiler(self) -> ModelCompiler:
        return ONNXStaticQuantizer(reduce_range=True, percentile=99.9)


class TestIntegerInputsAndOutputs(QuantizerContract):
    tolerance = 0.6

    @pytest.fixture
    def compiler(self) -> ModelCompiler:
        return ONNXStaticQuantizer(
            inference_input_type="int8",
            inference_output_type="uint8",
            activation_type="int8",
            per_channel=False,
        )


class TestONNXDynamicQuantizer(QuantizerContract):
    tolerance = 0.6

    @pytest.fixture
    def compiler(self) -> ModelCompiler:
        return ONNXDynamicQuantizer(weight_type="uint8", per_channel=False, reduce_range=True)

    def test_it_needs_no_samples(self, compiler: ModelCompiler) -> None:
        assert not compiler.needs_calibration()


@pytest.fixture
def source(tmp_path: Path) -> Artifact:
    return write_onnx_network(tmp_path / "network.onnx")


@pytest.fixture
def quantised(source: Artifact, tmp_path: Path) -> Callable[..., Artifact]:
    def quantise(**arguments: Any) -> Artifact:
        return ONNXStaticQuantizer(**arguments).compile(
            source, tmp_path / "made.onnx", lambda: samples(60)
        )

    return quantise


@pytest.mark.parametrize("activation", ["int8", "uint8"])
@pytest.mark.parametrize("given", ["int8", "uint8"])
@pytest.mark.parametrize("taken", ["int8", "uint8"])
def test_integers_are_the_real_numbers_of_the_plain_model_quantised(
    quantised: Callable[..., Artifact], activation: Any, given: Any, taken: Any
) -> None:
    """All that changes is who rounds: the model, or whoever calls it."""
    plain = quantised(activation_type=activation)
    with ONNXRuntime(graph_optimisation="none").load(plain) as session:
        expected = [session.infer(batch) for batch in samples(20)]
    made = quantised(
        activation_type=activation, inference_input_type=taken, inference_output_type=given
    )
    assert [spec.dtype for spec in made.io.inputs] == [taken] * 2
    assert [spec.dtype for spec in made.io.outputs] == [given] * 2
    assert all(spec.quantised for spec in made.io)
    found = run_compiled(ONNXRuntime(graph_optimisation="none"), made, NETWORK_IO, samples(20))
    for one, other in zip(found, expected, strict=True):
        for name, array in one.items():
            np.testing.assert_allclose(array, other[name], rtol=1e-6, atol=1e-6)


def test_samples_outside_the_range_of_calibration_saturate(
    quantised: Callable[..., Artifact],
) -> None:
    made = quantised(inference_input_type="int8", inference_output_type="int8")
    huge = {name: array * 1e6 for name, array in samples(1)[0].items()}
    (found,) = run_compiled(ONNXRuntime(), made, NETWORK_IO, [huge])
    assert all(np.abs(array).max() < 100 for array in found.values())


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_every_method_of_calibration_gives_a_usable_model(
    source: Artifact, tmp_path: Path, method: Any
) -> None:
    compiler = ONNXStaticQuantizer(calibration_method=method)
    made = compiler.compile(source, tmp_path / "made.onnx", lambda: samples(60))
    before, after = (
        run_compiled(ONNXRuntime(), one, NETWORK_IO, samples(60)) for one in (source, made)
    )
    same = [
        one["scores"].argmax() == other["scores"].argmax()
        for one, other in zip(before, after, strict=True)
    ]
    assert np.mean(same) >= 0.9


def test_the_range_of_percentile_leaves_outliers_out(source: Artifact, tmp_path: Path) -> None:
    def with_an_outlier() -> list[Batch]:
        spoiled = {name: array.copy() for name, array in samples(1)[0].items()}
        spoiled["image"][0, 0, 0, 0] = 1000
        return [*samples(60), spoiled]

    steps = {}
    for method in ("minmax", "percentile"):
        compiler = ONNXStaticQuantizer(
            calibration_method=method, percentile=99.0, inference_input_type="int8"
        )  # type: ignore[arg-type]
        made = compiler.compile(source, tmp_path / "made.onnx", with_an_outlier)
        steps[method] = next(spec.scale for spec in made.io.inputs if spec.name == "image")
    assert steps["minmax"] > 3.9
    assert steps["percentile"] < 0.1


def test_a_reshaped_input_can_be_an_integer_too(tmp_path: Path) -> None:
    """As in models from Keras, whose axes are turned before the first convolution."""
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    nodes = [
        helper.make_node("Transpose", ["pixels/x:0"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w"], ["y"]),
    ]
    io = IOSpec(
        (TensorSpec("pixels/x:0", (None, 8, 8, 3), "float32"),),
        (TensorSpec("y", (None, 4, 6, 6), "float32"),),
    )
    sides = [
        [
            helper.make_tensor_value_info(s.name, onnx.TensorProto.FLOAT, ["n", *s.shape[1:]])
            for s in side
        ]
        for side in (io.inputs, io.outputs)
    ]
    graph = helper.make_graph(nodes, "g", *sides, [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save_model(model, str(tmp_path / "m.onnx"))
    source = Artifact.create(tmp_path / "m.onnx", "onnx", io)
    given = [generate_random_batch(io, 1, seed) for seed in range(20)]
    compiler = ONNXStaticQuantizer(inference_input_type="uint8", inference_output_type="int8")
    made = compiler.compile(source, tmp_path / "made.onnx", lambda: given)
    assert [spec.dtype for spec in made.io] == ["uint8", "int8"]
    before, after = (run_compiled(ONNXRuntime(), one, io, given) for one in (source, made))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one["y"], other["y"], atol=0.6)


def test_what_is_not_quantised_cannot_become_an_integer(tmp_path: Path) -> None:
    helper = onnx.helper
    sides = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4])] for name in "xy"
    ]
    graph = helper.make_graph([helper.make_node("Erf", ["x"], ["y"])], "g", *sides)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save_model(model, str(tmp_path / "m.onnx"))
    io = ONNXRuntime().io_of(tmp_path / "m.onnx")
    source = Artifact.create(tmp_path / "m.onnx", "onnx", io)
    for side, name in (("input", "x"), ("output", "y")):
        compiler = ONNXStaticQuantizer(**{f"inference_{side}_type": "int8"})
        with pytest.raises(
            CompileError, match=rf"m\.onnx: {side} '{name}' is not quantised.*leave it float32$"
        ):
            compiler.compile(source, tmp_path / "made.onnx", lambda: [generate_random_batch(io, 1)])
    assert not (tmp_path / "made.onnx").exists()


def test_types_that_no_kernel_multiplies_are_refused() -> None:
    with pytest.raises(ConfigError, match="int8 activations need int8 weights"):
        ONNXStaticQuantizer(activation_type="int8", weight_type="uint8")


def test_quantisers_and_the_optimiser_chain(source: Artifact, tmp_path: Path) -> None:
    first = ONNXRuntimeOptimizer(optimisation_level="basic").compile(source, tmp_path / "1.onnx")
    second = ONNXStaticQuantizer(inference_input_type="int8", inference_output_type="int8").compile(
        first, tmp_path / "2.onnx", lambda: samples(30)
    )
    third = ONNXRuntimeOptimizer(optimisation_level="extended").compile(second, tmp_path / "3.onnx")
    # Fusing may swallow the nodes that scales are read from; the description still knows them.
    assert third.io == second.io
    assert third.parent is not None
    assert third.parent.parent == first
    before, after = (
        run_compiled(ONNXRuntime(), one, NETWORK_IO, samples(5)) for one in (second, third)
    )
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one["scores"], other["scores"], atol=0.15)


@pytest.mark.parametrize(
    "compiler", [ONNXStaticQuantizer(), ONNXDynamicQuantizer()], ids=["static", "dynamic"]
)
def test_weights_that_lie_across_are_turned(
    source: Artifact, tmp_path: Path, compiler: ModelCompiler
) -> None:
    """As PyTorch exports them, with their shapes stated once more beside them."""
    model = onnx.load_model(source.path)
    for constant in model.graph.initializer:
        if constant.name == "dense":
            turned = onnx.numpy_helper.from_array(
                onnx.numpy_helper.to_array(constant).T.copy(), "dense"
            )
            constant.CopyFrom(turned)
        stated = onnx.helper.make_tensor_value_info(
            constant.name, constant.data_type, list(constant.dims)
        )
        model.graph.value_info.append(stated)
    (gemm,) = (node for node in model.graph.node if node.op_type == "Gemm")
    gemm.attribute.append(onnx.helper.make_attribute("transB", 1))
    onnx.save_model(model, str(tmp_path / "across.onnx"))
    across = Artifact.create(tmp_path / "across.onnx", "onnx", NETWORK_IO)
    made = compiler.compile(across, tmp_path / "made.onnx", lambda: samples(60))
    before, after = (
        run_compiled(ONNXRuntime(), one, NETWORK_IO, samples(60)) for one in (source, made)
    )
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one["scores"], other["scores"], atol=0.6)


def test_the_mnist_network_keeps_its_accuracy_in_8_bits(shared_data: Path, tmp_path: Path) -> None:
    """An old file: operator set 8, weights among its inputs, a bias that is a row."""

    def idx(name: str, header: int) -> np.ndarray:
        return np.frombuffer(gzip.decompress((shared_data / "mnist" / name).read_bytes()), "uint8")[
            header:
        ]

    def images(name: str, count: int) -> np.ndarray:
        return idx(name, 16).reshape(-1, 1, 1, 28, 28)[:count].astype("float32") / 255

    path = tmp_path / "mnist-8.onnx"
    path.write_bytes((shared_data / "models" / "mnist-8.onnx").read_bytes())
    io = ONNXRuntime().io_of(path)
    source, labels = Artifact.create(path, "onnx", io), idx("t10k-labels-idx1-ubyte.gz", 8)[:2000]
    test = [{io.inputs[0].name: image} for image in images("t10k-images-idx3-ubyte.gz", 2000)]
    train = [{io.inputs[0].name: image} for image in images("train-images-idx3-ubyte.gz", 100)]
    for compiler in (
        ONNXStaticQuantizer(inference_input_type="uint8", inference_output_type="int8"),
        ONNXDynamicQuantizer(),
    ):
        made = compiler.compile(source, tmp_path / "made.onnx", lambda: train)
        found = run_compiled(ONNXRuntime(), made, io, test)
        right = [
            batch[io.outputs[0].name].argmax() == label
            for batch, label in zip(found, labels, strict=True)
        ]
        assert np.mean(right) >= 0.978  # 0.983 before


def write_graph(
    path: Path, nodes: Sequence[Any], weights: Sequence[str], vectors: Sequence[str]
) -> Artifact:
    """Write ``x`` ``(1, 6, 8)`` to ``y`` of the same shape through nodes with square weights and
    vectors.
    """
    random = np.random.default_rng(0)
    arrays = {
        **{name: random.standard_normal((8, 8)).astype("float32") / 3 for name in weights},
        **{name: random.standard_normal(8).astype("float32") for name in vectors},
        "one": np.ones(8, "float32"),
        "heads": np.array([0, 6, 2, 4]),
        "joined": np.array([0, 6, 8]),
    }
    used = {name for node in nodes for name in node.input}
    constants = [
        onnx.numpy_helper.from_array(array, name) for name, array in arrays.items() if name in used
    ]
    io = [onnx.helper.make_tensor_value_info(name, 1, [1, 6, 8]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "products", io[:1], io[1:], constants)
    opsets = [onnx.helper.make_opsetid("", 18)]
    onnx.save_model(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return Artifact.create(path, "onnx", ONNXRuntime().io_of(path))


def test_there_must_be_something_to_quantise(tmp_path: Path) -> None:
    node = onnx.helper.make_node
    sums = write_graph(tmp_path / "sum.onnx", [node("Add", ["x", "b"], ["y"])], [], ["b"])
    with pytest.raises(
        CompileError, match=r"there is no .*MatMul.* to quantise; --operator-types names others"
    ):
        ONNXDynamicQuantizer().compile(sums, tmp_path / "made.onnx", list)
    assert not (tmp_path / "made.onnx").exists()
    product = write_graph(tmp_path / "product.onnx", [node("MatMul", ["x", "w"], ["y"])], ["w"], [])
    made = ONNXDynamicQuantizer().compile(product, tmp_path / "made.onnx", list)
    assert "DynamicQuantizeLinear" in {
        node.op_type for node in onnx.load_model(made.path).graph.node
    }


def test_products_that_are_fused_in_two_steps_load(tmp_path: Path) -> None:
    """ONNX Runtime refuses names that it made itself: the products before the heads are fused only
    at loading.

    It also computes something else where one bias, ``b``, is added to two products and only one has
    been fused.
    """
    node = onnx.helper.make_node
    nodes = [node("LayerNormalization", ["x", "one", "shift"], ["normal"])]
    for name in "qkv":
        nodes += [
            node("MatMul", ["normal", f"w{name}"], [f"product_{name}"]),
            node("Add", [f"product_{name}", f"b{name}"], [f"sum_{name}"]),
            node("Reshape", [f"sum_{name}", "heads"], [f"heads_{name}"]),
            node(
                "Transpose",
                [f"heads_{name}"],
                [name],
                perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3],
            ),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["shares"]),
        node("MatMul", ["shares", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "joined"], ["whole"]),
        node("MatMul", ["whole", "w"], ["product"]),
        node("Add", ["product", "b"], ["sum"]),
        node("Add", ["sum", "normal"], ["both"]),
        node("LayerNormalization", ["both", "one", "shift"], ["again"]),
        node("MatMul", ["again", "last"], ["last_product"]),
        node("Add", ["last_product", "b"], ["y"]),
    ]
    weights, vectors = ("wq", "wk", "wv", "w", "last"), ("bq", "bk", "bv", "b", "shift")
    source = write_graph(tmp_path / "model.onnx", nodes, weights, vectors)
    batches = [generate_random_batch(source.io, 1, seed) for seed in range(20)]
    made = ONNXStaticQuantizer().compile(source, tmp_path / "made.onnx", lambda: batches)
    before, after = (run_compiled(ONNXRuntime(), one, source.io, batches) for one in (source, made))
    errors = [
        np.abs(one["y"] - other["y"]).mean() for one, other in zip(before, after, strict=True)
    ]
    assert max(errors) < 0.05  # of outputs between -5 and 5


def test_a_product_is_not_rounded_before_its_bias(tmp_path: Path) -> None:
    """The sum is rounded to nearly the same steps, so that a bias below half a step would have
    no effect.
    """
    node = onnx.helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["product"], name="product"),
        node("Add", ["product", "b"], ["sum"], name="sum"),
        node("Sigmoid", ["sum"], ["y"], name="sigmoid"),
    ]
    path = write_graph(tmp_path / "model.onnx", nodes, ["w"], ["b"]).path
    model = onnx.load_model(path)
    # with four axes, ONNX Runtime does not make them one node
    for value in (*model.graph.input, *model.graph.output):
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, 1, ["n", 2, 3, 8]))
    onnx.save_model(model, path)
    source = Artifact.create(path, "onnx", ONNXRuntime().io_of(path))
    batches = [generate_random_batch(source.io, 1, seed) for seed in range(20)]
    made = ONNXStaticQuantizer().compile(source, tmp_path / "made.onnx", lambda: batches)
    makers = {
        name: each.op_type for each in onnx.load_model(made.path).graph.node for name in each.output
    }
    assert makers["product"] == "MatMul"
    (added,) = (each for each in onnx.load_model(made.path).graph.node if each.op_type == "Add")
    assert "product" in added.input
    before, after = (run_compiled(ONNXRuntime(), one, source.io, batches) for one in (source, made))
    assert (
        max(np.abs(one["y"] - other["y"]).mean() for one, other in zip(before, after, strict=True))
        < 0.02
    )


def test_normalisations_may_share_a_bias(tmp_path: Path) -> None:
    """ONNX Runtime names the copy of the bias ``shift0``, whatever else has that name."""
    node = onnx.helper.make_node
    nodes = [
        node("LayerNormalization", ["x", "one", "shift"], ["normal"], name="first"),
        node("Reshape", ["normal", "heads"], ["shift0"], name="reshape"),
        node("Sigmoid", ["shift0"], ["positive"], name="sigmoid"),
        node("Reshape", ["positive", "joined"], ["again"], name="reshape_back"),
        node("LayerNormalization", ["again", "one", "shift"], ["y"], name="second"),
    ]
    source = write_graph(tmp_path / "model.onnx", nodes, [], ["shift"])
    batches = [generate_random_batch(source.io, 1, seed) for seed in range(20)]
    made = ONNXStaticQuantizer().compile(source, tmp_path / "made.onnx", lambda: batches)
    before, after = (run_compiled(ONNXRuntime(), one, source.io, batches) for one in (source, made))
    errors = [
        np.abs(one["y"] - other["y"]).mean() for one, other in zip(before, after, strict=True)
    ]
    assert max(errors) < 0.05  # of outputs between -3 and 3


def test_a_weight_used_twice_loads_without_exact_integers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """On processors without VNNI, ONNX Runtime refuses such models with the option for exact
    integers.
    """
    monkeypatch.setattr("nnpipe.frameworks.onnxruntime.has_saturating_byte_sums", lambda: True)
    node = onnx.helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="first"),
        node("Relu", ["a"], ["b"], name="relu"),
        node("MatMul", ["b", "w"], ["y"], name="second"),
    ]
    source = write_graph(tmp_path / "model.onnx", nodes, ["w"], [])
    batches = [generate_random_batch(source.io, 1, seed) for seed in range(20)]
    made = ONNXStaticQuantizer().compile(source, tmp_path / "made.onnx", lambda: batches)
    assert made.outcome == {"weight_bits": 8}
    with ONNXRuntime().load(made) as session:
        session.infer(batches[0])
        assert session.stats() == {"saturating_integers": True}
    assert "cannot load it with exact integers" in caplog.text
    with ONNXRuntime().load(source) as session:  # it loads with them
        assert session.stats() == {}
    assert not capfd.readouterr().err


BIASES = np.linspace(-1, 1, 3).astype(np.float32)


def write_network_with_dead_channels(path: Path, dead: Sequence[int], shared: bool) -> Artifact:
    """Write two convolutions of three channels, maybe with the same weights, of which some
    channels are 0.
    """
    random, helper = np.random.default_rng(0), onnx.helper
    first, second = random.normal(0, 0.3, (2, 3, 3, 3, 3)).astype(np.float32)
    first[dead] = 0
    constants = {"first": first, "second": second, "bias": BIASES, "last": BIASES[::-1].copy()}
    nodes = [
        helper.make_node("Conv", ["x", "first", "bias"], ["channels"], "one", pads=[1] * 4),
        helper.make_node(
            "Conv",
            ["channels", "first" if shared else "second", "last"],
            ["y"],
            "two",
            pads=[1] * 4,
        ),
    ]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3, 8, 8])] for name in "xy"
    )
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "dead", inputs, outputs, weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        str(path),
    )
    return ONNXModel(model_path=path).open(path).export(path.with_name("exported.onnx"), "onnx")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dead", [[1], [0, 2], [0, 1, 2]])
def test_channels_without_weights_keep_their_biases(
    tmp_path: Path, dead: list[int], shared: bool
) -> None:
    source = write_network_with_dead_channels(tmp_path / "dead.onnx", dead, shared)
    random = np.random.default_rng(1)
    batches: list[Batch] = [
        {"x": random.normal(0, 20, (1, 3, 8, 8)).astype(np.float32)} for _ in range(4)
    ]
    made = ONNXStaticQuantizer().compile(source, tmp_path / "int8.onnx", lambda: batches)
    graph = onnx.load(str(made.path)).graph
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    makers = {node.output[0]: node.input for node in graph.node}
    biases = {"one": BIASES, "two": BIASES[::-1]}
    for node in graph.node:
        if node.op_type != "Conv":
            continue
        (_, input_scale, _), (_, scale, _), (integers, bias_scale, _) = (
            makers[name] for name in node.input
        )
        np.testing.assert_allclose(
            constants[integers] * constants[bias_scale], biases[node.name], atol=0.005
        )
        # The kernels of integers take the scale of the bias from those of the input and the
        # weights.
        np.testing.assert_allclose(
            constants[bias_scale], constants[input_scale] * constants[scale], rtol=1e-6
        )


def test_tensors_kept_in_floats_are_not_rounded(quantised: Callable[..., Artifact]) -> None:
    def rounded(artifact: Artifact) -> set[str]:
        graph = onnx.load_model(str(artifact.path)).graph
        return {node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}

    plain = rounded(quantised())
    assert {"relu", "pool", "features"} & plain
    # Pooling and flattening only pass values on, and the concatenation takes them.
    assert rounded(quantised(keep_float=("pool",))) == plain - {
        "conv",
        "relu",
        "pool",
        "flat",
        "image",
        "extra",
    }
    with pytest.raises(ConfigError, match="'pol' is no tensor of the model; near it are 'pool'"):
        quantised(keep_float=("pol",))
