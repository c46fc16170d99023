"""YAML with the rules of Ruby's Psych 4 for Puppet (``YAML.safe_load``, symbols and aliases permitted).

* Only the first document of a text counts. Duplicate keys are valid, and the last value wins.
* Scalars get the types of Psych, which differ from PyYAML in many small ways: ``1e3`` is text, ``12:30`` is a number,
  and a date makes the whole text invalid.
* Nesting and the expansion of aliases are limited. An alias inside its own anchor is rejected. The parser does not
  recurse.
"""

import binascii
import re
from typing import Any

from yaml import YAMLError
from yaml._yaml import CParser
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.reader import ReaderError

from hiera.errors import DocumentError, LimitError
from hiera.parsing import TOO_DEEP
from hiera.tree import ruby_values
from hiera.tree.ruby_values import Symbol

# Types of scalars.

MAX_DIGITS = 3000  # of one number, including hexadecimal numbers: Python cannot print more than 4300
CORE = "tag:yaml.org,2002:"


class RefusedError(Exception):
    """Well-formed YAML that Psych does not turn into a value."""

    event: Event | None = None

    def place(self) -> str:
        """Return the position of the event, or empty text if it is unknown."""
        return place_of(self.event.start_mark) if self.event else ""


def place_of(mark: Any) -> str:
    """Return line and column of a mark, from 1, in the form for messages."""
    return f"at line {mark.line + 1} column {mark.column + 1}"


def tagged(tag: str, text: str) -> Any:
    """Return the value of a scalar with a tag. Tags unknown to Psych are ignored. Raises ``RefusedError``."""
    if tag in ("!binary", CORE + "binary"):
        return _binary(text)
    if tag == CORE + "str" or re.match(r"!(?:str|ruby/string)(?::String)?$", tag):
        return text
    if tag in ("!float", CORE + "float"):
        return _float(plain(text))
    if re.match(r"!ruby/sym(bol)?:?", tag):
        return Symbol(text)
    if tag.startswith(("!ruby/", "!str:")):
        names = {"!ruby/regexp": "Regexp", "!ruby/range": "Range", "!ruby/class": text, "!ruby/module": text}
        name = names.get(tag) or tag.rpartition(":")[2].removeprefix("!ruby/")
        raise RefusedError(f"Tried to load unspecified class: {name}")
    return plain(text)


def _binary(text: str) -> str:
    try:
        return binascii.a2b_base64(text).decode()
    except ValueError:
        raise RefusedError("a !!binary value that is not UTF-8 text cannot be printed") from None


def _float(value: Any) -> float:
    if (isinstance(value, str) and not _DECIMAL.fullmatch(value)) or value is None or isinstance(value, bool):
        raise RefusedError(f"invalid value for Float(): {ruby_values.inspect(value)}")
    return float(value)


_TRUE = re.compile(r"^(yes|true|on)$", re.IGNORECASE | re.MULTILINE)
_FALSE = re.compile(r"^(no|false|off)$", re.IGNORECASE | re.MULTILINE)
_NULL = re.compile(r"^null$", re.IGNORECASE | re.MULTILINE)
_NOT_SPECIAL = re.compile(r"^[^ytonf~]", re.IGNORECASE | re.MULTILINE)

_TIME = re.compile(
    r"-?\d{4}-\d{1,2}-\d{1,2}(?:[Tt]|\s+)\d{1,2}:\d\d:\d\d(?:\.\d*)?(?:\s*(?:Z|[-+]\d{1,2}:?(?:\d\d)?))?",
    re.ASCII,
)
_DATE = re.compile(r"\d{4}-(?:1[012]|0\d|\d)-(?:[12]\d|3[01]|0\d|\d)", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.ASCII | re.IGNORECASE)
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9]){1,2}(\.[0-9_]*)?")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_,]*)?\.[0-9]*([eE][-+][0-9]+)?")
_INTEGER = re.compile(
    r"[-+]?(?:(?P<b2>0b[0-1_,]+)|(?P<b8>0[0-7_,]+)|(?P<b10>0|[1-9](?:[0-9]|,[0-9]|_[0-9])*)|(?P<b16>0x[0-9a-fA-F_,]+))"
)
_QUOTED_SYMBOL = re.compile(r":([\"'])(.*)\1")
_INFINITY = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}


