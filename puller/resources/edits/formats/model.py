"""Terms that all formats share: a setting, its value in a text, and errors."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from puller.errors import ResourceError

CONTINUATIONS = ("none", "indent", "backslash")
"""Rules for values that continue in the next line. See ``text_lines.py``."""


class FormatError(ResourceError):
    """A text in which a setting cannot be found or safely changed. Names the line if possible."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, from the properties of its resource."""

    key: str | tuple[str, ...]
    """The key. In yaml, toml and json, dots or a tuple of names give the path in the tree."""
    section: str | None = None
    """The section, in ini."""
    value: Any = msgspec.UNSET
    """The desired value, with secrets revealed. Unset if the setting should be absent."""
    separator: str | None = None
    """The separator of key and value in a new line, in ini and keyvalue. ``None``: the default of the format."""
    continuation: str | None = None
    """The continuation rule in ini and keyvalue: one of ``CONTINUATIONS``, or ``None`` if unknown."""

    @property
    def is_absent(self) -> bool:
        """Whether the setting has no value."""
        return self.value is msgspec.UNSET


class Found(msgspec.Struct, frozen=True):
    """The state of a setting in a text."""

    is_there: bool
    value: Any = None
    """The value that a program reads. Text in ini, shell and keyvalue. ``None`` for a key without a sign."""
    line: int | None = None
    """The line of the key, counted from 1. For several lines, the last one, which takes precedence."""


# A cache of parsed texts for the next setting in the same text.

P = ParamSpec("P")
R = TypeVar("R")

_LARGE = 1 << 20
"""The size in characters of a large text. Only two of these are cached, because a tree is many times its text."""


def remembered(read: Callable[Concatenate[str, P], R]) -> Callable[Concatenate[str, P], R]:
    """Cache the last few results of ``read``, a pure function of a text."""
    small, large = lru_cache(maxsize=16)(read), lru_cache(maxsize=2)(read)

    def answer(text: str, /, *additional: P.args, **named: P.kwargs) -> R:
        return (small if len(text) < _LARGE else large)(text, *additional, **named)  # type: ignore[arg-type]

    return answer
