"""The training history of a wrapper: the figures, and which weights were kept."""

from __future__ import annotations

from nnpipe.core.training import TrainingHistory
from nnpipe.experiment.history import History
from nnpipe.frameworks.training_curves import figures_of
from nnpipe.training.final_weights import FinalWeights


def history_of(history: History, final: FinalWeights | None) -> TrainingHistory:
    """Return the figures under the names of wrappers, and which weights the model has now."""
    epochs = tuple(figures_of(row) for row in history.rows())
    return TrainingHistory(epochs) if final is None else TrainingHistory(epochs, final.which, final.epoch or None)
