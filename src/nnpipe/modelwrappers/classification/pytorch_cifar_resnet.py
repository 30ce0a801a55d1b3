"""The residual networks for CIFAR-10 of the original paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec
from nnpipe.modelwrappers.classification._image_upscaling import check_fits
from nnpipe.modelwrappers.classification.small_cnn import augment_images
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

if TYPE_CHECKING:
    from typing_extensions import Self

_SIDE = 32
_WIDTHS = (16, 32, 64)


class PyTorchCIFARResNet(PyTorchWrapper):
    """A residual network for CIFAR-10 of He et al. 2015 (arXiv:1512.03385, section 4.2).

    A convolution, three stages of ``(depth - 2) / 6`` blocks with 16, 32 and
    64 channels, and a dense layer.  Shortcuts have no weights (option A of the
    paper): where a stage halves the image, they take every second pixel, and
    their new channels are 0.

    Weights have the names of https://github.com/akamaster/pytorch_resnet_cifar10,
    so that its published files can be loaded; its preprocessing is the default.

    The input ``"image"`` is ``(n, 3, 32, 32)`` float32, the output
    ``"scores"`` ``(n, classes)`` float32, probabilities.
    """

    depth: int = argument(20, help="number of layers with weights", choices=(20, 32, 44, 56, 110))
    class_count: int = argument(10, help="number of classes", minimum=2)
    mean: tuple[float, ...] = argument(
        (0.485, 0.456, 0.406), help="numbers to subtract from the channels, whose pixels are 0 to 1"
    )
    deviation: tuple[float, ...] = argument(
        (0.229, 0.224, 0.225), help="numbers to divide the channels by after --mean"
    )

    shift: ClassVar[int] = 4

    def validate(self) -> None:
        """Check that there is one mean and one deviation, other than 0, for each channel."""
        for flag, numbers in (("--mean", self.mean), ("--deviation", self.deviation)):
            if len(numbers) != 3:
                raise ConfigError(f"{flag} has {len(numbers)} numbers, the images have 3 channels")
        if 0 in self.deviation:
            raise ConfigError("--deviation divides: none of its numbers can be 0")

    @property
    def io(self) -> IOSpec:
        """The input, an image, and the output, a probability for each class."""
        return IOSpec(
            (TensorSpec("image", (None, 3, _SIDE, _SIDE), "float32"),),
            (TensorSpec("scores", (None, self.class_count), "float32"),),
        )

    def build(self) -> Any:
        """Return the network with random weights."""
        return _build_resnet((self.depth - 2) // 6, self.class_count)

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper, after a check of the data set for colour images of 32 x 32 and
        the number of classes.
        """
        check_fits(self, spec, (_SIDE, _SIDE, 3), self.class_count)
        return self

    @property
    def meaning(self) -> ModelMetadata:
        """Inputs are pixels from 0 to 1, normalised, channels first; outputs are probabilities."""
        pixels = InputProcessing(
            "image",
            "image",
            sample_range=(0, 255),
            scale=255,
            mean=self.mean,
            deviation=self.deviation,
            layout="nchw",
        )
        return ModelMetadata((pixels,), (OutputMetadata("scores", "probabilities"),))

    def augment(self, inputs: Batch, rng: np.random.Generator) -> Batch:
        """Return the samples with half of them mirrored, each shifted by up to four pixels, as
        in the paper.
        """
        return {
            "image": augment_images(inputs["image"], rng, "nchw", shift=self.shift, mirror=True)
        }


def _build_resnet(blocks: int, classes: int) -> Any:
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self, given: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(given, width, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.added = width - given

        def forward(self, x: Any) -> Any:
            y = functional.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            if self.added:
                x = functional.pad(
                    x[:, :, ::2, ::2], (0, 0, 0, 0, self.added // 2, self.added // 2)
                )
            return functional.relu(y + x)

    class ResNet(nn.Module):  # type: ignore[misc]  # as above
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, _WIDTHS[0], 3, 1, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(_WIDTHS[0])
            given = _WIDTHS[0]
            for number, width in enumerate(_WIDTHS, 1):
                strides = [1 if number == 1 else 2] + [1] * (blocks - 1)
                stage = []
                for stride in strides:
                    stage.append(Block(given, width, stride))
                    given = width
                setattr(self, f"layer{number}", nn.Sequential(*stage))
            self.linear = nn.Linear(_WIDTHS[-1], classes)
            for module in self.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    nn.init.kaiming_normal_(module.weight)

        def forward(self, x: Any) -> Any:
            x = functional.relu(self.bn1(self.conv1(x)))
            x = self.layer3(self.layer2(self.layer1(x)))
            return self.linear(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))

    return ResNet()
