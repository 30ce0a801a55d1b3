"""What is said of a compiled model is what its file holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from installed import needs
from shared_data import shared_data

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import CompileError
from nnpipe.core.quantization import adapt_outputs
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_network import read_contents

needs("onnx", "onnxruntime")

RANDOM = np.random.default_rng(0)
SAMPLES = RANDOM.normal(size=(32, 1, 16))


def describe(path: Path) -> Artifact:
    return Artifact.create(path, "onnx", read_onnx(path).io())


def write(
    path: Path,
    nodes: list[Any],
    constants: Mapping[str, Any],
    kind: str = "float32",
    **outputs: Any,
) -> Path:
    """Write a network of ``x (n, 16)`` and return its path; outputs are given by name with their
    shapes.
    """
    import onnx
    from onnx import helper, numpy_helper

    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    made = [helper.make_tensor_value_info(name, dtype, shape) for name, shape in outputs.items()]
    held = [
        numpy_helper.from_array(np.asarray(array, kind), name) for name, array in constants.items()
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", dtype, ["n", 16])], made, held
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def node(kind: str, given: str, made: str, **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(kind, given.split(), made.split(), **attributes)


WEIGHTS = {"w": RANDOM.normal(size=(16, 12)), "v": RANDOM.normal(size=(12, 4))}
LAYERS = [("MatMul", "x w", "h"), ("Relu", "h", "r"), ("MatMul", "r v", "y")]


def perceptron(path: Path, kind: str) -> Artifact:
    return describe(write(path, [node(*each) for each in LAYERS], WEIGHTS, kind, y=["n", 4]))


def poolings(path: Path, kind: str) -> Artifact:
    nodes = [
        node("Unsqueeze", "x axis", "u"),
        node("AveragePool", "u", "a", kernel_shape=[2], strides=[2]),
        node("Flatten", "a", "y"),
    ]
    from onnx import helper, numpy_helper

    nodes.insert(
        0,
        helper.make_node(
            "Constant", [], ["axis"], value=numpy_helper.from_array(np.array([1]), "a")
        ),
    )
    return describe(write(path, nodes, {}, kind, y=["n", 8]))


def samples(source: Artifact) -> list[Batch]:
    (spec,) = source.io.inputs
    return [{spec.name: np.asarray(each, spec.dtype)} for each in SAMPLES[:, :, : spec.shape[1]]]


def outputs(
    artifact: Artifact, source: Artifact, runtime: str = "ONNXRuntime"
) -> dict[str, npt.NDArray[Any]]:
    """Return all outputs for the samples, as real numbers."""
    with find(runtime, Runtime).from_json({}).load(artifact) as session:
        found = [
            adapt_outputs(session.infer(each), source.io, session.io) for each in samples(source)
        ]
    return {
        name: np.concatenate([each[name] for each in found]).astype(np.float64) for name in found[0]
    }


def off(found: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> float:
    return float(np.abs(found - wanted).mean() / np.abs(wanted).mean())


INTEGERS = ["ONNXStaticQuantizer", "ONNXDynamicQuantizer"]


@pytest.mark.parametrize("compiler", [*INTEGERS, "ONNXWeightQuantizer", "ONNXFloat16"])
@pytest.mark.parametrize("kind", ["float16", "float64"])
def test_weights_in_other_floats_are_converted_first(
    kind: str, compiler: str, tmp_path: Path
) -> None:
    source = perceptron(tmp_path / "source.onnx", kind)
    made = (
        find(compiler, ModelCompiler)
        .from_json({})
        .compile(source, tmp_path / "made.onnx", lambda: samples(source))
    )
    assert [spec.dtype for spec in made.io] == [kind, kind]
    numbers = read_contents(made.path).numbers
    wanted = (
        "float16"
        if compiler == "ONNXFloat16"
        else "uint8"
        if compiler == "ONNXWeightQuantizer"
        else "int8"
    )
    assert numbers[wanted] >= 240
    assert off(outputs(made, source)["y"], outputs(source, source)["y"]) < 0.1


def test_claims_are_refused_where_nothing_becomes_so(tmp_path: Path) -> None:
    source = poolings(tmp_path / "source.onnx", "float32")
    for compiler in (*INTEGERS, "ONNXWeightQuantizer"):
        with pytest.raises(
            CompileError, match=r"nothing in it would become int|there is no MatMul"
        ):
            find(compiler, ModelCompiler).from_json({}).compile(
                source, tmp_path / "m.onnx", lambda: samples(source)
            )
        assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_openvino_says_what_its_file_holds(precision: str, tmp_path: Path) -> None:
    needs("openvino", "nncf")
    compiler = find("OpenVINOCompiler", ModelCompiler).from_json({"precision": precision})

    def compiled(source: Artifact) -> Artifact:
        return compiler.compile(source, tmp_path / "made.openvino", lambda: samples(source))

    wide = perceptron(tmp_path / "wide.onnx", "float64")
    if precision == "int8":
        with pytest.raises(
            CompileError, match=r"nothing in it would become int8: its weights are .* float64"
        ):
            compiled(wide)
        assert compiled(poolings(tmp_path / "source.onnx", "float32")).outcome == {}
        assert compiled(perceptron(tmp_path / "usual.onnx", "float32")).outcome["weight_bits"] in (
            7,
            8,
        )
    else:
        with pytest.raises(
            CompileError, match="nothing in it would become float16: it has no weights"
        ):
            compiled(poolings(tmp_path / "source.onnx", "float32"))
        assert compiled(wide).claims == ("float16",)


@pytest.mark.parametrize("compiler", INTEGERS)
@pytest.mark.parametrize("name", ["int4_axis1.onnx", "int4_gemm.onnx"])
def test_weights_in_blocks_of_4_bits_become_integers_of_8(
    name: str, compiler: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(shared_data(f"cases/convert/{name}").read_bytes())
    source = describe(path)
    made = (
        find(compiler, ModelCompiler)
        .from_json({})
        .compile(source, tmp_path / "m.onnx", lambda: _normal(source, 32))
    )
    assert made.outcome == {"weight_bits": 8}
    assert read_contents(made.path).numbers["int8"] >= 256


def test_small_weights_that_tensorflow_lite_leaves_in_floats_are_not_called_integers(
    tmp_path: Path,
) -> None:
    needs("tensorflow", "keras")
    from nnpipe.frameworks.keras import import_keras

    _, keras = import_keras()
    small = keras.Sequential([keras.Input((16,)), keras.layers.Dense(4)])
    small.save(tmp_path / "small.keras")
    io = IOSpec((TensorSpec("x", (None, 16), "float32"),), (TensorSpec("y", (None, 4), "float32"),))
    source = Artifact.create(tmp_path / "small.keras", "keras", io)
    compiler = find("TFLiteCompiler", ModelCompiler).from_json({"target": "dynamic"})
    with pytest.raises(
        CompileError, match=r"64 float32, and stay so; only weights of 1,024 numbers or more"
    ):
        compiler.compile(source, tmp_path / "made.tflite")


# -- what the converters of ONNX Runtime take for something else ---------------------------------


def _normal(source: Artifact, count: int) -> list[Batch]:
    (spec,) = source.io.inputs
    random = np.random.default_rng(1)
    return [
        {spec.name: random.normal(size=(1, *spec.shape[1:])).astype(spec.dtype)}
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", ["Relu", "Clip"])
def test_an_output_that_is_cut_off_behind_it_keeps_what_is_cut_off(
    kind: str, tmp_path: Path
) -> None:
    cut = node(kind, "h" if kind == "Relu" else "h low high", "r")
    nodes = [node("MatMul", "x w", "h"), cut, node("MatMul", "r v", "y")]
    limits = {"low": np.float32(0), "high": np.float32(1)} if kind == "Clip" else {}
    source = describe(
        write(tmp_path / "source.onnx", nodes, WEIGHTS | limits, h=["n", 12], y=["n", 4])
    )
    compiler = find("ONNXStaticQuantizer", ModelCompiler).from_json({})
    made = compiler.compile(source, tmp_path / "made.onnx", lambda: samples(source))
    found, wanted = outputs(made, source), outputs(source, source)
    assert off(found["h"], wanted["h"]) < 0.05
    assert off(found["y"], wanted["y"]) < 0.1


@pytest.mark.parametrize("compiler", ["ONNXStaticQuantizer", "ONNXFloat16"])
def test_a_weight_may_be_an_output(compiler: str, tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "y")]
    source = describe(
        write(tmp_path / "s.onnx", nodes, {"w": WEIGHTS["w"]}, y=["n", 12], w=[16, 12])
    )
    made = (
        find(compiler, ModelCompiler)
        .from_json({})
        .compile(source, tmp_path / "m.onnx", lambda: samples(source))
    )
    found, wanted = outputs(made, source), outputs(source, source)
    assert off(found["w"], wanted["w"]) < 0.02
    assert off(found["y"], wanted["y"]) < 0.05


def test_constants_that_are_floats_of_python_become_float16_too(tmp_path: Path) -> None:
    from onnx import helper

    half = helper.make_node("Constant", [], ["half"], value_float=0.5)
    nodes = [half, node("MatMul", "x w", "h"), node("Mul", "h half", "y")]
    source = describe(write(tmp_path / "s.onnx", nodes, {"w": WEIGHTS["w"]}, y=["n", 12]))
    made = find("ONNXFloat16", ModelCompiler).from_json({}).compile(source, tmp_path / "m.onnx")
    assert off(outputs(made, source)["y"], outputs(source, source)["y"]) < 0.002


def test_transposed_convolutions_of_groups_are_quantised(tmp_path: Path) -> None:
    path = tmp_path / "source.onnx"
    path.write_bytes(shared_data("cases/convert/convtranspose_group.onnx").read_bytes())
    source = describe(path)
    batches = _normal(source, 32)
    made = (
        find("ONNXStaticQuantizer", ModelCompiler)
        .from_json({})
        .compile(source, tmp_path / "m.onnx", lambda: batches)
    )
    assert off(_scores(made, batches), _scores(source, batches)) < 0.05


def _scores(artifact: Artifact, batches: list[Batch]) -> npt.NDArray[Any]:
    with find("ONNXRuntime", Runtime).from_json({}).load(artifact) as session:
        return np.concatenate([session.infer(each)["scores"] for each in batches])


@pytest.mark.parametrize("compiler", ["ONNXFloat16", "ONNXDynamicQuantizer", "ONNXStaticQuantizer"])
def test_weights_that_are_also_inputs_are_converted(compiler: str, tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    plain = perceptron(tmp_path / "plain.onnx", "float32")
    model = onnx.load(plain.path)
    for constant in model.graph.initializer:  # as version 3 of the IR demands
        model.graph.input.append(
            helper.make_tensor_value_info(constant.name, constant.data_type, constant.dims)
        )
    model.ir_version = 3
    onnx.save(model, tmp_path / "old.onnx")
    old = describe(tmp_path / "old.onnx")
    made = (
        find(compiler, ModelCompiler)
        .from_json({})
        .compile(old, tmp_path / "m.onnx", lambda: samples(old))
    )
    numbers = read_contents(made.path).numbers
    assert (
        numbers["float16" if compiler == "ONNXFloat16" else "int8"] + numbers["uint8"]
        >= 16 * 12 + 12 * 4
    )
    assert off(outputs(made, old)["y"], outputs(plain, plain)["y"]) < 0.05
