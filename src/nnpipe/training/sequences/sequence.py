"""Sequences of batches: the base class of all stages of an input pipeline."""

from __future__ import annotations

import abc
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.module import Module, StateError, check_names
from nnpipe.training.sequences.diagnosis import Diagnosis, Meter, StageFigures, diagnose

if TYPE_CHECKING:
    from nnpipe.training.sequences.map import MapSequence
    from nnpipe.training.sequences.regroup import (
        CollateSequence,
        Grouped,
        MaxSamples,
        Rebatched,
        SubBatched,
    )
    from nnpipe.training.sequences.reservoir import ReservoirSequence

Batch = dict[str, Any]
"""Arrays or lists by name, with one entry for each sample; ``"sample_id"`` is an int64 array
``(n,)``.
"""

Stream = Generator[tuple[Batch, Any], None, None]
"""The batches of an epoch, each with the position after it."""


@dataclass(kw_only=True)
class _Place:
    """The consumer's place in an epoch."""

    epoch: int = 0
    batches: int = 0
    position: Any = None
    resume: bool = False


_STATE = ("stages", "epoch", "batches", "position")


class Sequence(Module, abc.ABC):
    """The batches of each epoch.

    ::

        sequence = ArraySequence({"input": images, "target": labels}, batch=64, sampler=RandomSampler(), seed=1)
        sequence = sequence.map(augment, workers=2)
        for epoch in range(1, 11):
            sequence.set_epoch(epoch)
            for batch in sequence:
                ...
        sequence.close()

    The content and the order of an epoch follow from the seeds and the number of
    the epoch; iterating twice gives the same epoch twice.  A sequence has one
    consumer at a time, in one thread.  The arrays of a batch belong to the consumer.

    Subclasses call ``super().__init__(source)`` and implement :meth:`stream`.

    Parameters
    ----------
    source
        The sequence that batches come from; None if this one makes them.
    """

    def __init__(self, source: Sequence | None = None) -> None:
        check_call(Sequence, locals())
        self.source = source
        self._place = _Place()
        self._meter = Meter()

    # -- for authors of sequences ------------------------------------------------------------

    @abc.abstractmethod
    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Return the batches of an epoch from a position, each with the position after it.

        A position is None for the beginning, or a value that was returned with a
        batch: numbers, and lists of numbers.  After the last position there are no batches.
        """

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch of an epoch; raise ``TypeError`` if it is
        not known.
        """
        raise TypeError(f"{type(self).__name__} does not know how long an epoch is")

    def figures(self) -> StageFigures:
        """Return this stage's counts and times for :meth:`diagnosis`."""
        return StageFigures()

    def settings(self) -> dict[str, Any]:
        """Return the plain values, by name, on which this stage's batches depend besides the
        source.
        """
        return {}

    def fingerprint(self) -> dict[str, Any]:
        """Return everything, by stage, on which batches depend besides the epoch: if it is equal,
        batches are equal.

        Of large data it includes the content of some samples only.
        """
        stages = [*self.stages()][::-1]
        found: dict[str, Any] = {"stages": [type(stage).__name__ for stage in stages]}
        for stage in stages:
            for name, value in stage.settings().items():
                found[name if name not in found else f"{type(stage).__name__}.{name}"] = value
        return found

    @property
    def exact(self) -> bool:
        """Whether batches depend only on seeds and epoch, so that a resumed run sees the same
        batches.
        """
        return self.source is None or self.source.exact

    # -- for users of sequences -------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over an epoch; once after :meth:`load_state_dict`, over its remaining batches."""
        place = self._place
        if not place.resume:
            place.position, place.batches = None, 0
        place.resume = False
        return self._deliver(self.stream(place.epoch, place.position), place)

    def _deliver(self, stream: Stream, place: _Place) -> Iterator[Batch]:
        meter = self._meter
        asked, first = perf_counter_ns(), True
        try:
            for batch, position in stream:
                place.position = position
                place.batches += 1
                given = perf_counter_ns()
                if first:
                    meter.start_ns += given - asked
                    first = False
                else:
                    meter.stall_ns += given - asked
                meter.batches += 1
                meter.samples += len(batch["sample_id"])
                yield batch
                asked = perf_counter_ns()
                meter.step_ns += asked - given
        finally:
            stream.close()

    def __len__(self) -> int:
        """Return the number of batches in an epoch; raise ``TypeError`` if it is not known."""
        return len(self.sizes())

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch and go to its beginning."""
        self._place = _Place(epoch=epoch)

    def stages(self) -> Iterator[Sequence]:
        """Yield this sequence, then its source, and so on."""
        stage: Sequence | None = self
        while stage is not None:
            yield stage
            stage = stage.source

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the number of batches delivered, and the position after them."""
        return {
            "stages": [type(stage).__name__ for stage in self.stages()],
            "epoch": self._place.epoch,
            "batches": self._place.batches,
            "position": self._place.position,
        }

    def check_state(self, state: Mapping[str, Any], path: str = "") -> None:
        """Raise :class:`~nnpipe.experiment.module.StateError` unless a state comes from such a
        chain.
        """
        where = path or type(self).__name__
        if not isinstance(state, Mapping):
            raise StateError(
                f"{where}: expected the state of a sequence, found {type(state).__name__}"
            )
        check_names(where, dict.fromkeys(_STATE), state)
        own = [type(stage).__name__ for stage in self.stages()]
        if list(state["stages"]) != own:
            raise StateError(
                f"{where}: the state is that of {' < '.join(state['stages'])}, this is "
                f"{' < '.join(own)}"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; the next iteration yields the remaining batches of its epoch."""
        self.check_state(state)
        self._place = _Place(
            epoch=int(state["epoch"]),
            batches=int(state["batches"]),
            position=state["position"],
            resume=True,
        )

    def close(self) -> None:
        """End worker processes and threads at once; iterating again starts new ones."""
        if self.source is not None:
            self.source.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def diagnosis(self) -> Diagnosis:
        """Return whether and why the consumer had to wait, over all iterations so far, with
        advice.
        """
        return diagnose(self._meter, [stage.figures() for stage in self.stages()])

    # -- chains -----------------------------------------------------------------------------------

    def map(
        self,
        function: Callable[..., Any],
        workers: int = 0,
        *,
        each: str = "sample",
        seed: int = 0,
        errors: str = "raise",
        prefetch: int = 2,
        time_limit: float | None = None,
        start: str = "spawn",
    ) -> MapSequence:
        """Apply a function; see :class:`~nnpipe.training.sequences.map.MapSequence`."""
        from nnpipe.training.sequences.map import MapSequence

        return MapSequence(
            self,
            function,
            workers=workers,
            each=each,
            seed=seed,
            errors=errors,
            prefetch=prefetch,
            time_limit=time_limit,
            start=start,
        )

    def batch(self, number: int) -> Grouped:
        """Join each ``number`` batches into one; fields that cannot be joined to arrays become
        lists.
        """
        from nnpipe.training.sequences.regroup import Grouped

        return Grouped(self, number)

    def rebatch(self, samples: int, *, drop_last: bool = False) -> Rebatched:
        """Return batches of exactly ``samples`` samples, except for the last one."""
        from nnpipe.training.sequences.regroup import Rebatched

        return Rebatched(self, samples, drop_last=drop_last)

    def sub_batch(self, samples: int) -> SubBatched:
        """Cut each batch into parts of at most ``samples`` samples."""
        from nnpipe.training.sequences.regroup import SubBatched

        return SubBatched(self, samples)

    def max_samples(self, samples: int) -> MaxSamples:
        """End each epoch after ``samples`` samples."""
        from nnpipe.training.sequences.regroup import MaxSamples

        return MaxSamples(self, samples)

    def collate(
        self,
        function: Callable[[Batch], Batch] | None = None,
        *,
        pad: float | None = None,
        tensors: bool = False,
    ) -> CollateSequence:
        """Join lists to arrays; see :class:`~nnpipe.training.sequences.regroup.CollateSequence`."""
        from nnpipe.training.sequences.regroup import CollateSequence

        return CollateSequence(self, function, pad=pad, tensors=tensors)

    def reservoir(
        self,
        size: int,
        batch: int,
        *,
        batches: int | None = None,
        fill: int | None = None,
        seed: int = 0,
    ) -> ReservoirSequence:
        """Draw from a reservoir; see
        :class:`~nnpipe.training.sequences.reservoir.ReservoirSequence`.
        """
        from nnpipe.training.sequences.reservoir import ReservoirSequence

        return ReservoirSequence(self, size, batch, batches=batches, fill=fill, seed=seed)


def require_positive(name: str, value: int) -> int:
    """Return a whole number of at least 1, or raise :class:`ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, not {value!r}")
    return value
