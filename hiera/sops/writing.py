"""Writing of encrypted files: encrypt, decrypt for an editor, and change the recipients.

* A YAML text keeps its layout. Only the values change, each at its place in the text, and comments. The result is
  loaded and compared before it is returned.
* A value that did not change keeps its ciphertext, so that a diff under version control shows the changes.
* A recipient that leaves has read the key of the file. ``with_recipients`` therefore encrypts all values with a new key
  whenever a recipient leaves. Another recipient only gets the key.
* Comments are encrypted too, since they may quote a value.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from foundation.problems import Location
from hiera import parsing
from hiera.errors import DocumentError, EnvelopeError
from hiera.sops.format import (
    METADATA,
    Cipher,
    Metadata,
    Path,
    Rule,
    Scalar,
    Timestamp,
    is_ciphertext,
    is_comment,
    sealed_key,
)
from hiera.sops.identities import Identities
from hiera.sops.reading import (
    END_OF_EXACT_FLOATS,
    STRUCTURE,
    Leaf,
    is_json,
    leaves,
    located,
    metadata_of,
    root_of,
    typed_in_json,
    typed_scalar,
    without_metadata,
)

DOCUMENT_RULE: Final = Rule("encrypted_regex", "^(data|overrides)$")
"""The rule for a document with a hierarchy, which hosts must read to select the data."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A file for an editor."""

    text: str
    metadata: Metadata
    key: bytes
    cipher: Cipher
    """It remembers the ciphertexts of the values."""


@dataclass(frozen=True, slots=True)
class Readers:
    """The recipients of a file with their names, and the rule for its values."""

    recipients: Mapping[str, str]
    """The name by recipient, empty for an unknown name."""
    rule: Rule | None = None
    mac_only_encrypted: bool = False

    @property
    def names(self) -> dict[str, str]:
        """The recipients with a name."""
        return {recipient: name for recipient, name in self.recipients.items() if name}


def load(text: str, source: str) -> dict[str, Any]:
    """Return the mapping in a file. Raises ``DocumentError`` and ``LimitError``."""
    value = parsing.load_json(text, source) if is_json(text) else parsing.load_yaml(text, source)
    if not isinstance(value, dict):
        raise DocumentError(Location(source), "is not a mapping")
    return value


def find_metadata(text: str, source: str) -> Metadata | None:
    """Return the metadata of a file, or ``None`` if it is not encrypted. Raises ``HieraError``."""
    try:
        return metadata_of(load(text, source))
    except EnvelopeError as error:
        raise (error if error.location.file else error.at(Location(source))) from None


def encrypt(text: str, source: str, readers: Readers, before: Opened | None = None) -> str:
    """Return a plain file, encrypted for its readers.

    ``before`` is the file before an edit, whose key and ciphertexts are kept. Raises ``HieraError``.
    """
    value = load(text, source)
    if METADATA in value:
        raise DocumentError(Location(source), f"has the key {METADATA}, so it is encrypted already")
    if not readers.recipients:
        raise EnvelopeError(Location(source), "no recipient is selected", hint="name a recipient")
    rule = readers.rule or (DOCUMENT_RULE if any(key in value for key in STRUCTURE) else Rule())
    key = before.key if before is not None else os.urandom(32)
    cipher = Cipher(key, rule, mac_only_encrypted=readers.mac_only_encrypted)
    if before is not None:
        cipher.written.update(before.cipher.written)
    if is_json(text):
        try:
            body = _mapped(value, partial(_encrypted_in_json, cipher))
        except EnvelopeError as error:
            raise error.at(Location(source)) from None
    else:
        root = _rooted(text, source)
        _require_text_keys(root, source)
        _require_same_types(value, root, rule, source)
        body = _rewritten(text, cipher.encrypt, cipher.encrypt_comment, _as_ciphertext, source)
    modified = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sealed = before.metadata.sealed if before is not None else {}
    if sealed.keys() != readers.recipients.keys():
        sealed = sealed_key(key, readers.recipients)
    metadata = Metadata(
        sealed, cipher.mac(modified), modified, rule, readers.mac_only_encrypted, readers.names
    )
    return _with_metadata(body, metadata, source)


