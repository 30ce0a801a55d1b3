"""The memory that a runtime takes for a model, measured in a process of its own, beside what its values need."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from nnpipe.analysis.operation_costs import GraphCost
from nnpipe.core.artifact import Artifact
from nnpipe.core.graph_sizes import Shapes, random_inputs
from nnpipe.core.registry import component_from
from nnpipe.core.runtime import Runtime
from nnpipe.report.charts import Line, Lines
from nnpipe.report.formatting import Scale, size
from nnpipe.workflows.candidates.model_files import artifact_of, format_of, model_size
from nnpipe.workflows.isolation.subprocess_worker import Worker

_RUNS = 5
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

    def sentences(self, cost: GraphCost) -> list[str]:
        """Return the figures beside those that follow from the graph, and why they differ."""
        told = (
            f"memory, measured in a process of its own: loading takes {size(self.loaded_bytes)}, for files of "
            f"{size(self.file_bytes)}{self._why_loaded()}"
        )
        if self.peak_bytes is None:
            return [f"{told}; this system tells no peak while a model runs"]
        live = None if cost.peak is None else cost.peak.live_bytes
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


def memory_use(path: Path, runtime: Runtime, shapes: Shapes) -> MemoryUse:
    """Return the memory that a runtime takes for a file, on random inputs.

    Raises
    ------
    NNPipeError
        If the model does not run.
    """
    request = {
        "runtime": runtime.describe(),
        "path": str(path),
        "shapes": {name: list(shape) for name, shape in shapes.items()},
    }
    with Worker(f"{__name__}:measure_here") as worker:
        return MemoryUse(**worker.attempt("measuring the memory", request, 0.0))


def memory_chart(cost: GraphCost, use: MemoryUse | None) -> Lines | None:
    """Return the live memory by operation beside the measured peak; ``None`` if a size is not known."""
    if cost.peak is None:
        return None
    live = np.array([each.live_bytes or 0 for each in cost.operations], np.float64)
    peak = None if use is None else use.peak_bytes
    scale = Scale.of_sizes([float(live.max()), peak])
    x = np.arange(1.0, len(live) + 1)
    lines = [Line("values that live at once", x, live / scale.divisor)]
    if peak is not None:
        lines.append(Line("measured peak while it runs", x, np.full(len(live), peak / scale.divisor)))
    return Lines("operation", f"memory, {scale.unit}", tuple(lines))


# -- in the subprocess -----------------------------------------------------------------------------


def measure_here(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the memory of a request's model as JSON, measured in this process."""
    runtime: Runtime = component_from(request["runtime"], Runtime)
    path = Path(request["path"])
    runtime.import_framework()
    artifact: Artifact = artifact_of(path, format_of(path), runtime)
    before = psutil.Process().memory_info().rss
    with runtime.load(artifact) as session:
        shapes = {name: tuple(shape) for name, shape in request["shapes"].items()}
        batch = random_inputs(session.io, shapes)
        loaded = psutil.Process().memory_info().rss
        resets = _reset_peak()
        for _ in range(_RUNS):
            session.infer(batch)
        peak = _peak() if resets else None
    return {
        "file_bytes": model_size(artifact),
        "loaded_bytes": max(loaded - before, 0),
        "peak_bytes": None if peak is None else max(peak - loaded, 0),
    }


def _reset_peak() -> bool:
    """Let Linux begin anew to look for the process's peak; return whether it does."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        return True
    return False


def _peak() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return None
