"""Short names for ways to compile and run a model."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN, TensorFlowDigitsCNN
from nnpipe.modelwrappers.files.declared import DeclaredModel
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.workflows.recipes import AS_IS, Recipe, plan_recipe, recipes

TORCH: list[tuple[ModelWrapper, Path]] = [(PyTorchDigitsCNN(), Path("a.pt"))]
KERAS: list[tuple[ModelWrapper, Path]] = [(TensorFlowDigitsCNN(), Path("a.keras"))]


@pytest.mark.parametrize("name", recipes())
def test_every_name_fits_a_model_of_pytorch_or_of_keras(name: str) -> None:
    def fits(models: list[tuple[ModelWrapper, Path]]) -> bool:
        with contextlib.suppress(ConfigError):
            plan_recipe(name, models)
            return True
        return False

    assert fits(TORCH) or fits(KERAS)


def test_the_chain_that_fits_is_taken() -> None:
    assert [type(each).__name__ for each in plan_recipe("tflite-int8", TORCH).compilers] == [
        "TorchToTFLite"
    ]
    assert [type(each).__name__ for each in plan_recipe("tflite-int8", KERAS).compilers] == [
        "TFLiteCompiler"
    ]
    assert plan_recipe(AS_IS, TORCH).runtime is None


def test_an_onnx_file_becomes_a_program_only_if_it_cannot_be_described_as_layers(
    tmp_path: Path,
) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("executorch", reason="ExecuTorch is not installed")

    def models(kind: str) -> list[tuple[ModelWrapper, Path]]:
        node = onnx.helper.make_node(kind, ["x"], ["y"])
        ends = [onnx.helper.make_tensor_value_info(name, 1, ["n", 4]) for name in "xy"]
        path = tmp_path / f"{kind}.onnx"
        onnx.save(
            onnx.helper.make_model(onnx.helper.make_graph([node], "one", ends[:1], ends[1:])), path
        )
        return [(ONNXModel(model_path=path), path), (DeclaredModel(network=path), path)]

    assert [
        type(each).__name__ for each in plan_recipe("executorch", models("Relu")).compilers
    ] == ["ExecuTorchCompiler"]
    through = plan_recipe("executorch", models("Erf"))
    assert [type(each).__name__ for each in through.compilers] == [
        "ONNXToTorch",
        "ExecuTorchCompiler",
    ]


def test_compilers_are_told_the_batch_size() -> None:
    (compiler,) = plan_recipe("iree", TORCH, batch_size=8).compilers
    assert compiler.to_json()["fixed_batch"] == 8


def test_a_way_of_ones_own() -> None:
    way = Recipe("mine", (ONNXStaticQuantizer(activation_type="int8"),), ONNXRuntime())
    found = plan_recipe(way, TORCH)
    assert (found.title, found.plan.final) == ("mine", "onnx")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("onnx-int9", "there is no way 'onnx-int9'; did you mean"),
        (5, "a way is a short name such as 'onnx-int8', or a Way, not int"),
        (Recipe("x", (ONNXStaticQuantizer(),)), "x: a compiled model needs a runtime"),
        ("keras", "keras: "),
    ],
)
def test_what_is_no_way_is_told(way: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_recipe(way, TORCH)  # type: ignore[arg-type]
