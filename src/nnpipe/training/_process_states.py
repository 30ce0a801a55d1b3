"""What each process of a training has of its own in a checkpoint, also for another number of processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.training._metric_sums import WHOLE, MetricSums


@dataclass(frozen=True)
class ProcessState:
    """What a process takes from a checkpoint.

    Attributes
    ----------
    random
        The states of its random generators; None if it has to draw numbers of its own.
    tallies
        The sums of the metrics within an epoch, of all processes whose samples it has to count.
    gradients
        Gradients that no step has used, by optimiser.
    """

    random: Mapping[str, Any] | None
    tallies: Sequence[Mapping[str, Any]]
    gradients: Mapping[str, Any]

    def load_sums(self, sums: Mapping[str, MetricSums]) -> None:
        """Restore the sums of metrics by split."""
        for name, one in sums.items():
            if len(self.tallies) == 1:
                one.load_state_dict(self.tallies[0][name])
            else:
                one.join([states[name] for states in self.tallies])


def state_of(processes: Sequence[Mapping[str, Any]], rank: int, world: int, reduces: bool) -> ProcessState:
    """Return what the process ``rank`` of ``world`` takes from the states of the processes that made a checkpoint.

    If their number is the same, that is what it had.  Otherwise the first process counts the samples so far, and the
    gradients are divided so that the next step is what it would have been.

    Parameters
    ----------
    processes
        The states by rank.
    rank, world
        This process, and the number of processes now.
    reduces
        Whether gradients are exchanged only when a step is made; otherwise each process has their mean already.

    Raises
    ------
    ConfigError
        If a metric cannot be divided.
    """
    if len(processes) == world:
        own = processes[rank]
        return ProcessState(own["random"], [own["tallies"]], _kept(processes, rank))
    if any(one.get(WHOLE, {}).get("objects") for own in processes for one in own["tallies"].values()):
        raise ConfigError(
            f"this training has objects as of torchmetrics, and was stopped within an epoch by {len(processes)} "
            f"processes: go on with as many, not with {world}"
        )
    names = dict.fromkeys(name for own in processes for name in own.get("gradients", {}))
    return ProcessState(
        processes[rank]["random"] if rank < len(processes) else None,
        [own["tallies"] for own in processes] if rank == 0 else [],
        {name: _divided([own["gradients"][name] for own in processes if name in own.get("gradients", {})],
                        len(processes), rank, world, reduces)
         for name in names},
    )  # fmt: skip


def _kept(processes: Sequence[Mapping[str, Any]], rank: int) -> dict[str, Any]:
    """Return the gradients that a process had; of those that all have alike, only the first may have stored them."""
    first = processes[0].get("gradients", {})
    return {
        name: {**state, "gradients": state["gradients"] or first[name]["gradients"]} if state.get("shared") else state
        for name, state in processes[rank].get("gradients", {}).items()
    }


def _divided(states: Sequence[Mapping[str, Any]], before: int, rank: int, world: int, reduces: bool) -> dict[str, Any]:
    """Return a process's part of the gradients of an optimiser.

    A step divides the sum of all processes' gradients by the number of samples; where each has their mean, that
    is the sum divided by the number of processes.
    """
    shared = states[0].get("shared", False)
    sums: dict[str, Any] = {}
    for state in states[:1] if shared else states:
        for number, gradient in state["gradients"].items():
            value = gradient * before if shared else gradient
            sums[number] = sums[number] + value if number in sums else value
    means = world > 1 and not reduces
    return {
        "batches": states[0]["batches"],
        "samples": sum(state["samples"] for state in states) if rank == 0 else 0,
        "gradients": {number: value / world for number, value in sums.items()} if means else sums if rank == 0 else {},
        "shared": means,
    }
