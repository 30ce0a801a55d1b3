"""Where workers run, and with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.core.secret import Variables
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.workflows.workers.machine_turns import is_of_kind
from nnpipe.workflows.workers.worker_place import WorkerPlace


@dataclass(frozen=True)
class WorkerOptions:
    """Where the workers of a search or a sweep run, and with what.

    Parameters
    ----------
    places
        The places, each with its number of workers.
    python
        The interpreter on other machines, which has nnpipe.
    send
        Files and folders that workers on other machines need beside them.
    environment
        Further environment variables of workers.
    folder
        The folder of the jobs on this machine.
    storage
        The storage through which workers exchange files; empty without one.
    measure_on
        The kind of the machines that measure, see :func:`~nnpipe.workflows.workers.machine_turns.is_of_kind`; empty
        for all.
    """

    places: Sequence[WorkerPlace]
    python: str = "python3"
    send: Sequence[Path] = ()
    environment: Variables = field(default_factory=dict, repr=False)
    folder: Path = Path("build/workers")
    storage: str = ""
    measure_on: str = ""

    @property
    def elsewhere(self) -> bool:
        """Whether some are on other machines."""
        return any(not place.here for place in self.places)

    def check(self, database: RunDatabase) -> None:
        """Raise :class:`ConfigError` if workers elsewhere cannot reach a database, or none can measure."""
        if self.elsewhere and "://" not in database.opened_by[0]:
            raise ConfigError(
                f"{database.shown}: a file of SQLite is for one machine; workers on others need PostgreSQL: "
                "--database postgresql://user@host/name"
            )
        if not self.elsewhere and not is_of_kind(self.measure_on):
            raise ConfigError(
                f"--measure-on: this machine is not of the kind {self.measure_on!r}, and no worker runs elsewhere; "
                "give a place that is, with --on"
            )
