from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from repeated import RULES_OF_SESSIONS, SAME_FOR_ANY_LAYERS, SAME_IN_A_FRAMEWORK

from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.core.tensors import DatasetSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.datasets.in_memory import Samples, make_image_classification_spec
from nnpipe.datasets.mnist import MNISTDataset
from nnpipe.datasets.synthetic import SyntheticImagesDataset, SyntheticVectorsDataset
from nnpipe.modelwrappers.classification.small_cnn import (
    PyTorchCIFAR10CNN,
    PyTorchCNN,
    PyTorchDigitsCNN,
    PyTorchFashionMNISTCNN,
    PyTorchImageFolderCNN,
    PyTorchMNISTCNN,
    PyTorchWornDigitsCNN,
    shift_images,
)
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.modelwrapper import ModelWrapperContract

FIXED = [
    PyTorchDigitsCNN,
    PyTorchWornDigitsCNN,
    PyTorchMNISTCNN,
    PyTorchFashionMNISTCNN,
    PyTorchCIFAR10CNN,
]


class TestDigits(ModelWrapperContract):
    repeats = SAME_IN_A_FRAMEWORK | SAME_FOR_ANY_LAYERS | RULES_OF_SESSIONS

    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return PyTorchDigitsCNN(num_threads=2, onnx_opset=17)

    @pytest.fixture
    def dataset(self) -> Dataset:
        return DigitsDataset(test_fraction=0.7)


class TestImageFolder(ComponentContract):
    @pytest.fixture
    def component(self) -> Component:
        return PyTorchImageFolderCNN(input_size=(16, 24), input_channels=3, num_classes=4)


@pytest.mark.slow
class TestOthers(ModelWrapperContract):
    @pytest.fixture(
        params=[
            PyTorchWornDigitsCNN,
            PyTorchMNISTCNN,
            PyTorchFashionMNISTCNN,
            PyTorchCIFAR10CNN,
            PyTorchImageFolderCNN,
        ]
    )
    def wrapper(self, request: pytest.FixtureRequest) -> ModelWrapper:
        if request.param is PyTorchImageFolderCNN:
            return PyTorchImageFolderCNN(input_size=(16, 24), input_channels=3, num_classes=10)
        made: ModelWrapper = request.param()
        return made

    @pytest.fixture
    def dataset(self, wrapper: PyTorchCNN) -> Dataset:
        return images_for(wrapper)


def images_for(wrapper: PyTorchCNN) -> Dataset:
    height, width, channels = wrapper.image_shape
    return SyntheticImagesDataset(
        num_samples=300,
        num_classes=10,
        image_size=(height, width),
        channels=channels,
        test_fraction=0.5,
    )


@pytest.mark.parametrize("cls", FIXED)
def test_models_take_the_images_of_their_data_set_and_no_others(cls: type[PyTorchCNN]) -> None:
    wrapper = cls()
    names = tuple("0123456789")
    assert (
        wrapper.for_dataset(make_image_classification_spec(*wrapper.image_shape, names)) is wrapper
    )
    images = np.random.default_rng(0).integers(0, 256, (3, *wrapper.image_shape), np.uint8)
    with wrapper.open().session() as session:
        scores = session.infer(wrapper.preprocess({"image": images}))["scores"]
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)
    with pytest.raises(ConfigError, match=r"takes samples of .*gives \(9, 9, 1\)"):
        wrapper.for_dataset(make_image_classification_spec(9, 9, 1, names))
    with pytest.raises(ConfigError, match="10 classes apart, the data set has 3"):
        wrapper.for_dataset(make_image_classification_spec(*wrapper.image_shape, names[:3]))


def test_a_data_set_of_another_task_is_refused() -> None:
    vectors = SyntheticVectorsDataset(num_samples=20)
    with pytest.raises(ConfigError, match="one size, the data set gives"):
        PyTorchImageFolderCNN().for_dataset(vectors.spec)


def test_a_folder_decides_size_and_classes() -> None:
    spec = make_image_classification_spec(20, 30, 3, ("a", "b", "c"))
    fitted = PyTorchImageFolderCNN().for_dataset(spec)
    assert (fitted.image_shape, fitted.classes) == ((20, 30, 3), 3)
    assert fitted.for_dataset(spec) == fitted


def test_what_was_given_is_not_overruled_by_the_folder() -> None:
    spec = make_image_classification_spec(20, 30, 3, ("a", "b", "c"))
    with pytest.raises(ConfigError, match="4 classes apart, the data set has 3"):
        PyTorchImageFolderCNN(num_classes=4).for_dataset(spec)
    with pytest.raises(ConfigError, match=r"takes samples of \(16, 16, 3\)"):
        PyTorchImageFolderCNN(input_size=(16, 16)).for_dataset(spec)


