"""Writing event files for TensorBoard."""

from __future__ import annotations

import importlib.util
import os
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from nnpipe.core.errors import MissingDependency
from nnpipe.experiment.readers._crc32c import masked_crc32c


def check_installed(what: str) -> None:
    """Raise :class:`MissingDependency` if the package for event files is not installed."""
    if importlib.util.find_spec("tensorboardX") is None:
        raise MissingDependency(f"{what} needs tensorboardX, which is not installed: pip install tensorboardX")


class EventFile:
    """A file of events: a TFRecord of ``tensorflow.Event``, whose name must contain ``tfevents``.

    It belongs to one thread; events are on the disk after :meth:`flush`.

    Parameters
    ----------
    path
        The file; missing folders are created.
    size
        The number of bytes of an existing file to keep; new events follow them.  By default the file is new.

    Raises
    ------
    MissingDependency
        If tensorboardX is not installed.  Only its messages are used: its writers can neither continue a file
        nor choose its name.
    OSError
        If the file cannot be written.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        check_installed("TensorBoard's format")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("r+b" if size else "wb")
        if size:
            self._file.truncate(size)
            self._file.seek(size)
        else:
            self._write(_event(file_version="brain.Event:2"))

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._file.tell()

    def scalar(self, tag: str, value: float, step: int, when: float) -> None:
        """Add a number."""
        from tensorboardX.summary import scalar

        self._write(_event(summary=scalar(tag, value), step=step, wall_time=when))

    def text(self, tag: str, text: str, step: int, when: float) -> None:
        """Add a text in Markdown."""
        from tensorboardX.summary import text as summary

        self._write(_event(summary=summary(tag, text), step=step, wall_time=when))

    def histogram(self, tag: str, edges: Sequence[float], counts: Sequence[int], step: int, when: float) -> None:
        """Add a histogram; ascending edges ``(n + 1,)``, counts ``(n,)``.  Sums are computed from the bins' centres."""
        from tensorboardX.summary import histogram_raw

        middles = [(low + high) / 2 for low, high in pairwise(edges)]
        pairs = list(zip(middles, counts, strict=True))
        # The format has upper edges only: an empty bin gives the lowest edge.
        summary = histogram_raw(
            tag, edges[0], edges[-1], sum(counts), sum(m * n for m, n in pairs), sum(m * m * n for m, n in pairs),
            list(edges), [0, *counts],
        )  # fmt: skip
        self._write(_event(summary=summary, step=step, wall_time=when))

    def picture(self, tag: str, png: bytes, step: int, when: float) -> None:
        """Add a picture: the content of a PNG file."""
        from tensorboardX.proto.summary_pb2 import Summary

        width, height = struct.unpack(">II", png[16:24])
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
        summary = Summary(value=[Summary.Value(tag=tag, image=image)])
        self._write(_event(summary=summary, step=step, wall_time=when))

    def graph(self, definition: bytes, when: float) -> None:
        """Add the graph of a model: a serialised ``GraphDef``, of which TensorBoard shows the last."""
        self._write(_event(graph_def=definition, wall_time=when))

    def _write(self, event: Any) -> None:
        data = event.SerializeToString()
        head = struct.pack("<Q", len(data))
        self._file.write(head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data)))

    def flush(self) -> None:
        """Write all events to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write all events to the disk, and close the file."""
        if not self._file.closed:
            self.flush()
            self._file.close()


def _event(**fields: Any) -> Any:
    from tensorboardX.proto.event_pb2 import Event

    return Event(**fields)