def decrypt(text: str, source: str, identities: Identities) -> Opened:
    """Return the plain text of an encrypted file. Raises ``HieraError``."""
    value = load(text, source)
    metadata = find_metadata(text, source)
    if metadata is None:
        raise DocumentError(Location(source), "is not encrypted by SOPS")
    try:
        key = identities.open_key(metadata.sealed, metadata.names)
        cipher = Cipher(key, metadata.rule, mac_only_encrypted=metadata.mac_only_encrypted)
        if is_json(text):
            body = _mapped(
                without_metadata(value), lambda item, path: cipher.decrypt(typed_in_json(item), path)
            )
            plain = json.dumps(body, indent="\t", ensure_ascii=False) + "\n"
        else:
            plain = _decrypted_yaml(text, cipher, source)
        cipher.verify(metadata)
    except DocumentError as error:
        raise located(error, source) from None
    return Opened(plain, metadata, key, cipher)


def with_recipients(text: str, source: str, readers: Readers, identities: Identities) -> str:
    """Return an encrypted file for other readers. If a reader leaves, all values get a new key.

    A file that already has these readers is returned unchanged. Raises ``HieraError``.
    """
    metadata = find_metadata(text, source)
    if metadata is None:
        raise DocumentError(Location(source), "is not encrypted by SOPS")
    known = {**metadata.names, **readers.names}
    names = {recipient: known[recipient] for recipient in readers.recipients if recipient in known}
    if metadata.sealed.keys() == readers.recipients.keys() and metadata.names == names:
        return text
    opened = decrypt(text, source, identities)
    if metadata.sealed.keys() <= readers.recipients.keys():
        new = readers.recipients.keys() - metadata.sealed.keys()
        added = sealed_key(opened.key, {each: "" for each in readers.recipients if each in new})
        sealed = {**metadata.sealed, **added}
        body = _without_metadata(text) if not is_json(text) else without_metadata(load(text, source))
        return _with_metadata(body, replace(metadata, sealed=sealed, names=names), source)
    recipients = {recipient: names.get(recipient, "") for recipient in readers.recipients}
    fresh = Readers(recipients, metadata.rule, metadata.mac_only_encrypted)
    return encrypt(opened.text, source, fresh)


def secret_paths(text: str, source: str) -> list[str]:
    """Return the paths of the encrypted values of a file. Raises ``HieraError``."""
    metadata = find_metadata(text, source)
    if metadata is None:
        return []
    paths: list[Path] = []
    if is_json(text):
        _mapped(without_metadata(load(text, source)), lambda value, path: paths.append(path))
    else:
        paths += [leaf.path for leaf in leaves(root_of(text)) if leaf.value is not None]
    return list(dict.fromkeys(".".join(path) for path in paths if metadata.rule.selects(path)))


# Values at their places.

_Convert = Callable[[Scalar | None, Path], Scalar | None]
_ConvertComment = Callable[[str, Path], str]
_Write = Callable[[str, Leaf, Any], str]
"""Returns the notation of a new value for a leaf of a text."""


def _mapped(value: Any, convert: Callable[[Any, Path], Any], path: Path = ()) -> Any:
    if isinstance(value, dict):
        return {name: _mapped(item, convert, (*path, str(name))) for name, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, convert, path) for item in value]
    return convert(value, path)


def _encrypted_in_json(cipher: Cipher, value: Scalar | None, path: Path) -> Scalar | None:
    """Return a value as it is written. Raises ``EnvelopeError`` for a number that SOPS would change."""
    try:
        if type(value) is int and abs(value) > END_OF_EXACT_FLOATS:
            raise EnvelopeError("", "is too large a number for SOPS in JSON", hint="quote the number")
        return cipher.encrypt(value, path)
    except EnvelopeError as error:
        raise EnvelopeError("", f"{'.'.join(path)}: {error.what}", hint=error.hint) from None


def _require_text_keys(node: Node, source: str) -> None:
    """Raise ``DocumentError`` for a key that is a number, which SOPS rejects."""
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if type(typed_scalar(key)) is not str:
                location = Leaf((), None, key).location(source)
                raise DocumentError(
                    location, f"the key {key.value} is not text, as SOPS requires", hint="quote the key"
                )
            _require_text_keys(value, source)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            _require_text_keys(item, source)


