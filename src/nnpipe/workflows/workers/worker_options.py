"""Where workers run, and with what."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.core.secret import Variables
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.local import HERE
from nnpipe.jobs.place_address import create_place
from nnpipe.workflows.workers.machine_turns import is_of_kind

MOST_WORKERS = 256


@dataclass(frozen=True)
class WorkerPlace:
    """A place with its number of workers.

    Parameters
    ----------
    address
        The place, as in :func:`~nnpipe.jobs.place_address.create_place`.
    count
        How many workers it has.
    """

    address: str
    count: int

    @property
    def here(self) -> bool:
        """Whether it is this machine."""
        return self.address == HERE

    def names(self) -> list[str]:
        """Return a name for each worker; it is the same whenever the place is used."""
        where = platform.node() if self.here else self.address
        return [f"{where} {number}" for number in range(1, self.count + 1)]

    @classmethod
    def parse(cls, text: str, count: int = 1) -> WorkerPlace:
        """Return the place of ``here``, ``ssh:HOST``, ``ssh://USER@HOST:PORT`` or
        ``ray://HOST:PORT``.

        With ``=N`` at the end it has so many workers, otherwise ``count``.

        Raises
        ------
        ConfigError
            If it is something else.
        """
        where, sign, number = text.strip().rpartition("=")
        if not sign:
            where = text.strip()
        elif not number.isdigit() or not 1 <= int(number) <= MOST_WORKERS:
            raise ConfigError(
                f"{text}: expected a number of workers from 1 to {MOST_WORKERS} after ="
            )
        else:
            count = int(number)
        # raises an error unless there may be such a place
        return cls(create_place(where).address, count)


def parse_places(texts: Sequence[str], workers: int) -> tuple[WorkerPlace, ...]:
    """Return the places of a command line; without any, this machine.

    Parameters
    ----------
    texts
        The places as they were given.
    workers
        The number of workers of each that has none of its own.

    Raises
    ------
    ConfigError
        If a place cannot be read, or stands there twice.
    """
    found = [WorkerPlace.parse(text, workers) for text in texts or [HERE]]
    seen: set[str] = set()
    for place in found:
        if place.address in seen:
            raise ConfigError(
                f"{place.address} stands there twice; write {place.address}=2 for two workers"
            )
        seen.add(place.address)
    return tuple(found)


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
        The kind of the machines that measure, see
        :func:`~nnpipe.workflows.workers.machine_turns.is_of_kind`; empty for all.
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
        """Raise :class:`ConfigError` if workers elsewhere cannot reach a database, or none can
        measure.
        """
        if self.elsewhere and "://" not in database.opened_by[0]:
            raise ConfigError(
                f"{database.shown}: a file of SQLite is for one machine; workers on others need "
                f"PostgreSQL: "
                "--database postgresql://user@host/name"
            )
        if not self.elsewhere and not is_of_kind(self.measure_on):
            raise ConfigError(
                f"--measure-on: this machine is not of the kind {self.measure_on!r}, and no worker "
                f"runs elsewhere; "
                "give a place that is, with --on"
            )
