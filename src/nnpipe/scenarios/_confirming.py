"""Measuring the chosen candidate again.

The best of many measurements is partly the luckiest of many.  What is chosen
is therefore measured anew, and only what holds then is certified; otherwise the
next one has its turn.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NNPipeError
from nnpipe.measure.run import Run
from nnpipe.scenarios._choosing import Claim, Judged, claims_of, tell
from nnpipe.scenarios._figures import Figures
from nnpipe.scenarios._ledger import Ledger, Outcome
from nnpipe.scenarios._sweepfile import Sweep
from nnpipe.scenarios._sweeping import measured

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


def confirmed(sweep: Sweep, candidates: Sequence[Judged], command: Sequence[str]) -> Confirmed:
    """Measure candidates again, the best first, until one holds."""
    ledger = Ledger(sweep.output / "confirmations")
    refuted: dict[str, str] = {}
    for candidate in candidates:
        outcome = ledger.read(candidate.done.key)
        if outcome is None:
            log.info("\nmeasuring the best again: %s", candidate.title)
            outcome = _again(sweep, candidate, ledger.working_path(candidate.done.key), command)
            ledger.write(candidate.done.key, candidate.title, outcome)
        if outcome.run is None:
            refuted[candidate.title] = outcome.reason
            continue
        claims = claims_of(sweep, Figures(outcome.run, candidate.reference))
        if all(claim.holds for claim in claims):
            return Confirmed(candidate, outcome.run, claims, refuted)
        refuted[candidate.title] = "; ".join(tell(claim) for claim in claims if not claim.holds)
    return Confirmed(None, None, (), refuted)


def _again(sweep: Sweep, candidate: Judged, output: Path, command: Sequence[str]) -> Outcome:
    path = candidate.done.artifact
    try:
        artifact = None if path is None else Artifact.read(path)
    except NNPipeError as error:
        return Outcome(None, str(error))
    return measured(sweep, candidate.done.point, artifact, output, command)
