"""``puller fleet``: all hosts, from the reports that they send. The group, and the options that its commands share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from foundation.extras import how_to_install
from foundation.problems import ProblemCode
from puller.cli.command_table import LazyGroup
from puller.cli.completing import fact_assignments, files
from puller.cli.options import DURATION
from puller.errors import UsageError

if TYPE_CHECKING:
    from puller.fleet.store.database import Store
    from puller.fleet.store.queries import Reader


_COMMANDS = {
    "import": ("puller.cli.fleet.reports:import_reports", "Import reports from SOURCE into the store."),
    "status": ("puller.cli.fleet.status:status", "Show the state of the fleet."),
    "page": ("puller.cli.fleet.status:page", "Create static pages of the fleet."),
    "exports": (
        "puller.cli.fleet.exports:exports",
        "Collect the values that hosts export, as data for other hosts.",
    ),
    "facts": ("puller.cli.fleet.status:facts", "Write the latest facts of each host to a file HOST.json."),
    "recipients": (
        "puller.cli.fleet.exports:recipients",
        "List the recipients of all hosts for encrypted files.",
    ),
    "serve-reports": ("puller.cli.fleet.reports:serve_reports", "Receive reports of hosts, for tests."),
    "forget": ("puller.cli.fleet.reports:forget", "Delete decommissioned hosts from the store."),
}


@click.group("fleet", cls=LazyGroup, sections={"Commands": _COMMANDS})
def fleet() -> None:
    """Show all hosts, based on their reports.

    Hosts send a report after each run to the destinations in `reports: to` of their configuration. `puller fleet
    import` reads these reports into a store. The other commands query the store, or create pages from it.

    \b
    Example:
      puller fleet import /srv/reports --store fleet.db
      puller fleet status --store fleet.db
      puller fleet page --store fleet.db --to public/fleet
    """


Condition = Callable[[Mapping[str, Any]], bool]

STORE_VARIABLE = "PULLER_FLEET_STORE"
store_option = click.option(
    "--store",
    "location",
    default="fleet.db",
    show_default=True,
    envvar=STORE_VARIABLE,
    show_envvar=True,
    metavar="FILE|URL",
    shell_complete=files,
    help="The store: an SQLite file, or an SQLAlchemy URL such as postgresql+psycopg://host/name.",
)
silent_option = click.option(
    "--silent-after",
    type=DURATION,
    help="Time without reports until a host is silent, such as 2h.  [default: the setting of the "
    "store, else 2h]",
)
where_option = click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="FACT=VALUE",
    shell_complete=fact_assignments,
    help="Only hosts with this fact, such as os.release.major=12. Repeated conditions must all match.",
)


@contextmanager
def opened_store(location: str, *, make: bool = False) -> "Iterator[Store]":
    """Open the store while the block runs. Raises like ``Store.open``."""
    try:
        from puller.fleet.store.database import Store  # needs the extra fleet
    except ImportError:
        detail = "the fleet's store needs SQLAlchemy, which is not installed"
        raise UsageError(
            f"{detail}. {how_to_install('fleet')}", code=ProblemCode.MISSING_DEPENDENCY
        ) from None
    store = Store.open(location, make=make)
    try:
        yield store
    finally:
        store.close()


def open_reader(store: "Store", silent_after: timedelta | None) -> "Reader":
    """Return the current fleet."""
    from puller.fleet.store.queries import Reader  # needs the extra fleet

    return Reader(store, datetime.now(UTC), silent_after)


def parse_conditions(texts: Sequence[str]) -> Condition:
    """Return a function that tests facts against all ``--where`` options. Raises ``UsageError``."""
    desired: list[tuple[list[str], str]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not all(name.split(".")):
            raise UsageError(f"--where is {text!r}", expected="FACT=VALUE such as os.release.major=12")
        desired.append((name.split("."), value))
    return lambda facts: all(_found(facts, steps) == value for steps, value in desired)


def _found(facts: Any, steps: Sequence[str]) -> str | None:
    for step in steps:
        if isinstance(facts, Mapping) and step in facts:
            facts = facts[step]
        elif isinstance(facts, list) and (step.isascii() and step.isdecimal()) and int(step) < len(facts):
            facts = facts[int(step)]
        else:
            return None
    if isinstance(facts, bool):
        return "true" if facts else "false"
    return None if isinstance(facts, Mapping | list) or facts is None else str(facts)