def plain(text: str) -> Any:
    """Return the value of a plain scalar. Raises ``RefusedError``.

    The tests and their order follow Psych's ``ScalarScanner#tokenize``. The first match decides.

    1. Empty text is null.
    2. A word is text, except a short word for null, true or false.
    3. A time or a date is an object that Puppet does not permit.
    4. Infinity and *not a number* are floats.
    5. A leading colon makes a symbol.
    6. A number: 6a to the base 60 · 6b with a point · 6c whole. Anything else is text.
    """
    if not text:  # 1.
        return None
    if _is_word(text):  # 2.
        return text if len(text) > 5 or _NOT_SPECIAL.search(text) else _word(text)
    if _TIME.fullmatch(text):  # 3.
        raise RefusedError("Tried to load unspecified class: Time")
    if _DATE.fullmatch(text):
        raise RefusedError("Tried to load unspecified class: Date")
    special = _INFINITY.get(text.lower())  # 4.
    if special is not None:
        return special
    if text[0] == ":" and len(text) > 1:  # 5.
        quoted = _QUOTED_SYMBOL.match(text)
        return Symbol(quoted[2].removeprefix(":") if quoted else text[1:])
    return _number(text)  # 6.


_SIGNS = frozenset("_ \t\r\n\f\v!@#$%^&*(){}<>|/\\~;=")


def _is_word(text: str) -> bool:
    """Psych's test for text: a letter, a blank or certain signs follow after at most one other character."""
    first = text[0]
    if first.isalpha() or first in _SIGNS or "\n" in text:
        return True
    if first in ".:-0123456789" or len(text) < 2:
        return False
    return text[1].isalpha() or text[1] in _SIGNS


def _word(text: str) -> Any:
    if text == "~" or _NULL.search(text):
        return None
    if _TRUE.search(text):
        return True
    return False if _FALSE.search(text) else text


def _number(text: str) -> Any:
    base_60 = _BASE_60.fullmatch(text)
    if base_60:  # 6a.
        return _base_60(text, float if base_60[2] is not None else int)
    if _FLOAT.fullmatch(text) and text.lstrip("+-") != ".":  # 6b.
        return _float(re.sub(r"[,_]|\.(?=[Ee]|$)", "", text))
    integer = _INTEGER.fullmatch(text)  # 6c.
    return _integer(text, integer) if integer else text


def _base_60(text: str, number: type[int] | type[float]) -> int | float:
    """Psych treats two parts as hours and minutes, in seconds: 12:30 is 45000."""
    total: int | float = 0
    for part, weight in zip(text.split(":"), (3600, 60, 1), strict=False):
        digits = re.match(r"[-+]?\d+(?:_\d+)*(?:\.\d*(?:(?<=\d)_\d+)*)?", part)
        total += number((digits[0] if digits else "0").replace("_", "")) * weight
    return total


_BASES = {"b2": 2, "b8": 8, "b10": 10, "b16": 16}


def _integer(text: str, match: re.Match[str]) -> int:
    digits = text.replace(",", "").replace("_", "")
    if len(digits) > MAX_DIGITS:
        raise RefusedError(f"a number has {len(digits)} digits, more than {MAX_DIGITS}")
    try:
        return int(digits, _BASES[match.lastgroup or "b10"])
    except ValueError:  # such as 0x_, which has only separators as digits
        raise RefusedError(f'invalid value for Integer(): "{digits}"') from None


MAX_DEPTH = 400
MAX_VALUES = 5_000_000  # with every alias expanded

_STARTS = (MappingStartEvent, SequenceStartEvent)
_ENDS = (MappingEndEvent, SequenceEndEvent)
_LAST = (DocumentEndEvent, StreamEndEvent)


