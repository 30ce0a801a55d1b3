"""Measuring the chosen candidate again.

The best of many measurements is partly the luckiest of many.  What is chosen
is therefore measured anew, and only what holds then is certified; otherwise the
next one has its turn, until as many as the sweep allows have been measured.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

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
from nnpipe.workflows.sweep.run import compiled, measured
from nnpipe.workflows.sweep.select import Claim, Judged, barring, claims_of, level_of, tell, told_barred

log = logging.getLogger("nnpipe")


@dataclass(frozen=True, eq=False)
class Confirmed:
    """The candidate that held when it was measured again, if any, and those that did not, with the reason.

    ``run``, ``figures`` and ``claims`` are those of the second measurement; figures are by name, all at the
    confidence of a claim, and ``doubts`` say what speaks against them.
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
        """The second measurement of the chosen one."""
        if self.measurement is None:
            raise ValueError("nothing was chosen")
        return self.measurement


def confirmed(sweep: Sweep, candidates: Sequence[Judged], command: Sequence[str], *, retry: bool = False) -> Confirmed:
    """Measure candidates again, the best first, until one holds or ``sweep.confirmations`` have been measured.

    With ``retry``, what could not be measured in an earlier run is tried again.
    """
    journal = Journal(sweep.output / "confirmations")
    refuted: dict[str, str] = {}
    for candidate in candidates[: sweep.confirmations]:
        try:
            outcome = _outcome(sweep, candidate, journal, command, retry)
        except NNPipeError as error:  # the model is gone, and cannot be compiled again
            refuted[candidate.title] = said(error)
            continue
        if outcome.run is None:
            refuted[candidate.title] = outcome.reason
            continue
        figures = Figures(outcome.run, candidate.reference)
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
    sweep: Sweep, chosen: Judged, figures: Figures, claims: tuple[Claim, ...], refuted: Mapping[str, str]
) -> Confirmed:
    level = level_of(sweep)
    found = {metric.name: figures.of(metric, level) for metric in sweep.metrics}
    doubts = (*figures.doubts, *_not_repeated(sweep, chosen, found))
    return Confirmed(chosen, figures.run, claims, refuted, found, doubts, f"confirmations/{chosen.done.key}.json")


def _not_repeated(sweep: Sweep, chosen: Judged, again: Mapping[str, Figure]) -> Iterator[Doubt]:
    """Doubt times whose two measurements have nothing in common: something else changed between them."""
    for each in sweep.metrics:
        first, second = chosen.figures[each.name], again[each.name]
        # What is timed once has no interval, and says nothing of how it varies.
        enclosed = each.kind == "time" and first.low < first.high and second.low < second.high
        if enclosed and (first.high < second.low or second.high < first.low):
            yield Doubt(
                "not repeated",
                f"the {each.title} was {ranged(each, first)} when it was chosen and {ranged(each, second)} "
                "when it was measured again",
            )


def _outcome(sweep: Sweep, candidate: Judged, journal: Journal, command: Sequence[str], retry: bool) -> Outcome:
    """Return what the second measurement gave, now or earlier, of the model that lies there now."""
    done = candidate.done
    point, key = done.point, done.key
    with ExitStack() as stack:
        source = stack.enter_context(ModelProcess(point.model.wrapper, sweep.dataset, point.model.path))
        artifact = compiled(sweep, point, source, done.artifact)
        known = journal.read(key)
        if known is not None and _is_of(known, artifact) and not (known.run is None and retry):
            return known
        verification = None
        if artifact is not None and artifact.sha256 != candidate.run.artifact.get("sha256"):
            # No compiler promises to make the same file twice: what was said of the first is not known of this one.
            verification = stack.enter_context(source_outputs(source, sweep.verify, sweep.time_limit))
        log.info("\nmeasuring the best again: %s", candidate.title)
        found = measured(sweep, point, artifact, journal.working_path(key), command, verification)
    journal.write(key, candidate.title, found)
    return found


def _is_of(outcome: Outcome, artifact: Artifact | None) -> bool:
    return outcome.run is None or artifact is None or outcome.run.artifact.get("sha256") == artifact.sha256
