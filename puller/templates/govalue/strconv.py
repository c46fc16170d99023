"""Numbers and quoted strings in the syntax of Go's ``strconv``, and Go's ``complex128``.

* ``format_float`` returns the digits of Go's ``FormatFloat``. Without a precision, these are the shortest digits that
  parse to the same number.
* ``quote`` and ``unquote`` are inverses for any text, even for invalid UTF-8.
* Parsing is strict. Input that Go rejects raises :class:`ValueError` with Go's message.
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar, Final

from puller.templates.govalue.types import INT64_MAX, UINT64_MAX, GoObject, from_bytes, to_bytes

_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX_FLOAT: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_SPECIAL_FLOAT: Final = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_PREFIXED: Final = re.compile(
    r"0(?:x_?(?P<h>[0-9a-f]+)|b_?(?P<b>[01]+)|o?_?(?P<o>[0-7]+))|(?P<d>0|[1-9][0-9]*)"
)
_UNDERSCORES: Final = re.compile(r"(?:0[xbo]_?|0_)?[0-9a-z]+(?:_[0-9a-z]+)*")
_MANTISSA: Final = 53  # bits in a float64's mantissa
_LEAST_POWER: Final = -1074
_HEX_DIGITS: Final = 15  # hexadecimal digits of a fraction of sixty bits
_BASE_OF_GROUP: Final = {"h": 16, "b": 2, "o": 8, "d": 10}
_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def format_float(number: float, verb: str = "g", precision: int = -1) -> str:
    """Go's ``FormatFloat(number, verb, precision, 64)`` for ``b e E f F g G x X``. -1 means the shortest form."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if verb == "b":
        mantissa, power = _bits(number)
        return f"{sign}{mantissa}p{power:+d}"
    if verb in "xX":
        text = sign + _hexadecimal(number, precision)
        return text.upper() if verb == "X" else text
    if precision >= 0:
        return format(number, f".{precision}{verb}")
    digits, exponent = _shortest_digits(number)
    # For %g Go selects the notation as if the precision were 6, without cutting digits.
    if verb in "fF" or (verb in "gG" and -4 <= exponent < 6):
        return sign + _plain(digits, exponent)
    shown = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    mark = "E" if verb in "EG" else "e"
    return f"{sign}{shown}{mark}{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _bits(number: float) -> tuple[int, int]:
    """Return the mantissa of a float64, and the power of two that multiplies it."""
    fraction, exponent = math.frexp(abs(number))
    power = max(exponent - _MANTISSA, _LEAST_POWER) if number else _LEAST_POWER
    return int(math.ldexp(fraction, exponent - power)), power


def _hexadecimal(number: float, precision: int) -> str:
    """Return ``0x1.8p+01``: one bit, a fraction in hexadecimal, and a power of two of at least two digits."""
    mantissa, power = _bits(number)
    exponent = power + mantissa.bit_length() - 1 if mantissa else 0
    mantissa <<= 61 - mantissa.bit_length() if mantissa else 0  # the first bit is now the sixtieth
    if 0 <= precision < _HEX_DIGITS:
        retained = 60 - 4 * precision
        remainder, mantissa = mantissa & ((1 << retained) - 1), mantissa >> retained
        half = 1 << (retained - 1)
        mantissa += remainder > half or (remainder == half and mantissa & 1)
        mantissa <<= retained
        if mantissa >> 61:
            mantissa, exponent = mantissa >> 1, exponent + 1
    digits = f"{mantissa & ((1 << 60) - 1):0{_HEX_DIGITS}x}"
    digits = digits.rstrip("0") if precision < 0 else digits[:precision].ljust(precision, "0")
    point = "." if digits else ""
    return f"0x{mantissa >> 60}{point}{digits}p{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _shortest_digits(number: float) -> tuple[str, int]:
    """Return the significant digits (without trailing zeros) and the power of ten of the first digit."""
    mantissa, _, power = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    exponent = len(whole) - 1 - leading + int(power or 0)
    return (digits.rstrip("0"), exponent) if digits else ("0", 0)


