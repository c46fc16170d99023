"""Recipients by name: ``recipients.yaml``, hosts from the store of a fleet, and readers that select some of them.

* A reader is a text such as ``host=web1.example.com`` or ``bundle=web,facts.os.family=Debian``. All of its conditions
  must match. Several readers of a file add up.
* A recipient in ``recipients.yaml`` overrides that of a report: the file is under review, and a host sends its reports.
* A selected host without a recipient is an error, as is a reader that selects nothing. The file would otherwise be
  unreadable for a host that needs it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from bundles.filesystem.atomic import read_limited
from foundation.problems import KeyPath, Location, ProblemCode
from foundation.quantities import first_few
from hiera import parsing
from hiera.errors import HieraError
from hiera.sops.format import RULES, Rule
from hiera.sops.identities import is_recipient, normalized
from puller.errors import ManifestError, SourceError, UsageError, file_problem
from puller.values.plain_values import explain

NAME: Final = "recipients.yaml"
"""The file with people, hosts and rules, in the directory of a secret or above it."""

_SIZE_LIMIT: Final = 64 * 1024 * 1024
_READERS: Final = "host=NAME, bundle=NAME, role=NAME, facts.NAME=VALUE, person=NAME, or a recipient"


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host that can be a reader."""

    recipient: str = ""
    bundles: tuple[str, ...] | None = None
    """The bundles of its configuration. ``None``: unknown."""
    facts: dict[str, Any] = {}


class FileRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The readers of files."""

    path: str
    """A glob relative to the directory of ``recipients.yaml``. ``**`` matches any directories."""
    readers: tuple[str, ...]
    encrypted_regex: str = ""
    unencrypted_regex: str = ""
    encrypted_suffix: str = ""
    unencrypted_suffix: str = ""
    mac_only_encrypted: bool = False

    @property
    def rule(self) -> Rule | None:
        """The rule for encrypted values, ``None`` for the default."""
        return next((Rule(kind, getattr(self, kind)) for kind in RULES if getattr(self, kind)), None)

    def matches(self, path: str) -> bool:
        """Return whether a relative path matches the glob."""
        return re.fullmatch(_glob(self.path), path) is not None


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    people: dict[str, str] = {}
    hosts: dict[str, Host] = {}
    files: tuple[FileRule, ...] = ()


class Reader(msgspec.Struct, frozen=True):
    """A selection of recipients."""

    text: str
    recipient: str = ""
    person: str = ""
    conditions: tuple[tuple[str, str], ...] = ()
    """Conditions on hosts, all of which must match."""

    @classmethod
    def parse(cls, text: str) -> Reader:
        """Return the reader of a text. Raises ``ValueError``."""
        text = text.strip()
        if text.startswith(("age1", "ssh-")):
            recipient = normalized(text)
            if not is_recipient(recipient):
                raise ValueError(f"{text} is not a recipient: expected age1… or ssh-ed25519 …")
            return cls(text, recipient=recipient)
        pairs = []
        for part in text.split(","):
            name, equals, value = (word.strip() for word in part.partition("="))
            is_known = name in ("host", "bundle", "role", "person") or re.fullmatch(r"facts(\.[^.]+)+", name)
            if not equals or not value or not is_known:
                raise ValueError(f"{text!r} is not a reader: expected {_READERS}")
            pairs.append((name, value))
        if any(name == "person" for name, _ in pairs):
            if len(pairs) > 1:
                raise ValueError(f"{text!r} is not a reader: person= has no further conditions")
            return cls(text, person=pairs[0][1])
        return cls(text, conditions=tuple(pairs))

    def selects(self, name: str, host: Host) -> bool:
        """Return whether all conditions match a host."""
        return bool(self.conditions) and all(_holds(condition, name, host) for condition in self.conditions)


class Recipients(msgspec.Struct, frozen=True):
    """The known people and hosts, and the readers of files."""

    source: str = ""
    """The path of ``recipients.yaml``. Empty without one."""
    people: dict[str, str] = {}
    hosts: dict[str, Host] = {}
    files: tuple[FileRule, ...] = ()

    def with_hosts(self, hosts: Mapping[str, Host]) -> Recipients:
        """Return the recipients with further hosts, which must not override hosts of the file."""
        return msgspec.structs.replace(self, hosts={**hosts, **self.hosts})

    def rule_of(self, path: str) -> FileRule | None:
        """Return the first rule for a file, ``None`` without one."""
        if not self.source:
            return None
        relative = os.path.relpath(
            os.path.realpath(path), os.path.realpath(os.path.dirname(self.source) or ".")
        )
        return next((rule for rule in self.files if rule.matches(relative)), None)

    def name_of(self, recipient: str) -> str:
        """Return the name of a person or a host, empty for an unknown recipient."""
        return self.names.get(recipient, "")

    @property
    def names(self) -> dict[str, str]:
        """The names by recipient."""
        hosts = {host.recipient: name for name, host in self.hosts.items() if host.recipient}
        return {**hosts, **{recipient: name for name, recipient in self.people.items()}}

    def host_of(self, recipient: str) -> tuple[str, Host] | None:
        """Return the host with a recipient, ``None`` for a person and an unknown recipient."""
        return next(((name, host) for name, host in self.hosts.items() if host.recipient == recipient), None)

    def select(self, readers: Iterable[str]) -> dict[str, str]:
        """Return the recipients that any of the readers selects, with their names. Raises ``UsageError``."""
        names = self.names
        result: dict[str, str] = {}
        for text in readers:
            try:
                reader = Reader.parse(text)
            except ValueError as error:
                raise UsageError(str(error)) from None
            for recipient in self._selected(reader):
                result[recipient] = names.get(recipient, "")
        return result

    def _selected(self, reader: Reader) -> Iterator[str]:
        if reader.recipient:
            yield reader.recipient
            return
        where = self.source or "no recipients.yaml, and no --store"
        if reader.person:
            if reader.person not in self.people:
                raise UsageError(f"person={reader.person}: the person is unknown ({where})")
            yield self.people[reader.person]
            return
        hosts = {name: host for name, host in self.hosts.items() if reader.selects(name, host)}
        if not hosts:
            hint = "add the host to recipients.yaml, or use --store"
            raise UsageError(f"{reader.text}: selects no host ({where})", hint=hint)
        if missing := [name for name, host in hosts.items() if not host.recipient]:
            hint = "`puller keys show` on the host prints its recipient"
            raise UsageError(f"{reader.text}: no recipient is known of {first_few(missing)}", hint=hint)
        yield from (host.recipient for host in hosts.values())


def find_recipients(start: str) -> Recipients:
    """Return the recipients of the nearest ``recipients.yaml``, in the directory ``start`` or above it.

    Raises ``ManifestError`` and ``SourceError``.
    """
    directory = os.path.realpath(start)
    while True:
        path = os.path.join(directory, NAME)
        if os.path.lexists(path):
            return load_recipients(path)
        if directory == (directory := os.path.dirname(directory)):
            return Recipients()


def load_recipients(path: str) -> Recipients:
    """Return the recipients of a file. Raises ``ManifestError`` with every problem, and ``SourceError``."""
    text, value = _load(path)
    problems = []

    def refuse(place: KeyPath, message: str, source: str = path, content: str = text) -> None:
        location = Location(source, *parsing.locate(content, place))
        problems.append(SourceError(message, code=ProblemCode.INVALID_VALUE, location=location).problems[0])

    hosts = value.get("hosts", {})
    hosts_source, hosts_text = path, text
    above: KeyPath = ("hosts",)
    if isinstance(hosts, str):
        hosts_source, above = os.path.join(os.path.dirname(path), hosts), ()
        hosts_text, hosts = _load(hosts_source)
    if isinstance(hosts, dict):
        hosts = {name: {"recipient": host} if isinstance(host, str) else host for name, host in hosts.items()}
    for mismatch in explain(_Written, {**value, "hosts": hosts}, f"key of {NAME}"):
        in_hosts = mismatch.path[:1] == ("hosts",)
        place = (*above, *mismatch.path[1:]) if in_hosts else mismatch.path
        source, content = (hosts_source, hosts_text) if in_hosts else (path, text)
        refuse(place, f"{mismatch.key} {mismatch.message}", source, content)
    if not problems:
        written = msgspec.convert({**value, "hosts": hosts}, _Written)
        for name, recipient in written.people.items():
            if not is_recipient(recipient):
                refuse(("people", name), f"{name}: {recipient[:80]!r} is not a recipient")
        for name, host in written.hosts.items():
            if host.recipient and not is_recipient(host.recipient):
                refuse(
                    (*above, name),
                    f"{name}: {host.recipient[:80]!r} is not a recipient",
                    hosts_source,
                    hosts_text,
                )
        for index, rule in enumerate(written.files):
            if len([kind for kind in RULES if getattr(rule, kind)]) > 1:
                refuse(("files", index), f"has several of {', '.join(RULES)}, expected one")
            for reader in rule.readers:
                try:
                    Reader.parse(reader)
                except ValueError as error:
                    refuse(("files", index, "readers"), str(error))
    if problems:
        raise ManifestError(problems)
    return Recipients(path, written.people, written.hosts, written.files)


def _load(path: str) -> tuple[str, dict[str, Any]]:
    text, value = load_rules(path)
    if not isinstance(value, dict | None):
        raise SourceError("is not a mapping", location=Location(path))
    return text, value or {}


def load_rules(path: str) -> tuple[str, Any]:
    """Return the text and the value of a YAML file with rules. Raises ``SourceError`` and ``ManifestError``."""
    try:
        text = read_limited(path, _SIZE_LIMIT).decode()
        return text, parsing.load_yaml(text, path)
    except HieraError as error:
        raise ManifestError(error.problems) from error
    except OSError as error:
        raise SourceError(file_problem(error, "cannot be read", where=path)) from error
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from error


def _holds(condition: tuple[str, str], name: str, host: Host) -> bool:
    kind, value = condition
    if kind == "host":
        return fnmatchcase(name, value)
    if kind == "bundle":
        return value in (host.bundles or ())
    fact: Any = host.facts
    for step in ["role"] if kind == "role" else kind.split(".")[1:]:
        fact = fact.get(step) if isinstance(fact, Mapping) else None
    if isinstance(fact, bool):
        return value == ("true" if fact else "false")
    if isinstance(fact, list):
        return value in map(str, fact)
    return fact is not None and not isinstance(fact, Mapping) and str(fact) == value


def _glob(pattern: str) -> str:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(words.get(piece) or re.escape(piece) for piece in pieces)
