"""Small convolutional networks in Keras that tell images apart."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.dataset import DatasetSpec
from nnpipe.core.model import check_fits
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.modelwrappers.frameworks.tensorflow import TensorFlowWrapper

if TYPE_CHECKING:
    from typing_extensions import Self


class TensorFlowCNN(TensorFlowWrapper):
    """A stack of convolutions over an image, and probabilities of classes at its end.

    Each stage is two convolutions of 3 x 3 with batch normalisation, which
    compilers fold into the convolution, and ReLU; all stages but the last end
    by halving the image.  Means over what is left of the image go through one
    dense layer.

    The input ``"image"`` is ``(n, height, width, channels)`` float32 from 0 to
    1, the output ``"scores"`` ``(n, classes)`` float32.

    Attributes
    ----------
    widths
        Channels in each stage.
    dropout
        Part of the features that a training step leaves out before the dense layer.
    brightest
        The pixel that becomes 1.
    """

    widths: ClassVar[tuple[int, ...]] = (32, 64)
    dropout: ClassVar[float] = 0.25
    brightest: ClassVar[int] = 255

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        raise NotImplementedError

    @property
    @abstractmethod
    def classes(self) -> int:
        """Number of classes."""
        raise NotImplementedError

    @property
    def io(self) -> IOSpec:
        """One image in, one probability of each class out."""
        return IOSpec(
            (TensorSpec("image", (None, *self.image_shape), "float32"),),
            (TensorSpec("scores", (None, self.classes), "float32"),),
        )

    def build(self) -> Any:
        """Stack the stages."""
        from keras import Input, Model, layers

        image = x = Input(self.image_shape, name="image")
        for stage, width in enumerate(self.widths, 1):
            for number in (1, 2):
                name = f"stage{stage}_{number}"
                x = layers.Conv2D(width, 3, padding="same", use_bias=False, name=f"{name}_conv")(x)
                x = layers.BatchNormalization(momentum=0.9, name=f"{name}_norm")(x)
                x = layers.ReLU(name=f"{name}_relu")(x)
            if stage < len(self.widths):
                x = layers.MaxPooling2D(2, name=f"stage{stage}_pool")(x)
        x = layers.GlobalAveragePooling2D(name="mean")(x)
        x = layers.Dropout(self.dropout, name="dropout")(x)
        return Model(image, layers.Dense(self.classes, activation="softmax", name="scores")(x), name="cnn")

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Check that the data set's images and classes are those of the model."""
        check_fits(self, spec, "classification", self.image_shape, self.classes)
        return self

    def preprocess(self, inputs: Batch) -> Batch:
        """Scale pixels to 0..1."""
        return {"image": inputs["image"].astype(np.float32) / np.float32(self.brightest)}


class TensorFlowDigitsCNN(TensorFlowCNN):
    """A CNN for the 8 x 8 digits that come with nnpipe, whose pixels go from 0 to 16."""

    widths: ClassVar[tuple[int, ...]] = (32, 64)
    brightest: ClassVar[int] = 16

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """8 x 8, grey."""
        return 8, 8, 1

    @property
    def classes(self) -> int:
        """Ten."""
        return 10
