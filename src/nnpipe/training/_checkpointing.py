"""Writing a training's last checkpoint and best weights, and restoring them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.state_file import read_state
from nnpipe.training._batches import BatchSource
from nnpipe.training._hooks import Hooks
from nnpipe.training._random import get_random_states, set_random_states
from nnpipe.training._steps import Steps
from nnpipe.training._whole_metrics import WHOLE, MetricSums
from nnpipe.training.checkpoints import (
    BEST,
    CHECKPOINT,
    LAST,
    WEIGHTS,
    CheckpointWriter,
    copy_state,
    read_checkpoint,
)
from nnpipe.training.distributed import Team, gather_shards, load_weights
from nnpipe.training.fit import TrainingRun
from nnpipe.training.run_folder import check_same_settings
from nnpipe.training.run_status import tell


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


def select_process_state(
    processes: Sequence[Mapping[str, Any]], rank: int, world: int, reduces: bool
) -> ProcessState:
    """Return what the process ``rank`` of ``world`` takes from the states of the processes that
    made a checkpoint.

    If their number is the same, that is what it had.  Otherwise the first process counts the
    samples so far, and the gradients are divided so that the next step is what it would have been.

    Parameters
    ----------
    processes
        The states by rank.
    rank, world
        This process, and the number of processes now.
    reduces
        Whether gradients are exchanged only when a step is made; otherwise each process has their
        mean already.

    Raises
    ------
    ConfigError
        If a metric cannot be divided.
    """
    if len(processes) == world:
        own = processes[rank]
        return ProcessState(own["random"], [own["tallies"]], _select_gradients(processes, rank))
    if any(
        one.get(WHOLE, {}).get("objects") for own in processes for one in own["tallies"].values()
    ):
        raise ConfigError(
            f"this training has objects as of torchmetrics, and was stopped within an epoch by "
            f"{len(processes)} processes: go on with as many, not with {world}"
        )
    names = dict.fromkeys(name for own in processes for name in own.get("gradients", {}))
    return ProcessState(
        processes[rank]["random"] if rank < len(processes) else None,
        [own["tallies"] for own in processes] if rank == 0 else [],
        {
            name: _split_gradients(
                [own["gradients"][name] for own in processes if name in own.get("gradients", {})],
                len(processes),
                rank,
                world,
                reduces,
            )
            for name in names
        },
    )


def _select_gradients(processes: Sequence[Mapping[str, Any]], rank: int) -> dict[str, Any]:
    """Return the gradients that a process had; of those that all have alike, only the first may
    have stored them.
    """
    first = processes[0].get("gradients", {})
    return {
        name: {**state, "gradients": state["gradients"] or first[name]["gradients"]}
        if state.get("shared")
        else state
        for name, state in processes[rank].get("gradients", {}).items()
    }


def _split_gradients(
    states: Sequence[Mapping[str, Any]], before: int, rank: int, world: int, reduces: bool
) -> dict[str, Any]:
    """Return a process's part of the gradients of an optimiser.

    A step divides the sum of all processes' gradients by the number of samples; where each has
    their mean, that is the sum divided by the number of processes.
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
        "gradients": {number: value / world for number, value in sums.items()}
        if means
        else sums
        if rank == 0
        else {},
        "shared": means,
    }


_BEST_BEFORE_CUT = "best-before-cut.state"
"""The best weights before an epoch that ``max_steps`` cut short, while those of that epoch are
the best.
"""


@dataclass(frozen=True)
class EpochVerdict:
    """What the monitored figure says of an epoch.

    Attributes
    ----------
    monitor, value
        The name of the figure, and the figure; "" and NaN if there is none.
    best
        Whether it is the best epoch so far.
    kept, dropped
        Whether it is one of the ``keep_best`` best ones, and the epoch that no longer is.
    """

    monitor: str = ""
    value: float = math.nan
    best: bool = False
    kept: bool = False
    dropped: int | None = None


