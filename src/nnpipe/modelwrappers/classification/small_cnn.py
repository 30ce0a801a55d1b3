"""Small convolutional networks for several kinds of images, in PyTorch and in Keras."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec, show_shape
from nnpipe.modelwrappers.classification._image_upscaling import check_fits
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper
from nnpipe.modelwrappers.frameworks.tensorflow import TensorFlowWrapper

if TYPE_CHECKING:
    from typing_extensions import Self


# Small convolutional networks for several kinds of images, in any framework.
#
# This module holds everything that the same network must have in common in two frameworks, so that
# comparing the two compares the frameworks.


class SmallCNN(ModelWrapper):
    """A stack of convolutions over an image that gives probabilities of classes.

    Each stage has two convolutions of 3 x 3 with batch normalisation, which
    compilers fold into the convolution, and ReLU; all stages but the last
    halve the image.  Global average pooling and one dense layer follow.

    Attributes
    ----------
    layout
        Whether the framework has channels last or first.
    widths
        Channels in each stage.
    convolutions
        Convolutions in each stage; the last number counts for all further ones.
    strided
        Whether the last convolution of a stage halves the image, instead of a pooling after it.
    dropout
        Dropout rate before the dense layer.
    brightest
        The pixel value that becomes 1.
    shift
        Greatest random shift of training samples, in pixels, in each direction.
    mirror
        Whether half of the training samples are mirrored left to right.
    """

    layout: ClassVar[Literal["nhwc", "nchw"]] = "nhwc"
    widths: ClassVar[tuple[int, ...]] = (32, 64)
    convolutions: ClassVar[tuple[int, ...]] = (2,)
    strided: ClassVar[bool] = False
    dropout: ClassVar[float] = 0.25
    brightest: ClassVar[int] = 255
    shift: ClassVar[int] = 0
    mirror: ClassVar[bool] = False

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int]:
        """Height and width in pixels, and number of channels."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """Number of classes."""

    @property
    def meaning(self) -> ModelMetadata:
        """Inputs are pixels from 0 to 1, outputs are probabilities."""
        pixels = InputProcessing(
            "image",
            "image",
            sample_range=(0, self.brightest),
            scale=self.brightest,
            layout=self.layout,
        )
        return ModelMetadata((pixels,), (OutputMetadata("scores", "probabilities"),))

    @property
    def io(self) -> IOSpec:
        """The input, an image, and the output, a probability for each class."""
        height, width, channels = self.image_shape
        shape = (height, width, channels) if self.layout == "nhwc" else (channels, height, width)
        return IOSpec(
            (TensorSpec("image", (None, *shape), "float32"),),
            (TensorSpec("scores", (None, self.classes), "float32"),),
        )

    def get_strides(self, stage: int) -> list[int]:
        """Return the stride of each convolution of a stage; stages count from 1."""
        given = self.convolutions or (2,)
        strides = [1] * given[min(stage, len(given)) - 1]
        if self.strided and stage < len(self.widths):
            strides[-1] = 2
        return strides

    def augment(self, inputs: Batch, rng: np.random.Generator) -> Batch:
        """Return the samples randomly shifted, and mirrored if ``mirror``; new pixels at the
        edges are 0.
        """
        return {
            "image": augment_images(
                inputs["image"], rng, self.layout, shift=self.shift, mirror=self.mirror
            )
        }

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper, after a check that the data set's images and classes fit the
        model.
        """
        check_fits(self, spec, self.image_shape, self.classes)
        return self


def augment_images(
    images: np.ndarray,
    rng: np.random.Generator,
    layout: Literal["nhwc", "nchw"],
    *,
    shift: int = 0,
    mirror: bool = False,
) -> np.ndarray:
    """Return the images with a random half mirrored, and each shifted by up to ``shift`` pixels
    in each direction.
    """
    if mirror:
        mirrored = rng.random(len(images)) < 0.5
        images = np.where(
            mirrored[:, None, None, None], np.flip(images, 2 if layout == "nhwc" else 3), images
        )
    return (
        shift_images(images, rng.integers(-shift, shift + 1, (len(images), 2)), layout)
        if shift
        else images
    )


