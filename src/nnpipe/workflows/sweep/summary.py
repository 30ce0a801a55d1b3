"""The results of a sweep, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.files import compute_sha256
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantities import Quantity
from nnpipe.measuring.run import Run
from nnpipe.measuring.validity_warning import ValidityWarning
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import BASES
from nnpipe.report.inputs.sweep_file import KIND
from nnpipe.report.inputs.sweep_file import SCHEMA as SUMMARY_SCHEMA
from nnpipe.report.quantity_text import format_figure, format_quantity, format_warning_kinds
from nnpipe.report.writers.tables import to_text
from nnpipe.workflows.decision import Claim
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.sweep.budget import BudgetUse
from nnpipe.workflows.sweep.confirm import Confirmation
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Point
from nnpipe.workflows.sweep.run import FinishedPoint
from nnpipe.workflows.sweep.select import EvaluatedPoint, find_ties


@dataclass(frozen=True, eq=False)
class DeviceResult:
    """The candidates of a device.

    Parameters
    ----------
    sweep
        The part of the sweep that decides about the device.
    device
        The device.
    done
        Its candidates with their outcomes, and the models as trained.
    judged
        Those that were measured, with their claims.
    confirmed
        The best one that qualifies, measured again on the device.
    spent
        What a sweep with a budget took there.
    away
        Why the device gave no more results; empty if it gave all.
    """

    sweep: Sweep
    device: Device
    done: tuple[FinishedPoint, ...]
    judged: tuple[EvaluatedPoint, ...]
    confirmed: Confirmation
    spent: BudgetUse | None = None
    away: str = ""

    @property
    def own(self) -> tuple[EvaluatedPoint, ...]:
        """The measured candidates that may be chosen on the device."""
        return tuple(each for each in self.judged if self.sweep.can_be_chosen(each.done.point))


def find_cheapest(results: Sequence[DeviceResult]) -> tuple[DeviceResult | None, str]:
    """Return the cheapest device on which a candidate was confirmed, and by what its cost is
    counted.

    Prices for an hour and for a piece cannot be compared, so that price counts which more of these
    devices have.

    Returns
    -------
    DeviceResult or None
        The cheapest device; of equally cheap ones, and where no price is known, the one whose
        candidate is best by the metric ``choose``; ``None`` if there is none.
    str
        ``cost_per_hour`` or ``cost_per_piece``; empty if no price is known.
    """
    able = [each for each in results if each.confirmed.chosen is not None]
    if not able:
        return None, ""
    known = {
        basis: [each for each in able if getattr(each.device, basis) is not None]
        for basis in reversed(BASES)
    }
    basis = max(known, key=lambda name: len(known[name]))
    priced = known[basis]
    return min(
        priced or able, key=lambda each: (getattr(each.device, basis) or 0.0, _make_sort_key(each))
    ), (basis if priced else "")


def _make_sort_key(result: DeviceResult) -> tuple[float, str]:
    choose = result.sweep.choose
    value = result.confirmed.figures[choose.name].value
    return (
        math.inf if value is None else value if choose.less_is_better else -value
    ), result.device.name


_ROWS = 40


def format_candidate_table(sweep: Sweep, judged: Sequence[EvaluatedPoint]) -> str:
    """Return the candidates as a text table, sorted by their probability of being on the front;
    at most forty.
    """
    rows = sorted(judged, key=lambda one: (not one.qualifies, -one.front_share, one.title))[:_ROWS]
    columns = [("Candidate", [Cell(one.title) for one in rows])]
    columns += [
        (m.heading, [_format_cell(m, one.figures[m.name]) for one in rows]) for m in sweep.metrics
    ]
    columns.append(("Front", [_format_front_cell(one) for one in rows]))
    if sweep.constraints or any(one.barred or one.done.stopped for one in judged):
        columns.append(("Verdict", [Cell(_format_verdict(one)) for one in rows]))
    columns.append(("Doubts", [Cell(format_warning_kinds(one.doubts)) for one in rows]))
    text = to_text(
        Table(
            tuple(head for head, _ in columns),
            tuple(zip(*(cells for _, cells in columns), strict=True)),
        )
    )
    hidden = len(judged) - len(rows)
    return f"{text}\n{hidden} more in sweep.json" if hidden else text


def format_remeasurement(sweep: Sweep, found: Confirmation) -> list[str]:
    """Return lines on the second measurement of the chosen candidate: its claims and doubts."""
    name = sweep.choose
    lines = [f"measured again: {name.title} {format_figure(name, found.figures[name.name])}"]
    lines += [claim.describe() for claim in found.claims]
    return lines + [f"doubt: {doubt.kind}: {doubt.reason}" for doubt in found.doubts]


def build_summary(
    sweep: Sweep,
    done: Sequence[FinishedPoint],
    judged: Sequence[EvaluatedPoint],
    found: Confirmation,
    spent: BudgetUse | None = None,
    by_device: Sequence[DeviceResult] = (),
) -> dict[str, Any]:
    """Return all results as JSON can hold them; times in seconds, sizes in bytes, shares from 0
    to 1.
    """
    best, basis = find_cheapest(by_device)
    devices = {
        "devices": [_describe_device(each) for each in by_device],
        "currency": sweep.targets.currency,
        "cheapest": best.device.name if best else None,
        "cost_by": basis or None,
    }
    return {
        "schema": SUMMARY_SCHEMA,
        "kind": KIND,
        "title": sweep.title,
        "confidence": sweep.confidence,
        "confidence_of_each": sweep.rule.level,
        "constraints": [constraint.text for constraint in sweep.constraints],
        "objectives": [metric.name for metric in sweep.objectives],
        "choose": sweep.choose.name,
        "budget": spent.to_json() if spent else None,
        "chosen": found.chosen.title if found.chosen else None,
        "cannot_be_told_from": find_ties(sweep, found.chosen, judged) if found.chosen else [],
        "confirmed": _describe_confirmation(found) if found.chosen else None,
        "refuted": dict(found.refuted),
        "points": [_describe_point(sweep, one) for one in judged],
        "failed": [
            {"title": d.point.title, "reason": d.outcome.reason}
            for d in done
            if d.outcome.run is None
        ],
        "impossible": dict(sweep.impossible),
        **(devices if by_device else {}),
    }


def _describe_device(one: DeviceResult) -> dict[str, Any]:
    found = one.confirmed
    return {
        **one.device.to_json(),
        "chosen": found.chosen.title if found.chosen else None,
        "confirmed": _describe_confirmation(found) if found.chosen else None,
        "refuted": dict(found.refuted),
        "budget": one.spent.to_json() if one.spent else None,
        "away": one.away,
        "measured": len([each for each in one.own if each.done.point.device == one.device]),
        "facts": get_target_facts([each.run for each in one.own]) if not one.device.here else {},
    }


def get_target_facts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what a target told about itself when one of these was measured; empty if it told
    nothing.
    """
    told = (run.timing.get("session", {}).get("target", {}) for run in runs)
    return dict(next(filter(None, told), {}))


