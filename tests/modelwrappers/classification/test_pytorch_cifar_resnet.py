"""Residual networks for CIFAR-10."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.datasets.in_memory import make_image_classification_spec
from nnpipe.datasets.synthetic import SyntheticImagesDataset
from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.modelwrapper import ModelWrapperContract

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class TestCIFARResNet(ComponentContract):
    @pytest.fixture
    def component(self) -> PyTorchCIFARResNet:
        return PyTorchCIFARResNet(
            depth=32, class_count=7, mean=(0.5, 0.5, 0.5), deviation=(0.25, 0.25, 0.25)
        )


@pytest.mark.slow
class TestItself(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return PyTorchCIFARResNet(depth=20, class_count=4)

    @pytest.fixture
    def dataset(self) -> Dataset:
        return SyntheticImagesDataset(
            num_samples=120, image_size=(32, 32), channels=3, test_fraction=0.5
        )


@pytest.mark.parametrize(
    ("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)]
)
def test_each_depth_has_as_many_parameters_as_published(depth: int, millions: float) -> None:
    module = PyTorchCIFARResNet(depth=depth).build()
    count = sum(parameter.numel() for parameter in module.parameters())
    assert count / 1e6 == pytest.approx(millions, abs=0.03)


def test_a_published_file_is_loaded_as_it_is(shared_data: Path) -> None:
    model = PyTorchCIFARResNet(depth=20).open()
    model.load(shared_data / "models" / "torch_resnet" / "resnet20-12fca82f.th")
    assert abs(model.get_weights(["conv1.weight"])["conv1.weight"]).sum() > 0
    with pytest.raises(ArtifactError, match="weights of another model"):
        PyTorchCIFARResNet(depth=32).open().load(
            shared_data / "models" / "torch_resnet" / "resnet20-12fca82f.th"
        )


def test_other_images_and_classes_are_refused() -> None:
    names = tuple("0123456789")
    wrapper: ModelWrapper = PyTorchCIFARResNet()
    assert wrapper.for_dataset(make_image_classification_spec(32, 32, 3, names)) is wrapper
    dataset: Dataset = DigitsDataset()
    with pytest.raises(
        ConfigError, match=r"takes samples of \(32, 32, 3\), the data set gives \(8, 8, 1\)"
    ):
        wrapper.for_dataset(dataset.spec)
    with pytest.raises(ConfigError, match="10 classes apart, the data set has 3"):
        wrapper.for_dataset(make_image_classification_spec(32, 32, 3, names[:3]))
    with pytest.raises(ConfigError, match="--mean has 1 numbers"):
        PyTorchCIFARResNet(mean=(0.5,))
