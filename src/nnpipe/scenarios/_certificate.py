"""The certificate of a chosen candidate: what was measured, where, and how sure it is.

Everything an independent check needs stands in it: the artifact's SHA-256, the
test samples by number, each claim with its interval, the machine.  ``nnpipe`` is
not needed to read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError
from nnpipe.measure.benchmark import chosen_samples
from nnpipe.measure.constraints import Metric
from nnpipe.measure.diagnosis import diagnose
from nnpipe.measure.run import Run
from nnpipe.scenarios._choosing import Claim, Judged
from nnpipe.scenarios._figures import figure
from nnpipe.scenarios._sweepfile import Sweep

SCHEMA = 1
_UNITS = {"time": "s", "bytes": "B", "share": "", "rate": "1/s"}


def certificate(
    sweep: Sweep, chosen: Judged, confirmation: Run, claims: Sequence[Claim], level: Sequence[str], samples: np.ndarray
) -> dict[str, Any]:
    """Make the certificate.

    Parameters
    ----------
    sweep
        What was asked for.
    chosen
        The candidate, as it was judged.
    confirmation
        The run in which it was measured again after it had been chosen; the
        claims stand on this one, so its figures are not the luckiest of many.
    claims
        Each constraint, judged on the confirmation.
    level
        Candidates that cannot be told from it in the metric to choose by.
    samples
        ``(n,)`` numbers of the test samples in the data set.
    """
    artifact = chosen.done.artifact
    path = artifact if artifact is not None else chosen.done.point.model.path
    point = chosen.done.point
    objectives = {m.name: m for m in (*sweep.objectives, sweep.choose)}
    return {
        "schema": SCHEMA,
        "kind": "nnpipe certificate",
        "title": chosen.title,
        "artifact": {
            "path": _relative(path, sweep.output),
            "bytes": path.stat().st_size,
            "sha256": confirmation.artifact.get("sha256", ""),
            "format": confirmation.artifact.get("format", ""),
        },
        "model": point.model.wrapper.describe(),
        "compilers": [compiler.describe() for compiler in point.compilers],
        "runtime": point.runtime.describe() if point.runtime else None,
        "batch_size": point.measure.inference_batch_size,
        "dataset": {**sweep.dataset.describe(), "split": "test", "samples": samples.tolist()},
        "confidence": sweep.confidence,
        "claims": [_claim(claim) for claim in claims],
        "figures": [
            _figure(metric, confirmation, chosen.reference, sweep.confidence) for metric in objectives.values()
        ],
        "right": _right(confirmation),
        "right_as_trained": _right(chosen.reference),
        "chosen_by": sweep.choose.name,
        "cannot_be_told_from": list(level),
        "front_share": chosen.front_share,
        "verification": dict(confirmation.verification or chosen.run.verification),
        "doubts": [{"kind": doubt.kind, "reason": doubt.reason} for doubt in diagnose(confirmation)],
        "host": {key: value for key, value in confirmation.host.items() if key not in ("before", "after")},
        "frameworks": dict(confirmation.frameworks),
        "measured": confirmation.created,
        "command": list(confirmation.command),
    }


def test_samples(sweep: Sweep) -> np.ndarray:
    """Give the numbers of the test samples that a sweep measures."""
    chosen = chosen_samples(sweep.dataset.split("test"), sweep.points[0].measure.measure_samples)
    if not len(chosen):
        raise ConfigError("the test split is empty")
    return np.asarray(chosen)


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
        "unit": _UNITS[metric.kind],
        "count": known.count,
        "holds": claim.holds,
    }


def _figure(metric: Metric, run: Run, reference: Run | None, confidence: float) -> dict[str, Any]:
    known = figure(run, metric, reference, confidence)
    if known.value is None:
        return {"metric": metric.name, "value": None, "reason": known.reason}
    return {
        "metric": metric.name, "value": known.value, "low": known.low, "high": known.high,
        "unit": _UNITS[metric.kind], "count": known.count,
    }  # fmt: skip


def _right(run: Run | None) -> int | None:
    if run is None or run.evaluation is None or "truth" not in run.evaluation.arrays:
        return None
    return int(np.count_nonzero(run.evaluation.arrays["truth"] == run.evaluation.arrays["predicted"]))


def _relative(path: Path, folder: Path) -> str:
    try:
        return str(path.resolve().relative_to(folder.resolve()))
    except ValueError:
        return str(path.resolve())
