"""The SQL statements about the trials of searches."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from nnpipe.experiment.database._tables import tables
from nnpipe.experiment.database._values import server_time

WAITING = 0.0
"""When the lease of a waiting trial expired."""


@dataclass(frozen=True)
class TrialStatements:
    """The statements, built once: building one takes longer than executing it."""

    version: Any
    changed: Any
    reported: Any
    unended: Any
    first_open: Any
    own: Any
    known: Any
    move: Any
    insert: Any
    change: Any
    renew: Any
    release: Any
    remove: Any
    give_back: Any
    insert_report: Any
    change_report: Any
    forget_reports: Any


@functools.cache
def trial_statements(of_server: bool) -> TrialStatements:
    """Return the statements; ``of_server`` says whether the time is that of PostgreSQL, or the value of ``time``."""
    import sqlalchemy as sa

    t, searches, reports = tables().trials, tables().searches, tables().reports
    search: Any = sa.bindparam("of_search")
    number: Any = sa.bindparam("of_number")
    now: Any = sa.bindparam("time", type_=sa.Double())
    if of_server:
        now = server_time()
    later = now + sa.bindparam("lasting", type_=sa.Double())
    this_search, this_trial = searches.c.run == search, (t.c.search == search) & (t.c.number == number)
    leased = this_trial & (t.c.fence == sa.bindparam("of_fence")) & (t.c.state == "running")
    this_report = (reports.c.search == search) & (reports.c.number == number)
    same_trial = (t.c.search == reports.c.search) & (t.c.number == reports.c.number)
    recent = (t.c.search == search) & (t.c.version > sa.bindparam("after"))
    not_ended = (t.c.search == search) & t.c.expires.is_not(None)
    of_worker = not_ended & (t.c.worker == sa.bindparam("of_worker")) & (t.c.state == "running")
    counted = {
        "version": searches.c.version + sa.bindparam("versions"),
        "next": searches.c.next + sa.bindparam("numbers"),
        "trials": searches.c.trials + sa.bindparam("new"),
    }
    return TrialStatements(
        version=sa.select(searches.c.version).where(this_search),
        changed=sa.select(t, sa.exists().where(same_trial).label("has_reports")).where(recent).order_by(t.c.version),
        reported=sa.select(reports.c.number, reports.c.step, reports.c.value)
        .join(t, same_trial).where(recent).order_by(reports.c.number, reports.c.step),
        unended=sa.select(t).where(not_ended).order_by(t.c.number),
        first_open=sa.select(t).where(not_ended & (t.c.expires <= now)).order_by(t.c.number).limit(1)
        .with_for_update(skip_locked=True),
        own=sa.select(t.c.started).where(leased).with_for_update(),
        known=sa.select(t.c.number).where(t.c.search == search, t.c.digest == sa.bindparam("of_digest")).limit(1),
        move=searches.update().where(this_search, searches.c.trials < sa.bindparam("limit")).values(counted)
        .returning(searches.c.version, searches.c.next, now.label("now")),
        insert=t.insert(),
        change=t.update().where(this_trial),
        renew=t.update().where(leased).values(expires=later),
        release=t.update().where(of_worker).values(expires=WAITING),
        remove=t.delete().where(this_trial),
        give_back=searches.update().where(this_search).values(
            trials=searches.c.trials - 1,
            next=sa.case((searches.c.next == number + 1, number), else_=searches.c.next),
        ),
        insert_report=reports.insert(),
        change_report=reports.update().where(this_report & (reports.c.step == sa.bindparam("of_step"))),
        forget_reports=reports.delete().where(this_report),
    )  # fmt: skip
