"""Calling callbacks, and naming the one that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.training._batches import format_batch_ids
from nnpipe.training._random import preserve_rng_state
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.fit import TrainingRun

_NAMES = (
    "on_fit_begin",
    "on_epoch_begin",
    "on_batch_begin",
    "on_batch_end",
    "on_evaluate_batch",
    "on_epoch_end",
    "on_fit_end",
    "close",
)


Aside = Callable[[TrainingRun], AbstractContextManager[Any]]
"""Returns a context manager that restores, at its end, everything that a callback must not
change.
"""


class Hooks:
    """The callbacks of a training, by hook: a hook that a callback does not define costs
    nothing.
    """

    def __init__(
        self, callbacks: Sequence[Callback], fit: TrainingRun, aside: Aside | None = None
    ) -> None:
        self._fit = fit
        self._aside = aside or _preserve_state
        self._callbacks = tuple(callbacks)
        self._by_name = {
            name: tuple(
                c for c in self._callbacks if getattr(type(c), name) is not getattr(Callback, name)
            )
            for name in _NAMES
        }

    def has(self, hook: str) -> bool:
        """Return whether any callback defines a hook."""
        return bool(self._by_name[hook])

    def call(self, hook: str, *arguments: Any, batch: Mapping[str, Any] | None = None) -> None:
        """Call a hook of all callbacks; errors name the samples of ``batch``."""
        for callback in self._by_name[hook]:
            try:
                getattr(callback, hook)(*(() if hook == "close" else (self._fit,)), *arguments)
            except Exception as error:
                self._report_failure(callback, hook, batch, error)

    def filter_describing_weights(self) -> Hooks:
        """Return the hooks of those callbacks whose files describe the weights of an epoch."""
        parts = [part for callback in self._callbacks for part in callback.parts()]
        return Hooks([part for part in parts if part.describes_weights], self._fit, self._aside)

    def call_aside(self, hook: str) -> None:
        """Call a hook, then restore the random states and the model's modes."""
        if not self._by_name[hook]:
            return
        with self._aside(self._fit):
            self.call(hook)

    def close(self) -> None:
        """Close all callbacks and write the pictures that wait, even if some fail, and raise the
        first error.
        """
        with ExitStack() as stack:
            stack.callback(self._fit.pictures.finish)
            for callback in self._callbacks:
                stack.callback(self._close, callback)

    def _close(self, callback: Callback) -> None:
        try:
            callback.close()
        except Exception as error:
            self._report_failure(callback, "close", None, error)

    def _report_failure(
        self, callback: Callback, hook: str, batch: Mapping[str, Any] | None, error: Exception
    ) -> None:
        fit = self._fit
        told = (
            f"callback {type(callback).__name__}.{hook} failed in epoch {fit.epoch}, step "
            f"{fit.step}{format_batch_ids(batch)}: {type(error).__name__}: {error}"
        )
        if fit.options.callback_errors == "raise":
            raise TrainingError(told) from error
        fit.log.error(told, exc_info=error)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of callbacks by class name; several of one class are numbered."""
        return {name: callback.state_dict() for name, callback in self._iter_named()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the states; new callbacks keep their initial state, and states of missing
        callbacks are ignored.
        """
        for name, callback in self._iter_named():
            if name in state:
                callback.load_state_dict(state[name])

    def _iter_named(self) -> Iterator[tuple[str, Callback]]:
        seen: dict[str, int] = {}
        for callback in self._callbacks:
            name = type(callback).__name__
            seen[name] = number = seen.get(name, 0) + 1
            yield (name if number == 1 else f"{name}.{number}"), callback


@contextmanager
def _preserve_state(fit: TrainingRun) -> Iterator[None]:
    with preserve_rng_state(fit.device), preserve_modes(fit.model):
        yield


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Raise :class:`ConfigError` if anything in the list is not a callback."""
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise ConfigError(f"{callback!r} is no Callback")


@contextmanager
def preserve_modes(model: Any) -> Iterator[None]:
    """Restore each layer's mode, training or inference, at the end of the block."""
    before = [(layer, layer.training) for layer in model.modules()]
    try:
        yield
    finally:
        for layer, mode in before:
            layer.training = mode
