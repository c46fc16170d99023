"""Text as Go's standard library writes it: cases, white space, escapes, and JSON.

* Upper and lower case change one character into one character: ``ß`` stays ``ß``.
* White space is defined by ``unicode.IsSpace``, not by ``str.strip``.

JSON is that of ``encoding/json``:

* Keys are sorted. Text is safe inside HTML by default.
* Floats have the shortest digits, and an exponent only below 1e-6 and from 1e21 on.
* ``[]byte`` is base64, nil is ``null``.
"""

from __future__ import annotations

import binascii
import math
import re
from typing import Any, Final

from puller.templates.govalue.strconv import format_float
from puller.templates.govalue.types import (
    MAX_CHARACTERS,
    MISSING,
    GoObject,
    NilMap,
    NilSlice,
    NilStrings,
    ensure_small,
    map_keys,
    to_bytes,
    type_name,
)

WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

_HTML_SPECIAL: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"})
_QUERY_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_JS_SPECIAL: Final = {
    "\\": r"\\",
    "'": r"\'",
    '"': r"\"",
    "<": r"\u003C",
    ">": r"\u003E",
    "&": r"\u0026",
    "=": r"\u003D",
}


def to_upper(text: str) -> str:
    """Go's ``strings.ToUpper``."""
    return text.upper() if text.isascii() else "".join(map(_upper_rune, text))


def to_lower(text: str) -> str:
    """Go's ``strings.ToLower``: without the rule for a sigma at the end of a word."""
    # As in Go, one character maps to one character, while Python maps some to two.
    return text.lower() if text.isascii() else "".join(character.lower()[0] for character in text)


def to_title(text: str) -> str:
    """Go's ``strings.ToTitle``: every character in title case."""
    return text.upper() if text.isascii() else "".join(map(_title_rune, text))


def _upper_rune(character: str) -> str:
    # Python converts some characters to several letters, such as sharp s to ``SS``. Go keeps one character.
    upper = character.upper()
    return upper if len(upper) == 1 else _title_rune(character)


def _title_rune(character: str) -> str:
    title = character.title()
    return title if len(title) == 1 else character


def trim_space(text: str) -> str:
    """Go's ``strings.TrimSpace``."""
    return text.strip(WHITE_SPACE)


def is_blank(text: str) -> bool:
    """Return whether the text contains only white space."""
    return not text.strip(WHITE_SPACE)


def escape_html(text: str) -> str:
    """Go's ``html.EscapeString``."""
    return text.translate(_HTML_SPECIAL)


def escape_template_html(text: str) -> str:
    """Go's ``template.HTMLEscapeString``: like ``escape_html``, with U+FFFD for NUL."""
    return escape_html(text).replace("\0", "\ufffd")


def escape_js(text: str) -> str:
    """Go's ``template.JSEscapeString``: safe inside a quoted string of JavaScript."""
    return "".join(_escape_js_rune(character) for character in text)


def _escape_js_rune(character: str) -> str:
    special = _JS_SPECIAL.get(character)
    if special is not None:
        return special
    code = ord(character)
    if character.isprintable() or code == 0x7F:
        return character
    if 0xD800 <= code <= 0xDFFF:  # a byte that is not valid UTF-8
        return r"\uFFFD"
    return f"\\u{code:04X}"


def escape_query(text: str) -> str:
    """Go's ``url.QueryEscape``: a space becomes ``+``."""
    escaped = (chr(byte) if byte in _QUERY_SAFE else f"%{byte:02X}" for byte in to_bytes(text))
    return "".join(escaped).replace("%20", "+")


_SPECIAL: Final = {"\\": r"\\", '"': r"\"", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
_PIECE: Final = 1 << 16  # characters
_PLAIN_UNSAFE: Final = re.compile('[\x00-\x1f"\\\\\u2028\u2029\ud800-\udfff]')
_HTML_UNSAFE: Final = re.compile('[\x00-\x1f"\\\\\u2028\u2029\ud800-\udfff<>&]')


def to_json(value: Any, *, indent: str = "", escape_html: bool = True) -> str:
    """Return the value as JSON. With ``indent`` it has an item per line, like ``MarshalIndent(value, "", indent)``.

    Raises ValueError for values that JSON does not support (NaN, infinities, functions), and for a value that is too
    large (:func:`ensure_small`).
    """
    ensure_small(value)
    encoder = _Encoder(indent, _HTML_UNSAFE if escape_html else _PLAIN_UNSAFE)
    encoder.encode(value, 0)
    return "".join(encoder.pieces)


class _Encoder:
    def __init__(self, indent: str, unsafe: re.Pattern[str]) -> None:
        self.indent = indent
        self.unsafe = unsafe
        self.pieces: list[str] = []
        self.left = MAX_CHARACTERS

    def encode(self, value: Any, depth: int) -> None:
        if isinstance(value, str):
            self.pieces.append(self._text(value))
        elif isinstance(value, (NilSlice, NilStrings, NilMap)):
            self.pieces.append("null")
        elif isinstance(value, dict):
            self._items("{}", [(self._text(str(key)) + ":", value[key]) for key in map_keys(value)], depth)
        elif isinstance(value, (list, tuple)):
            self._items("[]", [("", item) for item in value], depth)
        elif isinstance(value, GoObject):
            self.encode(value.json_value(), depth)
        else:
            self.pieces.append(_encode_scalar(value))

    def _text(self, text: str) -> str:
        """Return text as JSON, made in pieces, since one character may become six."""
        written = []
        # Escaping can make text six times longer. Check in pieces, before it becomes too large.
        for start in range(0, len(text), _PIECE):
            written.append(self.unsafe.sub(_escape, text[start : start + _PIECE]))
            self.left -= len(written[-1])
            if self.left < 0:
                raise ValueError(f"json: the value makes more than {MAX_CHARACTERS} characters")
        return f'"{"".join(written)}"'

    def _items(self, brackets: str, items: list[tuple[str, Any]], depth: int) -> None:
        if not items:
            self.pieces.append(brackets)
            return
        before = brackets[0] + self._line(depth + 1)
        for label, item in items:
            self.pieces.append(f"{before}{label} " if label and self.indent else before + label)
            self.encode(item, depth + 1)
            before = "," + self._line(depth + 1)
        self.pieces.append(self._line(depth) + brackets[1])

    def _line(self, depth: int) -> str:
        return "\n" + self.indent * depth if self.indent else ""


def _encode_scalar(value: Any) -> str:
    if value is None or value is MISSING:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _encode_float(value)
    if isinstance(value, bytes):
        return f'"{binascii.b2a_base64(value, newline=False).decode()}"'
    raise ValueError(f"json: unsupported type: {type_name(value)}")


def _encode_float(number: float) -> str:
    if not math.isfinite(number):
        raise ValueError(f"json: unsupported value: {format_float(number)}")
    if number == 0 or 1e-6 <= abs(number) < 1e21:
        return format_float(number, "f")
    # The shortest form, as in JavaScript: e-7 instead of Go's usual e-07.
    return re.sub(r"e-0(\d)$", r"e-\1", format_float(number, "e"))


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":  # not valid UTF-8
        return r"\ufffd"
    return _SPECIAL.get(character) or f"\\u{ord(character):04x}"
