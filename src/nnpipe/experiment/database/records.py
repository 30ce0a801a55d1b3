"""Records that the run database returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run as it was when the database was read.

    Parameters
    ----------
    id
        32 hexadecimal digits.
    experiment
        The name of the experiment; several runs may have the same one.
    status
        One of :data:`nnpipe.experiment.status.NEXT`.
    reason
        The reason for the status; for ``failed`` the error.
    done, total
        Number of finished steps, and of all steps; ``total`` is 0 if it is not known.
    created, started, ended
        Times in seconds since 1970 UTC; ``started`` is the last start.
    host, process
        The machine and the process that ran it last; ``process`` is ``None`` unless it is running.
    environment
        Versions and platform, from :func:`nnpipe.experiment.provenance.describe_environment`.
    configuration
        The tree that it was built from.
    parents
        Identities of the runs on which it is based.
    statistics
        The mean of each statistic, by name.
    """

    id: str
    experiment: str
    status: str
    reason: str
    done: int
    total: int
    created: float
    started: float | None
    ended: float | None
    host: str
    process: int | None
    environment: Mapping[str, Any] = field(repr=False)
    configuration: Mapping[str, Any] = field(repr=False)
    parents: tuple[str, ...]
    statistics: Mapping[str, float]

    @property
    def duration(self) -> float | None:
        """Seconds from its last start to its end."""
        return None if self.started is None or self.ended is None else self.ended - self.started


@dataclass(frozen=True, kw_only=True)
class ArtifactRecord:
    """An artifact of a run: ``kind`` is ``state``, ``arrays`` or ``file``; ``digest`` is its
    SHA-256.
    """

    name: str
    kind: str
    digest: str
    size: int
    suffix: str
    created: float
