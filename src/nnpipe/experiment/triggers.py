"""Named triggers, and the functions that they call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.experiment.module import Module, Stateful
from nnpipe.experiment.state import State

log = logging.getLogger("nnpipe")


class CallbackFailed(Exception):
    """A function that a trigger called raised an error, which is attached as the cause."""


@dataclass(frozen=True)
class RegisteredFunction:
    """A function that is registered at a trigger."""

    trigger: str
    function: Callable[..., object]
    every: int
    on_error: Literal["stop", "log"]

    @property
    def name(self) -> str:
        """The name of the function."""
        named = getattr(self.function, "__qualname__", None) or type(self.function).__qualname__
        return str(named)


class Callbacks(Module):
    """Functions that are called at triggers.

    ::

        callbacks = Callbacks("epoch_end", "stop")
        callbacks.on("epoch_end", save, every=5)
        callbacks.trigger("epoch_end", epoch)

    The number of times of each trigger is part of the state, so that ``every`` continues
    correctly after a restart.  Functions that are :class:`~nnpipe.experiment.module.Stateful`
    are children.

    Parameters
    ----------
    triggers
        The known names; any other is an error.
    """

    def __init__(self, *triggers: str) -> None:
        self._registered: list[RegisteredFunction] = []
        self._times = {name: State(count=0) for name in triggers}

    def on(
        self,
        trigger: str,
        function: Callable[..., object],
        *,
        every: int = 1,
        on_error: Literal["stop", "log"] = "stop",
    ) -> None:
        """Register a function at a trigger; functions are called in the order of registration.

        Parameters
        ----------
        trigger
            The name of the trigger.
        function
            Takes the arguments of :meth:`trigger`.
        every
            Call the function only every so many times: with 5, at the 5th, the 10th, ...
        on_error
            ``"stop"``: an exception stops the experiment; ``"log"``: it is logged with its
            traceback.

        Raises
        ------
        ConfigError
            If there is no such trigger, or ``every`` is below 1.
        """
        self._check(trigger)
        if every < 1:
            raise ConfigError(f"{trigger}: every must be at least 1, not {every}")
        self._registered.append(RegisteredFunction(trigger, function, every, on_error))

    def trigger(self, trigger: str, *arguments: object) -> None:
        """Call the registered functions.

        Raises
        ------
        CallbackFailed
            If a function with ``on_error="stop"`` raised; later functions are not called.
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
                raise CallbackFailed(
                    f"{registered.name}, called at {trigger}, failed: {error}"
                ) from error

    def children(self) -> Iterator[tuple[str, Stateful]]:
        """Yield the counts by trigger, and the functions that have a state."""
        for name, state in self._times.items():
            yield f"times.{name}", state
        for number, registered in enumerate(self._registered):
            if isinstance(registered.function, Stateful):
                yield f"functions.{number}", registered.function

    def _check(self, trigger: str) -> None:
        if trigger not in self._times:
            hint = suggest_name(trigger, self._times) or f"; there are: {', '.join(self._times)}"
            raise ConfigError(f"no trigger is called {trigger!r}{hint}")
