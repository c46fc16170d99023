"""Changes of the readers of encrypted files, and the values that former readers know.

* All new texts are computed before the first file is written. A file that already has its readers is unchanged.
* A reader that leaves has read the old values. The author must change them at their source, so they are listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from hiera.sops import MARK
from hiera.sops.format import Metadata
from hiera.sops.identities import Identities, shortened
from hiera.sops.writing import Readers, decrypt, encrypt, find_metadata, secret_paths, with_recipients
from puller.authoring.secrets.creation_rules import find_readers
from puller.authoring.secrets.editing import read_encrypted
from puller.authoring.secrets.recipients import Reader, Recipients
from puller.errors import SourceError, UsageError

_SUFFIXES: Final = (".yaml", ".yml", ".eyaml", ".json")


class Sealed(msgspec.Struct, frozen=True):
    """An encrypted file as it is."""

    path: str
    text: str
    metadata: Metadata

    def names(self, recipients: Recipients) -> dict[str, str]:
        """Return the names of its readers by recipient. An unknown reader has a part of its key."""
        return {
            each: recipients.name_of(each) or self.metadata.names.get(each) or shortened(each)
            for each in self.metadata.sealed
        }


class Rekeyed(msgspec.Struct, frozen=True):
    """A file with other readers."""

    path: str
    text: str
    """The new text. Equal to the old text if nothing changes."""
    added: dict[str, str]
    """The names of new readers, by recipient."""
    removed: dict[str, str]
    exposed: tuple[str, ...]
    """The paths of the encrypted values, if a reader leaves."""
    is_changed: bool


def find_sealed(paths: Iterable[str]) -> Iterator[Sealed]:
    """Yield the encrypted files at the paths and below directories, in their order.

    Raises ``SourceError``, ``UsageError`` for another file, and ``HieraError``.
    """
    for path in paths:
        if os.path.isdir(path):
            yield from _below(path)
        else:
            sealed = _sealed(path)
            if sealed is None:
                raise UsageError(f"{path}: is not encrypted", hint="`puller secrets encrypt` encrypts it")
            yield sealed


def _below(directory: str) -> Iterator[Sealed]:
    def refuse(error: OSError) -> None:
        raise SourceError(f"{error.filename}: cannot be read: {error.strerror}") from error

    for place, directories, names in os.walk(directory, onerror=refuse):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(place, name)
            if name.endswith(_SUFFIXES) and os.path.isfile(path) and (sealed := _sealed(path)) is not None:
                yield sealed


def _sealed(path: str) -> Sealed | None:
    text = read_encrypted(path)
    if MARK not in text:  # also spares the parser manifests and templates, which need not be plain YAML
        return None
    metadata = find_metadata(text, path)
    return None if metadata is None else Sealed(path, text, metadata)


def desired_readers(
    sealed: Sealed, recipients: Recipients, added: Sequence[str], removed: Sequence[str]
) -> Readers:
    """Return the readers of a file: by its rule, or its readers with additions and removals.

    Raises ``UsageError``, ``SourceError`` and ``ManifestError``.
    """
    metadata = sealed.metadata
    if not added and not removed:
        result = find_readers(sealed.path, recipients)
        if result is None:
            hint = "add a rule to recipients.yaml or .sops.yaml, or use --add and --remove"
            raise UsageError(f"{sealed.path}: no rule selects the file", hint=hint)
        return result[0]
    readers = {each: recipients.name_of(each) or metadata.names.get(each, "") for each in metadata.sealed}
    for text in removed:
        for recipient in removable(text, sealed, recipients):
            readers.pop(recipient, None)
    readers |= recipients.select(added)
    return Readers(readers)


def removable(text: str, sealed: Sealed, recipients: Recipients) -> list[str]:
    """Return the readers of a file that a reader's text selects, also by names in the file. Raises ``UsageError``.

    A host that has gone may be missing in ``recipients.yaml``.
    """
    try:
        reader = Reader.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    hosts = {host.recipient: (name, host) for name, host in recipients.hosts.items() if host.recipient}
    people = {recipient: name for name, recipient in recipients.people.items()}
    result = []
    for each in sealed.metadata.sealed:
        name = sealed.metadata.names.get(each, "")
        conditions = reader.conditions
        is_named_host = (
            len(conditions) == 1 and conditions[0][0] == "host" and fnmatchcase(name, conditions[0][1])
        )
        is_person = reader.person != "" and reader.person in (people.get(each), name)
        is_host = each in hosts and reader.selects(*hosts[each])
        if each == reader.recipient or is_person or is_host or (name and is_named_host):
            result.append(each)
    return result


def rekey(
    sealed: Sealed, readers: Readers, recipients: Recipients, identities: Identities, *, new_key: bool
) -> Rekeyed:
    """Return a file for other readers. ``new_key`` encrypts all values again in any case. Raises ``HieraError``."""
    text = with_recipients(sealed.text, sealed.path, readers, identities)
    metadata = sealed.metadata
    if new_key:
        opened = decrypt(text, sealed.path, identities)
        fresh = {each: opened.metadata.names.get(each, "") for each in opened.metadata.sealed}
        kept = Readers(fresh, metadata.rule, metadata.mac_only_encrypted)
        text = encrypt(opened.text, sealed.path, kept)
    names = sealed.names(recipients)
    removed = {each: names[each] for each in metadata.sealed if each not in readers.recipients}
    added = {
        each: recipients.name_of(each) or name or shortened(each)
        for each, name in readers.recipients.items()
        if each not in metadata.sealed
    }
    exposed = tuple(secret_paths(sealed.text, sealed.path)) if removed else ()
    return Rekeyed(sealed.path, text, added, removed, exposed, text != sealed.text)
