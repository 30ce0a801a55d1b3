"""Measuring candidates: first each one alone for its quality, then all in turns."""

from __future__ import annotations

import datetime
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from nnpipe.core.closing import Closing
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.progress import Progress
from nnpipe.measuring.comparison import Comparison, with_turns
from nnpipe.measuring.interleaving import interleave
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.measuring.run import Run
from nnpipe.workflows.candidates.measure import Verification, measure_apart
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.worker_pool import CandidatePool
from nnpipe.workflows.devices.device import Device, Fleet
from nnpipe.workflows.devices.device_measuring import FleetMeasuring
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.progress import show_progress

Entry = tuple[CandidateSpec, "Verification | None"]


@dataclass(frozen=True)
class OnTargets:
    """The candidates of a comparison on devices.

    Parameters
    ----------
    candidates
        Each candidate on each device, with its source's outputs.
    devices
        The device of each, by its title; those of this machine are missing.
    impossible
        The reasons why others cannot be, by title.
    """

    candidates: tuple[Entry, ...]
    devices: dict[str, Device] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)


def on_targets(
    candidates: Sequence[Entry], fleet: Fleet | None, *, files: bool = False
) -> OnTargets:
    """Return every candidate on every device of a fleet; without one, the candidates as they are.

    Parameters
    ----------
    candidates
        The candidates on this machine.
    fleet
        The devices.
    files
        Whether the model files themselves are sent to devices, instead of what was compiled from
        them.  Otherwise, models that run in their own framework stay on this machine.

    Raises
    ------
    ConfigError
        If a candidate has a target of its own.
    """
    if fleet is None:
        return OnTargets(tuple(candidates))
    found = OnTargets(tuple(each for each in candidates if each[0].runtime is None and not files))
    entries = list(found.candidates)
    for device in fleet.devices:
        for spec, verification in candidates:
            if spec.deployment is not None:
                raise ConfigError(
                    f"{spec.title}: has a protocol of its own; leave that out, or the targets"
                )
            if spec.runtime is None and not files:
                continue
            title = f"{device.name}: {spec.title}"
            refusal = "" if spec.runtime is None else device.explain_refusal(type(spec.runtime))
            if refusal:
                found.impossible[title] = refusal
                continue
            deployment = next(iter(device.list_deployments().values()), None)
            if spec.runtime is not None:
                deployment = device.get_deployment(type(spec.runtime))
            entries.append((replace(spec, title=title, deployment=deployment), verification))
            if deployment is not None:
                found.devices[title] = device
    return replace(found, candidates=tuple(entries))


class TargetTurns(Closing):
    """How a comparison uses devices; used in a ``with`` block.

    Parameters
    ----------
    devices
        The device of each candidate, by its title; those of this machine are missing.
    leases
        The run database in which people take turns on devices; empty if nobody else uses them.
    title
        What the devices are used for.
    """

    def __init__(self, devices: dict[str, Device], leases: str, title: str) -> None:
        self._devices = devices
        self._fleet = FleetMeasuring(
            list({each.name: each for each in devices.values()}.values()), leases, title
        )

    def close(self) -> None:
        """End the processes of devices, and release the devices."""
        self._fleet.close()

    def alone(self, spec: CandidateSpec, measure: Callable[[Worker | None], Run]) -> Run:
        """Return what a candidate's measurement returns; on a device, it is repeated if that goes
        away meanwhile.

        Raises
        ------
        NNPipeError
            If it cannot be measured.
        """
        device = self._devices.get(spec.title)
        if device is None or spec.deployment is None:
            return measure(None)
        return self._fleet.on(device).measure(spec.deployment, measure)

    @contextmanager
    def together(self, specs: Sequence[CandidateSpec]) -> Iterator[None]:
        """Hold the devices of candidates in a block."""
        with ExitStack() as stack:
            names = {
                each.name: each
                for spec in specs
                if (each := self._devices.get(spec.title)) is not None
            }
            # in one order, so that two comparisons never wait for each other
            for name in sorted(names):
                stack.enter_context(self._fleet.lock_device(names[name]))
            yield


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
        The device of each candidate on another machine, by title, and the run database in which
        people take turns.
    """

    candidates: Sequence[tuple[CandidateSpec, Verification | None]]
    dataset: Dataset
    measure: MeasureOptions
    limit: float = 0.0
    failures: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)
    leases: str = ""


def run_comparison(
    contest: Contest,
    plan: ComparisonPlan,
    *,
    title: str = "",
    command: Sequence[str] = (),
    progress: Progress = show_progress,
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
        output = stack.enter_context(create_temporary_folder()) / "run.json"
        for candidate, verification in contest.candidates:
            measure = functools.partial(
                _measure_alone, contest, candidate, verification, command, output
            )
            try:
                runs.append(turns.alone(candidate, measure))
                able.append(candidate)
            except NNPipeError as error:
                log.error("%s failed: %s", candidate.title, error)
                failures[candidate.title] = str(error)
        if len(able) < 2:
            raise ConfigError(
                f"fewer than two candidates could be measured: {'; '.join(failures.values())}"
            )
        size = contest.measure.inference_batch_size
        stage = CandidatePool(
            able, contest.dataset, batch_size=size, limit=contest.limit, turn=turns.together
        )
        plan = replace(plan, warmup_runs=contest.measure.warmup_runs)
        record = interleave(
            len(able), stage.open, plan, same_calls=_has_varying_shapes(able), progress=progress
        )
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


def _measure_alone(
    contest: Contest,
    candidate: CandidateSpec,
    verification: Verification | None,
    command: Sequence[str],
    output: Path,
    worker: Worker | None,
) -> Run:
    return measure_apart(
        candidate,
        contest.dataset,
        contest.measure,
        command,
        output,
        verification,
        contest.limit,
        worker=worker,
    )


def _has_varying_shapes(candidates: Sequence[CandidateSpec]) -> bool:
    """Return whether samples have different shapes, such as texts, so that calls take unlike
    times.
    """
    return any(None in spec.shape[1:] for each in candidates for spec in each.wrapper.io.inputs)
