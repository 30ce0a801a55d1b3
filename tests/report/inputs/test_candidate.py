"""What reports take from a run on a target: what its process took there, and how long loading
took there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.report.inputs.candidate import Candidate

CALLS = {
    "start_ns": np.arange(3) * 1000,
    "latency_ns": np.full(3, 900),
    "samples": np.ones(3, np.int64),
}


def resources(size: int) -> Series:
    return Series({"time_ns": np.array([0, 5]), "process_bytes": np.array([size, size - 1], float)})


@pytest.mark.parametrize(
    ("series", "components", "memory", "load"),
    [
        ({"resources": resources(100)}, {}, 100, 7),
        ({"resources": resources(100), "target": resources(30)}, {"protocol": {}}, 30, 5),
        ({"resources": resources(100)}, {"protocol": {}}, None, 5),
    ],
)
def test_memory_and_loading_are_those_of_the_process_that_runs_the_model(
    series: dict[str, Series], components: dict[str, Any], memory: float | None, load: float
) -> None:
    timing = {"load_ns": 7, "session": {"load_ns": 5}}
    run = Run("a", (), components, {}, {}, timing, {"inference": Series(CALLS), **series})
    found = Candidate.from_run(run)
    assert (found.peak_memory, found.load_ns) == (memory, load)
