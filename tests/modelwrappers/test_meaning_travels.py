"""A model of ours is judged rightly by its file alone, whatever wrapper made it and whatever
format it is in.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.compilers.tflite import TFLiteCompiler, TorchToTFLite
from nnpipe.core.artifact import Artifact
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import components, find
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.datasets.in_memory import make_image_classification_spec
from nnpipe.modelwrappers.files.declared import DeclaredModel
from nnpipe.modelwrappers.files.file_formats import find_wrapper
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.modelwrappers.files.sklearn import SklearnModel

# Arguments and samples for which each wrapper is tried: height, width, channels, classes, brightest
# pixel.
CASES: dict[str, tuple[dict[str, Any], tuple[int, int, int, int, int]]] = {
    "WornDigitsCNN": ({}, (12, 12, 1, 10, 16)),
    "DigitsCNN": ({}, (8, 8, 1, 10, 16)),
    "FashionMNISTCNN": ({}, (28, 28, 1, 10, 255)),
    "MNISTCNN": ({}, (28, 28, 1, 10, 255)),
    "CIFAR10CNN": ({}, (32, 32, 3, 10, 255)),
    "ImageFolderCNN": ({}, (16, 24, 3, 3, 255)),
    "CIFARResNet": ({}, (32, 32, 3, 10, 255)),
    "PyTorchMobileNetV2": ({"brightest_pixel": 16, "input_size": [32, 48]}, (8, 12, 1, 4, 16)),
    "TensorFlowMobileNetV2": ({"brightest_pixel": 16, "input_size": [32, 48]}, (8, 12, 1, 4, 16)),
    "TensorFlowPetDatasetMobileNetV2": (
        {"alpha": 0.35, "input_size": [32, 32]},
        (32, 32, 3, 37, 255),
    ),
    "PyTorchPetDatasetMobileNetV2": ({}, (224, 224, 3, 37, 255)),
}
QUICK = {
    ("PyTorchDigitsCNN", "onnx"),
    ("PyTorchDigitsCNN", "torch-export"),
    ("TensorFlowDigitsCNN", "keras"),
}
TFLITE = {"keras": TFLiteCompiler, "torch-export": TorchToTFLite}


def case_of(cls: type[ModelWrapper]) -> tuple[dict[str, Any], tuple[int, int, int, int, int]]:
    return next(case for name, case in CASES.items() if cls.__name__.endswith(name))


def pairs() -> Iterator[Any]:
    for cls in components(ModelWrapper):
        if not cls.__module__.startswith("nnpipe.modelwrappers.classification."):
            continue
        formats = [*cls.exports, *(f"tflite from {made}" for made in TFLITE if made in cls.exports)]
        for format in formats:
            marks = () if (cls.__name__, format) in QUICK else (pytest.mark.slow,)
            yield pytest.param(cls.__name__, format, marks=marks, id=f"{cls.__name__}-{format}")


def exported(model: LiveModel, format: str, folder: Path) -> Artifact:
    if not format.startswith("tflite"):
        return model.export(folder / f"m.{format}", format)
    made = format.rpartition(" ")[2]
    source = model.export(folder / f"m.{made}", made)
    return TFLITE[made]().compile(source, folder / "m.tflite")


def scores(model: LiveModel, samples: Batch) -> np.ndarray:
    with model.session() as session:
        return np.asarray(
            model.wrapper.postprocess(session.infer(model.wrapper.preprocess(samples)))["scores"]
        )


@pytest.mark.parametrize(("name", "format"), list(pairs()))
def test_a_file_of_ours_says_by_itself_what_it_wants(
    name: str, format: str, tmp_path: Path
) -> None:
    arguments, (height, width, channels, classes, brightest) = case_of(find(name, ModelWrapper))
    spec: DatasetSpec = make_image_classification_spec(
        height, width, channels, tuple(map(str, range(classes)))
    )
    live = find(name, ModelWrapper).from_json(arguments).for_dataset(spec).open()
    artifact = exported(live, format, tmp_path)
    opens = find_wrapper(artifact.format)
    assert opens is not None
    model = opens.from_json({"model_path": str(artifact.path)}).for_dataset(spec).open()
    assert model.wrapper.preparation().source == "description"
    pixels = np.random.default_rng(0).integers(
        0, brightest + 1, (4, height, width, channels), np.uint8
    )
    found, expected = scores(model, {"image": pixels}), scores(live, {"image": pixels})
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-5)
    # Given as they are, they would not have come out so: a wrong description cannot pass by luck.
    plain = opens.from_json(
        {"model_path": str(artifact.path), "scale": 1, "mean": [0], "deviation": [1]}
    )
    if "MobileNet" not in name:
        assert not np.allclose(
            scores(plain.for_dataset(spec).open(), {"image": pixels}),
            expected,
            rtol=2e-3,
            atol=2e-5,
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "format",
    [
        "onnx",
        pytest.param("torch-export", marks=pytest.mark.slow),
        pytest.param("keras", marks=pytest.mark.slow),
    ],
)
def test_a_declared_network_says_so_too(format: str, tmp_path: Path) -> None:
    network = Path(__file__).resolve().parents[2] / "examples" / "small_cnn.yaml"
    spec = make_image_classification_spec(8, 8, 1, tuple(map(str, range(10))))
    live = DeclaredModel(network=network, scale=16.0, resize=(28, 28)).for_dataset(spec).open()
    opens = find_wrapper(format)
    assert opens is not None
    path = live.export(tmp_path / f"m.{format}", format).path
    model = opens.from_json({"model_path": str(path)}).for_dataset(spec).open()
    assert model.wrapper.preparation().source == "description"
    samples = {"image": np.random.default_rng(0).integers(0, 17, (4, 8, 8, 1), np.uint8)}
    np.testing.assert_allclose(scores(model, samples), scores(live, samples), rtol=2e-3, atol=2e-5)


def test_what_options_said_of_a_foreign_file_goes_along_with_what_is_exported_from_it(
    tmp_path: Path,
) -> None:
    pytest.importorskip("skops", reason="skops is not installed")
    from sklearn.linear_model import LogisticRegression
    from skops.io import dump

    random = np.random.default_rng(0)
    pixels, labels = random.integers(0, 17, (60, 8, 8, 1), np.uint8), np.arange(60) % 3
    dump(LogisticRegression().fit(pixels.reshape(60, -1) / 16, labels), tmp_path / "m.skops")
    spec = make_image_classification_spec(8, 8, 1, ("a", "b", "c"))
    live = SklearnModel(model_path=tmp_path / "m.skops", scale=16.0).for_dataset(spec).open()
    live.export(tmp_path / "m.onnx", "onnx")
    model = ONNXModel(model_path=tmp_path / "m.onnx").for_dataset(spec).open()
    assert model.wrapper.preparation().source == "description"
    samples = {"image": pixels[:4]}
    np.testing.assert_allclose(scores(model, samples), scores(live, samples), rtol=1e-4, atol=1e-5)
    # Nothing is made up for what nobody said.
    SklearnModel(model_path=tmp_path / "m.skops").open().export(tmp_path / "n.onnx", "onnx")
    assert ONNXModel(model_path=tmp_path / "n.onnx").preparation().source == "unknown"
