"""Parsers of YAML and JSON to plain values, with file, line and column in errors.

``foundation/strict_json.py`` has the rules for JSON. The rules for YAML:

* Scalars are typed by YAML 1.1, with PyYAML's own rules, straight from the events of its C parser.
* The results are text, numbers, booleans, null, lists and mappings. A date stays text, since every use of it here is
  text. ``.nan`` and ``.inf`` are rejected, since reports are JSON.
* A key is text, or an integer in its printed form. ``on: x`` and ``1.10: x`` would be unintended keys, so they are
  rejected with the advice to quote them.
* A key can occur once in a mapping. Merge keys and aliases work. An aliased value is one shared object.
* A text contains one document, of bounded length, depth and number of values. An alias counts as its full value, so a
  bomb is rejected before it is built.
* A caller can define its own tags (``!contains``) and the values that they produce. Other tags are rejected.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import yaml
from yaml.composer import Composer, ComposerError
from yaml.constructor import SafeConstructor
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from foundation import strict_json
from foundation.problems import Location
from hiera.errors import DocumentError, HieraError, LimitError

DEPTH_LIMIT: Final = 100
"""Maximum depth of nested collections, with aliases expanded."""

VALUES_LIMIT: Final = 1_000_000
"""Maximum values in a document, with aliases expanded. An empty list needs thirty times the memory of its text."""

_NESTED: Final = f"is nested more than {DEPTH_LIMIT} deep"
TOO_DEEP: Final = "exceeded maximum nesting depth"
"""Message of libyaml, since 0.2.6, for a thousand nested collections. libyaml reads ahead of its events."""

_LONGEST_NUMBER: Final = 1000  # converting digits takes time quadratic in their number
_LONGEST_SHARED: Final = 40  # equal texts up to this length become one object, and longer texts seldom repeat
_UNSEEN: Final = object()

Tags = Mapping[str, Callable[[Any], Any]]
"""Converters by tag (``!contains``). Each raises ValueError with the end of a sentence."""


def _read_yaml(text: str, source: str, limit: int, tags: Tags) -> Any:
    """Return the value of the single document in ``text``.

    Raises DocumentError (*file:line:column: sentence*) and LimitError.
    """
    reader = _Reader(text, source, limit, tags)
    try:
        return reader.document()
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, source) from None


class Places:
    """Positions in a text that ``load`` accepts. The text is parsed once."""

    def __init__(self, text: str) -> None:
        try:
            self._root: Node | None = yaml.compose(text, yaml.CSafeLoader)
        except ComposerError:
            self._root = _Composer(text).get_single_node()

    def locate(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Return line and column, from 1, of the key or list item at ``path``, or of its nearest existing parent."""
        place, _ = self._find(path)
        mark: Any = place.start_mark if place else None
        return (mark.line + 1, mark.column + 1) if mark else (1, 1)

    def original(self, path: Sequence[str | int]) -> str | None:
        """Return the source text of the scalar at ``path``, or ``None`` for a missing or other value."""
        _, value = self._find(path)
        return value.value if isinstance(value, ScalarNode) else None

    def span(self, path: Sequence[str | int]) -> tuple[int, int]:
        """Return the offset of the item that ``locate`` finds, and the offset behind its value."""
        place, value = self._find(path)
        start: Any = place.start_mark if place else None
        end: Any = (value or place).end_mark if place else None
        return (start.index, end.index) if start and end else (0, 0)

    def _find(self, path: Sequence[str | int]) -> tuple[Node | None, Node | None]:
        place = value = self._root
        for key in path:
            entry = _entry(value, key)
            if entry is None:
                return place, None
            place, value = entry
        return place, value


class _Composer(Composer, yaml.CSafeLoader):
    """Accepts a repeated anchor, as ``load`` does. PyYAML's faster composers reject it."""

    def __init__(self, text: str) -> None:
        Composer.__init__(self)
        yaml.CSafeLoader.__init__(self, text)

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event: Any = self.peek_event()
        if not isinstance(event, AliasEvent):
            self.anchors.pop(event.anchor, None)
        return super().compose_node(parent, index)


places = functools.lru_cache(maxsize=1)(Places)
"""Positions in the latest text, cached, since a text with one error tends to have several."""


def _entry(node: Node | None, key: str | int) -> tuple[Node, Node] | None:
    """Return the node of ``key`` and the node of its value (for a list, the item twice)."""
    if isinstance(node, SequenceNode):
        items = node.value
        return (items[key], items[key]) if isinstance(key, int) and 0 <= key < len(items) else None
    if not isinstance(node, MappingNode):
        return None
    for name, value in node.value:
        if name.value == str(key):
            return name, value
    merged = [value for name, value in node.value if name.value == "<<"]
    sources = [
        source for value in merged for source in (value.value if isinstance(value, SequenceNode) else [value])
    ]
    return next((result for source in sources if (result := _entry(source, key))), None)


