"""How often a training sees each class."""

from __future__ import annotations

from typing import Any

from nnpipe.experiment.state import State
from nnpipe.training.callbacks import WritingCallback
from nnpipe.training.callbacks.callback import write_table


class Balance(WritingCallback):
    """Count how often each class is seen, and write the counts to ``tables/balance.json`` after
    each epoch.

    Parameters
    ----------
    feature
        The feature of a batch that holds the classes.
    """

    def __init__(self, feature: str = "label") -> None:
        self.feature = feature
        self.state = State(seen={})  # part of each checkpoint

    def on_batch_end(self, fit: Any, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Count the classes of a training batch."""
        seen = dict(self.state.seen)
        for label in batch[self.feature].tolist():
            seen[str(label)] = seen.get(str(label), 0) + 1
        self.state.seen = seen

    def on_epoch_end(self, fit: Any) -> None:
        """Write the table, whole or not at all."""
        rows = [{"class": name, "seen": count} for name, count in sorted(self.state.seen.items())]
        write_table(fit, "balance", rows)
