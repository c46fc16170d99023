"""Documents of hosts, put into a directory: ``DIRECTORY/<host>/<run>.json.gz``.

* Only a document is put there: one that unpacks within its bounds, is understood, and is of the host and the run that
  it is sent for.
* A file appears when it is whole. The same document again changes nothing.
* A host fills the disk no further than the bounds: its oldest documents go first.
"""

import contextlib
import os
import re
from pathlib import Path

import msgspec

from bundles.filesystem.atomic import remove_leftovers, replace_file
from bundles.filesystem.output import open_output_directory
from bundles.filesystem.trees import open_regular
from puller.delivery.document import LARGEST, unpack
from puller.reporting.sent_report import SentReport
from puller.state.stored_json import decode
from puller.values.host_name import WANTED, is_host_name

_RUN = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z")
_SUFFIX = ".json.gz"
MOST_DOCUMENTS, MOST_BYTES = 1000, 100_000_000
"""Of one host; older documents are removed. At one run in half an hour these are the runs of three weeks."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RefusedDocument(Exception):
    """The thing that was sent is no document for this place, and will not be one when it is sent again."""


class Name(msgspec.Struct, frozen=True):
    """Whose document it is."""

    host: str
    run: str

    @classmethod
    def parse(cls, path: str) -> "Name":
        """From ``/<host>/<run>.json.gz``; raises ``RefusedDocument``."""
        host, _, file = path.removeprefix("/").partition("/")
        name = cls(host, file.removesuffix(_SUFFIX))
        if not path.startswith("/") or not file.endswith(_SUFFIX):
            raise RefusedDocument("wanted /HOST/RUN.json.gz")
        name.verify()
        return name

    def verify(self) -> None:
        """Raise ``RefusedDocument`` for what is no name of a host, or of a run."""
        if not is_host_name(self.host):
            raise RefusedDocument(f"the name of the host is {self.host[:100]!r}, {WANTED}")
        if not _RUN.fullmatch(self.run):
            raise RefusedDocument(
                f"the run is {self.run[:100]!r}, wanted one such as 20261123T081500.000000Z"
            )


class Intake(msgspec.Struct, frozen=True):
    """The directory that documents are put into."""

    directory: Path

    def take(self, data: bytes, name: Name | None) -> bool:
        """Keep a document; gives whether it was not there yet.

        ``name`` is the one that it was sent for, ``None`` for the one that it has in it. Raises ``RefusedDocument``,
        ``OSError``.
        """
        inside = _name_in(data)
        if name is not None and name != inside:
            what = f"of host {inside.host[:100]!r} and run {inside.run[:100]!r}"
            raise RefusedDocument(f"the document is {what}, sent for {name.host!r} and {name.run!r}")
        inside.verify()
        return self._write(inside, data)

    def _write(self, name: Name, data: bytes) -> bool:
        with open_output_directory(self.directory) as directory:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name.host, 0o755, dir_fd=directory)
            own = os.open(name.host, _DIRECTORY, dir_fd=directory)
            try:
                file = f"{name.run}{_SUFFIX}"
                if _content(own, file) == data:
                    return False
                remove_leftovers(own)
                replace_file(own, file, [data], mode=0o644)
                _drop_oldest(own, file)
                return True
            finally:
                os.close(own)


def _drop_oldest(directory: int, newest: str) -> None:
    """Remove the oldest documents of a host beyond the bounds, but never the one that has just arrived."""
    documents = [name for name in os.listdir(directory) if name.endswith(_SUFFIX) and name[0] != "."]
    documents.sort(key=lambda name: (name == newest, name), reverse=True)
    total = 0
    for count, name in enumerate(documents, 1):
        with contextlib.suppress(FileNotFoundError):  # imported, or dropped by another connection
            total += os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
            if count > 1 and (count > MOST_DOCUMENTS or total > MOST_BYTES):
                os.unlink(name, dir_fd=directory)


def _name_in(data: bytes) -> Name:
    try:
        sent = decode(unpack(data), SentReport)
    except ValueError as error:
        raise RefusedDocument(f"is no report: {error}") from None
    if sent.report.host != sent.host:
        raise RefusedDocument(f"is of host {sent.host[:100]!r}, and its report of {sent.report.host[:100]!r}")
    return Name(sent.host, sent.report.run)


def _content(directory: int, file: str) -> bytes | None:
    with contextlib.suppress(FileNotFoundError), open_regular(Path(file), directory=directory) as stream:
        return stream.read(LARGEST + 1)
    return None
