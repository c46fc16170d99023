"""The trust anchor: a root file that came to this machine with its provisioning, and not from the site.

* It is signed by its own keys, as many as it demands; otherwise it is damaged or no root at all.
* It may be old, and even expired. From it the roots of the site are followed one by one.
"""

from dataclasses import dataclass
from pathlib import Path

from tuf.api.exceptions import RepositoryError, UnsignedMetadataError

from bundles.errors import BundleError, SettingsError
from bundles.filesystem.atomic import read_limited
from bundles.format.limits import LARGEST_METADATA
from bundles.format.metadata import check_metadata
from bundles.format.tuf import Metadata, Root

_LARGEST = LARGEST_METADATA["root"]
_WANTED = "wanted the root.json that `puller site init` wrote"


@dataclass(frozen=True, slots=True)
class Anchor:
    """``where`` is for messages."""

    data: bytes
    version: int
    where: str

    @classmethod
    def load(cls, source: Path | bytes) -> "Anchor":
        """Read and check an anchor; raises `SettingsError`."""
        where = "the trust anchor" if isinstance(source, bytes) else str(source)
        data = source if isinstance(source, bytes) else _read(source)
        return cls(data, parse_root(data, where).version, where)


def parse_root(data: bytes, where: str) -> Root:
    """A root that its own keys signed; raises `SettingsError`."""
    try:
        check_metadata(data, where)
        metadata = Metadata[Root].from_bytes(data)
        if not isinstance(metadata.signed, Root):
            raise SettingsError(where, f"is metadata of type {metadata.signed.type!r}, {_WANTED}")
        metadata.signed.verify_delegate(Root.type, metadata.signed_bytes, metadata.signatures)
    except UnsignedMetadataError as error:
        raise SettingsError(where, f"is not signed by its own keys ({error}): it is damaged") from None
    except SettingsError:  # says already what was wanted; it is a BundleError, too
        raise
    except BundleError as error:
        raise SettingsError(where, f"{error.what}; {_WANTED}") from None
    except RepositoryError as error:
        raise SettingsError(where, f"is not a root: {error.__cause__ or error}; {_WANTED}") from None
    return metadata.signed


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, _LARGEST)
    except FileNotFoundError:
        raise SettingsError(str(path), f"there is no trust anchor; {_WANTED}") from None
    except OSError as error:
        raise SettingsError(str(path), f"the trust anchor cannot be read: {error.strerror}") from None
    except ValueError:
        raise SettingsError(str(path), f"has more than {_LARGEST} bytes; {_WANTED}") from None
