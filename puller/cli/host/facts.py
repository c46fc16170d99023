"""``puller facts``: the facts of this machine."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from bundles.filesystem.safe_paths import write_output
from bundles.store.store import Store
from foundation.formatting import did_you_mean
from foundation.problems import ProblemCode
from foundation.suggestions import meant
from hiera import values
from hiera.errors import ExpressionError, HieraError
from hiera.values import first_missing, parse_path, path_text
from puller.cli.completing import bundles_or_files, fact_names, systems
from puller.cli.host.common import chosen, load_host, state_in_use
from puller.cli.options import configuration_option, fact_options, format_option, output_option
from puller.cli.output import show, warn
from puller.errors import SourceError, UsageError
from puller.exit_status import ExitStatus
from puller.facts import fact_values
from puller.facts.anonymous import anonymous
from puller.facts.fact_tree import BUILT_IN
from puller.facts.given_facts import chosen_facts, facts_from
from puller.manifest.libraries import need_bundle_facts
from puller.manifest.manifest import open_source
from puller.run.host import own_facts
from puller.state import (
    DEFAULT_CONFIGURATION,
    UserConfigurationFile,
    users_configuration,
    users_facts,
)
from puller.values.foreign_text import visible_json

_PRIVATE = 0o600
"""Facts of a machine are private to the user."""


@click.command()
@click.argument("path", required=False, shell_complete=fact_names)
@format_option
@click.option("--legacy", is_flag=True, help="Include the legacy flat names of Facter.")
@click.option(
    "--bundle",
    metavar="NAME|DIRECTORY",
    shell_complete=bundles_or_files,
    help="Include the facts of an enforced bundle, of a ./DIRECTORY, or of a bundle file.",
)
@click.option(
    "--of",
    "of",
    metavar="SYSTEM",
    shell_complete=systems,
    help="Show the facts of a known system such as debian-12.",
)
@output_option(
    "Write the facts to FILE as JSON or (*.yaml) YAML, for --facts, `puller test` and `puller preview`.",
    "--save",
)
@click.option("--anonymous", is_flag=True, help="Leave out custom facts and facts that identify the machine.")
@click.option("--keep", multiple=True, metavar="NAME", help="Keep this custom fact with --anonymous.")
@configuration_option("The configuration of the host that enforces the bundle.", name="configuration")
@fact_options
def facts(
    path: str | None,
    output_format: str,
    *,
    legacy: bool,
    output: Path | None,
    anonymous: bool,
    keep: tuple[str, ...],
    **options: Any,
) -> int:
    """Show the facts of this machine.

    PATH selects one fact. Puller gathers only the facts that PATH needs. A single value is printed without quotes,
    for scripts.

    \b
      puller facts
      puller facts os.release.major
      puller facts networking.interfaces.eth0.ip
      puller facts --format json > host.json
      puller facts --bundle web openssh
      puller facts --bundle ./web openssh.version
      puller facts --of debian-12 os
      puller facts -o web01.json --anonymous --keep role

    Exit status: 0, or 1 if the fact does not exist. Unreadable facts are reported on standard error.
    """
    if path and (output or anonymous):
        raise UsageError("facts: --output and --anonymous are for all facts, not for one PATH")
    if keep and not anonymous:
        raise UsageError("facts: --keep is for --anonymous", hint="without it every fact is kept")
    status = ExitStatus.OK
    with _facts(options) as result:
        if path:
            status = _show_at(path, result, output_format)
        else:
            shown = _without_identity(result, keep) if anonymous else result.as_dict(legacy=legacy)
            _save(shown, output) if output else show(shown, output_format)
        # At the end, because a source fails only when its fact is read.
        for problem in result.problems:
            warn(str(problem))
    return status


def _without_identity(result: Any, keep: tuple[str, ...]) -> dict[str, Any]:
    """Return facts that do not identify the machine. Raises ``UsageError`` for an unknown fact to keep."""
    everything = result.as_dict()
    for name in keep:
        if name in BUILT_IN or name not in everything:
            own = everything.keys() - BUILT_IN.keys()
            raise UsageError(f"--keep {name}: no custom fact of this name", **meant(name, own))
    return anonymous(everything, keep=keep)


def _save(shown: dict[str, Any], path: Path) -> None:
    """Write facts as a file that ``--facts`` reads. Raises ``UsageError``."""
    form = fact_values.form_of_name(str(path)) or "yaml"
    if form == "txt":
        raise UsageError(f"--output {path}: a *.txt file holds text only", expected="*.json or *.yaml")
    # JSON is also YAML. It is read faster, and its numbers are unambiguous.
    data = (visible_json(json.dumps(shown, indent=1, ensure_ascii=False)) + "\n").encode()
    if len(data) > fact_values.SIZE_LIMIT:
        raise UsageError(
            f"--output {path}: {len(data)} bytes, more than the {fact_values.SIZE_LIMIT} that are read"
        )
    try:
        write_output(path, data, mode=_PRIVATE)
    except OSError as error:
        raise UsageError(
            f"--output {path}: {error.strerror or error}", code=ProblemCode.UNWRITABLE_OUTPUT
        ) from error


@contextlib.contextmanager
def _facts(options: Mapping[str, Any]) -> Iterator[Any]:
    """Provide the facts of a machine, or the facts that a bundle sees on it, while the block runs."""
    bundle, configuration = options["bundle"], options["configuration"]
    if isinstance(configuration, UserConfigurationFile) and not options["facts_directories"]:
        options = {**options, "facts_directories": (users_facts(),)}
    if configuration not in (DEFAULT_CONFIGURATION, users_configuration()):
        load_host(configuration)  # a missing file is an error, even if the facts do not depend on it
    if bundle is None:
        yield chosen_facts(options)
        return

    if _is_source(bundle, configuration):
        with open_source(bundle) as source:
            yield need_bundle_facts(chosen_facts(options), source.path.parent)
        return
    if options["of"]:
        raise UsageError(
            f"--bundle {bundle}: enforced on this host, not on a {options['of']}", hint="give its directory"
        )
    yield _of_enforced(bundle, configuration, options)


def _is_source(bundle: str, configuration: str) -> bool:
    """Return whether the argument is a path. Without a host's configuration it cannot be the name of a bundle."""
    is_host = configuration != DEFAULT_CONFIGURATION or os.path.exists(configuration)
    return os.sep in bundle or bundle in (os.curdir, os.pardir) or not is_host


