"""Callbacks that run in some epochs only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import choose

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class SkipEpochs(Callback):
    """Run other callbacks in every n-th epoch and in the last one only.

    Hooks of the beginning and the end of the training are always called.  If the training stops before its
    last epoch, the last epoch is skipped like any other.

    Parameters
    ----------
    callbacks
        The callbacks, or their names, as in ``SkipEpochs:callbacks=[WorstSamples],every=10``.
    every
        The number of epochs.
    """

    frameworks: ClassVar[tuple[str, ...]] = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackSkipEpoch",)

    def __init__(self, callbacks: Sequence[Callback | str], every: int = 10) -> None:
        check_call(SkipEpochs, locals())
        if every < 1:
            raise ConfigError(f"SkipEpochs: every is {every}; it takes 1 or more")
        names = [one for one in callbacks if isinstance(one, str)]
        self.callbacks = [
            *(one for one in callbacks if isinstance(one, Callback)),
            *choose(names, framework="torch", known={}),
        ]
        self.every = every
        # A callback that supports one framework only needs trainings of this one.
        self.frameworks = tuple(  # type: ignore[misc]
            name for name in SkipEpochs.frameworks if all(name in one.frameworks for one in self.callbacks)
        )

    def parts(self) -> tuple[Callback, ...]:
        """Return the callbacks that run in some epochs only."""
        return tuple(part for callback in self.callbacks for part in callback.parts())

    def _runs(self, fit: Fit) -> bool:
        return fit.epoch % self.every == 0 or fit.epoch == fit.options.num_epochs

    def on_fit_begin(self, fit: Fit) -> None:
        """Prepare all."""
        for callback in self.callbacks:
            callback.on_fit_begin(fit)

    def on_epoch_begin(self, fit: Fit) -> None:
        """Prepare for an epoch, if it is not skipped."""
        for callback in self.callbacks if self._runs(fit) else ():
            callback.on_epoch_begin(fit)

    def on_batch_begin(self, fit: Fit, batch: dict[str, Any]) -> None:
        """Inspect or change a batch of an epoch that is not skipped."""
        for callback in self.callbacks if self._runs(fit) else ():
            callback.on_batch_begin(fit, batch)

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Inspect a batch and its outputs in an epoch that is not skipped."""
        for callback in self.callbacks if self._runs(fit) else ():
            callback.on_batch_end(fit, batch, outputs)

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Inspect a batch of an evaluated split in an epoch that is not skipped."""
        for callback in self.callbacks if self._runs(fit) else ():
            callback.on_evaluate_batch(fit, dataset, split, batch, outputs)

    def on_epoch_end(self, fit: Fit) -> None:
        """Finish an epoch, if it is not skipped."""
        for callback in self.callbacks if self._runs(fit) else ():
            callback.on_epoch_end(fit)

    def on_fit_end(self, fit: Fit) -> None:
        """Finish all."""
        for callback in self.callbacks:
            callback.on_fit_end(fit)

    def close(self) -> None:
        """Close all, even if some fail."""
        failed = None
        for callback in self.callbacks:
            try:
                callback.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
