"""Forgetting: runs and periods that are older than the store is told to keep, and hosts when asked."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import select

from puller.fleet.store import schema

if TYPE_CHECKING:
    from sqlalchemy import Connection


def forget_before(connection: "Connection", when: datetime) -> int:
    """Forget the runs and periods that had ended before; gives how many runs."""
    seconds = when.timestamp()
    connection.execute(schema.events.delete().where(schema.events.c.at < seconds))
    gone = connection.execute(schema.runs.delete().where(schema.runs.c.at < seconds)).rowcount
    connection.execute(schema.periods.delete().where(schema.periods.c.ended < seconds))
    return gone


def forget_hosts(connection: "Connection", names: Sequence[str]) -> list[str]:
    """Forget hosts that are gone, with all that is kept of them; gives those that were known."""
    table = schema.hosts.c
    known = [str(name) for (name,) in connection.execute(select(table.host).where(table.host.in_(names)))]
    for each in (
        schema.hosts,
        schema.standings,
        schema.failing,
        schema.restless,
        schema.runs,
        schema.events,
        schema.periods,
    ):
        connection.execute(each.delete().where(each.c.host.in_(known)))
    return known
