"""A Keras model and a TensorFlow Lite file made of it are compared layer by layer, whatever
tensors are called.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import ImportedWhenUsed, needs

from nnpipe.compilers.tflite import TFLiteCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.tensors import Batch
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.modelwrappers.files.keras import KerasModel
from nnpipe.modelwrappers.files.tflite import TFLiteModel
from nnpipe.scenarios.verify import main

needs("tensorflow")
keras = ImportedWhenUsed("keras")
pytestmark = pytest.mark.slow

LAYERS = 6  # convolutions, a sum, a pool and a dense layer
DAMAGED = "second"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small residual network that knows digits."""
    layers = keras.layers
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 1), name="image")
    first = layers.ReLU()(
        layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", name="first")(image))
    )
    second = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", name=DAMAGED)(first))
    both = layers.ReLU()(layers.Add()([first, second]))
    third = layers.ReLU()(layers.DepthwiseConv2D(3, name="third")(both))
    pooled = layers.AveragePooling2D(2)(third)
    scores = layers.Softmax()(layers.Dense(10, name="dense")(layers.Flatten()(pooled)))
    network = keras.Model(image, scores)
    digits = DigitsDataset()
    inputs, truth = digits.read(digits.split("train"))
    network.compile("adam", "sparse_categorical_crossentropy")
    network.fit(inputs["image"] / 16.0, truth["label"], epochs=4, verbose=0)
    path = tmp_path_factory.mktemp("keras") / "network.keras"
    network.save(path)
    return path


def compiled(source: Path, target: str) -> Artifact:
    wrapper = KerasModel(model_path=source, scale=16.0)
    exported = Artifact.create(source, "keras", wrapper.io)
    compiler = TFLiteCompiler.from_json({"target": target})

    def calibration() -> Iterator[Batch]:
        return map(wrapper.preprocess, DigitsDataset().calibration(64))

    return compiler.compile(exported, source.with_name(f"{target}.tflite"), calibration)


@pytest.fixture(scope="module")
def converted(source: Path) -> Artifact:
    return compiled(source, "default")


@pytest.fixture(scope="module")
def integers(source: Path) -> Artifact:
    return compiled(source, "int8")


def verified(source: Path, other: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    out = other.with_suffix(".json")
    data = ("--dataset", "DigitsDataset", "--scale", "16", "--samples", "16", "--output", str(out))
    status = main([str(source), str(other), *data, *argv])
    return status, json.loads(out.read_text("utf-8"))


def test_all_layers_of_a_sound_file_are_compared(source: Path, converted: Artifact) -> None:
    status, figures = verified(source, converted.path)
    assert status == 0
    assert figures["verdict"] == "same"
    assert figures["divergence"]["compared"] >= LAYERS
    assert figures["divergence"]["suspects"] == []
    weights = figures["weights"]
    assert weights["left"] == []
    assert not any(tensor["wrong"] for tensor in weights["tensors"])
    assert {tensor["name"] for tensor in weights["tensors"]} >= {
        f"{DAMAGED}/kernel",
        "third/kernel",
        "dense/kernel",
    }


@pytest.mark.parametrize("damage", ["swap", "silence", "bias"])
def test_damage_to_one_layer_is_named(
    damage: str, source: Path, converted: Artifact, tmp_path: Path
) -> None:
    model = TFLiteModel(model_path=converted.path).open(converted.path)
    weights = model.get_weights()
    convolutions = [op for op in model.get_inference_graph().operations if op.kind == "CONV_2D"]
    (operation,) = (op for op in convolutions if weights[op.inputs[1]].shape == (8, 3, 3, 8))
    kernel, bias = (weights[name] for name in operation.inputs[1:3])
    if damage == "swap":
        kernel[[1, 5]] = kernel[[5, 1]]
    elif damage == "silence":
        kernel[2] = 0
    else:
        bias[:] = 0
    model.set_weights({operation.inputs[1]: kernel, operation.inputs[2]: bias})
    path = model.export(tmp_path / "damaged.tflite", "tflite").path
    status, figures = verified(source, path, "--claim", "float")
    assert (status, figures["verdict"]) == (1, "different")
    assert DAMAGED in figures["divergence"]["suspects"][0]["name"]
    assert [t["name"].partition("/")[0] for t in figures["weights"]["tensors"] if t["wrong"]] == [
        DAMAGED
    ]


def test_no_layer_of_a_sound_file_of_integers_is_suspected(
    source: Path, integers: Artifact
) -> None:
    """A layer that is fused with its activation is held against both together, in every round of
    the pairing.
    """
    status, figures = verified(source, integers.path)
    assert (status, figures["verdict"]) == (0, "close")
    assert figures["divergence"]["suspects"] == []
    assert figures["divergence"]["compared"] >= LAYERS


def test_damage_to_one_layer_of_integers_is_named(
    source: Path, integers: Artifact, tmp_path: Path
) -> None:
    model = TFLiteModel(model_path=integers.path).open(integers.path)
    weights = model.get_weights()
    convolutions = [op for op in model.get_inference_graph().operations if op.kind == "CONV_2D"]
    (operation,) = (op for op in convolutions if weights[op.inputs[1]].shape == (8, 3, 3, 8))
    kernel = weights[operation.inputs[1]]
    kernel[[1, 5]] = kernel[[5, 1]]
    model.set_weights({operation.inputs[1]: kernel})
    path = model.export(tmp_path / "damaged.tflite", "tflite").path
    status, figures = verified(source, path, "--claim", "int8")
    assert (status, figures["verdict"]) == (1, "different")
    assert DAMAGED in figures["divergence"]["suspects"][0]["name"]
