"""What TensorFlow's profiler records of a block: events of all threads, read from its file (XPlane)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.errors import ConfigError, NotSupported
from nnpipe.core.leases import temporary_folder
from nnpipe.frameworks.keras import import_keras


@dataclass(frozen=True)
class TraceEvent:
    """An event of a thread.

    Parameters
    ----------
    name, kind
        What the profiler writes before and behind the last colon: an operation of a graph, and the kernel that ran,
        which may be that of a faster replacement.  Without a colon, the whole is the kind.
    start, length
        In picoseconds.
    thread
        A number for the thread.
    """

    name: str
    kind: str
    start: int
    length: int
    thread: int

    @property
    def end(self) -> int:
        """Return when it ended, in picoseconds."""
        return self.start + self.length


@contextmanager
def recorded_events() -> Iterator[list[TraceEvent]]:
    """Record what runs in the block; the list is filled when the block ends.

    Raises
    ------
    ConfigError
        If the profiler is in use already.
    NotSupported
        If this TensorFlow does not let its profiles be read.
    """
    tensorflow, _ = import_keras()
    profiler = tensorflow.profiler.experimental
    found: list[TraceEvent] = []
    with temporary_folder() as folder:
        try:
            profiler.start(str(folder))
        except tensorflow.errors.AlreadyExistsError:
            raise ConfigError("TensorFlow's profiler is in use already in this process; stop it first") from None
        try:
            yield found
        finally:
            profiler.stop()
        found += _events(folder)


def _events(folder: Path) -> Iterator[TraceEvent]:
    try:
        from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace
    except ImportError:
        raise NotSupported("this TensorFlow does not let its profiles be read; use version 2.19 to 2.21") from None
    for path in folder.rglob("*.xplane.pb"):
        space = XSpace()
        space.ParseFromString(path.read_bytes())
        for plane in space.planes:
            for thread, line in enumerate(plane.lines):
                for event in line.events:
                    name, _, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
                    start = line.timestamp_ns * 1000 + event.offset_ps
                    yield TraceEvent(name, kind, start, event.duration_ps, thread)


def outermost(events: Iterable[TraceEvent]) -> Iterator[TraceEvent]:
    """Yield the events that are not inside another event of the same thread: a loop contains its body."""
    ends: dict[int, int] = {}
    for event in sorted(events, key=lambda event: (event.start, -event.length)):
        if event.start >= ends.get(event.thread, 0):
            ends[event.thread] = event.end
            yield event
