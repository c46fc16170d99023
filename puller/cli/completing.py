"""Offers of a shell for arguments: bundles, versions and resources of this host or of a site, types, files.

* A shell asks at every press of a key, so only records are read: neither the site nor the machine is asked.
* What cannot be read gives nothing to offer, and never a message in the middle of somebody's line.
"""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from bundles.errors import BundleError
from bundles.store.store import Store
from puller.config.configuration import load_configuration
from puller.errors import PullerError
from puller.reporting.history import load_all_events
from puller.resources.registry import type_names
from puller.run.leftovers.managed import Managed
from puller.run.policy.quarantine import Quarantine
from puller.state.default_paths import configuration_file
from puller.state.directories import Directories

if TYPE_CHECKING:
    from puller.config.configuration import Configuration

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _offer(find: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Of what is found what begins so, in order, each once; nothing when it cannot be found."""

    @functools.wraps(find)
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            found = set(find(context))
        except (PullerError, BundleError, OSError, ValueError):
            return []
        return sorted(one for one in found if one.startswith(incomplete))

    return complete


@_offer
def bundles_of_host(context: click.Context) -> Iterable[str]:
    """Bundles of the configuration."""
    return [choice.name for choice in _host(context)[0].bundles]


@_offer
def bundles_with_state(context: click.Context) -> Iterable[str]:
    """Bundles of the configuration, and those of which something is kept."""
    configuration, directories = _host(context)
    return [*(choice.name for choice in configuration.bundles), *Store(directories.bundles).names()]


@_offer
def versions_on_host(context: click.Context) -> Iterable[str]:
    """Versions of the bundle that stands before, as far as they are on this host."""
    store = Store(_host(context)[1].bundles)
    return [found.version for found in store.installed(context.params["bundle"])]


@_offer
def quarantined_bundles(context: click.Context) -> Iterable[str]:
    """Bundles that are in quarantine."""
    return [bundle for bundle, _ in _quarantined(context)]


@_offer
def quarantined_versions(context: click.Context) -> Iterable[str]:
    """Versions in quarantine, of the bundle that stands before."""
    return [version for bundle, version in _quarantined(context) if bundle == context.params["bundle"]]


@_offer
def resources_of_host(context: click.Context) -> Iterable[str]:
    """References of all resources of the last run."""
    report = load_all_events(_host(context)[1])
    return [event.reference for bundle in report.bundles for event in bundle.events] if report else []


@_offer
def left_behind(context: click.Context) -> Iterable[str]:
    """References of what the bundle that stands before has left behind."""
    managed = Managed(_host(context)[1], _ignore, noop=True)
    return [one.reference for one in managed.left(context.params["bundle"])]


@_offer
def resource_types(context: click.Context) -> Iterable[str]:
    """Types of resources."""
    return type_names()


@_offer
def bundles_of_site(context: click.Context) -> Iterable[str]:
    """Bundles of the site that stands before."""
    from bundles.publisher.site import Site

    return Site(Path(context.params["directory"])).bundles()


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Files and directories, as the shell itself offers them."""
    return [CompletionItem(incomplete, type="file")]


def _host(context: click.Context) -> "tuple[Configuration, Directories]":
    as_user = bool(context.params.get("as_user"))
    found = load_configuration(configuration_file(context.params.get("path"), as_user=as_user))
    return found, Directories(Path(found.state_directory), Path(found.run_directory))


def _quarantined(context: click.Context) -> list[tuple[str, str]]:
    entries = Quarantine.load(_host(context)[1], _ignore, noop=True).entries
    return [(entry.bundle, entry.version) for entry in entries]


def _ignore(text: str) -> None:
    """A note about damaged state is for commands that read it for people."""
