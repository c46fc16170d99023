"""Shell completion of arguments: bundles, versions and resources of this host, types, facts, files.

* A shell completes at every key press. Completion therefore only reads records, never the site or the machine.
* Unreadable records give no completions and no message, which would disturb the user's line.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
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


def offer(find: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Return a completer that offers the matching values in order, or none if they cannot be found."""

    @functools.wraps(find)
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            values = set(find(context))
        except (PullerError, BundleError, OSError, ValueError, click.ClickException):
            return []
        return sorted(value for value in values if value.startswith(incomplete))

    return complete


@offer
def bundles_of_host(context: click.Context) -> Iterable[str]:
    """Return the bundles of the configuration."""
    return [choice.name for choice in _host(context)[0].bundles]


@offer
def bundles_with_state(context: click.Context) -> Iterable[str]:
    """Return the bundles of the configuration, and bundles with stored data."""
    configuration, directories = _host(context)
    return [*(choice.name for choice in configuration.bundles), *Store(directories.bundles).names()]


@offer
def versions_on_host(context: click.Context) -> Iterable[str]:
    """Return the versions of the preceding bundle argument that are on this host."""
    store = Store(_host(context)[1].bundles)
    return [found.version for found in store.installed(context.params["bundle"])]


@offer
def quarantined_bundles(context: click.Context) -> Iterable[str]:
    """Return the bundles that are in quarantine."""
    return [bundle for bundle, _ in _quarantined(context)]


@offer
def quarantined_versions(context: click.Context) -> Iterable[str]:
    """Return the quarantined versions of the preceding bundle argument."""
    return [version for bundle, version in _quarantined(context) if bundle == context.params["bundle"]]


@offer
def resources_of_host(context: click.Context) -> Iterable[str]:
    """Return the references of all resources of the last run."""
    report = load_all_events(_host(context)[1])
    return [event.reference for bundle in report.bundles for event in bundle.events] if report else []


@offer
def leftovers_of_bundle(context: click.Context) -> Iterable[str]:
    """Return the references of the leftovers of the preceding bundle argument."""
    managed = Managed(_host(context)[1], _ignore, noop=True)
    return [item.reference for item in managed.left(context.params["bundle"])]


@offer
def resource_types(context: click.Context) -> Iterable[str]:
    """Return the types of resources."""
    return type_names()


def bundles_or_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Return the bundles of the configuration, or let the shell complete the path of a directory."""
    if "/" in incomplete or incomplete.startswith("."):
        return files(context, parameter, incomplete)
    return [CompletionItem(name) for name in bundles_of_host(context, parameter, incomplete)]


@offer
def fact_names(context: click.Context) -> Iterable[str]:
    """Return the paths of the facts that common systems have, such as ``os.release.major``."""
    return _paths(facts_of(_MODEL))


@offer
def fact_assignments(context: click.Context) -> Iterable[str]:
    """Return the beginnings of ``NAME=VALUE`` for facts."""
    return [f"{path}=" for path in _paths(facts_of(_MODEL))]


@offer
def systems(context: click.Context) -> Iterable[str]:
    """Return the known systems."""
    return known_systems()


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
