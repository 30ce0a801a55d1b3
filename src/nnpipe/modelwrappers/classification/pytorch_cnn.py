"""Small convolutional networks in PyTorch that classify images."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from nnpipe.modelwrappers.classification._small_cnn import (
    CIFAR10CNN,
    MNISTCNN,
    DigitsCNN,
    FashionMNISTCNN,
    ImageFolderCNN,
    SmallCNN,
    WornDigitsCNN,
)
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper


class PyTorchCNN(SmallCNN, PyTorchWrapper):
    """A stack of convolutions in PyTorch.

    The input ``"image"`` is ``(n, channels, height, width)`` float32 from 0 to
    1, the output ``"scores"`` ``(n, classes)`` float32.
    """

    layout: ClassVar[Literal["nhwc", "nchw"]] = "nchw"

    def build(self) -> Any:
        """Return the network with random weights."""
        from torch import nn

        channels = self.image_shape[2]
        stages: list[Any] = []
        for number, width in enumerate(self.widths, 1):
            layers: list[Any] = []
            for stride in self.strides_of(number):
                convolution = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
                layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
                channels = width
            if number < len(self.widths) and not self.strided:
                layers.append(nn.MaxPool2d(2))
            stages.append(nn.Sequential(*layers))
        head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(self.dropout), nn.Linear(channels, self.classes)
        )
        return nn.Sequential(nn.Sequential(*stages), head)


class PyTorchDigitsCNN(DigitsCNN, PyTorchCNN):
    """A CNN for the digits that come with nnpipe, 8 x 8 pixels from 0 to 16."""


class PyTorchWornDigitsCNN(WornDigitsCNN, PyTorchCNN):
    """A CNN with few channels for the worn digits that come with nnpipe, 12 x 12 pixels from 0 to 16."""


class PyTorchMNISTCNN(MNISTCNN, PyTorchCNN):
    """A CNN for the handwritten digits of MNIST."""


class PyTorchFashionMNISTCNN(FashionMNISTCNN, PyTorchCNN):
    """A CNN for the clothes of Fashion-MNIST."""


class PyTorchCIFAR10CNN(CIFAR10CNN, PyTorchCNN):
    """A CNN for the colour images of CIFAR-10."""


class PyTorchImageFolderCNN(ImageFolderCNN, PyTorchCNN):
    """A CNN for your own images, with the size and the classes of the data set."""
