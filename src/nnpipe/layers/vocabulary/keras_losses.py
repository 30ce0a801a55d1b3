"""The losses of output layers for Keras.

They are Keras's own where it has an equivalent, otherwise functions that
return the loss of each sample, shape ``(n,)``.
"""

from __future__ import annotations

from typing import Any

from nnpipe.core.errors import MissingDependency

_BESIDE = 1e-6  # PyTorch adds it to differences before it takes their norm


def classification(label_smoothing: float) -> Any:
    """Return the cross entropy of logits ``(n, classes)``."""
    keras = _keras()
    if not label_smoothing:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def smoothed_cross_entropy(truth: Any, logits: Any) -> Any:
        chances = keras.ops.one_hot(_numbers(keras, truth, logits.shape[:-1]), logits.shape[-1])
        return keras.losses.categorical_crossentropy(chances, logits, from_logits=True, label_smoothing=label_smoothing)

    return smoothed_cross_entropy


def binary(positive_weight: float) -> Any:
    """Return the binary cross entropy of logits."""
    keras = _keras()
    if positive_weight == 1.0:
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def weighted_binary_cross_entropy(truth: Any, logits: Any) -> Any:
        ops = keras.ops
        truth = ops.reshape(ops.cast(truth, logits.dtype), ops.shape(logits))
        found = positive_weight * truth * ops.softplus(-logits) + (1 - truth) * ops.softplus(logits)
        return _per_sample(keras, found)

    return weighted_binary_cross_entropy


def regression(distance: str) -> Any:
    """Return the mean distance."""
    losses = _keras().losses
    names = {"squared": "MeanSquaredError", "absolute": "MeanAbsoluteError", "huber": "Huber"}
    return getattr(losses, names[distance])()


def segmentation(criterion: str, ignore: int, channels_first: bool) -> Any:
    """Return the segmentation loss of the logits at each position; see :class:`OutputSegmentation
    <nnpipe.training.outputs.segmentation.SegmentationOutput>`."""
    keras = _keras()
    ops = keras.ops

    def flat(truth: Any, logits: Any) -> tuple[Any, Any, Any]:
        logits = ops.moveaxis(logits, 1, -1) if channels_first else logits
        samples, classes = ops.shape(logits)[0], logits.shape[-1]
        logits = ops.reshape(logits, (samples, -1, classes))
        numbers = ops.reshape(ops.cast(truth, "int32"), (samples, -1))
        counted = ops.not_equal(numbers, ignore)
        chances = ops.one_hot(ops.where(counted, numbers, 0), classes)
        counted = ops.cast(counted, logits.dtype)[..., None]
        return logits, chances * counted, counted

    def cross_entropy(truth: Any, logits: Any) -> Any:
        logits, chances, counted = flat(truth, logits)
        places = -ops.sum(chances * ops.log_softmax(logits), (1, 2))
        return places / ops.maximum(ops.sum(counted, (1, 2)), 1)

    def dice(truth: Any, logits: Any) -> Any:
        logits, chances, counted = flat(truth, logits)
        given = ops.softmax(logits) * counted
        both = ops.sum(given * chances, 1)
        return 1 - ops.mean((2 * both + 1) / (ops.sum(given + chances, 1) + 1), 1)

    return {"cross_entropy": cross_entropy, "dice": dice}[criterion]


def triplets(margin: float) -> Any:
    """Return the triplet loss of embeddings ``(n, 3, features)``; the target is ignored."""
    ops = _keras().ops

    def triplet_loss(truth: Any, embeddings: Any) -> Any:
        anchor, positive, negative = (embeddings[:, number] for number in range(3))
        near = ops.norm(anchor - positive + _BESIDE, axis=-1)
        far = ops.norm(anchor - negative + _BESIDE, axis=-1)
        return ops.relu(near - far + margin)

    return triplet_loss


def _keras() -> Any:
    try:
        import keras
    except ImportError as error:
        raise MissingDependency(f"Keras is needed here: pip install 'nnpipe[tensorflow]' ({error})") from None
    return keras


def _numbers(keras: Any, truth: Any, shape: Any) -> Any:
    return keras.ops.reshape(keras.ops.cast(truth, "int32"), (-1, *shape[1:]))


def _per_sample(keras: Any, values: Any) -> Any:
    axes = tuple(range(1, len(values.shape)))
    return keras.ops.mean(values, axes) if axes else values
