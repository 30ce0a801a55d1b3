"""The results of a sweep, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.files import sha256_of
from nnpipe.core.secret import shown_settings
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.doubt import Doubt
from nnpipe.measuring.quantities import Quantity
from nnpipe.measuring.run import Run
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import BASES
from nnpipe.report.inputs.sweep_file import KIND
from nnpipe.report.inputs.sweep_file import SCHEMA as SUMMARY_SCHEMA
from nnpipe.report.quantity_text import kinds, ranged, written
from nnpipe.report.writers.terminal import to_text
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.sweep.budget import Spent
from nnpipe.workflows.sweep.confirm import Confirmed
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Point
from nnpipe.workflows.sweep.run import Done
from nnpipe.workflows.sweep.select import Claim, Judged, level_of, tell


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
    done: tuple[Done, ...]
    judged: tuple[Judged, ...]
    confirmed: Confirmed
    spent: Spent | None = None
    away: str = ""

    @property
    def own(self) -> tuple[Judged, ...]:
        """The measured candidates that may be chosen on the device."""
        return tuple(each for each in self.judged if self.sweep.competes(each.done.point))


def cheapest(results: Sequence[DeviceResult]) -> tuple[DeviceResult | None, str]:
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
        priced or able, key=lambda each: (getattr(each.device, basis) or 0.0, _place(each))
    ), (basis if priced else "")


def _place(result: DeviceResult) -> tuple[float, str]:
    choose = result.sweep.choose
    value = result.confirmed.figures[choose.name].value
    return (
        math.inf if value is None else value if choose.less_is_better else -value
    ), result.device.name


_ROWS = 40


def table(sweep: Sweep, judged: Sequence[Judged]) -> str:
    """Return the candidates as a text table, sorted by their probability of being on the front;
    at most forty.
    """
    rows = sorted(judged, key=lambda one: (not one.qualifies, -one.front_share, one.title))[:_ROWS]
    columns = [("Candidate", [Cell(one.title) for one in rows])]
    columns += [(m.heading, [_cell(m, one.figures[m.name]) for one in rows]) for m in sweep.metrics]
    columns.append(("Front", [_front_cell(one) for one in rows]))
    if sweep.constraints or any(one.barred or one.done.stopped for one in judged):
        columns.append(("Verdict", [Cell(_verdict(one)) for one in rows]))
    columns.append(("Doubts", [Cell(kinds(one.doubts)) for one in rows]))
    text = to_text(
        Table(
            tuple(head for head, _ in columns),
            tuple(zip(*(cells for _, cells in columns), strict=True)),
        )
    )
    hidden = len(judged) - len(rows)
    return f"{text}\n{hidden} more in sweep.json" if hidden else text


def told_again(sweep: Sweep, found: Confirmed) -> list[str]:
    """Return lines on the second measurement of the chosen candidate: its claims and doubts."""
    name = sweep.choose
    lines = [f"measured again: {name.title} {ranged(name, found.figures[name.name])}"]
    lines += [tell(claim) for claim in found.claims]
    return lines + [f"doubt: {doubt.kind}: {doubt.reason}" for doubt in found.doubts]


def summary(
    sweep: Sweep,
    done: Sequence[Done],
    judged: Sequence[Judged],
    found: Confirmed,
    spent: Spent | None = None,
    by_device: Sequence[DeviceResult] = (),
) -> dict[str, Any]:
    """Return all results as JSON can hold them; times in seconds, sizes in bytes, shares from 0
    to 1.
    """
    best, basis = cheapest(by_device)
    devices = {
        "devices": [_device(each) for each in by_device],
        "currency": sweep.targets.currency,
        "cheapest": best.device.name if best else None,
        "cost_by": basis or None,
    }
    return {
        "schema": SUMMARY_SCHEMA,
        "kind": KIND,
        "title": sweep.title,
        "confidence": sweep.confidence,
        "confidence_of_each": level_of(sweep),
        "constraints": [constraint.text for constraint in sweep.constraints],
        "objectives": [metric.name for metric in sweep.objectives],
        "choose": sweep.choose.name,
        "budget": spent.to_json() if spent else None,
        "chosen": found.chosen.title if found.chosen else None,
        "confirmed": _confirmed(found) if found.chosen else None,
        "refuted": dict(found.refuted),
        "points": [_point(sweep, one) for one in judged],
        "failed": [
            {"title": d.point.title, "reason": d.outcome.reason}
            for d in done
            if d.outcome.run is None
        ],
        "impossible": dict(sweep.impossible),
        **(devices if by_device else {}),
    }


def _device(one: DeviceResult) -> dict[str, Any]:
    found = one.confirmed
    return {
        **one.device.to_json(),
        "chosen": found.chosen.title if found.chosen else None,
        "confirmed": _confirmed(found) if found.chosen else None,
        "refuted": dict(found.refuted),
        "budget": one.spent.to_json() if one.spent else None,
        "away": one.away,
        "measured": len([each for each in one.own if each.done.point.device == one.device]),
        "facts": target_facts([each.run for each in one.own]) if not one.device.here else {},
    }


def target_facts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what a target told about itself when one of these was measured; empty if it told
    nothing.
    """
    told = (run.timing.get("session", {}).get("target", {}) for run in runs)
    return dict(next(filter(None, told), {}))


