from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed, needs

from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.in_memory import make_image_classification_spec
from nnpipe.datasets.synthetic import SyntheticImagesDataset
from nnpipe.modelwrappers.classification.mobilenet import (
    TensorFlowMobileNetV2,
    TensorFlowPetDatasetMobileNetV2,
)
from nnpipe.testing.modelwrapper import ModelWrapperContract
from nnpipe.testing.session import assert_one_line

needs("tensorflow")
keras = ImportedWhenUsed("keras")
h5py = pytest.importorskip("h5py", reason="h5py is not installed")

SMALL: dict[str, Any] = {"alpha": 0.35, "input_size": (32, 32)}
ONE_EPOCH = TrainingOptions(num_epochs=1, batch_size=16)


@pytest.fixture(scope="module")
def images() -> SyntheticImagesDataset:
    return SyntheticImagesDataset(
        num_samples=80, num_classes=3, image_size=(32, 32), channels=3, test_fraction=0.4
    )


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file laid out as keras.applications publishes it, with random weights that let signals
    pass.
    """
    base = keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), alpha=0.35, include_top=False, weights=None
    )
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("weights") / "mobilenet_v2_no_top.h5"
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [layer.name.encode() for layer in base.layers]
        for layer in base.layers:
            group = file.create_group(layer.name)
            names = [f"{layer.name}/{weight.name}:0" for weight in layer.weights]
            # Depthwise kernels had a name of their own when the weights were published.
            names = [
                name.replace("/kernel", "/depthwise_kernel") if "depthwise" in name else name
                for name in names
            ]
            group.attrs["weight_names"] = [name.encode() for name in names]
            for name, weight in zip(names, layer.weights, strict=True):
                shape = tuple(weight.shape)
                if len(shape) == 4:
                    fan_in = shape[0] * shape[1] * (1 if "depthwise" in name else shape[2])
                    group[name] = rng.normal(0, np.sqrt(2 / fan_in), shape).astype("float32")
                else:
                    group[name] = np.full(
                        shape, 1.0 if name.endswith(("gamma:0", "variance:0")) else 0.0, "float32"
                    )
    return path


@pytest.mark.slow  # every test builds and traces 155 layers
class TestMobileNetV2(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self, published: Path) -> ModelWrapper:
        return TensorFlowPetDatasetMobileNetV2(pretrained_weights=published, num_classes=3, **SMALL)

    @pytest.fixture
    def dataset(self, images: SyntheticImagesDataset) -> Dataset:
        return images


def test_it_fits_the_pets_as_they_are() -> None:
    breeds = tuple(f"breed {number}" for number in range(37))
    wrapper = TensorFlowPetDatasetMobileNetV2().for_dataset(
        make_image_classification_spec(224, 224, 3, breeds)
    )
    assert wrapper.io.inputs[0].shape == (None, 224, 224, 3)
    assert wrapper.io.outputs[0].shape == (None, 37)


def test_pixels_become_what_the_weights_were_trained_on() -> None:
    pixels = np.broadcast_to(np.array([0, 255, 51], "uint8"), (1, 32, 32, 3))
    scaled = TensorFlowPetDatasetMobileNetV2(input_size=(32, 32)).preprocess({"image": pixels})[
        "image"
    ]
    np.testing.assert_allclose(scaled[0, 5, 7], [-1.0, 1.0, -0.6], atol=1e-6)
    assert scaled.dtype == np.float32


def test_without_weights_it_says_where_to_get_them(images: SyntheticImagesDataset) -> None:
    model = TensorFlowPetDatasetMobileNetV2(**SMALL).for_dataset(images.spec).open()
    with pytest.raises(
        ConfigError, match=r"_0\.35_224_no_top\.h5 and pass --pretrained-weights PATH"
    ) as caught:
        model.train(images, ONE_EPOCH)
    assert "https://storage.googleapis.com/" in str(caught.value)
    assert "--from-scratch" in str(caught.value)
    assert_one_line(caught.value)


def test_a_missing_weights_file_is_named(images: SyntheticImagesDataset, tmp_path: Path) -> None:
    wrapper = TensorFlowPetDatasetMobileNetV2(pretrained_weights=tmp_path / "nowhere.h5", **SMALL)
    with pytest.raises(ArtifactError, match=r"nowhere\.h5: no such file; fetch https") as caught:
        wrapper.for_dataset(images.spec).open().train(images, ONE_EPOCH)
    assert_one_line(caught.value)


@pytest.mark.slow
def test_weights_of_another_width_are_refused(published: Path) -> None:
    model = TensorFlowPetDatasetMobileNetV2(
        pretrained_weights=published, alpha=0.5, input_size=(32, 32)
    ).open()
    with pytest.raises(
        ArtifactError, match=r"another model than MobileNetV2 without top, alpha 0\.5"
    ) as caught:
        _ = model.native
    assert str(published) in str(caught.value)
    assert_one_line(caught.value)


def test_weights_and_from_scratch_exclude_each_other(published: Path) -> None:
    with pytest.raises(ConfigError, match="not both"):
        TensorFlowPetDatasetMobileNetV2(pretrained_weights=published, from_scratch=True)


@pytest.mark.slow
def test_a_frozen_base_keeps_the_pretrained_weights(
    published: Path, images: SyntheticImagesDataset
) -> None:
    model = (
        TensorFlowPetDatasetMobileNetV2(pretrained_weights=published, **SMALL)
        .for_dataset(images.spec)
        .open()
    )
    before = model.get_weights()
    with h5py.File(published) as file:
        np.testing.assert_array_equal(
            before["mobilenet_v2/Conv1/kernel"], file["Conv1/Conv1/kernel:0"]
        )
        depthwise = file["block_1_depthwise/block_1_depthwise/depthwise_kernel:0"]
        np.testing.assert_array_equal(before["mobilenet_v2/block_1_depthwise/kernel"], depthwise)
    model.train(images, ONE_EPOCH)
    changed = {
        name
        for name, array in model.get_weights().items()
        if not np.array_equal(array, before[name])
    }
    assert changed == {"scores/kernel", "scores/bias"}


@pytest.mark.slow  # it traces 155 layers twice
def test_a_loaded_model_is_trained_on(
    published: Path, images: SyntheticImagesDataset, tmp_path: Path
) -> None:
    trained = (
        TensorFlowPetDatasetMobileNetV2(pretrained_weights=published, **SMALL)
        .for_dataset(images.spec)
        .open()
    )
    trained.save(tmp_path / "pets.keras")
    again = TensorFlowPetDatasetMobileNetV2(**SMALL).for_dataset(images.spec).open()
    again.load(tmp_path / "pets.keras")
    again.train(images, ONE_EPOCH)
    name = "mobilenet_v2/Conv1/kernel"
    np.testing.assert_array_equal(
        again.get_weights([name])[name], trained.get_weights([name])[name]
    )


@pytest.mark.slow
def test_from_scratch_every_layer_learns(images: SyntheticImagesDataset) -> None:
    model = (
        TensorFlowPetDatasetMobileNetV2(from_scratch=True, **SMALL).for_dataset(images.spec).open()
    )
    before = model.get_weights()
    model.train(images, ONE_EPOCH)
    assert [
        name for name, array in model.get_weights().items() if np.array_equal(array, before[name])
    ] == []


class Lively(TensorFlowMobileNetV2):
    """The same network, whose fresh weights let what goes in reach the scores through 17 blocks."""

    def build(self) -> Any:
        model = super().build()
        for weight in model.weights:
            if weight.path.endswith("kernel"):
                weight.assign(3 * weight)
        return model


@pytest.mark.slow  # every test builds and traces 155 layers
class TestMobileNetV2OfAnyImages(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return Lively(width=0.35, input_size=(32, 32), num_classes=3)

    @pytest.fixture
    def dataset(self) -> Dataset:
        return SyntheticImagesDataset(num_samples=80, num_classes=3)

    @pytest.fixture
    def options(self) -> TrainingOptions:
        # Four steps an epoch: three epochs are too few for some initial weights.
        return TrainingOptions(num_epochs=10, batch_size=16, learning_rate=0.003, seed=7)

    def test_module_and_help_need_no_framework(self, component: Component) -> None:
        # Lively is made here, where Keras is imported.
        super().test_module_and_help_need_no_framework(TensorFlowMobileNetV2())


def test_grey_images_of_another_size_fit() -> None:
    wrapper = TensorFlowMobileNetV2(input_size=(32, 32)).for_dataset(
        make_image_classification_spec(8, 8, 1, tuple("abc"))
    )
    image = wrapper.preprocess({"image": np.full((2, 8, 8, 1), 255, "uint8")})["image"]
    wrapper.io.check_inputs({"image": image})
    np.testing.assert_array_equal(image, 1.0)
    assert wrapper.io.outputs[0].shape == (None, 3)
