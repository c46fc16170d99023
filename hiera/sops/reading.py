"""Reading of encrypted files: plain values in place of encrypted values, after the MAC was verified.

* Callers load a file with their own parser, whose types are those of their other files. SOPS computes the MAC from the
  types of Go, so unencrypted values are typed a second time here, from the nodes of the text.
* Each decrypted value is a secret. It is final: expressions in it are not evaluated.
* Without a key, ``Identities.opaque`` replaces each encrypted value by another value of its type, for lint, previews
  and tests. Nothing is verified then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from foundation.problems import Location
from hiera import parsing
from hiera.errors import DocumentError, EnvelopeError, HieraError, RecipientError
from hiera.sops import find_ciphertext, is_sealed
from hiera.sops.format import (
    METADATA,
    Cipher,
    Metadata,
    Path,
    Scalar,
    Timestamp,
    additional,
    ciphertext_kind,
    is_ciphertext,
    is_comment,
    open_cipher,
    verify_unsealed,
)
from hiera.sops.identities import Identities, Opaque
from hiera.values import Decrypted, has_secret

OPTIONAL: Final = "optional"
"""The key of a document that a host without the key skips."""

STRUCTURE: Final = ("hierarchy", "replace")
"""The keys of a document that select its data. Hosts, lint and previews read them without a key."""
RESTORE: Final = "restore the file from version control, or encrypt the values again"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value of a file: its path for SOPS, without indexes, and the value with the type of Go."""

    path: Path
    value: Scalar | None
    node: ScalarNode
    in_flow: bool = False
    """Whether the value is within braces or brackets."""

    @property
    def span(self) -> tuple[int, int]:
        """The begin and the end of the value in the text."""
        start: Any = self.node.start_mark
        end: Any = self.node.end_mark
        return start.index, end.index

    def location(self, source: str) -> Location:
        """Return the place of the value in messages."""
        mark: Any = self.node.start_mark
        return Location(source, mark.line + 1, mark.column + 1)


def verify_plain(value: Any, text: str, source: str) -> None:
    """Raise ``EnvelopeError`` for a loaded file with encrypted values, but without usable metadata of SOPS.

    Such a file is damaged. As an ordinary file, it would put ciphertexts into the configuration of hosts.
    """
    if not is_sealed(text):
        return
    place = find_ciphertext(without_metadata(value) if isinstance(value, Mapping) else value)
    if place is None:
        return
    if isinstance(value, Mapping) and METADATA in value:
        Metadata.parse(value[METADATA])
    location = Location(source, *parsing.locate(text, place))
    detail = (
        f"{'.'.join(map(str, place))}: is encrypted by SOPS, but the file has no metadata (key {METADATA})"
    )
    raise EnvelopeError(location, detail, hint=RESTORE)


def is_json(text: str) -> bool:
    """Return whether the text of a file is JSON."""
    return text.lstrip()[:1] == "{"


