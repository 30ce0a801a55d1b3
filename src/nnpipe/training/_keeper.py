"""What of a training is kept: the last checkpoint, the best weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.statefile import read_state
from nnpipe.training._batches import Feed
from nnpipe.training._descent import Descent
from nnpipe.training._hooks import Hooks
from nnpipe.training._random import random_states, set_random_states
from nnpipe.training._tally import Tally
from nnpipe.training.checkpoints import BEST, CHECKPOINT, LAST, WEIGHTS, CheckpointWriter, copied
from nnpipe.training.distributed import Team
from nnpipe.training.fit import Fit
from nnpipe.training.runfolder import check_course
from nnpipe.training.runstatus import tell


class Keeper:
    """Copies the state of a training and has it written, and puts it back.

    A checkpoint is made between steps, never with gradients that wait for more.
    """

    def __init__(
        self,
        fit: Fit,
        hooks: Hooks,
        descent: Descent,
        writer: CheckpointWriter,
        team: Team,
        identity: Mapping[str, Any],
    ) -> None:
        self._fit = fit
        self._hooks = hooks
        self._descent = descent
        self._writer = writer
        self._team = team
        self._identity = dict(identity)

    def checkpoint(self, tallies: Mapping[str, Tally], feed: Feed | None, name: str = LAST) -> None:
        """Keep all that a resumed run needs; amid an epoch with its sums and the feed."""
        fit, descent = self._fit, self._descent
        if fit.folder is None:
            return
        own = {
            "random": random_states(fit.device),
            "tallies": {key: tally.state_dict() for key, tally in tallies.items()},
        }
        processes = self._team.gathered(own)
        state = {
            "course": self.course(),
            "fit": fit.state_dict(),
            "optimiser": descent.optimiser.state_dict(),
            "rate": descent.rate.state_dict(),
            "scaler": descent.scaler.state_dict() if descent.scaler is not None else None,
            "feed": feed.state_dict() if feed is not None else None,
            "inexact": inexact(fit.datasets),
            "callbacks": self._hooks.state_dict(),
            "processes": processes,
        }
        self._write(name, CHECKPOINT, state | self._weights())
        self.tell()

    def tell(self) -> None:
        """Say in the folder how far it is."""
        if self._team.rank == 0:
            tell(self._fit, "running")

    def best(self, monitor: str) -> None:
        """Keep the weights of the best epoch."""
        fit = self._fit
        if fit.folder is not None:
            self._write(BEST, WEIGHTS, self._weights() | {"epoch": fit.epoch, "monitor": monitor, "value": fit.best})

    def restore(self, path: Path) -> dict[str, Any] | None:
        """Go to where a checkpoint was made; give the sums and the feed's place if that is amid an epoch."""
        fit, descent = self._fit, self._descent
        state = read_state(path, kind=CHECKPOINT)
        check_course(path, state["course"], self.course())
        try:
            fit.model.load_state_dict(state["model"])
            descent.optimiser.load_state_dict(state["optimiser"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise ConfigError(f"{path}: of another model or optimiser: {error}") from None
        descent.rate.load_state_dict(state["rate"])
        if descent.scaler is not None:
            descent.scaler.load_state_dict(state["scaler"])
        if descent.average is not None:
            descent.average.load_state_dict(state["average"])
        fit.load_state_dict(state["fit"])
        self._hooks.load_state_dict(state["callbacks"])
        own = state["processes"][self._team.rank]
        set_random_states(own["random"])
        return None if state["feed"] is None else {"feed": state["feed"], "tallies": own["tallies"]}

    def course(self) -> dict[str, Any]:
        """Give what the weights depend on; a run can only be continued with the same."""
        splits = {name: list(parts) for name, parts in self._fit.datasets.items()}
        return self._fit.options.course() | {"datasets": splits, "processes": self._team.world} | self._identity

    def _weights(self) -> dict[str, Any]:
        average = self._descent.average
        return {"model": dict(self._fit.model.state_dict()), "average": average.state_dict() if average else None}

    def _write(self, name: str, kind: str, state: Mapping[str, Any]) -> None:
        if self._team.rank == 0 and self._fit.folder is not None:
            self._writer.write(self._fit.folder.checkpoint(name), copied(state), kind)


def inexact(datasets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Name the sequences whose batches depend on time, so that a resumed training sees others than it would have."""
    return [
        f"{name}/{split} ({_stage(sequence)})"
        for name, parts in datasets.items()
        for split, sequence in parts.items()
        if not getattr(sequence, "exact", True)
    ]


def _stage(sequence: Any) -> str:
    """Name the first stage, from the source on, that is not exact."""
    stages = [*sequence.stages()][::-1] if hasattr(sequence, "stages") else [sequence]
    return next((type(stage).__name__ for stage in stages if not stage.exact), type(sequence).__name__)
