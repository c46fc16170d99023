"""Shell completion of arguments: bundles, versions and resources of this host or of a site, types, facts, hosts, files.

* A shell completes at every key press. Completion therefore only reads records, never the site or the machine.
* Unreadable records give no completions and no message, which would disturb the user's line.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from bundles.errors import BundleError
from bundles.store.store import Store
from puller.config.configuration import Configuration, load_configuration
from puller.errors import PullerError
from puller.facts.given_facts import facts_of, known_systems
from puller.reporting.history import load_all_events
from puller.resources.registry import type_names
from puller.run.leftovers.managed import Managed
from puller.run.policy.holds import Quarantine
from puller.state import Directories, configuration_file

_MODEL = "debian-12"
"""The known system whose facts are offered. Other systems have the same names."""

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _offer(find: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Return a completer that offers the matching values in order, or none if they cannot be found."""

    @functools.wraps(find)
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            values = set(find(context))
        except (PullerError, BundleError, OSError, ValueError, click.ClickException):
            return []
        return sorted(value for value in values if value.startswith(incomplete))

    return complete


@_offer
def bundles_of_host(context: click.Context) -> Iterable[str]:
    """Return the bundles of the configuration."""
    return [choice.name for choice in _host(context)[0].bundles]


@_offer
def bundles_with_state(context: click.Context) -> Iterable[str]:
    """Return the bundles of the configuration, and bundles with stored data."""
    configuration, directories = _host(context)
    return [*(choice.name for choice in configuration.bundles), *Store(directories.bundles).names()]


@_offer
def versions_on_host(context: click.Context) -> Iterable[str]:
    """Return the versions of the preceding bundle argument that are on this host."""
    store = Store(_host(context)[1].bundles)
    return [found.version for found in store.installed(context.params["bundle"])]


@_offer
def quarantined_bundles(context: click.Context) -> Iterable[str]:
    """Return the bundles that are in quarantine."""
    return [bundle for bundle, _ in _quarantined(context)]


@_offer
def quarantined_versions(context: click.Context) -> Iterable[str]:
    """Return the quarantined versions of the preceding bundle argument."""
    return [version for bundle, version in _quarantined(context) if bundle == context.params["bundle"]]


@_offer
def resources_of_host(context: click.Context) -> Iterable[str]:
    """Return the references of all resources of the last run."""
    report = load_all_events(_host(context)[1])
    return [event.reference for bundle in report.bundles for event in bundle.events] if report else []


@_offer
def leftovers_of_bundle(context: click.Context) -> Iterable[str]:
    """Return the references of the leftovers of the preceding bundle argument."""
    managed = Managed(_host(context)[1], _ignore, noop=True)
    return [item.reference for item in managed.left(context.params["bundle"])]


@_offer
def resource_types(context: click.Context) -> Iterable[str]:
    """Return the types of resources."""
    return type_names()


@_offer
def bundles_of_site(context: click.Context) -> Iterable[str]:
    """Return the bundles of the preceding site argument."""
    from bundles.publisher.site import Site

    return Site(Path(context.params["directory"])).bundles()


@_offer
def channels_of_site(context: click.Context) -> Iterable[str]:
    """Return the channels of the preceding site argument."""
    from bundles.publisher.site import Site

    indexes = Site(Path(_site_words(context)[0])).indexes()
    return [channel for index in indexes.of.values() for channel in index.channels]


@_offer
def versions_of_site(context: click.Context) -> Iterable[str]:
    """Return the published versions of the preceding bundle arguments of a site."""
    from bundles.publisher.site import Site

    directory, *bundles = _site_words(context)
    site = Site(Path(directory))
    return [version for bundle in bundles for version in site.record(bundle).index.releases]


def _site_words(context: click.Context) -> list[str]:
    """Return DIR and the other arguments of a line that ends with an option without its value.

    click has not assigned the arguments of such a line yet.
    """
    from puller.cli.publisher.site import with_site

    return with_site(context.command, list(context.args), is_complete=False)


@_offer
def machines_of_bundle(context: click.Context) -> Iterable[str]:
    """Return the machines of the preceding bundle argument: its test cases, or those of ``puller.yaml``."""
    from puller.authoring.cases.contexts import machine_names

    source = context.params.get("source") or next(iter(context.args), None)
    return machine_names(source) if source else []


def bundles_or_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Return the bundles of the configuration, or let the shell complete the path of a directory."""
    if "/" in incomplete or incomplete.startswith("."):
        return files(context, parameter, incomplete)
    return [CompletionItem(name) for name in bundles_of_host(context, parameter, incomplete)]


@_offer
def fact_names(context: click.Context) -> Iterable[str]:
    """Return the paths of the facts that common systems have, such as ``os.release.major``."""
    return _paths(facts_of(_MODEL))


@_offer
def fact_assignments(context: click.Context) -> Iterable[str]:
    """Return the beginnings of ``NAME=VALUE`` for facts."""
    return [f"{path}=" for path in _paths(facts_of(_MODEL))]


@_offer
def systems(context: click.Context) -> Iterable[str]:
    """Return the known systems."""
    return known_systems()


@_offer
def hosts_of_store(context: click.Context) -> Iterable[str]:
    """Return the hosts of a fleet's store in a file. Hosts in a database server are left out."""
    location = context.params.get("location") or ""
    if "://" in location:
        return []
    try:  # the store needs the extra fleet
        from puller.fleet.store.database import Store as FleetStore
        from puller.fleet.store.queries import Reader
    except ImportError:
        return []
    store = FleetStore.open(location)
    try:
        return list(Reader(store, datetime.now(UTC)).hosts)
    finally:
        store.close()


def _paths(facts: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in facts.items():
        yield prefix + name
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{name}.")


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Let the shell complete files and directories."""
    return [CompletionItem(incomplete, type="file")]


def _host(context: click.Context) -> tuple[Configuration, Directories]:
    as_user = bool(context.params.get("as_user"))
    names = (parameter.name for parameter in context.command.params if "--config" in parameter.opts)
    option = next(names, None)
    path = context.params.get(option) if option else None
    configuration = load_configuration(configuration_file(path, as_user=as_user))
    return configuration, Directories(Path(configuration.state_directory), Path(configuration.run_directory))


def _quarantined(context: click.Context) -> list[tuple[str, str]]:
    entries = Quarantine.load(_host(context)[1], _ignore, noop=True).entries
    return [(entry.bundle, entry.version) for entry in entries]


def _ignore(text: str) -> None:
    """Ignore notes about damaged state, because commands for people print them."""
