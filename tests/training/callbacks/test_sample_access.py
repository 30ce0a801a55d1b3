"""Callbacks that draw samples, kernels and features, and the export of the trained model."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
needs("sklearn")
import digit_toys as digits

from nnpipe.core.errors import ConversionError, TrainingError
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.embeddings import Embeddings, compute_principal_axes
from nnpipe.training.callbacks.onnx_export import OnnxExport
from nnpipe.training.callbacks.samples import (
    Augmentations,
    RandomSamples,
    as_image,
    format_label,
    get_samples,
)
from nnpipe.training.callbacks.selection import choose
from nnpipe.training.callbacks.weights import Kernels
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.embedding import EmbeddingOutput
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.trainer import Trainer


class Embedding(digits.DigitNet):
    """Hands its features out, too."""

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        features = EmbeddingOutput(self.features(batch["image"]).flatten(1), batch["label"])
        return super().forward(batch) | {"features": features}


def fit(folder: Path, *callbacks: Callback, model: Any = None, data: Any = None) -> Any:
    model = model or digits.model()
    trainer = Trainer(TrainerOptions(num_epochs=2), callbacks)
    trainer.fit(model, data or digits.sequences(64, 40), folder=folder)
    return model


def noisy(sample: Any, rng: np.random.Generator) -> Any:
    return {**sample, "image": sample["image"] + rng.normal(size=(1, 8, 8)).astype(np.float32) / 8}


def test_pictures_are_drawn_of_samples_kernels_and_augmentations(tmp_path: Path) -> None:
    data = {"digits": {"train": ArraySequence(digits.arrays(0, 64), batch=16).map(noisy)}}
    data["digits"]["test"] = ArraySequence(digits.arrays(64, 96), batch=16)
    fit(tmp_path, RandomSamples(10), Augmentations((3, 9, 1000), 3), Kernels(), data=data)
    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert names == [
        "augmentations-digits-train.png",
        "kernels.png",
        "samples-digits-test.png",
        "samples-digits-train.png",
    ]


def test_samples_are_found_by_id_as_they_were_in_an_epoch() -> None:
    sequence = ArraySequence(digits.arrays(0, 64), batch=16).map(noisy)
    first, again, second = (get_samples(sequence, epoch, [5, 40, 99]) for epoch in (1, 1, 2))
    assert sorted(first) == [5, 40]
    assert np.array_equal(first[5]["image"], again[5]["image"])
    assert not np.array_equal(first[5]["image"], second[5]["image"])
    assert first[40]["label"] == digits.arrays()["label"][40]


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((1, 8, 9), (8, 9)),
        ((8, 9, 1), (8, 9)),
        ((3, 8, 9), (8, 9, 3)),
        ((8, 9), (8, 9)),
        ((5, 8, 9), None),
        ((9,), None),
    ],
)
def test_what_looks_like_a_picture(shape: tuple[int, ...], picture: tuple[int, ...] | None) -> None:
    found = as_image(np.arange(np.prod(shape)).reshape(shape))
    assert (None if found is None else found.shape) == picture
    assert found is None or (found.min(), found.max()) == (0, 1)


def test_embeddings_are_those_of_the_evaluation(tmp_path: Path) -> None:
    model = fit(tmp_path, Embeddings(30), model=Embedding())
    with np.load(
        tmp_path / "tables" / "embeddings-digits-test-features.npz", allow_pickle=False
    ) as found:
        arrays = dict(found)
    test = {name: torch.from_numpy(value) for name, value in digits.arrays(1200, 1230).items()}
    with torch.no_grad():
        expected = model(test)["features"].output.numpy()
    np.testing.assert_allclose(arrays["features"], expected, rtol=1e-4, atol=1e-5)
    assert arrays["sample_id"].tolist() == list(range(30))
    assert arrays["labels"].tolist() == test["label"].tolist()
    assert (tmp_path / "pictures" / "embeddings-digits-test-features.png").is_file()


def test_main_axes_are_those_of_scikit_learn() -> None:
    from sklearn.decomposition import PCA

    features = np.random.default_rng(1).normal(size=(50, 6)) * [5, 3, 1, 1, 1, 1]
    places, shares = compute_principal_axes(features)
    reference = PCA(2).fit(features)
    np.testing.assert_allclose(
        np.abs(places), np.abs(reference.transform(features)), rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(shares, reference.explained_variance_ratio_)
    assert compute_principal_axes(np.ones((3, 1)))[0].tolist() == [[0, 0]] * 3


def test_the_exported_model_has_named_inputs_any_batch_and_the_same_outputs(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    model = fit(tmp_path, OnnxExport(["image"]))
    session = onnxruntime.InferenceSession(
        tmp_path / "model" / "model.onnx", providers=["CPUExecutionProvider"]
    )
    (given,) = session.get_inputs()
    assert (given.name, given.shape[1:]) == ("image", [1, 8, 8])
    assert isinstance(given.shape[0], str)
    image = digits.arrays(0, 7)["image"]
    (found,) = session.run(["digit"], {"image": image})
    with torch.no_grad():
        expected = model(
            {"image": torch.from_numpy(image), "label": torch.zeros(7, dtype=torch.int64)}
        )
    np.testing.assert_allclose(found, expected["digit"].output.numpy(), rtol=1e-4, atol=1e-5)
    rows = json.loads((tmp_path / "tables" / "onnx.json").read_text())
    assert [(row["output"], row["batch"]) for row in rows] == [("digit", 1), ("digit", 4)]


@pytest.mark.slow
def test_a_model_that_exports_to_something_else_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")

    class Moody(digits.DigitNet):
        def forward(self, batch: Any) -> Any:
            found = super().forward(batch)
            if torch.onnx.is_in_onnx_export() or torch.compiler.is_exporting():
                found["digit"].output = found["digit"].output * 1.01
            return found

    with pytest.raises(TrainingError, match=r"OnnxExport.*digit differs by") as caught:
        fit(tmp_path, OnnxExport(["image"]), model=Moody())
    assert isinstance(caught.value.__cause__, ConversionError)
    assert not list((tmp_path / "model").iterdir())


@pytest.mark.slow
def test_captions_have_the_names_of_classes(tmp_path, monkeypatch):
    names = tuple("zero one two three four five six seven eight nine".split())
    written = []
    for module in ("samples", "worst_samples"):
        monkeypatch.setattr(
            f"nnpipe.training.callbacks.{module}.show_images",
            lambda figure, images, titles, columns: written.extend(titles),
        )
    fit(
        tmp_path,
        *choose(["RandomSamples", "WorstSamples"], framework="torch", known={"classes": names}),
    )
    assert written
    assert all(any(name in title for name in names) for title in written)


def test_a_label_is_called_by_its_class_where_that_is_known():
    classes = ("cat", "dog")
    assert format_label("truth/label", 1, classes) == "label dog"
    assert format_label("truth/label", 2, classes) == "truth/label 2"
    assert format_label("input/count", 1, classes) == "input/count 1"
    assert format_label("label", np.int64(0)) == "label 0"
