"""Triggers by name, and what is done at them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest
from nnpipe.experiment.module import Module, Stateful
from nnpipe.experiment.state import State

log = logging.getLogger("nnpipe")


class CallbackFailed(Exception):
    """Something done at a trigger raised; the cause is attached."""


@dataclass(frozen=True)
class Registered:
    """What is done at a trigger."""

    trigger: str
    function: Callable[..., object]
    every: int
    on_error: Literal["stop", "log"]

    @property
    def name(self) -> str:
        """What the function is called."""
        named = getattr(self.function, "__qualname__", None) or type(self.function).__qualname__
        return str(named)


class Callbacks(Module):
    """Functions that are called when something happens.

    ::

        callbacks = Callbacks("epoch_end", "stop")
        callbacks.on("epoch_end", save, every=5)
        callbacks.trigger("epoch_end", epoch)

    How often each trigger happened is state, so that ``every`` goes on in step
    after a restart; functions that are :class:`~nnpipe.experiment.module.Stateful` are children.

    Parameters
    ----------
    triggers
        The names that there are; any other is an error.
    """

    def __init__(self, *triggers: str) -> None:
        self._registered: list[Registered] = []
        self._times = {name: State(count=0) for name in triggers}

    @property
    def triggers(self) -> tuple[str, ...]:
        """The names that there are."""
        return tuple(self._times)

    def on(
        self,
        trigger: str,
        function: Callable[..., object],
        *,
        every: int = 1,
        on_error: Literal["stop", "log"] = "stop",
    ) -> None:
        """Have a function called at a trigger, in the order of registration.

        Parameters
        ----------
        trigger
            Its name.
        function
            Takes what :meth:`trigger` is given.
        every
            Call it at each so many times that this happens only: the 5th, the 10th, ...
        on_error
            Whether an exception stops the experiment or is logged with its traceback.

        Raises
        ------
        ConfigError
            If there is no such trigger, or ``every`` is below 1.
        """
        self._check(trigger)
        if every < 1:
            raise ConfigError(f"{trigger}: every must be at least 1, not {every}")
        self._registered.append(Registered(trigger, function, every, on_error))

    def trigger(self, trigger: str, *arguments: object) -> None:
        """Call what is registered.

        Raises
        ------
        CallbackFailed
            If a function raised that may stop the experiment; those after it are not called.
        """
        self._check(trigger)
        state = self._times[trigger]
        state.count += 1
        for registered in self._registered:
            if registered.trigger != trigger or state.count % registered.every:
                continue
            try:
                registered.function(*arguments)
            except Exception as error:
                if registered.on_error == "log":
                    log.exception("%s, called at %s, failed", registered.name, trigger)
                    continue
                raise CallbackFailed(f"{registered.name}, called at {trigger}, failed: {error}") from error

    def children(self) -> Iterator[tuple[str, Stateful]]:
        """Yield the counts by trigger, and the functions that have a state."""
        for name, state in self._times.items():
            yield f"times.{name}", state
        for number, registered in enumerate(self._registered):
            if isinstance(registered.function, Stateful):
                yield f"functions.{number}", registered.function

    def _check(self, trigger: str) -> None:
        if trigger not in self._times:
            hint = nearest(trigger, self._times) or f"; there are: {', '.join(self._times)}"
            raise ConfigError(f"no trigger is called {trigger!r}{hint}")
