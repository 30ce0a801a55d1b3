"""MobileNetV2 in Keras: small and trained from scratch, or fine-tuned from ImageNet weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.meaning import Meaning
from nnpipe.core.tensor_meaning import InputMeaning, OutputMeaning
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.frameworks.keras_files import read_weights
from nnpipe.modelwrappers.classification._data_fit import check_fits
from nnpipe.modelwrappers.classification._image_upscaling import Enlarging
from nnpipe.modelwrappers.frameworks.tensorflow import TensorFlowWrapper

if TYPE_CHECKING:
    from typing_extensions import Self

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
        None, help="file with MobileNetV2's weights from ImageNet without the top, as keras.applications publishes it"
    )
    from_scratch: bool = argument(False, help="train all layers from random weights instead")
    freeze_base: bool = argument(True, help="train the last layer only, and keep the pretrained ones as they are")
    alpha: float = argument(
        1.0,
        help="number of channels relative to the original network",
        choices=(0.35, 0.5, 0.75, 1.0, 1.3, 1.4),  # weights are published for these
    )
    input_size: tuple[int, int] = argument((224, 224), help="height and width of the images", minimum=32)
    num_classes: int | None = argument(
        None, help="number of classes; by default that of the data set, 37 without one", minimum=2
    )

    def validate(self) -> None:
        """Check that not both pretrained weights and training from scratch were asked for."""
        if self.from_scratch and self.pretrained_weights is not None:
            raise ConfigError(f"{type(self).__name__}: give --pretrained-weights or --from-scratch, not both")

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
            input_shape=shape, alpha=self.alpha, include_top=False, weights=None, name="mobilenet_v2"
        )
        if self.pretrained_weights is not None:
            if not self.pretrained_weights.is_file():
                raise ArtifactError(f"{self.pretrained_weights}: no such file; {self._advice()}")
            read_weights(self.pretrained_weights, base, f"MobileNetV2 without top, alpha {self.alpha:g}")
        base.trainable = self.from_scratch or not self.freeze_base
        image = Input(shape, name="image")
        x = layers.GlobalAveragePooling2D(name="mean")(base(image))
        x = layers.Dropout(0.2, name="dropout")(x)
        scores = layers.Dense(self.num_classes or _BREEDS, activation="softmax", name="scores")(x)
        return Model(image, scores, name="pets")

    def start(self, live: LiveModel, options: TrainingOptions) -> None:
        """Set the initial weights: pretrained ones, those of a loaded model, or random ones with ``from_scratch``."""
        if self.pretrained_weights is None and not self.from_scratch and not live.is_built:
            raise ConfigError(f"{type(self).__name__} has no weights to start from; {self._advice()}")
        super().start(live, options)

    def _advice(self) -> str:
        name = f"mobilenet_v2_weights_tf_dim_ordering_tf_kernels_{self.alpha}_224_no_top.h5"
        return f"fetch {_PUBLISHED}{name} and pass --pretrained-weights PATH, or train anew with --from-scratch"

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper with the data set's number of classes, after a check of the rest."""
        fitted = replace(self, num_classes=self.num_classes or len(spec.class_names) or _BREEDS)
        check_fits(fitted, spec, (*fitted.input_size, 3), fitted.num_classes or _BREEDS)
        return fitted

    @property
    def meaning(self) -> Meaning:
        """Inputs are pixels from -1 to 1, as MobileNetV2 was trained; outputs are probabilities."""
        pixels = InputMeaning("image", "image", sample_range=(0, 255), scale=127.5, mean=(1,), layout="nhwc")
        return Meaning((pixels,), (OutputMeaning("scores", "probabilities"),))


class TensorFlowMobileNetV2(Enlarging, TensorFlowWrapper):
    """MobileNetV2 for images of any size, which are resized; trained from random weights.

    The input ``"image"`` is ``(n, height, width, 3)`` float32 from -1 to 1, the
    output ``"scores"`` ``(n, classes)`` float32 probabilities.
    """

    width: float = argument(0.35, help="number of channels relative to the published network", minimum=0.1)

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
        base = applications.MobileNetV2(input_tensor=image, alpha=self.width, include_top=False, weights=None)
        for layer in base.layers:
            # The published momentum of 0.999 suits many thousand steps; after fewer, the statistics are still close to
            # their initial values.
            if isinstance(layer, layers.BatchNormalization):
                layer.momentum = 0.9
        x = layers.GlobalAveragePooling2D(name="mean")(base.output)
        x = layers.Dropout(0.2, name="dropout")(x)
        scores = layers.Dense(self.classes, activation="softmax", name="scores")(x)
        return Model(image, scores, name="mobilenet_v2")