@pytest.mark.parametrize(
    ("given", "missing"),
    [({}, "input-size"), ({"input_size": [8, 8], "input_channels": 1}, "num-classes")],
)
def test_without_a_folder_sizes_must_be_given(given: dict[str, object], missing: str) -> None:
    with pytest.raises(ConfigError, match=f"needs --{missing}|needs --input-size and"):
        _ = PyTorchImageFolderCNN.from_json(given).io


def test_pixels_become_planes_from_zero_to_one() -> None:
    wrapper = PyTorchCIFAR10CNN()
    images = np.zeros((2, 32, 32, 3), np.uint8)
    images[1, 4, 5, 2] = 255
    planes = wrapper.preprocess({"image": images})["image"]
    wrapper.io.check_inputs({"image": planes})
    assert planes.flags.c_contiguous
    assert planes[1, 2, 4, 5] == 1
    assert planes.sum() == 1
    assert (
        PyTorchDigitsCNN().preprocess({"image": np.full((1, 8, 8, 1), 16, np.uint8)})["image"].max()
        == 1
    )


def test_shifting_moves_each_image_and_lets_zeros_in() -> None:
    images = np.arange(2 * 2 * 3 * 4, dtype=np.float32).reshape(2, 2, 3, 4) + 1
    moved = shift_images(images, np.array([[1, -2], [0, 3]]), "nchw")
    np.testing.assert_array_equal(moved[0, :, 1:, :2], images[0, :, :-1, 2:])
    np.testing.assert_array_equal(moved[1, :, :, 3:], images[1, :, :, :1])
    assert np.count_nonzero(moved[0]) == 2 * 2 * 2
    assert np.count_nonzero(moved[1]) == 2 * 3


def test_augmented_images_are_the_originals_moved_or_mirrored() -> None:
    wrapper = PyTorchCIFAR10CNN()
    images = np.zeros((200, 3, 32, 32), np.float32)
    images[:, 0, 16, 10] = 1
    found = wrapper.augment({"image": images}, np.random.default_rng(0))["image"]
    assert found.shape == images.shape
    samples, planes, rows, columns = np.nonzero(found)
    assert list(samples) == list(range(200))
    assert set(planes) == {0}
    assert set(rows - 16) == set(range(-3, 4))
    assert set(columns) == {*range(7, 14), *range(18, 25)}  # mirrored, 10 becomes 21
    assert not np.shares_memory(found, images)


def test_models_are_found_by_their_short_names() -> None:
    assert find("PyTorchDigitsCNN", ModelWrapper) is PyTorchDigitsCNN


def accuracy(model: LiveModel, dataset: Dataset) -> float:
    indices = dataset.split("test")
    inputs, truth = dataset.read(indices)
    with model.session() as session:
        scores = session.infer(model.wrapper.preprocess(inputs))["scores"]
    return float((scores.argmax(axis=1) == truth["label"]).mean())


@pytest.mark.slow
def test_digits_are_read_reliably() -> None:
    dataset = DigitsDataset(split_seed=1)
    model = PyTorchDigitsCNN().open()
    model.train(dataset, TrainingOptions(num_epochs=8, learning_rate=0.004, seed=1))
    assert accuracy(model, dataset) >= 0.985


@pytest.mark.slow
def test_mnist_is_read_after_one_epoch(shared_data: Path) -> None:
    dataset = MNISTDataset(dataset_root=shared_data / "mnist")
    model = PyTorchMNISTCNN().open()
    model.train(dataset, TrainingOptions(num_epochs=1, batch_size=64, learning_rate=0.004))
    assert accuracy(model, dataset) >= 0.985


class Spectrograms(SyntheticImagesDataset):
    """Images under another name."""

    @property
    def spec(self) -> DatasetSpec:
        found = super().spec
        return replace(found, inputs=(replace(found.inputs[0], name="spectrogram"),))

    def load(self) -> Samples:
        found = super().load()
        return replace(found, inputs={"spectrogram": found.inputs["image"]})


def test_a_data_set_whose_images_are_called_otherwise_is_learned() -> None:
    wrapper, data = PyTorchImageFolderCNN(), Spectrograms(num_samples=64, image_size=(16, 16))
    fitted = wrapper.for_dataset(data.spec).open()
    history = fitted.train(data, TrainingOptions(num_epochs=1))
    assert history.epochs[0]["loss"] > 0


def test_a_data_set_with_two_inputs_is_refused_in_one_line() -> None:
    spec = DigitsDataset().spec
    two = replace(spec, inputs=(spec.inputs[0], replace(spec.inputs[0], name="other")))
    with pytest.raises(
        ConfigError, match="PyTorchDigitsCNN takes one input, the data set gives image, other"
    ):
        PyTorchDigitsCNN().for_dataset(two)