class Checkpointer:
    """Copies the state of a training, has it written in the background, and restores it.

    A checkpoint is made between batches, and holds the gradients that no step has used.
    """

    def __init__(
        self,
        fit: TrainingRun,
        hooks: Hooks,
        step: Any,
        steps: Steps,
        writer: CheckpointWriter,
        team: Team,
        course: Mapping[str, Any],
    ) -> None:
        self._fit = fit
        self._hooks = hooks
        # A step with values of its own has a state, as modules do.
        self._step = (
            step if hasattr(step, "state_dict") and hasattr(step, "load_state_dict") else None
        )
        self._steps = steps
        self._writer = writer
        self._team = team
        self._course = dict(course)
        self._rows = writer.rows
        self._best: Mapping[str, Any] | None = None

    def begin(self) -> None:
        """Write a checkpoint before the first step, to which a training that diverges can go
        back.
        """
        self._save((LAST,), {}, None)

    def checkpoint(self, metric_sums: Mapping[str, MetricSums], feed: BatchSource) -> None:
        """Write a checkpoint within an epoch, with the sums of its metrics and the place in its
        batches.
        """
        self._save((LAST,), metric_sums, feed)

    def epoch(self, verdict: EpochVerdict, feed: BatchSource | None) -> None:
        """Write a checkpoint at the end of an epoch, and its weights if it is one of the best.

        ``feed`` is the place in the batches if a pass through the data is not over; None if it is.
        """
        fit = self._fit
        every = fit.options.keep_every
        names = (f"epoch-{fit.epoch:04d}.state",) if every and fit.epoch % every == 0 else ()
        # Written last: a run that finds this one needs all others before it.
        self._save((*names, LAST), {}, feed, verdict)
        if verdict.dropped is not None and fit.folder is not None and self._team.rank == 0:
            self._writer.wait()
            fit.folder.checkpoint(_format_best_name(verdict.dropped)).unlink(missing_ok=True)

    def save_cut_epoch(self, verdict: EpochVerdict) -> None:
        """Write the weights of an epoch that ``max_steps`` cut short, if it is one of the best.

        The last checkpoint stays that of the last step, and the best weights so far are kept beside
        the new ones: a training with more steps goes on from both.
        """
        if verdict.best and self._fit.folder is not None and self._team.rank == 0:
            self._writer.wait()
            best = self._fit.folder.checkpoint(BEST)
            if best.exists():
                best.replace(self._fit.folder.checkpoint(_BEST_BEFORE_CUT))
        self._save((), {}, None, verdict)

    def _save(
        self,
        names: tuple[str, ...],
        metric_sums: Mapping[str, MetricSums],
        feed: BatchSource | None,
        verdict: EpochVerdict | None = None,
    ) -> None:
        fit = self._fit
        if fit.folder is None:
            if verdict is not None and verdict.best and fit.options.weights == "best":
                self._best = copy_state(self._get_weights())
            return
        own: dict[str, Any] = {
            "random": get_random_states(fit.device),
            "tallies": {key: sums.state_dict() for key, sums in metric_sums.items()},
        }
        first = self._team.rank == 0
        if gradients := gather_shards(self._steps.gradients(), first):
            own["gradients"] = {
                name: {**one, "gradients": _filter_present(one["gradients"])}
                for name, one in gradients.items()
            }
        processes = self._team.gather(own)
        # All processes have to take part in these, and only the first receives tensors that are
        # divided.
        weights, states = (
            gather_shards(self._get_weights(), first),
            gather_shards(self._steps.state_dict(), first),
        )
        swa = (
            None if self._steps.swa is None else gather_shards(self._steps.swa.state_dict(), first)
        )
        if first:
            state = {
                "course": self._course,
                "fit": fit.state_dict(),
                **states,
                "feed": feed.state_dict() if feed is not None else None,
                "inexact": find_inexact_sequences(fit.datasets),
                "callbacks": self._hooks.state_dict(),
                "processes": processes,
            }
            if feed is not None and verdict is not None:
                state["between"] = True  # epochs, amid a pass through the data
            if self._step is not None:
                state["step"] = self._step.state_dict()
            if swa is not None:
                state["swa"] = swa
            copy = self._writer.copy_state(
                {"state": state, "weights": weights}
            )  # one for all files
            if verdict is not None:
                about = {"epoch": fit.epoch, "monitor": verdict.monitor, "value": verdict.value}
                kept = [BEST] if verdict.best else []
                if verdict.kept:
                    kept.append(_format_best_name(fit.epoch))
                for name in kept:
                    self._writer.write(
                        fit.folder.checkpoint(name), copy["weights"] | about, WEIGHTS
                    )
            for name in names:
                self._writer.write(
                    fit.folder.checkpoint(name), copy["state"] | copy["weights"], CHECKPOINT
                )
        self.tell()

    def wait(self) -> None:
        """Wait until everything is written; raise what went wrong."""
        self._writer.wait()

    def load_best_weights(self) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """Return the best epoch's weights, and their moving average if there is one; all
        processes must call it.
        """
        found: Mapping[str, Any] | None = self._best
        if self._fit.folder is not None:
            self._writer.wait()
            self._team.gather(None)  # only the first process writes; all read
            found = read_state(self._fit.folder.checkpoint(BEST), kind=WEIGHTS)
        assert found is not None  # there is a best epoch
        return found["model"], found["average"]

    def tell(self) -> None:
        """Write the training's progress into the run's folder."""
        if self._team.rank == 0:
            tell(self._fit, "running")

    def restore(self, path: Path) -> dict[str, Any] | None:
        """Restore a checkpoint; if it was made within a pass, return the place in its batches, and
        this process's part.

        The latter is None if an epoch ended there.
        """
        fit, steps = self._fit, self._steps
        state = read_checkpoint(path, self._rows)
        check_same_settings(path, state["course"], self._course)
        try:
            load_weights(fit.model, state["model"])
            steps.load_state_dict(state)
        except (RuntimeError, ValueError, KeyError) as error:
            raise ConfigError(f"{path}: of another model or optimiser: {error}") from None
        if steps.average is not None:
            steps.average.load_state_dict(state["average"])
        if self._step is not None and "step" in state:
            self._step.load_state_dict(state["step"])
        fit.load_state_dict(state["fit"])
        self._hooks.load_state_dict(state["callbacks"])
        team, processes = self._team, state["processes"]
        own = select_process_state(processes, team.rank, team.world, steps.reduces)
        if len(processes) != team.world and team.rank == 0:
            fit.log.warning(
                "%s: written by %d processes; with %d it goes on, but not to the bit",
                path,
                len(processes),
                team.world,
            )
        if steps.swa is not None and "swa" in state:
            steps.swa.load_state_dict(state["swa"])
        steps.discard(None)
        steps.load_gradients(own.gradients)
        if own.random is not None:
            set_random_states(own.random, fit.device)
        self._remove_worse(path.parent)
        before_cut = path.with_name(_BEST_BEFORE_CUT)
        if team.rank == 0 and before_cut.exists():
            before_cut.replace(path.with_name(BEST))
        if state["feed"] is None:
            return None
        return {"feed": state["feed"], "own": None if state.get("between") else own}

    def _remove_worse(self, folder: Path) -> None:
        """Remove the weights of epochs that are not among the best; a process that was killed
        may have left some.
        """
        fit = self._fit
        if fit.options.keep_best == 1:
            return
        fit.kept = fit.kept[: fit.options.keep_best]
        if self._team.rank:
            return
        kept = {_format_best_name(epoch) for epoch, _ in fit.kept}
        for path in folder.glob("best-*.state"):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def _get_weights(self) -> dict[str, Any]:
        average = self._steps.average
        return {
            "model": dict(self._fit.model.state_dict()),
            "average": average.state_dict() if average else None,
        }


def _filter_present(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _format_best_name(epoch: int) -> str:
    return f"best-{epoch:04d}.state"


def find_inexact_sequences(datasets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Name the sequences whose batches depend on timing, so that a resumed training sees
    different ones.
    """
    return [
        f"{name}/{split} ({_find_inexact_stage(sequence)})"
        for name, parts in datasets.items()
        for split, sequence in parts.items()
        if not getattr(sequence, "exact", True)
    ]


def _find_inexact_stage(sequence: Any) -> str:
    """Return the name of the first stage, counted from the source, that is not exact."""
    stages = [*sequence.stages()][::-1] if hasattr(sequence, "stages") else [sequence]
    return next(
        (type(stage).__name__ for stage in stages if not stage.exact), type(sequence).__name__
    )
