"""Queues before devices that several people share: a ticket waits, then holds the device, until
it expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nnpipe.experiment.database._tables import get_tables
from nnpipe.experiment.database._values import build_server_time
from nnpipe.experiment.database.connections import Connections
from nnpipe.experiment.database.runs import replace_unstorable


@dataclass(frozen=True)
class DeviceTicket:
    """A place in the queue before a device.

    Parameters
    ----------
    number
        Its number, which is greater than that of all earlier tickets.
    device
        The name of the device.
    holder, purpose
        Who has it, and what for.
    asked, granted
        Since when it waits, and since when it holds the device, in seconds since 1970 UTC; ``None``
        while it waits.
    expires
        Until when it is valid.
    """

    number: int
    device: str
    holder: str
    purpose: str
    asked: float
    granted: float | None
    expires: float


class DeviceQueues:
    """The queues of all devices, first come, first served.

    A ticket that is not renewed in time is void, whether it waits or holds the device, so a process
    that was killed stops nobody for long.  All methods are one transaction and may be called by
    several threads and processes.

    Parameters
    ----------
    connections
        The database.
    clock
        Returns the time in seconds since 1970 UTC; by default PostgreSQL's own, which all machines
        share, or the time of this machine.
    """

    def __init__(self, connections: Connections, clock: Callable[[], float] | None = None) -> None:
        self._connections, self._clock = connections, clock

    def ask(self, device: str, holder: str, purpose: str, seconds: float) -> int:
        """Take a place at the end of a device's queue, and return its number; it is valid for
        ``seconds``.
        """
        t = get_tables().device_tickets
        with self._connections.begin_write() as connection:
            now = self._get_time(connection)
            row = {
                "device": replace_unstorable(device),
                "holder": replace_unstorable(holder),
                "purpose": replace_unstorable(purpose),
                "asked": now,
                "granted": None,
                "expires": now + seconds,
            }
            return int(connection.execute(t.insert().values(row)).inserted_primary_key[0])

    def advance(self, number: int, seconds: float) -> bool | None:
        """Renew a ticket for ``seconds`` from now; the first one in the queue gets the device.

        Returns
        -------
        bool or None
            Whether the ticket holds the device; ``None`` if it is not valid any more.
        """
        t = get_tables().device_tickets
        with self._connections.begin_write() as connection:
            now = self._get_time(connection)
            mine = connection.execute(t.select().where(t.c.number == number)).first()
            if mine is None:
                return None
            connection.execute(t.delete().where(t.c.device == mine.device, t.c.expires < now))
            first = connection.execute(
                t.select()
                .where(t.c.device == mine.device)
                .order_by(t.c.granted.is_(None), t.c.number)
                .limit(1)
            ).first()
            if mine.expires < now or first is None:
                return None
            changes: dict[str, Any] = {"expires": now + seconds}
            if first.number == number and mine.granted is None:
                changes["granted"] = now
            connection.execute(t.update().where(t.c.number == number).values(changes))
            return bool(first.number == number)

    def release(self, number: int) -> bool:
        """Remove a ticket; return whether it was valid until now."""
        t = get_tables().device_tickets
        with self._connections.begin_write() as connection:
            now = self._get_time(connection)
            valid = connection.scalar(
                t.select().with_only_columns(t.c.expires).where(t.c.number == number)
            )
            connection.execute(t.delete().where(t.c.number == number))
            return valid is not None and valid >= now

    def list_tickets(self, device: str | None = None) -> list[DeviceTicket]:
        """Return the valid tickets of a device, or of all, in the order in which they get it."""
        t = get_tables().device_tickets
        with self._connections.reading() as connection:
            query = t.select().where(t.c.expires >= self._get_time(connection))
            if device is not None:
                query = query.where(t.c.device == device)
            rows = connection.execute(query.order_by(t.c.granted.is_(None), t.c.number)).all()
        return [DeviceTicket(**row._mapping) for row in rows]

    def _get_time(self, connection: Any) -> float:
        if self._clock is not None or not self._connections.postgresql:
            return (self._clock or time.time)()
        import sqlalchemy as sa

        return float(connection.scalar(sa.select(build_server_time())))
