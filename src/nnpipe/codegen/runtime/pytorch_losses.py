"""Losses and metrics for scripts of PyTorch: functions of outputs and targets that return a mean
over the samples.
"""

# mypy: ignore-errors
# ruff: noqa: F821


def cross_entropy(outputs, targets):
    """Return the cross entropy of logits."""
    return F.cross_entropy(outputs, targets)


def cross_entropy_of_probabilities(outputs, targets):
    """Return the cross entropy of probabilities, such as the output of a softmax."""
    return F.nll_loss(outputs.clamp_min(1e-7).log(), targets)


def binary_cross_entropy(outputs, targets):
    """Return the binary cross entropy of logits."""
    return F.binary_cross_entropy_with_logits(outputs, targets.float().reshape(outputs.shape))


def binary_cross_entropy_of_probabilities(outputs, targets):
    """Return the binary cross entropy of probabilities, such as the output of a sigmoid."""
    kept = outputs.clamp(1e-7, 1 - 1e-7)
    return F.binary_cross_entropy(kept, targets.float().reshape(outputs.shape))


def mean_squared_error(outputs, targets):
    """Return the mean squared error."""
    return F.mse_loss(outputs, targets.float().reshape(outputs.shape))


def mean_absolute_error(outputs, targets):
    """Return the mean absolute error."""
    return F.l1_loss(outputs, targets.float().reshape(outputs.shape))


def huber(outputs, targets):
    """Return the Huber loss with a delta of one."""
    return F.huber_loss(outputs, targets.float().reshape(outputs.shape))


def accuracy(outputs, targets):
    """Return the share of samples whose class has the highest score."""
    return (outputs.argmax(-1) == targets).float().mean()


def binary_accuracy(outputs, targets):
    """Return the share of correct binary classifications by probabilities."""
    return ((outputs > 0.5) == targets.reshape(outputs.shape).bool()).float().mean()


def binary_accuracy_of_logits(outputs, targets):
    """Return the share of correct binary classifications by logits."""
    return ((outputs > 0) == targets.reshape(outputs.shape).bool()).float().mean()


def cross_entropy_with_smoothing(outputs, targets, label_smoothing):
    """Return the cross entropy of logits with label smoothing."""
    return F.cross_entropy(outputs, targets, label_smoothing=label_smoothing)


def binary_cross_entropy_with_weight(outputs, targets, positive_weight):
    """Return the binary cross entropy of logits with a weight for positive targets."""
    truth = targets.float().reshape(outputs.shape)
    weight = outputs.new_tensor(positive_weight)
    return F.binary_cross_entropy_with_logits(outputs, truth, pos_weight=weight)


def pixel_cross_entropy(outputs, targets, ignore, channels_first):
    """Return the mean cross entropy over the pixels of each sample, without ignored ones."""
    logits = outputs if channels_first else outputs.movedim(-1, 1)
    found = F.cross_entropy(logits, targets, reduction="none", ignore_index=ignore)
    counted = (targets != ignore).flatten(1).sum(1).clamp(min=1)
    return (found.flatten(1).sum(1) / counted).mean()


def dice_loss(outputs, targets, ignore, channels_first):
    """Return one minus the mean Dice score of the classes, without ignored pixels."""
    logits = outputs if channels_first else outputs.movedim(-1, 1)
    counted = (targets != ignore).flatten(1)[:, None]
    classes = torch.arange(logits.shape[1], device=targets.device)[:, None]
    truth = ((targets.flatten(1)[:, None] == classes) & counted).float()
    given = logits.softmax(1).flatten(2) * counted
    both = (given * truth).sum(2)
    return (1 - (2 * both + 1) / ((given + truth).sum(2) + 1)).mean()


def triplet_loss(outputs, targets, margin):
    """Return the triplet loss of the three embeddings of a sample; targets are not used."""
    anchor, positive, negative = outputs.unbind(1)
    return F.triplet_margin_loss(anchor, positive, negative, margin=margin)


def scale_loss(loss, scale):
    """Return a loss function that multiplies another one by a number."""
    return lambda outputs, targets: scale * loss(outputs, targets)


def top_accuracy(outputs, targets, rank):
    """Return the share of samples whose class has one of the `rank` highest scores."""
    best = outputs.topk(min(rank, outputs.shape[1]), 1).indices
    return (best == targets[:, None]).any(1).float().mean()