def _of_enforced(name: str, path: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the facts that an enforced bundle sees. Raises ``PullerError`` if it is missing."""
    configuration, directories = load_host(path)
    chosen(configuration, name)
    with state_in_use("read"):
        current = Store(directories.bundles).current(name)
    if current is None:
        raise SourceError(f"{name}: nothing is enforced", code=ProblemCode.NOTHING_TO_ENFORCE)
    host = facts_from(options, directories=[configuration.facts_directory], agent=own_facts(configuration))
    return need_bundle_facts(host, current.path)


def _show_at(path: str, result: Any, output_format: str) -> ExitStatus:
    steps = _steps(path)
    try:
        value = values.find_value(result, steps)
    except HieraError:  # reported with the other problems
        return ExitStatus.NO
    if value is values.MISSING:
        warn(_missing(result, steps))
        return ExitStatus.NO
    show(_plain_text(value) if output_format == "yaml" else value, output_format)
    return ExitStatus.OK


def _steps(path: str) -> tuple[str, ...]:
    try:
        return parse_path(path)
    except ExpressionError as error:
        raise UsageError(problems=error.problems) from error


def _plain_text(value: Any) -> Any:
    """Return a scalar for shell scripts: ``true``, ``12``, ``bookworm``, or an empty text for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _missing(result: Any, steps: tuple[str, ...]) -> str:
    """Return the message about a missing path, with similar names."""
    above, count = first_missing(result, steps)
    place = path_text(steps[:count])
    detail = f"no fact {path_text(steps)!r}"
    if isinstance(above, list):
        return f"{detail}: {place} is a list of {len(above)}, counted from 0"
    if not isinstance(above, Mapping):
        return f"{detail}: {place} is {above!r}, which has nothing below it"
    names = [path_text([*steps[:count], name]) for name in above]
    return detail + did_you_mean(path_text(steps[: count + 1]), names)