def _require_same_types(value: dict[str, Any], root: MappingNode, rule: Rule, source: str) -> None:
    """Raise ``EnvelopeError`` for a value that would have another type once it is encrypted: ``yes`` or ``1e5``.

    Data files are read as YAML 1.1, and SOPS stores the types of YAML 1.2.
    """
    loaded: list[Scalar | None] = []
    _mapped(value, lambda item, path: loaded.append(item))
    for plain, leaf in zip(loaded, leaves(root), strict=True):
        kinds = _kind_of(plain), _kind_of(leaf.value)
        if rule.selects(leaf.path) and (kinds[0] != kinds[1] or plain != leaf.value):
            detail = f"{'.'.join(leaf.path)}: is {kinds[0]} in data files, and {kinds[1]} for SOPS"
            if kinds[0] == kinds[1]:
                detail = f"{'.'.join(leaf.path)}: is another number for SOPS than in data files"
            raise EnvelopeError(leaf.location(source), detail, hint="quote a text, or write true or false")


def _kind_of(value: Scalar | None) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "a boolean"
    return "text" if isinstance(value, str) else "a number"


def _rewritten(text: str, convert: _Convert, comment: _ConvertComment, write: _Write, source: str) -> str:
    """Return a YAML text with converted values and comments, each at its place."""
    root = _rooted(text, source)
    if root.flow_style:
        raise DocumentError(Location(source), "is YAML within braces", hint="write each key on a line")
    changes = []
    expected = []
    for leaf in leaves(root):
        try:
            value = convert(leaf.value, leaf.path)
        except EnvelopeError as error:
            detail = f"{'.'.join(leaf.path)}: {error.what}"
            raise EnvelopeError(leaf.location(source), detail, hint=error.hint) from None
        expected.append(str(value) if isinstance(value, Timestamp) else value)
        if value is not leaf.value:
            start, end = leaf.span
            if "#" in text[start:end].partition("\n")[0] and leaf.node.style in ("|", ">"):
                detail = "a comment behind | or > would be lost"
                raise DocumentError(leaf.location(source), detail, hint="move the comment to a line above")
            changes.append((start, end, write(text, leaf, value) + "\n" * text[start:end].endswith("\n")))
    for start, end, path in _comments(text, root):
        changes.append((start, end, comment(text[start:end], path)))
    result = text
    for start, end, new in sorted(changes, reverse=True):
        result = result[:start] + new + result[end:]
    # Another text would lose data. Unusual notations, such as a tag before a value, may lead here.
    if [leaf.value for leaf in leaves(_rooted(result, source))] != expected:
        detail = "has a notation that cannot be converted in place"
        raise DocumentError(
            Location(source), detail, hint="write plain keys and values, without tags and anchors"
        )
    return result


def _rooted(text: str, source: str) -> MappingNode:
    try:
        return root_of(text)
    except DocumentError as error:
        raise located(error, source) from None


def _as_ciphertext(text: str, leaf: Leaf, value: Any) -> str:
    return f'"{value}"' if leaf.in_flow else str(value)


def _decrypted_yaml(text: str, cipher: Cipher, source: str) -> str:
    body = _with_comment_lines(_without_metadata(text), source)
    paths = dict.fromkeys(path for _, _, path in _scalars(_rooted(body, source)))

    def comment(part: str, path: Path) -> str:
        # SOPS attaches a comment to the value above or below it, so its path may be another one.
        for candidate in (path, *paths) if is_ciphertext(part) else ():
            if (result := cipher.decrypt_comment(part, candidate)) is not None:
                return result
        return part

    return _rewritten(body, cipher.decrypt, comment, _as_yaml, source)


def _with_comment_lines(text: str, source: str) -> str:
    """Return a text with comments in place of the items of lists that SOPS writes for comments."""
    changes = []
    for leaf in leaves(_rooted(text, source)):
        if is_comment(leaf.value) and not leaf.in_flow:
            start, end = leaf.span
            changes.append((text.rfind("-", 0, start), start, end))
    for dash, start, end in reversed(changes):
        text = f"{text[:dash]}#{text[start:end]}{text[end:]}"
    return text


