"""How near the time of a :class:`~nnpipe.modelwrappers.files.mimic.Mimic` is to that of its
original.

The networks of ``prediction.py``, all with random weights, take turns with their mimics in ONNX
Runtime, one thread. Each start loads both anew, since a model that was placed badly in memory stays
slow; the ratio of the two is the centre over the starts, with its interval (95 %).

The goal: the median over the networks is at most 5 % from the original, and nine in ten are at most
15 % from it.

Run ``python benchmarks/mimic.py``: about four minutes, three of them to export the networks from
PyTorch; with ``--folder`` their files are kept.  ``--quick`` takes six of them, and fewer starts.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _table import EPYC, interleave, report
from _unseen_networks import NETWORKS, QUICK, written

import nnpipe as nnp
from nnpipe.core.registry import find
from nnpipe.core.session import measure_runs
from nnpipe.core.tensors import generate_random_batch
from nnpipe.measuring.paired_comparison import compute_centre
from nnpipe.modelwrappers.files.mimic import Mimic
from nnpipe.workflows.candidates.model_files import read_artifact

MOST_USUAL, MOST_OFTEN = 0.05, 0.15
STARTS, QUICK_STARTS, ROUNDS, BLOCK_SECONDS = 9, 6, 11, 0.01


def ratio(original: Path, mimic: Path, runtime: Any, seed: int) -> float:
    """Return the time of a mimic relative to its original in one start: the median over rounds."""
    with contextlib.ExitStack() as opened:
        calls, runs = {}, {}
        for name, path in (("original", original), ("mimic", mimic)):
            session: Any = opened.enter_context(runtime.load(read_artifact(path, "onnx", runtime)))
            session.put(generate_random_batch(session.io, 1))
            runs[name] = int(np.clip(1e9 * BLOCK_SECONDS / measure_runs(session, 5).min(), 1, 1000))
            calls[name] = partial(measure_runs, session, runs[name])
        seconds = interleave(calls, ROUNDS, seed)
    each = {name: np.array(found) / runs[name] for name, found in seconds.items()}
    return float(np.median(each["mimic"] / each["original"]))


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, help="where to keep the networks")
    options = parser.parse_args(argv)
    runtime: Any = find("ONNXRuntime", nnp.Runtime).from_json({})
    starts = QUICK_STARTS if options.quick else STARTS
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, path in written(
            options.folder or Path(temporary), tuple(QUICK if options.quick else NETWORKS)
        ):
            mimic = Path(temporary) / f"{name}-mimic.onnx"
            with Mimic(original=path).open() as live:
                live.export(mimic, "onnx")
            found = compute_centre(
                np.log([ratio(path, mimic, runtime, start) for start in range(starts)]), 0.95
            )
            low, high = np.exp(found.interval or (-np.inf, np.inf))
            rows.append(
                {
                    "network": name,
                    "mimic / original": float(np.exp(found.value)),
                    "low": low,
                    "high": high,
                }
            )
    off = [abs(row["mimic / original"] - 1) for row in rows]
    usual, often = float(np.median(off)), float(np.quantile(off, 0.9))
    parts = [
        {
            "name": "distance in nine of ten networks",
            "value": often,
            "unit": "",
            "reference": MOST_OFTEN,
            "ratio": often / MOST_OFTEN,
            "goal": "at most 15 %",
            "holds": often <= MOST_OFTEN,
            "seen_on": EPYC,
        },
    ]
    return report(
        rows,
        "usual distance of a mimic's time from its original's",
        usual,
        "",
        MOST_USUAL,
        usual / MOST_USUAL,
        "at most 5 %, and 15 % in nine of ten networks",
        usual <= MOST_USUAL and often <= MOST_OFTEN,
        parts,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
