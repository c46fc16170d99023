"""Readers of encrypted files: the readers that the rules give a file, changes of readers, and the values that former
readers know.

* ``recipients.yaml`` comes first, then the creation rules of SOPS in ``.sops.yaml``. As in SOPS, the first rule whose
  ``path_regex`` is found in the path applies. The path is relative to the directory of ``.sops.yaml``, or absolute for
  a file elsewhere. ``.sops.yaml`` is ``$SOPS_CONFIG``, or the nearest file above the working directory. Without either,
  it is the nearest file above the encrypted file.
* A rule with recipients of other kinds, such as PGP, or with a key that is unknown here, is an error. A file without
  these recipients would be unreadable for them.
* All new texts are computed before the first file is written. A file that already has its readers is unchanged.
* A reader that leaves has read the old values. The author must change them at their source, so they are listed.

Source: https://github.com/getsops/sops, ``config/config.go``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from foundation.problems import Location, ProblemCode
from hiera import parsing
from hiera.go_regex.pattern import compile_pattern, is_found
from hiera.go_regex.syntax import PatternError
from hiera.sops import MARK
from hiera.sops.format import RULES, Metadata, Rule
from hiera.sops.identities import Identities, is_recipient, normalized, shortened
from hiera.sops.writing import Readers, decrypt, encrypt, find_metadata, secret_paths, with_recipients
from puller.authoring.secrets.editing import read_encrypted
from puller.authoring.secrets.recipients import Reader, Recipients, load_rules
from puller.errors import SourceError, UsageError

_SOPS_FILE: Final = ".sops.yaml"
_GROUP_KEYS: Final = ("age", "merge")
_RULE_KEYS: Final = (
    *("path_regex", "age", "key_groups", "shamir_threshold", "mac_only_encrypted", "timeout"),
    *RULES,
)
_SIZE_LIMIT: Final = 1024 * 1024
_SUFFIXES: Final = (".yaml", ".yml", ".eyaml", ".json")


def find_readers(path: str, recipients: Recipients) -> tuple[Readers, str] | None:
    """Return the readers of a file by its rule, and the file of the rule. ``None`` without a rule.

    Raises ``SourceError``, ``ManifestError`` and ``UsageError``.
    """
    rule = recipients.rule_of(path)
    if rule is not None:
        readers = Readers(recipients.select(rule.readers), rule.rule, rule.mac_only_encrypted)
        return readers, recipients.source
    source = _find(path)
    if source is None:
        return None
    readers_of_sops = _readers(source, path, recipients)
    return None if readers_of_sops is None else (readers_of_sops, source)


def _find(path: str) -> str | None:
    if named := os.environ.get("SOPS_CONFIG"):
        return named
    for start in (os.getcwd(), os.path.dirname(os.path.realpath(path))):
        directory = os.path.realpath(start)
        while True:
            candidate = os.path.join(directory, _SOPS_FILE)
            if os.path.lexists(candidate):
                return candidate
            if directory == (directory := os.path.dirname(directory)):
                break
    return None


def _readers(source: str, path: str, recipients: Recipients) -> Readers | None:
    text, value = load_rules(source)
    rules = (value.get("creation_rules") or []) if isinstance(value, Mapping) else value or []
    if not isinstance(rules, list) or not isinstance(value, Mapping | None):
        raise SourceError("has no list creation_rules", location=Location(source))
    directory = os.path.join(os.path.dirname(os.path.abspath(source)), "")
    relative = os.path.abspath(path).removeprefix(directory)
    for index, rule in enumerate(rules):
        try:
            if not isinstance(rule, Mapping):
                raise ValueError("is not a mapping")
            if is_found(compile_pattern(str(rule.get("path_regex") or "")), relative):
                return _readers_of(rule, recipients)
        except (ValueError, PatternError) as error:
            location = Location(source, *parsing.locate(text, ("creation_rules", index)))
            detail = f"creation rule {index + 1}: {error}"
            raise SourceError(detail, code=ProblemCode.INVALID_VALUE, location=location) from None
    return None


def _readers_of(rule: Mapping[str, Any], recipients: Recipients) -> Readers:
    groups = rule.get("key_groups") or [rule]
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        raise ValueError("key_groups is not a list of mappings")
    if len(groups) > 1 or (rule.get("shamir_threshold") or 1) != 1:
        raise ValueError("several key groups are not supported")
    _require_known(rule, _RULE_KEYS)
    names = (
        _names(rule) if groups[0] is rule else [name for group in groups for name in _names_of_group(group)]
    )
    if not names:
        raise ValueError("has no recipient of age")
    for name in names:
        if not is_recipient(name):
            raise ValueError(f"{name} is not a recipient: expected age1… or ssh-ed25519 …")
    kinds = [kind for kind in RULES if rule.get(kind)]
    if len(kinds) > 1:
        raise ValueError(f"has several of {', '.join(RULES)}, expected one")
    encrypted = Rule(kinds[0], str(rule[kinds[0]])) if kinds else None
    return Readers(
        {name: recipients.name_of(name) for name in names}, encrypted, rule.get("mac_only_encrypted") is True
    )


def _names_of_group(group: Mapping[str, Any]) -> list[str]:
    """Return the recipients of a key group, those of merged groups first."""
    _require_known(group, _GROUP_KEYS)
    merged = group.get("merge") or []
    if not isinstance(merged, list) or not all(isinstance(other, Mapping) for other in merged):
        raise ValueError("merge is not a list of mappings")
    return [*(name for other in merged for name in _names_of_group(other)), *_names(group)]


def _names(keys: Mapping[str, Any]) -> list[str]:
    """Return the recipients in ``age``, which is a text with commas, or a list of such texts."""
    written = keys.get("age") or []
    listed = [written] if isinstance(written, str) else written
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise ValueError("age is not a list of recipients")
    return [normalized(name) for text in listed for name in text.split(",") if name.strip()]


def _require_known(keys: Mapping[str, Any], known: Sequence[str]) -> None:
    if other := [str(name) for name, value in keys.items() if value and name not in known]:
        verb = "is" if len(other) == 1 else "are"
        raise ValueError(f"{' and '.join(other)} {verb} not supported by Puller")


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
