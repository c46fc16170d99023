"""Site data: documents for all hosts, signed by the site, in files or on a web server, with last good copies.

* A document is used and copied if it is valid and can be resolved on this host. A document without data, or perhaps
  truncated, is invalid: a failing server must not remove the data of all hosts.
* A problem with a document is reported, and its last good copy is used. It never stops a run, even without a copy.
* A copy is one file, so that the text and the validators of the server always belong together.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from bundles.deadline import Deadline
from bundles.errors import TransportError
from bundles.filesystem.atomic import read_limited
from bundles.format.site_targets import SIGNED, SiteDocument
from bundles.transport.mirror import download_if_changed
from bundles.transport.settings import TransportSettings, Validators
from foundation.masking import mask_urls
from foundation.problems import ProblemCode
from hiera.errors import DocumentError
from puller.data.sources import SIZE_LIMIT, DataSource, Origin, Surroundings, read_trusted
from puller.errors import ConfigurationError, file_problem
from puller.reporting.run_log import sentence_of
from puller.state import decode, write_state

Warn = Callable[[str, Exception], None]
"""Receives a sentence and its error."""


Signed = Mapping[str, SiteDocument]
"""Verified documents, by name."""


class Copy(msgspec.Struct, frozen=True, tag_field="format", tag=1):
    """The last good version of a document."""

    location: str
    """Without credentials of a URL, which must not be in the state directory."""
    text: str
    validators: Validators = Validators()


class SiteData(msgspec.Struct, frozen=True):
    """The documents of one host."""

    directory: Path
    """The directory of the copies."""
    surroundings: Surroundings
    settings: Callable[[str], TransportSettings]
    """Returns the settings for a URL."""
    warn: Warn
    """Receives all problems."""
    signed: Signed | None = None
    """The documents that the site has signed. ``None`` if the site was unavailable, which is reported elsewhere."""
    deadline: Deadline | None = None
    """The time limit of all downloads. ``None``: each document has its own limit."""
    noop: bool = False
    """Keeps the copies unchanged, for a dry run."""

    def load(self, locations: Iterable[str]) -> tuple[DataSource, ...]:
        """Return the data of the documents, lowest precedence first."""
        sources: list[DataSource] = []
        for location in locations:
            source = self._newest(location, sources)
            sources += [source] if source is not None else []
        return tuple(sources)

    def load_copies(self, locations: Iterable[str]) -> tuple[DataSource, ...]:
        """Return the data of the last good copies, as the last run used them."""
        sources: list[DataSource] = []
        for location in locations:
            source = self._resolved(self._copy(location), sources)
            sources += [source] if source is not None else []
        return tuple(sources)

    def forget_others(self, locations: Iterable[str]) -> None:
        """Remove the copies of documents that are not configured any longer."""
        desired = {self._path(location) for location in locations}
        try:
            for path in self.directory.glob("*.json"):
                if path not in desired:
                    path.unlink(missing_ok=True)
            if not desired:
                self.directory.rmdir()
        except OSError as error:
            self._note_os(error)

    def _newest(self, location: str, below: list[DataSource]) -> DataSource | None:
        """Return the current document, its last good copy, or ``None``. Record the reason."""
        copy = self._copy(location)
        try:
            new = self._fetched(location, copy)
            source = self._source(new, below)
        except Exception as error:  # noqa: BLE001  whatever it is, what is here already is enforced
            known = self._resolved(copy, below)
            then = "using its last good copy" if known else "continuing without it"
            self.warn(f"{sentence_of(error)}, {then}", error)
            return known
        # Only now the document is known to be valid and resolvable on this host.
        if not self.noop and new != copy:
            self._keep(new, self._path(location))
        return source

    def _fetched(self, location: str, copy: Copy | None) -> Copy:
        """Return the current document. Raise ``BundleError``, ``ConfigurationError`` and ``DocumentError``."""
        if location.startswith(SIGNED):
            return self._signed(location, copy)
        if location.startswith("/"):
            return Copy(location, read_trusted(Path(location)))

        into = io.BytesIO()
        known = copy.validators if copy else Validators()
        settings = self.settings(location)
        received = download_if_changed(location, SIZE_LIMIT, into, known, settings, self.deadline)
        if received is None and copy is not None:  # not modified
            return copy
        text = _decoded(into.getvalue(), location)
        if received is None or not (received.is_whole or _has_end(text)):
            detail = "the server sends no length, so the document may be truncated (end it with a line of three dots)"
            raise TransportError(shown(location), detail)
        return Copy(shown(location), text, received.validators)

    def _signed(self, location: str, copy: Copy | None) -> Copy:
        if self.signed is None:
            if copy is not None:
                return copy
            raise TransportError(location, "the site was not reachable")
        result = self.signed.get(location.removeprefix(SIGNED))
        if result is None:
            raise ConfigurationError(
                f"{location}: the site does not publish these data", code=ProblemCode.NOT_PUBLISHED
            )
        return Copy(location, _decoded(result.contents, location))

    def _source(self, copy: Copy, below: Iterable[DataSource]) -> DataSource:
        source = self.surroundings.resolve(copy.text, copy.location, Origin.SITE, below)
        document = source.document
        if document is not None and document.is_empty and not document.is_skipped:
            raise DocumentError(copy.location, "is empty, and empty documents are ignored")
        return source

    def _resolved(self, copy: Copy | None, below: Iterable[DataSource]) -> DataSource | None:
        """Return the data of a copy. Changed facts of this host may have made it unusable."""
        try:
            return self._source(copy, below) if copy is not None else None
        except Exception:  # noqa: BLE001  a copy that cannot be used is as good as none
            return None

    # The copies

    def _path(self, location: str) -> Path:
        return self.directory / f"{sha256(location.encode()).hexdigest()}.json"

    def _copy(self, location: str) -> Copy | None:
        """Return the last good copy. ``None`` if it is damaged, because the next copy replaces it."""
        try:
            # JSON may be several times as long as the text: a control character takes six bytes.
            copy = decode(read_limited(self._path(location), 8 * SIZE_LIMIT), Copy)
        except (FileNotFoundError, IsADirectoryError, msgspec.DecodeError, ValueError):
            return None
        except OSError as error:
            self._note_os(error)
            return None
        return copy if copy.location == shown(location) else None

    def _keep(self, copy: Copy, path: Path) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_state(path, msgspec.json.encode(copy))
        except OSError as error:
            self._note_os(error)

    def _note_os(self, error: OSError) -> None:
        self.warn(file_problem(error, where=error.filename or self.directory), error)


def shown(location: str) -> str:
    """Return a location without user name, password and query."""
    return mask_urls(location)


def _has_end(text: str) -> bool:
    """Return whether a document has a visible end: the end marker of YAML, or the last brace of JSON."""
    text = text.strip()
    return text.endswith("\n...") or (text.startswith("{") and text.endswith("}"))


def _decoded(data: bytes, location: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(shown(location), f"is not UTF-8 text, at byte {error.start}") from None
