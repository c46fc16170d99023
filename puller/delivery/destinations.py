"""The destination of reports that a configuration means (``puller.config.destinations`` has the kinds)."""

from collections.abc import Callable

from puller.config.configuration import Configuration
from puller.config.destinations import DestinationOptions
from puller.delivery.destination import Destination


def open_destination(configuration: Configuration, options: DestinationOptions) -> Destination:
    """The destination that is meant; connects to nothing yet. Raises ``PullerError``, ``BundleError``."""
    return _kind(options)(configuration, options)


def _kind(options: DestinationOptions) -> Callable[[Configuration, DestinationOptions], Destination]:
    # Each imports what it needs, which for a directory is next to nothing.
    if options.directory is not None:
        from puller.delivery.directory import DirectoryDestination

        return DirectoryDestination
    if options.is_store:
        from puller.delivery.object_store import ObjectStore

        return ObjectStore
    from puller.delivery.web import WebDestination

    return WebDestination
