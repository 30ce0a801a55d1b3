"""Whether an input pipeline is fast enough for its consumer, and advice if it is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnpipe.core.argument_checks import check_call

_ENOUGH = 0.05
"""The share of waiting time below which no advice is given."""


@dataclass(kw_only=True)
class Meter:
    """Counts and times at the consumer's end of a pipeline; times in nanoseconds."""

    batches: int = 0
    samples: int = 0
    start_ns: int = 0
    stall_ns: int = 0
    step_ns: int = 0

    def __post_init__(self) -> None:
        check_call(Meter, vars(self))


@dataclass(frozen=True, kw_only=True)
class StageFigures:
    """Counts and times of one stage.

    Parameters
    ----------
    name
        Name of the function that a map applies.
    workers
        Number of worker processes; 0 if a map runs in this process.
    busy_ns
        Time spent in the function by all workers, in nanoseconds.
    wall_ns
        Time between the first and the last result, in nanoseconds.
    samples
        Number of samples that the function processed.
    dropped, dropped_ids
        Number of samples that were left out after an error, and ids of the first ones.
    fresh, delivered
        For a reservoir: number of samples that were delivered at least once, and of all deliveries.
    """

    name: str = ""
    workers: int = 0
    busy_ns: int = 0
    wall_ns: int = 0
    samples: int = 0
    dropped: int = 0
    dropped_ids: tuple[int, ...] = ()
    fresh: int = 0
    delivered: int = 0

    def __post_init__(self) -> None:
        check_call(StageFigures, vars(self))


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The performance of an input pipeline.

    Parameters
    ----------
    batches, samples
        Numbers of delivered batches and samples.
    start_seconds
        Time until the first batch of each iteration, including the start of workers.
    stall_seconds, step_seconds
        Time for which the consumer waited for the other batches, and time of its own steps.
    workers
        Number of worker processes of all maps.
    worker_efficiency
        Share of the workers' time spent in the functions; None if there are no workers.
    reuse
        Mean number of deliveries of a reservoir's sample; None if there is no reservoir.
    dropped, dropped_ids
        Number of samples that were left out after errors, and the first hundred ids of each map.
    advice
        Advice, one sentence each.
    """

    batches: int
    samples: int
    start_seconds: float
    stall_seconds: float
    step_seconds: float
    workers: int = 0
    worker_efficiency: float | None = None
    reuse: float | None = None
    dropped: int = 0
    dropped_ids: tuple[int, ...] = ()
    advice: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_call(Diagnosis, vars(self))

    @property
    def stall_share(self) -> float:
        """The share of the time, after the first batch, for which the consumer waited."""
        total = self.stall_seconds + self.step_seconds
        return self.stall_seconds / total if total else 0.0

    def __str__(self) -> str:
        lines = [
            f"{self.samples} samples in {self.batches} batches; {self.start_seconds:.3g} s to the "
            f"first batches,"
            f" {self.stall_seconds:.3g} s waiting ({self.stall_share:.0%}), "
            f"{self.step_seconds:.3g} s between"
        ]
        if self.worker_efficiency is not None:
            lines.append(
                f"{self.workers} workers, busy for {self.worker_efficiency:.0%} of the time"
            )
        if self.reuse is not None:
            lines.append(f"each sample of the reservoir was handed out {self.reuse:.3g} times")
        return "\n".join([*lines, *(f"- {sentence}" for sentence in self.advice)])


def diagnose(meter: Meter, stages: Sequence[StageFigures]) -> Diagnosis:
    """Return the diagnosis that follows from the counts of the consumer's end and of all stages."""
    workers = sum(stage.workers for stage in stages)
    offered = sum(stage.workers * stage.wall_ns for stage in stages)
    efficiency = (
        min(1.0, sum(s.busy_ns for s in stages if s.workers) / offered) if offered else None
    )
    reservoirs = [stage for stage in stages if stage.fresh]
    found = Diagnosis(
        batches=meter.batches,
        samples=meter.samples,
        start_seconds=meter.start_ns / 1e9,
        stall_seconds=meter.stall_ns / 1e9,
        step_seconds=meter.step_ns / 1e9,
        workers=workers,
        worker_efficiency=efficiency,
        reuse=reservoirs[0].delivered / reservoirs[0].fresh if reservoirs else None,
        dropped=sum(stage.dropped for stage in stages),
        dropped_ids=tuple(number for stage in stages for number in stage.dropped_ids),
    )
    return Diagnosis(**{**found.__dict__, "advice": tuple(_build_advice(found, stages))})


def _build_advice(found: Diagnosis, stages: Sequence[StageFigures]) -> list[str]:
    if not found.batches:
        return ["Nothing was read yet."]
    said = []
    stalled = found.stall_share > _ENOUGH
    maps = [stage for stage in stages if stage.busy_ns]
    slowest = max(maps, key=lambda stage: stage.busy_ns / max(1, stage.workers), default=None)
    if not stalled:
        said.append("The input keeps up: the consumer hardly waited.")
    elif slowest is None:
        said.append(
            "No map takes the time: the source does. Make reading cheaper, or keep the samples in "
            "memory."
        )
    else:
        said.append(_suggest_against_stalls(found, slowest))
    for stage in maps:
        share = (
            stage.busy_ns / (stage.workers * stage.wall_ns)
            if stage.workers and stage.wall_ns
            else 1.0
        )
        enough = max(1, math.ceil(stage.workers * share * 1.2))
        if not stalled and found.reuse is None and enough < stage.workers:
            said.append(f"{stage.name}: {enough} of the {stage.workers} workers would do.")
    if found.reuse is not None and found.reuse > 4:
        said.append(
            f"The reservoir hands out each sample {found.reuse:.3g} times, so the model sees few "
            f"fresh ones: "
            "use more workers, a cheaper function, or no reservoir."
        )
    if found.dropped:
        said.append(
            f"{found.dropped} samples were left out because a function raised; the log names them."
        )
    return said


def _suggest_against_stalls(found: Diagnosis, slowest: StageFigures) -> str:
    cost = f"{slowest.name} takes {slowest.busy_ns / max(1, slowest.samples) / 1e6:.3g} ms a sample"
    # If the consumer does almost nothing itself, no number of workers is enough.
    needed = (
        slowest.busy_ns / 1e9 / found.step_seconds
        if found.step_seconds > 0.05 * found.stall_seconds
        else 0.0
    )
    if not slowest.workers:
        own = slowest.busy_ns / 1e9
        if own < 0.5 * found.stall_seconds:
            return f"{cost}, but most of the waiting is for the source: make reading cheaper."
        number = max(1, math.ceil(needed)) if needed else "..."
        return (
            f"{cost} in the consumer's own process: give map(..., workers={number}), or make it "
            f"cheaper."
        )
    busy = slowest.busy_ns / (slowest.workers * slowest.wall_ns) if slowest.wall_ns else 1.0
    if busy > 0.8:
        number = max(slowest.workers + 1, math.ceil(needed)) if needed else "more"
        return (
            f"{cost}, and its workers are busy all the time: use {number} workers, or make it "
            f"cheaper."
        )
    return (
        f"{cost}, and its workers are busy for only {busy:.0%} of the time: they wait for the "
        f"source or for the "
        "consumer's next call. Use larger batches before the map, or a greater prefetch."
    )
