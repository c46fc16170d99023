"""``puller fleet facts``: the facts of hosts, in files like those of `puller facts -o`."""

import json
from pathlib import Path

import click

from bundles.filesystem.safe_paths import OutputTree
from foundation.problems import ProblemCode
from foundation.quantities import counted
from puller.cli.fleet.fleet_options import (
    open_reader,
    opened_store,
    parse_conditions,
    store_option,
    where_option,
)
from puller.cli.options import output_option
from puller.cli.output import say
from puller.errors import SourceError, file_problem


@click.command("facts")
@store_option
@where_option
@output_option("The directory for the files.", "--to", metavar="DIR", required=True)
def facts(location: str, conditions: tuple[str, ...], output: Path) -> None:
    """Write the latest facts of each host to a file HOST.json.

    Hosts send the facts that `reports: facts` in their configuration names. `puller preview` reads these files, or the
    store itself.

    \b
    Example:
      puller fleet facts --where os.family=Debian -o facts
      puller preview web --fleet fleet.db
    """
    desired = parse_conditions(conditions)
    count = 0
    with opened_store(location) as store:
        reader = open_reader(store, None)
        try:
            tree = OutputTree(output)
            tree.sync()  # also makes the directory, if no host matches
            for name, found in reader.facts():
                if desired(found):
                    text = json.dumps(found, indent=2, sort_keys=True)
                    tree.write(f"{name}.json", [f"{text}\n".encode()])
                    count += 1
            tree.close()
        except OSError as error:
            raise SourceError(
                file_problem(error, "cannot be written", where=error.filename or output),
                code=ProblemCode.UNWRITABLE_OUTPUT,
            ) from error
    say(f"{output}: facts of {counted(count, 'host')}")
