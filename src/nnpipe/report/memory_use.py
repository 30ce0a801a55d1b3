"""The memory that a runtime takes for a model, in words and as a picture, beside what its values need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nnpipe.report.charts import Line, Lines
from nnpipe.report.drawing.downsampling import thinned
from nnpipe.report.formatting import Scale, size

_LEAST = 1 << 20  # bytes below which pages of the system hide a difference
_NEAR = 0.2


@dataclass(frozen=True)
class MemoryUse:
    """Memory of a process that loads and runs a model, beyond what its framework takes.

    Parameters
    ----------
    file_bytes
        The size of the model's files.
    loaded_bytes
        What loading adds.
    peak_bytes
        The peak of what runs add to that; ``None`` if the system does not tell a peak.
    """

    file_bytes: int
    loaded_bytes: int
    peak_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MemoryUse:
        """Make the object from the output of :meth:`to_json`; raise ``ValueError`` if a figure is no size."""
        found = cls(**{name: data[name] for name in ("file_bytes", "loaded_bytes", "peak_bytes")})
        for value in (found.file_bytes, found.loaded_bytes, 0 if found.peak_bytes is None else found.peak_bytes):
            if type(value) is not int or not 0 <= value < 1 << 62:
                raise ValueError("memory is told in bytes")
        return found

    def sentences(self, live: int | None) -> list[str]:
        """Return the figures beside what lives at once by the graph, in bytes, and why they differ."""
        told = (
            f"memory, measured in a process of its own: loading takes {size(self.loaded_bytes)}, for files of "
            f"{size(self.file_bytes)}{self._why_loaded()}"
        )
        if self.peak_bytes is None:
            return [f"{told}; this system tells no peak while a model runs"]
        beside = "" if live is None else f", where {size(live)} live at once by the graph{self._why_peak(live)}"
        return [told, f"memory while it runs: {size(self.peak_bytes)} more at the peak{beside}"]

    def _why_loaded(self) -> str:
        if max(self.loaded_bytes, self.file_bytes) < _LEAST:
            return ""
        if self.loaded_bytes > (1 + _NEAR) * self.file_bytes:
            return ": weights are copied into the layout of the kernels, or the memory for values is taken already"
        if self.loaded_bytes < (1 - _NEAR) * self.file_bytes:
            return ": weights stay in the mapped file until they are read, or are shared with it"
        return ""

    def _why_peak(self, live: int) -> str:
        peak = self.peak_bytes or 0
        if max(peak, live) < _LEAST:
            return "; both are too small to be told apart from the system's pages"
        if peak > (1 + _NEAR) * live:
            return ": an arena keeps more than lives at once, and kernels have buffers of their own"
        if peak < (1 - _NEAR) * live:
            return ": fused operations never store what passes between them, and memory from loading is used again"
        return ""


def memory_chart(live_bytes: Sequence[int], use: MemoryUse | None) -> Lines | None:
    """Return the live memory by operation beside the measured peak; ``None`` if the sizes are not known."""
    if not live_bytes:
        return None
    live = np.array(live_bytes, np.float64)
    peak = None if use is None else use.peak_bytes
    scale = Scale.of_sizes([float(live.max()), peak])
    x = np.arange(1.0, len(live) + 1)
    lines = [thinned("values that live at once", x, live / scale.divisor)]
    if peak is not None:
        lines.append(Line("measured peak while it runs", x[[0, -1]], np.full(2, peak / scale.divisor)))
    return Lines("operation", f"memory, {scale.unit}", tuple(lines))
