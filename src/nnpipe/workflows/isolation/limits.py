"""Opening files that others made: in a subprocess that may take only so much time and memory.

The frameworks that open them are native code: a damaged or hostile file of a few
hundred bytes can crash them, or let them compute without end.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.component import Component
from nnpipe.core.errors import ArtifactError
from nnpipe.measuring.benchmark import import_frameworks
from nnpipe.workflows.isolation.subprocess_worker import (
    UnexpectedError,
    Worker,
    WorkerDied,
    WorkerTimeout,
)

_SECONDS, _BYTES_PER_SECOND = 12, 1 << 20
_MEMORY, _TIMES_AS_MUCH = 768 << 20, 10
_CAUSE = "it may be damaged, or made to do harm"
_PATIENCE = 5  # times the processor's time that may pass on the clock, on a busy machine


def call_limited(function: str, path: Path, request: Mapping[str, Any], size: int) -> Any:
    """Return what a function, ``"module:function"``, finds in a file, in a process with limits.

    Parameters
    ----------
    function
        The function; it calls :func:`limit_process` before it opens the file.
    path
        The file, for messages.
    request
        What the function takes.
    size
        The bytes of the file with those beside it; larger ones may take longer and need more.

    Raises
    ------
    ArtifactError
        If opening the file crashes the process, or takes more time or memory than it should.
    NNPipeError
        If the function raises it.
    """
    seconds = _compute_time_limit(size)
    try:
        with Worker(function) as worker:
            return worker.call({**request, "size": size}, _PATIENCE * seconds)
    except UnexpectedError as error:
        if not error.brief.startswith("MemoryError"):
            raise
        raise ArtifactError(
            f"{path}: opening it takes more memory than its size explains; {_CAUSE}"
        ) from None
    except WorkerDied as error:
        late = isinstance(error, WorkerTimeout) or "SIGXCPU" in str(error)
        why = f"takes more than {seconds} s" if late else str(error)
        raise ArtifactError(f"{path}: opening it {why}; {_CAUSE}") from None


def _compute_time_limit(size: int) -> int:
    return _SECONDS + size // _BYTES_PER_SECOND


# -- in the subprocess -----------------------------------------------------------------------------


def limit_process(size: int, component: Component) -> None:
    """Limit the time and memory that this process may take from here on, with the component's
    framework imported.

    Parameters
    ----------
    size
        The bytes of the file that is to be opened.
    component
        What opens it.
    """
    import_frameworks(component)
    # elsewhere memory is counted in other ways, and the time on the clock has to do
    if sys.platform != "linux":
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + _compute_time_limit(size)
    own = {
        line.split(":")[0]: line.split()
        for line in Path("/proc/self/status").read_text("ascii").splitlines()
    }
    most = int(own["VmData"][1]) * 1024 + _MEMORY + _TIMES_AS_MUCH * size
    for limit, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_DATA, most),
        (resource.RLIMIT_CORE, 0),  # a crash that was reckoned with leaves no dump
    ):
        highest = resource.getrlimit(limit)[1]
        lower = value if highest == resource.RLIM_INFINITY else min(value, highest)
        resource.setrlimit(limit, (lower, highest))
