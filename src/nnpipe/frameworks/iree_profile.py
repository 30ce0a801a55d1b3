"""Times of the dispatches of an IREE module, from IREE's own tools: they run it in a process of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError
from nnpipe.core.leases import temporary_folder
from nnpipe.core.messages import one_line
from nnpipe.core.operation_times import OperationTimes
from nnpipe.frameworks.recorded_calls import RecordedCall, times_of_calls

_SECONDS = 600.0
_TYPE = re.compile(r"_((?:bf|f|i)\d+)(?:x[bfi]+\d+)*$")  # a dispatch's name ends with the types of its numbers
_TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i8": "int8", "i32": "int32"}
_EVENT, _DISPATCH, _WHOLE = "host_execution_event", "dispatch", "execute"


def record(
    content: bytes, function: str, inputs: Sequence[np.ndarray], driver: str, num_threads: int, warmup: int, runs: int,
    path: Path,
) -> OperationTimes:  # fmt: skip
    """Return the times of a module's dispatches; a run lasts from its first event to the first of the next run.

    Parameters
    ----------
    content, function
        The module and the function to call.
    inputs
        The function's arguments, in order.
    driver, num_threads
        The driver, and the threads that it may use; 0 leaves their number to IREE.
    warmup, runs
        The numbers of runs before those that count, and of those that count.
    path
        The file, for messages.

    Raises
    ------
    ArtifactError
        If IREE's tools cannot run it; the message names the file.
    """
    with temporary_folder() as folder:
        module, bundle = folder / "module.vmfb", folder / "times.ireeprof"
        module.write_bytes(content)
        given = []
        for place, array in enumerate(inputs):
            file = Path(folder, f"input{place}.npy")
            np.save(file, array)
            given.append(f"--input=@{file}")
        count = warmup + runs + 1  # the last run has no successor that tells its end
        threads = [] if driver == "local-sync" else [f"--task_topology_group_count={num_threads}"]
        _tool(
            "iree_benchmark_module", f"--module={module}", f"--device={driver}", *threads, f"--function={function}",
            *given, "--device_profiling_mode=host-execution", f"--device_profiling_output={bundle}",
            f"--benchmark_min_time={count}x", "--benchmark_format=json", path=path,
        )  # fmt: skip
        text = _tool("iree_profile", "export", "--format=ireeperf-jsonl", "--output=-", str(bundle), path=path)
    events = [event for line in text.splitlines() if (event := json.loads(line)).get("record_type") == _EVENT]
    events = [event for event in events if event["op"] != _WHOLE]
    if not events or len(events) % count:
        raise ArtifactError(f"{path}: IREE records other dispatches in each run, so their times cannot be compared")
    size = len(events) // count
    each = [events[place * size : (place + 1) * size] for place in range(warmup, count)]
    starts = np.array([run[0]["start_host_time_ns"] for run in each], np.float64)
    return times_of_calls([[_call(event) for event in run] for run in each[:-1]], np.diff(starts))


def _call(event: Mapping[str, Any]) -> RecordedCall:
    taken = float(event["end_host_time_ns"]) - float(event["start_host_time_ns"])
    if event["op"] != _DISPATCH:
        return RecordedCall("memory", str(event["op"]), taken)
    name = str(event["key"]).partition("_dispatch_")[2] or str(event["key"])
    first = _TYPE.search(name)
    return RecordedCall(str(event["key"]), name, taken, precision=_TYPES.get(first[1], "") if first else "")


def _tool(name: str, *arguments: str, path: Path) -> str:
    command = [sys.executable, "-m", f"iree._runtime.scripts.{name}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ArtifactError(f"{path}: IREE's profiler did not finish in {_SECONDS:.0f} s") from None
    if done.returncode:
        told = one_line(done.stderr.decode("utf-8", "replace"), 400)
        raise ArtifactError(f"{path}: IREE's profiler cannot run it: {told}")
    return done.stdout.decode("utf-8", "replace")
