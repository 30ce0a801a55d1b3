"""Times of the operators of an ExecuTorch program, from its dump of events (ETDump)."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.core.leases import temporary_folder
from nnpipe.core.operation_times import KernelTime
from nnpipe.frameworks.framework_output import hushed
from nnpipe.frameworks.recorded_calls import computed_by
from nnpipe.frameworks.xnnpack_names import xnnpack_operator

_RUNS, _OWN = "Execute", "native_call_"
_NANOSECONDS = 1e6  # in a millisecond, the unit of the dump


def recorded_operators(program: Any, runs: int) -> tuple[KernelTime, ...]:
    """Return the times of a program's operators in its last runs: those of delegates, and ExecuTorch's own.

    Parameters
    ----------
    program
        A program that was loaded with its dump enabled, and that has run.
    runs
        The number of runs that count; those before were to warm it up.
    """
    with hushed(), temporary_folder() as folder:
        from executorch.devtools import Inspector

        dump = str(folder / "events.etdp")
        program.write_etdump_result_to_file(dump, "")
        blocks = Inspector(etdump_path=dump).event_blocks
    events = [event for block in blocks if block.name == _RUNS for event in block.events]
    found: list[KernelTime] = []
    for event in events:
        own = event.name.startswith(_OWN)
        if (own or event.is_delegated_op) and event.perf_data is not None:
            times = np.maximum(np.array(event.perf_data.raw[-runs:], np.float64) * _NANOSECONDS, 0.0)
            found.append(_step(event.name, own, len(found), times))
    return tuple(found)


def _step(name: str, own: bool, place: int, times: np.ndarray) -> KernelTime:
    if own:
        operator = name.removeprefix(_OWN)
        return KernelTime(f"{operator} #{place}", operator, times, operator, computes=computed_by(operator))
    kernel = name.rpartition(" #")[0] or name
    operator, computed, precision = xnnpack_operator(kernel)
    return KernelTime(f"{operator} #{place}", operator, times, kernel, precision, computes=computed)
