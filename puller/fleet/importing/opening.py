"""Which source a location means."""

from foundation.object_store import SCHEME
from puller.fleet.importing.directory import DirectorySource
from puller.fleet.importing.objects import ObjectSource
from puller.fleet.importing.source import Source


def open_source(location: str) -> Source:
    """The source at a path, or ``s3://BUCKET/PREFIX``; raises ``SourceError`` and ``UsageError``."""
    if location.startswith(SCHEME):
        return ObjectSource.open(location)

    return DirectorySource.open(location)