def _describe_point(sweep: Sweep, one: EvaluatedPoint) -> dict[str, Any]:
    return {
        "title": one.title,
        "result": f"results/{one.done.key}.json",
        "model": f"models/{one.done.artifact.name}" if one.done.artifact else None,
        "figures": {name: encode_figure(known) for name, known in one.figures.items()},
        "claims": {claim.constraint.text: claim.holds for claim in one.claims},
        "qualifies": one.qualifies,
        "on_front": one.on_front,
        "front_share": one.front_share,
        "doubts": [_describe_doubt(doubt) for doubt in one.doubts],
        **({"share": one.done.share, "stopped": one.done.stopped} if one.done.stopped else {}),
        **_describe_place(one.done.point),
    }


def _describe_place(point: Point) -> dict[str, Any]:
    """Return the device of a point, and what it shares with the same combination on other
    devices.
    """
    if point.device is None:
        return {}
    return {
        "device": point.device.name,
        "of_model": point.model.title,
        "combination": point.combination,
    }


def _describe_confirmation(found: Confirmation) -> dict[str, Any]:
    """Return the second measurement of the chosen candidate, on which its certificate is based."""
    return {
        "result": found.result,
        "figures": {name: encode_figure(known) for name, known in found.figures.items()},
        "doubts": [_describe_doubt(doubt) for doubt in found.doubts],
    }


def _describe_doubt(doubt: ValidityWarning) -> dict[str, str]:
    return {"kind": doubt.kind, "reason": doubt.reason}


def encode_figure(known: Figure) -> dict[str, Any]:
    """Return a metric as JSON can hold it: null for an unknown value and for infinite ends of
    its interval.
    """
    if known.value is None:
        return {"value": None, "reason": known.reason}
    low, high = (end if math.isfinite(end) else None for end in (known.low, known.high))
    return {"value": known.value, "low": low, "high": high, "count": known.count}


def _format_cell(metric: Quantity, known: Figure) -> Cell:
    return Cell(format_quantity(metric, known.value), known.value)