def load(data: bytes, path: str) -> Any:
    """Return the first document in ``data``, or ``None`` if it is empty.

    Raises ``DocumentError`` with the position for input that Psych cannot read or Puppet does not permit, and
    ``LimitError``.
    """
    text = decode(data, path)
    try:
        return _Builder(CParser(text)).document()
    except YAMLError as error:
        if getattr(error, "problem", None) == TOO_DEEP:
            raise LimitError(path, _nested(error.problem_mark)) from None  # type: ignore[attr-defined]
        raise DocumentError("", f"Unable to parse ({path}): {_problem(error, text)}") from None
    except RefusedError as error:
        raise DocumentError("", f"Unable to parse ({path}): {error} {error.place()}") from None
    except LimitError as error:
        raise error.at(path) from None


def _nested(mark: Any) -> str:
    return f"nested deeper than {MAX_DEPTH} levels {place_of(mark)}"


def decode(data: bytes, path: str, encoding: str = "utf-8-sig") -> str:
    """Return ``data`` as text. Puppet rejects UTF-16, which libyaml would accept. Raises ``DocumentError``."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        detail = f"{error.reason} {_place_behind(data[: error.start])}: the text is not UTF-8"
        raise DocumentError("", f"Unable to parse ({path}): {detail}") from None


def _place_behind(before: bytes) -> str:
    lines = before.split(b"\n")
    return f"at line {len(lines)} column {len(lines[-1]) + 1}"


def _problem(error: YAMLError, text: str) -> str:
    """Return libyaml's message in Psych's order: the start of the construct, then the position of the error."""
    if isinstance(error, ReaderError):  # a character that YAML does not allow
        return f"{error.reason} {_place_behind(text.encode()[: error.position])}"
    problem, context = getattr(error, "problem", None), getattr(error, "context", None)
    description = " ".join(filter(None, (problem, context))) or str(error).splitlines()[0]
    begins, result = getattr(error, "context_mark", None), getattr(error, "problem_mark", None)
    if begins and result and (begins.line, begins.column) != (result.line, result.column):
        return f"{description} {place_of(begins)} (noticed {place_of(result)})"
    mark = begins or result
    return f"{description} {place_of(mark)}" if mark else description


class _Anchor:
    __slots__ = ("size", "value")

    def __init__(self, value: Any, size: int) -> None:
        self.value = value
        self.size = size  # number of values, with aliases expanded, or 0 while the collection is still open


class _OpenList:
    """A list being filled."""

    __slots__ = ("anchor", "size", "value")

    def __init__(self, value: list[Any]) -> None:
        self.value: Any = value
        self.anchor: _Anchor | None = None
        self.size = 1

    def put(self, value: Any, size: int, tag: str | None, merges: bool) -> None:
        self.size += size
        self.value.append(value)

    def finished(self) -> Any:
        return self.value


class _OpenOrdered(_OpenList):
    """A list tagged ``!!omap``, which becomes a mapping."""

    def finished(self) -> Any:
        result: dict[Any, Any] = {}
        for entry in self.value:
            if not isinstance(entry, dict) or not entry:
                raise RefusedError("an entry of an !!omap is not a mapping")
            name = next(iter(entry))
            result[name] = entry[name]
        return result


class _OpenMapping(_OpenList):
    """A mapping being filled, with the pending key."""

    __slots__ = ("has_key", "key", "key_tag")

    def __init__(self) -> None:
        super().__init__([])
        self.value = {}
        self.has_key = False
        self.key: Any = None
        self.key_tag: str | None = None

    def put(self, value: Any, size: int, tag: str | None, merges: bool) -> None:
        self.size += size
        if not self.has_key:
            self.key, self.key_tag, self.has_key = value, tag, True
            return
        self.has_key = False
        key = self.key
        if type(key) is str:
            if merges and key == "<<" and self.key_tag != CORE + "str":
                _merge(self.value, value)
            else:
                self.value[key] = value
        elif isinstance(key, Symbol):  # Puppet converts symbols to text after Psych
            self.value[key.name] = value
        else:
            self.value[ruby_values.key(key)] = value


class _Builder:
    """Builds values from events. ``put`` gets a flag: whether the key ``<<`` may merge the value."""

    def __init__(self, parser: CParser) -> None:
        self._parser = parser
        self._anchors: dict[str, _Anchor] = {}
        self._scalars: dict[str, Any] = {}  # the same words occur repeatedly
        self._open: list[_OpenList] = []
        self._top = self._root = _OpenList([])

    def document(self) -> Any:
        """Read events until the first document ends."""
        next_event = self._parser.get_event
        while True:
            event = next_event()
            try:
                if isinstance(event, ScalarEvent):
                    self._scalar(event)
                elif isinstance(event, _STARTS):
                    self._start(event)
                elif isinstance(event, _ENDS):
                    self._end()
                elif isinstance(event, AliasEvent):
                    self._alias(event)
                elif isinstance(event, _LAST):
                    return self._root.value[0] if self._root.value else None
            except RefusedError as error:
                error.event = event
                raise

    def _scalar(self, event: ScalarEvent) -> None:
        value: Any = event.value
        tag = event.tag
        if not event.implicit[1]:  # neither quoted nor a block, or tagged
            if tag is not None:
                value = tagged(tag, value)
            elif value in self._scalars:
                value = self._scalars[value]
            else:
                text, value = value, plain(value)
                self._scalars[text] = value
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(value, 1)
        self._top.put(value, 1, tag, False)

    def _alias(self, event: AliasEvent) -> None:
        anchor = self._anchors.get(event.anchor or "")
        if anchor is None:
            raise RefusedError(f"Unknown alias: {event.anchor}")
        if not anchor.size:
            raise RefusedError(f"the alias *{event.anchor} stands inside its own anchor")
        self._put(anchor.value, anchor.size, isinstance(anchor.value, dict))

    def _start(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise LimitError("", _nested(event.start_mark))
        self._open.append(self._top)
        is_mapping = isinstance(event, MappingStartEvent)
        if event.tag is not None and _is_ordered(event.tag, is_mapping):
            self._top = _OpenOrdered([])
        else:
            self._top = _OpenMapping() if is_mapping else _OpenList([])
        if event.anchor is not None:
            self._top.anchor = self._anchors[event.anchor] = _Anchor(self._top.value, 0)

    def _end(self) -> None:
        done = self._top
        value = done.finished()
        if done.anchor:
            done.anchor.value, done.anchor.size = value, done.size
        self._top = self._open.pop()
        self._put(value, done.size, True)

    def _put(self, value: Any, size: int, merges: bool) -> None:
        self._top.put(value, size, None, merges)
        if self._top.size > MAX_VALUES:
            raise LimitError("", f"aliases unfold to more than {MAX_VALUES} values")


def _merge(into: dict[Any, Any], value: Any) -> None:
    """Merge ``<<``. A later one overrides earlier keys. In a list of mappings the first has priority."""
    if isinstance(value, dict):
        into.update(value)
    elif isinstance(value, list) and all(isinstance(part, dict) for part in value):
        merged: dict[Any, Any] = {}
        for part in reversed(value):
            merged.update(part)
        into.update(merged)
    else:
        into["<<"] = value


def _is_ordered(tag: str, is_mapping: bool) -> bool:
    """Return whether a collection with ``tag`` is an ordered mapping. Raises ``RefusedError`` for forbidden tags."""
    if tag in ("!omap", CORE + "omap"):
        if is_mapping:
            raise RefusedError("Tried to load unspecified class: Psych::Omap")
        return True
    if is_mapping and tag in ("!set", CORE + "set"):
        raise RefusedError("Tried to load unspecified class: Psych::Set")
    if is_mapping and tag in ("!str", CORE + "str"):
        raise RefusedError("a mapping cannot be a !!str")
    named = re.match(r"!(?:ruby/\w[\w-]*:?|map:|seq:)(.*)", tag)
    if named and tag != "!ruby/object:Hash":
        raise RefusedError(f"Tried to load unspecified class: {named[1] or 'Object'}")
    return False