# -- reading ----------------------------------------------------------------------------------


class _Reader:
    """A single pass over the events of a document."""

    def __init__(self, text: str, source: str, limit: int, tags: Tags) -> None:
        self.text = text
        self.source = source
        self.limit = limit
        self.tags = tags
        self.parser: Any = yaml.CSafeLoader(text)
        self.next: Callable[[], Any] = self.parser.get_event
        self.plain: dict[str, Any] = {}
        self.quoted: dict[str, str] = {}
        self.anchors: dict[str, tuple[Any, int, int, int]] = {}  # value, length, number of values, height
        self.aliased = 0  # characters of all aliases so far, expanded
        self.values = 0  # number so far, with aliases expanded
        self.deepest = 0

    def document(self) -> Any:
        self.next()
        if type(self.next()) is StreamEndEvent:
            return None
        value = self.value(self.next(), 1)
        self.next()
        further = self.next()
        if type(further) is not StreamEndEvent:
            raise self.error(further, f"a second document starts at line {further.start_mark.line + 1}")
        return value

    def value(self, event: Any, depth: int) -> Any:
        kind = type(event)
        if kind is AliasEvent:
            return self.alias(event, depth)
        self.values += 1
        if self.values > VALUES_LIMIT:
            raise LimitError(self.where(event), f"more than {VALUES_LIMIT} values are not read")
        if event.anchor is not None:
            return self.anchored(event, depth)
        return self.scalar(event) if kind is ScalarEvent else self.collection(event, depth)

    def scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.implicit[0]:
            value = self.plain.get(text, _UNSEEN)
            if value is _UNSEEN:
                value = self.typed(event, _implicit_tag(text))
                if len(text) <= _LONGEST_SHARED:
                    self.plain[text] = value
            return value
        if event.tag is not None and event.tag != "!":
            return self.typed(event, event.tag)
        return self.quoted.setdefault(text, text) if len(text) <= _LONGEST_SHARED else text

    def typed(self, event: Any, tag: str) -> Any:
        if tag in self.tags:
            # Use the type of the value without the tag: only an unquoted scalar can be a number.
            own = _implicit_tag(event.value) if not event.style else _TAG + "str"
            return self.tagged(event, tag, self.typed(event, own))
        if tag not in _SCALARS:
            raise self.error(event, _unsupported(tag, self.tags))
        try:
            return _typed(tag, event.value)
        except (ValueError, OverflowError, LookupError):
            text: str = event.value
            shown = text if len(text) <= _LONGEST_SHARED else f"{text[:_LONGEST_SHARED]}…"
            detail = f"{shown} is not a usable {_short(tag)[2:]}: quote it"
            raise self.error(event, detail) from None

    def tagged(self, event: Any, tag: str, value: Any) -> Any:
        try:
            return self.tags[tag](value)
        except ValueError as error:
            raise self.error(event, f"{tag} {error}") from None

    def collection(self, event: Any, depth: int) -> Any:
        if depth > DEPTH_LIMIT:
            raise LimitError(self.where(event), _NESTED)
        self.deepest = max(self.deepest, depth)
        mapping = type(event) is MappingStartEvent
        is_own = event.tag in self.tags
        if not is_own and event.tag not in (None, "!", _TAG + ("map" if mapping else "seq")):
            raise self.error(event, _unsupported(event.tag, self.tags))
        value = self.mapping(event, depth + 1) if mapping else self.sequence(depth + 1)
        return self.tagged(event, event.tag, value) if is_own else value

    def sequence(self, depth: int) -> list[Any]:
        items = []
        while type(event := self.next()) is not SequenceEndEvent:
            items.append(self.value(event, depth))
        return items

    def mapping(self, start: Any, depth: int) -> dict[str | int, Any]:
        own: dict[str | int, Any] = {}
        merged: list[dict[str | int, Any]] | None = None
        while type(event := self.next()) is not MappingEndEvent:
            if type(event) is ScalarEvent and event.value == "<<" and event.implicit[0]:
                if merged is not None:
                    raise self.error(event, "a second << in one mapping: write <<: [*one, *other]")
                merged = self.merge_sources(event, self.value(self.next(), depth))
                continue
            key = self.key(event)
            if key in own:
                first = _key_line(self.text, start.start_mark.index, key)
                raise self.error(event, f"the key {key!r} is duplicate, first in line {first}")
            own[key] = self.value(self.next(), depth)
        return own if merged is None else _merge(merged, own)

    def key(self, event: Any) -> str | int:
        if isinstance(event, CollectionStartEvent):
            raise self.error(event, self.collection_as_key(event))
        value = self.value(event, 1)
        written = event.value if type(event) is ScalarEvent else str(value)
        if type(value) is str or (type(value) is int and str(value) == written):
            return value
        if isinstance(value, (list, dict)):
            raise self.error(event, "a list or a mapping cannot be a key")
        raise self.error(event, f"the key {written} means {_described(value)} in YAML: quote it")

    def collection_as_key(self, event: Any) -> str:
        if self.text.startswith("{{", event.start_mark.index - 1):
            return 'a value that starts with {{ needs quotes: "{{ … }}"'
        return "a list or a mapping cannot be a key"

    def merge_sources(self, event: Any, value: Any) -> list[dict[str | int, Any]]:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise self.error(event, "<< requires a mapping or a list of mappings")
        return sources

    def anchored(self, event: Any, depth: int) -> Any:
        """Return a value with an anchor. Its length and height are recorded, because every alias counts them again."""
        aliased, values, deepest = self.aliased, self.values, self.deepest
        self.anchors.pop(event.anchor, None)  # inside the value itself, the anchor is undefined
        self.deepest = depth - 1
        value = self.scalar(event) if type(event) is ScalarEvent else self.collection(event, depth)
        length = self.parser.peek_event().start_mark.index - event.start_mark.index + self.aliased - aliased
        self.anchors[event.anchor] = value, length, self.values - values + 1, self.deepest - depth + 1
        self.deepest = max(deepest, self.deepest)
        return value

    def alias(self, event: Any, depth: int) -> Any:
        if event.anchor not in self.anchors:
            raise self.error(
                event,
                "unknown alias. Quote text that begins with *",
            )
        value, length, values, height = self.anchors[event.anchor]
        self.aliased += length
        self.values += values
        self.deepest = max(self.deepest, depth + height - 1)
        if len(self.text) + self.aliased > self.limit or self.deepest > DEPTH_LIMIT:
            detail = f"longer than {self.limit} characters or nested more than {DEPTH_LIMIT} deep"
            raise LimitError(self.where(event), f"aliases make this {detail}")
        if self.values > VALUES_LIMIT:
            raise LimitError(self.where(event), f"aliases make this more than {VALUES_LIMIT} values")
        return value

    def where(self, event: Any) -> Location:
        return _location(self.source, event.start_mark.line, event.start_mark.column)

    def error(self, event: Any, what: str) -> DocumentError:
        return DocumentError(self.where(event), what)


