"""``puller fleet exports``: exports of hosts, as data for other hosts and as targets for Prometheus.

``puller fleet recipients``: the public keys of all hosts, for authors who encrypt files for them.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from bundles.errors import BundleError
from bundles.filesystem.atomic import read_limited
from bundles.filesystem.safe_paths import write_output
from bundles.publisher.site import Site
from foundation.problems import ProblemCode
from foundation.quantities import counted
from hiera import parsing
from hiera.errors import HieraError
from puller.cli.author.preview_releases import open_release, open_site
from puller.cli.fleet.fleet import (
    open_reader,
    opened_store,
    parse_conditions,
    silent_option,
    store_option,
    where_option,
)
from puller.cli.options import output_option
from puller.cli.output import print_table, say, show, visible_yaml
from puller.data.sources import SIZE_LIMIT
from puller.errors import PullerError, SourceError, UsageError, file_problem
from puller.exit_status import ExitStatus
from puller.fleet.host_document import Collected, Targets, as_data, as_targets, collect, is_suspicious
from puller.manifest.manifest_reader import ManifestText
from puller.values.foreign_text import visible_json

if TYPE_CHECKING:
    from puller.fleet.store.queries import Reader
    from puller.values.export_types import Export


class FewHostsError(PullerError):
    """The number of hosts is so low that the file is kept."""

    exit_status = ExitStatus.HELD


@click.command("exports")
@store_option
@click.option(
    "--bundle",
    "bundles",
    required=True,
    multiple=True,
    metavar="NAME",
    help="A bundle whose exports are collected. Repeatable.",
)
@click.option(
    "--site",
    type=click.Path(path_type=Path, file_okay=False),
    help="The site with the bundles that declare the types of exports.  [default: ./site]",
)
@click.option("--in-order", is_flag=True, help="Include only hosts that report regularly and are in sync.")
@where_option
@silent_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["yaml", "json", "file_sd"]),
    default="yaml",
    show_default=True,
    help="A data document in YAML or JSON, or targets for Prometheus.",
)
@click.option(
    "--target",
    metavar="NAME[:NAME]",
    default="address:port",
    show_default=True,
    help="The exports that form a target of file_sd.",
)
@output_option("Write to FILE if the contents change.", "--to")
@click.option("--force", is_flag=True, help="Write FILE even if fewer than half of its hosts remain.")
def exports(
    location: str,
    bundles: tuple[str, ...],
    site: Path | None,
    *,
    in_order: bool,
    conditions: tuple[str, ...],
    silent_after: timedelta | None,
    output_format: str,
    target: str,
    output: Path | None,
    force: bool,
) -> None:
    """Collect the values that hosts export, as data for other hosts.

    `puller site data` publishes the document with a signature. Hosts then read `data.exports['web']`, a mapping from
    host names to values. Each host exports values for itself only. Each value must have the type that the manifest of
    the version on that host declares. A host with an invalid value is skipped, with a warning on standard error.

    FILE is replaced atomically, and only if the contents change. If fewer than half of its hosts remain, FILE stays
    unchanged, because missing reports look like removed hosts.

    \b
    Example:
      puller fleet exports --bundle web --in-order -o exports.yaml
      puller site data site exports.yaml
      puller fleet exports --bundle node --format file_sd -o /etc/prometheus/targets/node.json

    Exit status: 0 if the values are written, 20 if FILE stays unchanged because hosts are missing.
    """
    desired = parse_conditions(conditions)
    address, _, port = target.partition(":")
    if not address:
        raise UsageError(f"--target is {target!r}, expected the name of an export, or two: address:port")
    collected = []
    with opened_store(location) as store, _site_of(site) as types:
        reader = open_reader(store, silent_after)
        names = _hosts(reader, in_order=in_order)
        if conditions:
            names = [name for name, facts in reader.facts(names) if desired(facts)]
        for bundle in dict.fromkeys(bundles):
            standings = reader.exporting(bundle, names)
            collected.append(collect(bundle, standings, lambda version, of=bundle: types(of, version)))  # type: ignore[misc]
    for item in collected:
        for host, why in item.left_out.items():
            say(f"{host}: left out of the exports of {item.bundle}: {why}", err=True)
    count = sum(len(item.values) for item in collected)
    if output_format == "file_sd":
        targets = as_targets(collected, address, port)
        _report_left_out(collected, targets, target)
        count, text = len(targets.groups), _json(targets.groups)
    else:
        text = _json(as_data(collected)) if output_format == "json" else _yaml(as_data(collected))
    if output is None:
        say(text, nl=False)
        return
    _write(output, text, count, force=force)


def _report_left_out(collected: Sequence[Collected], targets: Targets, target: str) -> None:
    """Report the hosts without a target. Raises ``UsageError`` if all hosts lack one."""
    if targets.left_out and not targets.groups:
        names = sorted({name for item in collected for values in item.values.values() for name in values})
        detail = f"no host exports {' and '.join(filter(None, target.split(':')))}"
        raise UsageError(f"--target {target}: {detail}. The hosts export {', '.join(names) or 'nothing'}")
    for (bundle, host), why in targets.left_out.items():
        say(f"{host}: left out of the targets of {bundle}: {why}", err=True)


def _hosts(reader: "Reader", *, in_order: bool) -> list[str]:
    return [name for name in reader.hosts if not in_order or reader.is_well(name)]


@contextlib.contextmanager
def _site_of(directory: Path | None) -> Any:
    """Provide the declared exports of a bundle's version, from the site that published it."""
    place = directory or Path("site")
    if not (place / "public").is_dir():
        raise UsageError(
            f"{place} is not a site. --site DIR names the site with the bundles that declare the exports"
        )
    published = Site(place)
    versions = cache(lambda bundle: published.record(bundle).history.versions.keys())
    known: dict[tuple[str, str], Mapping[str, Export] | str] = {}

    def look(bundle: str, version: str) -> "Mapping[str, Export] | str":
        if version not in versions(bundle):  # before reading files, because a host may claim to run anything
            return f"runs version {ascii(version)[:80]}, which {place} has never published"
        try:
            with open_release(site, f"{bundle}={version}") as source:
                return ManifestText.of_file(source.path, source.name).exports()[0]
        except (BundleError, PullerError) as error:
            return f"runs version {version}: {error}"

    def types(bundle: str, version: str) -> "Mapping[str, Export]":
        if (bundle, version) not in known:
            known[bundle, version] = look(bundle, version)
        result = known[bundle, version]
        if isinstance(result, str):
            raise ValueError(result)
        return result

    with open_site(str(place), None) as site:
        yield types


