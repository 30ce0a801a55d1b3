"""A contest of candidates: each is measured alone for its accuracy, and then all take turns."""

from __future__ import annotations

import datetime
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.progress import Progress
from nnpipe.measuring.comparison import Comparison, with_turns
from nnpipe.measuring.interleaving import interleave
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.measuring.run import Run
from nnpipe.workflows.candidates.measure import Verification, measure_apart
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.worker_pool import Stage
from nnpipe.workflows.progress import bar

log = logging.getLogger("nnpipe")


@dataclass(frozen=True)
class Contest:
    """What is compared with what, and how each is measured beforehand.

    Parameters
    ----------
    candidates
        Each with what it is held against, if it is compiled.
    dataset
        Its test split is used.
    measure
        Batch size, samples and warm-up of all.
    limit
        Seconds that each step may take; 0 for no limit.
    failures
        Why others could not be compiled, by title.
    """

    candidates: Sequence[tuple[CandidateSpec, Verification | None]]
    dataset: Dataset
    measure: MeasureOptions
    limit: float = 0.0
    failures: Mapping[str, str] = field(default_factory=dict)


def carried_out(
    contest: Contest, plan: ComparisonPlan, *, title: str = "", command: Sequence[str] = (), progress: Progress = bar
) -> tuple[Comparison, bool]:
    """Run each candidate alone for its accuracy, and then all side by side.

    Returns
    -------
    Comparison
        What was found.
    bool
        Whether Ctrl-C ended it.

    Raises
    ------
    ConfigError
        If fewer than two candidates can be measured.
    """
    failures = dict(contest.failures)
    runs: list[Run] = []
    able: list[CandidateSpec] = []
    with tempfile.TemporaryDirectory(prefix="nnpipe-") as folder:
        for candidate, verification in contest.candidates:
            output = Path(folder, "run.json")
            try:
                run = measure_apart(
                    candidate, contest.dataset, contest.measure, command, output, verification, contest.limit
                )
                runs.append(run)
                able.append(candidate)
            except NNPipeError as error:
                log.error("%s failed: %s", candidate.title, error)
                failures[candidate.title] = str(error)
    if len(able) < 2:
        raise ConfigError(f"fewer than two candidates could be measured: {'; '.join(failures.values())}")
    stage = Stage(able, contest.dataset, batch_size=contest.measure.inference_batch_size, limit=contest.limit)
    plan = replace(plan, warmup_runs=contest.measure.warmup_runs)
    record = interleave(len(able), stage.open, plan, progress=progress)
    failures |= {able[place].title: str(error) for place, error in sorted(record.failures.items())}
    found = Comparison(
        title=title or " against ".join(candidate.title for candidate in able),
        plan=plan,
        runs=tuple(with_turns(run, record, place) for place, run in enumerate(runs)),
        failures=failures,
        command=tuple(command),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        seconds=round(record.seconds, 3),
    )
    return found, record.interrupted
