r"""Text from other sources: names of hosts, characters that are unsafe to show, and encodings that Puller does not
read.

* The name of a host may come from a resolver, a custom fact or another machine. In a path it must be the name of one
  directory, and it must be valid in URLs.
* Control characters would move the cursor of root's terminal, change the text there, or type for root.
* Format characters would reverse, hide or join text: *bidirectional* controls show another order than programs read,
  and zero-width characters make two different names look alike. Line and paragraph separators forge a second line.
* The escapes are those of Python and JSON: ``\x1b``, ``\u202e``, ``\U000e0041``. Tabs and ends of lines stay.
* A UTF-8 byte order mark is not part of a text. Text that is edited or rendered keeps it at the start.
* Text in UTF-16 or UTF-32 is never edited or rendered: additions by Puller would be in another encoding.
"""

import codecs
import re
from functools import cache

LONGEST = 253
"""Characters of a host name (RFC 1035)."""
EXPECTED_NAME = (
    f"expected letters, digits, '.', '-' and '_', not starting with '.', at most {LONGEST} of them"
)

_ALLOWED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_")


def is_host_name(text: str) -> bool:
    """Return whether a text can be the name of a host's directory."""
    return 0 < len(text) <= LONGEST and text[0] != "." and _ALLOWED.issuperset(text)


_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
# The category Cf, the separators Zl and Zp, and the invisible rest of Default_Ignorable_Code_Point, of Unicode 15.1.
# Without the variation selectors below U+FE10, which choose the form of an emoji.
_FORMAT = (
    r"\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)


def visible(text: str) -> str:
    """Return the text with invisible characters written out, except tabs and ends of lines."""
    if text.isascii() and text.isprintable():  # the usual case
        return text
    return _invisible().sub(_escape, text.replace("\r\n", "\n"))


def visible_line(text: str) -> str:
    """Return the text in one line, with single spaces in the place of tabs and ends of lines."""
    return visible(" ".join(text.split()))


def visible_json(document: str) -> str:
    """Return an equal JSON document with invisible characters written as JSON escapes."""
    return (
        document
        if document.isascii() and "\x7f" not in document
        else _invisible_in_json().sub(_escape_json, document)
    )


def visible_json_bytes(document: bytes) -> bytes:
    """Return an equal JSON document in UTF-8. See ``visible_json``."""
    return document if document.isascii() else visible_json(document.decode("utf-8")).encode("utf-8")


def has_invisible(text: str) -> bool:
    """Return whether ``visible`` would write out a character of the text."""
    return _invisible().search(text) is not None


# Compiled at the first use: both take 1 % of an idle run, which shows printable ASCII only.
@cache
def _invisible() -> re.Pattern[str]:
    return re.compile(f"[{_CONTROL}{_FORMAT}]")


@cache
def _invisible_in_json() -> re.Pattern[str]:
    # JSON writes the control characters below the space itself, and its own line breaks stay.
    return re.compile(rf"[\x7f-\x9f{_FORMAT}]")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


MARK = "\ufeff"
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
IS_WIDE = "is text in UTF-16 or UTF-32, expected UTF-8"


def is_wide(data: bytes) -> bool:
    """Return whether data begins as text in UTF-16 or UTF-32 does, with or without a byte order mark."""
    # The first character of a configuration is an ASCII character, which has a NUL beside it in these encodings.
    return data.startswith(_WIDE_MARKS) or b"\0" in data[:2]


def holds_wide(text: str, data: bytes) -> bool:
    """Return whether data begins as text in UTF-16 or UTF-32 does, and contains ``text``."""
    return is_wide(data) and any(text.encode(encoding) in data for encoding in _WIDE)
