"""Losses that Keras lacks, for generated scripts: functions of targets and outputs that return
one value per sample.
"""

# mypy: ignore-errors
# ruff: noqa: F821


def cross_entropy_with_smoothing(targets, outputs, label_smoothing):
    """Return the cross entropy of logits with label smoothing."""
    classes = keras.ops.reshape(keras.ops.cast(targets, "int32"), (-1,))
    truth = keras.ops.one_hot(classes, outputs.shape[-1])
    return keras.losses.categorical_crossentropy(
        truth, outputs, from_logits=True, label_smoothing=label_smoothing
    )


def binary_cross_entropy_with_weight(targets, outputs, positive_weight):
    """Return the binary cross entropy of logits with a weight for positive targets."""
    truth = keras.ops.reshape(keras.ops.cast(targets, outputs.dtype), keras.ops.shape(outputs))
    ones = positive_weight * truth * keras.ops.softplus(-outputs)
    found = ones + (1 - truth) * keras.ops.softplus(outputs)
    return keras.ops.mean(keras.ops.reshape(found, (keras.ops.shape(found)[0], -1)), 1)


def prepare_pixels(targets, outputs, ignore, channels_first):
    """Return logits, one-hot targets and a mask, each of shape (samples, pixels, ...)."""
    logits = keras.ops.moveaxis(outputs, 1, -1) if channels_first else outputs
    samples, classes = keras.ops.shape(logits)[0], logits.shape[-1]
    numbers = keras.ops.reshape(keras.ops.cast(targets, "int32"), (samples, -1))
    there = keras.ops.not_equal(numbers, ignore)
    counted = keras.ops.cast(there, logits.dtype)[..., None]
    truth = keras.ops.one_hot(keras.ops.where(there, numbers, 0), classes) * counted
    return keras.ops.reshape(logits, (samples, -1, classes)), truth, counted


def pixel_cross_entropy(targets, outputs, ignore, channels_first):
    """Return the mean cross entropy over the pixels of each sample, without ignored ones."""
    logits, truth, counted = prepare_pixels(targets, outputs, ignore, channels_first)
    found = -keras.ops.sum(truth * keras.ops.log_softmax(logits), (1, 2))
    return found / keras.ops.maximum(keras.ops.sum(counted, (1, 2)), 1)


def dice_loss(targets, outputs, ignore, channels_first):
    """Return one minus the mean Dice score of the classes, without ignored pixels."""
    logits, truth, counted = prepare_pixels(targets, outputs, ignore, channels_first)
    given = keras.ops.softmax(logits) * counted
    both = keras.ops.sum(given * truth, 1)
    return 1 - keras.ops.mean((2 * both + 1) / (keras.ops.sum(given + truth, 1) + 1), 1)


def triplet_loss(targets, outputs, margin):
    """Return the triplet loss of the three embeddings of a sample; targets are not used."""
    anchor, positive, negative = (outputs[:, place] for place in range(3))
    near = keras.ops.norm(anchor - positive + 1e-6, axis=-1)
    far = keras.ops.norm(anchor - negative + 1e-6, axis=-1)
    return keras.ops.relu(near - far + margin)


def remove_loss(network):
    """Leave the loss out of saved files; it is defined here, so Keras could not load it."""
    network.get_compile_config = lambda: None
