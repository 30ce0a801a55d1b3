"""The pictures of a training, rendered as often as time allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nnpipe.core.files import replacing


class PictureQueue:
    """Renders figures into files for at most a share of the time; of those that wait, the newest of each file is kept.

    To render a figure takes a tenth of a second or more.  In a training of short epochs that would be most of the time,
    for pictures that nobody can look at before they are replaced.

    Parameters
    ----------
    share
        How much of the time since the first figure may be spent on rendering, from 0 to 1.  The first figure of each
        file is rendered whatever it takes.
    clock
        Returns the time in seconds.
    """

    def __init__(self, share: float = 0.1, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._start: float | None = None
        self._spent = 0.0
        self._rendered: set[Path] = set()
        self._waiting: dict[Path, Any] = {}

    def add(self, path: Path, figure: Any, *, at_once: bool = False) -> None:
        """Render a matplotlib figure to a PNG file now, or keep it in place of an earlier one that waits."""
        if self._start is None:
            self._start = self._clock()
        self._waiting[path] = figure
        if at_once or path not in self._rendered:
            self._render(path)
        elif self._spent <= self._share * (self._clock() - self._start):
            self._render(next(iter(self._waiting)))  # the one that has waited longest

    def finish(self) -> None:
        """Render all figures that wait, even if some cannot be written, and raise the last error."""
        with ExitStack() as stack:
            for path in reversed(self._waiting):
                stack.callback(self._render, path)

    def _render(self, path: Path) -> None:
        figure = self._waiting.pop(path)
        before = self._clock()
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=90, metadata={"Software": None})
        self._spent += self._clock() - before
        self._rendered.add(path)
