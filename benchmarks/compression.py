"""How far a search compresses ResNet8 of MLPerf Tiny, at a loss of accuracy that is proven to be at
most 0.01.

The search stores each layer's weights in a form of its own (``compress:`` in a file of ``nnpipe
search``), and judges trials on training images.  The best are measured on the 500 images of the
test split, beside the model as trained and with 8 bits everywhere.

The goal: the file that is chosen is smaller than ResNet8 in 8 bits, both that of
``ONNXStaticQuantizer`` and that of MLPerf Tiny itself; the whole paired interval of its loss
against the model as trained is at most 0.01; and the search takes at most ten minutes.

Run ``python benchmarks/compression.py --data ../shared/data``: a folder with ``cifar10`` and
``models/mlperf_tiny_ic``. ``--quick`` carries out 12 trials instead of 40.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _table import DATA, EPYC, at_most, existing, report

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.workflows.search.result import TrialTable
from nnpipe.workflows.search.run_file import read_search, run_search

SEEN_ON = EPYC
ALLOWED, MOST_SECONDS = 0.01, 600.0
TRIALS, QUICK_TRIALS = 40, 12


def settings(data: Path, output: Path, trials: int) -> dict[str, Any]:
    """Return the content of the search file."""
    model = data / "models" / "mlperf_tiny_ic" / "pretrainedResnet.h5"
    return {
        "title": "ResNet8, compressed",
        "compress": {
            "title": "ResNet8",
            "class": "KerasModel",
            "arguments": {"model_path": model, "scale": 1},
        },
        "dataset": {
            "class": "CIFAR10Dataset",
            "arguments": {"dataset_root": str(data / "cifar10")},
        },
        # with integers, rounding moves more predictions than 500 images can prove harmless
        "activations": ["float"],
        "objectives": ["size"],
        "constraints": [f"loss(accuracy) <= {ALLOWED}"],
        "search_samples": 1500,
        "trials": trials,
        "output": output,
    }


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--quick", action="store_true", help=f"carry out {QUICK_TRIALS} trials")
    options = parser.parse_args(argv)
    existing(options.data)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        given = settings(
            options.data.absolute(), Path(folder), QUICK_TRIALS if options.quick else TRIALS
        )
        search = read_search(given)
        table = TrialTable(search.space, search.objectives)
        print(table.head)
        with RunDatabase(f"sqlite:///{folder}/runs.sqlite") as database:
            found = run_search(
                search, database, watch=lambda trial: print(table.line(trial), flush=True)
            )
        seconds = time.perf_counter() - begin
        print(found)
        final = found.final
        chosen = None if final is None else final.confirmed.chosen
        if final is None or chosen is None:
            goal = "a candidate qualifies"
            return report(
                [], "bytes of ResNet8", None, "bytes", None, None, goal, False, seen_on=SEEN_ON
            )
        figures = {each.title: each.figures for each in final.judged}
        size = float(chosen.figures["size"].value or 0)
        (claim,) = final.confirmed.claims
    ours = float(figures["8 bits everywhere"]["size"].value or 0)
    theirs = (
        (options.data / "models" / "mlperf_tiny_ic" / "pretrainedResnet_quant.tflite")
        .stat()
        .st_size
    )
    reference = min(ours, theirs)
    rows = [
        {
            "file": "chosen",
            "bytes": size,
            "loss": claim.figure.value,
            "low": claim.figure.low,
            "high": claim.figure.high,
        },
        {"file": "8 bits, ONNXStaticQuantizer", "bytes": ours},
        {"file": "8 bits, MLPerf Tiny", "bytes": theirs},
    ]
    reference = min(ours, theirs)
    goals = [
        at_most("bytes", size, reference, size < reference, SEEN_ON),
        at_most("upper end of the loss", claim.figure.high, ALLOWED, claim.holds is True, SEEN_ON),
        at_most("seconds", seconds, MOST_SECONDS, seconds <= MOST_SECONDS, SEEN_ON),
    ]
    return report(
        rows,
        "bytes of ResNet8 / those in 8 bits",
        size,
        "bytes",
        reference,
        size / reference,
        f"smaller, at a loss of at most {ALLOWED:.0%} by a paired interval, in at most "
        f"{MOST_SECONDS:.0f} s",
        all(each["holds"] for each in goals),
        goals,
        seen_on=SEEN_ON,
    )


if __name__ == "__main__":
    sys.exit(main())