def without_metadata(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a loaded file."""
    return {name: item for name, item in value.items() if name != METADATA}


def metadata_of(value: object) -> Metadata | None:
    """Return the metadata of a loaded file, or ``None`` for another file. Raises ``EnvelopeError``."""
    if not isinstance(value, Mapping):
        return None
    metadata = value.get(METADATA)
    if not isinstance(metadata, Mapping) or "mac" not in metadata:
        return None
    return Metadata.parse(metadata)


def opened(value: Any, text: str, source: str, identities: Identities) -> Any:
    """Return the plain values of a loaded file, without its metadata. Another file is returned unchanged.

    ``text`` is its source. Each decrypted value is a ``Decrypted``. Raises ``EnvelopeError`` with ``source``.
    """
    if not is_sealed(text):
        return value
    try:
        metadata = metadata_of(value)
        if metadata is None:
            verify_plain(value, text, source)
            return value
        content = without_metadata(value)
        typed = parsing.load_json(text, source) if is_json(text) else root_of(text)
        reader: _Reader = (
            _Reader(open_cipher(metadata, identities), source)
            if identities.opaque is None
            else _OpaqueReader(metadata, identities.opaque, source)
        )
        result = reader.value(content, typed, ())
        reader.verify(metadata)
        return result
    except DocumentError as error:
        raise located(error, source) from None


def located(error: DocumentError, source: str) -> DocumentError:
    """Return an error with the name of its file, unless it has one. Its line and column stay."""
    place = error.location
    if place.file:
        return error
    if not place.line:
        return error.at(Location(source))
    return DocumentError(Location(source, place.line, place.column), error.what, hint=error.hint)


def opened_document(value: Any, text: str, source: str, identities: Identities) -> Any:
    """Return the plain values of a document with a hierarchy. ``None`` for an ``optional`` file for others.

    Raises ``EnvelopeError``.
    """
    if not is_sealed(text) or not isinstance(value, Mapping):
        return value
    try:
        result = opened(value, text, source, identities)
    except RecipientError:
        if value.get(OPTIONAL) is True:
            return None
        raise
    if result is value:
        return value
    for key in STRUCTURE:
        if has_secret(result.get(key)):
            detail = f"{key} is encrypted, and lint and previews read it without the key"
            raise EnvelopeError(Location(source), detail, hint="use encrypted_regex: ^(data|overrides)$")
    return {key: item for key, item in result.items() if key != OPTIONAL}


class _Reader:
    """Replaces the encrypted values of a file."""

    def __init__(self, cipher: Cipher, source: str) -> None:
        self._cipher = cipher
        self._source = source

    def value(self, value: Any, node: Any, path: Path) -> Any:
        """Return a value with its encrypted values replaced. ``node`` is the node of YAML, or the value of JSON."""
        if isinstance(value, Mapping):
            entries = _entries(value, node, path)
            return {key: self.value(item, below, (*path, name)) for key, item, name, below in entries}
        if isinstance(value, list):
            items = node.value if isinstance(node, SequenceNode) else node
            pairs = zip(value, items, strict=True)
            return [self.value(item, below, path) for item, below in pairs if not is_comment(item)]
        typed = typed_scalar(node) if isinstance(node, ScalarNode) else typed_in_json(node)
        try:
            plain = self.plain(typed, path)
        except HieraError as error:
            raise self.error(error, node, path) from None
        return value if plain is typed else Decrypted(str(plain) if isinstance(plain, Timestamp) else plain)

    def plain(self, value: Scalar | None, path: Path) -> Scalar | None:
        return self._cipher.decrypt(value, path)

    def verify(self, metadata: Metadata) -> None:
        self._cipher.verify(metadata)

    def error(self, error: HieraError, node: Any, path: Path) -> HieraError:
        mark: Any = node.start_mark if isinstance(node, Node) else None
        location = Location(self._source, mark.line + 1, mark.column + 1) if mark else Location(self._source)
        return EnvelopeError(location, f"{'.'.join(path)}: {error.what}", hint=error.hint)


class _OpaqueReader(_Reader):
    """Replaces each encrypted value by an opaque value of the same type."""

    def __init__(self, metadata: Metadata, opaque: Opaque, source: str) -> None:
        self._source = source
        self._rule = metadata.rule
        self._opaque = opaque

    def plain(self, value: Scalar | None, path: Path) -> Scalar | None:
        if not self._rule.selects(path):
            verify_unsealed(value)
            return value
        if not isinstance(value, str) or not is_ciphertext(value):
            return value
        basis = value if self._opaque is Opaque.BY_CIPHERTEXT else additional(path)
        digest = sha256(basis.encode()).hexdigest()
        number = int(digest[:8], 16) % 1000 + 1
        return {"int": number, "float": number + 0.5, "bool": True}.get(
            ciphertext_kind(value), f"opaque-{digest[:12]}"
        )

    def verify(self, metadata: Metadata) -> None:
        """Accept the file, whose MAC needs the key."""


def _entries(value: Mapping[Any, Any], node: Any, path: Path) -> Iterator[tuple[Any, Any, str, Any]]:
    """Yield each key with its value, its text, and the node of the value, without the metadata of the file."""
    is_yaml = isinstance(node, MappingNode)
    named = ((name.value, below) for name, below in node.value) if is_yaml else node.items()
    pairs = [(name, below) for name, below in named if path or name != METADATA]
    if len(pairs) != len(value):
        raise _unsupported(node)
    for (key, item), (name, below) in zip(value.items(), pairs, strict=True):
        yield key, item, name, below


def root_of(text: str) -> MappingNode:
    """Return the nodes of a YAML text, whose top is a mapping. Raises ``DocumentError`` for aliases."""
    try:
        root = yaml.compose(text, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Location("", mark.line + 1, mark.column + 1) if mark else ""
        raise DocumentError(place, f"is not YAML: {getattr(error, 'problem', error)}") from None
    if not isinstance(root, MappingNode):
        raise DocumentError("", "is not a mapping")
    _verify_tree(root, set())
    return root


def _verify_tree(node: Node, seen: set[int]) -> None:
    if id(node) in seen:  # the same node in two places is an alias
        raise _unsupported(node)
    seen.add(id(node))
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if not isinstance(key, ScalarNode) or (key.value == "<<" and not key.style):
                raise _unsupported(key)
            _verify_tree(value, seen)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            _verify_tree(item, seen)


def _unsupported(node: Any) -> DocumentError:
    mark: Any = getattr(node, "start_mark", None)
    detail = "aliases, merge keys, lists as keys and duplicate keys are not supported in an encrypted file"
    return DocumentError(Location("", mark.line + 1, mark.column + 1) if mark else "", detail)


def leaves(node: Node, path: Path = (), *, in_flow: bool = False) -> Iterator[Leaf]:
    """Yield the values of a YAML text in their order, without the metadata of the file."""
    if isinstance(node, ScalarNode):
        yield Leaf(path, typed_scalar(node), node, in_flow)
        return
    in_flow = in_flow or bool(getattr(node, "flow_style", False))
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if not (path == () and key.value == METADATA):
                yield from leaves(value, (*path, key.value), in_flow=in_flow)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from leaves(item, path, in_flow=in_flow)


_INTEGER: Final = re.compile(r"[-+]?(?:0b[01]+|0o?[0-7]+|0x[0-9a-fA-F]+|[1-9][0-9]*|0)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_END_OF_INTEGERS: Final = 2**63
"""Go reads integers up to twice this number, and larger ones as floats."""
END_OF_EXACT_FLOATS: Final = 2**53
"""Up to this number, each integer is a float."""
_END_OF_FLOATS: Final = 10**308
_DATE: Final = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}(?:[Tt ]+\d{1,2}:\d{1,2}:\d{1,2}(?:\.\d+)?\s*(?:Z|[-+]\d{2}:\d{2})?)?"
)
_WORDS: Final[Mapping[str, Scalar | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def typed_in_json(value: Scalar | None) -> Scalar | None:
    """Return a value of JSON as Go types it: each number is a float, which changes large integers."""
    if type(value) is int and END_OF_EXACT_FLOATS < abs(value) < _END_OF_FLOATS:
        return float(value)
    return value


def typed_scalar(node: ScalarNode) -> Scalar | None:
    """Return a scalar as the YAML library of SOPS (yaml.v3 of Go) types it: ``yes`` is text, ``010`` is 8."""
    text: str = node.value
    if node.style:
        return text
    if text in _WORDS:
        return _WORDS[text]
    digits = text.replace("_", "") if text[:1].isdigit() or text[:1] in "+-" else text
    if _INTEGER.fullmatch(digits):
        sign = -1 if digits[0] == "-" else 1
        bare = digits.lstrip("+-")
        octal = len(bare) > 1 and bare[0] == "0" and bare[1].isdigit()
        number = sign * int(bare, 8 if octal else 0)
        if -_END_OF_INTEGERS <= number < 2 * _END_OF_INTEGERS:
            return number
    if _FLOAT.fullmatch(digits) and isfinite(decimal := float(digits)):  # 1e400 is text
        return decimal
    return Timestamp(text) if _DATE.fullmatch(text) else text
