"""The trials of a search: one configuration each, tried once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

TrialState = Literal["waiting", "running", "finished", "failed", "pruned"]

ENDED: tuple[TrialState, ...] = ("finished", "failed", "pruned")


class LeaseLost(Exception):
    """A worker wrote to a trial that is no longer its own: its lease expired, and another worker may have the trial."""


@dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """A trial as it was when the store was read.

    Parameters
    ----------
    number
        Its number within the search, from 0.
    configuration
        The values of the parameters that exist in this trial, by name; ``None`` while none has been proposed.
    state
        ``waiting`` (for a worker), ``running``, ``finished``, ``failed`` or ``pruned``.
    values
        The value of each objective, by name; those of a pruned trial are the last known ones, if there are any.
    reports
        Intermediate values as pairs of step and value, in the order of their steps.
    notes
        What the sampler stored with the trial, in the form of JSON.
    intervals
        The ends of the interval of each value that was measured with uncertainty, by name.
    files
        The SHA-256 of the list of files that belong to it in a storage; empty without any.
    seconds
        The time from the start of its last attempt to its end; ``None`` before the end.
    message
        Why it failed, or what else there is to say about its end.
    worker
        The name of the worker that has or had it.
    fence
        How many leases have been given for this trial.  A worker may write to it only with the last one.
    origin
        Where it was taken over from, such as an earlier run; empty for a trial of this search.
    version
        The version of the store in which the trial changed last.
    """

    number: int
    configuration: Mapping[str, Any] | None
    state: TrialState = "waiting"
    values: Mapping[str, float] = field(default_factory=dict)
    reports: tuple[tuple[int, float], ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    files: str = ""
    seconds: float | None = None
    message: str = ""
    worker: str = ""
    fence: int = 0
    origin: str = ""
    version: int = 0

    @property
    def ended(self) -> bool:
        """Whether the trial has ended, in any way."""
        return self.state in ENDED


@dataclass(frozen=True)
class TrialResult:
    """What a trial gave: ``values``, ``intervals`` and ``files`` as in :class:`SearchTrial`."""

    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    files: str = ""


@dataclass(frozen=True)
class Proposal:
    """The configuration for a trial, and what the sampler notes with it, in the form of JSON."""

    configuration: Mapping[str, Any]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierTrial:
    """A configuration that was tried before a search, and the values that it gave."""

    configuration: Mapping[str, Any]
    values: Mapping[str, float]
    origin: str


@dataclass(frozen=True)
class TrialLease:
    """The right of one worker to carry out a trial until ``expires``, in seconds since 1970 UTC."""

    trial: SearchTrial
    worker: str
    fence: int
    expires: float


@dataclass(frozen=True)
class TrialChanges:
    """The trials that changed after a version of the store, and its version now."""

    version: int
    trials: tuple[SearchTrial, ...]


def configuration_key(configuration: Mapping[str, Any]) -> str:
    """Return a text that is equal for equal configurations only, whatever the order of their names."""
    return json.dumps(dict(configuration), sort_keys=True, separators=(",", ":"))
