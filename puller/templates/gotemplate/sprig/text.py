"""Strings: cutting, joining, padding, wrapping, and text of the environment that the renderer provides.

* Positions and lengths count bytes, as in Go. A cut in the middle of a character is kept (``govalue.types``).
* A template never reaches the environment of the process, or the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Never

from puller.templates.gotemplate.function_calls import Rendering
from puller.templates.govalue.printf import format_value
from puller.templates.govalue.strconv import quote as quoted
from puller.templates.govalue.text import WHITE_SPACE, to_lower, to_upper, trim_space
from puller.templates.govalue.types import (
    MAX_ITEMS,
    StringMap,
    Strings,
    byte_length,
    byte_slice,
    from_bytes,
    is_list,
    to_bytes,
)
from puller.templates.template_errors import FunctionError

_ELLIPSIS: Final = b"..."


def _hello() -> str:
    """``hello``: a greeting."""
    return "Hello!"


# Values as text ------------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """``toString``: a value as text, as Sprig's functions convert it."""
    if isinstance(value, str):
        return value
    return from_bytes(value) if isinstance(value, bytes) else format_value(value)


def texts_of(value: Any) -> Strings:
    """``toStrings``: a list as texts, without nil. Other values become a list with one item."""
    if is_list(value):
        return Strings(text_of(item) for item in value if item is not None)
    return Strings() if value is None else Strings([text_of(value)])


def _join(separator: str, value: Any) -> str:
    """``join``: the items as texts, joined by the separator."""
    return separator.join(texts_of(value))


def _sort_alpha(value: Any) -> Strings:
    """``sortAlpha``: the items as texts, sorted by their characters."""
    return Strings(sorted(texts_of(value))) if is_list(value) else Strings([text_of(value)])


def _quote(*values: Any) -> str:
    """``quote``: each value as text in double quotes, escaped. Nil is left out."""
    return " ".join(quoted(text_of(value)) for value in values if value is not None)


def _squote(*values: Any) -> str:
    """``squote``: each value as text in single quotes, without escapes. Nil is left out."""
    return " ".join(f"'{format_value(value)}'" for value in values if value is not None)


def _cat(*values: Any) -> str:
    """``cat``: the values with a space between them. Nil is left out."""
    return " ".join(format_value(value) for value in values if value is not None)


# Changing ------------------------------------------------------------------------------------------------------------


def _trim_all(characters: str, text: str) -> str:
    """``trimAll``: the text without these characters at both ends."""
    return text.strip(characters)


def _trim_prefix(prefix: str, text: str) -> str:
    """``trimPrefix``: the text without this prefix."""
    return text.removeprefix(prefix)


def _trim_suffix(suffix: str, text: str) -> str:
    """``trimSuffix``: the text without this suffix."""
    return text.removesuffix(suffix)


def _replace(rendering: Rendering, old: str, new: str, text: str) -> str:
    """``replace``: the text with every ``old`` replaced."""
    rendering.allow(len(text) + (text.count(old) + 1) * len(new))
    return text.replace(old, new)


def _repeat(rendering: Rendering, count: int, text: str) -> str:
    """``repeat``: the text, repeated. Raises FunctionError for a negative count."""
    if count < 0:
        raise FunctionError(f"negative repeat count {count}")
    rendering.allow(count * len(text))
    return text * count


def _indent(rendering: Rendering, spaces: int, text: str) -> str:
    """``indent``: the text with spaces before each line. Raises FunctionError for a negative count."""
    if spaces < 0:
        raise FunctionError(f"negative repeat count {spaces}")
    rendering.allow(len(text) + (text.count("\n") + 1) * spaces)
    pad = " " * spaces
    return pad + text.replace("\n", "\n" + pad)


def _nindent(rendering: Rendering, spaces: int, text: str) -> str:
    """``nindent``: a newline, followed by the result of ``indent``."""
    return "\n" + _indent(rendering, spaces, text)


def _no_space(text: str) -> str:
    """``nospace``: the text without white space.

    As in Sprig, this works on bytes: if the text contains white space, non-ASCII characters come out wrong.
    """
    data = to_bytes(text).decode("latin-1")
    retained = "".join(character for character in data if character not in WHITE_SPACE)
    return text if len(retained) == len(data) else retained


