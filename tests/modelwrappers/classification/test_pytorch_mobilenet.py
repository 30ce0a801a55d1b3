from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.datasets.in_memory import make_image_classification_spec
from nnpipe.datasets.pets import BREEDS
from nnpipe.datasets.synthetic import SyntheticImagesDataset
from nnpipe.modelwrappers.classification.mobilenet import (
    PyTorchMobileNetV2,
    PyTorchPetDatasetMobileNetV2,
    build_mobilenet_v2,
)
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.modelwrapper import ModelWrapperContract

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class TestArguments(ComponentContract):
    @pytest.fixture
    def component(self) -> Component:
        return PyTorchPetDatasetMobileNetV2(pretrained_weights=Path("weights.pth"), fine_tune=False)


class Small(PyTorchPetDatasetMobileNetV2):
    """The same network for images of 32 pixels in 4 classes, to be trained in a moment.

    Its fresh weights let what goes in reach the scores through 17 blocks.
    """

    classes: ClassVar[int] = 4
    side: ClassVar[int] = 32

    def build(self) -> Any:
        network = super().build()
        with torch.no_grad():
            for module in network.modules():
                if isinstance(module, torch.nn.Conv2d):
                    module.weight *= 3
        return network


@pytest.mark.slow  # 52 layers of convolution for each of many tests
class TestPets(ModelWrapperContract):
    learning_rate = 0.001  # with 0.003 the loss of fresh weights first rises

    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return Small(from_scratch=True)

    @pytest.fixture
    def dataset(self) -> Dataset:
        return SyntheticImagesDataset(num_samples=80, image_size=(32, 32), channels=3)

    def test_module_and_help_need_no_framework(self, component: Component) -> None:
        # Small is made here, where PyTorch is imported.
        super().test_module_and_help_need_no_framework(
            PyTorchPetDatasetMobileNetV2(from_scratch=True)
        )


OPTIONS = TrainingOptions(num_epochs=1, batch_size=16)


