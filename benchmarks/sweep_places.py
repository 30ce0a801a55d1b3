"""A sweep over four places: this machine and three that are reached by ssh; each point is measured
once.

The points are cheap: a tiny network in ONNX Runtime with many batch sizes.  What is to be done is
in PostgreSQL, models and results pass through a storage, and the workers measure one at a time,
since all places are on one machine.

    python benchmarks/sweep_places.py [--quick] [--points 1000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from _postgresql import postgresql
from _ssh_machines import ssh_machines
from _table import EPYC, report, skip

import nnpipe
from nnpipe.datasets.arrays import write_arrays
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.testing.model_files import write_onnx_classifier


def settings(folder: Path, points: int) -> dict[str, Any]:
    """Return a sweep of so many points."""
    labels = np.arange(60) % 4
    samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    model = write_onnx_classifier(folder / "model.onnx", samples, labels)
    return {
        "title": "places",
        "output": str(folder / "out"),
        "dataset": write_arrays(folder / "data", {"image": samples}, labels).describe(),
        "models": [
            {
                "title": "m",
                "class": "ONNXModel",
                "arguments": {"model_path": str(model), "scale": 1},
            }
        ],
        "runtimes": ["ONNXRuntime"],
        "as_trained": False,
        "threads": [1, 2],
        "batch_sizes": list(range(1, points // 2 + 1)),
        "verify": {"verify_samples": 0},
        "measure": {"measure_seconds": 0.01, "measure_samples": 4},
        "choose": "latency_median",
        "objectives": ["latency_median", "size"],
        "confirmations": 1,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="24 points")
    parser.add_argument("--points", type=int, default=1000, help="how many points (default: 1000)")
    options = parser.parse_args()
    points = 24 if options.quick else options.points
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nnpipe-places-") as where, postgresql() as address:
        if address is None:
            skip("PostgreSQL is not installed")
        folder = Path(where)
        (folder / "sweep.json").write_text(json.dumps(settings(folder, points)), "utf-8")
        with ssh_machines(folder / "machines", 3) as machines:
            source = str(Path(nnpipe.__file__).parents[1])
            told = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "nnpipe",
                    "sweep",
                    "sweep.json",
                    "--database",
                    address,
                    "--storage",
                    str(folder / "storage"),
                    "--python",
                    sys.executable,
                    "--env",
                    f"PYTHONPATH={source}",
                    "--on",
                    "here",
                    *(word for machine in machines for word in ("--on", machine)),
                ],
                cwd=folder,
                capture_output=True,
                text=True,
                env=os.environ,
                check=False,
            )
        with RunDatabase(address) as database:
            found = DatabaseTrials(database, "places: points").trials()
        first = [trial for trial in found if "again" not in (trial.configuration or {})]
        times = Counter((trial.configuration or {})["point"] for trial in first)
        results = len(list((folder / "out" / "results").glob("*.json")))
        workers = Counter(trial.worker for trial in found)
        finished = sum(trial.state == "finished" and trial.fence == 1 for trial in first)
        row = {
            "points": points,
            "finished": finished,
            "twice": sum(count > 1 for count in times.values()),
            "results": results,
            "places": len(workers),
            "seconds": time.monotonic() - begin,
        }
    holds = (
        told.returncode == 0
        and (finished, row["twice"], results) == (points, 0, points)
        and len(workers) == 4
    )
    if not holds:
        print(told.stdout[-2000:], told.stderr[-4000:], file=sys.stderr)
    return report(
        [row],
        "a sweep over four places",
        float(finished),
        "points measured once",
        float(points),
        finished / points,
        "each point is measured once, and each place measures some",
        holds,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
