"""MobileNetV2 in PyTorch and in Keras: small and trained from scratch, or fine-tuned from
ImageNet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.frameworks.keras_files import read_weights
from nnpipe.modelwrappers.classification._image_upscaling import ResizingClassifier, check_fits
from nnpipe.modelwrappers.classification.small_cnn import augment_images
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper
from nnpipe.modelwrappers.frameworks.pytorch_weights import load_state, read_state
from nnpipe.modelwrappers.frameworks.tensorflow import TensorFlowWrapper

if TYPE_CHECKING:
    from typing_extensions import Self


# MobileNetV2 in PyTorch: small and trained from scratch, or fine-tuned from ImageNet weights.
#
# Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks",
# 2018.  Layers and weights have torchvision's names, so that its weight files can be loaded.

WEIGHTS_URL = "https://download.pytorch.org/models/mobilenet_v2-7ebf99e0.pth"

# Table 2 of the paper: expansion, channels, repetitions, stride of the first one.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_FIRST, _LAST = 32, 1280
# Mean and deviation of ImageNet's pixels, from 0 to 1; the published weights expect inputs
# normalised by them.
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class PyTorchPetDatasetMobileNetV2(PyTorchWrapper):
    """MobileNetV2 for the 37 breeds of Oxford-IIIT Pet, fine-tuned from ImageNet weights.

    The input ``"image"`` is ``(n, 3, 224, 224)`` float32, normalised by
    ImageNet's mean and deviation, the output ``"scores"`` ``(n, 37)`` float32
    probabilities.
    """

    classes: ClassVar[int] = 37
    side: ClassVar[int] = 224
    dropout: ClassVar[float] = 0.2

    pretrained_weights: Path | None = argument(
        None,
        help=(
            "file of torchvision's mobilenet_v2 weights (.pth or .safetensors) to start the "
            "training from"
        ),
    )
    from_scratch: bool = argument(False, help="start the training from random weights")
    fine_tune: bool = argument(
        True, help="train all layers; --no-fine-tune trains the classifier alone"
    )

    def validate(self) -> None:
        """Check that the arguments about initial weights do not contradict each other."""
        if self.from_scratch and self.pretrained_weights is not None:
            raise ConfigError(
                "--from-scratch and --pretrained-weights contradict each other; give one of them"
            )
        if self.from_scratch and not self.fine_tune:
            raise ConfigError(
                "--no-fine-tune would leave random weights as they are; with --from-scratch train "
                "all"
            )

    @property
    def io(self) -> IOSpec:
        """The input, an image, and the output, a probability for each breed."""
        return IOSpec(
            (TensorSpec("image", (None, 3, self.side, self.side), "float32"),),
            (TensorSpec("scores", (None, self.classes), "float32"),),
        )

    def build(self) -> Any:
        """Return the network with random weights."""
        return build_mobilenet_v2(self.classes, self.dropout)

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper, after a check that the data set's images and classes fit the
        model.
        """
        check_fits(self, spec, (self.side, self.side, 3), self.classes)
        return self

    @property
    def meaning(self) -> ModelMetadata:
        """Inputs are pixels normalised as the published weights expect, channels first; outputs
        are probabilities.
        """
        pixels = InputProcessing(
            "image",
            "image",
            sample_range=(0, 255),
            scale=255,
            mean=_MEAN,
            deviation=_DEVIATION,
            layout="nchw",
        )
        return ModelMetadata((pixels,), (OutputMetadata("scores", "probabilities"),))

    def augment(self, inputs: Batch, rng: np.random.Generator) -> Batch:
        """Return the images with half of them mirrored."""
        return {"image": augment_images(inputs["image"], rng, "nchw", mirror=True)}

    def start(self, live: LiveModel, options: TrainingOptions) -> None:
        """Set the initial weights of a model without weights: ImageNet's, or random ones with
        ``from_scratch``.

        Raises
        ------
        ConfigError
            If the model has no weights yet, and no argument states where to take them from.
        ArtifactError
            If the weight file is missing, damaged or of another model.
        """
        if not live.is_built:
            self._check_start()
        super().start(live, options)

    def _check_start(self) -> None:
        if self.pretrained_weights is None:
            if not self.from_scratch:
                raise ConfigError(
                    f"the training starts from weights learned on ImageNet: fetch {WEIGHTS_URL} "
                    f"and give "
                    "--pretrained-weights FILE, or give --from-scratch (slow, and worse on few "
                    "images)"
                )
        elif not self.pretrained_weights.is_file():
            raise ArtifactError(
                f"{self.pretrained_weights}: no such file of weights; fetch {WEIGHTS_URL} and give "
                f"its path as "
                "--pretrained-weights, or give --from-scratch"
            )

    def start_training(self, module: Any) -> None:
        """Set the pretrained weights; the classifier stays random because its classes differ."""
        if self.pretrained_weights is None:
            return
        published = read_state(self.pretrained_weights)
        own = {
            name: value
            for name, value in module.state_dict().items()
            if name.startswith("classifier.")
        }
        kept = {
            name: value for name, value in published.items() if not name.startswith("classifier.")
        }
        load_state(module, kept | own, self.pretrained_weights)

    def training_mode(self, module: Any) -> None:
        """Set training mode, except for layers that are not trained, whose statistics stay."""
        if self.fine_tune:
            module.train()
        else:
            module.eval()
            module.classifier.train()

    def parameters_to_train(self, module: Any) -> Iterator[Any]:
        """Yield all weights with ``fine_tune``, else those of the classifier."""
        return iter((module if self.fine_tune else module.classifier).parameters())


