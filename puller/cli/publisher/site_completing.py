"""Shell completion of the arguments of ``puller site``: bundles, channels and versions of a site."""

from collections.abc import Iterable
from pathlib import Path

import click

from bundles.publisher.site import Site
from puller.cli.completing import offer
from puller.cli.publisher.site import with_site


@offer
def bundles_of_site(context: click.Context) -> Iterable[str]:
    """Return the bundles of the preceding site argument."""
    return Site(Path(context.params["directory"])).bundles()


@offer
def channels_of_site(context: click.Context) -> Iterable[str]:
    """Return the channels of the preceding site argument."""
    indexes = Site(Path(_site_words(context)[0])).indexes()
    return [channel for index in indexes.of.values() for channel in index.channels]


@offer
def versions_of_site(context: click.Context) -> Iterable[str]:
    """Return the published versions of the preceding bundle arguments of a site."""
    directory, *bundles = _site_words(context)
    site = Site(Path(directory))
    return [version for bundle in bundles for version in site.record(bundle).index.releases]


def _site_words(context: click.Context) -> list[str]:
    """Return DIR and the other arguments of a line that ends with an option without its value.

    click has not assigned the arguments of such a line yet.
    """
    return with_site(context.command, list(context.args), is_complete=False)
