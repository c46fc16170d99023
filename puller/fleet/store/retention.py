"""Removal of old or excess runs and periods, and of hosts."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, Table, func, select

from puller.fleet.store import database

MOST_RUNS = 5000
"""Maximum runs of one host with changes or failures, and maximum periods. By default, one run in 26 minutes."""


def forget_before(connection: Connection, when: datetime) -> int:
    """Remove the runs and periods that ended before a time. Return the number of removed runs."""
    seconds = when.timestamp()
    connection.execute(database.events.delete().where(database.events.c.at < seconds))
    gone = connection.execute(database.runs.delete().where(database.runs.c.at < seconds)).rowcount
    connection.execute(database.periods.delete().where(database.periods.c.ended < seconds))
    return gone


def forget_beyond(connection: Connection, most: int = MOST_RUNS) -> int:
    """Remove the oldest runs and periods of hosts that have more than ``most``. Return the number of removed runs.

    The age limit alone would not limit a host that sends a report every second.
    """
    gone = 0
    for table in (database.runs, database.periods):
        counted = select(table.c.host).group_by(table.c.host).having(func.count() > most)
        for host in connection.execute(counted).scalars().all():
            gone += _forget_oldest(connection, table, host, most)
    return gone


def _forget_oldest(connection: Connection, table: Table, host: str, most: int) -> int:
    when = table.c.at if table is database.runs else table.c.began
    first_kept = select(when).where(table.c.host == host).order_by(when.desc()).offset(most - 1).limit(1)
    seconds = connection.execute(first_kept).scalar()
    is_old = (table.c.host == host) & (when < seconds)
    if table is not database.runs:
        connection.execute(table.delete().where(is_old & table.c.ended.is_not(None)))
        return 0
    events = database.events.c
    connection.execute(database.events.delete().where((events.host == host) & (events.at < seconds)))
    return connection.execute(table.delete().where(is_old)).rowcount


def forget_hosts(connection: Connection, names: Sequence[str]) -> list[str]:
    """Remove hosts with all of their data. Return the hosts that were known."""
    table = database.hosts.c
    known = [str(name) for (name,) in connection.execute(select(table.host).where(table.host.in_(names)))]
    for each in (
        database.hosts,
        database.standings,
        database.failing,
        database.restless,
        database.runs,
        database.events,
        database.periods,
    ):
        connection.execute(each.delete().where(each.c.host.in_(known)))
    return known
