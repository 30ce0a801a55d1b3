"""The certificate of a chosen candidate: its measurements, their conditions and their confidence.

It contains everything for an independent check: the artifact's SHA-256, the
numbers of the test samples, each claim with its interval, and the machine.
``nnpipe`` is not needed to read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.files import sha256_of
from nnpipe.core.secret import shown_settings
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantities import Quantity
from nnpipe.measuring.run import Run
from nnpipe.workflows.sweep.budget import Spent
from nnpipe.workflows.sweep.confirm import Confirmed
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Point
from nnpipe.workflows.sweep.select import Claim, Judged, level_of
from nnpipe.workflows.sweep.summary import figure_json, target_facts

SCHEMA = 1


def certificate(
    sweep: Sweep,
    chosen: Judged,
    found: Confirmed,
    level: Sequence[str],
    samples: np.ndarray,
    spent: Spent | None = None,
) -> dict[str, Any]:
    """Return the certificate, as JSON can hold it.

    Parameters
    ----------
    sweep
        The sweep.
    chosen
        The chosen candidate, with its first measurement.
    found
        Its second measurement, after it was chosen.  All claims are based on this one, so their figures are not
        the luckiest of many; the first figures are also listed.
    level
        Titles of candidates that do not differ significantly from it in the metric ``choose``.
    samples
        Numbers of the test samples in the data set, ``(n,)``.
    spent
        What a sweep with a budget measured.
    """
    confirmation, artifact = found.run, chosen.done.artifact
    path = artifact if artifact is not None else chosen.done.point.model.path
    point = chosen.done.point
    return {
        "schema": SCHEMA,
        "kind": "nnpipe certificate",
        "title": chosen.title,
        "artifact": {
            "path": _relative(path, sweep.output),
            "bytes": path.stat().st_size,
            "sha256": sha256_of(path),
            "format": confirmation.artifact.get("format", point.model.wrapper.weights_format),
        },
        "model": shown_settings(point.model.wrapper.describe()),
        "compilers": [shown_settings(compiler.describe()) for compiler in point.compilers],
        "runtime": shown_settings(point.runtime.describe()) if point.runtime else None,
        "batch_size": point.measure.inference_batch_size,
        **_device(point, confirmation),
        "dataset": {**shown_settings(sweep.dataset.describe()), "split": "test", "samples": samples.tolist()},
        "confidence": sweep.confidence,
        "confidence_of_each": level_of(sweep),
        "claims": [_claim(claim) for claim in found.claims],
        "figures": [_figure(each, found.figures[each.name], chosen.figures[each.name]) for each in sweep.metrics],
        "right": _right(confirmation),
        "right_as_trained": _right(chosen.reference),
        "chosen_by": sweep.choose.name,
        **({"budget": spent.to_json()} if spent else {}),
        "cannot_be_told_from": list(level),
        "front_share": chosen.front_share,
        "verification": dict(confirmation.verification),
        "doubts": [{"kind": doubt.kind, "reason": doubt.reason} for doubt in found.doubts],
        "host": {key: value for key, value in confirmation.host.items() if key not in ("before", "after")},
        "frameworks": dict(confirmation.frameworks),
        "measured": confirmation.created,
        "command": list(confirmation.command),
    }


def _device(point: Point, run: Run) -> dict[str, Any]:
    """Return the device of a chosen candidate, with what the machine told about itself when it was measured again."""
    if point.device is None:
        return {}
    return {"device": {**shown_settings(point.device.to_json()), "facts": target_facts([run])}}


def _claim(claim: Claim) -> dict[str, Any]:
    metric, known = claim.constraint.metric, claim.figure
    return {
        "constraint": claim.constraint.text,
        "metric": metric.name,
        "bound": claim.constraint.bound,
        "at_most": claim.constraint.at_most,
        "value": known.value,
        "low": known.low,
        "high": known.high,
        "unit": metric.unit,
        "count": known.count,
        "holds": claim.holds,
    }


def _figure(metric: Quantity, known: Figure, first: Figure) -> dict[str, Any]:
    told = {"metric": metric.name, "title": metric.title, "meaning": metric.meaning, "unit": metric.unit}
    return {**told, **figure_json(known), "when_chosen": figure_json(first)}


def _right(run: Run | None) -> int | None:
    if run is None or run.evaluation is None or "truth" not in run.evaluation.arrays:
        return None
    return int(np.count_nonzero(run.evaluation.arrays["truth"] == run.evaluation.arrays["predicted"]))


def _relative(path: Path, folder: Path) -> str:
    try:
        return str(path.resolve().relative_to(folder.resolve()))
    except ValueError:
        return str(path.resolve())