def _format_front_cell(one: EvaluatedPoint) -> Cell:
    return (
        Cell("–") if one.done.stopped else Cell(f"{100 * one.front_share:.0f} %", one.front_share)
    )


def _format_verdict(one: EvaluatedPoint) -> str:
    if one.done.stopped:
        return f"stopped at {100 * one.done.share:g} %"
    if one.qualifies:
        return "qualifies"
    failed = [claim for claim in one.killed_by if claim.holds is False]
    if failed:
        return "fails " + _format_headings(failed)
    if one.killed_by:
        return "not known: " + _format_headings(one.killed_by)
    if one.barred:
        return "barred: " + format_warning_kinds(one.barred)
    return "undecided: " + _format_headings([claim for claim in one.claims if not claim.holds])


def _format_headings(claims: Sequence[Claim]) -> str:
    return ", ".join(claim.constraint.metric.heading for claim in claims)


# The certificate of a chosen candidate: its measurements, their conditions and their confidence.
#
# It contains everything for an independent check: the artifact's SHA-256, the numbers of the test
# samples, each claim with its interval, and the machine. ``nnpipe`` is not needed to read it.

SCHEMA = 1


def build_certificate(
    sweep: Sweep,
    chosen: EvaluatedPoint,
    found: Confirmation,
    level: Sequence[str],
    samples: np.ndarray,
    spent: BudgetUse | None = None,
) -> dict[str, Any]:
    """Return the certificate, as JSON can hold it.

    Parameters
    ----------
    sweep
        The sweep.
    chosen
        The chosen candidate, with its first measurement.
    found
        Its second measurement, after it was chosen.  All claims are based on this one, so their
        figures are not the luckiest of many; the first figures are also listed.
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
            "path": _format_path(path, sweep.output),
            "bytes": path.stat().st_size,
            "sha256": compute_sha256(path),
            "format": confirmation.artifact.get("format", point.model.wrapper.weights_format),
        },
        "model": hide_settings_secrets(point.model.wrapper.describe()),
        "compilers": [hide_settings_secrets(compiler.describe()) for compiler in point.compilers],
        "runtime": hide_settings_secrets(point.runtime.describe()) if point.runtime else None,
        "batch_size": point.measure.inference_batch_size,
        **_build_device_entries(point, confirmation),
        "dataset": {
            **hide_settings_secrets(sweep.dataset.describe()),
            "split": "test",
            "samples": samples.tolist(),
        },
        "confidence": sweep.confidence,
        "confidence_of_each": sweep.rule.level,
        "claims": [_describe_claim(claim) for claim in found.claims],
        "figures": [
            _describe_figure(each, found.figures[each.name], chosen.figures[each.name])
            for each in sweep.metrics
        ],
        "right": _count_correct(confirmation),
        "right_as_trained": _count_correct(chosen.reference),
        "chosen_by": sweep.choose.name,
        **({"budget": spent.to_json()} if spent else {}),
        "cannot_be_told_from": list(level),
        "front_share": chosen.front_share,
        "verification": dict(confirmation.verification),
        "doubts": [{"kind": doubt.kind, "reason": doubt.reason} for doubt in found.doubts],
        "host": {
            key: value for key, value in confirmation.host.items() if key not in ("before", "after")
        },
        "frameworks": dict(confirmation.frameworks),
        "measured": confirmation.created,
        "command": list(confirmation.command),
    }


def _build_device_entries(point: Point, run: Run) -> dict[str, Any]:
    """Return the device of a chosen candidate, with what the machine told about itself when it
    was measured again.
    """
    if point.device is None:
        return {}
    return {
        "device": {
            **hide_settings_secrets(point.device.to_json()),
            "facts": get_target_facts([run]),
        }
    }


def _describe_claim(claim: Claim) -> dict[str, Any]:
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


def _describe_figure(metric: Quantity, known: Figure, first: Figure) -> dict[str, Any]:
    told = {
        "metric": metric.name,
        "title": metric.title,
        "meaning": metric.meaning,
        "unit": metric.unit,
    }
    return {**told, **encode_figure(known), "when_chosen": encode_figure(first)}


def _count_correct(run: Run | None) -> int | None:
    if run is None or run.evaluation is None or "truth" not in run.evaluation.arrays:
        return None
    return int(
        np.count_nonzero(run.evaluation.arrays["truth"] == run.evaluation.arrays["predicted"])
    )


def _format_path(path: Path, folder: Path) -> str:
    try:
        return str(path.resolve().relative_to(folder.resolve()))
    except ValueError:
        return str(path.resolve())