def _point(sweep: Sweep, one: Judged) -> dict[str, Any]:
    return {
        "title": one.title,
        "result": f"results/{one.done.key}.json",
        "model": f"models/{one.done.artifact.name}" if one.done.artifact else None,
        "figures": {name: figure_json(known) for name, known in one.figures.items()},
        "claims": {claim.constraint.text: claim.holds for claim in one.claims},
        "qualifies": one.qualifies,
        "on_front": one.on_front,
        "front_share": one.front_share,
        "doubts": [_doubt(doubt) for doubt in one.doubts],
        **({"share": one.done.share, "stopped": one.done.stopped} if one.done.stopped else {}),
        **_place_of(one.done.point),
    }


def _place_of(point: Point) -> dict[str, Any]:
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


def _confirmed(found: Confirmed) -> dict[str, Any]:
    """Return the second measurement of the chosen candidate, on which its certificate is based."""
    return {
        "result": found.result,
        "figures": {name: figure_json(known) for name, known in found.figures.items()},
        "doubts": [_doubt(doubt) for doubt in found.doubts],
    }


def _doubt(doubt: Doubt) -> dict[str, str]:
    return {"kind": doubt.kind, "reason": doubt.reason}


def figure_json(known: Figure) -> dict[str, Any]:
    """Return a metric as JSON can hold it: null for an unknown value and for infinite ends of
    its interval.
    """
    if known.value is None:
        return {"value": None, "reason": known.reason}
    low, high = (end if math.isfinite(end) else None for end in (known.low, known.high))
    return {"value": known.value, "low": low, "high": high, "count": known.count}


def _cell(metric: Quantity, known: Figure) -> Cell:
    return Cell(written(metric, known.value), known.value)


def _front_cell(one: Judged) -> Cell:
    return (
        Cell("–") if one.done.stopped else Cell(f"{100 * one.front_share:.0f} %", one.front_share)
    )


def _verdict(one: Judged) -> str:
    if one.done.stopped:
        return f"stopped at {100 * one.done.share:g} %"
    if one.qualifies:
        return "qualifies"
    failed = [claim for claim in one.killed_by if claim.holds is False]
    if failed:
        return "fails " + _headings(failed)
    if one.killed_by:
        return "not known: " + _headings(one.killed_by)
    if one.barred:
        return "barred: " + kinds(one.barred)
    return "undecided: " + _headings([claim for claim in one.claims if not claim.holds])


def _headings(claims: Sequence[Claim]) -> str:
    return ", ".join(claim.constraint.metric.heading for claim in claims)


# The certificate of a chosen candidate: its measurements, their conditions and their confidence.
#
# It contains everything for an independent check: the artifact's SHA-256, the numbers of the test
# samples, each claim with its interval, and the machine. ``nnpipe`` is not needed to read it.

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
            "path": _relative(path, sweep.output),
            "bytes": path.stat().st_size,
            "sha256": sha256_of(path),
            "format": confirmation.artifact.get("format", point.model.wrapper.weights_format),
        },
        "model": shown_settings(point.model.wrapper.describe()),
        "compilers": [shown_settings(compiler.describe()) for compiler in point.compilers],
        "runtime": shown_settings(point.runtime.describe()) if point.runtime else None,
        "batch_size": point.measure.inference_batch_size,
        **_device_entries(point, confirmation),
        "dataset": {
            **shown_settings(sweep.dataset.describe()),
            "split": "test",
            "samples": samples.tolist(),
        },
        "confidence": sweep.confidence,
        "confidence_of_each": level_of(sweep),
        "claims": [_claim(claim) for claim in found.claims],
        "figures": [
            _figure(each, found.figures[each.name], chosen.figures[each.name])
            for each in sweep.metrics
        ],
        "right": _right(confirmation),
        "right_as_trained": _right(chosen.reference),
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


def _device_entries(point: Point, run: Run) -> dict[str, Any]:
    """Return the device of a chosen candidate, with what the machine told about itself when it
    was measured again.
    """
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
    told = {
        "metric": metric.name,
        "title": metric.title,
        "meaning": metric.meaning,
        "unit": metric.unit,
    }
    return {**told, **figure_json(known), "when_chosen": figure_json(first)}


def _right(run: Run | None) -> int | None:
    if run is None or run.evaluation is None or "truth" not in run.evaluation.arrays:
        return None
    return int(
        np.count_nonzero(run.evaluation.arrays["truth"] == run.evaluation.arrays["predicted"])
    )


def _relative(path: Path, folder: Path) -> str:
    try:
        return str(path.resolve().relative_to(folder.resolve()))
    except ValueError:
        return str(path.resolve())