def _initials(text: str) -> str:
    """``initials``: the first byte of each word. White space is searched bytewise, as in ``nospace``."""
    data = to_bytes(text).decode("latin-1")
    return "".join(
        character
        for before, character in zip(" " + data, data, strict=False)
        if before in WHITE_SPACE and character not in WHITE_SPACE
    )


# Cutting -------------------------------------------------------------------------------------------------------------


def _trunc(count: int, text: str) -> str:
    """``trunc``: the first bytes of the text, or the last bytes for a negative count."""
    length = byte_length(text)
    if count < 0:
        return byte_slice(text, length + count, length) if length + count > 0 else text
    return byte_slice(text, 0, count) if length > count else text


def _substr(start: int, end: int, text: str) -> str:
    """``substr``: the bytes from start to before end. A negative bound is an end of the text. Raises FunctionError."""
    length = byte_length(text)
    if start < 0:
        start = 0
    elif end < 0 or end > length:
        end = length
    if not start <= end <= length:
        raise FunctionError(f"slice bounds out of range [{start}:{end}] of a string of {length} bytes")
    return byte_slice(text, start, end)


def _abbrev(width: int, text: str) -> str:
    """``abbrev``: the text, or its start with dots, at most ``width`` bytes."""
    return text if width < 4 else from_bytes(_abbreviate(to_bytes(text), 0, width))


def _abbrev_both(left: int, right: int, text: str) -> str:
    """``abbrevboth``: the text from about ``left`` on, at most ``right`` bytes, with dots for omitted text."""
    if right < 4 or (left > 0 and right < 7):
        return text
    return from_bytes(_abbreviate(to_bytes(text), left, right))


def _abbreviate(text: bytes, offset: int, width: int) -> bytes:
    """Abbreviate to at most ``width`` bytes that include the byte at ``offset``, with dots for omitted text."""
    if len(text) <= width:
        return text
    room = width - len(_ELLIPSIS)
    offset = min(offset, len(text) - room)
    if offset <= 4:
        return text[:room] + _ELLIPSIS
    if offset + room < len(text):
        return _ELLIPSIS + _abbreviate(text[offset:], 0, room)
    return _ELLIPSIS + text[-room:]


def _wrap(width: int, text: str) -> str:
    """``wrap``: the text in lines of about ``width`` bytes. A longer word exceeds the width."""
    return from_bytes(_wrapped(to_bytes(text), width, b"\n", cut_long_words=False))