def _merge(sources: list[dict[str | int, Any]], own: dict[str | int, Any]) -> dict[str | int, Any]:
    """Apply merge keys: the mapping's own keys have priority, then the first source with the key."""
    result: dict[str | int, Any] = {}
    for source in reversed(sources):
        result.update(source)
    return result | own


# -- scalars ----------------------------------------------------------------------------------

_TAG: Final = "tag:yaml.org,2002:"
_RESOLVERS: Final = yaml.SafeLoader.yaml_implicit_resolvers
_CONSTRUCTOR: Final = SafeConstructor()
_SCALARS: Final[dict[str, Any]] = {
    _TAG + "bool": _CONSTRUCTOR.construct_yaml_bool,
    _TAG + "float": _CONSTRUCTOR.construct_yaml_float,
    _TAG + "int": _CONSTRUCTOR.construct_yaml_int,
    _TAG + "null": _CONSTRUCTOR.construct_yaml_null,
    # dates stay text, and so do '<<' and '=' in other places than keys
    _TAG + "merge": None,
    _TAG + "str": None,
    _TAG + "timestamp": None,
    _TAG + "value": None,
}


def _implicit_tag(text: str) -> str:
    for tag, pattern in _RESOLVERS.get(text[:1], ()):
        if pattern.match(text):
            return str(tag)
    return _TAG + "str"


def _typed(tag: str, text: str) -> Any:
    """Return the value of a scalar. Raises ValueError or a similar error if the text does not fit the tag."""
    construct = _SCALARS[tag]
    if construct is None:
        return text
    if len(text) > _LONGEST_NUMBER:
        raise ValueError
    value = construct(ScalarNode(tag, text))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    return value


# -- messages ---------------------------------------------------------------------------------

_SENTENCES: Final = {
    "mapping values are not allowed in this context": (
        "a ':' is not expected here: check the indentation, or quote the text"
    ),
    "block sequence entries are not allowed in this context": (
        "a list cannot start here: give it lines of its own"
    ),
    "did not find expected key": (
        "does not fit the mapping that starts in line {line}: check indentation and quotes"
    ),
    "did not find expected '-' indicator": (
        "does not fit the list that starts in line {line}: check the indentation"
    ),
    "did not find expected ',' or ']'": "a ',' or ']' is missing in the list that starts in line {line}",
    "did not find expected ',' or '}'": "a ',' or '}}' is missing in the mapping that starts in line {line}",
    "did not find expected <document start>": "something follows the end of the document",
    "found unexpected end of stream": "the quoted text that starts in line {line} has no end",
    "could not find expected ':'": "a ':' is missing after the key in line {line}",
}


