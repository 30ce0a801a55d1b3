"""The memory that a runtime takes for a model, measured in a process of its own, beside what its values need."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from nnpipe.core.artifact import Artifact
from nnpipe.core.graph_sizes import Shapes, random_inputs
from nnpipe.core.registry import component_from
from nnpipe.core.runtime import Runtime
from nnpipe.modelwrappers.files.file_formats import format_of
from nnpipe.report.memory_use import MemoryUse
from nnpipe.workflows.candidates.model_files import artifact_of, model_size
from nnpipe.workflows.isolation.subprocess_worker import Worker

_RUNS = 5


def memory_use(path: Path, runtime: Runtime, shapes: Shapes, seconds: float = 0.0) -> MemoryUse:
    """Return the memory that a runtime takes for a file, on random inputs, within ``seconds``; 0 for no limit.

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
        return MemoryUse(**worker.attempt("measuring the memory", request, seconds))


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
        size = model_size(artifact, session.stats())
    return {
        "file_bytes": artifact.size if size is None else size,
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
