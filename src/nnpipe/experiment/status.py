"""Where an experiment stands: what it is doing, how far it is, and how it ended."""

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
"""What may follow each phase; what failed or was cancelled can be taken up again."""


class Status(Module):
    """A phase, the work done of all work, and the reason for the last change.

    Attributes
    ----------
    state
        ``phase``, one of :data:`NEXT`; ``done`` and ``total``, whole numbers,
        ``total`` 0 while nobody knows; ``reason``, a text.
    """

    def __init__(self) -> None:
        self.state = State(phase="created", done=0, total=0, reason="")

    @property
    def phase(self) -> str:
        """What is going on."""
        return str(self.state.phase)

    @property
    def fraction(self) -> float | None:
        """How much of the work is done, from 0 to 1; ``None`` if nobody knows how much there is."""
        return min(1.0, self.state.done / self.state.total) if self.state.total else None

    def enter(self, phase: str, reason: str = "") -> None:
        """Change to a phase.

        Raises
        ------
        ConfigError
            If it cannot follow the present one.
        """
        if phase not in NEXT[self.phase]:
            allowed = " or ".join(NEXT[self.phase]) or "nothing"
            raise ConfigError(f"what is {self.phase} can become {allowed}, not {phase}")
        self.state.phase, self.state.reason = phase, reason

    def advance(self, done: int, total: int = 0) -> None:
        """Tell how much is done, of how much."""
        self.state.done = done
        if total:
            self.state.total = total

    def check_state(self, state: Any, path: str = "") -> None:
        """Raise :class:`~nnpipe.experiment.module.StateError` unless the phase is a known one."""
        super().check_state(state, path)
        if state["state"]["phase"] not in NEXT:
            from nnpipe.experiment.module import StateError

            raise StateError(f"{path or 'Status'}: no phase is called {state['state']['phase']!r}")
