"""Measuring the chosen candidate again.

The best of many measurements is partly the luckiest of many.  What is chosen
is therefore measured anew, and only what holds then is certified; otherwise the
next one has its turn, until as many as the sweep allows have been measured.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NNPipeError
from nnpipe.measure.run import Run
from nnpipe.scenarios._choosing import Claim, Judged, claims_of, tell
from nnpipe.scenarios._figures import Figures
from nnpipe.scenarios._ledger import Ledger, Outcome, said
from nnpipe.scenarios._measuring import source_outputs
from nnpipe.scenarios._source import Source
from nnpipe.scenarios._sweepfile import Sweep
from nnpipe.scenarios._sweeping import compiled, measured

log = logging.getLogger("nnpipe")


@dataclass(frozen=True, eq=False)
class Confirmed:
    """The candidate that held when it was measured again, if any, and those that did not, with the reason.

    ``run`` and ``claims`` are those of the second measurement.
    """

    chosen: Judged | None
    measurement: Run | None
    claims: tuple[Claim, ...]
    refuted: Mapping[str, str] = field(default_factory=dict)

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
    ledger = Ledger(sweep.output / "confirmations")
    refuted: dict[str, str] = {}
    for candidate in candidates[: sweep.confirmations]:
        try:
            outcome = _outcome(sweep, candidate, ledger, command, retry)
        except NNPipeError as error:  # the model is gone, and cannot be compiled again
            refuted[candidate.title] = said(error)
            continue
        if outcome.run is None:
            refuted[candidate.title] = outcome.reason
            continue
        claims = claims_of(sweep, Figures(outcome.run, candidate.reference))
        if all(claim.holds for claim in claims):
            return Confirmed(candidate, outcome.run, claims, refuted)
        refuted[candidate.title] = "; ".join(tell(claim) for claim in claims if not claim.holds)
    return Confirmed(None, None, (), refuted)


def _outcome(sweep: Sweep, candidate: Judged, ledger: Ledger, command: Sequence[str], retry: bool) -> Outcome:
    """Return what the second measurement gave, now or earlier, of the model that lies there now."""
    done = candidate.done
    point, key = done.point, done.key
    with ExitStack() as stack:
        source = stack.enter_context(Source(point.model.wrapper, sweep.dataset, point.model.path))
        artifact = compiled(sweep, point, source, done.artifact)
        known = ledger.read(key)
        if known is not None and _is_of(known, artifact) and not (known.run is None and retry):
            return known
        verification = None
        if artifact is not None and artifact.sha256 != candidate.run.artifact.get("sha256"):
            # No compiler promises to make the same file twice: what was said of the first is not known of this one.
            verification = stack.enter_context(source_outputs(source, sweep.verify, sweep.time_limit))
        log.info("\nmeasuring the best again: %s", candidate.title)
        found = measured(sweep, point, artifact, ledger.working_path(key), command, verification)
    ledger.write(key, candidate.title, found)
    return found


def _is_of(outcome: Outcome, artifact: Artifact | None) -> bool:
    return outcome.run is None or artifact is None or outcome.run.artifact.get("sha256") == artifact.sha256
