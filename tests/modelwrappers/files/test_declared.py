"""Networks that a file declares, as models."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from repeated import RULES_OF_SESSIONS, SAME_IN_A_FRAMEWORK

from nnpipe import layers as nn
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.model import ModelWrapper
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.datasets.synthetic import (
    SyntheticAnomaliesDataset,
    SyntheticRegressionDataset,
    SyntheticSegmentationDataset,
)
from nnpipe.datasets.synthetic_pictures import SyntheticDefectsDataset
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.keras.open_file import open_keras
from nnpipe.layers.keras.read_file import read_keras
from nnpipe.layers.keras.to_config import write_keras
from nnpipe.layers.torch.to_torch import torch_weights
from nnpipe.measuring.sample_route import SampleRoute
from nnpipe.modelwrappers.files.declared import DeclaredModel
from nnpipe.testing.modelwrapper import ModelWrapperContract

pytest.importorskip("torch", reason="PyTorch is not installed")

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "small_cnn.yaml"
CONSTRAINED = """
layers:
  - {class: Input, shape: [8, 8, 1], name: image}
  - {class: Flatten}
  - {class: Dense, units: 16, activation: relu, kernel_constraint: {class_name: MaxNorm, config: {max_value: 0.5}}}
  - {class: Dropout, rate: 0.1}
  - {class: Dense, units: 10, kernel_regularizer: {class_name: L2, config: {l2: 0.01}}, name: last}
  - {class: OutputClassification, target: label, label_smoothing: 0.1, inputs: last, name: digit}
  - {class: OutputEmbedding, target: label, inputs: last, name: seen}
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small CNN of the examples, for the digits of 8 x 8."""
    path = tmp_path_factory.mktemp("declared") / "small.yaml"
    path.write_text(EXAMPLE.read_text("utf-8").replace("[28, 28, 1]", "[8, 8, 1]"))
    return path


class TestDeclaredModel(ModelWrapperContract):
    repeats = SAME_IN_A_FRAMEWORK | RULES_OF_SESSIONS

    @pytest.fixture
    def wrapper(self, small: Path) -> ModelWrapper:
        return DeclaredModel(network=small, scale=16.0, class_count=10, num_threads=2)

    @pytest.fixture
    def dataset(self) -> Dataset:
        return DigitsDataset(test_fraction=0.7)


@pytest.mark.slow
class TestDeclaredModelWithPenaltiesAndConstraints(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self, tmp_path_factory: pytest.TempPathFactory) -> ModelWrapper:
        path = tmp_path_factory.mktemp("declared") / "constrained.yaml"
        path.write_text(CONSTRAINED)
        return DeclaredModel(network=path, scale=16.0, class_count=10, result_output="digit")

    @pytest.fixture
    def dataset(self) -> Dataset:
        return DigitsDataset(test_fraction=0.7)


def test_the_losses_of_the_file_are_what_is_learned(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(CONSTRAINED)
    model = DeclaredModel(network=path, scale=16.0, result_output="digit").open()
    options = TrainingOptions.from_json({"num_epochs": 2, "batch_size": 32, "learning_rate": 0.01})
    figures = model.train(DigitsDataset(test_fraction=0.6), options).epochs[-1]
    assert figures["penalty/loss"] > 0
    assert figures["loss"] == pytest.approx(
        figures["digit/loss"] + figures["penalty/loss"] + figures["seen/loss"]
    )
    assert figures["validation_digit/accuracy"] > 0.6
    norms = np.linalg.norm(torch_weights(model.native)["dense/kernel"], axis=0)
    assert norms.max() == pytest.approx(0.5, rel=1e-4)


def test_it_is_written_for_keras_with_the_weights_that_it_has(small: Path, tmp_path: Path) -> None:
    model = DeclaredModel(network=small, scale=16.0).open()
    path = tmp_path / "small.keras"
    model.export(path, "keras")
    reading = read_keras(path)
    assert reading.graph is not None
    assert isinstance(reading.graph.layers["digit"], nn.Softmax)
    for name, value in torch_weights(model.native).items():
        np.testing.assert_array_equal(reading.weights[name], value)
    # Read again, it is the same model; without a loss it cannot be trained.
    again = DeclaredModel(network=path, scale=16.0).open()
    images = np.random.default_rng(0).random((3, 8, 8, 1), dtype=np.float32)
    with model.session() as mine, again.session() as its:
        np.testing.assert_allclose(
            mine.infer({"image": images})["digit"], its.infer({"image": images})["digit"], atol=1e-6
        )
    with pytest.raises(ConfigError, match="no output carries a loss"):
        again.train(DigitsDataset(), TrainingOptions())


def test_a_file_of_keras_gives_the_weights_to_start_from(tmp_path: Path) -> None:
    x = nn.Input((8, 8, 1), name="image")
    graph = nn.network(
        x, nn.OutputClassification(nn.Dense(nn.Flatten(x), 10, name="d"), "label", name="digit")
    )
    weights = initial_weights(graph, seed=5)
    write_keras(tmp_path / "start.keras", graph, weights)
    model = DeclaredModel(network=tmp_path / "start.keras", scale=16.0).open()
    np.testing.assert_array_equal(torch_weights(model.native)["d/kernel"], weights["d/kernel"])
    figures = model.train(DigitsDataset(), TrainingOptions.from_json({"num_epochs": 1})).epochs[-1]
    assert figures["accuracy"] > 0.1


@pytest.mark.slow
def test_weights_come_from_the_same_file_of_keras_or_of_onnx(
    small: Path, tmp_path: Path, shared_data: Path
) -> None:
    old = shared_data / "keras_files" / "32_32_1_conv_sequential-trained.h5"
    model = DeclaredModel(network=old).open()
    model.load(old)
    x = np.random.default_rng(0).random((2, 28, 28, 1), np.float32)
    (name,) = [spec.name for spec in model.io.inputs]
    with model.session() as session:
        (found,) = session.infer({name: x}).values()
    np.testing.assert_allclose(found, np.asarray(open_keras(old)(x, training=False)), atol=1e-5)
    other = DeclaredModel(network=small).open()
    with pytest.raises(
        ArtifactError, match=r"has not the weights of the network in .*small.*: "
    ) as caught:
        other.load(old)
    assert "\n" not in str(caught.value)
    exported = tmp_path / "m.onnx"
    model.export(exported, "onnx")
    again = DeclaredModel(network=exported).open()
    again.load(exported)
    with again.session() as session:
        (same,) = session.infer({again.io.inputs[0].name: x}).values()
    np.testing.assert_allclose(same, found, atol=1e-5)


def test_a_file_with_something_unknown_about_training_runs_and_is_not_trained(
    tmp_path: Path,
) -> None:
    x = nn.Input((8, 8, 1), name="image")
    graph = nn.network(
        x, nn.OutputClassification(nn.Dense(nn.Flatten(x), 10, name="d"), "label", name="scores")
    )
    write_keras(tmp_path / "m.keras", graph, initial_weights(graph))
    config = json.loads(zipfile.ZipFile(tmp_path / "m.keras").read("config.json"))
    (dense,) = [layer for layer in config["config"]["layers"] if layer["config"]["name"] == "d"]
    dense["config"]["kernel_regularizer"] = {"class_name": "Mine", "module": "mine", "config": {}}
    with (
        zipfile.ZipFile(tmp_path / "m.keras") as old,
        zipfile.ZipFile(tmp_path / "own.keras", "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, json.dumps(config) if name == "config.json" else old.read(name))
    model = DeclaredModel(network=tmp_path / "own.keras", scale=16.0).open()
    with model.session() as session:
        assert session.infer({"image": np.ones((1, 8, 8, 1), np.float32)})["scores"].shape == (
            1,
            10,
        )
    with pytest.raises(ConfigError, match=r"can be run and not be trained: .*kernel_regularizer"):
        model.train(DigitsDataset(), TrainingOptions(num_epochs=1))


@pytest.mark.parametrize(
    ("dataset", "layers", "figure", "wanted"),
    [
        (
            SyntheticRegressionDataset(num_samples=400),
            "[{class: Input, shape: [4], name: x}, {class: Dense, units: 32, activation: tanh},"
            " {class: Dense, units: 2}, {class: OutputRegression, target: value, distance: huber, "
            "name: numbers}]",
            "rmse",
            0.37,
        ),
        (
            SyntheticSegmentationDataset(num_samples=60),
            "[{class: Input, shape: [24, 24, 1], name: x},"
            " {class: Conv2d, filters: 8, kernel_size: 5, padding: same, activation: relu},"
            " {class: Conv2d, filters: 3, kernel_size: 5, padding: same},"
            " {class: OutputSegmentation, target: mask, name: place}]",
            "iou",
            0.55,
        ),
    ],
)
def test_other_tasks_are_learned_too(
    dataset: Dataset, layers: str, figure: str, wanted: float, tmp_path: Path
) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(f"layers: {layers}")
    scale = 255.0 if dataset.spec.inputs[0].dtype == "uint8" else 1.0
    model = DeclaredModel(network=path, scale=scale).for_dataset(dataset.spec).open()
    options = TrainingOptions.from_json({"num_epochs": 15, "learning_rate": 0.03, "batch_size": 16})
    reached = model.train(dataset, options).epochs[-1][f"validation_{figure}"]
    assert reached < wanted if figure == "rmse" else reached > wanted
    inputs, truth = dataset.read(dataset.split("test"))
    with model.session() as session:
        outputs = model.wrapper.postprocess(session.infer(model.wrapper.preprocess(inputs)))
    assert len(dataset.evaluate(outputs, truth)) == len(dataset.split("test"))


def test_an_autoencoder_learns_what_it_is_given_and_tells_anomalies() -> None:
    dataset = SyntheticAnomaliesDataset(num_samples=400, length=24)
    network = Path(__file__).resolve().parents[3] / "examples" / "small_autoencoder.yaml"
    wrapper = DeclaredModel(network=network, decoder="ReconstructionErrorDecoder").for_dataset(
        dataset.spec
    )
    with wrapper.open() as model:
        options = TrainingOptions.from_json(
            {"num_epochs": 10, "learning_rate": 0.01, "batch_size": 16}
        )
        losses = [epoch["loss"] for epoch in model.train(dataset, options).epochs]
        assert losses[-1] < losses[0] / 2
        with model.session() as session:
            route = SampleRoute(dataset, wrapper, wrapper.io, session.io, 80)
            items = list(route.items(dataset.split("test")))
            (found,) = route.evaluate(items, [session.infer(item.inputs) for item in items])
    assert dataset.task.primary.compute(found) > 0.95


def test_an_autoencoder_of_a_surface_tells_where_defects_are() -> None:
    dataset = SyntheticDefectsDataset(num_samples=300)
    network = Path(__file__).resolve().parents[3] / "examples" / "small_surface_autoencoder.yaml"
    wrapper = DeclaredModel(
        network=network, scale=255.0, decoder="ReconstructionErrorDecoder"
    ).for_dataset(dataset.spec)
    with wrapper.open() as model:
        model.train(
            dataset,
            TrainingOptions.from_json({"num_epochs": 25, "learning_rate": 0.003, "batch_size": 16}),
        )
        with model.session() as session:
            route = SampleRoute(dataset, wrapper, wrapper.io, session.io, 50)
            items = list(route.items(dataset.split("test")))
            parts = route.evaluate(items, [session.infer(item.inputs) for item in items])
    found = Evaluation.concat(parts)
    for name in ("au_pro", "pixel_auc"):
        assert 0.9 < dataset.task.metric(name).compute(found) < 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CONSTRAINED.replace("rate: 0.1", "rate: 2"), r"net.yaml: layers\[3\].rate: must be from"),
        (
            CONSTRAINED.replace("class: Dropout", "class: Dropot"),
            "there is no layer 'Dropot'; did you mean Dropout",
        ),
        (
            CONSTRAINED.replace("target: label", "target: labels"),
            "judged by 'labels', which DigitsDataset lacks",
        ),
        ("layers: 3", "is not a network"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        DeclaredModel(network=path, scale=16.0).open().train(DigitsDataset(), TrainingOptions())
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_an_onnx_file_that_was_exported_is_the_same_model_again(
    small: Path, tmp_path: Path
) -> None:
    model = DeclaredModel(network=small, scale=16.0).open()
    model.export(tmp_path / "small.onnx", "onnx")
    again = DeclaredModel(network=tmp_path / "small.onnx", scale=16.0).open()
    images = np.random.default_rng(0).random((3, 8, 8, 1), dtype=np.float32)
    with model.session() as mine, again.session() as its:
        (found,) = its.infer({"image": images}).values()
        np.testing.assert_allclose(found, mine.infer({"image": images})["digit"], atol=1e-6)
    (tmp_path / "odd.onnx").write_bytes(
        (tmp_path / "small.onnx").read_bytes().replace(b"Softmax", b"Softsum")
    )
    with pytest.raises(ConfigError, match="Softsum is not in the vocabulary"):
        _ = DeclaredModel(network=tmp_path / "odd.onnx").io
    (tmp_path / "odd.onnx").write_bytes(
        (tmp_path / "small.onnx").read_bytes().replace(b"Relu", b"Relo")
    )
    with pytest.raises(
        ConfigError, match=r"Relo is not in the vocabulary \(and \d+ more .* start from"
    ) as caught:
        _ = DeclaredModel(network=tmp_path / "odd.onnx").io
    assert "follows what is not known" not in str(caught.value)


def test_a_file_of_another_kind_is_told(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text("layers: []")
    with pytest.raises(ConfigError, match=r"networks are read from \.yaml"):
        _ = DeclaredModel(network=tmp_path / "net.txt").io