def _syntax_error(error: Any, text: str, source: str) -> HieraError:
    """Return the error of the C parser as a sentence with the place in front."""
    if getattr(error, "problem", None) == TOO_DEEP:
        mark = error.problem_mark
        return LimitError(_location(source, mark.line, mark.column), _NESTED)
    mark = getattr(error, "problem_mark", None)
    if mark is None:  # characters that YAML does not allow carry an offset instead
        before = text[: getattr(error, "position", 0)]
        line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
        return DocumentError(_location(source, line, column), str(getattr(error, "reason", error)))
    return DocumentError(_location(source, mark.line, mark.column), _sentence(error, mark, text))


def _location(source: str, line: int, column: int) -> Location:
    """Return the location of a parser's position, which counts from 0."""
    return Location(source, line + 1, column + 1, is_exact=True)


def _sentence(error: Any, mark: Any, text: str) -> str:
    if error.problem == "found character that cannot start any token":
        character = text[mark.index : mark.index + 1]
        return (
            "a tab cannot indent: use spaces"
            if character == "\t"
            else f"{character!r} cannot start a value: quote it"
        )
    start = error.context_mark or mark
    return _SENTENCES.get(error.problem, "{problem}").format(line=start.line + 1, problem=error.problem)


def _key_line(text: str, start: int, key: str | int) -> int:
    """Return the line of the first ``key`` in the mapping that starts at offset ``start``."""
    parser: Any = yaml.CSafeLoader(text)
    kind: Any = None
    mark: Any = None
    while kind is not MappingStartEvent or mark.index != start:
        event = parser.get_event()
        kind, mark = type(event), event.start_mark
    while getattr(event := parser.get_event(), "value", None) != str(key):
        _skip(parser)
    return int(event.start_mark.line) + 1


def _skip(parser: Any) -> None:
    depth = 0
    while True:
        event = parser.get_event()
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth == 0:
            return


def _unsupported(tag: str, known: Tags) -> str:
    """Return the sentence for a tag. A tag that may be a password is not quoted."""
    if tag.startswith(_TAG):
        return f"the tag {_short(tag)} is not supported"
    if tag == "!replace":
        return (
            "unsupported tag !replace. List the key in replace, at the top of a document of the host or site"
        )
    if known:
        return f"unknown tag. Quote text that begins with !. Known tags: {', '.join(known)}"
    return "unsupported tag. Quote text that begins with !"


def _short(tag: str) -> str:
    return tag.replace(_TAG, "!!")


def _described(value: Any) -> str:
    if value is None:
        return "null"
    return f"the boolean {str(value).lower()}" if isinstance(value, bool) else f"the number {value}"


SIZE_LIMIT: Final = 16 << 20
"""Maximum characters in a document, with its aliases expanded."""

NO_TAGS: Final[Tags] = MappingProxyType({})


def load_yaml(
    text: str | bytes,
    source: str,
    *,
    limit: int = SIZE_LIMIT,
    tags: Tags = NO_TAGS,
) -> Any:
    """Return the value of the single document in ``text``, or ``None`` if it is empty.

    ``source`` is the name used in messages, ``limit`` a number of characters. Do not change the value: aliased values
    are shared. Raises DocumentError (*file:line:column: sentence*) and LimitError.
    """
    return _read_yaml(_decoded(text, source, limit), source, limit, tags)


def locate(text: str, path: Sequence[str | int]) -> tuple[int, int]:
    """Return line and column, from 1, of the key or list item at ``path``. For messages, since it parses again."""
    return places(text).locate(path)


def original(text: str, path: Sequence[str | int]) -> str | None:
    """Return the source text of the scalar at ``path`` (``0644``, ``5.10``), or ``None`` for other values."""
    return places(text).original(path)


def _decoded(text: str | bytes, source: str, limit: int) -> str:
    if len(text) > limit:
        raise LimitError(Location(source), f"is longer than the {limit} characters that are read")
    try:
        # Encoding a str reveals surrogates from JSON or the command line.
        return text.decode() if isinstance(text, bytes) else text.encode().decode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        before = text[: error.start]
        line = 1 + (before.count("\n") if isinstance(before, str) else before.count(b"\n"))
        raise DocumentError(Location(source, line), "is not UTF-8 text") from None


def load_json(text: str | bytes, source: str) -> Any:
    """Return the value of a text. ``source`` is its name in messages. The caller must limit its length.

    Raises DocumentError and LimitError.
    """
    try:
        return strict_json.load(text, depth=DEPTH_LIMIT)
    except strict_json.NestingError as error:
        raise LimitError(source, str(error)) from None
    except strict_json.StrictJsonError as error:
        location = Location(source, error.line, error.column, is_exact=bool(error.column))
        raise DocumentError(location, str(error)) from None
