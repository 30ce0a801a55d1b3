"""What the run database tells about a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run as it was when the database was asked.

    Parameters
    ----------
    id
        32 hexadecimal digits.
    experiment
        The name of the experiment; several runs may bear it, one after another.
    status
        One of :data:`nnpipe.experiment.status.NEXT`.
    reason
        Why it is so; for ``failed`` the error.
    done, total
        Steps of how many; ``total`` is 0 where nobody knows.
    created, started, ended
        Seconds since 1970 UTC; ``started`` is the last time that it was taken up.
    host, process
        Where it ran last; ``process`` is ``None`` unless it runs.
    environment
        Versions and platform, as :func:`nnpipe.experiment.provenance.environment` gives them.
    configuration
        The tree that it was built from.
    parents
        Identities of the runs that it builds on.
    statistics
        By name, the mean of each statistic.
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
        """Seconds from when it was last taken up to its end."""
        return None if self.started is None or self.ended is None else self.ended - self.started


@dataclass(frozen=True, kw_only=True)
class ArtifactRecord:
    """Something that a run left: ``kind`` is ``state``, ``arrays`` or ``file``; ``digest`` its SHA-256."""

    name: str
    kind: str
    digest: str
    size: int
    suffix: str
    created: float
