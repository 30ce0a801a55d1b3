"""A network for the worn digits of the demo that is at most half as large and takes at most half as
long.

``examples/digits.yaml`` ships one network in several ways; the smallest and the fastest files are
those of TensorFlow Lite.  ``examples/search_digits.yaml`` searches the channels of a network that
is trained with shifted images, and ships it in 8 bits without names inside.  The two files of the
demo and the one that the search chooses take turns in LiteRT, in blocks of calls.

The goal: the chosen file has at most half the bytes of the demo's smallest, takes at most half the
time of the demo's fastest, and its accuracy on the 719 test images is not provably worse than that
of the demo's most accurate: the paired interval of the loss reaches 0.

Run ``python benchmarks/halved_digits.py``: it trains the demo's network and ``--trials`` others,
with ``--quick`` one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from _table import EPYC, interleave, report

import nnpipe as nnp
from nnpipe.analysis.quality_intervals import compute_quality_difference
from nnpipe.core.registry import find
from nnpipe.core.task import get_task
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.settings import read_settings
from nnpipe.workflows.search.result import TrialTable
from nnpipe.workflows.search.run_file import read_search, run_search

EXAMPLES = Path(__file__).parent.parent / "examples"
KEPT = ("TFLite float32", "TFLite int8")
BLOCK, ROUNDS = 200, 100


def demo(folder: Path) -> nnp.PipelineResult:
    """Carry out the demo with its two files of TensorFlow Lite."""
    settings: dict[str, Any] = read_settings(EXAMPLES / "digits.yaml")
    settings["candidates"] = [each for each in settings["candidates"] if each["title"] in KEPT]
    settings["model"]["training"].pop("logdir")
    settings["model"]["path"] = str(folder / "demo" / "model.keras")
    return nnp.run_pipeline({**settings, "output": str(folder / "demo")})


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one trial")
    parser.add_argument("--trials", type=int, help="number of trials (8; quick: 1)")
    options = parser.parse_args(argv)
    trials = options.trials or (1 if options.quick else 8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shipped = demo(folder)
        search = read_search(
            EXAMPLES / "search_digits.yaml", [f"output={folder}/found", f"trials={trials}"]
        )
        table = TrialTable(search.space, search.objectives)
        print(table.head)
        with RunDatabase(f"sqlite:///{folder}/runs.sqlite") as database:
            found = run_search(
                search, database, watch=lambda trial: print(table.line(trial), flush=True)
            )
        print(found)
        final = found.final
        if final is None or final.confirmed.chosen is None or final.model is None:
            return report(
                [],
                "a found network",
                None,
                "",
                None,
                None,
                "a candidate qualifies",
                False,
                seen_on=EPYC,
            )
        paths = {
            title: folder / "demo" / f"{place:02d}-{title.lower().replace(' ', '-')}.tflite"
            for place, title in enumerate(KEPT, 1)
        }
        paths["chosen"] = final.model
        times = timed(paths)
        sizes = {title: path.stat().st_size for title, path in paths.items()}
        runs = {title: shipped.run_of(title).evaluation for title in KEPT} | {
            "chosen": final.confirmed.run.evaluation
        }
    accuracy = get_task(runs["chosen"].task).primary
    best = max(KEPT, key=lambda title: accuracy.compute(runs[title]))
    gap = compute_quality_difference(accuracy, runs["chosen"], runs[best])
    rows = [
        {
            "file": title,
            "bytes": sizes[title],
            "us": 1e6 * times[title],
            "accuracy": accuracy.compute(runs[title]),
        }
        for title in paths
    ]
    size = sizes["chosen"] / min(sizes[title] for title in KEPT)
    time = times["chosen"] / min(times[title] for title in KEPT)
    print(f"loss against {best}: {gap.value:.4f}, {gap.low:.4f} to {gap.high:.4f}")
    goals = [
        _goal("size", size, 0.5),
        _goal("time", time, 0.5),
        _goal("lower end of the loss", gap.low, 0.0),
    ]
    return report(
        rows,
        "size and time of a found network / the demo's best",
        max(size, time),
        "",
        1.0,
        max(size, time),
        "at most half of both, and no loss that is proven",
        all(each["holds"] for each in goals),
        goals,
        seen_on=EPYC,
    )


def timed(paths: dict[str, Path]) -> dict[str, float]:
    """Return the median time of a call in seconds; the files take turns in blocks of calls."""
    runtime = find("LiteRTRuntime", nnp.Runtime).from_json({})
    sessions = {title: runtime.load(nnp.Artifact.read(path)) for title, path in paths.items()}
    for session in sessions.values():
        spec = session.io.inputs[0]
        session.put({spec.name: np.zeros((1, *spec.shape[1:]), spec.dtype)})

    def block(session: nnp.InferenceSession) -> None:
        for _ in range(BLOCK):
            session.run()

    calls = {title: (lambda session=session: block(session)) for title, session in sessions.items()}
    found = interleave(calls, ROUNDS)
    for session in sessions.values():
        session.close()
    return {title: median(seconds) / BLOCK for title, seconds in found.items()}


def _goal(name: str, value: float, limit: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "unit": "",
        "reference": limit,
        "ratio": value,
        "goal": f"<= {limit:g}",
        "holds": bool(value <= limit),
        "seen_on": EPYC,
    }


if __name__ == "__main__":
    sys.exit(main())
