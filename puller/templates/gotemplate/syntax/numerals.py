"""Constants of a template: numbers and characters, which have no type until they are used.

A number is kept as everything it can be taken for, as Go does: ``3`` is an integer and a float, ``1e3`` too, ``1.5``
only a float, ``'a'`` is 97.
"""

from __future__ import annotations

import re
from typing import Final

from puller.templates.gotemplate.syntax.lexer import Kind, Token
from puller.templates.gotemplate.syntax.nodes import Number
from puller.templates.govalue.strconv import parse_float, parse_int, unquote_rune
from puller.templates.govalue.types import INT64_MAX, float_to_int

_SIGN: Final = re.compile(r"(?<![pP])(?<!^0[xX][eE])(?<![.0-9_][eE])[+-]")
"""Between the parts of a complex number; not that of an exponent."""
_UINT64_MAX: Final = 2 * INT64_MAX + 1


def parse_number(token: Token) -> Number:
    """The constant that a NUMBER, COMPLEX or CHARACTER token means. Raises ValueError with a sentence."""
    if token.kind is Kind.CHARACTER:
        return _character(token)
    if token.text.endswith("i"):
        return _complex(token)
    integer = _integer(token.text)
    if integer is not None:
        fits = integer <= INT64_MAX
        return Number(token.position, token.text, integer if fits else None, float(integer), None)
    number = _float(token.text)
    if number is None:
        raise ValueError(f"illegal number syntax: {token.text!r}")
    if not any(c in ".eEpP" for c in token.text):
        raise ValueError(f"integer overflow: {token.text!r}")
    whole = float_to_int(number)
    return Number(token.position, token.text, whole if whole == number else None, number, None)


def _character(token: Token) -> Number:
    try:
        code = unquote_rune(token.text)
    except ValueError:
        raise ValueError(f"malformed character constant: {token.text}") from None
    return Number(token.position, token.text, code, float(code), None)


def _complex(token: Token) -> Number:
    signs = list(_SIGN.finditer(token.text, 1)) if token.kind is Kind.COMPLEX else []
    middle = signs[0].start() if signs else 0
    imaginary = _float(token.text[middle:-1])
    real = _float(token.text[:middle]) if middle else 0.0
    if imaginary is None or real is None:
        raise ValueError(f"illegal number syntax: {token.text!r}")
    whole = float_to_int(real)
    is_real = imaginary == 0
    return Number(
        token.position,
        token.text,
        whole if is_real and whole == real else None,
        real if is_real else None,
        complex(real, imaginary),
    )


def _integer(text: str) -> int | None:
    """The integer, up to what Go's ``uint64`` holds."""
    try:
        return parse_int(text, 0)
    except ValueError:
        return _unsigned(text)


def _unsigned(text: str) -> int | None:
    try:
        number = int(text, 0)
    except ValueError:
        return None
    return number if INT64_MAX < number <= _UINT64_MAX else None


def _float(text: str) -> float | None:
    try:
        return parse_float(text)
    except ValueError:
        return None
