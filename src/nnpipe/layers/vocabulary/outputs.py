"""Outputs that carry their loss.

They stand at the end of a network and compute nothing: what comes in goes
out, as logits where there are classes.  They say what it is judged by::

    digit = OutputClassification(Dense(features, 10), "label")

``to_trainer`` makes of each the output that the trainer takes, and
``compile_arguments`` the loss that Keras takes; both come to the same number.
``nnpipe.layers.graph.loss_outputs`` gives the network as it is used: with probabilities for logits.
Keras knows them as ``Identity``; what they say lies beside, where only nnpipe
looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary import keras_losses as losses
from nnpipe.layers.vocabulary.activation_layers import Activation, Softmax
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import Layer, Shape, TorchParts, data_format
from nnpipe.layers.vocabulary.reshaping import Identity
from nnpipe.layers.vocabulary.value_kinds import ChoiceKind, IntegerKind, IntegersKind, NameKind, NumberKind
from nnpipe.layers.vocabulary.windows import channels

if TYPE_CHECKING:
    from nnpipe.training.outputs.output import Output


class JudgedOutput(Layer):
    """Base of outputs that carry their loss.

    Parameters
    ----------
    target
        The feature of a batch that holds what the output should be.
    weights
        The feature that says how much each sample counts; ``None`` counts all alike.
    scale
        What the loss is multiplied with before all losses are added up.
    """

    abstract: ClassVar[bool] = True
    own: ClassVar[bool] = True
    target: str | None = row(NameKind())
    weights: str | None = row(NameKind(optional=True), default=None, kw_only=True)
    scale: float = row(NumberKind(0), default=1.0, kw_only=True)

    def judged(self, x: Any, batch: Any) -> Output:
        """Return what the trainer takes, of a tensor and a batch that holds what is named here."""
        more = {} if self.weights is None else {"weights": batch[self.weights]}
        return self._judged(x, None if self.target is None else batch[self.target], scale=self.scale, **more)

    def keras_loss(self) -> Any:
        """Return the loss, unscaled, as ``keras.Model.compile`` takes it; ``None`` where there is nothing to learn."""
        raise NotImplementedError

    def keras_metrics(self) -> list[Any]:
        """Return what ``keras.Model.compile`` takes as metrics."""
        return []

    def meaning(self) -> Layer:
        """Return the layer of the same name that makes what is wanted of what is learned, such as probabilities."""
        return Identity((), name=self.name)

    def random_truth(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray | None:
        """Make truths for an output of this shape, to try a training on noise; ``None`` where there are none."""
        return None

    def _judged(self, x: Any, target: Any, **more: Any) -> Output:
        raise NotImplementedError

    def _torch(self, *shapes: Shape) -> TorchParts:
        return TorchParts(lambda module, x: x)


class OutputClassification(JudgedOutput):
    """Logits ``(n, classes)`` of one class of several: the cross entropy with targets ``(n,)``.

    Parameters
    ----------
    label_smoothing
        Part of the target's weight that is spread over all classes.
    top
        Ranks for whose accuracy to ask besides the first.
    """

    keras: ClassVar[str] = "Identity"
    label_smoothing: float = row(NumberKind(0, 1), default=0.0)
    top: tuple[int, ...] = row(IntegersKind(1), default=())

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        if len(shapes[0]) != 2:
            raise Misfit(f"takes one number for each class, not {shapes[0]}; flatten it, or use OutputSegmentation")
        return (shapes[0],)

    def meaning(self) -> Layer:
        """Probabilities."""
        return Softmax((), name=self.name)

    def random_truth(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        """Any class."""
        return random.integers(0, shape[1], shape[0])

    def _judged(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.classification import ClassificationOutput as Judged

        return Judged(x, target, label_smoothing=self.label_smoothing, top=self.top, **more)

    def keras_loss(self) -> Any:
        """The sparse categorical cross entropy of logits."""
        return losses.classification(self.label_smoothing)

    def keras_metrics(self) -> list[Any]:
        """The accuracy, and those of ``top``."""
        import keras

        top = [keras.metrics.SparseTopKCategoricalAccuracy(k, name=f"top{k}") for k in self.top]
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy"), *top]


class OutputClassificationBinary(JudgedOutput):
    """Logits of yes or no, one or several a sample: the binary cross entropy with targets 0 or 1 of the same shape.

    Parameters
    ----------
    positive_weight
        How much more a one counts than a zero in the loss.
    """

    keras: ClassVar[str] = "Identity"
    positive_weight: float = row(NumberKind(0), default=1.0)

    def meaning(self) -> Layer:
        """Probabilities."""
        return Activation((), "sigmoid", name=self.name)

    def random_truth(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        """Yes or no."""
        return random.integers(0, 2, shape)

    def _judged(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.binary import BinaryOutput as Judged

        return Judged(x, target, positive_weight=self.positive_weight, **more)

    def keras_loss(self) -> Any:
        """The binary cross entropy of logits."""
        return losses.binary(self.positive_weight)

    def keras_metrics(self) -> list[Any]:
        """The accuracy."""
        import keras

        return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]


class OutputRegression(JudgedOutput):
    """Values with targets of the same shape.

    Parameters
    ----------
    distance
        What is minimised: ``"squared"``, ``"absolute"``, or ``"huber"`` (squared below 1, absolute above).
    """

    keras: ClassVar[str] = "Identity"
    distance: str = row(ChoiceKind(("squared", "absolute", "huber")), default="squared")

    def random_truth(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        """Standard normal numbers."""
        return random.standard_normal(shape, np.float32)

    def _judged(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.regression import RegressionOutput as Judged

        return Judged(x, target, distance=self.distance, **more)  # type: ignore[arg-type]  # checked by its row

    def keras_loss(self) -> Any:
        """The mean of the distances."""
        return losses.regression(self.distance)

    def keras_metrics(self) -> list[Any]:
        """The mean absolute error, and the root of the mean squared one."""
        import keras

        return [keras.metrics.MeanAbsoluteError(name="mae"), keras.metrics.RootMeanSquaredError(name="rmse")]


class OutputSegmentation(JudgedOutput):
    """Logits of a class for each place, with targets that have no axis of classes.

    Parameters
    ----------
    criterion
        ``"cross_entropy"`` or ``"dice"``.
    ignore
        Target of places that do not count at all.
    """

    keras: ClassVar[str] = "Identity"
    criterion: str = row(ChoiceKind(("cross_entropy", "dice")), default="cross_entropy")
    ignore: int = row(IntegerKind(-(1 << 31), 1 << 31), default=-100)
    data_format: str = data_format()

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        if len(shapes[0]) < 3:
            raise Misfit(f"takes at least one axis of places besides that of classes, not {shapes[0]}")
        channels(shapes[0], self.data_format)
        return (shapes[0],)

    def meaning(self) -> Layer:
        """Probabilities at each place."""
        return Softmax((), -1 if self.data_format == "channels_last" else 1, name=self.name)

    def random_truth(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        """Any class at each place."""
        last = self.data_format == "channels_last"
        return random.integers(0, shape[-1 if last else 1], shape[:-1] if last else (shape[0], *shape[2:]))

    def _judged(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.segmentation import SegmentationOutput as Judged

        logits = x.movedim(-1, 1) if self.data_format == "channels_last" else x
        return Judged(logits, target, criterion=self.criterion, ignore=self.ignore, **more)  # type: ignore[arg-type]

    def keras_loss(self) -> Any:
        """The loss of each sample: the mean over the places that count, or the Dice loss over all of them."""
        return losses.segmentation(self.criterion, self.ignore, self.data_format == "channels_first")


class OutputEmbedding(JudgedOutput):
    """Features that are looked at, not learned from; ``target`` may name labels for their colours."""

    keras: ClassVar[str] = "Identity"
    target: str | None = row(NameKind(optional=True), default=None)

    def _judged(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.embedding import EmbeddingOutput as Judged

        return Judged(x, target, **more)

    def keras_loss(self) -> Any:
        """Nothing."""
        return None


class OutputTriplets(JudgedOutput):
    """Three embeddings a sample, ``(n, 3, features)``: an anchor, one of its kind, one of another kind.

    Join them with ``Concatenate([RepeatVector(a, 1), RepeatVector(p, 1), RepeatVector(n, 1)], axis=1)``.

    Parameters
    ----------
    margin
        How much nearer the one of its kind has to be.
    """

    keras: ClassVar[str] = "Identity"
    target: str | None = row(NameKind(optional=True), default=None)
    margin: float = row(NumberKind(0), default=1.0)

    def _shapes(self, *shapes: Shape) -> tuple[Shape, ...]:
        if len(shapes[0]) != 3 or shapes[0][1] != 3:
            raise Misfit(f"takes three embeddings a sample, (n, 3, features), not {shapes[0]}")
        return (shapes[0],)

    def _judged(self, x: Any, target: Any, **more: Any) -> Output:
        from nnpipe.training.outputs.triplets import TripletOutput as Judged

        anchor, positive, negative = x.unbind(1)
        return Judged(anchor, target, positive=positive, negative=negative, margin=self.margin, **more)

    def keras_loss(self) -> Any:
        """The triplet loss; the target that Keras asks for does not count."""
        return losses.triplets(self.margin)
