"""Locations of destinations.

===================================  =============================================================
``/srv/www/puller``                  a directory
``www:/srv/www/puller``              a machine by SSH, configured for ``ssh``; or ``ssh://user@www:22/srv/www``
``https://dav.example.com/puller``   a web server with WebDAV
``s3://bucket/prefix``               an object store with the S3 API, with the extra ``s3``
===================================  =============================================================
"""

import re

from bundles.errors import PublishError
from bundles.publisher.push.destination import Destination, Directory
from bundles.publisher.push.s3 import ObjectStoreDestination
from bundles.publisher.push.ssh import Remote
from bundles.publisher.push.webdav import WebDav
from foundation.masking import mask_location
from foundation.object_store import SCHEME
from foundation.problems import ProblemCode

_SSH = re.compile(r"(?P<host>(?:[^/@:\s]+@)?(?:\[[0-9a-fA-F:.]+\]|[^/@:\s-][^/@:\s]*)):(?P<path>/.*)")
_SSH_URL = re.compile(
    r"ssh://(?P<host>(?:[^/@:\s]+@)?(?:\[[0-9a-fA-F:.]+\]|[^/@:\s-][^/@:\s]*))(?::(?P<port>[0-9]+))?(?P<path>/.*)"
)


def open_destination(location: str) -> Destination:
    """Return the destination of a location, without connecting. Raises `PublishError`."""
    if any(not character.isprintable() for character in location):
        what = "is no destination: it has control characters"
        raise PublishError(mask_location(ascii(location)), what, code=ProblemCode.INVALID_COMMAND)
    if location.startswith(SCHEME):
        return ObjectStoreDestination.open(location)
    if location.startswith(("http://", "https://")):
        return WebDav(location)
    if "://" in location and not location.startswith("ssh://"):
        scheme = location.partition("://")[0]
        what = "is no kind of destination, expected a directory, ssh://, https:// or s3://"
        raise PublishError(f"{scheme}://", what, code=ProblemCode.INVALID_COMMAND)
    if found := _SSH_URL.fullmatch(location) or _SSH.fullmatch(location):
        fields = found.groupdict()
        return Remote(fields["host"], fields["path"], fields.get("port"))

    return Directory(location)
