from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from installed import needs
from repeated import RULES_OF_SESSIONS, SAME_FOR_ANY_LAYERS, SAME_IN_A_FRAMEWORK

from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import DatasetSpec, TensorSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.datasets.in_memory import make_image_classification_spec
from nnpipe.datasets.mnist import MNISTDataset
from nnpipe.datasets.synthetic import SyntheticImagesDataset
from nnpipe.modelwrappers.classification.small_cnn import (
    TensorFlowCIFAR10CNN,
    TensorFlowCNN,
    TensorFlowDigitsCNN,
    TensorFlowFashionMNISTCNN,
    TensorFlowImageFolderCNN,
    TensorFlowMNISTCNN,
    TensorFlowWornDigitsCNN,
    shift_images,
)
from nnpipe.runtimes.keras import KerasRuntime
from nnpipe.testing.modelwrapper import ModelWrapperContract

needs("tensorflow")
TEN = tuple("0123456789")


class TestDigitsCNN(ModelWrapperContract):
    repeats = SAME_IN_A_FRAMEWORK | SAME_FOR_ANY_LAYERS | RULES_OF_SESSIONS

    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return TensorFlowDigitsCNN()

    @pytest.fixture
    def dataset(self) -> Dataset:
        return DigitsDataset(test_fraction=0.8, validation_fraction=0.2)


