"""The status of an experiment: its phase, its progress, and how it ended."""

from __future__ import annotations

from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.module import Module
from nnpipe.experiment.state import State

NEXT = {
    "created": ("running", "cancelled"),
    "running": ("paused", "completed", "failed", "cancelled"),
    "paused": ("running", "cancelled", "failed"),
    "failed": ("running",),
    "cancelled": ("running",),
    "completed": (),
}
"""The phases that may follow each phase; a failed or cancelled experiment can be continued."""


class Status(Module):
    """A phase, the progress, and the reason for the last change.

    Attributes
    ----------
    state
        ``phase``, one of :data:`NEXT`; ``done`` and ``total``, numbers of steps
        (``total`` is 0 if it is not known); ``reason``, a text.
    """

    def __init__(self) -> None:
        self.state = State(phase="created", done=0, total=0, reason="")

    @property
    def phase(self) -> str:
        """The present phase."""
        return str(self.state.phase)

    @property
    def fraction(self) -> float | None:
        """The share of the work that is done, from 0 to 1; ``None`` if the total is not known."""
        return min(1.0, self.state.done / self.state.total) if self.state.total else None

    def enter(self, phase: str, reason: str = "") -> None:
        """Change to a phase.

        Raises
        ------
        ConfigError
            If the phase cannot follow the present one.
        """
        if phase not in NEXT[self.phase]:
            allowed = " or ".join(NEXT[self.phase]) or "nothing"
            raise ConfigError(f"what is {self.phase} can become {allowed}, not {phase}")
        self.state.phase, self.state.reason = phase, reason

    def advance(self, done: int, total: int = 0) -> None:
        """Record how many steps are done, and of how many."""
        self.state.done = done
        if total:
            self.state.total = total

    def check_state(self, state: Any, path: str = "") -> None:
        """Raise :class:`~nnpipe.experiment.module.StateError` unless the phase is a known one."""
        super().check_state(state, path)
        if state["state"]["phase"] not in NEXT:
            from nnpipe.experiment.module import StateError

            raise StateError(f"{path or 'Status'}: no phase is called {state['state']['phase']!r}")
