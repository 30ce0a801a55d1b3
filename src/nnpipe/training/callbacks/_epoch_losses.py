"""The losses of all samples of an epoch, kept on the device until it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.experiment.state import State
from nnpipe.training.callbacks._arrays import joined
from nnpipe.training.callbacks.writing_callback import WritingCallback

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


def sample_losses(outputs: Mapping[str, Any], output: str | None) -> Any:
    """Return the losses ``(n,)`` of a batch, scaled as in the sum that is minimised; None if the output is not there.

    Parameters
    ----------
    outputs
        The outputs of the batch by name.
    output
        The output whose losses count; None for the sum over all.
    """
    chosen = outputs.values() if output is None else [outputs[output]] if output in outputs else []
    losses: Any = None
    for each in chosen:
        own = each.losses if isinstance(each.losses, np.ndarray) else each.losses.detach().float()
        own = own * each.scale
        losses = own if losses is None else losses + own
    return losses


def epoch_means(kept: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return ids, ascending, and the mean loss of each, float64, from the ids and losses of batches."""
    ids = np.concatenate([np.asarray(own) for own, _ in kept]).astype(np.int64)
    losses = joined([own for _, own in kept]).astype(np.float64)
    # A sample may occur several times in an epoch; then the mean of its losses counts.
    unique, place, times = np.unique(ids, return_inverse=True, return_counts=True)
    return unique, np.bincount(place, weights=losses) / times


class KeepsLosses(WritingCallback):
    """Base of callbacks that need the loss of each sample, once in an epoch.

    A subclass sets ``output``, whose losses count, or None for the sum over all, and a state with ``waiting``: by
    split, the ids and losses of this epoch's batches.
    """

    abstract: ClassVar[bool] = True
    output: str | None
    state: State

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Keep the losses of a training batch."""
        self._keep(f"{fit.dataset}/{'+'.join(fit.options.train_splits)}", batch, outputs)

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Keep the losses of an evaluated batch."""
        self._keep(f"{dataset}/{split}", batch, outputs)

    def _keep(self, split: str, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        losses = sample_losses(outputs, self.output)
        if losses is not None:
            self.state.waiting.setdefault(split, []).append([batch["sample_id"], losses])
