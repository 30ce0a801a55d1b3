"""The status of a training, in a file of its run folder that can be read at any time."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.training.fit import TrainingRun
from nnpipe.training.run_folder import RunFolder

STATES = ("running", "completed", "failed", "cancelled")
_KIND, _LARGEST = "nnpipe run status", 100_000
_LONGEST = 4000  # characters of a reason


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The last status that a training wrote.

    The status of a killed training stays ``running``, while its ``process`` no
    longer exists.

    Parameters
    ----------
    state
        One of :data:`STATES`; ``cancelled`` after Ctrl-C.
    epoch, epochs
        The current or last epoch, and the number of epochs of the whole training.
    step
        Number of optimiser steps so far.
    changed
        The time of writing, in UTC.
    process, machine
        The process and the machine that wrote it.
    reason
        Why it stopped early: the error, or that the monitored figure did not improve.
    best_epoch
        The best epoch so far, 0 if none is known.
    """

    state: str
    epoch: int
    epochs: int
    step: int
    changed: str
    process: int
    machine: str
    reason: str = ""
    best_epoch: int = 0


def read_status(folder: RunFolder) -> RunStatus | None:
    """Return the last status of a folder's training, or None if there is none or a loss of power
    left it empty.

    Raises
    ------
    ConfigError
        If the file is damaged or of another kind.
    """
    path = folder.status
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST)
        if not text:
            return None
        content = parse_json(text)
        if (
            content.pop("kind") != _KIND
            or content.pop("schema") != 1
            or content["state"] not in STATES
        ):
            raise ValueError("it is of another kind or newer")
        return RunStatus(**content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path}: not the status of a run: {error}") from None


def tell(fit: TrainingRun, state: str, reason: str = "") -> None:
    """Write the status of a training, if it has a folder."""
    if fit.folder is None:
        return
    status = RunStatus(
        state=state,
        epoch=fit.epoch,
        epochs=fit.options.num_epochs,
        step=fit.step,
        changed=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        process=os.getpid(),
        machine=platform.node(),
        reason=reason[:_LONGEST],
        best_epoch=fit.best_epoch,
    )
    content: dict[str, Any] = {"kind": _KIND, "schema": 1, **asdict(status)}
    # What must survive a loss of power is the checkpoint: short epochs need not wait for two files.
    write_text(fit.folder.status, json.dumps(content, indent=1) + "\n", durable=state != "running")