def shift_images(
    images: np.ndarray, offsets: np.ndarray, layout: Literal["nhwc", "nchw"]
) -> np.ndarray:
    """Return images shifted down and to the right; new pixels at the edges are 0.

    Parameters
    ----------
    images
        ``(n, height, width, channels)``, or ``(n, channels, height, width)`` for ``"nchw"``.
    offsets
        ``(n, 2)`` integers: rows down and columns right.
    layout
        Whether channels are last or first.
    """
    if layout == "nchw":
        return np.ascontiguousarray(
            np.moveaxis(shift_images(np.moveaxis(images, 1, 3), offsets, "nhwc"), 3, 1)
        )
    count, height, width, _ = images.shape
    most = int(np.abs(offsets).max(initial=0))
    padded = np.pad(images, ((0, 0), (most, most), (most, most), (0, 0)))
    rows = np.arange(height) + most - offsets[:, :1]
    columns = np.arange(width) + most - offsets[:, 1:]
    moved: np.ndarray = padded[
        np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]
    ]
    return moved


class DigitsCNN(SmallCNN):
    """A CNN for the digits that come with nnpipe, 8 x 8 pixels from 0 to 16."""

    brightest: ClassVar[int] = 16

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """8 x 8 pixels, one channel."""
        return 8, 8, 1

    @property
    def classes(self) -> int:
        """10."""
        return 10


class WornDigitsCNN(DigitsCNN):
    """A CNN with few channels, all of which it needs, for worn scans of 12 x 12 pixels."""

    # What is the same in all networks of other data can be chosen here.
    widths: tuple[int, ...] = argument((6, 12), help="channels in each stage", minimum=1)  # type: ignore[misc]
    convolutions: tuple[int, ...] = argument(  # type: ignore[misc]
        (2,),
        help="convolutions in each stage; the last number counts for all further ones",
        minimum=1,
    )
    strided: bool = argument(  # type: ignore[misc]
        False,
        help="let the last convolution of a stage halve the image, instead of a pooling after it",
    )
    shift: int = argument(  # type: ignore[misc]
        0, help="greatest random shift of training samples, in pixels, in each direction", minimum=0
    )
    dropout: ClassVar[float] = 0.0

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """12 x 12 pixels, one channel."""
        return 12, 12, 1


class MNISTCNN(SmallCNN):
    """A CNN for the handwritten digits of MNIST."""

    widths: ClassVar[tuple[int, ...]] = (16, 32, 64)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """28 x 28 pixels, one channel."""
        return 28, 28, 1

    @property
    def classes(self) -> int:
        """10."""
        return 10


class FashionMNISTCNN(MNISTCNN):
    """A CNN for the clothes of Fashion-MNIST."""

    widths: ClassVar[tuple[int, ...]] = (32, 64, 128)
    mirror: ClassVar[bool] = True


class CIFAR10CNN(SmallCNN):
    """A CNN for the colour images of CIFAR-10."""

    widths: ClassVar[tuple[int, ...]] = (32, 64, 128)
    shift: ClassVar[int] = 3
    mirror: ClassVar[bool] = True

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """32 x 32 pixels, three channels."""
        return 32, 32, 3

    @property
    def classes(self) -> int:
        """10."""
        return 10


