"""Base64 and base32, checksums of text, and JSON as Go's ``encoding/json`` reads and writes it.

* As in Sprig, decoding invalid text returns a message as the text, with the position of Go's error.
* Every number in JSON input becomes a float, as Go decodes into ``interface {}``.
* If a JSON function without ``must`` fails, it returns nil or an empty text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Callable
from typing import Any, Final, Never

from puller.templates.govalue.text import to_json
from puller.templates.govalue.types import from_bytes, to_bytes
from puller.templates.template_errors import FunctionError

_BASE64: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_BASE32: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
_PAD: Final = ord("=")
_NEWLINES: Final = b"\r\n"


def _b64enc(text: str) -> str:
    """``b64enc``: the text's bytes in base64."""
    return base64.b64encode(to_bytes(text)).decode()


def _b64dec(text: str) -> str:
    """``b64dec``: the text in base64, or a message about the first invalid byte."""
    data = to_bytes(text)
    wrong = _wrong_base64(data)
    if wrong is not None:
        return f"illegal base64 data at input byte {wrong}"
    return from_bytes(base64.b64decode(data.translate(None, _NEWLINES)))


def _wrong_base64(data: bytes) -> int | None:
    """Return the first invalid position of base64, including skipped line ends, or ``None`` if it is valid."""
    places = [place for place, byte in enumerate(data) if byte not in _NEWLINES]
    padding = next((index for index, place in enumerate(places) if data[place] not in _BASE64), len(places))
    filled = padding % 4
    if padding == len(places):
        return len(data) - filled if filled else None
    place = places[padding]
    if data[place] != _PAD or filled < 2:
        return place
    after = places[padding + 1 :]
    if filled == 2:
        if not after:
            return len(data)
        if data[after[0]] != _PAD:
            return after[0] - 1
        after = after[1:]
    return after[0] if after else None


def _b32enc(text: str) -> str:
    """``b32enc``: the text's bytes in base32."""
    return base64.b32encode(to_bytes(text)).decode()


def _b32dec(text: str) -> str:
    """``b32dec``: the text in base32, or a message about the first invalid byte."""
    data = to_bytes(text).translate(None, _NEWLINES)
    wrong = _wrong_base32(data)
    if wrong is not None:
        return f"illegal base32 data at input byte {wrong}"
    return from_bytes(base64.b32decode(data[: len(data) // 8 * 8]))  # text after the padding is ignored


def _wrong_base32(data: bytes) -> int | None:
    """Return the first invalid position of base32, or ``None`` if it is valid."""
    padding = next((place for place, byte in enumerate(data) if byte not in _BASE32), len(data))
    filled, remainder = padding % 8, len(data) - padding
    if remainder == 0:
        return len(data) - filled if filled else None
    if data[padding] != _PAD or filled < 2 or remainder > 8:
        return padding
    if filled + remainder < 8:
        return len(data)
    wrong = next((place for place in range(padding + 1, padding + 8 - filled) if data[place] != _PAD), None)
    if wrong is not None:
        return wrong - 1
    if filled in (3, 6):  # too few bits for a whole byte
        return padding
    return None


def _sha1sum(text: str) -> str:
    """``sha1sum``: SHA-1 of the text's bytes, in hexadecimal."""
    return hashlib.sha1(to_bytes(text), usedforsecurity=False).hexdigest()


def _sha256sum(text: str) -> str:
    """``sha256sum``: SHA-256 of the text's bytes, in hexadecimal."""
    return hashlib.sha256(to_bytes(text)).hexdigest()


def _sha512sum(text: str) -> str:
    """``sha512sum``: SHA-512 of the text's bytes, in hexadecimal."""
    return hashlib.sha512(to_bytes(text)).hexdigest()


def _adler32sum(text: str) -> str:
    """``adler32sum``: Adler-32 of the text's bytes, in decimal digits."""
    return str(zlib.adler32(to_bytes(text)))


_ENCODING: Final[dict[str, Callable[..., Any]]] = {
    "adler32sum": _adler32sum,
    "b32dec": _b32dec,
    "b32enc": _b32enc,
    "b64dec": _b64dec,
    "b64enc": _b64enc,
    "sha1sum": _sha1sum,
    "sha256sum": _sha256sum,
    "sha512sum": _sha512sum,
}


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


_JSON: Final[dict[str, Callable[..., Any]]] = {
    "fromJson": _from_json,
    "mustFromJson": _must_from_json,
    "mustToJson": to_json,
    "mustToPrettyJson": _must_to_pretty_json,
    "mustToRawJson": _must_to_raw_json,
    "toJson": _to_json,
    "toPrettyJson": _to_pretty_json,
    "toRawJson": _to_raw_json,
}

FUNCTIONS: Final = {**_ENCODING, **_JSON}
