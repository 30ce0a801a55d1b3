"""Candidates of a comparison that are much slower than the best float one of the same model on the same device."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.core.artifact import SLOW_PARTS
from nnpipe.measuring.doubt import Doubt
from nnpipe.measuring.run import Run

TIMES = 3.0
"""How many times the median of the best float candidate a candidate may take without a doubt."""

_FLOATS = ("float", "float16", "bfloat16", "pruned", "clustered", "fine-tuned")


def slow_doubts(runs: Sequence[Run]) -> Mapping[str, Doubt]:
    """Return a doubt, by title, for each candidate slower than :data:`TIMES` the best float one on its device.

    It names the cause: the run's handicaps, what its compiler knows to take long, or that it is not compiled; or says
    that no cause is known.
    """
    medians = {run.title: median for run in runs if (median := _median(run)) is not None}
    best: dict[str, Run] = {}
    for run in runs:
        if run.title in medians and all(claim in _FLOATS for claim in _claims(run.artifact)):
            known = best.setdefault(_model(run), run)
            if medians[run.title] < medians[known.title]:
                best[_model(run)] = run
    found: dict[str, Doubt] = {}
    for run in runs:
        fastest = best.get(_model(run))
        if fastest is None or run.title not in medians:
            continue
        ratio = medians[run.title] / medians[fastest.title]
        if ratio > TIMES:
            causes = ", ".join(_causes(run)) or "no cause is known"
            found[run.title] = Doubt("slow", f"{ratio:.1f} times slower than {fastest.title!r} in floats: {causes}")
    return found


def _causes(run: Run) -> Iterator[str]:
    settings = run.timing.get("settings")
    yield from map(str, settings if isinstance(settings, list) else ())
    outcome = run.artifact.get("outcome") if isinstance(run.artifact, Mapping) else None
    parts = outcome.get(SLOW_PARTS) if isinstance(outcome, Mapping) else None
    yield from map(str, parts if isinstance(parts, list) else ())
    if "runtime" not in run.components and "protocol" not in run.components:
        yield "it runs uncompiled, in its own framework"


def _median(run: Run) -> float | None:
    inference = run.series.get("inference")
    if inference is None or not len(inference):
        return None
    median = float(np.median(inference["latency_ns"]))
    return median if median > 0 else None


def _model(run: Run) -> str:
    """Return a run's model and device, as text."""
    roles = [run.components.get(role) for role in ("wrapper", "protocol")]
    return json.dumps(roles, sort_keys=True, default=str)


def _claims(artifact: Any) -> Iterator[str]:
    """Yield the claims of a model and of those it was made from."""
    while isinstance(artifact, Mapping):
        claims = artifact.get("claims")
        yield from map(str, claims if isinstance(claims, (list, tuple)) else ())
        artifact = artifact.get("parent")