class ImageFolderCNN(SmallCNN):
    """A CNN for your own images, with the size and the classes of the data set."""

    widths: ClassVar[tuple[int, ...]] = (16, 32, 64, 128)
    mirror: ClassVar[bool] = True

    input_size: tuple[int, int] | None = argument(
        None, help="height and width of the images; by default those of the data set", minimum=8
    )
    input_channels: int | None = argument(
        None, help="channels of the images; by default those of the data set", minimum=1
    )
    num_classes: int | None = argument(
        None, help="number of classes; by default that of the data set", minimum=2
    )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """As given, or of the data set; a ``ConfigError`` if there is neither."""
        if self.input_size is None or self.input_channels is None:
            raise ConfigError(
                f"{type(self).__name__} without a data set needs --input-size and --input-channels "
                f"to be given"
            )
        return (*self.input_size, self.input_channels)

    @property
    def classes(self) -> int:
        """As given, or of the data set; a ``ConfigError`` if there is neither."""
        if self.num_classes is None:
            raise ConfigError(
                f"{type(self).__name__} without a data set needs --num-classes to be given"
            )
        return self.num_classes

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper with missing arguments taken from the data set, after a check of
        the others.
        """
        shape = spec.inputs[0].shape[1:]
        if len(shape) != 3 or None in shape:
            raise ConfigError(
                f"{type(self).__name__} takes images of one size, the data set gives "
                f"{show_shape(shape)}; "
                "set its --image-size"
            )
        height, width, channels = (int(length or 0) for length in shape)
        fitted = replace(
            self,
            input_size=self.input_size or (height, width),
            input_channels=self.input_channels or channels,
            num_classes=self.num_classes or len(spec.class_names),
        )
        check_fits(fitted, spec, fitted.image_shape, fitted.classes)
        return fitted


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
            for stride in self.get_strides(number):
                convolution = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
                layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
                channels = width
            if number < len(self.widths) and not self.strided:
                layers.append(nn.MaxPool2d(2))
            stages.append(nn.Sequential(*layers))
        head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(self.dropout),
            nn.Linear(channels, self.classes),
        )
        return nn.Sequential(nn.Sequential(*stages), head)


class PyTorchDigitsCNN(DigitsCNN, PyTorchCNN):
    """A CNN for the digits that come with nnpipe, 8 x 8 pixels from 0 to 16."""


class PyTorchWornDigitsCNN(WornDigitsCNN, PyTorchCNN):
    """A CNN with few channels for the worn digits that come with nnpipe, 12 x 12 pixels from 0
    to 16.
    """


class PyTorchMNISTCNN(MNISTCNN, PyTorchCNN):
    """A CNN for the handwritten digits of MNIST."""


class PyTorchFashionMNISTCNN(FashionMNISTCNN, PyTorchCNN):
    """A CNN for the clothes of Fashion-MNIST."""


class PyTorchCIFAR10CNN(CIFAR10CNN, PyTorchCNN):
    """A CNN for the colour images of CIFAR-10."""


class PyTorchImageFolderCNN(ImageFolderCNN, PyTorchCNN):
    """A CNN for your own images, with the size and the classes of the data set."""


class TensorFlowCNN(SmallCNN, TensorFlowWrapper):
    """A stack of convolutions in Keras.

    The input ``"image"`` is ``(n, height, width, channels)`` float32 from 0 to
    1, the output ``"scores"`` ``(n, classes)`` float32.
    """

    def build(self) -> Any:
        """Return the network with random weights."""
        from keras import Input, Model, layers

        image = x = Input(self.image_shape, name="image")
        for stage, width in enumerate(self.widths, 1):
            for number, stride in enumerate(self.get_strides(stage), 1):
                name = f"stage{stage}_{number}"
                x = layers.Conv2D(
                    width, 3, stride, padding="same", use_bias=False, name=f"{name}_conv"
                )(x)
                x = layers.BatchNormalization(momentum=0.9, name=f"{name}_norm")(x)
                x = layers.ReLU(name=f"{name}_relu")(x)
            if stage < len(self.widths) and not self.strided:
                x = layers.MaxPooling2D(2, name=f"stage{stage}_pool")(x)
        x = layers.GlobalAveragePooling2D(name="mean")(x)
        x = layers.Dropout(self.dropout, name="dropout")(x)
        return Model(
            image, layers.Dense(self.classes, activation="softmax", name="scores")(x), name="cnn"
        )


class TensorFlowDigitsCNN(DigitsCNN, TensorFlowCNN):
    """A CNN for the digits that come with nnpipe, 8 x 8 pixels from 0 to 16."""


class TensorFlowWornDigitsCNN(WornDigitsCNN, TensorFlowCNN):
    """A CNN with few channels for the worn digits that come with nnpipe, 12 x 12 pixels from 0
    to 16.
    """


class TensorFlowMNISTCNN(MNISTCNN, TensorFlowCNN):
    """A CNN for the handwritten digits of MNIST."""


class TensorFlowFashionMNISTCNN(FashionMNISTCNN, TensorFlowCNN):
    """A CNN for the clothes of Fashion-MNIST."""


class TensorFlowCIFAR10CNN(CIFAR10CNN, TensorFlowCNN):
    """A CNN for the colour images of CIFAR-10."""


class TensorFlowImageFolderCNN(ImageFolderCNN, TensorFlowCNN):
    """A CNN for your own images, with the size and the classes of the data set."""