class PyTorchMobileNetV2(ResizingClassifier, PyTorchWrapper):
    """MobileNetV2 for images of any size, which are resized; trained from random weights.

    The input ``"image"`` is ``(n, 3, height, width)`` float32 from -1 to 1, the
    output ``"scores"`` ``(n, classes)`` float32 probabilities.
    """

    layout: ClassVar[Literal["nhwc", "nchw"]] = "nchw"

    width: float = argument(
        0.35, help="number of channels relative to the published network", minimum=0.1
    )

    @property
    def io(self) -> IOSpec:
        """The input, an image, and the output, a probability for each class."""
        return IOSpec(
            (TensorSpec("image", (None, 3, *self.input_size), "float32"),),
            (TensorSpec("scores", (None, self.classes), "float32"),),
        )

    def build(self) -> Any:
        """Return the network with random weights."""
        return build_mobilenet_v2(self.classes, 0.2, self.width)


def build_mobilenet_v2(classes: int, dropout: float, width: float = 1.0) -> Any:
    """Return the network for images of 3 channels, with random weights drawn as in torchvision.

    ``width`` multiplies the published number of channels of every layer, rounded to
    a multiple of 8; the last layer never has fewer channels than published.
    """
    from torch import nn

    def make_convolution(
        before: int, after: int, size: int, stride: int = 1, groups: int = 1
    ) -> Any:
        return nn.Sequential(
            nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU6(),
        )

    class InvertedResidual(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
            super().__init__()
            wide = before * expansion
            layers = [make_convolution(before, wide, 1)] if expansion > 1 else []
            layers += [make_convolution(wide, wide, 3, stride, groups=wide)]
            layers += [nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after)]
            self.conv = nn.Sequential(*layers)
            self.shortcut = stride == 1 and before == after

        def forward(self, x: Any) -> Any:
            return x + self.conv(x) if self.shortcut else self.conv(x)

    class MobileNetV2(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            channels = _compute_multiple_of_8(_FIRST * width)
            layers = [make_convolution(3, channels, 3, stride=2)]
            for expansion, published, count, first_stride in _STAGES:
                wide = _compute_multiple_of_8(published * width)
                for number in range(count):
                    layers.append(
                        InvertedResidual(channels, wide, 1 if number else first_stride, expansion)
                    )
                    channels = wide
            last = _compute_multiple_of_8(_LAST * max(1.0, width))
            layers.append(make_convolution(channels, last, 1))
            self.features = nn.Sequential(*layers)
            self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, classes))

        def forward(self, x: Any) -> Any:
            return self.classifier(self.features(x).mean((2, 3)))

    network = MobileNetV2()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
            nn.init.zeros_(module.bias)
    return network


def _compute_multiple_of_8(channels: float) -> int:
    """Return the nearest multiple of 8 that is not more than 10 % lower, as in the published
    implementation.
    """
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


_PUBLISHED = "https://storage.googleapis.com/tensorflow/keras-applications/mobilenet_v2/"
_BREEDS = 37


