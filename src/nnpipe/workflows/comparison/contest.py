"""Measuring candidates: first each one alone for its quality, then all in turns."""

from __future__ import annotations

import datetime
import functools
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.leases import temporary_folder
from nnpipe.core.progress import Progress
from nnpipe.measuring.comparison import Comparison, with_turns
from nnpipe.measuring.interleaving import interleave
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.measuring.run import Run
from nnpipe.workflows.candidates.measure import Verification, measure_apart
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.worker_pool import Stage
from nnpipe.workflows.comparison.targets import TargetTurns
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.progress import bar

log = logging.getLogger("nnpipe")


@dataclass(frozen=True)
class Contest:
    """The candidates of a comparison, and how each is measured alone.

    Parameters
    ----------
    candidates
        The candidates, each with its source's outputs if it is compiled.
    dataset
        The data set, whose test split is used.
    measure
        Batch size, number of samples and warm-up of all candidates.
    limit
        The greatest time of each step in seconds; 0 for no limit.
    failures
        The reasons why other candidates could not be compiled, by title.
    devices, leases
        The device of each candidate on another machine, by title, and the run database in which people take turns.
    """

    candidates: Sequence[tuple[CandidateSpec, Verification | None]]
    dataset: Dataset
    measure: MeasureOptions
    limit: float = 0.0
    failures: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)
    leases: str = ""


def carried_out(
    contest: Contest, plan: ComparisonPlan, *, title: str = "", command: Sequence[str] = (), progress: Progress = bar
) -> tuple[Comparison, bool]:
    """Run each candidate alone for its quality, then all in turns.

    Returns
    -------
    Comparison
        The measurements and differences.
    bool
        Whether it was ended by Ctrl-C.

    Raises
    ------
    ConfigError
        If fewer than two candidates can be measured.
    """
    failures = dict(contest.failures)
    runs: list[Run] = []
    able: list[CandidateSpec] = []
    purpose = f"the comparison {title!r}" if title else "a comparison"
    with ExitStack() as stack:
        turns = stack.enter_context(TargetTurns(dict(contest.devices), contest.leases, purpose))
        output = stack.enter_context(temporary_folder()) / "run.json"
        for candidate, verification in contest.candidates:
            measure = functools.partial(_measured_alone, contest, candidate, verification, command, output)
            try:
                runs.append(turns.alone(candidate, measure))
                able.append(candidate)
            except NNPipeError as error:
                log.error("%s failed: %s", candidate.title, error)
                failures[candidate.title] = str(error)
        if len(able) < 2:
            raise ConfigError(f"fewer than two candidates could be measured: {'; '.join(failures.values())}")
        size = contest.measure.inference_batch_size
        stage = Stage(able, contest.dataset, batch_size=size, limit=contest.limit, turn=turns.together)
        plan = replace(plan, warmup_runs=contest.measure.warmup_runs)
        record = interleave(len(able), stage.open, plan, same_calls=_unlike_inputs(able), progress=progress)
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


def _measured_alone(
    contest: Contest, candidate: CandidateSpec, verification: Verification | None, command: Sequence[str],
    output: Path, worker: Worker | None,
) -> Run:  # fmt: skip
    return measure_apart(
        candidate, contest.dataset, contest.measure, command, output, verification, contest.limit, worker=worker
    )


def _unlike_inputs(candidates: Sequence[CandidateSpec]) -> bool:
    """Return whether samples have different shapes, such as texts, so that calls take unlike times."""
    return any(None in spec.shape[1:] for each in candidates for spec in each.wrapper.io.inputs)
