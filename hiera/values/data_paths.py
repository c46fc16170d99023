r"""Dotted paths into plain values: ``data.web.port``, ``data.hosts.0``, ``data.hosts.#``, ``facts.a\.b``.

* A step into a mapping is a key. A step into a list is an index from 0, and a final ``#`` is the length of the list.
* A backslash makes the next character ordinary: ``\.`` a dot, ``\#`` a number sign, ``\\`` a backslash.
* A step of digits such as ``80`` matches a key that is a number or a text.
* *Missing* is a separate value, because null is a valid result.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hiera.errors import ExpressionError
from hiera.values.secrets import Secret


class Missing:
    """The type of ``MISSING``, for a missing value."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()

LENGTH: Final = "#"
"""The last step of a path that requests a length. Write a key of this name with a backslash."""

_STEP: Final = r"(?:[^.\\]|\\.)+"
_MOST_STEPS: Final = 100  # the maximum depth of documents
_SHOWN: Final = 80  # characters of a path in a message
_LONGEST_INDEX: Final = 18  # digits, since longer numbers are no index and slow to convert


class Key(str):
    """A step that was written with a backslash: always a key, never the length."""

    __slots__ = ()


@functools.lru_cache(maxsize=4096)
def parse_path(text: str) -> tuple[str, ...]:
    """Return the steps of a dotted path.

    Raises ExpressionError for an empty step, a ``#`` before the last step, and too many steps.
    """
    steps = re.findall(_STEP, text, re.DOTALL) if "\\" in text else [step for step in text.split(".") if step]
    if len(steps) > _MOST_STEPS:
        what = f"has {len(steps)} steps, at most {_MOST_STEPS} are followed"
        raise ExpressionError("", f"the path {text[:_SHOWN]!r}… {what}")
    # Skipped characters (empty steps, and a backslash at the end) are missing in the sum.
    if sum(map(len, steps)) + len(steps) - 1 != len(text):
        raise ExpressionError("", f"the path {text!r} has an empty step or ends in a backslash")
    if LENGTH in steps[:-1]:
        raise ExpressionError("", f"the path {text!r} has a # that is not its last step")
    return tuple(
        Key(re.sub(r"\\(.)", r"\1", step, flags=re.DOTALL)) if "\\" in step else step for step in steps
    )


def find(value: Any, path: Sequence[str]) -> Any:
    """Return the value at ``path`` below ``value``, or ``MISSING``. A part of a secret is a secret."""
    for position, key in enumerate(path):
        if type(value) is not dict or (below := value.get(key, MISSING)) is MISSING:
            below = step(value, key)
        if below is MISSING:
            return _inside_secret(value, path[position:])
        value = below
    return value


def _inside_secret(value: Any, path: Sequence[str]) -> Any:
    below = find(value.reveal(), path) if isinstance(value, Secret) else MISSING
    return below if below is MISSING or isinstance(below, Secret) else Secret(below)


def step(value: Any, key: str | int) -> Any:
    """Return the value under one key or index, or ``MISSING``."""
    if type(value) is dict:  # the most common case, and faster than a test for a Mapping
        found = value.get(key, MISSING)
        return _other_spelling(value, key) if found is MISSING else found
    if isinstance(value, Mapping):
        try:
            return value[key]
        except KeyError:
            return _other_spelling(value, key)
    if not isinstance(value, (list, tuple)):
        return MISSING
    if key == LENGTH and type(key) is str:
        return len(value)
    index = _as_index(key)
    return value[index] if index is not None and 0 <= index < len(value) else MISSING


def _other_spelling(value: Mapping[Any, Any], key: str | int) -> Any:
    other = str(key) if isinstance(key, int) else _as_index(key)
    return MISSING if other is None else value.get(other, MISSING)


def _as_index(key: str | int) -> int | None:
    if isinstance(key, int):
        return key
    return int(key) if len(key) <= _LONGEST_INDEX and key.isascii() and key.isdecimal() else None


def first_missing(value: Any, path: Sequence[str]) -> tuple[Any, int]:
    """Return the last existing value on the path, and the number of steps to it."""
    for count, key in enumerate(path):
        below = step(value, key)
        if below is MISSING:
            return value, count
        value = below
    return value, len(path)


def path_text(keys: Iterable[str | int]) -> str:
    """Return a path in the form for messages: ``data.web.ports[0]``, with odd keys in brackets and quotes."""
    text = ""
    for key in keys:
        # The same as the expression [\w-]+, which few runs would need otherwise.
        if isinstance(key, str) and key.replace("-", "_").replace("_", "a").isalnum():
            text += f".{key}" if text else key
        else:
            text += f"[{key!r}]"
    return text
