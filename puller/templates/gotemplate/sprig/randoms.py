"""Random text and numbers. A file with them changes every time."""

from __future__ import annotations

import base64
import secrets
import string
import uuid
from collections.abc import Callable
from typing import Any, Final

from puller.templates.gotemplate.rendering_state import Rendering
from puller.templates.template_errors import FunctionError

_PRINTABLE: Final = "".join(map(chr, range(32, 127)))


def _check(rendering: Rendering, count: int) -> None:
    if count < 0:
        raise FunctionError(f"{count} random characters: the count is negative")
    rendering.allow(2 * count)  # randBytes writes base64, which is longer


def _choose(rendering: Rendering, count: int, characters: str) -> str:
    _check(rendering, count)
    return "".join(secrets.choice(characters) for _ in range(count))


def _alpha(rendering: Rendering, count: int) -> str:
    """``randAlpha``: ``count`` random letters."""
    return _choose(rendering, count, string.ascii_letters)


def _alpha_num(rendering: Rendering, count: int) -> str:
    """``randAlphaNum``: ``count`` random letters and digits."""
    return _choose(rendering, count, string.ascii_letters + string.digits)


def _ascii(rendering: Rendering, count: int) -> str:
    """``randAscii``: ``count`` random printable ASCII characters."""
    return _choose(rendering, count, _PRINTABLE)


def _numeric(rendering: Rendering, count: int) -> str:
    """``randNumeric``: ``count`` random digits."""
    return _choose(rendering, count, string.digits)


def _bytes(rendering: Rendering, count: int) -> str:
    """``randBytes``: ``count`` random bytes, in base64."""
    _check(rendering, count)
    return base64.b64encode(secrets.token_bytes(count)).decode()


def _int(smallest: int, end: int) -> int:
    """``randInt``: a number from the smallest to before the end. Raises FunctionError for an empty range."""
    if end <= smallest:
        raise FunctionError(f"there is no number from {smallest} to below {end}")
    return smallest + secrets.randbelow(end - smallest)


def _shuffle(text: str) -> str:
    """``shuffle``: the characters of the text in a random order."""
    characters = list(text)
    secrets.SystemRandom().shuffle(characters)
    return "".join(characters)


def _uuidv4() -> str:
    """``uuidv4``: a random UUID."""
    return str(uuid.uuid4())


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "randAlpha": _alpha,
    "randAlphaNum": _alpha_num,
    "randAscii": _ascii,
    "randBytes": _bytes,
    "randInt": _int,
    "randNumeric": _numeric,
    "shuffle": _shuffle,
    "uuidv4": _uuidv4,
}
