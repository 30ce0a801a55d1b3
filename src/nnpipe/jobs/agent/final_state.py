"""Determine the final state of a job."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

SUPERVISOR_KILLED = "the process that supervised it was killed"
GUARD_KILLED = "the process that guarded its supervisor was killed"
RESTARTED = "the machine was restarted while it ran"
VANISHED = "all its processes were killed"
NEVER_STARTED = "it was never started: the command that submitted it was ended"


def ended(
    job: Mapping[str, Any],
    *,
    status: int | None = None,
    cancelled: bool = False,
    cause: str = "",
    outputs: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the record of a job's end.

    Parameters
    ----------
    job
        The job.
    status
        The script's exit status, negative for a signal; None if it did not end by itself.
    cancelled
        Whether the job was cancelled.
    cause
        Another reason for the end.
    outputs
        The result of the check of the outputs.

    Returns
    -------
    dict
        ``state`` (completed, cancelled or failed), ``reason``, ``status``, ``outputs``, ``attempt`` and ``at``,
        seconds since 1970.
    """
    state, reason = _judged(status, cancelled, cause, outputs)
    return {
        "state": state, "reason": reason, "status": status, "outputs": [dict(one) for one in outputs],
        "attempt": job.get("attempt", 1), "at": time.time(),
    }  # fmt: skip


def _judged(status: int | None, cancelled: bool, cause: str, outputs: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    if cancelled:
        return "cancelled", cause
    if cause:
        return "failed", cause
    if status is None:
        return "failed", "nobody knows how it ended"
    if status < 0:
        return "failed", _killed(-status)
    if status:
        return "failed", f"the script ended with status {status}"
    faults = [f"{one['path']} {one['fault']}" for one in outputs if one["fault"]]
    if faults:
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        return "failed", f"the script ended with status 0, but {'; '.join(faults[:3])}{more}"
    return "completed", ""


def _killed(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"the script was ended by {name}{hint}"
