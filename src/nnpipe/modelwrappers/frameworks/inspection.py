"""Find weights and tensors of a model by name."""

from __future__ import annotations

from collections.abc import Iterable

from nnpipe.core.errors import ConfigError
from nnpipe.core.graph import Operation, Selector
from nnpipe.core.messages import suggest_name
from nnpipe.core.training import TrainingHistory
from nnpipe.experiment.history import History
from nnpipe.frameworks.training_curves import map_epoch_figures
from nnpipe.training.final_weights import FinalWeights


def check_weights(owner: object, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise :class:`ConfigError` unless all these weights are known, with the name that was
    probably meant.
    """
    known = set(known)
    for name in names:
        if name not in known:
            raise ConfigError(f"{owner} has no weight {name!r}{suggest_name(str(name), known)}")


def select_tensors(owner: object, selector: Selector, operations: Iterable[Operation]) -> list[str]:
    """Return the tensors that a selector chooses among those that operations compute.

    Raises
    ------
    ConfigError
        If there is none, with the name that was probably meant.
    """
    operations = list(operations)
    tensors = [(operation, tensor) for operation in operations for tensor in operation.outputs]
    found = [tensor for operation, tensor in tensors if selector.matches(operation, tensor)]
    if found:
        return found
    if selector.tensor is not None:
        what, wanted, known = "tensor", selector.tensor, {tensor for _, tensor in tensors}
    elif selector.layer is not None:
        what, wanted, known = "layer", selector.layer, {operation.layer for operation in operations}
    else:
        what, wanted, known = (
            "operation",
            selector.operation or "",
            {operation.kind for operation in operations},
        )
    raise ConfigError(
        f"{owner}: nothing is chosen by {what}={wanted!r}{suggest_name(wanted, known)}"
    )


def convert_history(history: History, final: FinalWeights | None) -> TrainingHistory:
    """Return the figures under the names of wrappers, and which weights the model has now."""
    epochs = tuple(map_epoch_figures(row) for row in history.rows())
    return (
        TrainingHistory(epochs)
        if final is None
        else TrainingHistory(epochs, final.which, final.epoch or None)
    )
