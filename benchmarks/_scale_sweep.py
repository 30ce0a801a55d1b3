"""What sweeps cost as they grow: listing their points, and choosing among what was measured."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _growth import growth
from _table import EPYC

from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.scenarios import sweep
from nnpipe.workflows.journal import Outcome
from nnpipe.workflows.sweep import confirm
from nnpipe.workflows.sweep.file import CONFIRMATIONS, Sweep
from nnpipe.workflows.sweep.points import Point
from nnpipe.workflows.sweep.run import FinishedPoint
from nnpipe.workflows.sweep.select import evaluate_points, rank_candidates

_CALLS, _SAMPLES = 1000, 1000
_CLASSES = tuple("0123456789")


def parts(quick: bool) -> list[dict[str, Any]]:
    """Judge listing, choosing and confirming."""
    with tempfile.TemporaryDirectory() as folder:
        listed = [1_000, 10_000]
        found = [
            growth(
                f"sweep --dry-run, {what}",
                "CPU s",
                listed,
                [listing(made(n), Path(folder)) for n in listed],
                5,
                1.2,
                seen_on=EPYC,
            )
            for what, made in (("points", settings), ("models", separate))
        ]
        chosen, limit = ([250, 1_000], 10) if quick else ([1_000, 3_000], 40)
        found.append(
            growth(
                "choosing, candidates",
                "CPU s",
                chosen,
                [choosing(n) for n in chosen],
                limit,
                1.2,
                seen_on=EPYC,
            )
        )
        unlucky = [10, 100]
        again = [confirming(n, Path(folder)) for n in unlucky]
        found.append(
            growth(
                "measured again, unlucky candidates",
                "of them",
                unlucky,
                again,
                CONFIRMATIONS,
                seen_on=EPYC,
            )
        )
    return found


def settings(points: int) -> dict[str, Any]:
    """Return a sweep file of so many points; each entry stands alone, so that nothing is shared
    but the classes.
    """
    return {
        "dataset": "DigitsDataset",
        "models": [{"title": "CNN", "class": "PyTorchDigitsCNN", "path": "cnn.pt"}],
        "runtimes": [
            {"class": "ONNXRuntime", "arguments": {"num_threads": number}}
            for number in range(1, points)
        ],
        "constraints": ["latency_p90 <= 5 ms", "accuracy_loss <= 0.02"],
    }


def separate(points: int) -> dict[str, Any]:
    """Return a sweep file of so many points, each with a model of its own, whose class is named
    anew.
    """
    models = [
        {"title": f"CNN {n}", "class": "PyTorchDigitsCNN", "path": f"{n}.pt"} for n in range(points)
    ]
    return settings(2) | {"models": models, "as_trained": False, "constraints": []}


def listing(asked: dict[str, Any], folder: Path) -> float:
    """Return the CPU seconds of ``nnpipe sweep --dry-run`` of a sweep file's content."""
    points = len(asked["models"]) * (asked.get("as_trained", True) + len(asked["runtimes"]))
    path = folder / "sweep.json"
    path.write_text(json.dumps(asked), "utf-8")
    begin = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()) as told:
        status = sweep.main([str(path), "--dry-run"])
    seconds = time.process_time() - begin
    if status or f"{points} points, 0 impossible" not in told.getvalue():
        raise SystemExit(f"sweep --dry-run gave status {status}: {told.getvalue()[-300:]}")
    return seconds


def choosing(points: int) -> float:
    """Return the CPU seconds of judging candidates: figures with intervals, constraints, front
    and its shares.
    """
    asked = Sweep.from_settings(settings(points))
    asked = asked.with_task(asked.dataset.task)
    done = [
        FinishedPoint(point, str(number), Outcome(measured(point, number)), None)
        for number, point in enumerate(asked.points)
    ]
    begin = time.process_time()
    judged = evaluate_points(asked, done)
    seconds = time.process_time() - begin
    if len(judged) != points or not any(one.on_front for one in judged):
        raise SystemExit("no candidate is on the front")
    return seconds


def confirming(points: int, folder: Path) -> int:
    """Return how many candidates are measured again where each qualifies first, and none does
    the second time.
    """
    asked = Sweep.from_settings(
        settings(points) | {"output": str(folder / f"{points}"), "constraints": ["load <= 1 s"]}
    )
    asked = asked.with_task(asked.dataset.task)
    asked = replace(
        asked, points=tuple(replace(point, way=None, runtime=None) for point in asked.points)
    )
    done = [
        FinishedPoint(point, str(n), Outcome(measured(point, n)), None)
        for n, point in enumerate(asked.points)
    ]
    times = []

    def slower(*_: Any) -> Outcome:
        times.append(1)
        return Outcome(replace(measured(asked.points[0], 0), timing={"load_ns": 5e9}))

    plain = confirm.measure_point
    confirm.measure_point = slower
    try:
        found = confirm.remeasure_winner(
            asked, rank_candidates(asked, evaluate_points(asked, done)), ()
        )
    finally:
        confirm.measure_point = plain
    if found.chosen is not None or not all(found.refuted.values()):
        raise SystemExit("an unlucky candidate was chosen, or refused without a reason")
    return len(times)


def measured(point: Point, seed: int) -> Run:
    """Make up the measurement of a point."""
    rng = np.random.default_rng(seed)
    latency = (rng.uniform(1e6, 4e6) * rng.gamma(100, 0.01, _CALLS)).astype(np.int64)
    truth = np.arange(_SAMPLES) % 10
    predicted = np.where(rng.random(_SAMPLES) < rng.uniform(0.9, 0.99), truth, (truth + 1) % 10)
    columns = {
        "start_ns": np.cumsum(latency),
        "latency_ns": latency,
        "samples": np.ones(_CALLS, np.int64),
    }
    return Run(
        title=point.title,
        command=(),
        components={},
        frameworks={},
        host={},
        timing={"load_ns": 5},
        series={"inference": Series(columns)},
        artifact={"size": int(rng.integers(10_000, 1_000_000))} if point.runtime else {},
        evaluation=Evaluation("classification", {"truth": truth, "predicted": predicted}, _CLASSES),
    )
