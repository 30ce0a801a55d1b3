"""Deciding whether a result keeps a constraint by itself, such as ``flash <= 256 KiB``."""

from __future__ import annotations

import math

from nnpipe.measuring.constraints import Figure, MetricConstraint
from nnpipe.report.quantity_text import interval, written
from nnpipe.workflows.sweep.estimates import Figures
from nnpipe.workflows.verification.gate_criterion import Criterion, GatedCandidate, Status


def kept(baseline: GatedCandidate, new: GatedCandidate, constraint: MetricConstraint, confidence: float) -> Criterion:
    """Return the criterion of a constraint on the new result; losses are against the baseline."""
    metric = constraint.metric
    figure = Figures(new.run, baseline.run).of(metric, confidence)
    of_both = metric.compared or metric.name == "agreement"
    if of_both and figure.value is not None and baseline.is_same_result(new):
        figure = Figure.exactly(figure.value)
    judged = [each.run.evaluation for each in ((new, baseline) if of_both else (new,)) if of_both or metric.metric]
    words = next((found for each in judged if each is not None and (found := each.not_finite_words())), "")
    if words or figure.value is None:
        reason = words or figure.reason
        found = f"{metric.name} cannot be told, {constraint.text} is wanted"
        return Criterion(
            metric.name, constraint.bound, "undecided", None, None, reason, found=found, blocks=bool(words)
        )
    holds = constraint.judge(figure)
    basis = "exact" if figure.low == figure.high else interval(metric, figure) or "no interval"
    found = f"{metric.name} is {written(metric, figure.value)}, {constraint.text} is wanted"
    ends = (figure.low, figure.high) if math.isfinite(figure.high - figure.low) else None
    if holds is None:
        return Criterion(
            metric.name, constraint.bound, "undecided", figure.value, ends, basis, "more samples", found=found
        )
    status: Status = "pass" if holds else "fail"
    return Criterion(metric.name, constraint.bound, status, figure.value, ends, basis, found=found)