@pytest.mark.slow
class TestImageFolderCNN(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return TensorFlowImageFolderCNN(input_size=(12, 16), input_channels=3, num_classes=4)

    @pytest.fixture
    def dataset(self) -> Dataset:
        return SyntheticImagesDataset(
            num_samples=150, image_size=(12, 16), channels=3, test_fraction=0.5
        )


@pytest.mark.slow
class TestOthers(ModelWrapperContract):
    @pytest.fixture(
        params=[
            TensorFlowWornDigitsCNN,
            TensorFlowMNISTCNN,
            TensorFlowFashionMNISTCNN,
            TensorFlowCIFAR10CNN,
        ]
    )
    def wrapper(self, request: pytest.FixtureRequest) -> ModelWrapper:
        made: ModelWrapper = request.param()
        return made

    @pytest.fixture
    def dataset(self, wrapper: TensorFlowCNN) -> Dataset:
        height, width, channels = wrapper.image_shape
        return SyntheticImagesDataset(
            num_samples=300,
            num_classes=10,
            image_size=(height, width),
            channels=channels,
            test_fraction=0.5,
        )


def accuracy(model: LiveModel, dataset: Dataset) -> float:
    right = []
    with model.session() as session:
        for inputs, truth in dataset.batches(dataset.split("test"), 500):
            scores = model.wrapper.postprocess(session.infer(model.wrapper.preprocess(inputs)))[
                "scores"
            ]
            right.append(scores.argmax(-1) == truth["label"])
    return float(np.concatenate(right).mean())


@pytest.mark.slow
def test_digits_are_learnt_with_the_options_as_they_are(tmp_path: Path) -> None:
    dataset = DigitsDataset()
    model = TensorFlowDigitsCNN().for_dataset(dataset.spec).open()
    history = model.train(dataset, TrainingOptions())
    assert history.epochs[-1]["validation_accuracy"] >= 0.975
    assert accuracy(model, dataset) >= 0.985
    exported = model.export(tmp_path / "digits.keras", "keras")
    batch = model.wrapper.preprocess(dataset.read(dataset.split("test")[:7])[0])
    with KerasRuntime().load(Artifact.read(exported.path)) as theirs, model.session() as mine:
        # Frozen weights are folded into what uses them, which rounds otherwise.
        np.testing.assert_allclose(
            theirs.infer(batch)["scores"], mine.infer(batch)["scores"], rtol=1e-5, atol=1e-6
        )


@pytest.mark.slow
def test_mnist_is_learnt_in_one_epoch(shared_data: Path) -> None:
    dataset = MNISTDataset(dataset_root=shared_data / "mnist")
    dataset.prepare()
    model = TensorFlowMNISTCNN().for_dataset(dataset.spec).open()
    model.train(dataset, TrainingOptions(num_epochs=1, batch_size=64))
    assert accuracy(model, dataset) >= 0.985


@pytest.mark.parametrize(
    ("wrapper", "shape"),
    [
        (TensorFlowDigitsCNN(), (8, 8, 1)),
        (TensorFlowWornDigitsCNN(), (12, 12, 1)),
        (TensorFlowMNISTCNN(), (28, 28, 1)),
        (TensorFlowFashionMNISTCNN(), (28, 28, 1)),
        (TensorFlowCIFAR10CNN(), (32, 32, 3)),
        (TensorFlowImageFolderCNN(), (24, 40, 3)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TensorFlowCNN) else "",
)
def test_each_takes_the_images_of_its_data_set(
    wrapper: TensorFlowCNN, shape: tuple[int, int, int]
) -> None:
    fitted = wrapper.for_dataset(make_image_classification_spec(*shape, TEN)).open()
    pixels = (
        np.random.default_rng(0)
        .integers(0, fitted.wrapper.brightest + 1, (3, *shape))
        .astype("uint8")
    )
    inputs = fitted.wrapper.preprocess({"image": pixels})
    assert inputs["image"].max() <= 1.0
    np.testing.assert_allclose(inputs["image"] * fitted.wrapper.brightest, pixels, rtol=1e-6)
    with fitted.session() as session:
        scores = session.infer(inputs)["scores"]
    np.testing.assert_allclose(scores.sum(-1), 1.0, rtol=1e-5)
    varied = fitted.wrapper.augment(inputs, np.random.default_rng(0))
    fitted.io.check_inputs(varied)


@pytest.mark.parametrize("shape", [(28, 28, 1), (8, 8, 3)])
def test_images_of_another_size_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(
        ConfigError, match=r"TensorFlowDigitsCNN takes samples of \(8, 8, 1\), the data set gives"
    ):
        TensorFlowDigitsCNN().for_dataset(make_image_classification_spec(*shape, TEN))


def test_another_number_of_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match="tells 10 classes apart, the data set has 3"):
        TensorFlowDigitsCNN().for_dataset(make_image_classification_spec(8, 8, 1, TEN[:3]))


def test_a_folder_decides_what_was_not_given() -> None:
    fitted = TensorFlowImageFolderCNN().for_dataset(
        make_image_classification_spec(20, 30, 1, TEN[:6])
    )
    assert (fitted.image_shape, fitted.classes) == ((20, 30, 1), 6)
    with pytest.raises(ConfigError, match="tells 4 classes apart, the data set has 6"):
        TensorFlowImageFolderCNN(num_classes=4).for_dataset(
            make_image_classification_spec(20, 30, 1, TEN[:6])
        )


def test_a_folder_with_images_of_many_sizes_is_refused() -> None:
    spec = DatasetSpec(
        "classification", (TensorSpec("image", (None, None, None, 3), "uint8"),), (), TEN
    )
    with pytest.raises(
        ConfigError, match=r"takes images of one size, the data set gives \(\?, \?, 3\)"
    ):
        TensorFlowImageFolderCNN().for_dataset(spec)


def test_without_a_data_set_the_size_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="needs --input-size and --input-channels"):
        _ = TensorFlowImageFolderCNN(num_classes=2).io
    with pytest.raises(ConfigError, match="needs --num-classes"):
        _ = TensorFlowImageFolderCNN(input_size=(8, 8), input_channels=1).io


def test_images_are_moved_down_and_to_the_right() -> None:
    images = np.arange(1, 7, dtype="float32").reshape(1, 2, 3, 1).repeat(3, 0)
    moved = shift_images(images, np.array([[0, 0], [1, -1], [-1, 2]]), "nhwc")[..., 0]
    assert moved.tolist() == [
        [[1, 2, 3], [4, 5, 6]],
        [[0, 0, 0], [2, 3, 0]],
        [[0, 0, 4], [0, 0, 0]],
    ]


def test_about_half_of_the_samples_are_mirrored() -> None:
    images = np.zeros((200, 28, 28, 1), "float32")
    images[:, :, 0] = 1.0
    varied = TensorFlowFashionMNISTCNN().augment({"image": images}, np.random.default_rng(0))[
        "image"
    ]
    mirrored = varied[:, 0, -1, 0] == 1.0
    assert 70 < mirrored.sum() < 130
    np.testing.assert_array_equal(varied.sum((1, 2, 3)), 28.0)