def _wrap_with(rendering: Rendering, width: int, separator: str, text: str) -> str:
    """``wrapWith``: the text in lines of at most ``width`` bytes, joined by the separator. A longer word is cut."""
    rendering.allow(len(text) + (len(text) // max(width, 1) + 1) * len(separator))
    return from_bytes(_wrapped(to_bytes(text), width, to_bytes(separator) or b"\n", cut_long_words=True))


def _wrapped(text: bytes, width: int, separator: bytes, *, cut_long_words: bool) -> bytes:
    """Return lines of at most ``width`` bytes, broken at spaces. A longer word is cut, or exceeds the width."""
    width = max(width, 1)
    lines: list[bytes] = []
    start = 0
    while len(text) - start > width:
        if text[start : start + 1] == b" ":
            start += 1
            continue
        space = text.rfind(b" ", start, start + width + 1)
        if space < 0 and cut_long_words:
            lines.append(text[start : start + width])
            start += width
            continue
        end = space if space >= 0 else text.find(b" ", start + width)
        lines.append(text[start : end if end >= 0 else len(text)])
        start = end + 1 if end >= 0 else len(text)
        if end < 0:
            return separator.join(lines)
    return separator.join([*lines, text[start:]])


# Splitting and searching ----------------------------------------------------------------------------------------------


def _split_parts(separator: str, text: str, count: int = -1) -> list[str]:
    """Go's ``SplitN``. An empty separator splits into characters."""
    if count == 0:
        return []
    pieces = text.count(separator) + 1 if separator else len(text)
    if pieces > MAX_ITEMS and not 0 < count <= MAX_ITEMS:
        raise FunctionError(f"there would be {pieces} parts, at most {MAX_ITEMS} are made")
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    if count < 0 or count >= len(text):
        return list(text)
    return [*text[: count - 1], text[count - 1 :]]


def _numbered(pieces: list[str]) -> StringMap:
    return StringMap((f"_{number}", part) for number, part in enumerate(pieces))


def _split(separator: str, text: str) -> StringMap:
    """``split``: the parts of a text as a map with the keys ``_0``, ``_1`` and so on."""
    return _numbered(_split_parts(separator, text))


def _splitn(separator: str, count: int, text: str) -> StringMap:
    """``splitn``: at most ``count`` parts of a text, in the form of ``split``."""
    return _numbered(_split_parts(separator, text, count))


def _split_list(separator: str, text: str) -> Strings:
    """``splitList``: the parts of a text as a list."""
    return Strings(_split_parts(separator, text))


def _contains(part: str, text: str) -> bool:
    """``contains``: whether the part is in the text."""
    return part in text


def _has_prefix(prefix: str, text: str) -> bool:
    """``hasPrefix``: whether the text starts with the prefix."""
    return text.startswith(prefix)


def _has_suffix(suffix: str, text: str) -> bool:
    """``hasSuffix``: whether the text ends with the suffix."""
    return text.endswith(suffix)


def _plural(item: str, many: str, count: int) -> str:
    """``plural``: the first text for a count of 1, else the second."""
    return item if count == 1 else many


_TEXTS: Final[dict[str, Callable[..., Any]]] = {
    "abbrev": _abbrev,
    "abbrevboth": _abbrev_both,
    "cat": _cat,
    "contains": _contains,
    "hasPrefix": _has_prefix,
    "hasSuffix": _has_suffix,
    "hello": _hello,
    "indent": _indent,
    "initials": _initials,
    "join": _join,
    "lower": to_lower,
    "nindent": _nindent,
    "nospace": _no_space,
    "plural": _plural,
    "quote": _quote,
    "repeat": _repeat,
    "replace": _replace,
    "sortAlpha": _sort_alpha,
    "split": _split,
    "splitList": _split_list,
    "splitn": _splitn,
    "squote": _squote,
    "substr": _substr,
    "toString": text_of,
    "toStrings": texts_of,
    "trim": trim_space,
    "trimAll": _trim_all,
    "trimPrefix": _trim_prefix,
    "trimSuffix": _trim_suffix,
    "trimall": _trim_all,
    "trunc": _trunc,
    "upper": to_upper,
    "wrap": _wrap,
    "wrapWith": _wrap_with,
}

_VARIABLE: Final = re.compile(
    r"\$(?:\{(?P<braced>[^}]*)\}|(?P<lonely_brace>\{)|(?P<special>[*#$@!?0-9-])|(?P<name>[a-zA-Z_]\w*))",
    re.ASCII,
)


def _env(rendering: Rendering, name: str) -> str:
    """``env``: the value of a name in environ, or empty text."""
    return text_of(rendering.environ.get(name, ""))


def _expand_env(rendering: Rendering, text: str) -> str:
    """Replace ``$NAME`` and ``${NAME}``. An unset name is empty."""

    def value(match: re.Match[str]) -> str:
        name = match["braced"] or match["special"] or match["name"]
        return _env(rendering, name) if name else ""  # "${}", and "${" without an end, are removed

    expanded = _VARIABLE.sub(value, text)
    rendering.allow(len(expanded))
    return expanded


def _get_host_by_name(name: str) -> Never:
    """``getHostByName``: rejected. Raises FunctionError."""
    raise FunctionError(
        f"{name} is not looked up: a template gives the same text everywhere, and uses no network"
    )


_ENVIRONMENT: Final[dict[str, Callable[..., Any]]] = {
    "env": _env,
    "expandenv": _expand_env,
    "getHostByName": _get_host_by_name,
}

FUNCTIONS: Final = {**_TEXTS, **_ENVIRONMENT}
