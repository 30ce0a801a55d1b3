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
from nnpipe.measuring.doubt import Doubt
from nnpipe.measuring.run import Run
from nnpipe.report.quantity_text import ranged
from nnpipe.workflows.candidates.measure import source_outputs
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.journal import Journal, Outcome, said
from nnpipe.workflows.sweep.estimates import Figures
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.run import Done, compiled, measured
from nnpipe.workflows.sweep.select import (
    Claim,
    Judged,
    barring,
    claims_of,
    level_of,
    tell,
    told_barred,
)

log = logging.getLogger("nnpipe")


@dataclass(frozen=True, eq=False)
class Confirmed:
    """The candidate that was confirmed by a second measurement, if any, and the refuted ones with
    reasons.

    ``run``, ``figures``, ``claims`` and ``doubts`` belong to the second measurement; figures are by
    name, all with the confidence of a claim.
    """

    chosen: Judged | None
    measurement: Run | None
    claims: tuple[Claim, ...]
    refuted: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    doubts: tuple[Doubt, ...] = ()
    result: str = ""

    @property
    def run(self) -> Run:
        """The second measurement of the chosen candidate."""
        if self.measurement is None:
            raise ValueError("nothing was chosen")
        return self.measurement


def confirmed(
    sweep: Sweep,
    candidates: Sequence[Judged],
    command: Sequence[str],
    *,
    retry: bool = False,
    again: Callable[[Done], Outcome] | None = None,
    artifact: Callable[[Done], Artifact | None] | None = None,
) -> Confirmed:
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
                outcome = _outcome(sweep, candidate, journal, command, retry)
            else:
                outcome = _outcome_elsewhere(candidate, journal, again, retry, artifact)
        except NNPipeError as error:  # the model is missing, and cannot be compiled again
            refuted[candidate.title] = said(error)
            continue
        if outcome.run is None:
            refuted[candidate.title] = outcome.reason
            continue
        # Outputs of the same file are held against those of its source the first time alone.
        agreement = outcome.run.verification or candidate.run.verification
        figures = Figures(replace(outcome.run, verification=agreement), candidate.reference)
        claims = claims_of(sweep, figures)
        barred = barring(sweep, figures.doubts)
        if barred:
            refuted[candidate.title] = told_barred(barred)
            continue
        if all(claim.holds for claim in claims):
            return _confirmed(sweep, candidate, figures, claims, refuted)
        refuted[candidate.title] = "; ".join(tell(claim) for claim in claims if not claim.holds)
    return Confirmed(None, None, (), refuted)


def _confirmed(
    sweep: Sweep,
    chosen: Judged,
    figures: Figures,
    claims: tuple[Claim, ...],
    refuted: Mapping[str, str],
) -> Confirmed:
    level = level_of(sweep)
    found = {metric.name: figures.of(metric, level) for metric in sweep.metrics}
    doubts = (*figures.doubts, *_not_repeated(sweep, chosen, found))
    return Confirmed(
        chosen, figures.run, claims, refuted, found, doubts, f"confirmations/{chosen.done.key}.json"
    )


def _not_repeated(sweep: Sweep, chosen: Judged, again: Mapping[str, Figure]) -> Iterator[Doubt]:
    """Yield a doubt for each time whose two intervals do not overlap: something else changed
    between them.
    """
    for each in sweep.metrics:
        first, second = chosen.figures[each.name], again[each.name]
        # A time that was measured once has no interval.
        enclosed = each.kind == "time" and first.low < first.high and second.low < second.high
        if enclosed and (first.high < second.low or second.high < first.low):
            yield Doubt(
                "not repeated",
                f"the {each.title} was {ranged(each, first)} when it was chosen and "
                f"{ranged(each, second)} "
                "when it was measured again",
            )


def _outcome(
    sweep: Sweep, candidate: Judged, journal: Journal, command: Sequence[str], retry: bool
) -> Outcome:
    """Return the second measurement, new or from an earlier run, of the model file as it is now."""
    done = candidate.done
    point, key = done.point, done.key
    with ExitStack() as stack:
        source = stack.enter_context(
            ModelProcess(point.model.wrapper, sweep.dataset, point.model.path)
        )
        artifact = compiled(sweep, point, source, done.artifact)
        known = journal.read(key)
        if known is not None and _is_of(known, artifact) and not (known.run is None and retry):
            return known
        verification = None
        if artifact is not None and artifact.sha256 != candidate.run.artifact.get("sha256"):
            # Compilers may write a different file each time, so an earlier measurement may not be
            # of this one.
            verification = stack.enter_context(
                source_outputs(source, sweep.verify, sweep.time_limit)
            )
        log.info("\nmeasuring the best again: %s", candidate.title)
        found = measured(sweep, point, artifact, journal.working_path(key), command, verification)
    journal.write(key, candidate.title, found)
    return found


def _outcome_elsewhere(
    candidate: Judged,
    journal: Journal,
    again: Callable[[Done], Outcome],
    retry: bool,
    artifact: Callable[[Done], Artifact | None] | None,
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
