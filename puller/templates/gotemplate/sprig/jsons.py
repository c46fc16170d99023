"""JSON as Go's ``encoding/json`` reads and writes it.

* Every number in the input becomes a float, as Go decodes into ``interface {}``.
* If a function without ``must`` fails, it returns nil or an empty text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final, Never

from puller.templates.govalue.gojson import to_json
from puller.templates.template_errors import FunctionError

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INDENT: Final = "  "


def _number(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits} is too large")
    return number


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not a value of JSON")


_DECODER: Final = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_refuse_constant)


def _must_from_json(text: str) -> Any:
    """``mustFromJson``: the value in a JSON text. Raises FunctionError."""
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise FunctionError(f"invalid JSON: {error}") from None
    # In Go, half of a surrogate pair, or an invalid byte of UTF-8, becomes U+FFFD.
    return _cleaned(value) if "\\ud" in text.lower() or _SURROGATE.search(text) else value


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return value


def _must_to_pretty_json(value: Any) -> str:
    """``mustToPrettyJson``: JSON with a line for each item. Raises ValueError."""
    return to_json(value, indent=_INDENT)


def _must_to_raw_json(value: Any) -> str:
    """``mustToRawJson``: JSON with unchanged ``<``, ``>`` and ``&``. Raises ValueError."""
    return to_json(value, escape_html=False)


def _from_json(text: str) -> Any:
    """``fromJson``: the value in a text, or nil for invalid text."""
    try:
        return _must_from_json(text)
    except FunctionError:
        return None


def _to_json(value: Any) -> str:
    """``toJson``: JSON on one line, or empty text for unsupported values."""
    return _or_nothing(to_json, value)


def _to_pretty_json(value: Any) -> str:
    """``toPrettyJson``: JSON with a line for each item, or empty text."""
    return _or_nothing(_must_to_pretty_json, value)


def _to_raw_json(value: Any) -> str:
    """``toRawJson``: JSON with unchanged ``<``, ``>`` and ``&``, or empty text."""
    return _or_nothing(_must_to_raw_json, value)


def _or_nothing(encode: Callable[[Any], str], value: Any) -> str:
    try:
        return encode(value)
    except ValueError:
        return ""


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "fromJson": _from_json,
    "mustFromJson": _must_from_json,
    "mustToJson": to_json,
    "mustToPrettyJson": _must_to_pretty_json,
    "mustToRawJson": _must_to_raw_json,
    "toJson": _to_json,
    "toPrettyJson": _to_pretty_json,
    "toRawJson": _to_raw_json,
}
