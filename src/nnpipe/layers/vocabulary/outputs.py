"""Output layers that declare their loss.

They stand at the end of a network and compute nothing: the outputs are the
inputs, for classes their logits.  They declare the loss and its target::

    digit = OutputClassification(Dense(features, 10), "label")

``to_trainer`` turns each into the output that the trainer takes, and ``compile_arguments`` into the
loss that Keras takes; both losses are equal. ``nnpipe.layers.graph.loss_outputs`` returns the
network for inference, with probabilities instead of logits. In Keras files they are ``Identity``
layers; their arguments are stored in an entry that only nnpipe reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.errors import MissingDependency
from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.activation_layers import Activation, Softmax
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import Layer, Shape, TorchParts, declare_data_format
from nnpipe.layers.vocabulary.reshaping import Identity
from nnpipe.layers.vocabulary.value_kinds import (
    ChoiceKind,
    IntegerKind,
    IntegersKind,
    NameKind,
    NumberKind,
)
from nnpipe.layers.vocabulary.windows import get_channels

if TYPE_CHECKING:
    from nnpipe.training.outputs.output import Output


# The losses of output layers for Keras.
#
# They are Keras's own where it has an equivalent, otherwise functions that return the loss of each
# sample, shape ``(n,)``.

_BESIDE = 1e-6  # PyTorch adds it to differences before it takes their norm


def make_classification_loss(label_smoothing: float) -> Any:
    """Return the cross entropy of logits ``(n, classes)``."""
    keras = _import_keras()
    if not label_smoothing:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def compute_smoothed_cross_entropy(truth: Any, logits: Any) -> Any:
        chances = keras.ops.one_hot(
            _convert_class_numbers(keras, truth, logits.shape[:-1]), logits.shape[-1]
        )
        return keras.losses.categorical_crossentropy(
            chances, logits, from_logits=True, label_smoothing=label_smoothing
        )

    return compute_smoothed_cross_entropy


def make_binary_loss(positive_weight: float) -> Any:
    """Return the binary cross entropy of logits."""
    keras = _import_keras()
    if positive_weight == 1.0:
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def compute_weighted_cross_entropy(truth: Any, logits: Any) -> Any:
        ops = keras.ops
        truth = ops.reshape(ops.cast(truth, logits.dtype), ops.shape(logits))
        found = positive_weight * truth * ops.softplus(-logits) + (1 - truth) * ops.softplus(logits)
        return _reduce_to_samples(keras, found)

    return compute_weighted_cross_entropy


def make_regression_loss(distance: str) -> Any:
    """Return the mean distance."""
    losses = _import_keras().losses
    names = {"squared": "MeanSquaredError", "absolute": "MeanAbsoluteError", "huber": "Huber"}
    return getattr(losses, names[distance])()


def make_segmentation_loss(criterion: str, ignore: int, channels_first: bool) -> Any:
    """Return the segmentation loss of the logits at each position; see :class:`OutputSegmentation
    <nnpipe.training.outputs.segmentation.SegmentationOutput>`.
    """
    keras = _import_keras()
    ops = keras.ops

    def flatten_positions(truth: Any, logits: Any) -> tuple[Any, Any, Any]:
        logits = ops.moveaxis(logits, 1, -1) if channels_first else logits
        samples, classes = ops.shape(logits)[0], logits.shape[-1]
        logits = ops.reshape(logits, (samples, -1, classes))
        numbers = ops.reshape(ops.cast(truth, "int32"), (samples, -1))
        counted = ops.not_equal(numbers, ignore)
        chances = ops.one_hot(ops.where(counted, numbers, 0), classes)
        counted = ops.cast(counted, logits.dtype)[..., None]
        return logits, chances * counted, counted

    def cross_entropy(truth: Any, logits: Any) -> Any:
        logits, chances, counted = flatten_positions(truth, logits)
        places = -ops.sum(chances * ops.log_softmax(logits), (1, 2))
        return places / ops.maximum(ops.sum(counted, (1, 2)), 1)

    def dice(truth: Any, logits: Any) -> Any:
        logits, chances, counted = flatten_positions(truth, logits)
        given = ops.softmax(logits) * counted
        both = ops.sum(given * chances, 1)
        return 1 - ops.mean((2 * both + 1) / (ops.sum(given + chances, 1) + 1), 1)

    return {"cross_entropy": cross_entropy, "dice": dice}[criterion]


def make_triplet_loss(margin: float) -> Any:
    """Return the triplet loss of embeddings ``(n, 3, features)``; the target is ignored."""
    ops = _import_keras().ops

    def triplet_loss(truth: Any, embeddings: Any) -> Any:
        anchor, positive, negative = (embeddings[:, number] for number in range(3))
        near = ops.norm(anchor - positive + _BESIDE, axis=-1)
        far = ops.norm(anchor - negative + _BESIDE, axis=-1)
        return ops.relu(near - far + margin)

    return triplet_loss


def _import_keras() -> Any:
    try:
        import keras
    except ImportError as error:
        raise MissingDependency(
            f"Keras is needed here: pip install 'nnpipe[tensorflow]' ({error})"
        ) from None
    return keras


def _convert_class_numbers(keras: Any, truth: Any, shape: Any) -> Any:
    return keras.ops.reshape(keras.ops.cast(truth, "int32"), (-1, *shape[1:]))


def _reduce_to_samples(keras: Any, values: Any) -> Any:
    axes = tuple(range(1, len(values.shape)))
    return keras.ops.mean(values, axes) if axes else values


class LossOutput(Layer):
    """Base of output layers that declare their loss.

    Parameters
    ----------
    target
        Name of the batch's feature that holds the target.
    weights
        Name of the batch's feature that holds the weight of each sample; ``None`` for equal
        weights.
    scale
        Factor of this loss in the sum of all losses.
    """

    abstract: ClassVar[bool] = True
    own: ClassVar[bool] = True
    target: str | None = row(NameKind())
    weights: str | None = row(NameKind(optional=True), default=None, kw_only=True)
    scale: float = row(NumberKind(0), default=1.0, kw_only=True)

    def make_output(self, x: Any, batch: Any) -> Output:
        """Return the trainer's output for a tensor and a batch that holds the target and the
        weights.
        """
        more = {} if self.weights is None else {"weights": batch[self.weights]}
        return self._make_output(
            x, None if self.target is None else batch[self.target], scale=self.scale, **more
        )

    def make_keras_loss(self) -> Any:
        """Return the unscaled loss as ``keras.Model.compile`` takes it; ``None`` for outputs
        that are not trained.
        """
        raise NotImplementedError

    def make_keras_metrics(self) -> list[Any]:
        """Return the metrics as ``keras.Model.compile`` takes them."""
        return []

    def make_result_layer(self) -> Layer:
        """Return the layer of the same name that turns logits into results, such as
        probabilities.
        """
        return Identity((), name=self.name)

    def draw_truth(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray | None:
        """Return random targets for an output of this shape, to try out training; ``None`` if it
        has no targets.
        """
        return None

    def _make_output(self, x: Any, target: Any, **more: Any) -> Output:
        raise NotImplementedError

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, x: x)


class OutputClassification(LossOutput):
    """Classification: cross entropy of logits ``(n, classes)`` and integer targets ``(n,)``.

    Parameters
    ----------
    label_smoothing
        Part of the target's probability that is spread over all classes.
    top
        Values of k for which the top-k accuracy is measured as well.
    """

    keras: ClassVar[str] = "Identity"
    label_smoothing: float = row(NumberKind(0, 1), default=0.0)
    top: tuple[int, ...] = row(IntegersKind(1), default=())

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        if len(shapes[0]) != 2:
            raise Misfit(
                f"takes one number for each class, not {shapes[0]}; flatten it, or use "
                f"OutputSegmentation"
            )
        return (shapes[0],)

    def make_result_layer(self) -> Layer:
        """Probabilities."""
        return Softmax((), name=self.name)

    def draw_truth(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        """Return random classes."""
        return random.integers(0, shape[1], shape[0])

    def _make_output(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.classification import ClassificationOutput as Judged

        return Judged(x, target, label_smoothing=self.label_smoothing, top=self.top, **more)

    def make_keras_loss(self) -> Any:
        """Return the sparse categorical cross entropy of logits."""
        return make_classification_loss(self.label_smoothing)

    def make_keras_metrics(self) -> list[Any]:
        """Return the accuracy and the top-k accuracies."""
        import keras

        top = [keras.metrics.SparseTopKCategoricalAccuracy(k, name=f"top{k}") for k in self.top]
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy"), *top]


class OutputClassificationBinary(LossOutput):
    """Binary classification: binary cross entropy of logits and targets 0 or 1 of the same shape.

    Parameters
    ----------
    positive_weight
        Weight of the target 1 in the loss, relative to that of 0.
    """

    keras: ClassVar[str] = "Identity"
    positive_weight: float = row(NumberKind(0), default=1.0)

    def make_result_layer(self) -> Layer:
        """Probabilities."""
        return Activation((), "sigmoid", name=self.name)

    def draw_truth(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        """Return random zeros and ones."""
        return random.integers(0, 2, shape)

    def _make_output(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.classification import BinaryOutput as Judged

        return Judged(x, target, positive_weight=self.positive_weight, **more)

    def make_keras_loss(self) -> Any:
        """Return the binary cross entropy of logits."""
        return make_binary_loss(self.positive_weight)

    def make_keras_metrics(self) -> list[Any]:
        """Return the accuracy."""
        import keras

        return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]


class OutputRegression(LossOutput):
    """Regression: a distance between outputs and targets of the same shape.

    Parameters
    ----------
    distance
        Distance to minimise: ``"squared"``, ``"absolute"``, or ``"huber"`` (squared below 1,
        absolute above).
    """

    keras: ClassVar[str] = "Identity"
    distance: str = row(ChoiceKind(("squared", "absolute", "huber")), default="squared")

    def draw_truth(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        """Return standard normal random numbers, float32."""
        return random.standard_normal(shape, np.float32)

    def _make_output(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.regression import RegressionOutput as Judged

        return Judged(x, target, distance=self.distance, **more)  # type: ignore[arg-type]  # checked by its row

    def make_keras_loss(self) -> Any:
        """Return the mean distance."""
        return make_regression_loss(self.distance)

    def make_keras_metrics(self) -> list[Any]:
        """Return the mean absolute error and the root mean squared error."""
        import keras

        return [
            keras.metrics.MeanAbsoluteError(name="mae"),
            keras.metrics.RootMeanSquaredError(name="rmse"),
        ]


class OutputSegmentation(LossOutput):
    """Segmentation: logits of the classes at each position, and integer targets without the axis of
    classes.

    Parameters
    ----------
    criterion
        Loss: ``"cross_entropy"`` or ``"dice"``.
    ignore
        Target value of positions that the loss leaves out.
    data_format
        Place of the classes: ``"channels_last"`` or ``"channels_first"``.
    """

    keras: ClassVar[str] = "Identity"
    criterion: str = row(ChoiceKind(("cross_entropy", "dice")), default="cross_entropy")
    ignore: int = row(IntegerKind(-(1 << 31), 1 << 31), default=-100)
    data_format: str = declare_data_format()

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        if len(shapes[0]) < 3:
            raise Misfit(
                f"takes at least one axis of places besides that of classes, not {shapes[0]}"
            )
        get_channels(shapes[0], self.data_format)
        return (shapes[0],)

    def make_result_layer(self) -> Layer:
        """Return the layer that gives probabilities at each position."""
        return Softmax((), -1 if self.data_format == "channels_last" else 1, name=self.name)

    def draw_truth(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        """Return a random class for each position."""
        last = self.data_format == "channels_last"
        return random.integers(
            0, shape[-1 if last else 1], shape[:-1] if last else (shape[0], *shape[2:])
        )

    def _make_output(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.segmentation import SegmentationOutput as Judged

        logits = x.movedim(-1, 1) if self.data_format == "channels_last" else x
        return Judged(logits, target, criterion=self.criterion, ignore=self.ignore, **more)  # type: ignore[arg-type]

    def make_keras_loss(self) -> Any:
        """Return the loss of each sample: the mean over the positions that count, or their Dice
        loss.
        """
        return make_segmentation_loss(
            self.criterion, self.ignore, self.data_format == "channels_first"
        )


class OutputEmbedding(LossOutput):
    """Embeddings that are recorded for inspection and add no loss; ``target`` may name labels
    for their colours.
    """

    keras: ClassVar[str] = "Identity"
    target: str | None = row(NameKind(optional=True), default=None)

    def _make_output(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.embedding import EmbeddingOutput as Judged

        return Judged(x, target, **more)

    def make_keras_loss(self) -> Any:
        """Return ``None``: it adds no loss."""
        return None


class OutputTriplets(LossOutput):
    """Triplet loss of embeddings ``(n, 3, features)``: an anchor, a positive and a negative per
    sample.

    Join them with ``Concatenate([RepeatVector(a, 1), RepeatVector(p, 1), RepeatVector(n, 1)],
    axis=1)``.

    Parameters
    ----------
    margin
        Least difference between the distances to the negative and to the positive.
    """

    keras: ClassVar[str] = "Identity"
    target: str | None = row(NameKind(optional=True), default=None)
    margin: float = row(NumberKind(0), default=1.0)

    def _infer_shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        if len(shapes[0]) != 3 or shapes[0][1] != 3:
            raise Misfit(f"takes three embeddings a sample, (n, 3, features), not {shapes[0]}")
        return (shapes[0],)

    def _make_output(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.embedding import TripletOutput as Judged

        anchor, positive, negative = x.unbind(1)
        return Judged(
            anchor, target, positive=positive, negative=negative, margin=self.margin, **more
        )

    def make_keras_loss(self) -> Any:
        """Return the triplet loss; it ignores the target that Keras asks for."""
        return make_triplet_loss(self.margin)
