"""Small convolutional networks in Keras that classify images."""

from __future__ import annotations

from typing import Any

from nnpipe.modelwrappers.classification._small_cnn import (
    CIFAR10CNN,
    MNISTCNN,
    DigitsCNN,
    FashionMNISTCNN,
    ImageFolderCNN,
    SmallCNN,
    WornDigitsCNN,
)
from nnpipe.modelwrappers.frameworks.tensorflow import TensorFlowWrapper


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
            for number, stride in enumerate(self.strides_of(stage), 1):
                name = f"stage{stage}_{number}"
                x = layers.Conv2D(width, 3, stride, padding="same", use_bias=False, name=f"{name}_conv")(x)
                x = layers.BatchNormalization(momentum=0.9, name=f"{name}_norm")(x)
                x = layers.ReLU(name=f"{name}_relu")(x)
            if stage < len(self.widths) and not self.strided:
                x = layers.MaxPooling2D(2, name=f"stage{stage}_pool")(x)
        x = layers.GlobalAveragePooling2D(name="mean")(x)
        x = layers.Dropout(self.dropout, name="dropout")(x)
        return Model(image, layers.Dense(self.classes, activation="softmax", name="scores")(x), name="cnn")


class TensorFlowDigitsCNN(DigitsCNN, TensorFlowCNN):
    """A CNN for the digits that come with nnpipe, 8 x 8 pixels from 0 to 16."""


class TensorFlowWornDigitsCNN(WornDigitsCNN, TensorFlowCNN):
    """A CNN with few channels for the worn digits that come with nnpipe, 12 x 12 pixels from 0 to 16."""


class TensorFlowMNISTCNN(MNISTCNN, TensorFlowCNN):
    """A CNN for the handwritten digits of MNIST."""


class TensorFlowFashionMNISTCNN(FashionMNISTCNN, TensorFlowCNN):
    """A CNN for the clothes of Fashion-MNIST."""


class TensorFlowCIFAR10CNN(CIFAR10CNN, TensorFlowCNN):
    """A CNN for the colour images of CIFAR-10."""


class TensorFlowImageFolderCNN(ImageFolderCNN, TensorFlowCNN):
    """A CNN for your own images, with the size and the classes of the data set."""
