"""Scalars as Ruby's Psych 4 types them, which differs from PyYAML in many small ways.

``1e3`` is text, ``12:30`` a number, and a date makes the whole text unreadable.
"""

import binascii
import re
from typing import Any

from yaml.events import Event

from hiera.tree.ruby import values
from hiera.tree.ruby.values import Symbol

MAX_DIGITS = 3000  # of one number, hexadecimal ones too; Python refuses to print more than 4300
CORE = "tag:yaml.org,2002:"


class RefusedError(Exception):
    """Well-formed YAML that Psych does not turn into a value."""

    event: Event | None = None

    def place(self) -> str:
        """Where the event stands; empty when it is not known."""
        return place_of(self.event.start_mark) if self.event else ""


def place_of(mark: Any) -> str:
    """Line and column of a mark, from 1, as messages have them."""
    return f"at line {mark.line + 1} column {mark.column + 1}"


def tagged(tag: str, text: str) -> Any:
    """The value of a scalar with a tag; tags that Psych does not know count for nothing. Raises ``RefusedError``."""
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
        raise RefusedError(f"invalid value for Float(): {values.inspect(value)}")
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
    """The value of a plain scalar; raises ``RefusedError``.

    The questions and their order are those of Psych's ``ScalarScanner#tokenize``; the first that fits decides.

    1. Nothing is null.
    2. A word is text, unless it is a short one that means null, true or false.
    3. A time or a date is an object that Puppet does not permit.
    4. Infinity and *not a number* are floats.
    5. A colon in front makes a symbol.
    6. A number: 6a to the base 60 · 6b with a point · 6c whole. All else is text.
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
    """Psych's test for text: after at most one other character comes a letter, a blank or one of some signs."""
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
    """Psych counts two parts as hours and minutes, in seconds: 12:30 is 45000."""
    total: int | float = 0
    for part, weight in zip(text.split(":"), (3600, 60, 1), strict=False):
        digits = re.match(r"[-+]?\d+(?:_\d+)*(?:\.\d*(?:(?<=\d)_\d+)*)?", part)
        total += number((digits[0] if digits else "0").replace("_", "")) * weight
    return total


_BASES = {"b2": 2, "b8": 8, "b10": 10, "b16": 16}


def _integer(text: str, match: re.Match[str]) -> int:
    digits = text.replace(",", "").replace("_", "")
    if len(digits) > MAX_DIGITS:
        raise RefusedError(f"a number of {len(digits)} digits; {MAX_DIGITS} is the limit")
    try:
        return int(digits, _BASES[match.lastgroup or "b10"])
    except ValueError:  # such as 0x_, whose digits are all separators
        raise RefusedError(f'invalid value for Integer(): "{digits}"') from None
