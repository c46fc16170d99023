"""Errors of a bundle or a site, split by who must act.

BundleError
* TransportError      the network or the server: try again at the next timer tick
  - NotFoundError        the server does not have the file
  - OversizeError       the server sends more than the file may have
  - UnchangedError      the file is unchanged since the last response
* TrustError          the publisher or an attacker: keep the current bundle and report an error
  - SignatureError      bytes, signatures or thresholds do not match what was signed
  - ExpiredError        correctly signed, but expired
  - RollbackError       older than, or different from, what this machine has already trusted
* FormatError         unknown or invalid format: upgrade the agent or fix the publisher
  - UnpackError         an archive that is not a canonical, safe bundle
* PublishError        the requested change would break a guarantee of the site
  - KeyFileError        a signing key that cannot be used: wrong passphrase, wrong type, open to others
    - TokenError          a key in a token or key service that fails
* SettingsError       invalid settings of this machine: the site's URL, a proxy, the trust anchor
* StoreError          the local store of this machine: disk full, permission, corruption
"""

from typing import TypeVar

from foundation.formatting import completed, text_of
from foundation.masking import mask_urls
from foundation.problems import Location, Problem, ProblemCode

Kind = TypeVar("Kind", bound="BundleError")


def reason_of(error: BaseException) -> str:
    """Return the message of a library error, or its class name if the message is empty."""
    return str(error) or type(error).__name__


class BundleError(Exception):
    """Base of all errors of this package. ``str()`` formats its problem: *where: what*.

    ``where`` is the file, the URL or the part of a document. The attribute ``what`` is the message with ``expected``,
    the valid values, and ``hint``, how to fix it. No part contains the user name, the password or the query of a URL.
    """

    code = ProblemCode.INTERNAL_ERROR
    """The default code."""

    def __init__(
        self, where: str, what: str, *, code: ProblemCode | None = None, expected: str = "", hint: str = ""
    ) -> None:
        # Masked here and not where errors are displayed, so that no error is missed.
        where, what, expected = mask_urls(where), mask_urls(what), mask_urls(expected)
        super().__init__(where, what)
        self.where = where
        self.what = completed(what, expected, hint)
        self._message = what
        self.code = code or type(self).code
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        return text_of(self.problems[0])

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the problem as a value."""
        location = Location(self.where)
        return (
            Problem(
                code=self.code,
                message=self._message,
                location=location,
                expected=self.expected,
                hint=self.hint,
            ),
        )

    def under(self, where: str, kind: "type[Kind]", code: ProblemCode | None = None) -> "Kind":
        """Return the error with another place and class. The default ``code`` belongs to the class."""
        return kind(where, self._message, code=code, expected=self.expected, hint=self.hint)


class TransportError(BundleError):
    """The network or the server failed. The published data may be correct."""

    code = ProblemCode.NETWORK_FAILURE


END_UNKNOWN = "the server sent no length, so the file may be incomplete: specify its checksum"
"""Why a file is rejected if only the end of the connection marks its end."""


class NotFoundError(TransportError):
    """The server does not have the file."""

    code = ProblemCode.FILE_NOT_FOUND


class OversizeError(TransportError):
    """The file exceeds its size limit. Data beyond the limit was not read."""

    code = ProblemCode.OVERSIZED_FILE


class UnchangedError(TransportError):
    """The file is unchanged. Only raised for conditional requests."""


class TrustError(BundleError):
    """Bytes or metadata that are not what enough trusted keys signed."""

    code = ProblemCode.UNTRUSTED_CONTENT


class SignatureError(TrustError):
    """A length, hash, signature or threshold does not hold."""


class ExpiredError(TrustError):
    """Metadata whose signed expiry is in the past."""

    code = ProblemCode.METADATA_EXPIRED


class RollbackError(TrustError):
    """A version older than the one already trusted, or the same version with other content."""

    code = ProblemCode.METADATA_ROLLBACK


class FormatError(BundleError):
    """An unknown format version, or a document of another kind."""

    code = ProblemCode.UNKNOWN_FORMAT


class UnpackError(FormatError):
    """An archive that the strict unpacker rejects."""

    code = ProblemCode.INVALID_ARCHIVE


class PublishError(BundleError):
    """A publisher's command that is rejected before anything is written."""

    code = ProblemCode.PUBLISH_REFUSED


class KeyFileError(PublishError):
    """A signing key that cannot be read or used."""

    code = ProblemCode.UNUSABLE_KEY


class TokenError(KeyFileError):
    """A signing key in a hardware token or a key service that cannot be used now."""

    code = ProblemCode.UNAVAILABLE_TOKEN


class SettingsError(BundleError):
    """The configuration or the trust anchor of this machine cannot be used."""

    code = ProblemCode.INVALID_CONFIGURATION


class StoreError(BundleError):
    """The store on this machine could not be read or written."""

    code = ProblemCode.STORE_FAILURE
