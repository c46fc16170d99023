"""A value that is used and never shown.

* ``str``, ``repr`` and formatting give a mask, so that no log, traceback or report carries it by accident.
* Text from outside (a library's error, a URL) is passed through `mask_userinfo` before it is shown.
"""

import hmac
import re
from typing import Any, NoReturn

MASK = "***"

# The user information of a URL: everything between "://" and the last "@" before the path.
_USERINFO = re.compile(r"(?<=://)[^/?#\s]*@")


class Secret:
    """A text such as a password or a token; `reveal` is the one way to it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself, for the one place that needs it."""
        return self._value

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret('{MASK}')"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not written out")


def decode_secret(kind: type, value: Any) -> Secret:
    """The ``dec_hook`` of msgspec for settings with secrets: text in, `Secret` inside."""
    if kind is not Secret:
        raise NotImplementedError(f"no decoder for {kind.__name__}")
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
    return Secret(value)


def mask_userinfo(text: str) -> str:
    """``text`` with the user name and password of every URL in it masked."""
    return _USERINFO.sub(f"{MASK}@", text)
