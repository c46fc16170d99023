"""A directory as a destination of reports: of a web server on this machine, or mounted.

* The directory itself must exist. If a medium is not mounted, Puller must not fill the disk below its mount point.
* A file appears only when it is complete. All users can read it, because an import need not run as root.
* The directory may belong to another user. Links on the way are judged as for managed files, and the directory of the
  host is never opened through a link.
"""

import contextlib
import os

from bundles.deadline import Deadline
from bundles.errors import TransportError
from bundles.filesystem.atomic import naming, remove_leftovers, replace_file
from puller.config.configuration import Configuration
from puller.config.destinations import DestinationOptions
from puller.errors import ResourceError
from puller.system.local_paths import REAL_DIRECTORY, open_safely, require_writable

_MODE, _MODE_OF_DIRECTORY = 0o644, 0o755


class DirectoryDestination:
    """The directory of ``options``. Methods are those of ``Destination``."""

    def __init__(self, configuration: Configuration, options: DestinationOptions) -> None:
        del configuration
        self._path = os.path.abspath(options.location)

    def send(self, host: str, run: str, data: bytes, deadline: Deadline) -> None:
        """See ``Destination`` for the errors that it raises."""
        path = f"{self._path}/{host}/{run}.json.gz"
        try:
            with naming(path), open_safely(self._path) as directory:
                self._write(directory, host, f"{run}.json.gz", data, deadline)
        except ResourceError as error:
            raise TransportError(self._path, str(error)) from None

    def _write(self, directory: int, host: str, name: str, data: bytes, deadline: Deadline) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(host, _MODE_OF_DIRECTORY, dir_fd=directory)
            os.chmod(host, _MODE_OF_DIRECTORY, dir_fd=directory)  # independent of the umask
        own = os.open(host, REAL_DIRECTORY, dir_fd=directory)
        try:
            remove_leftovers(own)
            deadline.verify()  # a thread that ran past its deadline must not write
            replace_file(own, name, [data], mode=_MODE)
        finally:
            os.close(own)

    def verify(self) -> None:
        """See ``Destination`` for the errors that it raises."""
        require_writable(self._path)

    def close(self) -> None:
        """Do nothing, because no connection stays open."""
