"""Runs ``nnpipe sweep`` with measurements that come out alike every time, so that two sweeps can be
compared.

Started as a process by tests, which kill it: arguments are those of the command.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import NNPipeError
from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.scenarios import sweep
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.sweep import run as sweep_run


def measured_alike(
    candidate: CandidateSpec,
    dataset: Any,
    options: MeasureOptions,
    command: Sequence[str],
    output: Path,
    verification: Any = None,
    seconds: float = 0.0,
    worker: Any = None,
) -> Run:
    """Return a run that depends on the title alone, after a moment; one of the candidates fails.

    Where the environment says UNLUCKY, all are slow when they are measured again.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("half a result", "utf-8")
    time.sleep(0.03)
    if "(io_binding" in candidate.title and not candidate.compilers:
        raise NNPipeError("planted failure")
    rng = np.random.default_rng(list(candidate.title.encode()))
    slower = 1000 if "UNLUCKY" in os.environ and output.parent.name == "confirmations" else 1
    latency = (slower * rng.uniform(1e6, 4e6) * rng.gamma(100, 0.01, 400)).astype(np.int64)
    truth = np.arange(200) % 10
    predicted = np.where(rng.random(200) < 0.97, truth, (truth + 1) % 10)
    series = Series(
        {"start_ns": np.cumsum(latency), "latency_ns": latency, "samples": np.ones(400, np.int64)}
    )
    artifact = (
        {**candidate.artifact.to_json(), "size": candidate.artifact.size}
        if candidate.artifact
        else {}
    )
    return Run(
        title=candidate.title,
        command=(),
        components={},
        frameworks={},
        host={},
        timing={"load_ns": 5},
        series={"inference": series},
        artifact=artifact,
        evaluation=Evaluation(
            "classification", {"truth": truth, "predicted": predicted}, tuple("0123456789")
        ),
    )


if __name__ == "__main__":
    sweep_run.measure_apart = measured_alike
    sys.exit(sweep.main(sys.argv[1:]))
