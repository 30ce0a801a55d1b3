"""Where epochs and trainings end: passes through the data, numbers of steps, and time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any

from nnpipe.training._batches import Feed
from nnpipe.training.distributed import Team
from nnpipe.training.options import TrainerOptions


class Passes:
    """The passes through the training data; one may go on over several epochs."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._batches: Iterator[tuple[str, Any]] | None = None

    @property
    def going(self) -> bool:
        """Whether a pass has begun and is not over."""
        return self._batches is not None

    @property
    def length(self) -> int | None:
        """The number of batches in a pass; None if a sequence has no length."""
        try:
            return len(self.feed)
        except TypeError:
            return None

    def begin(self, number: int) -> None:
        """Begin a pass, counted from 1."""
        self.feed.begin(number)
        self._batches = iter(self.feed)

    def resume(self, state: Mapping[str, Any], number: int) -> None:
        """Go to where a pass was left."""
        self.feed.load_state_dict(state, number)
        self._batches = iter(self.feed)

    def batches(self) -> Iterator[tuple[str, Any]]:
        """Return the remaining batches of the pass, with the names of their sequences."""
        assert self._batches is not None  # a pass is going on
        return self._batches

    def close(self) -> None:
        """End the pass, wherever it is."""
        batches, self._batches = self._batches, None
        if batches is not None and hasattr(batches, "close"):
            batches.close()


class StepLimits:
    """The steps and the time at which an epoch or a training ends.

    Attributes
    ----------
    last_step
        The number of steps after which the present epoch ends; infinite if it ends with the pass.
    timed
        Whether time is limited.
    time_is_up
        Whether the training has to stop, as :meth:`check_time` found.
    """

    def __init__(self, options: TrainerOptions, team: Team) -> None:
        self._options = options
        self._team = team
        self._until = math.inf if options.max_seconds is None else monotonic() + options.max_seconds
        self.timed = options.max_seconds is not None
        self.time_is_up = False
        self.last_step = math.inf

    def begin_epoch(self, epoch: int) -> None:
        """Set the limit of steps for an epoch."""
        options = self._options
        own = math.inf if options.epoch_steps is None else epoch * options.epoch_steps
        self.last_step = min(own, math.inf if options.max_steps is None else options.max_steps)

    def epoch_is_whole(self, epoch: int, step: int) -> bool:
        """Return whether an epoch that ended within a pass has all the steps of ``epoch_steps``."""
        return self._options.epoch_steps is not None and step >= epoch * self._options.epoch_steps

    def check_time(self) -> bool:
        """Return whether the time is up, on the clock of the first process; all processes must call it."""
        self.time_is_up = self._team.gathered(monotonic() >= self._until)[0]
        return self.time_is_up
