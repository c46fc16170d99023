"""Terms that all formats share: a setting, its value in a text, and errors."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from puller.errors import ResourceError

CONTINUATIONS = ("none", "indent", "backslash")
"""The rules by which a value continues in the next line. See ``continuation.py``."""


class FormatError(ResourceError):
    """A text in which a setting cannot be found, or not be changed without harm; names the line where there is one."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, as the properties have it."""

    key: str | tuple[str, ...]
    """The key; in yaml, toml and json dots lead into the tree, and several texts are the way."""
    section: str | None = None
    """The section, in ini."""
    value: Any = msgspec.UNSET
    """The wanted value; secrets are revealed. Not given when the setting is to be absent."""
    separator: str | None = None
    """What stands between key and value of a new line, in ini and keyvalue; ``None`` for the format's own."""
    continuation: str | None = None
    """How a value continues in the next line, in ini and keyvalue: one of ``CONTINUATIONS``, or ``None`` if unknown."""

    @property
    def is_absent(self) -> bool:
        """Whether the setting has no value."""
        return self.value is msgspec.UNSET


class Found(msgspec.Struct, frozen=True):
    """The state of a setting in a text."""

    is_there: bool
    value: Any = None
    """The value that a reader gets: a text in ini, shell and keyvalue, where a key without a sign has ``None``."""
    line: int | None = None
    """Where it is, counted from 1; of several the last one, which counts."""


# A cache of parsed texts for the next setting in the same text.

P = ParamSpec("P")
R = TypeVar("R")

_LARGE = 1 << 20
"""In characters: of such texts only two are kept, before and after a change, as a tree is many times its text."""


def remembered(read: Callable[Concatenate[str, P], R]) -> Callable[Concatenate[str, P], R]:
    """``read``, which is a pure function of a text, with its last few answers kept."""
    small, large = lru_cache(maxsize=16)(read), lru_cache(maxsize=2)(read)

    def answer(text: str, /, *more: P.args, **named: P.kwargs) -> R:
        return (small if len(text) < _LARGE else large)(text, *more, **named)  # type: ignore[arg-type]

    return answer