class TensorFlowPetDatasetMobileNetV2(TensorFlowWrapper):
    """MobileNetV2 (Sandler et al., 2018) for the breeds of the Oxford-IIIT Pet data set.

    Training starts from ImageNet weights in a file published by Keras, and by
    default trains the new last layer only.  Nothing is downloaded.  A trained
    model does not need this file: give ``--model-path`` alone.

    The input ``"image"`` is ``(n, height, width, 3)`` float32 from -1 to 1, the
    output ``"scores"`` ``(n, classes)`` float32.
    """

    pretrained_weights: Path | None = argument(
        None,
        help=(
            "file with MobileNetV2's weights from ImageNet without the top, as keras.applications "
            "publishes it"
        ),
    )
    from_scratch: bool = argument(False, help="train all layers from random weights instead")
    freeze_base: bool = argument(
        True, help="train the last layer only, and keep the pretrained ones as they are"
    )
    alpha: float = argument(
        1.0,
        help="number of channels relative to the original network",
        choices=(0.35, 0.5, 0.75, 1.0, 1.3, 1.4),  # weights are published for these
    )
    input_size: tuple[int, int] = argument(
        (224, 224), help="height and width of the images", minimum=32
    )
    num_classes: int | None = argument(
        None, help="number of classes; by default that of the data set, 37 without one", minimum=2
    )

    def validate(self) -> None:
        """Check that not both pretrained weights and training from scratch were asked for."""
        if self.from_scratch and self.pretrained_weights is not None:
            raise ConfigError(
                f"{type(self).__name__}: give --pretrained-weights or --from-scratch, not both"
            )

    @property
    def io(self) -> IOSpec:
        """The input, a colour image, and the output, a probability for each class."""
        return IOSpec(
            (TensorSpec("image", (None, *self.input_size, 3), "float32"),),
            (TensorSpec("scores", (None, self.num_classes or _BREEDS), "float32"),),
        )

    def build(self) -> Any:
        """Return MobileNetV2 with a new last layer.

        Raises
        ------
        ArtifactError
            If the file of pretrained weights is missing, damaged, or of another network.
        """
        from keras import Input, Model, applications, layers

        shape = (*self.input_size, 3)
        base = applications.MobileNetV2(
            input_shape=shape,
            alpha=self.alpha,
            include_top=False,
            weights=None,
            name="mobilenet_v2",
        )
        if self.pretrained_weights is not None:
            if not self.pretrained_weights.is_file():
                raise ArtifactError(
                    f"{self.pretrained_weights}: no such file; {self._format_advice()}"
                )
            read_weights(
                self.pretrained_weights, base, f"MobileNetV2 without top, alpha {self.alpha:g}"
            )
        base.trainable = self.from_scratch or not self.freeze_base
        image = Input(shape, name="image")
        x = layers.GlobalAveragePooling2D(name="mean")(base(image))
        x = layers.Dropout(0.2, name="dropout")(x)
        scores = layers.Dense(self.num_classes or _BREEDS, activation="softmax", name="scores")(x)
        return Model(image, scores, name="pets")

    def start(self, live: LiveModel, options: TrainingOptions) -> None:
        """Set the initial weights: pretrained ones, those of a loaded model, or random ones with
        ``from_scratch``.
        """
        if self.pretrained_weights is None and not self.from_scratch and not live.is_built:
            raise ConfigError(
                f"{type(self).__name__} has no weights to start from; {self._format_advice()}"
            )
        super().start(live, options)

    def _format_advice(self) -> str:
        name = f"mobilenet_v2_weights_tf_dim_ordering_tf_kernels_{self.alpha}_224_no_top.h5"
        return (
            f"fetch {_PUBLISHED}{name} and pass --pretrained-weights PATH, or train anew with "
            f"--from-scratch"
        )

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper with the data set's number of classes, after a check of the rest."""
        fitted = replace(self, num_classes=self.num_classes or len(spec.class_names) or _BREEDS)
        check_fits(fitted, spec, (*fitted.input_size, 3), fitted.num_classes or _BREEDS)
        return fitted

    @property
    def meaning(self) -> ModelMetadata:
        """Inputs are pixels from -1 to 1, as MobileNetV2 was trained; outputs are probabilities."""
        pixels = InputProcessing(
            "image", "image", sample_range=(0, 255), scale=127.5, mean=(1,), layout="nhwc"
        )
        return ModelMetadata((pixels,), (OutputMetadata("scores", "probabilities"),))


class TensorFlowMobileNetV2(ResizingClassifier, TensorFlowWrapper):
    """MobileNetV2 for images of any size, which are resized; trained from random weights.

    The input ``"image"`` is ``(n, height, width, 3)`` float32 from -1 to 1, the
    output ``"scores"`` ``(n, classes)`` float32 probabilities.
    """

    width: float = argument(
        0.35, help="number of channels relative to the published network", minimum=0.1
    )

    @property
    def io(self) -> IOSpec:
        """The input, an image, and the output, a probability for each class."""
        return IOSpec(
            (TensorSpec("image", (None, *self.input_size, 3), "float32"),),
            (TensorSpec("scores", (None, self.classes), "float32"),),
        )

    def build(self) -> Any:
        """Return the network with random weights."""
        from keras import Input, Model, applications, layers

        image = Input((*self.input_size, 3), name="image")
        base = applications.MobileNetV2(
            input_tensor=image, alpha=self.width, include_top=False, weights=None
        )
        for layer in base.layers:
            # The published momentum of 0.999 suits many thousand steps; after fewer, the statistics
            # are still close to their initial values.
            if isinstance(layer, layers.BatchNormalization):
                layer.momentum = 0.9
        x = layers.GlobalAveragePooling2D(name="mean")(base.output)
        x = layers.Dropout(0.2, name="dropout")(x)
        scores = layers.Dense(self.classes, activation="softmax", name="scores")(x)
        return Model(image, scores, name="mobilenet_v2")
