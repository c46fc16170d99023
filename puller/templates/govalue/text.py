"""Go's ``strings``, ``html``, ``template`` and ``url`` functions on text that differ from Python's.

* Upper and lower case change one character into one character: ``ß`` stays ``ß``.
* White space is defined by ``unicode.IsSpace``, not by ``str.strip``.
"""

from __future__ import annotations

from typing import Final

from puller.templates.govalue.types import to_bytes

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