def _plain(digits: str, exponent: int) -> str:
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{whole}.{digits[exponent + 1 :]}" if len(digits) > exponent + 1 else whole


def format_int(number: int, base: int) -> str:
    """Go's ``FormatInt``: base 2 to 36, lower case."""
    if base == 10:
        return str(int(number))
    digits, remainder = "", abs(number)
    while remainder:
        remainder, digit = divmod(remainder, base)
        digits = _ALPHABET[digit] + digits
    return ("-" if number < 0 else "") + (digits or "0")


def parse_int(text: str, base: int = 10) -> int:
    """Go's ``ParseInt(text, base, 64)``. Base 0 reads the prefixes ``0x 0b 0o 0`` and underscores.

    Raises ValueError with Go's sentence for other text, and for an integer beyond 64 bits.
    """
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    number = _parse_magnitude(digits, base)
    if number is None:
        raise ValueError(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
    number = -number if sign == "-" else number
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise ValueError(f"strconv.ParseInt: parsing {quote(text)}: value out of range")
    return number


def parse_uint(text: str, base: int = 10) -> int:
    """Go's ``ParseUint(text, base, 64)``: like ``parse_int``, but without a sign. Raises ValueError."""
    number = _parse_magnitude(text, base)
    if number is None:
        raise ValueError(f"strconv.ParseUint: parsing {quote(text)}: invalid syntax")
    if number > UINT64_MAX:
        raise ValueError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return number


def _parse_magnitude(digits: str, base: int) -> int | None:
    if base:
        # Python's int() accepts spaces, underscores and digits of other scripts, Go's does not.
        valid = digits.isascii() and digits.isalnum() and all(d in _ALPHABET[:base] for d in digits.lower())
        return int(digits, base) if valid else None
    lower = digits.lower()
    if "_" in lower:
        if not _UNDERSCORES.fullmatch(lower):
            return None
        lower = lower.replace("_", "")
    match = _PREFIXED.fullmatch(lower)
    if match is None or match.lastgroup is None:
        return None
    return int(match[match.lastgroup], _BASE_OF_GROUP[match.lastgroup])


def parse_float(text: str) -> float:
    """Go's ``ParseFloat(text, 64)``, hexadecimal floats, ``Inf`` and ``NaN`` included.

    Raises ValueError with Go's sentence for other text, and for a number beyond a float64.
    """
    written, text = text, _without_underscores(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
    elif _HEX_FLOAT.fullmatch(text):
        number = _parse_hex_float(text)
    elif _SPECIAL_FLOAT.fullmatch(text):
        return float(text)
    else:
        raise ValueError(f"strconv.ParseFloat: parsing {quote(written)}: invalid syntax")
    if math.isinf(number):
        raise ValueError(f"strconv.ParseFloat: parsing {quote(written)}: value out of range")
    return number


def _without_underscores(text: str) -> str:
    """Return the number without the underscores between its digits, or unchanged if it has other underscores."""
    if "_" not in text:
        return text
    digits = "0-9a-fA-F" if text.lstrip("+-")[:2] in ("0x", "0X") else "0-9"
    plain = re.sub(rf"(?<=[{digits}xX])_(?=[{digits}])", "", text)
    return text if "_" in plain else plain


def _parse_hex_float(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


# Quoted strings -----------------------------------------------------------------------------------------

_NAMED: Final = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
}
_MEANINGS: Final = {escape[1]: character for character, escape in _NAMED.items()}
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<named>[abfnrtv\\'\"])|x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))"
)


_NOT_PLAIN: Final = re.compile(r"[^ -~]|[\"'\\]")  # characters that quoting may change, absent in most texts


def quote(text: str, *, mark: str = '"', ascii_only: bool = False) -> str:
    """Go's ``Quote`` (or ``QuoteToASCII``): double quotes, with unprintable characters as escapes."""
    body = _NOT_PLAIN.sub(lambda match: _quoted_character(match[0], mark, ascii_only), text)
    return f"{mark}{body}{mark}"


def quote_rune(code: int, *, ascii_only: bool = False) -> str:
    """Go's ``QuoteRune`` of a code point. An invalid code point becomes U+FFFD."""
    valid = 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
    return quote(chr(code) if valid else "\ufffd", mark="'", ascii_only=ascii_only)


def _quoted_character(character: str, mark: str, ascii_only: bool) -> str:
    if character == mark:
        return "\\" + mark
    if character in _NAMED:
        return _NAMED[character]
    code = ord(character)
    if character.isprintable() and (code < 0x7F or not ascii_only):
        return character
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not valid UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def can_backquote(text: str) -> bool:
    """Return whether the text can stand between backquotes unchanged."""
    return not any((c < " " and c != "\t") or c in "`\x7f\ufeff" or "\ud800" <= c <= "\udfff" for c in text)


def unquote(literal: str) -> str:
    """Return the string of a Go literal: ``"..."`` with escapes, or raw between backquotes.

    Raises ValueError if the quotes do not match or an escape is invalid.
    """
    mark, body = literal[:1], literal[1:-1]
    if len(literal) < 2 or mark not in ('"', "`") or literal[-1] != mark:
        raise ValueError("invalid syntax")
    if mark == '"':
        return _unescape(body, mark)
    if mark in body:
        raise ValueError("invalid syntax")
    # Go's specification: carriage returns in raw strings are discarded.
    return body.replace("\r", "")


def unquote_rune(literal: str) -> int:
    """Return the code point of a character constant such as ``'a'`` or ``'\\n'``. Raises ValueError."""
    body = literal[1:-1]
    if len(literal) < 3 or literal[0] != "'" or literal[-1] != "'":
        raise ValueError("invalid syntax")
    match = _ESCAPE.fullmatch(body)
    # A byte above 0x7F is a code point here, not a piece of UTF-8.
    if match and (match["byte"] or match["octal"]):
        return int(match["byte"], 16) if match["byte"] else int(match["octal"], 8)
    text = _unescape(body, "'")
    if len(text) != 1:
        raise ValueError("invalid syntax")
    return ord(text)


def _unescape(body: str, mark: str) -> str:
    if "\n" in body:
        raise ValueError("invalid syntax")
    pieces: list[bytes] = []
    position = 0
    while (result := body.find("\\", position)) >= 0:
        pieces.append(_plain_part(body[position:result], mark))
        match = _ESCAPE.match(body, result)
        if match is None:
            raise ValueError("invalid syntax")
        pieces.append(_escape_meaning(match, mark))
        position = match.end()
    return from_bytes(b"".join([*pieces, _plain_part(body[position:], mark)]))


def _plain_part(text: str, mark: str) -> bytes:
    if mark in text:
        raise ValueError("invalid syntax")
    return to_bytes(text)


def _escape_meaning(match: re.Match[str], mark: str) -> bytes:
    named = match["named"]
    if named:
        if named in "'\"" and named != mark:
            raise ValueError("invalid syntax")
        return _MEANINGS.get(named, named).encode()
    if match["byte"] or match["octal"]:
        number = int(match["byte"], 16) if match["byte"] else int(match["octal"], 8)
        if number > 0xFF:
            raise ValueError("invalid syntax")
        return bytes([number])
    code = int(match["short"] or match["long"], 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError("invalid syntax")
    return chr(code).encode()


class Complex(GoObject):
    """A complex number, which a template can use as a constant and print."""

    go_type: ClassVar[str] = "complex128"
    go_kind: ClassVar[str] = "complex128"

    def __init__(self, value: complex) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return self.value != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Complex) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def json_value(self) -> Any:
        """Raises ValueError: JSON does not support complex numbers."""
        raise ValueError(f"json: unsupported type: {self.go_type}")

    def text(self) -> str:
        """Return the form ``(1.5+2i)``."""
        imaginary = format_float(self.value.imag)
        sign = "" if imaginary[0] in "+-" else "+"
        return f"({format_float(self.value.real)}{sign}{imaginary}i)"