def _scalars(node: Node, path: Path = ()) -> Iterator[tuple[int, int, Path]]:
    """Yield the begin and end of each key and value, with the path of its mapping, in their order."""
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield *Leaf(path, None, key).span, path
            if isinstance(value, ScalarNode):
                yield *Leaf(path, None, value).span, path
            else:
                yield from _scalars(value, (*path, key.value))
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from _scalars(item, path)
    elif isinstance(node, ScalarNode):
        yield *Leaf(path, None, node).span, path


_COMMENT: Final = re.compile(r"(?:(?<=\s)|^)#(.*)$", re.MULTILINE)


def _comments(text: str, root: MappingNode) -> Iterator[tuple[int, int, Path]]:
    """Yield the begin and end of the text of each comment, with the path of its mapping.

    SOPS takes a comment that is indented more than the next key for the end of the mapping or list before it.
    """
    end_before = 0
    path_before: Path = ()
    for start, end, path in [*_scalars(root), (len(text), len(text), ())]:
        for match in _COMMENT.finditer(text, end_before, start):
            begin = match.start()
            beside = end_before and "\n" not in text[end_before:begin]
            belongs_above = beside or _column(text, begin) > _column(text, start)
            yield *match.span(1), path_before if belongs_above else path
        end_before, path_before = end, path


def _column(text: str, index: int) -> int:
    return index - text.rfind("\n", 0, index) - 1


_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+-]+)*")
_WORDS_OF_YAML_1_1: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def _as_yaml(text: str, leaf: Leaf, value: Any) -> str:
    """Return the notation of a plain value at the place of a leaf."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str) or isinstance(value, Timestamp):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML_1_1:
        return value
    start, end = leaf.span
    is_last = not leaf.in_flow and text[end : end + 1] in ("", "\n")
    if "\n" in value.rstrip("\n") and is_last and value[0] not in " \n" and _is_printable(value):
        line = text[text.rfind("\n", 0, start) + 1 : start]
        indent = " " * (len(re.match(r"\s*(?:-\s+)*", line)[0]) + 2)  # type: ignore[index]  # it always matches
        ending = "" if value.endswith("\n") else "-"
        if not value.endswith("\n\n"):
            lines = value.removesuffix("\n").split("\n")
            return f"|{ending}\n" + "\n".join(indent + line if line else "" for line in lines)
    return '"' + "".join(_ESCAPES.get(each) or _escaped(each) for each in value) + '"'


def _is_printable(text: str) -> bool:
    return all(each == "\n" or each.isprintable() for each in text)


def _escaped(character: str) -> str:
    return character if character.isprintable() else f"\\U{ord(character):08x}"


# Metadata.


def _without_metadata(text: str) -> str:
    root = root_of(text)
    for key, value in root.value:
        if key.value == METADATA:
            start, end = Leaf((), None, key).span[0], Leaf((), None, value).span[1]
            return text[:start] + text[end:]
    return text


def _with_metadata(body: str | dict[str, Any], metadata: Metadata, source: str) -> str:
    mapping = metadata.as_mapping()
    if isinstance(body, dict):
        result = json.dumps({**body, METADATA: mapping}, indent="\t", ensure_ascii=False) + "\n"
    else:
        result = body + ("\n" if body and not body.endswith("\n") else "") + _metadata_in_yaml(mapping)
    if find_metadata(result, source) != metadata:
        detail = "the metadata of SOPS cannot be added at its end"
        raise DocumentError(Location(source), detail, hint="remove document markers (--- and ...)")
    return result


def _metadata_in_yaml(mapping: Mapping[str, Any]) -> str:
    lines = [f"{METADATA}:"]
    for name, value in mapping.items():
        if name == "age":
            lines.append("    age:")
            for entry in value:
                lines += [f"        - recipient: {entry['recipient']}", "          enc: |"]
                lines += [f"            {line}" for line in entry["enc"].splitlines()]
        elif isinstance(value, dict):
            lines += [f"    {name}:", *(f"        {key}: {json.dumps(item)}" for key, item in value.items())]
        else:
            lines.append(f"    {name}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"