def _write(file: Path, text: str, count: int, *, force: bool) -> None:
    """Replace the file, if it differs. Raises ``FewHostsError`` and ``SourceError``."""
    try:
        before = _read(lambda: read_limited(file, SIZE_LIMIT))
        if before == text:
            say(f"{file}: {counted(count, 'host')}, as before")
            return
        there = _count(before)
        if not force and is_suspicious(there, count):
            detail = f"{counted(count, 'host is', 'hosts are')} left of {there}, and it stays as it is"
            raise FewHostsError(f"{file}: {detail}. --force writes it all the same")
        write_output(file, text.encode())
    except OSError as error:
        raise SourceError(
            file_problem(error, "cannot be written", where=error.filename or file),
            code=ProblemCode.UNWRITABLE_OUTPUT,
        ) from error
    say(f"{file}: {counted(count, 'host')}")


def _read(read: Callable[[], bytes]) -> str:
    try:
        return read().decode("utf-8")
    except (FileNotFoundError, ValueError):  # missing, or not from this command
        return ""


def _count(text: str) -> int:
    """Return the number of hosts in a file of this command, or 0 for any other file."""
    try:
        yaml = parsing.load_yaml(text, "exports")
    except HieraError:
        return 0
    if isinstance(yaml, list):
        return len(yaml)
    try:
        return sum(map(len, yaml["data"]["exports"].values()))
    except (TypeError, KeyError, AttributeError):
        return 0


def _json(value: Any) -> str:
    return visible_json(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)) + "\n"


def _yaml(value: Any) -> str:
    text = visible_yaml(value, yaml.CSafeDumper, sort_keys=True, width=10_000)
    return "# Written by puller fleet exports, which overwrites local changes.\n" + text


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
