"""Deciding whether a result is of less quality than another by more than is allowed."""

from __future__ import annotations

import math

from nnpipe.analysis.quality_intervals import quality_difference
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.naming import nearest
from nnpipe.measuring.quality_doubts import prepared_unknown
from nnpipe.measuring.quantities import in_sentence
from nnpipe.measuring.signed_rank import Centre
from nnpipe.report.inputs.quality import Quality, comparable
from nnpipe.workflows.verification.gate_criterion import Criterion, GatedCandidate, Unit, decided, same_result


def quality_loss(
    baseline: GatedCandidate,
    new: GatedCandidate,
    limit: float,
    confidence: float,
    judge_unknown: bool = False,
    metric: str = "",
) -> Criterion:
    """Return the criterion of the loss of quality, on the same samples.

    ``metric`` is a metric of the task; by default, the one by which candidates are ranked.
    If the preprocessing is not known, a metric says nothing about the model.  Then
    the criterion is undecided, unless ``judge_unknown``.

    Raises
    ------
    ConfigError
        If a result has no judged predictions, or their task has no such metric.
    """
    one, two = (_judged(each, metric) for each in (baseline, new))
    computed = one.task.metric(metric) if metric else one.metric
    name = f"{in_sentence(computed.title)} loss"
    unit: Unit = "points" if computed.kind == "share" else ""
    unknown = [each.name for each in (baseline, new) if prepared_unknown(each.run)]
    if unknown and not judge_unknown:
        basis = (
            f"preprocessing not known of {' and '.join(dict.fromkeys(unknown))}: say it when measuring (--scale, "
            "--mean, --deviation), or judge all the same with --judge-unknown"
        )
        return Criterion(name, limit, "undecided", None, None, basis, unit=unit)
    if not comparable(one, two):
        return Criterion(name, limit, "undecided", None, None, "not judged on the same samples", unit=unit)
    for each, judged in ((new, two), (baseline, one)):
        if words := judged.evaluation.not_finite_words():
            return Criterion(name, limit, "undecided", None, None, f"{each.name}: {words}", unit=unit, blocks=True)
    if baseline.is_same_result(new):
        return same_result(name, limit, unit)
    gap = quality_difference(computed, one.evaluation, two.evaluation, confidence)
    sign = 1 if computed.less_is_better else -1
    low, high = sorted((sign * gap.low, sign * gap.high))
    ends = (low, high) if math.isfinite(high - low) else None
    found = Centre(sign * gap.value, ends, gap.samples, 1)
    basis = f"{gap.samples:,} samples"
    if gap.gained >= 0:
        basis = f"{gap.lost:,} lost and {gap.gained:,} won of {basis}"
    return decided(name, limit, found, basis, "samples", unit)


def _judged(each: GatedCandidate, metric: str) -> Quality:
    try:
        found = Quality.of(each.run)
    except ArtifactError as error:
        raise ArtifactError(f"{each.name}: {error}") from None
    if found is None:
        raise ConfigError(f"{each.name}: it holds no judged predictions, so there is no quality to compare")
    try:
        found.task.metric(metric or found.metric.name)
    except KeyError:
        known = [metric.name for metric in found.task.metrics]
        hint = nearest(metric, known) or f"; there are: {', '.join(known)}"
        raise ConfigError(f"{each.name}: the task {found.task.name!r} has no metric {metric!r}{hint}") from None
    return found