@pytest.fixture(scope="module")
def dataset() -> SyntheticImagesDataset:
    return SyntheticImagesDataset(num_samples=64, image_size=(32, 32), channels=3)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands for the published file: a thousand classes, and weights that can be told from
    fresh ones.
    """
    torch.manual_seed(1)
    network = build_mobilenet_v2(1000, 0.2)
    for value in network.state_dict().values():
        value += 1
    path = tmp_path_factory.mktemp("weights") / "mobilenet_v2.pth"
    torch.save(network.state_dict(), path)
    return path


def test_weights_are_named_and_counted_as_published() -> None:
    network = build_mobilenet_v2(1000, 0.2)
    state = network.state_dict()
    # torchvision's own figure
    assert sum(weights.numel() for weights in network.parameters()) == 3_504_872
    assert len(state) == 314
    assert state["features.0.0.weight"].shape == (32, 3, 3, 3)
    # no expansion in the first block
    assert state["features.1.conv.0.0.weight"].shape == (32, 1, 3, 3)
    assert state["features.2.conv.0.0.weight"].shape == (96, 16, 1, 1)
    assert state["features.17.conv.3.running_var"].shape == (320,)
    assert state["features.18.0.weight"].shape == (1280, 320, 1, 1)
    assert state["classifier.1.weight"].shape == (1000, 1280)


def test_the_image_shrinks_to_seven_by_seven() -> None:
    assert build_mobilenet_v2(37, 0.2).features(torch.zeros(2, 3, 224, 224)).shape == (
        2,
        1280,
        7,
        7,
    )


def test_the_pet_data_set_fits() -> None:
    wrapper = PyTorchPetDatasetMobileNetV2()
    assert wrapper.for_dataset(make_image_classification_spec(224, 224, 3, BREEDS)) is wrapper
    with pytest.raises(ConfigError, match="37 classes apart, the data set has 2"):
        wrapper.for_dataset(make_image_classification_spec(224, 224, 3, ("cat", "dog")))


def test_pixels_are_scaled_as_the_published_weights_expect() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), np.uint8)
    image = PyTorchPetDatasetMobileNetV2().preprocess({"image": pixels})["image"]
    PyTorchPetDatasetMobileNetV2().io.check_inputs({"image": image})
    mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    for channel in range(3):
        expected = (pixels[..., channel] / 255 - mean[channel]) / deviation[channel]
        np.testing.assert_allclose(image[:, channel], expected, atol=1e-5)


def test_training_asks_where_to_start(dataset: SyntheticImagesDataset) -> None:
    with pytest.raises(
        ConfigError, match=r"download\.pytorch\.org.*--pretrained-weights FILE.*--from-scratch"
    ) as caught:
        Small().open().train(dataset, OPTIONS)
    assert "\n" not in str(caught.value)


def test_a_missing_file_of_weights_is_named_with_where_to_get_it(
    dataset: SyntheticImagesDataset, tmp_path: Path
) -> None:
    path = tmp_path / "nowhere.pth"
    with pytest.raises(
        ArtifactError, match=r"nowhere\.pth.*fetch https://.*--pretrained-weights"
    ) as caught:
        Small(pretrained_weights=path).open().train(dataset, OPTIONS)
    assert "\n" not in str(caught.value)


def test_weights_of_another_network_are_refused(
    dataset: SyntheticImagesDataset, tmp_path: Path
) -> None:
    path = tmp_path / "resnet.pth"
    torch.save({"conv1.weight": torch.zeros(3)}, path)
    model = Small(pretrained_weights=path).open()
    with pytest.raises(
        ArtifactError,
        match=r"resnet\.pth: weights of another model: it lacks features\.0\.0\.weight",
    ):
        model.train(dataset, OPTIONS)
    with pytest.raises(ArtifactError):  # and it does not count as a start
        model.train(dataset, OPTIONS)


def test_contradictions_are_refused() -> None:
    with pytest.raises(ConfigError, match="contradict"):
        Small(from_scratch=True, pretrained_weights=Path("x.pth"))
    with pytest.raises(ConfigError, match="random weights"):
        Small(from_scratch=True, fine_tune=False)


def test_only_the_classifier_is_trained_if_so_wished(
    dataset: SyntheticImagesDataset, published: Path
) -> None:
    model = Small(pretrained_weights=published, fine_tune=False).open()
    model.train(dataset, OPTIONS)
    found = model.get_weights()
    theirs: dict[str, Any] = torch.load(published, weights_only=True)
    for name, array in found.items():
        if not name.startswith("classifier."):
            np.testing.assert_array_equal(array, theirs[name].numpy(), err_msg=name)
    assert found["classifier.1.weight"].shape == (4, 1280)


def test_fine_tuning_starts_from_the_published_weights(
    dataset: SyntheticImagesDataset, published: Path
) -> None:
    model = Small(pretrained_weights=published).open()
    model.train(dataset, TrainingOptions(num_epochs=1, batch_size=64, learning_rate=1e-6))
    theirs = torch.load(published, weights_only=True)
    name = "features.4.conv.0.0.weight"
    found = model.get_weights([name])[name]
    np.testing.assert_allclose(found, theirs[name].numpy(), atol=1e-4)
    assert not np.array_equal(found, theirs[name].numpy())


def test_training_from_scratch_needs_no_file(dataset: SyntheticImagesDataset) -> None:
    history = Small(from_scratch=True).open().train(dataset, OPTIONS)
    assert history.epochs[0]["loss"] > 0


def test_trained_weights_need_no_published_ones(tmp_path: Path) -> None:
    trained = Small(from_scratch=True).open()
    path = trained.save(tmp_path / "pets.safetensors").path
    other = Small().open()
    other.load(path)
    for name, array in trained.get_weights().items():
        np.testing.assert_array_equal(other.get_weights([name])[name], array)


# -- any images ---------------------------------------------------------------------------------


@pytest.mark.slow  # 52 layers of convolution for each of many tests
class TestMobileNetV2(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return PyTorchMobileNetV2(width=0.1, input_size=(32, 32), num_classes=4)

    @pytest.fixture
    def dataset(self) -> Dataset:
        # Of so narrow a network the loss is noise over a dozen steps; with any seed it has fallen
        # after fifty.
        return SyntheticImagesDataset(num_samples=320)


def test_channels_are_multiples_of_8_and_the_last_ones_stay() -> None:
    state = build_mobilenet_v2(10, 0.2, 0.35).state_dict()
    widths = [
        state[f"features.{block}.conv.{2 if block > 1 else 1}.weight"].shape[0]
        for block in (1, 2, 4, 7, 11, 14)
    ]
    assert widths == [8, 8, 16, 24, 32, 56]  # those of keras.applications at this width
    assert state["features.0.0.weight"].shape[0] == 16
    assert state["classifier.1.weight"].shape == (10, 1280)


def test_small_grey_images_become_large_ones_in_colour() -> None:
    dataset = DigitsDataset()
    dataset.prepare()
    wrapper = PyTorchMobileNetV2(input_size=(32, 40), brightest_pixel=16).for_dataset(dataset.spec)
    raw, _ = next(iter(dataset.batches(dataset.split("test"), 2)))
    image = wrapper.preprocess(raw)["image"]
    wrapper.io.check_inputs({"image": image})
    assert (image.min(), image.max()) == (-1.0, 1.0)
    np.testing.assert_array_equal(image[:, 0], image[:, 2])
    # The middle of an enlarged pixel is the pixel.
    np.testing.assert_allclose(
        image[:, 0, 1:3, 2], raw["image"][:, [0, 0], 0, 0] / 8 - 1, atol=1e-6
    )


def test_what_cannot_be_made_colour_images_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"PyTorchMobileNetV2 takes images of one channel or three, .* \(8, 8, 2\)",
    ):
        PyTorchMobileNetV2().for_dataset(make_image_classification_spec(8, 8, 2, ("a", "b")))
    with pytest.raises(ConfigError, match="without a data set needs --num-classes"):
        _ = PyTorchMobileNetV2().io
