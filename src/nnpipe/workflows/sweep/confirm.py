"""Measuring the chosen candidate again.

The best of many measurements is partly the luckiest.  Therefore the chosen
candidate is measured again, and certified only if its constraints hold then.
Otherwise the next best one is measured again, up to the number that the sweep
allows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NNPipeError
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.run import Run
from nnpipe.measuring.validity_warning import ValidityWarning
from nnpipe.report.quantity_text import format_figure
from nnpipe.workflows.candidates.measure import record_source_outputs
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.decision import Claim, format_barring_warnings
from nnpipe.workflows.journal import Journal, Outcome, get_error_message
from nnpipe.workflows.sweep.estimates import Figures
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.run import FinishedPoint, compile_point, measure_point
from nnpipe.workflows.sweep.select import EvaluatedPoint

log = logging.getLogger("nnpipe")


@dataclass(frozen=True, eq=False)
class Confirmation:
    """The candidate that was confirmed by a second measurement, if any, and the refuted ones with
    reasons.

    ``run``, ``figures``, ``claims`` and ``doubts`` belong to the second measurement; figures are by
    name, all with the confidence of a claim.
    """

    chosen: EvaluatedPoint | None
    measurement: Run | None
    claims: tuple[Claim, ...]
    refuted: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    doubts: tuple[ValidityWarning, ...] = ()
    result: str = ""

    @property
    def run(self) -> Run:
        """The second measurement of the chosen candidate."""
        if self.measurement is None:
            raise ValueError("nothing was chosen")
        return self.measurement


def remeasure_winner(
    sweep: Sweep,
    candidates: Sequence[EvaluatedPoint],
    command: Sequence[str],
    *,
    retry: bool = False,
    again: Callable[[FinishedPoint], Outcome] | None = None,
    artifact: Callable[[FinishedPoint], Artifact | None] | None = None,
) -> Confirmation:
    """Measure candidates again, the best first, until one is confirmed or ``sweep.confirmations``
    have been measured.

    With ``retry``, candidates that could not be measured in an earlier run are tried again.
    ``again`` measures one elsewhere, as it was measured the first time; by default it is measured
    here.  ``artifact`` returns the compiled model that is measured elsewhere, if it is known here.
    """
    journal = Journal(sweep.output / "confirmations")
    refuted: dict[str, str] = {}
    for candidate in candidates[: sweep.confirmations]:
        try:
            if again is None:
                outcome = _remeasure_candidate(sweep, candidate, journal, command, retry)
            else:
                outcome = _remeasure_elsewhere(candidate, journal, again, retry, artifact)
        except NNPipeError as error:  # the model is missing, and cannot be compiled again
            refuted[candidate.title] = get_error_message(error)
            continue
        if outcome.run is None:
            refuted[candidate.title] = outcome.reason
            continue
        # Outputs of the same file are held against those of its source the first time alone.
        agreement = outcome.run.verification or candidate.run.verification
        figures = Figures(replace(outcome.run, verification=agreement), candidate.reference)
        claims = sweep.rule.check_constraints(figures)
        barred = sweep.rule.find_barring_warnings(figures.doubts)
        if barred:
            refuted[candidate.title] = format_barring_warnings(barred)
            continue
        if all(claim.holds for claim in claims):
            return _build_confirmation(sweep, candidate, figures, claims, refuted)
        refuted[candidate.title] = "; ".join(
            claim.describe() for claim in claims if not claim.holds
        )
    return Confirmation(None, None, (), refuted)


def _build_confirmation(
    sweep: Sweep,
    chosen: EvaluatedPoint,
    figures: Figures,
    claims: tuple[Claim, ...],
    refuted: Mapping[str, str],
) -> Confirmation:
    level = sweep.rule.level
    found = {metric.name: figures.get_figure(metric, level) for metric in sweep.metrics}
    doubts = (*figures.doubts, *_find_discrepancies(sweep, chosen, found))
    return Confirmation(
        chosen, figures.run, claims, refuted, found, doubts, f"confirmations/{chosen.done.key}.json"
    )


def _find_discrepancies(
    sweep: Sweep, chosen: EvaluatedPoint, again: Mapping[str, Figure]
) -> Iterator[ValidityWarning]:
    """Yield a doubt for each time whose two intervals do not overlap: something else changed
    between them.
    """
    for each in sweep.metrics:
        first, second = chosen.figures[each.name], again[each.name]
        # A time that was measured once has no interval.
        enclosed = each.kind == "time" and first.low < first.high and second.low < second.high
        if enclosed and (first.high < second.low or second.high < first.low):
            yield ValidityWarning(
                "not repeated",
                f"the {each.title} was {format_figure(each, first)} when it was chosen and "
                f"{format_figure(each, second)} "
                "when it was measured again",
            )


def _remeasure_candidate(
    sweep: Sweep, candidate: EvaluatedPoint, journal: Journal, command: Sequence[str], retry: bool
) -> Outcome:
    """Return the second measurement, new or from an earlier run, of the model file as it is now."""
    done = candidate.done
    point, key = done.point, done.key
    with ExitStack() as stack:
        source = stack.enter_context(
            ModelProcess(point.model.wrapper, sweep.dataset, point.model.path)
        )
        artifact = compile_point(sweep, point, source, done.artifact)
        known = journal.read(key)
        if known is not None and _is_of(known, artifact) and not (known.run is None and retry):
            return known
        verification = None
        if artifact is not None and artifact.sha256 != candidate.run.artifact.get("sha256"):
            # Compilers may write a different file each time, so an earlier measurement may not be
            # of this one.
            verification = stack.enter_context(
                record_source_outputs(source, sweep.verify, sweep.time_limit)
            )
        log.info("\nmeasuring the best again: %s", candidate.title)
        found = measure_point(
            sweep, point, artifact, journal.get_working_path(key), command, verification
        )
    journal.write(key, candidate.title, found)
    return found


def _remeasure_elsewhere(
    candidate: EvaluatedPoint,
    journal: Journal,
    again: Callable[[FinishedPoint], Outcome],
    retry: bool,
    artifact: Callable[[FinishedPoint], Artifact | None] | None,
) -> Outcome:
    known = journal.read(candidate.done.key)
    made = None if artifact is None else artifact(candidate.done)
    if known is not None and not (known.run is None and retry):
        first = candidate.run.artifact.get("sha256") if made is None else made.sha256
        if known.run is None or known.run.artifact.get("sha256") == first:
            return known
    log.info("\nmeasuring the best again: %s", candidate.title)
    found = again(candidate.done)
    journal.write(candidate.done.key, candidate.title, found)
    return found


def _is_of(outcome: Outcome, artifact: Artifact | None) -> bool:
    return (
        outcome.run is None
        or artifact is None
        or outcome.run.artifact.get("sha256") == artifact.sha256
    )
