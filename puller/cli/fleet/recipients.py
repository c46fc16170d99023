"""``puller fleet recipients``: the public keys of all hosts, for authors who encrypt files for them."""

import json
from pathlib import Path
from typing import Any

import click

from bundles.filesystem.safe_paths import write_output
from foundation.problems import ProblemCode
from foundation.quantities import counted
from puller.cli.fleet.fleet import (
    open_reader,
    opened_store,
    parse_conditions,
    store_option,
    where_option,
)
from puller.cli.options import output_option
from puller.cli.output import print_table, say, show
from puller.errors import SourceError, file_problem


@click.command("recipients")
@store_option
@click.option("--bundle", metavar="NAME", help="Only hosts that enforce this bundle, or that should.")
@where_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "yaml", "json"]),
    default="text",
    show_default=True,
    help="A table, or hosts for recipients.yaml with their bundles and facts.",
)
@output_option("Write the hosts to FILE in YAML, for `hosts: FILE` in recipients.yaml.")
def recipients(
    location: str, bundle: str | None, conditions: tuple[str, ...], output_format: str, output: Path | None
) -> None:
    """List the recipients of all hosts for encrypted files.

    The last report of each host contains the public part of its key (`puller keys show`). The list is empty for hosts
    without a key, and for hosts whose version of Puller does not report it. With YAML or -o, the list has the format of
    `hosts` in recipients.yaml (docs/secrets.md). Review a changed recipient before you encrypt for it.

    \b
    Example:
      puller fleet recipients --bundle web
      puller fleet recipients -o hosts.yaml
    """
    desired = parse_conditions(conditions)
    with opened_store(location) as store:
        reader = open_reader(store, None)
        names = set(reader.hosts)
        if bundle is not None:
            names &= {row["host"] for row in reader.standings(bundle)}
        facts = {name: values for name, values in reader.facts(names) if desired(values)}
        keys = dict(reader.recipients(facts))
        bundles = reader.bundles_of_hosts()
    if output_format == "text" and output is None:
        rows = [(name, recipient or "none reported") for name, recipient in keys.items()]
        if rows:
            print_table(("host", "recipient"), rows)
        else:
            say("no host matches")
        return
    hosts: dict[str, Any] = {
        name: {"recipient": recipient, "bundles": bundles.get(name, []), "facts": facts[name]}
        for name, recipient in keys.items()
        if recipient
    }
    if output is None:
        show(hosts, output_format)
        return
    # JSON is YAML, and each host has its own line, so that a diff shows the changed hosts.
    lines = [f"{json.dumps(name)}: {json.dumps(host, sort_keys=True)}\n" for name, host in hosts.items()]
    try:
        write_output(output, "".join(lines or ["{}\n"]).encode())
    except OSError as error:
        raise SourceError(
            file_problem(error, "cannot be written", where=output), code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error
    missing = len(keys) - len(hosts)
    more = f", {counted(missing, 'host')} without a recipient" if missing else ""
    say(f"{output}: recipients of {counted(len(hosts), 'host')}{more}")
